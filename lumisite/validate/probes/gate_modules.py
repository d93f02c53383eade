"""Judge the `modules` probe: every module loads on a compute node, binds what it says, and leaves nothing behind."""

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
    table,
    text,
    value_at,
)

GATE = "modules"
RENDER = "render and deploy again, and compare the modulefile on this node with the release's (lumisite diff)"


@dataclass(frozen=True)
class ExpectedModule:
    """A module by its full name, and the binds that the bind variable must have while it is loaded."""

    name: str
    binds: tuple[str, ...]


@dataclass(frozen=True)
class ExpectedModules:
    """All modules of a release, and the variable that carries binds."""

    modules: tuple[ExpectedModule, ...]
    bind_variable: str


def judge_modules(records: Sequence[Record], expected: ExpectedModules, job: JobShape) -> tuple[Finding, ...]:
    """Judge the records of all nodes."""
    faults = missing(records, job, each="node", what="the login shell")
    for record in by_rank(records):
        faults += [Fault(cause, advice, text(record, "host")) for cause, advice in _faults(record, expected)]
    passed = f"{counted(len(expected.modules), 'module')} load and unload cleanly on {counted(len(job.nodes), 'node')}"
    return findings(GATE, faults, passed, job)


def _faults(record: Record, expected: ExpectedModules) -> Iterator[tuple[str, str]]:
    if value_at(record, "has_lmod") is not True:
        yield "a login shell has no `module` command", "install Lmod on the compute node, or repair /etc/profile.d"
        return
    for module in expected.modules:
        yield from _of_module(table(record, "modules", module.name), module, expected.bind_variable)


def _of_module(told: Record, module: ExpectedModule, bind_variable: str) -> Iterator[tuple[str, str]]:
    if value_at(told, "load") != 0 or value_at(told, "loaded") is not True:
        yield f"{module.name} does not load: {_words(text(told, 'said'))}", RENDER
        return
    value = value_at(told, "changes", bind_variable, "after")
    entries = value.split(",") if isinstance(value, str) else []
    lacking = [bind for bind in module.binds if bind not in entries]
    if lacking:
        yield (
            f"{module.name} loads but {bind_variable} lacks {', '.join(lacking)} (it is {value or 'not changed'})",
            RENDER,
        )
    if value_at(told, "unload") != 0 or value_at(told, "still_loaded") is True:
        yield f"{module.name} does not unload: {_words(text(told, 'unload_said'))}", RENDER
    for name, change in table(told, "left").items():
        yield (
            f"{module.name} does not unload cleanly: {_change(name, change)}",
            "what a modulefile sets outside of setenv and append_path is not undone: take that line out of it",
        )


def _change(name: str, change: object) -> str:
    before, after = value_at(change, "before"), value_at(change, "after")
    if before is None:
        return f"{name} was not set before and is left as {after!r}"
    if after is None:
        return f"{name} was {before!r} and is gone"
    return f"{name} was {before!r} and is left as {after!r}"


def _words(said: str) -> str:
    """Give what Lmod said in one line; its first line is a heading."""
    return " ".join(said.split())[:200] or "it said nothing"
