"""Judge `miopen`: each cache and database directory is set, on the node itself, and private to the user."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from lumisite.site.ledger import decide
from lumisite.validate.probes.probe import Expected, Line, Probe, Record
from lumisite.validate.probes.ranks import Said, counted, faults_of_ranks, judge_records, tell
from lumisite.validate.probes.records import text, value_at, whole
from lumisite.validate.probes.target import Target, each

#: Names that look right and do nothing (MIOpen's documentation, "Environment variables", has the right ones).
MISSPELT = {"MIOPEN_USER_DB": "MIOPEN_USER_DB_PATH", "MIOPEN_CUSTOM_CACHE_PATH": "MIOPEN_CUSTOM_CACHE_DIR"}
#: Types of file systems that lie on servers, as the kernel names them in /proc/self/mountinfo.
SHARED_TYPES = (
    *("lustre", "nfs", "nfs4", "gpfs", "beegfs", "ceph", "cifs", "smb3"),
    *("9p", "afs", "orangefs", "pvfs2", "wekafs", "dvs"),
)
VERBOSE = "LUMISITE_VERBOSE=1 srun … says what the helper made of it"


@dataclass(frozen=True)
class ExpectedCaches:
    """The variables that the ledger sets to private directories, and the site's file systems."""

    variables: tuple[str, ...]
    shared: tuple[str, ...]
    node_local: tuple[str, ...]


def miopen(target: Target) -> Probe:
    """Give the probe."""
    expected = expected_caches(target)
    return Probe(
        "miopen",
        "Each rank has MIOpen's databases on its own node, for itself.",
        (target.alone("miopen.py", *each("variable", expected.variables)),),
        judge_records(partial(judge, expected)),
    )


def expected_caches(target: Target) -> ExpectedCaches:
    """The variables that the ledger sets to private directories."""
    systems = target.site.file_systems
    names = [
        str(verdict.entry.name)
        for verdict in decide(target.site, target.situation).settings
        if verdict.applies and verdict.entry.directory
    ]
    return ExpectedCaches(
        variables=tuple(dict.fromkeys(names)),
        shared=tuple(system.path for system in systems if system.kind == "shared"),
        node_local=tuple(system.path for system in systems if system.kind == "node-local"),
    )


def judge(wanted: ExpectedCaches, records: Sequence[Record], expected: Expected) -> list[Line]:
    """Judge the directories of every rank."""
    faults = faults_of_ranks(records, expected, partial(_of_rank, wanted))
    ranks = counted(len(records), "rank")
    passed = f"{' and '.join(wanted.variables)} are private and node-local for {ranks}"
    return tell(faults, passed if wanted.variables else "the site asks for no private directory", expected)


def _of_rank(wanted: ExpectedCaches, record: Record) -> Iterator[Said]:
    for wrong, right in MISSPELT.items():
        value = value_at(record, "environment", wrong)
        if value is not None:
            yield f"{wrong}={value} is set, which MIOpen does not read", f"set {right}, or leave it to the helper"
    for name in wanted.variables:
        yield from _of_directory(record, name, wanted)


def _of_directory(record: Record, name: str, wanted: ExpectedCaches) -> Iterator[Said]:
    told = value_at(record, "directories", name)
    if value_at(told, "set") is not True:
        yield f"{name} is not set, so that it falls back to the home directory", VERBOSE
        return
    path, real, kind = text(told, "path"), text(told, "real"), text(told, "mount", "type")
    own = wanted.node_local[0] if wanted.node_local else "the node's own file system"
    leave = f"unset {name} before the job: the helper then makes a private directory under {own}"
    where = f"{name}={path}" if real in ("", path) else f"{name}={path}, which leads to {real},"
    shared = [system for system in wanted.shared if _below(real or path, system)]
    if shared or kind in SHARED_TYPES:
        yield f"{where} is on {shared[0] if shared else f'a {kind} file system'}, which all nodes share", leave
    elif not any(_below(real or path, system) for system in wanted.node_local):
        yield f"{where} is not on a node-local file system ({', '.join(wanted.node_local)} would be right)", leave
    elif value_at(told, "exists") is not True:
        yield f"{where} does not exist", VERBOSE
    elif value_at(told, "directory") is not True:
        yield f"{where} is no directory", leave
    else:
        yield from _of_its_owner(told, where, whole(record, "user"), leave)


def _of_its_owner(told: object, where: str, user: int, leave: str) -> Iterator[Said]:
    owner, mode, refusal = whole(told, "owner"), text(told, "mode"), text(told, "writing")
    if owner != user:
        cause = f"{where} belongs to user {owner}, and the job runs as {user}"
        yield cause, "another user has taken the name first: " + leave
    elif mode[-2:] != "00":
        yield f"{where} has mode {mode}, so that others reach it (700 would be right)", leave
    if refusal:
        yield f"{where} cannot be written: {refusal}", "make room on the node, or drain it"


def _below(path: str, system: str) -> bool:
    return path == system or path.startswith(f"{system.rstrip('/')}/")
