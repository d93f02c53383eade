"""Judge `node`: what is wrong with each node by itself, so that what fails after it has its cause.

A node is judged by what must be there, and against the other nodes of its job, of which more than half must agree.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple

from lumisite.findings.catalogue import make_finding
from lumisite.findings.finding import Finding, Severity, with_values
from lumisite.machine.host import Mount, mount_of, parse_mounts
from lumisite.machine.reach import NO_FILES, OWN
from lumisite.machine.tree import is_under
from lumisite.site.ledger import decide
from lumisite.site.scalars import TASK
from lumisite.validate.probes.definition import make_probe
from lumisite.validate.probes.node.identity import identities
from lumisite.validate.probes.node.judge_files import FILES, Here, compare_files, files_of, looked_at
from lumisite.validate.probes.node.leftovers import left_overs
from lumisite.validate.probes.node.resources import (
    SHARED_MEMORY,
    lower_amounts,
    lower_limits,
    numbers_of,
    usual_numbers,
)
from lumisite.validate.probes.outcome import Located, gates
from lumisite.validate.probes.probe import TEXT, Ended, Expected, Line, Probe, Record, Srun, Target, quote
from lumisite.validate.probes.records import number, rows, table, text, texts, value_at, whole
from lumisite.validate.probes.records import usual as _usual
from lumisite.vendors import all_fabrics, all_gpus
from lumisite.vendors.model import GpuVendor

#: A clock counts as wrong that is further from the others, in seconds; tasks of a step start within a few.
CLOCK_S = 30
#: How that begins which comes and goes below a path with a user; what an automounter mounts is counted as that.
COMES_AND_GOES = "fuse"
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
    management: Sequence[str]
    whole_nodes: bool
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
    partition = site.partitions.get(target.plan.partition)
    whole_nodes = partition is not None and partition.whole_nodes
    in_memory = place is not None and place.in_memory
    fabric = site.fabric
    setup = NodeSetup(
        fabric.interfaces, _paths(target), local, in_memory, fabric.management, whole_nodes, f"{site.root}/current"
    )
    patterns = (*_libraries(target), *_devices(target))
    arguments = (local, *setup.interfaces, "--", *setup.paths, *patterns)
    users = "; ".join(vendor.users for vendor in _gpus(target) if vendor.users)
    environment = (("LUMISITE_GPU_USERS", users),) if users else ()
    start, beside = ("sh", "-c", TEXT), ("node_state.sh",)
    srun = Srun("node.sh", start, arguments, beside, each="node", environment=environment, bare=True)
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


def _judge(setup: NodeSetup, steps: Sequence[Ended], expected: Expected) -> list[Line]:
    """Return a line for each thing that is wrong with some nodes, and one for the nodes that are fine."""
    ended = steps[0]
    records = {name: record for record in ended.records if (name := text(record, "host")) in expected.nodes}
    if not records:
        found = make_finding("step-not-run", ended.step.folder, words=ended.words, exit_code=ended.exit_code)
        return [expected.gate(found)]
    mounted = {path: {name: _mounted(record, path) for name, record in records.items()} for path in setup.shared}
    located = [*_lost(ended, records, expected)]
    for name, record in records.items():
        others = [theirs for host, theirs in records.items() if host != name]
        of_mounts = {path: _of_mount(name, path, mounted[path]) for path in setup.shared}
        located += [Located(found, name) for found in _interfaces(record, others, setup.interfaces)]
        located += [Located(found, name) for found in _of_paths(record, others, setup.paths, of_mounts)]
        if reason := text(record, "private"):
            located.append(Located(make_finding("folder-not-writable", setup.local, reason=reason), name))
        located += [Located(found, name) for found in _of_facts(record, others)]
    located += _clocks(records)
    unlinked = [each.node for each in located if each.finding.code in ("interface-down", "interface-no-address")]
    located += identities(records, setup.interfaces, setup.management, unlinked)
    located += _resources(records, setup)
    located += left_overs(records, whole_nodes=setup.whole_nodes)
    files, why = files_of(steps, expected.nodes), {path: needed.why for path, needed in setup.paths.items()}
    located += [*compare_files(files, setup.release, why, located, setup.here)]
    of_job, of_nodes = _broken(records)
    located += of_nodes
    lines: list[Line] = [expected.gate(found) for found in of_job]
    lines += gates(located, expected)
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
    of_slurm = {name: [line for line in ended.stderr if name in _NAME.findall(line)] for name in lost}
    # Where Slurm could not start the step on one node, it may not have started it on others either.
    named = [name for name in lost if name in reports or of_slurm[name]]
    for name in named or lost:
        limit_s = ended.step.limit_s if ended.late else None
        if name in reports:
            folder, reason, *paths = reports[name]
            found = make_finding("node-lost", folder=folder, reason=reason, missing=tuple(paths), limit_s=limit_s)
        else:
            found = make_finding("node-lost", words=quote(of_slurm[name]) or ended.words, limit_s=limit_s)
        yield Located(found, name)


def _broken(records: Mapping[str, Record]) -> tuple[list[Finding], list[Located]]:
    """Return what breaks programs: what all nodes of the job have is the job's own, what some have is the nodes'."""
    having: dict[Finding, list[str]] = {}
    for node_name, record in records.items():
        for entry in rows(record, "broken"):
            values: dict[str, Any] = {key: text(entry, key) or None for key in ("value", "program", "words", "login")}
            if text(entry, "program"):
                way = "TaskProlog" if text(entry, "way") else None
                found = make_finding("variable-breaks-programs", text(entry, "name"), **values, on_the_way=way)
            else:
                found = make_finding("preload-file-breaks-programs", text(entry, "name"), words=values["words"])
            having.setdefault(found, []).append(node_name)
    of_job = [found for found, names in having.items() if _is_of_job(found) and len(names) == len(records)]
    some = ((found, name) for found, names in having.items() if found not in of_job for name in names)
    return of_job, [Located(replace(found, severity=Severity.NODE), name) for found, name in some]


def _is_of_job(found: Finding) -> bool:
    return found.code == "variable-breaks-programs"


def _interfaces(record: Record, others: Sequence[Record], names: Sequence[str]) -> Iterator[Finding]:
    every = [record, *others]
    addressed = any(text(each, "interfaces", name, "addresses") for each in every for name in names)
    for name in names:
        state = text(record, "interfaces", name, "state")
        if state not in ("up", "unknown"):
            yield make_finding("interface-down", name, state=state)
            continue
        if addressed and value_at(record, "interfaces", name, "addresses") == "":
            yield make_finding("interface-no-address", name)
        for key, unit in (("speed", "Mb/s"), ("mtu", "B")):
            found = text(record, "interfaces", name, key)
            same = [text(each, "interfaces", name, key) for each in every]
            usual = _usual(same) or _usual(text(each, "interfaces", other, key) for each in every for other in names)
            if found.isdigit() and (usual or "").isdigit() and found != usual and usual in same:
                yield make_finding("interface-differs", name, quantity=key, unit=unit, found=found, expected=usual)


def _of_paths(
    record: Record, others: Sequence[Record], paths: Mapping[str, Needed], of_mounts: Mapping[str, Finding | None]
) -> Iterator[Finding]:
    bad: dict[str, Finding] = {}
    for path, needed in paths.items():
        found = _of_path(record, path, needed) or of_mounts.get(path) or _of_content(record, others, path)
        # One mount may be missing that several paths lead to.
        if found and found not in bad.values() and not any(path.startswith(f"{above}/") for above in bad):
            bad[path] = found
            yield with_values(found, {"why": needed.why})
    files = dict.fromkeys(path for each in (record, *others) for path in table(each, "paths") if path not in paths)
    names: dict[tuple[str, str], list[str]] = {}
    for path in files:
        folder, _, name = path.rpartition("/")
        code = _of_file(record, others, path)
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


def _of_content(record: Record, others: Sequence[Record], path: str) -> Finding | None:
    first, *theirs = (text(each, "paths", path, "seen") for each in (record, *others))
    other = first and _usual([first, *theirs]) not in (None, "", first)
    return make_finding("path-differs", path) if other else None


def _of_file(record: Record, others: Sequence[Record], path: str) -> str:
    """Return what is wrong with a file that is looked for by pattern: one that most others have must be there too."""
    letters = text(record, "paths", path, "is")
    if "e" not in letters:
        usual = [each for each in others if "e" in text(each, "paths", path, "is")]
        return "files-missing" if 2 * len(usual) > len(others) else ""
    if "f" not in letters or ("r" in letters and "s" in letters):
        return ""
    return "files-empty" if "r" in letters else "files-unreadable"


class _Mounted(NamedTuple):
    """The mount that a path is on, and the mount points that users reach through it: all, and those that stay."""

    on: Mount
    points: frozenset[str]
    stay: frozenset[str]


def _mounted(record: Record, path: str) -> _Mounted:
    """Return what a path is on, what is mounted below it, and what links in it lead to."""
    real, mounts = text(record, "paths", path, "leads") or path, tuple(parse_mounts(texts(record, "mounts")))
    reached = [mount for point in text(record, "paths", path, "links").split() if (mount := mount_of(mounts, point))]
    reached += [mount for mount in mounts if is_under(mount.point, real) and mount.point != real]
    reached = [mount for mount in reached if mount.point != "/" and mount.kind not in NO_FILES]
    automounters = [mount.point for mount in mounts if mount.kind == "autofs"]

    def point(mount: Mount) -> str:
        return next((above for above in automounters if is_under(mount.point, above)), mount.point)

    on = mount_of(mounts, real) or Mount("/", "", "", read_only=False)
    stay = (mount for mount in reached if not mount.kind.startswith(COMES_AND_GOES))
    return _Mounted(on, frozenset(map(point, reached)) - {on.point}, frozenset(map(point, stay)) - {on.point})


def _of_mount(node: str, path: str, mounted: Mapping[str, _Mounted]) -> Finding | None:
    """Compare what is mounted there: of two nodes that differ the one is wrong that has its own root there.

    Where a path is a link, each node may have its own, to its own copy: only what is mounted at one place is compared.
    """
    found, elsewhere = mounted[node], [theirs for host, theirs in mounted.items() if host != node]
    on, theirs = found.on, [each.on for each in elsewhere]
    if on.read_only and theirs and not any(mount.read_only for mount in theirs):
        return make_finding("mount-read-only", path)
    usual = _usual([on, *theirs])
    if usual is None and on.point == "/" and theirs and all(mount.point != "/" for mount in theirs):
        usual = theirs[0]
    if usual not in (None, on) and "autofs" not in (usual.kind, on.kind):
        if on.point != usual.point and is_under(usual.point, on.point):
            expected = f"{usual.kind} {usual.point}".strip()
            return make_finding("mount-missing", path, on=on.point, kind=on.kind, expected=expected)
        if is_under(on.point, usual.point):
            return make_finding(
                "mount-other", path, source=on.source, kind=on.kind, expected=f"{usual.source} ({usual.kind})"
            )
    lacking = sorted(frozenset.intersection(*(each.stay for each in elsewhere)) - found.stay) if elsewhere else []
    if lacking:
        return make_finding("mount-missing", lacking[0], more=tuple(lacking[1:]))
    if on.point == "/" and on.kind in OWN and not found.points:
        return make_finding("mount-missing", path, on="/", kind=on.kind)
    return None


def _of_facts(record: Record, others: Sequence[Record]) -> Iterator[Finding]:
    for key, (name, unit) in FACTS.items():
        found, theirs = text(record, "facts", key), [text(each, "facts", key) for each in others]
        usual = _usual([found, *theirs])
        # What is no number is no limit.
        limits = {each: int(each) if each.isdigit() else math.inf for each in (found, *theirs)}
        if usual is None and unit and all(theirs) and all(limits[found] < limits[each] for each in theirs):
            usual = min(theirs, key=limits.__getitem__, default=None)
        if found and usual and found != usual:
            values = [f"{each.strip()}{unit if each.isdigit() else ''}" for each in (found, usual)]
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
