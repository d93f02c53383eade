"""What site descriptions of format 1 say, as format 2 says it; faults keep the places and the keys of the old file.

Format 1 knew two stacks, one runtime, and AMD's GPUs only.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from lumisite.errors import shown
from lumisite.site.document import Document, joined
from lumisite.site.references import PATTERN_SIGNS, shell_sign

#: A path of keys; the second may be any name (`*`).
Keys = tuple[str, ...]

#: The two stacks, in the order in which versions of modules name them: the installed one, and the one whose releases a
#: driver decides on.
_STACKS: Mapping[str, dict[str, Any]] = {"cpe": {"title": "CPE"}, "rocm": {"title": "ROCm", "gpu": "amd"}}
_DRIVEN = "rocm"
#: Where what format 1 says stands today.
_MOVES = {
    "runtime": "runtimes",
    "network": "fabric",
    "network.provider": "fabric.carrier",
    "cpe": "stacks.cpe.releases",
    "rocm": "stacks.rocm.releases",
    "platforms.*.cpe": "platforms.*.stacks.cpe.default",
    "platforms.*.cpe_supported": "platforms.*.stacks.cpe.supported",
    "platforms.*.cpe_leftover": "platforms.*.stacks.cpe.leftover",
    "platforms.*.rocm": "platforms.*.stacks.rocm.default",
    "platforms.*.driver": "platforms.*.stacks.rocm.driver",
    "platforms.*.driver_rocm": "platforms.*.stacks.rocm.runs",
    "platforms.*.rocm_in_use": "platforms.*.stacks.rocm.in_use",
    "families.*.rocm_after": "families.*.release_after",
}
_MOVES_OF_PLANS = {"cpe": "stacks.cpe", "rocm": "stacks.rocm", "holds.rocm": "holds.stacks.rocm"}
#: Keys that say nothing, those of format 2 among them. The runtime's name is the key of its table today.
RETIRED: tuple[Keys, ...] = (
    *(("node_kinds", "*", "title"), ("partitions", "*", "time_limit"), ("cpe", "*", "rocm"), ("runtime", "name")),
    *(("stacks",), ("platforms", "*", "stacks")),
)
#: The keys of lists whose values are kept as they are written, which format 1 did not ask.
_AS_WRITTEN = {"settings": ("value",), "binds": ("path", "target"), "file_systems": ("path",)}
_VERSIONS = {"platform": ["platform"], "cpe": ["cpe"], "cpe-rocm": ["cpe", "rocm"]}


def fits(keys: Keys, patterns: Collection[Keys]) -> Keys | None:
    """Give the pattern that a path of keys fits, if there is one."""
    any_name = (*keys[:1], "*", *keys[2:])
    return next((one for one in (keys, any_name) if one in patterns), None)


def upgraded(document: Document) -> Document:
    """Give a document of format 1 as one of format 2; all others as they are."""
    if document.value.get("lumisite") != "1":
        return document
    new = _moved(document, _MOVES)
    if isinstance(runtime := document.value.get("runtime"), dict):
        name = runtime.get("name")
        if not isinstance(name, str):
            document.faults.append(document.problem("runtime.name", "is missing (The command that users type)"))
            name = "singularity"
        document.moved[joined("runtimes", name)] = "runtime"
        new["runtimes"] = {name: new["runtimes"]}
    tables = new.setdefault("stacks", {})
    new["stacks"] = {stack: {**_STACKS[stack], **tables[stack]} for stack in _STACKS if stack in tables}
    for here, family in _entries(new, "families"):
        for key in {"default_for", "release_after"} & family.keys():  # they spoke of one stack, and do by stack today
            family[key] = {_DRIVEN: family[key]}
            document.moved[f"{here}.{key}.{_DRIVEN}"] = document.written(f"{here}.{key}")
    for here, module in _entries(new, "modules"):
        if isinstance(version := module.get("version"), str):
            module["version"] = _VERSIONS.get(version, [version])
            document.moved |= {f"{here}.version[{index}]": f"{here}.version" for index in range(2)}
    for table, keys in _AS_WRITTEN.items():
        if isinstance(entries := new.get(table), list):
            new[table] = [_exact(entry, keys) for entry in entries]
    if isinstance(entries := new.get("file_systems"), list):
        new["file_systems"] = _with_place(entries)
    document.value = {**new, "lumisite": "2"}
    return document


def upgraded_plan(document: Document) -> Document:
    """Give a plan of format 1 as one of format 2; all others as they are."""
    if document.value.get("plan") == "1":
        document.value = {**_moved(document, _MOVES_OF_PLANS), "plan": "2"}
    return document


def _moved(document: Document, moves: Mapping[str, str]) -> dict[str, Any]:
    """Give the values of a document where they stand today, without those that are retired, and note what has moved."""
    rows: dict[Keys, Keys] = {tuple(old.split(".")): tuple(new.split(".")) for old, new in moves.items()}
    above = {row[:end] for row in (*rows, *RETIRED) for end in range(len(row))}
    new: dict[str, Any] = {}

    def put(value: Any, old: Keys, place: Keys) -> None:
        if row := fits(old, rows):
            place = tuple(old[1] if key == "*" else key for key in rows[row])
        inner = isinstance(value, dict) and fits(old, above) is not None
        into = new
        for key in place if inner else place[:-1]:
            into = into.setdefault(key, {})
        for name, child in value.items() if inner else ():
            if not fits((*old, name), RETIRED):
                put(child, (*old, name), (*place, name))
        if not inner:
            into[place[-1]] = value

    put(document.value, (), ())
    for old, row in moves.items():
        table = document.value.get(old.partition(".")[0])
        names = ("",) if "*" not in old else table if isinstance(table, dict) else ()
        document.moved |= {row.replace("*", name): old.replace("*", name) for name in map(shown, names)}
    return new


def _entries(whole: dict[str, Any], name: str) -> Iterable[tuple[str, dict[str, Any]]]:
    """Give the entries of a table by their key paths, each a copy that can be changed."""
    table = whole.get(name)
    if not isinstance(table, dict):
        return ()
    whole[name] = {one: dict(entry) if isinstance(entry, dict) else entry for one, entry in table.items()}
    return [(joined(name, one), entry) for one, entry in whole[name].items() if isinstance(entry, dict)]


def _with_place(systems: list[Any]) -> list[Any]:
    """Say of the first node-local file system that users can write it: private caches went there unasked."""
    local = [at for at, one in enumerate(systems) if isinstance(one, dict) and one.get("kind") == "node-local"]
    return [{"writable": "yes", **one} if at in local[:1] else one for at, one in enumerate(systems)]


def _exact(entry: Any, keys: Iterable[str]) -> Any:
    """Say of a value that it is meant as it stands where a shell would fill something in."""
    signs = {key: "" if key == "value" else PATTERN_SIGNS for key in keys}
    texts = {key: text for key in signs if isinstance(entry, dict) and isinstance(text := entry.get(key), str)}
    return {**entry, "exact": "yes"} if any(shell_sign(text, signs[key]) for key, text in texts.items()) else entry
