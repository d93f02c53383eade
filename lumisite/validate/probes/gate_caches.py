"""Judge the `miopen` probe: each cache and database directory is set, on the node itself, and private to the user."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from lumisite.validate.probes.findings import (
    Fault,
    Finding,
    JobShape,
    Record,
    by_rank,
    counted,
    findings,
    missing,
    number,
    text,
    value_at,
)

GATE = "miopen"

#: Names that look right and do nothing (MIOpen's documentation, "Environment variables", has the right ones).
MISSPELT = {"MIOPEN_USER_DB": "MIOPEN_USER_DB_PATH", "MIOPEN_CUSTOM_CACHE_PATH": "MIOPEN_CUSTOM_CACHE_DIR"}
#: Types of file systems that lie on servers, as the kernel names them in /proc/self/mountinfo.
SHARED_TYPES = frozenset(
    {
        "lustre",
        "nfs",
        "nfs4",
        "gpfs",
        "beegfs",
        "ceph",
        "cifs",
        "smb3",
        "9p",
        "afs",
        "orangefs",
        "pvfs2",
        "wekafs",
        "dvs",
    }
)
VERBOSE = "LUMISITE_VERBOSE=1 srun … says what the helper made of it"


@dataclass(frozen=True)
class ExpectedCaches:
    """The variables that the ledger sets to private directories, and the site's file systems."""

    variables: tuple[str, ...]
    shared: tuple[str, ...]
    node_local: tuple[str, ...]


def judge_caches(records: Sequence[Record], expected: ExpectedCaches, job: JobShape) -> tuple[Finding, ...]:
    """Judge the directories of every rank."""
    faults = missing(records, job, each="gpu", what="the rank")
    for record in by_rank(records):
        found = [*_misspelt(record), *(fault for name in expected.variables for fault in _of(record, name, expected))]
        faults += [Fault(cause, advice, text(record, "host"), number(record, "rank")) for cause, advice in found]
    ranks = counted(len(records), "rank")
    passed = f"{' and '.join(expected.variables)} are private and node-local for {ranks}"
    return findings(GATE, faults, passed if expected.variables else "the site asks for no private directory", job)


def _misspelt(record: Record) -> Iterator[tuple[str, str]]:
    for wrong, right in MISSPELT.items():
        value = value_at(record, "environment", wrong)
        if value is not None:
            yield f"{wrong}={value} is set, which MIOpen does not read", f"set {right}, or leave it to the helper"


def _of(record: Record, name: str, expected: ExpectedCaches) -> Iterator[tuple[str, str]]:
    told = value_at(record, "directories", name)
    if value_at(told, "set") is not True:
        yield f"{name} is not set, so that it falls back to the home directory", VERBOSE
        return
    path, real, kind = text(told, "path"), text(told, "real"), text(told, "mount", "type")
    leave = f"unset {name} before the job: the helper then makes a private directory under {_first(expected)}"
    where = f"{name}={path}" if real in ("", path) else f"{name}={path}, which leads to {real},"
    shared = [system for system in expected.shared if _below(real or path, system)]
    if shared or kind in SHARED_TYPES:
        yield f"{where} is on {shared[0] if shared else f'a {kind} file system'}, which all nodes share", leave
        return
    if not any(_below(real or path, system) for system in expected.node_local):
        yield f"{where} is not on a node-local file system ({', '.join(expected.node_local)} would be right)", leave
        return
    if value_at(told, "exists") is not True:
        yield f"{where} does not exist", VERBOSE
        return
    if value_at(told, "directory") is not True:
        yield f"{where} is no directory", leave
        return
    if number(told, "owner") != number(record, "user"):
        cause = f"{where} belongs to user {number(told, 'owner')}, and the job runs as {number(record, 'user')}"
        yield cause, "another user has taken the name first: " + leave
    elif text(told, "mode")[-2:] != "00":
        yield f"{where} has mode {text(told, 'mode')}, so that others reach it (700 would be right)", leave
    if text(told, "writing"):
        yield f"{where} cannot be written: {text(told, 'writing')}", "make room on the node, or drain it"


def _below(path: str, system: str) -> bool:
    return path == system or path.startswith(f"{system.rstrip('/')}/")


def _first(expected: ExpectedCaches) -> str:
    return expected.node_local[0] if expected.node_local else "the node's own file system"
