"""`journal`: what the srun helper did or would have done, summed up from logs."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from lumisite.cli.arguments import add_json
from lumisite.cli.input import file_blocks
from lumisite.cli.output import print_result
from lumisite.findings.exit_code import exit_code
from lumisite.findings.finding import Finding
from lumisite.findings.writers import as_json, line
from lumisite.release.journal import MOST_LINE_BYTES, Journal
from lumisite.text import columns, counted, printable
from lumisite.validate.trial.stats import fisher, rate_interval

#: By mode, how many jobs failed, and of how many.
_States: TypeAlias = dict[str, tuple[int, int]]
#: Rows of one table; what is rarer is counted.
_MOST_ROWS = 12
_TITLES = {
    "set": "variable set",
    "unset": "variable unset",
    "bind": "bind added",
    "no-bind": "bind left out",
    "cpus": "CPU mask",
    "left": "variable of the user's own left as it is",
    "missing": "required path missing",
    "no-cpus": "no CPU mask",
    "no-place": "no directory for caches",
    "unsure": "option of the runtime unknown",
    "harm": "harmful variable of the user's own",
}
#: How accounting names jobs that ended well, and those that somebody or a limit ended.
_FINE, _NOT_COUNTED = ("COMPLETED",), ("CANCELLED", "PENDING", "RUNNING", "SUSPENDED")


def add_journal(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `journal`."""
    parser.description = (
        "Sum up what the srun helper did or would have done: steps, what was decided, what it cost, what was left, and "
        "nodes that differ from the others of their partition. FILE is what `journalctl -t lumisite -o json` prints, a "
        "system log, or a job's own log with LUMISITE_VERBOSE=1. Exit code 5 if nodes differ."
    )
    parser.add_argument("files", metavar="FILE", nargs="+", help="a log; - is standard input")
    parser.add_argument(
        "--states",
        metavar="FILE",
        help="what `sacct -nPX -o JobID,State` prints: compare jobs for which the helper acts with the observed ones",
    )
    add_json(parser)


def run_journal(arguments: argparse.Namespace) -> int:
    """Print the summary."""
    journal = Journal()
    for name in arguments.files:
        journal.read(_lines_of(name), name)
    findings = list(journal.findings())
    states = _compare_states(journal, arguments.states) if arguments.states else None
    print_result(_json(journal, findings, states), _lines(journal, findings, states), as_json=arguments.json)
    return exit_code(findings)


def _lines_of(name: str) -> Iterator[bytes]:
    """Yield the lines of a file; one that never ends is cut."""
    rest = b""
    for block in file_blocks(name):
        *whole, rest = (rest + block).split(b"\n")
        yield from whole
        if len(rest) > MOST_LINE_BYTES:
            rest = rest[: MOST_LINE_BYTES + 1]
    if rest:
        yield rest


def _compare_states(journal: Journal, name: str) -> _States:
    """Return for each mode how many jobs failed, of how many that are in the journal and have ended."""
    modes = dict(journal.modes)
    ended: Counter[str] = Counter()
    failed: Counter[str] = Counter()
    for text in _lines_of(name):
        job, _, state = text.decode(errors="replace").strip().partition("|")
        mode, word = modes.pop(job.partition("_")[0], None), state.partition(" ")[0]
        if mode is None or not word or word in _NOT_COUNTED:
            continue
        ended[mode] += 1
        failed[mode] += word not in _FINE
    return {mode: (failed[mode], ended[mode]) for mode in ("act", "observe")}


def _json(journal: Journal, findings: Sequence[Finding], states: _States | None) -> dict[str, Any]:
    decided = {mode: _counts(tables) for mode, tables in sorted(journal.decided.items())}
    jobs = {mode: {"failed": failed, "ended": ended} for mode, (failed, ended) in (states or {}).items()}
    return {
        "lines": journal.lines,
        "records": journal.records,
        "damaged": journal.damaged,
        "steps": {mode: len(steps) for mode, steps in sorted(journal.steps.items())},
        "nodes": journal.node_count,
        "overhead_ms": journal.overheads(),
        "decided": decided,
        "refused": _counts(journal.refused),
        "findings": [as_json(finding) for finding in findings],
        **({} if states is None else {"jobs": jobs}),
    }


def _counts(tables: Mapping[str, Counter[str]]) -> dict[str, dict[str, int]]:
    return {key: dict(table.most_common()) for key, table in tables.items() if table}


def _lines(journal: Journal, findings: Sequence[Finding], states: _States | None) -> Iterator[str]:
    steps = ", ".join(f"{mode} {len(steps)}" for mode, steps in sorted(journal.steps.items())) or "none"
    yield f"steps: {steps}, on {counted(journal.node_count, 'node')}"
    median, most = journal.overheads().values()
    if median is not None and most is not None:
        yield f"overhead of a step on a node: p50 {median:.1f} ms, p99 {most:.1f} ms"
    for mode, tables in sorted(journal.decided.items()):
        yield ""
        yield "would change, in steps:" if mode == "observe" else "changed, in steps:"
        yield from _table(tables)
    if any(journal.refused.values()):
        yield ""
        yield "not done, in steps:"
        yield from _table(journal.refused)
    if states is not None:
        yield ""
        yield from _state_lines(states)
    if findings:
        yield ""
        yield from map(line, findings)


def _table(tables: Mapping[str, Counter[str]]) -> Iterator[str]:
    rows = [
        (str(count), _TITLES[key], "" if key == "cpus" else printable(value))
        for key, table in tables.items()
        for value, count in table.most_common()
    ]
    rows.sort(key=lambda row: -int(row[0]))
    yield from (f"  {text}" for text in columns(rows[:_MOST_ROWS]))
    if len(rows) > _MOST_ROWS:
        yield f"  and {len(rows) - _MOST_ROWS} more (--json has all)"


def _state_lines(states: _States) -> Iterator[str]:
    """Yield how many jobs failed in each mode, with exact intervals, and whether that may be chance."""
    for mode, (failed, ended) in states.items():
        if not ended:
            yield f"jobs, {mode}: none has ended"
            continue
        low, high = rate_interval(failed, ended)
        yield f"jobs, {mode}: {failed} of {ended} failed ({low:.1%} to {high:.1%} with 95 % confidence)"
    (bad, runs), (bad_others, others) = states["act"], states["observe"]
    if runs and others:
        chance = fisher(bad, runs, bad_others, others)
        yield f"as many or more failures of `act` by chance: {chance:.3f} (Fisher's exact test, one-sided)"
