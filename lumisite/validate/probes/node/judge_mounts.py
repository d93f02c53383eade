"""Judge what is mounted where a path that nodes share is, against the other nodes of a job."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple

from lumisite.findings.finding import Finding, Severity
from lumisite.machine.mounts import Mount, mount_of, parse_mounts
from lumisite.machine.reach import NO_FILES, OWN
from lumisite.machine.tree import is_under
from lumisite.text import some
from lumisite.validate.probes.outcome import DRAIN
from lumisite.validate.probes.probe import Record
from lumisite.validate.probes.records import rows, text, usual

#: How that begins which comes and goes below a path with a user; what an automounter mounts is counted as that.
COMES_AND_GOES = "fuse"
#: Mount points that a finding names.
NAMED_MOUNTS = 4


class _Mounted(NamedTuple):
    """The mount that a path is on, and the mount points that users reach through it: all, and those that stay."""

    on: Mount
    points: frozenset[str]
    stay: frozenset[str]


def compare_mounts(records: Mapping[str, Record], path: str) -> dict[str, Finding]:
    """Return what is wrong with the mount of a path, by node: of two that differ, the one with its own root there.

    Where a path is a link, each node may have its own, to its own copy: only what is mounted at one place is compared.
    """
    mounted = {name: _mounted(record, path) for name, record in records.items()}
    every = [each.on for each in mounted.values()]
    most = usual(every)
    read_only = [each.read_only for each in every] if len(every) > 1 else []
    roots = [each for each in every if each.point == "/"]
    elsewhere = next((each for each in every if each.point != "/"), None)
    counts = Counter(point for each in mounted.values() for point in each.stay)
    # What all nodes but one have is missing there.
    expected = {point for point, count in counts.items() if count == len(every) - 1}
    found = {}
    for name, each in mounted.items():
        if each.on.read_only and read_only.count(True) == 1:
            found[name] = _finding(path, "mounted read-only, on the other nodes writable")
            continue
        other = elsewhere if most is None and roots == [each.on] else most
        finding = _other_mount(path, each.on, other)
        if finding is None and (lacking := sorted(expected - each.stay)):
            more = f", and neither are {some(lacking[1:], NAMED_MOUNTS, ', ')}" if lacking[1:] else ""
            finding = _finding(lacking[0], f"not mounted{more}")
        if finding is None and each.on.point == "/" and each.on.kind in OWN and not each.points:
            finding = _finding(path, f"not mounted: it is a folder on / ({each.on.kind})")
        if finding is not None:
            found[name] = finding
    return found


def _other_mount(path: str, on: Mount, expected: Mount | None) -> Finding | None:
    if expected in (None, on) or "autofs" in (expected.kind, on.kind):
        return None
    if on.point != expected.point and is_under(expected.point, on.point):
        place = f"{expected.kind} {expected.point}".strip()
        return _finding(path, f"not mounted: it is a folder on {on.point} ({on.kind}), on the other nodes {place}")
    if is_under(on.point, expected.point):
        place = f"{expected.source} ({expected.kind})"
        return _finding(path, f"{on.source} ({on.kind}) is mounted, on the other nodes {place}")
    return None


def _finding(path: str, message: str) -> Finding:
    advice = f"mount what the other nodes have (`findmnt`){DRAIN}"
    return Finding("node-mount", Severity.NODE, message, advice, subject=path)


def _mounted(record: Record, path: str) -> _Mounted:
    """Return what a path is on, what is mounted below it, and what links in it lead to."""
    real, mounts = text(record, "paths", path, "leads") or path, tuple(parse_mounts(rows(record, "mounts")))
    reached = [mount for point in text(record, "paths", path, "links").split() if (mount := mount_of(mounts, point))]
    reached += [mount for mount in mounts if is_under(mount.point, real) and mount.point != real]
    reached = [mount for mount in reached if mount.point != "/" and mount.kind not in NO_FILES]
    automounters = [mount.point for mount in mounts if mount.kind == "autofs"]

    def point(mount: Mount) -> str:
        return next((above for above in automounters if is_under(mount.point, above)), mount.point)

    on = mount_of(mounts, real) or Mount("/", "", "", read_only=False)
    stay = (mount for mount in reached if not mount.kind.startswith(COMES_AND_GOES))
    return _Mounted(on, frozenset(map(point, reached)) - {on.point}, frozenset(map(point, stay)) - {on.point})
