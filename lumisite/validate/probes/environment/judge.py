"""The probe `environment`: what each node and each rank has is recorded once, and a table of checks judges it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial

from lumisite.validate.probes.environment.checks import CHECKS, Check, NodeRecords, expected_cpus
from lumisite.validate.probes.environment.expected import FRAMEWORK, Setup
from lumisite.validate.probes.outcome import Located, gates, missing, passed, unfinished
from lumisite.validate.probes.probe import Ended, Expected, Line, Probe, Record, Srun, Target, each
from lumisite.validate.probes.records import finished, rank_of, text

ENVIRONMENT = "environment"
CONTAINER = "container"
#: The gates that its checks answer.
GATES = tuple(dict.fromkeys(check.gate for check in CHECKS))


def environment(target: Target) -> Probe:
    """Return the probe; what the node has is recorded outside of containers, as compute nodes need no Python."""
    setup = Setup(target)
    return Probe(ENVIRONMENT, (_on_node(setup), _in_container(setup)), partial(_judge, setup))


def _on_node(setup: Setup) -> Srun:
    paths = tuple(dict.fromkeys(bind.path for bind in setup.binds))
    return Srun("environment_node.sh", ("bash",), paths, each="node", name="node")


def _in_container(setup: Setup) -> Srun:
    target, gpu, plugins = setup.target, setup.target.gpu, setup.plugin_names
    arguments = [
        *each("path", dict.fromkeys(bind.target or bind.path for bind in setup.binds)),
        *each("variable", setup.directories),
        *each("private", setup.private_beginnings),
        *each("import", [FRAMEWORK]),
        *each("plugin", [name for name in setup.origins if name in plugins]),
        *each("library", [name for name in setup.origins if name not in plugins]),
        *each("carrier", target.carriers),
    ]
    if gpu:
        arguments += each("runtime", [":".join(gpu.bus_ids)] if gpu.bus_ids else [])
        arguments += each("device", [gpu.control])
    return target.alone("environment.py", *arguments, name=CONTAINER)


def _judge(setup: Setup, steps: Sequence[Ended], expected: Expected) -> list[Line]:
    """Return the lines of each gate that has records, and those of the probe itself for steps and records that lack."""
    # Those that do not know their rank have nothing of what the module sets: that is one finding, below.
    records = [one for one in finished(one for ended in steps for one in ended.records) if rank_of(one) >= 0]
    tasks = next((ended.step for ended in steps if ended.step.srun.each == "gpu"), expected).tasks
    nodes = [_records_of(name, records, tasks, expected, setup) for name in sorted(expected.nodes)]
    lines: list[Line] = []
    broken = set()
    for gate in GATES:
        checks = [check for check in CHECKS if check.gate == gate]
        found = [entry for node in nodes for check in checks for entry in _find(check, node, setup)]
        broken |= {entry.node for entry in found if entry.finding.code == "bind-missing"}
        looked_at = [record for node in nodes for record in node.of_kind(checks[-1].kind)]
        if found or looked_at:
            names = tuple(dict.fromkeys(text(record, "host") for record in looked_at))
            fine = passed(f"{len(looked_at)} records passed")
            job = replace(expected, probe=gate)
            lines += gates(found, job) or [job.gate(replace(fine, nodes=names))]
    failed = unfinished(steps, expected)
    if failed is not None:
        return [failed, *lines]
    # A runtime that misses the source of a bind does not start, and the bind is named already.
    lost = [entry for ended in steps for entry in missing(ended, _whole(ended)) if entry.node not in broken]
    return [*(gates(lost, expected) or [expected.gate(passed(f"{len(records)} records passed"))]), *lines]


def _records_of(name: str, records: Sequence[Record], tasks: int, expected: Expected, setup: Setup) -> NodeRecords:
    parts: dict[str, list[Record]] = {"node": [], "container": []}
    for record in records:
        if text(record, "host") == name and text(record, "part") in parts:
            parts[text(record, "part")].append(record)
    node, ranks = next(iter(parts["node"]), {}), tuple(parts["container"])
    cpus = expected_cpus(ranks, tasks, setup)
    return NodeRecords(node, ranks, cpus)


def _find(check: Check, node: NodeRecords, setup: Setup) -> Iterator[Located]:
    """Yield what a check finds on a node: about a rank where each rank has a record of the kind."""
    for record in node.of_kind(check.kind):
        rank = record["rank"] if check.kind == "rank" else None
        for finding in check.find(record, node, setup):
            yield Located(finding, text(record, "host"), rank)


def _whole(ended: Ended) -> list[Record]:
    """Return the records of a step that are complete: the first rank of each node may have died of a library."""
    in_container = ended.step.srun.name == CONTAINER
    return [
        record for record in finished(ended.records) if not in_container or record["local_rank"] or "imports" in record
    ]
