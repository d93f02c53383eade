"""Judge `transport`: which network carried the bytes; and whether this gate can see at all.

With NCCL the library's log shows it (lumisite/validate/transport.py); with gloo, which has no such log, the counters of
the interfaces do. A second step is forced onto the wrong network: if that does not come out as a failure, the gate is
blind and the first one shows nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

from lumisite.findings.finding import Finding, Severity
from lumisite.site.software import Fabric
from lumisite.validate.lines import VERDICTS
from lumisite.validate.nccl_log import scan
from lumisite.validate.probes.definition import make_probe, options_of
from lumisite.validate.probes.outcome import DRAIN, trouble
from lumisite.validate.probes.probe import Backend, Ended, Expected, Line, Probe, Record, Target
from lumisite.validate.probes.records import finished, number, table, text
from lumisite.validate.transport import Expectation
from lumisite.validate.transport import judge as judge_log

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
            forced = ", ".join(f"{name}={value}" for name, value in control.step.srun.environment)
            text = f"with {forced} the step does not come out as a failure, so the check shows nothing"
            advice = "something overrides what users set: look at the task prolog"
            return [expected.gate(Finding("transport-blind", Severity.DOUBT, text, advice))]
    return [expected.gate(found)]


def _by_log(ended: Ended, fabric: Fabric) -> Finding:
    records = finished(ended.records)
    log = scan((f"rank {record.get('rank')}", [str(record.get("log", "")).encode()]) for record in records)
    result = judge_log(log, Expectation(fabric.carrier, fabric.nics, fabric.require_gdr))
    found = next(finding for finding in result.findings if VERDICTS[finding.severity] == result.verdict)
    # The log's own name of a node is named only if that is the node's name in Slurm.
    hosts = {str(record.get("host")) for record in records}
    return replace(found, nodes=found.nodes if hosts.issuperset(found.nodes) else ())


def _by_counters(ended: Ended, fabric: Fabric) -> Finding:
    """Look at each node's own counters; what one sends the other receives, so both show it."""
    records = finished(ended.records)
    if (of_some := _of_some_nodes(records, fabric)) is not None:
        return of_some
    for record in records:
        found = _of_node(record, fabric)
        if found is not None:
            return found
    if not records:
        return Finding("transport-not-shown", Severity.DOUBT, "no rank left a record", "read the step's stderr")
    hosts = ", ".join(str(record.get("host")) for record in records)
    return Finding("transport-fine", Severity.INFO, f"{_names(fabric)} carried the bytes of {hosts}")


def _of_some_nodes(records: Sequence[Record], fabric: Fabric) -> Finding | None:
    """Return the finding for nodes that send through another network than the others: both ends count what is moved.

    Where all have the same settings, a route of the node leads there.
    """
    sending = {str(record.get("host")): record for record in records}
    bad = tuple(host for host, record in sending.items() if not _sends_right(record, fabric))
    if not bad or len(bad) == len(sending):
        return None
    sent = _numbers(sending[bad[0]], "sent")
    most, names = max(sent, key=lambda name: sent[name]), _names(fabric)
    if len({text(record, "environment", SETTING) for record in sending.values()}) > 1:
        return _wrong_network(bad[0], sent, fabric, bad)
    return Finding(
        "route-wrong-interface",
        Severity.NODE,
        f"{_mb(sent[most])} of {_mb(sum(sent.values()))} MB left through it, expected {names} as on the other nodes",
        f"`ip route get ADDRESS` on the node, with another node's address on {names}: correct the route or rule that "
        f"leads to {most} (`ip route`, `ip rule`){DRAIN}",
        subject=most,
        nodes=bad,
    )


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
        return Finding(
            "transport-not-shown",
            Severity.DOUBT,
            f"the interfaces carried {_mb(total)} of {_mb(moved)} MB: the rest went another way",
            "look at what else connects the nodes; the counters of /proc/net/dev do not show it",
            subject=host,
        )
    if sum(carried.get(name, 0.0) for name in fabric.interfaces) >= CARRIED * total:
        return None
    return _wrong_network(host, carried, fabric)


def _wrong_network(host: str, moved: Mapping[str, float], fabric: Fabric, nodes: tuple[str, ...] = ()) -> Finding:
    """Return that the interface that moved most of a node's bytes is not a high-speed one."""
    most = max(moved, key=lambda name: moved[name])
    text = f"{most} carried {_mb(moved[most])} of {_mb(sum(moved.values()))} MB, expected {_names(fabric)}"
    advice = f"the module sets the interface and the plugin: see `lumisite binds IMAGE` and `lumisite why {SETTING}`"
    return Finding("transport-wrong-network", Severity.FAULT, text, advice, subject=host, nodes=nodes)


def _names(fabric: Fabric) -> str:
    return ", ".join(fabric.interfaces)


def _mb(size: float) -> float:
    return round(size / 1e6, 1)
