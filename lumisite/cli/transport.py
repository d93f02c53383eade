"""`transport`: which network a run really used."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from operator import attrgetter

from lumisite.cli.arguments import COUNT, add_json
from lumisite.cli.colours import table
from lumisite.cli.input import file_blocks
from lumisite.cli.output import print_result
from lumisite.findings import writers
from lumisite.findings.exit_code import verdict_exit_code
from lumisite.site.cpus import format_cpu_list
from lumisite.text import printable
from lumisite.validate.nccl_log import scan
from lumisite.validate.transport import Expectation, ProcessResult, Result, judge

#: What the table says of a process, and its columns.
_ANSWERS = attrgetter("verdict", "plugin_in_use", "provider", "network", "nics", "gdr", "init")
_COLUMNS = ("verdict", "plugin", "provider", "network", "NICs", "GDR", "init")


def add_transport(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `transport`."""
    parser.description = (
        "Read the logs of NCCL or its like (NCCL_DEBUG=INFO, NCCL_DEBUG_SUBSYS=INIT,NET,ENV) of all ranks of a run "
        "and tell whether the expected network carried the traffic. Exit code 0: it did, 1: it did "
        "not, 4: the log does not show it."
    )
    parser.add_argument("logs", metavar="LOG", nargs="+", help="a log, plain or gzip; - is standard input")
    parser.add_argument(
        "--expect",
        metavar="PROVIDER",
        help=(
            "libfabric provider that must carry the traffic, such as verbs (default: that of --site; without --site, "
            "any fast network)"
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
    fields = asdict(result)
    del fields["findings"]
    return {**fields, "reasons": result.reasons, "findings": [writers.as_json(finding) for finding in result.findings]}


def _as_text(result: Result) -> Iterator[str]:
    first, *rest = [writers.line(finding) for finding in result.findings]
    yield f"{result.verdict.upper()}: {first}"
    yield from (f"  {line}" for line in rest)
    yield ""
    answers = [
        ("plugin in use", result.plugin_in_use),
        ("provider", result.provider),
        ("network", result.network),
        ("GPU Direct RDMA", result.gdr),
        ("interfaces", " ".join(result.interfaces) or "not named"),
    ]
    yield from table([(name, printable(value)) for name, value in answers])
    if result.processes:
        yield ""
        yield from table([["ranks", "process", *_COLUMNS], *_rows(result.processes)])


def _rows(processes: Sequence[ProcessResult]) -> Iterator[list[str]]:
    """Yield one row for the processes that have the same answers: of thousands, mostly all have."""
    alike: dict[tuple[object, ...], list[ProcessResult]] = {}
    for process in processes:
        alike.setdefault(_ANSWERS(process), []).append(process)
    for answers, group in alike.items():
        ranks = format_cpu_list(process.rank for process in group if process.rank is not None)
        hosts = {process.host for process in group}
        several = f"{len(group)} on {len(hosts)} node{'s' * (len(hosts) > 1)}"
        name = group[0].process if len(group) == 1 else several
        yield [printable(str(cell)) for cell in (ranks or "-", name, *("-" if one is None else one for one in answers))]
