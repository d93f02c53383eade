"""Commands about what is proved: `transport`, `verdict` and `lint`."""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING

from lumisite.cli.parser import add_json_option, add_site_option, count, say
from lumisite.errors import shown

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import BinaryIO

    from lumisite.cli.parser import Commands
    from lumisite.lint.find import Finding
    from lumisite.site.model import Site
    from lumisite.validate.samples import Recorded
    from lumisite.validate.transport.judge import Result

#: Exit codes of a verdict (design: 1 a failed verdict, 4 inconclusive).
EXIT = {"pass": 0, "fail": 1, "inconclusive": 4}
#: How much of a file is read at a time.
BLOCK_BYTES = 1 << 20
#: What zlib takes for gzip (zlib's manual, inflateInit2: 16 more than the window's bits).
_GZIP = 31
#: Processes of a passing run that are listed for a person.
ROWS_SHOWN = 16


def add_commands(commands: Commands) -> None:
    """Add this module's commands."""
    _add_transport(commands)
    _add_verdict(commands)
    _add_lint(commands)


def _add_transport(commands: Commands) -> None:
    transport = commands.add_parser(
        "transport",
        help="which network NCCL or RCCL really used",
        description="Read the logs of NCCL or RCCL (NCCL_DEBUG=INFO, NCCL_DEBUG_SUBSYS=INIT,NET,ENV) of all ranks of a "
        "run and tell whether the plugin carried the traffic over the expected fabric. Exit code 0: it did, 1: it did "
        "not, 4: the log does not show it.",
    )
    transport.add_argument("logs", nargs="+", metavar="LOG", help="a log, plain or gzip; - is standard input")
    transport.add_argument(
        "--expect",
        metavar="PROVIDER",
        help="libfabric provider that must carry the traffic, such as cxi (default: that of --site; without --site, "
        "any but those over sockets)",
    )
    transport.add_argument(
        "--nics", type=count, metavar="N", help="NICs that each process must find (default: as many as --site has)"
    )
    transport.add_argument("--require-gdr", action="store_true", help="fail without proof of GPU Direct RDMA")
    transport.add_argument("--site", metavar="NAME|FILE", help="take provider and NICs from this site (default: none)")
    add_json_option(transport)
    transport.set_defaults(call=run_transport)


def run_transport(arguments: argparse.Namespace) -> int:
    """Judge one run's logs."""
    from dataclasses import asdict

    from lumisite.validate.transport.judge import Expectation, judge
    from lumisite.validate.transport.log import scan

    site = _site(arguments.site)
    expected = arguments.expect or (site.network.provider if site else None)
    nics = arguments.nics or (len(site.network.interfaces) if site else None)
    log = scan((name, file_blocks(name)) for name in arguments.logs)
    result = judge(log, Expectation(expected, nics, arguments.require_gdr))
    if arguments.json:
        print(json.dumps(asdict(result), indent=2))
    else:
        print("\n".join(_transport_text(result)))
    return EXIT[result.verdict]


def _add_verdict(commands: Commands) -> None:
    verdict = commands.add_parser(
        "verdict",
        help="whether the system became slower",
        description="Judge samples and gates after a change against those before it: files of JSON lines, samples with "
        "metric, value, better (higher or lower), run, nodes and time, gates with gate, verdict, cause, advice, run, "
        "nodes and time. A failed gate is a failure. The first five jobs after the change decide, five later ones on "
        "other nodes confirm. Exit code 0: not slower, 1: a gate failed, or slower and confirmed, 4: not decided, with "
        "what to run next, 5: the system is fine but some nodes are not.",
    )
    for side in ("before", "after"):
        verdict.add_argument(
            f"--{side}",
            action="append",
            required=True,
            metavar="FILE",
            help=f"samples {side} the change, or a report or perflog of ReFrame; may be given several times; - is "
            "standard input",
        )
    verdict.add_argument(
        "--site",
        metavar="NAME|FILE",
        help="take what is expected of each metric from this site (default: none)",
    )
    verdict.add_argument(
        "--allow-image-change",
        action="store_true",
        help="compare samples of different images: the image is what is tested",
    )
    add_json_option(verdict)
    verdict.set_defaults(call=run_verdict)


def run_verdict(arguments: argparse.Namespace) -> int:
    """Judge samples and gates after against those before."""
    from dataclasses import asdict

    from lumisite.validate.reframe.read import with_reframe
    from lumisite.validate.report.write import verdict_text
    from lumisite.validate.samples import read_lines
    from lumisite.validate.verdict.system import Terms, judge_system

    site = _site(arguments.site)
    terms = Terms.of(site.validation if site else None, allow_image_change=arguments.allow_image_change)

    def read(names: list[str], *, after: bool) -> Recorded:
        return read_lines(with_reframe(((name, file_blocks(name)) for name in names), say, after=after))

    verdict = judge_system(read(arguments.before, after=False), read(arguments.after, after=True), terms)
    if arguments.json:
        print(json.dumps(asdict(verdict), indent=2))
    else:
        print("\n".join(verdict_text(verdict)))
    return verdict.exit_code


def _add_lint(commands: Commands) -> None:
    lint = commands.add_parser(
        "lint",
        help="known-bad lines in job scripts",
        description="Find lines in job scripts that are known to fail, hang or run slowly on this site, each with the "
        "line that would be right. Exit code 1 if there are any.",
    )
    lint.add_argument("scripts", nargs="+", metavar="SCRIPT", help="a job script; - is standard input")
    add_site_option(lint)
    add_json_option(lint)
    lint.set_defaults(call=run_lint)


def run_lint(arguments: argparse.Namespace) -> int:
    """Print every bad line."""
    from dataclasses import asdict

    from lumisite.lint.find import SIZE_LIMIT_BYTES, lint_script
    from lumisite.site.load import load_site

    site = load_site(arguments.site).site
    findings: list[tuple[str, Finding]] = []
    for name in arguments.scripts:
        data = bytearray()
        for block in file_blocks(name):
            data += block
            if len(data) > SIZE_LIMIT_BYTES:
                break
        findings += [(name, finding) for finding in lint_script(bytes(data), name, site)]
    if arguments.json:
        print(json.dumps([{"file": name, **asdict(finding)} for name, finding in findings], indent=2))
    else:
        for name, finding in findings:
            print(f"{name}:{finding.line}: {finding.reason} ({finding.right})")
    return 1 if findings else 0


def _site(name: str | None) -> Site | None:
    if name is None:
        return None
    from lumisite.site.load import load_site

    return load_site(name).site


def _transport_text(result: Result) -> Iterator[str]:
    from lumisite.validate.report.contents import aligned

    yield f"{result.verdict.upper()}: {result.reasons[0] if result.reasons else 'no reason'}"
    yield from (f"  {reason}" for reason in result.reasons[1:])
    yield ""
    yield f"plugin in use    {result.plugin_in_use}"
    yield f"provider         {result.provider}"
    yield f"network          {result.network}"
    yield f"GPU Direct RDMA  {result.gdr}"
    yield f"interfaces       {' '.join(result.interfaces) or 'not named'}"
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
    yield from aligned(rows)
    if len(shown) > ROWS_SHOWN:
        yield f"… and {len(shown) - ROWS_SHOWN} more"


def file_blocks(name: str) -> Iterator[bytes]:
    """Read a file or standard input in blocks, unpacking gzip."""
    import io
    import re
    import zlib

    from lumisite.site.read import opened
    from lumisite.validate import InputError

    try:
        # What the shell has opened for us may be a pipe: `transport <(zcat LOG)`.
        own = 0 if name == "-" else int(name[8:]) if re.fullmatch(r"/dev/fd/[0-9]{1,4}", name) else None
        with opened(name) if own is None else io.BufferedReader(io.FileIO(own, closefd=False)) as stream:
            packed = stream.peek(2)[:2] == b"\x1f\x8b"
            if packed:
                yield from _unpacked(stream)
            while block := stream.read(BLOCK_BYTES):
                yield block
    except (EOFError, zlib.error) as error:
        raise InputError(f"{name}: cannot be unpacked: {error}") from None
    except OSError as error:
        raise InputError(f"{shown(name)}: cannot be read: {error.strerror}") from None


def _unpacked(stream: BinaryIO) -> Iterator[bytes]:
    """Unpack gzip, one member after the other; Python's own reader takes zeros behind a member byte by byte."""
    import zlib

    member, block = zlib.decompressobj(_GZIP), b""
    while block := block or stream.read(BLOCK_BYTES):
        if member.eof:
            block = block.lstrip(b"\0")
            if not block:
                continue
            member = zlib.decompressobj(_GZIP)
        if unpacked := member.decompress(block, BLOCK_BYTES):
            yield unpacked
        block = member.unconsumed_tail or member.unused_data
    if not member.eof:
        raise EOFError("it ends in the middle")
