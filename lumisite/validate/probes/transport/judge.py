"""Judge `transport`: which network carried the bytes; and whether this gate can see at all.

With NCCL the library's log shows it (lumisite/validate/transport/); with gloo, which has no such log, the counters of
the interfaces do. A second step is forced onto the wrong network: if that does not come out as a failure, the gate is
blind and the first one shows nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from lumisite.findings.catalogue import make_finding
from lumisite.findings.finding import Finding, Severity, Value, with_values
from lumisite.site.software import Fabric
from lumisite.validate.lines import VERDICTS
from lumisite.validate.probes.definition import make_probe, options_of
from lumisite.validate.probes.outcome import trouble
from lumisite.validate.probes.probe import Backend, Ended, Expected, Line, Probe, Record, Target
from lumisite.validate.probes.records import finished, number, table, text
from lumisite.validate.transport.judge import Expectation
from lumisite.validate.transport.judge import judge as judge_log
from lumisite.validate.transport.log import scan

#: The part of the bytes that the high-speed interfaces must have carried; the rest of the node talks as well.
CARRIED = 0.9
#: Less than this part of what was moved in the counters, and they show nothing.
SEEN = 0.5
CONTROL = "control"
#: The variable that chooses gloo's interface.
SETTING = "GLOO_SOCKET_IFNAME"


def transport(target: Target) -> Probe:
    """Return the probe: the plain srun, and the control where there is a wrong network to force it onto."""
    fabric, backend = target.site.fabric_of(target.kind), target.plan.backend
    forced = {"nccl": ("NCCL_NET", "Socket")}
    if fabric.management:
        forced["gloo"] = (SETTING, fabric.management[0])
    options = options_of("transport", backend)
    sruns = [target.together("transport.py", *options)]
    if backend in forced:
        control = target.together("transport.py", *options, name=CONTROL, environment=(forced[backend],))
        sruns.append(control)
    return make_probe("transport", sruns, partial(judge, fabric, backend))


def judge(fabric: Fabric, backend: Backend, steps: Sequence[Ended], expected: Expected) -> list[Line]:
    """Return one gate line."""
    plain, *controls = steps
    look = _by_log if backend == "nccl" else _by_counters
    failed = trouble(plain, expected)
    if failed is not None:
        return [failed]
    found = look(plain, fabric)
    if found.severity is not Severity.INFO:
        return [expected.gate(found)]
    for control in controls:
        failed = trouble(control, expected)
        if failed is not None:
            return [replace(failed, verdict="inconclusive")]
        if look(control, fabric).severity is not Severity.FAULT:
            forced = tuple(f"{name}={value}" for name, value in control.step.srun.environment)
            return [expected.gate(make_finding("transport-blind", forced=forced))]
    return [expected.gate(found)]


def _by_log(ended: Ended, fabric: Fabric) -> Finding:
    texts = [(f"rank {record.get('rank')}", str(record.get("log", ""))) for record in finished(ended.records)]
    log = scan((name, [text.encode()]) for name, text in texts)
    result = judge_log(log, Expectation(fabric.carrier, fabric.nics, fabric.require_gdr))
    deciding = (finding for finding in result.findings if VERDICTS[finding.severity] == result.verdict)
    return next(deciding, make_finding("nothing-measured"))


def _by_counters(ended: Ended, fabric: Fabric) -> Finding:
    """Look at each node's own counters; what one sends the other receives, so both show it."""
    hosts: list[str] = []
    if (of_some := _of_some_nodes(finished(ended.records), fabric)) is not None:
        return of_some
    for record in finished(ended.records):
        found = _of_node(record, fabric)
        if found is not None:
            return found
        hosts.append(str(record.get("host")))
    if not hosts:
        return make_finding("nothing-measured")
    return make_finding("transport-carried", hosts=tuple(hosts), interfaces=tuple(fabric.interfaces))


def _of_some_nodes(records: Sequence[Record], fabric: Fabric) -> Finding | None:
    """Return the finding for nodes that send through another network than the others: both ends count what is moved.

    Where all have the same settings, a route of the node leads there.
    """
    sending = {str(record.get("host")): record for record in records}
    bad = [host for host, record in sending.items() if not _sends_right(record, fabric)]
    if not bad or len(bad) == len(sending):
        return None
    sent = _numbers(sending[bad[0]], "sent")
    most = max(sent, key=lambda name: sent[name])
    setting = {host: text(record, "environment", SETTING) for host, record in sending.items()}
    values: dict[str, Value] = {
        "carried_mb": _mb(sent[most]),
        "total_mb": _mb(sum(sent.values())),
        "expected": tuple(fabric.interfaces),
    }
    if len(set(setting.values())) == 1:
        return with_values(make_finding("route-wrong-interface", most, nodes=bad), values)
    return with_values(make_finding("transport-wrong-network", bad[0], nodes=bad, interface=most), values)


def _sends_right(record: Record, fabric: Fabric) -> bool:
    """Return whether a node sends over the high-speed interfaces, or nothing shows that it does not."""
    sent = _numbers(record, "sent")
    total = sum(sent.values())
    right = sum(sent.get(name, 0.0) for name in fabric.interfaces)
    return total < SEEN * (number(record, "moved") or 0.0) or right >= CARRIED * total


def _numbers(record: Record, key: str) -> dict[str, float]:
    return {name: number(table(record, key), name) or 0.0 for name in table(record, key)}


def _of_node(record: Record, fabric: Fabric) -> Finding | None:
    """Return what is wrong with the bytes that a node's interfaces have carried."""
    host, moved = str(record.get("host")), number(record, "moved") or 0.0
    carried = _numbers(record, "carried")
    total = sum(carried.values())
    if total < SEEN * moved:
        return make_finding("transport-unseen", host, carried_mb=_mb(total), moved_mb=_mb(moved))
    if sum(carried.get(name, 0.0) for name in fabric.interfaces) >= CARRIED * total:
        return None
    most = max(carried, key=lambda name: carried[name])
    return make_finding(
        "transport-wrong-network",
        host,
        interface=most,
        carried_mb=_mb(carried[most]),
        total_mb=_mb(total),
        expected=tuple(fabric.interfaces),
    )


def _mb(size: float) -> float:
    return round(size / 1e6, 1)
