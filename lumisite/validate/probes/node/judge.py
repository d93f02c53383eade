"""Judge `node`: what is wrong with each node by itself, all of it in one line, so that what follows has its cause.

A node is judged by what must be there, and against the other nodes of its job, of which more than half must agree.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple, TypeVar

from lumisite.machine.host import Mount, mount_of, parse_mounts
from lumisite.machine.reach import NO_FILES, OWN
from lumisite.machine.tree import is_under
from lumisite.site.ledger import decide
from lumisite.site.scalars import TASK
from lumisite.text import some
from lumisite.validate.probes.probe import TEXT, Ended, Expected, Line, Part, Plan, Record, Target, probe
from lumisite.validate.probes.ranks import NOT_STARTED, STDERR, Said
from lumisite.validate.probes.records import number, table, text, texts, value_at, whole
from lumisite.vendors import all_fabrics, all_gpus

#: A clock counts as wrong that is further from the others, in seconds; tasks of a step start within a few.
CLOCK_S = 30
#: How that begins which comes and goes below a path with a user; what an automounter mounts is counted as that.
COMES_AND_GOES = "fuse"
#: Libraries of one folder that a cause names; more are counted.
NAMED_FILES = 3
LINK = "look at the cable, the switch and the driver"
MEND = "mount it or mend the path there"
ALIKE = "all nodes are alike: look at what they share, and at the site's description"
#: What `facts` of a record are called; of one with a unit, less is a fault where two nodes differ.
FACTS = {
    "kernel": ("the kernel", ""),
    "cpus": ("the list of CPUs that are online", ""),
    "cpu_limit_khz": ("the limit of the CPU frequency", " kHz"),
    "cpu_allowed": ("the CPU time that cgroups allow", " % of one CPU"),
    "governor": ("the CPU frequency governor", ""),
}

_Value = TypeVar("_Value")


@dataclass(frozen=True)
class _Path:
    """A path that the node must have: why, the letters of the script's that must hold, and whether nodes share it."""

    why: str
    needs: str
    shared: bool = False


@probe("Each node is as the others, and has what jobs need.")
def node(target: Target) -> Plan:
    """Give the probe. Nodes get the text of its script, as one may lack the folder where scripts lie."""
    paths, interfaces = _paths(target), target.site.fabric.interfaces
    local = next((one.path for one in target.site.private_places if one.writable), "")
    part = Part(
        "node.sh",
        ("sh", "-c", TEXT),
        (local, *interfaces, "--", *paths, *_libraries(target), *_devices(target)),
        each="node",
        bare=True,
    )
    return (part,), partial(_judge, interfaces, paths, local)


def _paths(target: Target) -> dict[str, _Path]:
    site, spank = target.site, f"{target.site.root}/current/spank"
    decision = decide(site, target.situation)
    binds = [bind for place in (*site.modules, TASK) for bind in decision.bound_by(place) if bind.required]
    # What only a task binds may be Slurm's own, and shut.
    found = {str(bind.path): _Path(bind.why, "e" if bind.where == TASK else "er") for bind in binds}
    shared = [one for one in site.file_systems if one.kind == "shared"]
    found |= {one.path: _Path(one.why, "ex", shared=True) for one in shared}
    found |= {f"{spank}/{name}": _Path("the srun helper", "erxs") for name in ("task_prolog", f"bin/{site.command}")}
    if site.runtime.executable is not None:
        found[site.runtime.executable] = _Path("the container runtime", "erxs")
    return found | {target.image: _Path("the image", "er")}


def _libraries(target: Target) -> list[str]:
    """Give patterns of the host libraries that containers load, in the folders of the platform and its releases."""
    site, selection = target.site, target.selection
    folders = site.libraries(selection.platform, selection.default.releases).values()
    return [f"{folder}/{name}/*.so*" for folder in dict.fromkeys(folders) for name in ("lib64", "lib")]


def _devices(target: Target) -> list[str]:
    """Give patterns of the devices of GPUs and of the network, by the names that their drivers give them.

    Where the site says nothing of one they are those of all vendors: what one node of many lacks is told all the same.
    """
    gpus, fabrics = [target.gpu] if target.gpu else all_gpus(), target.fabrics or tuple(all_fabrics())
    return list(dict.fromkeys(pattern for one in (*gpus, *fabrics) for pattern in one.devices))


def _judge(
    interfaces: Sequence[str], paths: Mapping[str, _Path], local: str, steps: Sequence[Ended], expected: Expected
) -> list[Line]:
    """Give a line for each node that is not as it should be, and one for the others."""
    ended = steps[0]
    end = f"not done after {ended.step.limit_s} s" if ended.late else ended.words or NOT_STARTED
    records = {name: one for one in ended.records if (name := text(one, "host")) in expected.nodes}
    if not records:
        return [expected.gate("fail", f"{ended.step.folder} ran on no node: {ended.words or end}", STDERR)]
    faults: dict[str, list[Said]] = {}
    shared = [path for path, wanted in paths.items() if wanted.shared]
    mounted = {path: {name: _mounted(record, path) for name, record in records.items()} for path in shared}
    for name, record in records.items():
        others = [one for other, one in records.items() if other != name]
        faults[name] = [
            *_interfaces(record, others, interfaces),
            *_of_paths(record, others, paths, {path: _of_mount(name, path, mounted[path]) for path in shared}),
            *([(f"{local} cannot be written: {said}", MEND)] if (said := text(record, "private")) else ()),
            *_of_facts(record, others),
        ]
    for name, wrong in _clocks(records).items():
        faults[name].append(wrong)
    lost = [name for name in expected.nodes if name not in records]
    # Where Slurm could not start the step on one node, it may not have started it on others either.
    lost = [name for name in lost if name in ended.words] or lost
    lines: list[Line] = []
    common = _common(faults, expected)
    if common:
        lines.append(_bad(expected, common))
    for name in lost:
        told = ended.words.split(" | ")
        # Its script says what is wrong where it cannot write the record.
        own = [(line.removeprefix(f"{name}: "), MEND) for line in told if line.startswith(f"{name}: ")]
        words = " | ".join(line for line in told if name in line)
        lines.append(_bad(expected, own or [(f"left no record: {words or end}", STDERR)], name))
    alone = {name: [said for said in found if said not in common] for name, found in faults.items()}
    lines += [_bad(expected, found, name) for name, found in alone.items() if found]
    good = [name for name in records if not faults[name]]
    if good:
        what = f"{some(interfaces, between=', ')}, {len(paths)} paths and the clock are as they should be"
        lines.append(expected.gate("pass", what, nodes=good))
    return lines


def _common(faults: Mapping[str, Sequence[Said]], expected: Expected) -> list[Said]:
    """Return what is wrong with every node of several: that is no fault of a node."""
    (first, *others) = faults.values()
    if not others or len(faults) != len(expected.nodes):
        return []
    return [said for said in first if all(said in found for found in others)]


def _bad(expected: Expected, found: Sequence[Said], name: str = "") -> Line:
    """Return the line for what is wrong with one node, or with all."""
    who = name or "all nodes"
    then = f"drain {name} until then" if name else ALIKE
    advice = dict.fromkeys([*(said for _, said in found), then])
    nodes = (name,) if name else ()
    return expected.gate("fail", f"{who}: {'; '.join(cause for cause, _ in found)}", "; ".join(advice), nodes=nodes)


def _usual(values: Iterable[_Value]) -> _Value | None:
    """Give what more than half have, if there is such a value."""
    every = list(values)
    value, count = Counter(every).most_common(1)[0] if every else (None, 0)
    return value if 2 * count > len(every) else None


def _interfaces(record: Record, others: Sequence[Record], wanted: Sequence[str]) -> Iterator[Said]:
    every = [record, *others]
    addressed = any(text(one, "interfaces", name, "addresses") for one in every for name in wanted)
    for name in wanted:
        state = text(record, "interfaces", name, "state")
        if state not in ("up", "unknown"):
            yield f"{name} is {state or 'not there'}", LINK
            continue
        if addressed and value_at(record, "interfaces", name, "addresses") == "":
            yield f"{name} has no address", "give the interface its address"
        for key, unit in (("speed", "speed {} Mb/s"), ("mtu", "MTU {}")):
            own = text(record, "interfaces", name, key)
            same = [text(one, "interfaces", name, key) for one in every]
            usual = _usual(same) or _usual(text(one, "interfaces", each, key) for one in every for each in wanted)
            if own.isdigit() and (usual or "").isdigit() and own != usual and usual in same:
                yield f"{name} has {unit.format(own)}, not {usual}", LINK


def _of_paths(
    record: Record, others: Sequence[Record], paths: Mapping[str, _Path], of_mounts: Mapping[str, str]
) -> Iterator[Said]:
    told: dict[str, str] = {}
    for path, wanted in paths.items():
        fault = _of_path(record, path, wanted) or of_mounts.get(path) or _of_content(record, others, path)
        # One mount may be missing behind several paths.
        if fault and fault not in told.values() and not any(path.startswith(f"{above}/") for above in told):
            told[path] = fault
            yield f"{fault} ({wanted.why})", MEND
    files = dict.fromkeys(path for one in (record, *others) for path in table(one, "paths") if path not in paths)
    bad: dict[tuple[str, str], list[str]] = {}
    for path in files:
        folder, _, name = path.rpartition("/")
        fault = _of_file(record, others, path)
        if fault and not any(path.startswith(f"{above}/") for above in told):
            bad.setdefault((folder, fault), []).append(name)
    for (folder, fault), names in bad.items():
        remedy = "look at the device and its driver" if folder.startswith("/dev") else "restore the library"
        yield f"{some(names, NAMED_FILES, ', ')} in {folder} {fault}", remedy


def _of_path(record: Record, path: str, wanted: _Path) -> str:
    has, leads = text(record, "paths", path, "is"), text(record, "paths", path, "leads")
    if has == "h":
        return f"{path} does not answer"
    if "e" not in has:
        if shut := text(record, "paths", path, "shut"):
            return f"{path} is behind {shut}, which users may not enter"
        return f"{path} is a link to {leads}, which is not there" if "l" in has else f"{path} is not there"
    if "x" in wanted.needs and "x" not in has:
        return f"{path} may not be {'entered' if 'd' in has else 'run'} by users"
    if "r" in wanted.needs and "r" not in has and not ("d" in has and "x" in has):
        return f"{path} may not be read by users"
    return f"{path} is empty" if "f" in has and "s" not in has else ""


def _of_content(record: Record, others: Sequence[Record], path: str) -> str:
    own, *theirs = (text(one, "paths", path, "seen") for one in (record, *others))
    other = own and _usual([own, *theirs]) not in (None, "", own)
    return f"{path} is another file than on the other nodes" if other else ""


def _of_file(record: Record, others: Sequence[Record], path: str) -> str:
    """Judge a library that is looked for by pattern: one that most of the others have must be there too."""
    has = text(record, "paths", path, "is")
    if "e" in has:
        return "" if "f" not in has or ("r" in has and "s" in has) else "is empty" if "r" in has else "cannot be read"
    usual = [one for one in others if "e" in text(one, "paths", path, "is")]
    return "is not there" if 2 * len(usual) > len(others) else ""


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


def _of_mount(node: str, path: str, mounted: Mapping[str, _Mounted]) -> str:
    """Compare what is mounted there: of two nodes that differ the one is wrong that has its own root there.

    Where a path is a link, each node may have its own, to its own copy: only what is mounted at one place is compared.
    """
    found, elsewhere = mounted[node], [one for other, one in mounted.items() if other != node]
    own, theirs = found.on, [one.on for one in elsewhere]
    if own.read_only and theirs and not any(one.read_only for one in theirs):
        return f"{path} is mounted read-only"
    usual = _usual([own, *theirs])
    if usual is None and own.point == "/" and theirs and all(one.point != "/" for one in theirs):
        usual = theirs[0]
    if usual not in (None, own) and "autofs" not in (usual.kind, own.kind):
        if own.point != usual.point and is_under(usual.point, own.point):
            there = f"{usual.kind or 'nothing'} on {usual.point} on the other nodes"
            return f"{path} is not mounted: it is a folder on {own.point} ({own.kind}), and {there}"
        if is_under(own.point, usual.point):
            there = f"{usual.source} ({usual.kind}) elsewhere"
            return f"{path} is another file system: {own.source} ({own.kind}), and {there}"
    if missing := sorted(frozenset.intersection(*(one.stay for one in elsewhere)) - found.stay) if elsewhere else []:
        return f"{some(missing, NAMED_FILES, ', ')} is not mounted"
    if own.point == "/" and own.kind in OWN and not found.points:
        return f"{path} is not mounted: it is a folder on / ({own.kind})"
    return ""


def _of_facts(record: Record, others: Sequence[Record]) -> Iterator[Said]:
    for key, (what, unit) in FACTS.items():
        own, theirs = text(record, "facts", key), [text(one, "facts", key) for one in others]
        usual = _usual([own, *theirs])
        # What is no number is no limit.
        limits = {each: int(each) if each.isdigit() else math.inf for each in (own, *theirs)}
        if usual is None and unit and all(theirs) and all(limits[own] < limits[each] for each in theirs):
            usual = min(theirs, key=limits.__getitem__, default=None)
        if own and usual and own != usual:
            has, lacks = (f"{each.strip()}{unit if each.isdigit() else ''}" for each in (own, usual))
            yield f"{what} is {has}, not {lacks}", "set it as on the other nodes"


def _clocks(records: Mapping[str, Record]) -> dict[str, Said]:
    """Judge clocks against the one in the middle; of two that differ, the controller's time tells which is wrong."""
    now = {name: number(one, "now") or 0.0 for name, one in records.items()}
    middle = sorted(now.values())[len(now) // 2]
    if len(now) == 2:
        started = max(whole(one, "started") for one in records.values())
        middle = min(now.values(), key=lambda each: abs(each - started)) if started else min(now.values())
        if not started and max(now.values()) - middle > CLOCK_S:
            return {}
    return {
        name: (f"the clock is {abs(each - middle):.0f} s {'ahead' if each > middle else 'behind'}", "set the clock")
        for name, each in now.items()
        if abs(each - middle) > CLOCK_S
    }
