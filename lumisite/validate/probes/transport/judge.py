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
from lumisite.validate.probes.failed_ranks import trouble
from lumisite.validate.probes.probe import Backend, Ended, Expected, Line, Probe, Target
from lumisite.validate.probes.records import finished
from lumisite.validate.transport import Expectation
from lumisite.validate.transport import judge as judge_log

#: The part of the bytes that the high-speed interfaces must have sent; the rest of the node talks as well.
CARRIED = 0.9
#: Less than this part of what was moved in the counters, and they show nothing.
SEEN = 0.25
#: Options of the script by back-end: enough bytes to make every channel, and to stand out from other traffic.
OPTIONS = {"gloo": "--size 2097152 --repeats 4 --limit 120", "nccl": "--size 268435456 --repeats 5 --limit 120"}
CONTROL = "control"
#: The variable that chooses gloo's interface.
SETTING = "GLOO_SOCKET_IFNAME"


def transport(target: Target) -> Probe:
    """Return the probe: the plain srun, and the control where there is a wrong network to force it onto."""
    fabric, backend = target.site.fabric_of(target.kind), target.plan.backend
    forced = {"nccl": ("NCCL_NET", "Socket")}
    if fabric.management:
        forced["gloo"] = (SETTING, fabric.management[0])
    options = OPTIONS[backend].split()
    sruns = [target.together("transport.py", *options)]
    if backend in forced:
        control = target.together("transport.py", *options, name=CONTROL, environment=(forced[backend],))
        sruns.append(control)
    return Probe("transport", tuple(sruns), partial(judge, fabric, backend), together=True)


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
            return [expected.gate(Finding("transport-not-shown", Severity.DOUBT, text, advice))]
    return [expected.gate(found)]


def _by_log(ended: Ended, fabric: Fabric) -> Finding:
    records = finished(ended.records)
    log = scan((f"rank {record['rank']}", [record.get("log", "").encode()]) for record in records)
    result = judge_log(log, Expectation(fabric.carrier, fabric.nics, fabric.require_gdr))
    found = next(finding for finding in result.findings if VERDICTS[finding.severity] == result.verdict)
    # The log's own name of a node is named only if that is the node's name in Slurm.
    hosts = {record["host"] for record in records}
    return replace(found, nodes=found.nodes if hosts.issuperset(found.nodes) else ())


def _by_counters(ended: Ended, fabric: Fabric) -> Finding:
    """Look at what each node's interfaces have sent: what one node sends the wrong way, the others only receive."""
    records = {record["host"]: record for record in finished(ended.records)}
    names = ", ".join(fabric.interfaces)
    sent: dict[str, dict[str, int]] = {host: record["sent"] for host, record in records.items()}
    for host, record in records.items():
        moved, total = record["moved"], sum(sent[host].values())
        if total < SEEN * moved:
            message = f"the interfaces sent {_mb(total)} of {_mb(moved)} MB: the rest went another way"
            advice = "look at what else connects the nodes; the counters of /proc/net/dev do not show it"
            return Finding("transport-not-shown", Severity.DOUBT, message, advice, subject=host)
    bad = [host for host in records if not _sends_right(sent[host], fabric)]
    if not bad:
        return Finding("transport-fine", Severity.INFO, f"{names} carried the bytes of {', '.join(records)}")
    of_host = sent[bad[0]]
    most = max(of_host, key=lambda name: of_host[name])
    message = f"{most} sent {_mb(of_host[most])} of {_mb(sum(of_host.values()))} MB, expected {names}"
    advice = "the module sets the interface and the plugin: see `lumisite binds IMAGE`, "
    advice += f"`lumisite why {SETTING}`, and the routes of the node (`ip route`, `ip rule`)"
    nodes = tuple(bad) if len(bad) < len(records) else ()
    return Finding("transport-wrong-network", Severity.FAULT, message, advice, subject=bad[0], nodes=nodes)


def _sends_right(sent: Mapping[str, float], fabric: Fabric) -> bool:
    return sum(sent.get(name, 0.0) for name in fabric.interfaces) >= CARRIED * sum(sent.values())


def _mb(size: float) -> float:
    return round(size / 1e6, 1)
