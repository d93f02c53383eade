"""Judge `node`: what is wrong with each node by itself, so that what fails after it has its cause.

A node is judged by what must be there, and against the other nodes of its job, of which more than half must agree.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial

from lumisite.findings.catalogue import make_finding
from lumisite.findings.finding import Finding, with_values
from lumisite.site.ledger import decide
from lumisite.site.scalars import TASK
from lumisite.validate.probes.definition import make_probe
from lumisite.validate.probes.node.judge_files import FILES, Here, compare_files, files_of, looked_at
from lumisite.validate.probes.node.judge_mounts import compare_mounts
from lumisite.validate.probes.node.resources import (
    SHARED_MEMORY,
    limit_in,
    lower_amounts,
    lower_limits,
    numbers_of,
    usual_numbers,
)
from lumisite.validate.probes.outcome import Located, gates
from lumisite.validate.probes.probe import TEXT, Ended, Expected, Line, Probe, Record, Srun, Target, quote
from lumisite.validate.probes.records import count_in, more_than_half, number, table, text, texts, value_at, whole
from lumisite.validate.probes.start_errors import start_failure
from lumisite.vendors import all_fabrics, all_gpus
from lumisite.vendors.model import GpuVendor

#: A clock counts as wrong that is further from the others, in seconds; tasks of a step start within a few.
CLOCK_S = 30
#: A counter of errors stands out that is so large, so many times what it is on any other node, and such a part of the
#: packets.
LEAST_ERRORS, TIMES, LEAST_PART = 20, 10, 1e-4
#: Counters of an interface, each with that of the packets it is a part of, if any.
COUNTERS = {"rx_errors": "rx_packets", "tx_errors": "tx_packets", "carrier_changes": ""}
#: `facts` of a record, by the names that people know; of one with a unit, less is a fault where two nodes differ.
FACTS = {
    "kernel": ("kernel", ""),
    "cpus": ("online CPUs", ""),
    "cpu_limit_khz": ("CPU frequency limit", " kHz"),
    "cpu_allowed": ("CPU quota", " % of one CPU"),
    "governor": ("CPU frequency governor", ""),
    "thp": ("transparent huge pages", ""),
}

#: A name in what Slurm writes.
_NAME = re.compile(r"\w[\w.-]*\w|\w", re.ASCII)


@dataclass(frozen=True)
class Needed:
    """A path that the node must have: why, the letters of the script's that must hold, and whether nodes share it."""

    why: str
    letters: str
    shared: bool = False


@dataclass(frozen=True)
class NodeSetup:
    """What each node should have: interfaces, paths, a local folder that can be written, and the files of a release."""

    interfaces: Sequence[str]
    paths: Mapping[str, Needed]
    local: str
    in_memory: bool
    release: str
    here: Here = field(default_factory=Here)

    @property
    def shared(self) -> list[str]:
        """The paths that nodes share."""
        return [path for path, needed in self.paths.items() if needed.shared]


def node(target: Target) -> Probe:
    """Return the probe. Nodes get the text of its script, as one may lack the folder where scripts lie."""
    site = target.site
    place = next((system for system in site.private_places if system.writable), None)
    local = place.path if place else ""
    in_memory = place is not None and place.in_memory
    setup = NodeSetup(site.fabric.interfaces, _paths(target), local, in_memory, f"{site.root}/current")
    patterns = (*_libraries(target), *_devices(target))
    arguments = (local, *setup.interfaces, "--", *setup.paths, *patterns)
    srun = Srun("node.sh", ("sh", "-c", TEXT), arguments, each="node", bare=True)
    images = filter(None, (target.image, target.jax_image))
    of_files = (setup.release, *filter(None, [site.runtime.executable]), *images)
    files = Srun("node_files.sh", ("sh", "-c", TEXT), of_files, each="node", name=FILES, bare=True)
    return make_probe("node", (srun, files), partial(_judge, setup))


def _paths(target: Target) -> dict[str, Needed]:
    site, spank = target.site, f"{target.site.root}/current/spank"
    decision = decide(site, target.situation)
    binds = [bind for module in (*site.modules, TASK) for bind in decision.bound_by(module) if bind.required]
    # What only a task binds may be Slurm's own, and shut.
    found = {str(bind.path): Needed(bind.why, "e" if bind.where == TASK else "er") for bind in binds}
    shared = [system for system in site.file_systems if system.kind == "shared"]
    found |= {system.path: Needed(system.why, "ex", shared=True) for system in shared}
    found |= {f"{spank}/{name}": Needed("the srun helper", "erxs") for name in ("task_prolog", f"bin/{site.command}")}
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
    fabrics = target.fabrics or tuple(all_fabrics())
    patterns = (*(gpu.devices for gpu in _gpus(target)), *(fabric.devices for fabric in fabrics))
    return list(dict.fromkeys(pattern for each in patterns for pattern in each))


def _gpus(target: Target) -> list[GpuVendor]:
    return [target.gpu] if target.gpu else list(all_gpus())


# ---- the judge


class _JobRecords:
    """The records of all nodes of a job, by node. What all of them have is counted once."""

    def __init__(self, records: Mapping[str, Record]) -> None:
        """Keep the records."""
        self.records = records
        self._counts: dict[tuple[str, ...], Counter[str]] = {}

    def counts(self, *keys: str) -> Counter[str]:
        """Return how many nodes have which text below some keys; an empty one is that of nodes without any."""
        if keys not in self._counts:
            self._counts[keys] = Counter(text(record, *keys) for record in self.records.values())
        return self._counts[keys]

    def usual(self, *keys: str) -> str | None:
        """Return the text that more than half of the nodes have."""
        return more_than_half(self.counts(*keys))

    @cached_property
    def paths(self) -> list[str]:
        """All paths that a node has looked at."""
        return list(dict.fromkeys(path for record in self.records.values() for path in table(record, "paths")))


def _judge(setup: NodeSetup, steps: Sequence[Ended], expected: Expected) -> list[Line]:
    """Return a line for each thing that is wrong with some nodes, and one for the nodes that are fine."""
    ended = steps[0]
    records = {name: record for record in ended.records if (name := text(record, "host")) in expected.nodes}
    if not records:
        found = make_finding("step-not-run", ended.step.folder, words=ended.words, exit_code=ended.exit_code)
        return [expected.gate(found)]
    job, mounts = _JobRecords(records), {path: compare_mounts(records, path) for path in setup.shared}
    located = [*_lost(ended, records, expected)]
    for name, record in records.items():
        of_mounts = {path: mounts[path].get(name) for path in setup.shared}
        located += [Located(found, name) for found in _interfaces(record, job, setup.interfaces)]
        located += [Located(found, name) for found in _of_paths(record, job, setup.paths, of_mounts)]
        if reason := text(record, "private"):
            located.append(Located(make_finding("folder-not-writable", setup.local, reason=reason), name))
        located += [Located(found, name) for found in _of_facts(record, job)]
    located += _clocks(records)
    located += _errors(records, setup.interfaces)
    located += _resources(records, setup)
    files, why = files_of(steps, expected.nodes), {path: needed.why for path, needed in setup.paths.items()}
    located += [*compare_files(files, setup.release, why, located, setup.here)]
    lines: list[Line] = [*gates(located, expected)]
    bad = {entry.node for entry in located}
    good = [name for name in records if name not in bad]
    if good:
        names, paths = tuple(setup.interfaces), len(setup.paths)
        fine = make_finding("node-fine", nodes=good, interfaces=names, paths=paths)
        lines.append(expected.gate(with_values(fine, looked_at(files, good))))
    return lines


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
        limit_s = ended.step.limit_s if ended.late else None
        if name in reports:
            folder, reason, *paths = reports[name]
            found = make_finding("node-lost", folder=folder, reason=reason, missing=tuple(paths), limit_s=limit_s)
        else:
            found = make_finding("node-lost", words=quote(of_slurm[name]) or ended.words, limit_s=limit_s)
            found = start_failure(of_slurm[name] or ended.stderr) or found
        yield Located(found, name)


def _interfaces(record: Record, job: _JobRecords, names: Sequence[str]) -> Iterator[Finding]:
    addressed = any(any(job.counts("interfaces", name, "addresses")) for name in names)
    for name in names:
        state = text(record, "interfaces", name, "state")
        if state not in ("up", "unknown"):
            yield make_finding("interface-down", name, state=state)
            continue
        if addressed and value_at(record, "interfaces", name, "addresses") == "":
            yield make_finding("interface-no-address", name)
        for key, unit in (("speed", "Mb/s"), ("mtu", "B")):
            found, same = text(record, "interfaces", name, key), job.counts("interfaces", name, key)
            # Where nodes do not agree on one interface, those of all tell.
            most = more_than_half(same) or more_than_half(
                sum((job.counts("interfaces", each, key) for each in names), Counter())
            )
            is_known = None not in (count_in(found), count_in(most or ""))
            if is_known and found != most and most in same:
                yield make_finding("interface-differs", name, quantity=key, unit=unit, found=found, expected=most)


def _errors(records: Mapping[str, Record], names: Sequence[str]) -> Iterator[Located]:
    """Yield the interfaces whose errors stand out from those of all other nodes; they count since the node started."""
    for counter, packets in COUNTERS.items():
        largest = {
            host: max((whole(record, "interfaces", name, "counters", counter) for name in names), default=0)
            for host, record in records.items()
        }
        host, *others = sorted(largest, key=lambda each: -largest[each])
        if not others:
            return
        most = largest[others[0]]
        for name in names:
            counters = table(records[host], "interfaces", name, "counters")
            count, part = whole(counters, counter), LEAST_PART * whole(counters, packets)
            if count >= max(LEAST_ERRORS, part, TIMES * most):
                found = make_finding("interface-errors", name, counter=counter, count=count, most=most)
                yield Located(found, host)


def _of_paths(
    record: Record, job: _JobRecords, paths: Mapping[str, Needed], of_mounts: Mapping[str, Finding | None]
) -> Iterator[Finding]:
    bad: dict[str, Finding] = {}
    for path, needed in paths.items():
        found = _of_path(record, path, needed) or of_mounts.get(path) or _of_content(record, job, path)
        # One mount may be missing that several paths lead to.
        if found and found not in bad.values() and not any(path.startswith(f"{above}/") for above in bad):
            bad[path] = found
            yield with_values(found, {"why": needed.why})
    names: dict[tuple[str, str], list[str]] = {}
    for path in (path for path in job.paths if path not in paths):
        folder, _, name = path.rpartition("/")
        code = _of_file(record, job, path)
        if code == "files-missing" and (shut := _shut(record, folder, path)):
            found = make_finding("path-shut", shut, access="enter", why=f"{folder} is behind it")
            if shut not in bad:
                bad[shut] = found
                yield found
            continue
        if code and not any(path.startswith(f"{above}/") for above in bad):
            names.setdefault((folder, code), []).append(name)
    for (folder, code), files_there in names.items():
        yield make_finding(code, folder, names=tuple(files_there))


def _shut(record: Record, folder: str, path: str) -> str:
    """Return the folder that users may not enter on the way to a file, or to all that a pattern finds beside it."""
    places = (path, *(each for each in table(record, "paths") if each.startswith(f"{folder}/*")))
    return next(filter(None, (text(record, "paths", each, "shut") for each in places)), "")


def _of_path(record: Record, path: str, needed: Needed) -> Finding | None:
    letters, leads = text(record, "paths", path, "is"), text(record, "paths", path, "leads")
    if letters == "h":
        return make_finding("path-silent", path)
    if "e" not in letters:
        shut = text(record, "paths", path, "shut")
        return make_finding("node-path-missing", path, shut=shut, leads=leads if "l" in letters else None)
    if "x" in needed.letters and "x" not in letters:
        return make_finding("path-shut", path, access="enter" if "d" in letters else "execute")
    if "r" in needed.letters and "r" not in letters and not ("d" in letters and "x" in letters):
        return make_finding("path-shut", path, access="read")
    return make_finding("path-empty", path) if "f" in letters and "s" not in letters else None


def _of_content(record: Record, job: _JobRecords, path: str) -> Finding | None:
    seen = text(record, "paths", path, "seen")
    other = seen and job.usual("paths", path, "seen") not in (None, "", seen)
    return make_finding("path-differs", path) if other else None


def _of_file(record: Record, job: _JobRecords, path: str) -> str:
    """Return what is wrong with a file that is looked for by pattern: one that most others have must be there too."""
    letters = text(record, "paths", path, "is")
    if "e" not in letters:
        having = sum(count for found, count in job.counts("paths", path, "is").items() if "e" in found)
        return "files-missing" if 2 * having > len(job.records) - 1 else ""
    if "f" not in letters or ("r" in letters and "s" in letters):
        return ""
    return "files-empty" if "r" in letters else "files-unreadable"


def _of_facts(record: Record, job: _JobRecords) -> Iterator[Finding]:
    for key, (name, unit) in FACTS.items():
        found, counts = text(record, "facts", key), job.counts("facts", key)
        most = more_than_half(counts)
        if most is None and unit and counts[found] == 1 and not counts[""]:
            others = sorted((each for each in counts if each != found), key=limit_in)
            most = next((each for each in others[:1] if limit_in(found) < limit_in(each)), None)
        if found and most and found != most:
            values = [f"{each.strip()}{'' if count_in(each) is None else unit}" for each in (found, most)]
            yield make_finding("fact-differs", name, found=values[0], expected=values[1])


def _resources(records: Mapping[str, Record], setup: NodeSetup) -> Iterator[Located]:
    numbers = {name: numbers_of(texts(record, "resources")) for name, record in records.items()}
    in_memory = {SHARED_MEMORY, *([setup.local] if setup.in_memory else [])}
    usual = usual_numbers([*numbers.values()])
    for name, record in records.items():
        if (lower := lower_limits(numbers[name], usual)) is not None:
            yield Located(lower, name)
        if reason := text(record, "shm"):
            yield Located(make_finding("folder-not-writable", SHARED_MEMORY, reason=reason), name)
        else:
            yield from (Located(found, name) for found in lower_amounts(numbers[name], usual, in_memory))


def _clocks(records: Mapping[str, Record]) -> Iterator[Located]:
    """Judge clocks against the one in the middle; of two that differ, the controller's time tells which is wrong."""
    now = {name: number(record, "now") or 0.0 for name, record in records.items()}
    middle = sorted(now.values())[len(now) // 2]
    if len(now) == 2:
        started = max(whole(record, "started") for record in records.values())
        middle = min(now.values(), key=lambda each: abs(each - started)) if started else min(now.values())
        if not started and max(now.values()) - middle > CLOCK_S:
            return
    for name, each in now.items():
        if abs(each - middle) > CLOCK_S:
            yield Located(make_finding("clock-wrong", offset_s=round(each - middle)), name)
