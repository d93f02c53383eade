"""`transport`: which network a run really used."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import asdict
from operator import attrgetter

from lumisite.cli.arguments import COUNT, add_json
from lumisite.cli.colours import table
from lumisite.cli.input import file_blocks
from lumisite.cli.output import print_result
from lumisite.findings import writers
from lumisite.findings.exit_code import verdict_exit_code
from lumisite.text import printable
from lumisite.validate.transport.judge import Expectation, judge
from lumisite.validate.transport.lines import LogLine
from lumisite.validate.transport.log import scan
from lumisite.validate.transport.result import Result

#: Processes of a passing run that are listed for a person.
MOST_ROWS = 16
#: Characters of a line of the log that are printed.
MOST_LETTERS = 72
#: The values of a process, in the order of the table.
_FIELDS = attrgetter("rank", "process", "verdict", "plugin_in_use", "provider", "network", "nics", "gdr", "init")


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
    print_result(_as_json(result), _as_text(result), as_json=arguments.json)
    return verdict_exit_code(result.verdict)


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
    yield from table([(*answer, _quote(result.evidence[name], several)) for name, answer in answers.items()])
    processes = [process for process in result.processes if process.verdict != "pass"] or result.processes
    if not processes:
        return
    yield ""
    rows = [["-" if value is None else str(value) for value in _FIELDS(process)] for process in processes[:MOST_ROWS]]
    head = ["rank", "process", "verdict", "plugin", "provider", "network", "NICs", "GDR", "init"]
    yield from table([head, *rows])
    if len(processes) > MOST_ROWS:
        yield f"… and {len(processes) - MOST_ROWS} more"


def _quote(evidence: LogLine | None, several: bool) -> str:
    """Return the line of the log that an answer is from."""
    if evidence is None:
        return ""
    location = f"{evidence.file}:{evidence.line}" if several else f"line {evidence.line}"
    text = evidence.text if len(evidence.text) <= MOST_LETTERS else f"{evidence.text[: MOST_LETTERS - 1]}…"
    return printable(f"{location}: {text}")
