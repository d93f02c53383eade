"""Judge `modules`: every module loads on a compute node, binds what it says, and leaves nothing behind."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial

from lumisite.site.ledger import decide_combinations
from lumisite.site.selection import module_version
from lumisite.text import counted
from lumisite.validate.probes.probe import Expected, Part, Plan, Record, Target, probe
from lumisite.validate.probes.ranks import Said, judge_each
from lumisite.validate.probes.records import table, text, value_at

#: A user's own bind, which every module must leave alone: a file that each node has, at a place of no meaning.
USERS_BIND = "/etc/hostname:/lumisite-probe"
RENDER = "render and deploy again, and compare the modulefile on this node with the release's (lumisite diff)"


@probe("Every module loads and unloads cleanly on each node.")
def modules(target: Target) -> Plan:
    """Give the probe."""
    bound, variable = module_binds(target), f"{target.site.runtime.prefix}_BINDPATH"
    arguments = (f"{target.site.root}/current/{target.site.module_folder}", f"{variable}={USERS_BIND}", "--", *bound)
    part = Part("modules.sh", ("bash",), arguments, each="node")
    return (part,), judge_each(partial(_of_node, bound, variable), partial(_passed, bound), "the login shell")


def module_binds(target: Target) -> dict[str, tuple[str, ...]]:
    """Give every module in every version of the selection, with the binds that it brings by itself."""
    found: dict[str, tuple[str, ...]] = {}
    decisions = decide_combinations(target.site, target.selection)
    for name, module in target.site.modules.items():
        for one in target.selection.combinations:
            binds = tuple(bind.spec for bind in decisions[one.name].bound_by(name))
            found.setdefault(f"{name}/{module_version(target.site, module, one)}", binds)
    return found


def _passed(bound: Mapping[str, Sequence[str]], _records: Sequence[Record], expected: Expected) -> str:
    return f"{counted(len(bound), 'module')} load and unload cleanly on {counted(len(expected.nodes), 'node')}"


def _of_node(bound: Mapping[str, Sequence[str]], variable: str, record: Record) -> Iterator[Said]:
    if value_at(record, "has_lmod") is not True:
        yield "a login shell has no `module` command", "install Lmod on the compute node, or repair /etc/profile.d"
        return
    for name, binds in bound.items():
        yield from _of_module(name, table(record, "modules", name), binds, variable)


def _of_module(name: str, told: Record, binds: Sequence[str], variable: str) -> Iterator[Said]:
    if value_at(told, "load") != 0 or value_at(told, "loaded") is not True:
        yield f"{name} does not load: {_words(text(told, 'said'))}", RENDER
        return
    value = text(told, "changes", variable, "after")
    lacking = [bind for bind in binds if bind not in value.split(",")]
    if lacking:
        yield f"{name} loads but {variable} lacks {', '.join(lacking)} (it is {value or 'not changed'})", RENDER
    if value_at(told, "unload") != 0 or value_at(told, "still_loaded") is True:
        yield f"{name} does not unload: {_words(text(told, 'unload_said'))}", RENDER
    for left, change in table(told, "left").items():
        yield (
            f"{name} does not unload cleanly: {_change(left, change)}",
            "what a modulefile sets outside of setenv and append_path is not undone: take that line out of it",
        )


def _change(name: str, change: object) -> str:
    before, after = value_at(change, "before"), value_at(change, "after")
    was = "was not set before" if before is None else f"was {before!r}"
    return f"{name} {was} and is gone" if after is None else f"{name} {was} and is left as {after!r}"


def _words(said: str) -> str:
    """Give what Lmod said in one line; its first line is a heading."""
    return " ".join(said.split())[:200] or "it said nothing"
