"""What a maintenance changed, where the fault is likely to be, and what to do, in the order of an admin's work."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from lumisite.errors import shown
from lumisite.facts.change import Touched
from lumisite.facts.compare import compare
from lumisite.facts.facts import Facts
from lumisite.facts.report import change_json, make_report
from lumisite.findings import writers
from lumisite.findings.catalogue import make_finding
from lumisite.findings.finding import Finding
from lumisite.site.load import LoadedSite, load_plans
from lumisite.text import some
from lumisite.validate.metric_names import parse_name
from lumisite.validate.verdict.gates import LOOK, NODE
from lumisite.validate.verdict.metric import MetricVerdict
from lumisite.validate.verdict.system import SystemVerdict

#: Which kinds of change are suspected first where a part of the machine is slower.
SUSPECTS: Mapping[str, tuple[str, ...]] = {
    "network": (
        "product", "default", "soname", "library-gone", "library", "missing", "dangling", "interface", "nic", "kernel",
        "kernel-config",
    ),
    "node": ("driver", "stack", "gpu-count", "gpu-bus", "gpu-place", "cpus", "kernel", "runtime"),
}  # fmt: skip
#: Shapes that need no network.
ALONE = ("1g", "1n")
#: Changes that are named before they are only counted.
FACTS_NAMED = 6


@dataclass(frozen=True)
class Changed:
    """A change as `changes` reports it; `touches` are parts of the site, such as `module singularity-CPEbits`."""

    kind: str
    subject: str
    before: str | None
    after: str | None
    what: str
    code: str = ""
    touches: tuple[str, ...] = ()


def changes(
    before: Facts | None, after: Facts | None, loaded: LoadedSite | None
) -> tuple[tuple[Changed, ...], tuple[str, ...]]:
    """Compare two captures: return all changes, what matters most first, and the text for users on them.

    Without the site that the captures are of, nothing is known of what a change touches, and there is no such text.
    """
    if before is None or after is None or before.site != after.site:
        return (), ()
    if loaded is None or loaded.site.name != after.site:
        return tuple(Changed(**change_json(one)) for one in compare(before, after)), ()
    report = make_report(before, after, loaded.site, load_plans(loaded))
    found = tuple(Changed(**change_json(one), touches=tuple(_together(one.touches))) for one in report.changes)
    return found, report.users if found else ()


def _together(touches: Iterable[Touched]) -> Iterator[str]:
    """Yield each kind of part once, with the names of all that are touched."""
    by_what: dict[str, list[str]] = {}
    for touch in touches:
        by_what.setdefault(touch.what, []).append(touch.name)
    yield from (shown(f"{what} {', '.join(dict.fromkeys(names))}") for what, names in by_what.items())


def slower_metrics(verdict: SystemVerdict) -> list[MetricVerdict]:
    """Return the metrics that decide and are slower, confirmed or not."""
    return [one for one in verdict.metrics if one.decides and one.verdict in ("fail", "unconfirmed")]


def advice(verdict: SystemVerdict, changed: Sequence[Changed]) -> Iterator[str]:
    """Yield what to do: gates first, for a broken gate explains slow numbers; then numbers, nodes, and missing jobs."""
    for gate in verdict.gates:
        causes = [cause for cause in gate.causes if not cause.follows]
        for cause in causes if gate.gate == NODE else causes[:1]:
            yield f"{gate.gate}: {cause.cause}: {cause.advice or LOOK}"
    yield from map(step, _on_numbers(verdict, changed))
    if verdict.drain:
        names = verdict.bad_nodes
        yield step(make_finding("remeasure-nodes", names=some(names, between=", "), list=",".join(names)))
    yield from verdict.next_runs
    if faster := tuple(one.metric for one in verdict.metrics if one.improved):
        yield step(make_finding("metrics-faster", metrics=faster))


def step(finding: Finding) -> str:
    """Return what is seen and what to do about it, in one line."""
    return f"{writers.message(finding)}: {writers.advice(finding)}"


def _on_numbers(verdict: SystemVerdict, changed: Sequence[Changed]) -> list[Finding]:
    slower = slower_metrics(verdict)
    broken = tuple(gate.gate for gate in verdict.gates if gate.verdict == "fail")
    if slower and broken:
        return [make_finding("fix-gates-first", gates=broken)]
    if slower:
        metrics = tuple(one.metric for one in slower)
        return list(_where(slower, verdict.metrics, changed)) or [make_finding("look-at-metrics", metrics=metrics)]
    return []


def _where(
    slower: Sequence[MetricVerdict], metrics: Sequence[MetricVerdict], changed: Sequence[Changed]
) -> Iterator[Finding]:
    names = [parse_name(one.metric) for one in slower]
    fine = [parse_name(one.metric) for one in metrics if one.verdict == "pass"]
    alone = [name.shape for name in names if name.shape in ALONE]
    if all(name.shape and name.shape not in ALONE for name in names) and any(name.shape in ALONE for name in fine):
        yield make_finding("look-at-network", changes=_facts("network", changed))
    elif alone:
        yield make_finding("look-at-gpu" if "1g" in alone else "look-at-node", changes=_facts("node", changed))
    families = {(name.quantity, name.shape) for name in fine if name.size is not None}
    if any(name.size is not None and (name.quantity, name.shape) in families for name in names):
        yield make_finding("look-at-sizes")


def _facts(part: str, changed: Sequence[Changed]) -> str:
    return some([one.what for one in changed if one.kind in SUSPECTS[part]], FACTS_NAMED, "; ")
