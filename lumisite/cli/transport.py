"""Which network a run really used: `transport`; and how this room reads a file that may be huge."""

from __future__ import annotations

import argparse
import gzip
import io
import os
import re
import zlib
from collections.abc import Iterator
from dataclasses import asdict

from lumisite.cli.arguments import COUNT, add_json
from lumisite.cli.parser import tell
from lumisite.cli.progress import Progress
from lumisite.errors import shown
from lumisite.findings import writers
from lumisite.site.read import opened
from lumisite.text import columns
from lumisite.validate import InputError
from lumisite.validate.transport.judge import Expectation, judge
from lumisite.validate.transport.lines import Evidence
from lumisite.validate.transport.log import scan
from lumisite.validate.transport.result import Result

#: Exit codes of a verdict (design: 1 a failed verdict, 4 inconclusive).
EXIT = {"pass": 0, "fail": 1, "inconclusive": 4}
#: How much of a file is read at a time: what is looked at several times should stay in a core's cache.
BLOCK_BYTES = 1 << 18
#: Processes of a passing run that are listed for a person.
MOST_ROWS = 16
#: Characters of a line of the log that are printed.
MOST_LETTERS = 72


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
    tell(_as_json(result), _as_text(result), as_json=arguments.json)
    return EXIT[result.verdict]


def _as_json(result: Result) -> dict[str, object]:
    fields = {**asdict(result), "findings": [writers.as_json(finding) for finding in result.findings]}
    evidence, findings = fields.pop("evidence"), fields.pop("findings")
    return {**fields, "reasons": result.reasons, "evidence": evidence, "findings": findings}


def _as_text(result: Result) -> Iterator[str]:
    first, *rest = [writers.line(finding) for finding in result.findings]
    yield f"{result.verdict.upper()}: {first}"
    yield from (f"  {line}" for line in rest)
    yield ""
    answers = {
        "plugin_in_use": ("plugin in use", result.plugin_in_use),
        "provider": ("provider", result.provider),
        "network": ("network", result.network),
        "gdr": ("GPU Direct RDMA", result.gdr),
        "interfaces": ("interfaces", " ".join(result.interfaces) or "not named"),
    }
    several = len({evidence.file for evidence in result.evidence.values() if evidence}) > 1
    yield from columns([(*answer, _quote(result.evidence[name], several)) for name, answer in answers.items()])
    processes = [process for process in result.processes if process.verdict != "pass"] or result.processes
    if not processes:
        return
    yield ""
    rows = [("rank", "process", "verdict", "plugin", "provider", "network", "NICs", "GDR", "init")]
    for one in processes[:MOST_ROWS]:
        rank, nics = ("-" if number is None else str(number) for number in (one.rank, one.nics))
        rows.append(
            (rank, one.process, one.verdict, one.plugin_in_use, one.provider, one.network, nics, one.gdr, one.init)
        )
    yield from columns(rows)
    if len(processes) > MOST_ROWS:
        yield f"… and {len(processes) - MOST_ROWS} more"


def _quote(evidence: Evidence | None, several: bool) -> str:
    """Return the line of the log that an answer is from."""
    if evidence is None:
        return ""
    place = f"{evidence.file}:{evidence.line}" if several else f"line {evidence.line}"
    text = evidence.text if len(evidence.text) <= MOST_LETTERS else f"{evidence.text[: MOST_LETTERS - 1]}…"
    return shown(f"{place}: {text}")


def file_blocks(name: str) -> Iterator[bytes]:
    """Read a file or standard input in blocks, unpacking gzip."""
    try:
        # What the shell has opened for us may be a pipe: `transport <(zcat LOG)`.
        open_already = 0 if name == "-" else int(name[8:]) if re.fullmatch(r"/dev/fd/[0-9]{1,4}", name) else None
        with opened(name) if open_already is None else _opened_already(open_already) as stream:
            if stream.peek(2)[:2] == b"\x1f\x8b":
                unpacked = gzip.GzipFile(fileobj=stream)
                yield from iter(lambda: unpacked.read(BLOCK_BYTES), b"")
                return
            progress, size = Progress("MB", lines=False), os.fstat(stream.fileno()).st_size
            while block := stream.read(BLOCK_BYTES):
                if size:
                    progress(stream.tell() / 1e6, size / 1e6, name)
                yield block
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise InputError(f"{name}: cannot be unpacked: {error}") from None
    except OSError as error:
        raise InputError(f"{shown(name)}: cannot be read: {error.strerror}") from None


def _opened_already(number: int) -> io.BufferedReader:
    return io.BufferedReader(io.FileIO(number, closefd=False))
