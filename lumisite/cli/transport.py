"""`transport`: which network a run really used."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from operator import attrgetter

import click

from lumisite.cli.commands import Command
from lumisite.cli.input import file_blocks
from lumisite.cli.options import COUNT, FILE_NAME, OR_NONE, json_option, site_option
from lumisite.cli.output import print_json, print_lines, print_table
from lumisite.cli.site_choice import optional_site
from lumisite.findings import writers
from lumisite.findings.exit_code import verdict_exit_code
from lumisite.site.cpu_list import format_cpu_list
from lumisite.text import printable
from lumisite.validate.nccl_log import scan
from lumisite.validate.transport import Expectation, ProcessResult, Result, judge

#: What the table says of a process, and its columns.
_ANSWERS = attrgetter("verdict", "plugin_in_use", "provider", "network", "nics", "gdr", "init")
_COLUMNS = ("verdict", "plugin", "provider", "network", "NICs", "GDR", "init")


@click.command(cls=Command)
@click.argument(
    "logs", metavar="LOG...", nargs=-1, required=True, type=FILE_NAME, help="A log, plain or gzip; - is standard input."
)
@click.option(
    "--expect",
    metavar="PROVIDER",
    help="Libfabric provider that must be used (default: the site's, else any fast one).",
)
@click.option("--nics", metavar="N", type=COUNT, help="NICs that each process must find (default: the site's).")
@click.option("--require-gdr", is_flag=True, help="Fail without proof of GPU Direct RDMA.")
@site_option(OR_NONE)
@json_option
def command(
    logs: tuple[str, ...], expect: str | None, nics: int | None, require_gdr: bool, site: str, as_json: bool
) -> int:
    """Print whether the expected network carried the traffic of a run.

    Read are the logs of NCCL or its like (NCCL_DEBUG=INFO, NCCL_DEBUG_SUBSYS=INIT,NET,ENV) of all ranks. Exit code 0:
    it did, 1: it did not, 4: the log does not show it.
    """
    if name := optional_site(site):
        from lumisite.site.load import load_site  # most of what a start costs

        described = load_site(name).site
        expect, nics = expect or described.fabric.carrier, nics or described.nics
    log = scan((name, file_blocks(name)) for name in logs)
    result = judge(log, Expectation(expect, nics, require_gdr))
    if as_json:
        print_json(_as_json(result))
    else:
        _print_text(result)
    return verdict_exit_code(result.verdict)


def _as_json(result: Result) -> dict[str, object]:
    fields = asdict(result)
    del fields["findings"]
    return {**fields, "reasons": result.reasons, "findings": [writers.as_json(finding) for finding in result.findings]}


def _print_text(result: Result) -> None:
    first, *rest = [writers.line(finding) for finding in result.findings]
    print_lines([f"{result.verdict.upper()}: {first}", *(f"  {line}" for line in rest), ""])
    answers = [
        ("plugin in use", result.plugin_in_use),
        ("provider", result.provider),
        ("network", result.network),
        ("GPU Direct RDMA", result.gdr),
        ("interfaces", " ".join(result.interfaces) or "not named"),
    ]
    print_table([(name, printable(value)) for name, value in answers])
    if result.processes:
        print_lines([""])
        print_table([["ranks", "process", *_COLUMNS], *_rows(result.processes)])


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
