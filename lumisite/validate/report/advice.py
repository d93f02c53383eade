"""What a maintenance changed, where the fault is likely to be, and what to do, in the order of an admin's work."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from lumisite.errors import shown
from lumisite.facts.change import Change
from lumisite.facts.facts import Facts
from lumisite.facts.report import change_json, compare, make_report
from lumisite.findings import writers
from lumisite.findings.catalogue import make_finding
from lumisite.findings.finding import Finding
from lumisite.site.load import LoadedSite, load_plans
from lumisite.text import some
from lumisite.validate.metric_names import parse_name
from lumisite.validate.probes.probe import NODE
from lumisite.validate.run.commands import Commands
from lumisite.validate.verdict.gates import next_step
from lumisite.validate.verdict.metric import MetricVerdict
from lumisite.validate.verdict.system import SystemVerdict

NO_COMMANDS = Commands()
#: Which kinds of change are suspected first where a part of the machine is slower.
SUSPECTS: Mapping[str, tuple[str, ...]] = {
    "network": (
        "product", "default", "soname", "library-gone", "library", "missing", "dangling", "interface", "nic", "os",
        "kernel", "kernel-config",
    ),
    "node": ("driver", "stack", "gpu-count", "gpu-bus", "gpu-place", "cpus", "os", "kernel", "runtime"),
}  # fmt: skip
#: Shapes that need no network.
ALONE = ("1g", "1n")
#: Changes that are named before they are only counted.
FACTS_NAMED = 6
#: A change as `lumisite changes --json` has it; its `touches` are parts of the site: `module singularity-CPEbits`.
ChangeRow: TypeAlias = Mapping[str, Any]


def changes(
    before: Facts | None, after: Facts | None, loaded: LoadedSite | None
) -> tuple[tuple[ChangeRow, ...], tuple[str, ...]]:
    """Compare two captures: return all changes, what matters most first, and the text for users on them.

    Without the site that the captures are of, nothing is known of what a change touches, and there is no such text.
    """
    if before is None or after is None or before.site != after.site:
        return (), ()
    if loaded is None or loaded.site.name != after.site:
        return tuple(map(_row, compare(before, after))), ()
    report = make_report(before, after, loaded.site, load_plans(loaded))
    return tuple(map(_row, report.changes)), report.users if report.changes else ()


def _row(change: Change) -> ChangeRow:
    """Return a change, with each kind of part that it touches once."""
    parts: dict[str, list[str]] = {}
    for touched in change.touches:
        parts.setdefault(touched.what, []).append(touched.name)
    touches = tuple(shown(f"{what} {', '.join(dict.fromkeys(names))}") for what, names in parts.items())
    return {**change_json(change), "touches": touches}


def slower_metrics(verdict: SystemVerdict) -> list[MetricVerdict]:
    """Return the metrics that decide and are slower, confirmed or not."""
    return [metric for metric in verdict.metrics if metric.decides and metric.verdict in ("fail", "unconfirmed")]


def advice(
    verdict: SystemVerdict, changed: Sequence[ChangeRow], commands: Commands = NO_COMMANDS, *, alone: bool = False
) -> Iterator[str]:
    """Yield what to do: gates first, for a broken gate explains slow numbers; then numbers, nodes, and missing jobs.

    `commands` are those of the run, and `alone` means that there is no baseline.
    """
    for gate in verdict.gates:
        causes = [cause for cause in gate.causes if not cause.follows]
        for cause in causes if gate.gate == NODE else causes[:1]:
            yield f"{gate.gate}: {cause.cause}: {next_step(cause)}"
    yield from map(step, _on_numbers(verdict, changed))
    if verdict.bad_nodes:
        names = verdict.bad_nodes
        yield commands.remeasure(names)
    yield from verdict.next_runs
    for purpose, command in commands.next_ones():
        yield f"{purpose}: `{command}`"
    short = alone or any(run.code == "next-baseline" for run in verdict.missing_runs)
    if short and commands.baseline:
        yield commands.make_baseline()
    if faster := tuple(metric.metric for metric in verdict.metrics if metric.improved):
        yield step(make_finding("metrics-faster", metrics=faster))


def step(finding: Finding) -> str:
    """Return what is seen and what to do about it, in one line."""
    return f"{writers.message(finding)}: {writers.advice(finding)}"


def _on_numbers(verdict: SystemVerdict, changed: Sequence[ChangeRow]) -> list[Finding]:
    slower = slower_metrics(verdict)
    broken = tuple(gate.gate for gate in verdict.gates if gate.verdict == "fail")
    if not slower:
        return []
    if broken:
        return [make_finding("fix-gates-first", gates=broken)]
    metrics = tuple(metric.metric for metric in slower)
    return list(_where(slower, verdict.metrics, changed)) or [make_finding("look-at-metrics", metrics=metrics)]


def _where(
    slower: Sequence[MetricVerdict], metrics: Sequence[MetricVerdict], changed: Sequence[ChangeRow]
) -> Iterator[Finding]:
    names = [parse_name(metric.metric) for metric in slower]
    fine = [parse_name(metric.metric) for metric in metrics if metric.verdict == "pass" or _is_shown_fine(metric)]
    alone = [name.shape for name in names if name.shape in ALONE]
    if all(name.shape and name.shape not in ALONE for name in names) and any(name.shape in ALONE for name in fine):
        yield make_finding("look-at-network", changes=_facts("network", changed))
    elif alone:
        part = "GPU" if "1g" in alone else "node"
        yield make_finding("look-at-node", part=part, changes=_facts("node", changed))
    families = {(name.quantity, name.shape) for name in fine if name.size is not None}
    if any(name.size is not None and (name.quantity, name.shape) in families for name in names):
        yield make_finding("look-at-sizes")


def _is_shown_fine(metric: MetricVerdict) -> bool:
    if metric.verdict != "shown" or metric.change is None or metric.limit is None:
        return False
    return metric.change > -metric.limit


def _facts(part: str, changed: Sequence[ChangeRow]) -> str:
    return some([change["what"] for change in changed if change["code"] in SUSPECTS[part]], FACTS_NAMED, "; ")
