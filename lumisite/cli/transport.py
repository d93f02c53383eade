"""Which network a run really used: `transport`; and how this room reads a file that may be huge."""

from __future__ import annotations

import argparse
import io
import os
import re
import zlib
from collections.abc import Iterator
from dataclasses import asdict
from typing import BinaryIO

from lumisite.cli.arguments import COUNT, add_json
from lumisite.cli.parser import tell
from lumisite.cli.progress import Progress
from lumisite.errors import shown
from lumisite.site.read import opened
from lumisite.text import columns
from lumisite.validate import InputError
from lumisite.validate.transport.judge import Expectation, judge
from lumisite.validate.transport.lines import Evidence
from lumisite.validate.transport.log import scan
from lumisite.validate.transport.shown import Result

#: Exit codes of a verdict (design: 1 a failed verdict, 4 inconclusive).
EXIT = {"pass": 0, "fail": 1, "inconclusive": 4}
#: How much of a file is read at a time: what is looked at several times should stay in a core's cache.
BLOCK_BYTES = 1 << 18
#: What zlib takes for gzip (zlib's manual, inflateInit2: 16 more than the window's bits).
_GZIP = 31
#: Archives are padded with zeros to a block; a file with a hole at its end has more.
_MOST_ZEROS = 64 << 20
#: Processes of a passing run that are listed for a person.
ROWS_SHOWN = 16
#: Characters of a line of the log that are shown.
EVIDENCE_SHOWN = 72


def add_transport(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `transport`."""
    parser.description = (
        "Read the logs of NCCL or its like (NCCL_DEBUG=INFO, NCCL_DEBUG_SUBSYS=INIT,NET,ENV) of all ranks of a run "
        "and tell whether the plugin carried the traffic over the expected fabric. Exit code 0: it did, 1: it did "
        "not, 4: the log does not show it."
    )
    parser.add_argument("logs", metavar="LOG", nargs="+", help="a log, plain or gzip; - is standard input")
    parser.add_argument(
        "--expect",
        metavar="PROVIDER",
        help=(
            "libfabric provider that must carry the traffic, such as verbs (default: that of --site; without --site, "
            "any but those over sockets)"
        ),
    )
    parser.add_argument(
        "--nics", metavar="N", type=COUNT, help="NICs that each process must find (default: as many as --site has)"
    )
    parser.add_argument("--require-gdr", action="store_true", help="fail without proof of GPU Direct RDMA")
    parser.add_argument(
        "--site",
        metavar="NAME|FILE",
        default="",
        help="take provider and NICs from this site (default: LUMISITE_SITE, else none)",
    )
    add_json(parser)


def run_transport(arguments: argparse.Namespace) -> int:
    """Judge one run's logs."""
    site = None
    if arguments.site:
        from lumisite.site.load import load_site  # most of what a start costs

        site = load_site(arguments.site).site
    expected = arguments.expect or (site.fabric.carrier if site else None)
    nics = arguments.nics or (site.nics if site else None)
    log = scan((name, file_blocks(name)) for name in arguments.logs)
    result = judge(log, Expectation(expected, nics, arguments.require_gdr))
    tell(asdict(result), _transport_text(result), as_json=arguments.json)
    return EXIT[result.verdict]


def _transport_text(result: Result) -> Iterator[str]:
    yield f"{result.verdict.upper()}: {result.reasons[0] if result.reasons else 'no reason'}"
    yield from (f"  {reason}" for reason in result.reasons[1:])
    yield ""
    answers = (
        ("plugin in use", "plugin_in_use", result.plugin_in_use),
        ("provider", "provider", result.provider),
        ("network", "network", result.network),
        ("GPU Direct RDMA", "gdr", result.gdr),
        ("interfaces", "interfaces", " ".join(result.interfaces) or "not named"),
    )
    several = len({one.file for one in result.evidence.values() if one}) > 1
    yield from columns([(title, answer, _line(result.evidence[name], several)) for title, name, answer in answers])
    shown = [one for one in result.processes if one.verdict != "pass"] or result.processes
    if not shown:
        return
    yield ""
    rows = [("rank", "process", "verdict", "plugin", "provider", "network", "NICs", "GDR", "init")]
    for one in shown[:ROWS_SHOWN]:
        rank, nics = ("-" if number is None else str(number) for number in (one.rank, one.nics))
        rows.append(
            (rank, one.process, one.verdict, one.plugin_in_use, one.provider, one.network, nics, one.gdr, one.init)
        )
    yield from columns(rows)
    if len(shown) > ROWS_SHOWN:
        yield f"… and {len(shown) - ROWS_SHOWN} more"


def _line(evidence: Evidence | None, several: bool) -> str:
    """Say which line of the log an answer is from."""
    if evidence is None:
        return ""
    place = f"{evidence.file}:{evidence.line}" if several else f"line {evidence.line}"
    text = evidence.text if len(evidence.text) <= EVIDENCE_SHOWN else evidence.text[: EVIDENCE_SHOWN - 1] + "…"
    return shown(f"{place}: {text}")


def file_blocks(name: str) -> Iterator[bytes]:
    """Read a file or standard input in blocks, unpacking gzip."""
    try:
        # What the shell has opened for us may be a pipe: `transport <(zcat LOG)`.
        own = 0 if name == "-" else int(name[8:]) if re.fullmatch(r"/dev/fd/[0-9]{1,4}", name) else None
        with opened(name) if own is None else io.BufferedReader(io.FileIO(own, closefd=False)) as stream:
            packed = stream.peek(2)[:2] == b"\x1f\x8b"
            if packed:
                yield from _unpacked(stream)
            progress, size = Progress("MB", lines=False), os.fstat(stream.fileno()).st_size
            while block := stream.read(BLOCK_BYTES):
                if size and not packed:
                    progress(stream.tell() / 1e6, size / 1e6, name)
                yield block
    except (EOFError, zlib.error) as error:
        raise InputError(f"{name}: cannot be unpacked: {error}") from None
    except OSError as error:
        raise InputError(f"{shown(name)}: cannot be read: {error.strerror}") from None


def _unpacked(stream: BinaryIO) -> Iterator[bytes]:
    """Unpack gzip, one member after the other; Python's own reader takes zeros behind a member byte by byte."""
    member, block, zeros = zlib.decompressobj(_GZIP), b"", 0
    while block := block or stream.read(BLOCK_BYTES):
        if member.eof:
            before, block = len(block), block.lstrip(b"\0")
            zeros += before - len(block)
            if zeros > _MOST_ZEROS:
                raise EOFError(f"behind what is packed are more than {_MOST_ZEROS >> 20} MiB of zeros")
            if not block:
                continue
            member = zlib.decompressobj(_GZIP)
        if unpacked := member.decompress(block, BLOCK_BYTES):
            yield unpacked
        block = member.unconsumed_tail or member.unused_data
    if not member.eof:
        raise EOFError("it ends in the middle")
