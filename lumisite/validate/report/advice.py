"""What a maintenance changed, where the fault is likely to be, and what to do, in the order of an admin's work."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from lumisite.errors import shown
from lumisite.facts.change import Change
from lumisite.facts.compare import compare
from lumisite.facts.facts import Facts
from lumisite.facts.report import change_json, make_report
from lumisite.site.load import LoadedSite, load_plans
from lumisite.text import listed, percent, some
from lumisite.validate.samples import parse_name
from lumisite.validate.verdict.metric import MetricVerdict
from lumisite.validate.verdict.slow_nodes import LEAST_VALUES
from lumisite.validate.verdict.system import SystemVerdict

#: Which kinds of change are suspected first where a part of the machine is slower.
SUSPECTS: Mapping[str, tuple[str, ...]] = {
    "network": (
        "product", "default", "soname", "library-missing", "library", "dangling", "interface", "nic", "os", "kernel",
        "kernel-config",
    ),
    "node": ("driver", "stack", "gpu-count", "gpu-bus", "gpu-place", "cpus", "os", "kernel", "runtime"),
}  # fmt: skip
#: Shapes that need no network.
ALONE = ("1g", "1n")
#: Changes, and slow nodes, that are named before they are only counted.
NAMED = 6
#: Drops within so much of each other are one number.
ALIKE = 0.05
#: A change as `lumisite changes --json` has it; its `touches` are parts of the site: `module singularity-CPEbits`.
ChangeRow: TypeAlias = Mapping[str, Any]


def changes(before: Facts | None, after: Facts | None, loaded: LoadedSite | None) -> tuple[ChangeRow, ...]:
    """Compare two captures: return all changes, what matters most first.

    Without the site that the captures are of, nothing is known of what a change touches.
    """
    if before is None or after is None or before.site != after.site:
        return ()
    if loaded is None or loaded.site.name != after.site:
        return tuple(map(_row, compare(before, after)))
    return tuple(map(_row, make_report(before, after, loaded.site, load_plans(loaded)).changes))


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


def advice(verdict: SystemVerdict, changed: Sequence[ChangeRow], next_command: str = "") -> Iterator[str]:
    """Yield what to do: gates first, for a broken gate explains slow numbers; then numbers, nodes, and what is open.

    `next_command` is what the verdict waits for, empty where that is nothing.
    """
    for gate in verdict.gates:
        for cause in gate.causes:
            yield f"{gate.gate}: {cause.text} ({some(cause.nodes)}): {cause.advice}"
    yield from _on_numbers(verdict, changed)
    yield from _on_nodes(verdict)
    yield from _on_open(verdict)
    if next_command:
        yield f"to go on: `{next_command}`"
    faster = [
        metric.metric for metric in verdict.metrics if any(found.code == "metric-faster" for found in metric.findings)
    ]
    if faster:
        yield f"faster than before: {listed(faster)}: make sure that the benchmark still does its work"


def slow_nodes(verdict: SystemVerdict, most: int) -> str:
    """Return which nodes are slower than the others, and by how much; nothing where only failed ones are.

    Of several metrics of a node the slowest counts.
    """
    below: dict[str, float] = {}
    for slow in verdict.slow_nodes:
        below[slow.node] = max(slow.below, below.get(slow.node, 0.0))
    names = sorted(below.keys() - verdict.failed_nodes)
    if not names:
        return ""
    verb = "is" if len(names) == 1 else "are"
    return f"{some(names, most, ', ')} {verb} {percent_range([below[name] for name in names])} slower than the others"


def percent_range(values: Sequence[float]) -> str:
    """Return parts as one number in whole per cent where they are alike, else as a range.

    >>> percent_range([0.14, 0.152, 0.16]), percent_range([0.1, 0.3])
    ('15 %', '10 to 30 %')
    """
    low, high = min(values), max(values)
    if high - low <= ALIKE:
        return percent(statistics.median(values), 0)
    return f"{percent(low, 0).removesuffix(' %')} to {percent(high, 0)}"


def _on_nodes(verdict: SystemVerdict) -> Iterator[str]:
    """Yield what to do with bad nodes: repair what failed, and measure what is only slow once more."""
    failed = verdict.failed_nodes
    if slow := slow_nodes(verdict, NAMED):
        surely = any(one.values >= LEAST_VALUES and one.node not in failed for one in verdict.slow_nodes)
        then = "; if it is as slow again, drain it with the command below" if surely else ""
        yield f"{slow}: measure once more among other nodes{then}"
    elif failed:
        yield f"{listed(failed)}: drain and repair, then measure once more among other nodes"


def _on_open(verdict: SystemVerdict) -> Iterator[str]:
    """Yield what is missing for a decision, what is missing for the same reason together."""
    missing: dict[str, list[str]] = {}
    for gate in verdict.gates:
        if gate.follows or not gate.runs:
            missing.setdefault(gate.findings[0].advice, []).append(gate.gate)
    for metric in verdict.metrics:
        if metric.decides and metric.verdict in ("unconfirmed", "inconclusive"):
            missing.setdefault(metric.findings[-1].advice, []).append(metric.metric)
    for todo, names in missing.items():
        yield f"{listed(names)}: {todo}"


def _on_numbers(verdict: SystemVerdict, changed: Sequence[ChangeRow]) -> Iterator[str]:
    slower = slower_metrics(verdict)
    if not slower:
        return
    if broken := [gate.gate for gate in verdict.gates if gate.verdict == "fail"]:
        yield f"the numbers are lower too: fix {listed(broken)} first, then measure again"
        return
    places = list(_where(slower, verdict.metrics, changed))
    yield from places
    if not places:
        what = listed([metric.metric for metric in slower])
        yield f"slower: {what}: compare what changed (`lumisite changes`), undo it, or measure again"


def _where(
    slower: Sequence[MetricVerdict], metrics: Sequence[MetricVerdict], changed: Sequence[ChangeRow]
) -> Iterator[str]:
    """Yield the part of the machine that the slower metrics have in common, and the others do not have."""
    names = [parse_name(metric.metric) for metric in slower]
    fine = [parse_name(metric.metric) for metric in metrics if metric.verdict == "pass" or _is_shown_fine(metric)]
    alone = [name.shape for name in names if name.shape in ALONE]
    if all(name.shape and name.shape not in ALONE for name in names) and any(name.shape in ALONE for name in fine):
        yield (
            "only metrics between nodes are slower, a node alone is as fast as before: look at the network (libfabric, "
            f"the plugin, interfaces, routing){_changed('network', changed)}"
        )
    elif alone:
        part = "GPU" if "1g" in alone else "node"
        yield (
            f"one {part} alone is slower: look at the GPU driver, clocks and power limits, CPU masks and the image"
            f"{_changed('node', changed)}"
        )
    families = {(name.quantity, name.shape) for name in fine if name.size is not None}
    if any(name.size is not None and (name.quantity, name.shape) in families for name in names):
        yield "only some message sizes are slower: an algorithm or protocol may be chosen that was not before"


def _is_shown_fine(metric: MetricVerdict) -> bool:
    if metric.verdict != "shown" or metric.change is None or metric.limit is None:
        return False
    return metric.change > -metric.limit


def _changed(part: str, changed: Sequence[ChangeRow]) -> str:
    """Return what changed in a part of the machine."""
    found = [change["what"] for change in changed if change["code"] in SUSPECTS[part]]
    return f"; changed there: {some(found, NAMED, '; ')}" if found else ""
