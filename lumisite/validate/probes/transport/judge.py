"""Judge `transport`: which network carried the bytes; and whether this gate can see at all.

With NCCL the library's log tells (lumisite/validate/transport/); with gloo, which has no such log, the
counters of the interfaces do. A second step is forced onto the wrong network: if that does not come out as a failure,
the gate is blind and says nothing of the first one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

from lumisite.site.software import Fabric
from lumisite.validate.lines import GateOutcome
from lumisite.validate.probes.probe import Backend, Ended, Expected, Line, Plan, Target, probe
from lumisite.validate.probes.ranks import trouble
from lumisite.validate.probes.records import finished, number, table
from lumisite.validate.transport.judge import Expectation
from lumisite.validate.transport.judge import judge as judge_log
from lumisite.validate.transport.log import scan

#: The part of the bytes that the high-speed interfaces must have carried; the rest of the node talks as well.
CARRIED = 0.9
#: Less than this part of what was moved in the counters, and they tell nothing.
SEEN = 0.5
CONTROL = "control"


#: The script's options: enough to make every channel, and to stand out from other traffic.
ARGUMENTS: Mapping[Backend, tuple[str, ...]] = {
    "gloo": ("--size", str(2 << 20), "--repeats", "4", "--limit", "120"),
    "nccl": ("--size", str(256 << 20), "--repeats", "5", "--limit", "120"),
}


@probe("The high-speed network carries the bytes.", together=True)
def transport(target: Target) -> Plan:
    """Give the probe: the plain part, and the control where there is a wrong network to force it onto."""
    fabric, backend = target.site.fabric_of(target.kind), target.plan.backend
    forced = {"nccl": ("NCCL_NET", "Socket")}
    if fabric.management:
        forced["gloo"] = ("GLOO_SOCKET_IFNAME", fabric.management[0])
    parts = [target.together("transport.py", *ARGUMENTS[backend])]
    if backend in forced:
        control = target.together("transport.py", *ARGUMENTS[backend], name=CONTROL, environment=(forced[backend],))
        parts.append(control)
    return tuple(parts), partial(judge, fabric, backend)


def judge(fabric: Fabric, backend: Backend, steps: Sequence[Ended], expected: Expected) -> list[Line]:
    """Give one gate line."""
    plain = steps[0]
    failed = trouble(plain, expected)
    if failed is not None:
        return [failed]
    carried = _by_log if backend == "nccl" else _by_counters
    verdict, cause = carried(plain, fabric)
    advice = "the module sets the interface and the plugin: run `lumisite binds` and `lumisite why NCCL_SOCKET_IFNAME`"
    if verdict != "pass":
        return [expected.gate(verdict, cause, advice)]
    for control in steps[1:]:
        failed = trouble(control, expected)
        if failed is not None:
            return [replace(failed, verdict="inconclusive", cause=f"the control did not run: {failed.cause}")]
        seen, words = carried(control, fabric)
        if seen != "fail":
            forced = " ".join(f"{name}={value}" for name, value in control.step.part.environment)
            blind = f"the gate is blind: with {forced} it does not come out as a failure ({words})"
            return [expected.gate("inconclusive", blind, "something overrides what users set: look at the prolog")]
    return [expected.gate("pass", cause)]


def _by_log(ended: Ended, fabric: Fabric) -> tuple[GateOutcome, str]:
    texts = [(f"rank {record.get('rank')}", str(record.get("log", ""))) for record in finished(ended.records)]
    log = scan((name, [text.encode()]) for name, text in texts)
    result = judge_log(log, Expectation(fabric.carrier, fabric.nics, fabric.require_gdr))
    return result.verdict, "; ".join(result.reasons[:3]) or "the log says nothing"


def _by_counters(ended: Ended, fabric: Fabric) -> tuple[GateOutcome, str]:
    """Look at each node's own counters; what one sends the other receives, so both tell."""
    right = set(fabric.interfaces)
    summary = []
    for record in finished(ended.records):
        host, moved = record.get("host"), number(record, "moved") or 0.0
        carried = {name: number(table(record, "carried"), name) or 0.0 for name in table(record, "carried")}
        total = sum(carried.values())
        if total < SEEN * moved:
            return "inconclusive", f"{host}: the interfaces carried {_mb(total)} of {_mb(moved)}: it went another way"
        good = sum(value for name, value in carried.items() if name in right)
        if good < CARRIED * total:
            most = max(carried, key=lambda name: carried[name])
            wanted = ", ".join(fabric.interfaces)
            return "fail", f"{host}: {most} carried {_mb(carried[most])} of {_mb(total)}, where {wanted} should"
        used = [name for name in fabric.interfaces if carried.get(name, 0.0) > CARRIED / 10 * total]
        summary.append(f"{', '.join(used)} of {host} carried {_mb(good)} of {_mb(total)}")
    return ("pass", "; ".join(summary[:2])) if summary else ("inconclusive", "no rank counted anything")


def _mb(size: float) -> str:
    return f"{size / 1e6:.1f} MB"
