"""Judge `miopen`: each cache and database directory is set, on the node itself, and private to the user."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import PurePosixPath

from lumisite.site.entries import FileSystem
from lumisite.site.ledger import decide
from lumisite.site.model import Site
from lumisite.text import counted
from lumisite.validate.probes.probe import Expected, Plan, Record, Target, each, probe
from lumisite.validate.probes.ranks import Said, judge_each
from lumisite.validate.probes.records import text, value_at, whole

#: Types of file systems that lie on servers, as the kernel names them in /proc/self/mountinfo.
SHARED_TYPES = (
    *("lustre", "nfs", "nfs4", "gpfs", "beegfs", "ceph", "cifs", "smb3"),
    *("9p", "afs", "orangefs", "pvfs2", "wekafs", "dvs"),
)
VERBOSE = "LUMISITE_VERBOSE=1 srun … says what the helper made of it"


@probe("Each rank has its caches and databases on its own node, for itself.")
def miopen(target: Target) -> Plan:
    """Give the probe."""
    names = private_directories(target)
    part = target.alone("miopen.py", *each("variable", names))
    return (part,), judge_each(partial(_of_rank, target.site, names), partial(_passed, names))


def private_directories(target: Target) -> list[str]:
    """Give the variables that the ledger sets to private directories."""
    applying = [verdict.entry for verdict in decide(target.site, target.situation).settings if verdict.applies]
    return list(dict.fromkeys(str(setting.name) for setting in applying if setting.directory))


def _passed(names: Sequence[str], records: Sequence[Record], _expected: Expected) -> str:
    private = f"{' and '.join(names)} are private and node-local for {counted(len(records), 'rank')}"
    return private if names else "the site asks for no private directory"


def _of_rank(site: Site, names: Sequence[str], record: Record) -> Iterator[Said]:
    first = next(iter(site.private_places), None)
    place = "the node's own file system" if first is None else first.job_folder or first.path
    for name in names:
        yield from _of_directory(record, name, site.file_systems, place)


def _of_directory(record: Record, name: str, systems: Sequence[FileSystem], place: str) -> Iterator[Said]:
    told = value_at(record, "directories", name)
    if value_at(told, "set") is not True:
        yield f"{name} is not set, so that it falls back to the home directory", VERBOSE
        return
    path, real, kind = text(told, "path"), text(told, "real"), text(told, "mount", "type")
    leads_to = PurePosixPath(real or path)
    own = [system.path for system in systems if system.kind == "node-local"]
    leave = f"unset {name} before the job: the helper then makes a private directory under {place}"
    where = f"{name}={path}" if real in ("", path) else f"{name}={path}, which leads to {real},"
    shared = [system.path for system in systems if system.kind == "shared" and leads_to.is_relative_to(system.path)]
    if shared or kind in SHARED_TYPES:
        yield f"{where} is on {shared[0] if shared else f'a {kind} file system'}, which all nodes share", leave
    elif not any(leads_to.is_relative_to(system) for system in own):
        yield f"{where} is not on a node-local file system ({', '.join(own)} would be right)", leave
    elif value_at(told, "exists") is not True:
        yield f"{where} does not exist", VERBOSE
    elif value_at(told, "directory") is not True:
        yield f"{where} is no directory", leave
    else:
        owner, user, mode = whole(told, "owner"), whole(record, "user"), text(told, "mode")
        if owner != user:
            cause = f"{where} belongs to user {owner}, and the job runs as {user}"
            yield cause, "another user has taken the name first: " + leave
        elif mode[-2:] != "00":
            yield f"{where} has mode {mode}, so that others reach it (700 would be right)", leave
        if refusal := text(told, "writing"):
            yield f"{where} cannot be written: {refusal}", "make room on the node, or drain it"
