"""Say in plain words where the fault is likely to be, and what to do, in the order in which an admin would."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from lumisite.facts.change import Kind
from lumisite.validate.metric_names import parse_name, shape_order
from lumisite.validate.report.changes import Changed
from lumisite.validate.verdict.gates import LOOK, NODE
from lumisite.validate.verdict.metric import MetricVerdict
from lumisite.validate.verdict.system import SystemVerdict

#: Which kinds of change are first suspected where a part of the machine is slower.
SUSPECTS: Mapping[str, tuple[Kind, ...]] = {
    "network": (
        "product", "default", "soname", "library-gone", "library", "missing", "dangling", "interface", "nic", "kernel",
        "kernel-config",
    ),
    "node": ("driver", "rocm", "gpu-count", "gpu-bus", "gpu-place", "cpus", "kernel", "runtime"),
}  # fmt: skip
#: Shapes that need no network.
ALONE = ("1g", "1n")
#: Changes, and nodes, that are named before they are only counted.
FACTS_SHOWN, NAMES_SHOWN = 6, 8


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
            told = f"slower: {names}; see what changed (`lumisite changes`), take it back, or measure once more"
            yield from list(_where(slower, verdict.metrics, changed)) or [told]
    if verdict.drain:
        bad = sorted({one.node for one in verdict.slow_nodes} | {node for gate in verdict.gates for node in gate.nodes})
        yield f"measure {some(bad)} once more; if the same comes out, drain, with the line given here"
    yield from verdict.next_runs
    if any(one.improved for one in verdict.metrics):
        names_up = ", ".join(one.metric for one in verdict.metrics if one.improved)
        yield f"faster than before: {names_up}; make sure that the benchmark still does its work"


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
        what = "one GPU alone" if min(alone, key=shape_order).endswith("g") else "one node alone"
        facts = _facts("node", changed)
        yield f"{what} is slower: look at the GPU driver, clocks and power limits, CPU masks and the image{facts}"
    families = {(name.quantity, name.shape) for name in fine if name.size is not None}
    if any(name.size is not None and (name.quantity, name.shape) in families for name in names):
        yield "only some message sizes are slower: an algorithm or protocol may be chosen that was not before"


def some(names: Sequence[str]) -> str:
    """List names, and count those beyond the first few."""
    more = len(names) - NAMES_SHOWN
    return ",".join(names) if more <= 0 else f"{','.join(names[:NAMES_SHOWN])} and {more} more"


def _facts(part: str, changed: Sequence[Changed]) -> str:
    found = [one.what for one in changed if one.kind in SUSPECTS[part]]
    more = f"; and {len(found) - FACTS_SHOWN} more" if len(found) > FACTS_SHOWN else ""
    return f"; changed there: {'; '.join(found[:FACTS_SHOWN])}{more}" if found else ""
