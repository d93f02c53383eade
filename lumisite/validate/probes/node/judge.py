"""Judge `node`: what is wrong with each node by itself, so that what fails after it has its cause.

A node is judged by what must be there, and against the other nodes of its job, of which more than half must agree.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from lumisite.findings.finding import Finding, Severity
from lumisite.machine.tree import is_under
from lumisite.paths import PROLOG, WRAPPERS, current
from lumisite.site.ledger import decide
from lumisite.site.scalars import TASK
from lumisite.text import some
from lumisite.validate.probes.node.judge_check import CHECKED, check_of_node, checked_nodes, unchecked
from lumisite.validate.probes.node.judge_exchange import EXCHANGE, compare_links
from lumisite.validate.probes.node.judge_files import FILES, compare_files
from lumisite.validate.probes.node.judge_interfaces import judge_interfaces
from lumisite.validate.probes.node.judge_mounts import compare_mounts
from lumisite.validate.probes.node.judge_paths import Needed, judge_paths
from lumisite.validate.probes.node.judge_readings import compare, compare_clocks, judge_folders, readings
from lumisite.validate.probes.outcome import DRAIN, Located, gates, not_run
from lumisite.validate.probes.probe import (
    COMMON,
    NAMED_NODES,
    NODE,
    OUT,
    PROBES,
    RECORD,
    TEXT,
    Ended,
    Expected,
    Line,
    Probe,
    Record,
    Srun,
    Target,
    quote,
)
from lumisite.validate.probes.records import text
from lumisite.validate.probes.start_errors import start_failure
from lumisite.vendors import all_fabrics, all_gpus

#: What the node's own Python runs, or that of the image where a node has none.
ANY_PYTHON = 'command -v python3 >/dev/null && exec python3 -EsB "$0" "$@"; exec {runtime} python3 -EsB "$0" "$@"'
#: A name in what Slurm writes.
_NAME = re.compile(r"\w[\w.-]*\w|\w", re.ASCII)


@dataclass(frozen=True)
class NodeSetup:
    """What each node should have: interfaces, paths, a local folder that can be written, and the files of a release.

    `places` are all file systems of a node's own.
    """

    interfaces: Sequence[str]
    paths: Mapping[str, Needed]
    places: Sequence[str]
    local: str
    in_memory: bool
    release: str

    @property
    def shared(self) -> list[str]:
        """The paths that nodes share."""
        return [path for path, needed in self.paths.items() if needed.shared]


def node(target: Target) -> Probe:
    """Return the probe. Nodes get the text of its scripts, as one may lack the folder where scripts lie."""
    site = target.site
    place = next((system for system in site.private_places if system.writable), None)
    local = place.path if place else ""
    in_memory = place is not None and place.in_memory
    places = [system.path for system in site.file_systems if system.kind != "shared"]
    setup = NodeSetup(site.fabric.interfaces, _paths(target), places, local, in_memory, current(site.root))
    patterns = (*_libraries(target), *_devices(target))
    arguments = (local, *setup.interfaces, "--", *setup.paths, *patterns)
    srun = Srun("node.sh", ("sh", "-c", TEXT), arguments, each="node", bare=True)
    others = [path for path, needed in setup.paths.items() if not needed.shared and path != target.image]
    of_files = (setup.release, *(path for path in others if not is_under(path, setup.release)), target.image)
    files = Srun("node_files.sh", ("sh", "-c", TEXT), of_files, (COMMON,), each="node", name=FILES, bare=True)
    return Probe(NODE, (srun, _exchange(target), files, check_of_node()), partial(_judge, setup))


def _exchange(target: Target) -> Srun:
    """Return the srun in which nodes send each other data: before any module, as what hangs later is seen in it."""
    runtime = target.site.runtime.executable or target.site.command
    words = (runtime, "exec", "--bind", f"{PROBES},{OUT}", target.image)
    start = ("sh", "-c", ANY_PYTHON.format(runtime=" ".join(f"'{word}'" for word in words)))
    interfaces = tuple(target.site.fabric.interfaces)
    return Srun("node_exchange.py", start, interfaces, (RECORD,), each="node", name=EXCHANGE, bare=True)


def _paths(target: Target) -> dict[str, Needed]:
    site = target.site
    decision = decide(site, target.situation)
    binds = [bind for module in (*site.modules, TASK) for bind in decision.bound_by(module) if bind.required]
    # What only a task binds may be Slurm's own, and shut.
    found = {str(bind.path): Needed(bind.why, "e" if bind.where == TASK else "er") for bind in binds}
    shared = [system for system in site.file_systems if system.kind == "shared"]
    found |= {system.path: Needed(system.why, "ex", shared=True) for system in shared}
    found[current(site.root, PROLOG)] = Needed("the srun helper", "erxs")
    found[current(site.root, f"{WRAPPERS}/{site.command}")] = Needed("the srun helper", "erxs")
    if site.runtime.executable is not None:
        found[site.runtime.executable] = Needed("the container runtime", "erxs")
    return found | {target.image: Needed("the image", "er")}


def _libraries(target: Target) -> list[str]:
    """Return patterns of the host libraries that containers load, in the folders of the platform and its releases."""
    site, selection = target.site, target.selection
    folders = site.libraries(selection.platform, selection.default.releases).values()
    return [f"{folder}/{name}/*.so*" for folder in dict.fromkeys(folders) for name in ("lib64", "lib")]


def _devices(target: Target) -> list[str]:
    """Return patterns of the devices of GPUs and of the network: of all vendors where the site names none."""
    vendors = (*([target.gpu] if target.gpu else all_gpus()), *(target.fabrics or all_fabrics()))
    return list(dict.fromkeys(pattern for vendor in vendors for pattern in vendor.devices))


# ---- the judge


def _judge(setup: NodeSetup, steps: Sequence[Ended], expected: Expected) -> list[Line]:
    """Return a line for each thing that is wrong with some nodes, and one for the nodes that are fine."""
    ended = steps[0]
    records = {name: record for record in ended.records if (name := text(record, "host")) in expected.nodes}
    if not records:
        return [expected.gate(start_failure(ended.stderr, ended.step.folder) or not_run(ended))]
    exchanged, files, checks = (_of_step(name, steps, expected) for name in (EXCHANGE, FILES, CHECKED))
    mounts = {path: compare_mounts(records, path) for path in setup.shared}
    located = [*_lost(ended, records, expected)]
    located += judge_interfaces(records, exchanged, setup.interfaces)
    located += judge_paths(records, setup.paths, mounts)
    located += compare_clocks(records)
    located += judge_folders(records, setup.local)
    table = readings(setup.places, setup.local or "/tmp", in_memory=setup.in_memory)  # noqa: S108
    located += [*compare(records, table, located)]
    located += [*compare_files(files, setup.release, {path: need.why for path, need in setup.paths.items()}, located)]
    located += [*checked_nodes(checks, located, setup.release)]
    # Of a node that something is wrong with, links tell nothing more; what is wrong with all of them is another matter.
    bad = {entry.node for entry in located}
    located += compare_links(exchanged.values(), expected.nodes, bad if bad < {*expected.nodes} else ())
    lines: list[Line] = [*gates(located, expected)]
    good = tuple(name for name in records if name not in {entry.node for entry in located})
    if good:
        message = f"{', '.join(setup.interfaces)}, {len(setup.paths)} paths and the clock are as they should be"
        message += "; their files are alike" if len(files) > 1 else ""
        message += "; TCP between nodes works" if len(exchanged) > 1 else ""
        checked = any(ended.step.srun.name == CHECKED for ended in steps)
        lacking = unchecked(checks, good) if checked else ""
        message += f"; {lacking}" if lacking else ""
        lines.append(expected.gate(Finding("checks-passed", Severity.INFO, message, nodes=good)))
    return lines


def _of_step(name: str, steps: Sequence[Ended], expected: Expected) -> dict[str, Record]:
    """Return the record of each node that a step left."""
    every = [record for ended in steps if ended.step.srun.name == name for record in ended.records]
    return {host: record for record in every if (host := text(record, "host")) in expected.nodes}


def _lost(ended: Ended, records: Mapping[str, Record], expected: Expected) -> Iterator[Located]:
    """Yield the nodes without a record, each with what its script or Slurm wrote of it."""
    lost = [name for name in expected.nodes if name not in records]
    # `lost`, the node, the folder, the system's reason, and the paths that the node lacks, as the script writes them.
    reports = {fields[1]: fields[2:] for line in ended.stderr if len(fields := line.split("\t")) > 3}
    names = [(line, {*_NAME.findall(line)}) for line in ended.stderr]
    of_slurm = {name: [line for line, named in names if name in named] for name in lost}
    # Where Slurm could not start the step on one node, it may not have started it on others either.
    named = [name for name in lost if name in reports or of_slurm[name]]
    for name in named or lost:
        if name in reports:
            folder, reason, *paths = reports[name]
            missing = f"; missing: {some(paths, NAMED_NODES, ', ')}" if paths else ""
            words = f"left no record: cannot write {folder} ({reason}){missing}"
        elif slurm_words := quote(of_slurm[name]) or ended.words:
            words = f"left no record: {slurm_words}"
        elif ended.late:
            words = f"left no record in {ended.step.limit_s} s"
        else:
            words = "left no record: the step did not start, or was ended"
        advice = f"look at slurmd on the node, and {ended.read_stderr}{DRAIN}"
        found = Finding("node-lost", Severity.NODE, words, advice)
        if name not in reports:
            found = start_failure(of_slurm[name] or ended.stderr) or found
        yield Located(found, name)
