"""Say in plain words what a maintenance changed, where the fault is likely to be, and what to do.

What to do stands in the order in which an admin would do it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from lumisite.errors import shown
from lumisite.facts.change import Kind
from lumisite.facts.compare import compare
from lumisite.facts.facts import Facts
from lumisite.facts.site import Touch
from lumisite.facts.tell import make_report, told
from lumisite.site.load import LoadedSite, load_plans
from lumisite.text import some
from lumisite.validate.metric_names import parse_name
from lumisite.validate.verdict.gates import LOOK, NODE
from lumisite.validate.verdict.metric import MetricVerdict
from lumisite.validate.verdict.system import SystemVerdict

#: Which kinds of change are first suspected where a part of the machine is slower.
SUSPECTS: Mapping[str, tuple[Kind, ...]] = {
    "network": (
        "product", "default", "soname", "library-gone", "library", "missing", "dangling", "interface", "nic", "kernel",
        "kernel-config",
    ),
    "node": ("driver", "stack", "gpu-count", "gpu-bus", "gpu-place", "cpus", "kernel", "runtime"),
}  # fmt: skip
#: Shapes that need no network.
ALONE = ("1g", "1n")
#: Changes that are named before they are only counted.
FACTS_SHOWN = 6


@dataclass(frozen=True)
class Changed:
    """A change as `changes` tells it; `touches` are parts of the site, such as `module singularity-CPEbits`."""

    kind: Kind
    subject: str
    before: str | None
    after: str | None
    what: str
    touches: tuple[str, ...] = ()


def changes(
    before: Facts | None, after: Facts | None, loaded: LoadedSite | None
) -> tuple[tuple[Changed, ...], tuple[str, ...]]:
    """Compare two captures: give all changes, what matters most first, and what to tell users of them.

    Without the site that the captures are of, nothing is said of what a change touches, and nothing to users.
    """
    if before is None or after is None or before.site != after.site:
        return (), ()
    if loaded is None or loaded.site.name != after.site:
        return tuple(Changed(**told(one)) for one in compare(before, after)), ()
    report = make_report(before, after, loaded.site, load_plans(loaded))
    found = tuple(Changed(**told(one.change), touches=tuple(_together(one.touches))) for one in report.changes)
    return found, report.users if found else ()


def _together(touches: Iterable[Touch]) -> Iterator[str]:
    """Give each kind of part once, with the names of all that are touched."""
    by_what: dict[str, list[str]] = {}
    for touch in touches:
        by_what.setdefault(touch.what, []).append(touch.name)
    yield from (shown(f"{what} {', '.join(dict.fromkeys(names))}") for what, names in by_what.items())


def advice(verdict: SystemVerdict, changed: Sequence[Changed]) -> Iterator[str]:
    """Give what to do: gates first, for a broken gate explains slow numbers; then numbers, nodes, and missing jobs."""
    for gate in verdict.gates:
        own = [cause for cause in gate.causes if not cause.follows]
        for cause in own if gate.gate == NODE else own[:1]:
            yield f"{gate.gate}: {cause.cause}: {cause.advice or LOOK}"
    slower = [one for one in verdict.metrics if one.decides and one.verdict in ("fail", "unconfirmed")]
    if slower:
        broken = [gate.gate for gate in verdict.gates if gate.verdict == "fail"]
        if broken:
            yield f"the numbers are lower too: put {', '.join(broken)} right first, then measure again"
        else:
            names = some([one.metric for one in slower])
            once_more = f"slower: {names}; see what changed (`lumisite changes`), take it back, or measure once more"
            yield from list(_where(slower, verdict.metrics, changed)) or [once_more]
    if verdict.drain:
        yield f"measure {some(verdict.bad_nodes)} once more; if the same comes out, drain, with the line given here"
    yield from verdict.next_runs
    if faster := ", ".join(one.metric for one in verdict.metrics if one.improved):
        yield f"faster than before: {faster}; make sure that the benchmark still does its work"


def _where(
    slower: Sequence[MetricVerdict], metrics: Sequence[MetricVerdict], changed: Sequence[Changed]
) -> Iterator[str]:
    names = [parse_name(one.metric) for one in slower]
    fine = [parse_name(one.metric) for one in metrics if one.verdict == "pass"]
    alone = [name.shape for name in names if name.shape in ALONE]
    if all(name.shape and name.shape not in ALONE for name in names) and any(name.shape in ALONE for name in fine):
        yield (
            "only metrics between nodes are slower, a node alone is as fast as before: look at the network "
            "(libfabric, the plugin, interfaces, routing)" + _facts("network", changed)
        )
    elif alone:
        what = "one GPU alone" if "1g" in alone else "one node alone"
        facts = _facts("node", changed)
        yield f"{what} is slower: look at the GPU driver, clocks and power limits, CPU masks and the image{facts}"
    families = {(name.quantity, name.shape) for name in fine if name.size is not None}
    if any(name.size is not None and (name.quantity, name.shape) in families for name in names):
        yield "only some message sizes are slower: an algorithm or protocol may be chosen that was not before"


def _facts(part: str, changed: Sequence[Changed]) -> str:
    found = [one.what for one in changed if one.kind in SUSPECTS[part]]
    more = f"; and {len(found) - FACTS_SHOWN} more" if len(found) > FACTS_SHOWN else ""
    return f"; changed there: {'; '.join(found[:FACTS_SHOWN])}{more}" if found else ""
