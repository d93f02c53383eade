"""What site descriptions of format 1 say, as format 2 says it; faults keep the places and the keys of the old file.

Format 1 knew two stacks, one runtime, and AMD's GPUs only.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from lumisite.site.document import Document, joined
from lumisite.site.references import PATTERN_SIGNS, shell_sign

#: The two stacks: the installed one, and the one whose releases a driver decides on.
INSTALLED, DRIVEN = "cpe", "rocm"
STACKS: Mapping[str, dict[str, Any]] = {INSTALLED: {"title": "CPE"}, DRIVEN: {"title": "ROCm", "gpu": "amd"}}
#: By stack, what a platform says of it: today's key by the old one.
OF_PLATFORM = {
    INSTALLED: {"cpe": "default", "cpe_supported": "supported", "cpe_leftover": "leftover"},
    DRIVEN: {"rocm": "default", "driver": "driver", "driver_rocm": "runs", "rocm_in_use": "in_use"},
}
#: Today's key by the old one: of the network, and of a family, whose keys spoke of one stack, and do by stack today.
OF_NETWORK = {"provider": "carrier"}
OF_FAMILY = {"default_for": "default_for", "rocm_after": "release_after"}
#: The keys of lists whose values are kept as they are written.
AS_WRITTEN = {"settings": ("value",), "binds": ("path", "target"), "file_systems": ("path",)}
VERSIONS = {"platform": ["platform"], "cpe": [INSTALLED], "cpe-rocm": [INSTALLED, DRIVEN]}
#: Keys of earlier days that said nothing to lumisite, below each entry of a table.
RETIRED = {"node_kinds": "title", "partitions": "time_limit", "cpe": "rocm"}


#: Gives an entry of a table at a path as format 2 has it, and notes what has moved.
Change = Callable[[dict[str, Any], str, dict[str, str]], dict[str, Any]]


def upgraded(document: Document) -> Document:
    """Give a document of format 1 as one of format 2; all others as they are."""
    old = document.value
    if old.get("lumisite") != "1":
        return document
    new: dict[str, Any] = {}
    moved = document.moved
    for name, value in old.items():
        if name == "runtime":
            _runtime(document, new, value)
        elif name == "network":
            new["fabric"] = _renamed(value, OF_NETWORK) if isinstance(value, dict) else value
        elif name in STACKS:
            new.setdefault("stacks", {})[name] = {**STACKS[name], "releases": _without(value, RETIRED.get(name, ""))}
        elif isinstance(value, list) and name in AS_WRITTEN:
            new[name] = [_exact(entry, AS_WRITTEN[name]) for entry in value]
        elif isinstance(value, dict) and name in _TABLES:
            change, new[name] = _TABLES[name], {}
            for one, entry in value.items():
                new[name][one] = change(entry, joined(name, one), moved) if isinstance(entry, dict) else entry
        else:
            new[name] = value
    new["lumisite"] = "2"
    # In the order in which versions of modules name them.
    new["stacks"] = {name: new["stacks"][name] for name in STACKS if name in new.get("stacks", {})}
    moved |= {"fabric": "network", "runtimes": "runtime"}
    moved |= {f"fabric.{key}": f"network.{one}" for one, key in OF_NETWORK.items()}
    moved |= {f"stacks.{name}.releases": name for name in STACKS}
    document.value = new
    return document


def upgraded_plan(document: Document) -> Document:
    """Give a plan of format 1 as one of format 2; all others as they are."""
    old = document.value
    if old.get("plan") != "1":
        return document
    for stack in (stack for stack in STACKS if stack in old):
        document.moved[f"stacks.{stack}"] = stack
    new = {name: value for name, value in old.items() if name not in STACKS}
    new |= {"plan": "2", "stacks": {stack: old[stack] for stack in STACKS if stack in old}}
    if isinstance(held := old.get("holds"), dict) and DRIVEN in held:
        document.moved[f"holds.stacks.{DRIVEN}"] = f"holds.{DRIVEN}"
        rest = {name: value for name, value in held.items() if name != DRIVEN}
        new["holds"] = {**rest, "stacks": {DRIVEN: held[DRIVEN]}}
    document.value = new
    return document


def _runtime(document: Document, new: dict[str, Any], value: Any) -> None:
    if not isinstance(value, dict):
        new["runtimes"] = value
        return
    name = value.get("name")
    if not isinstance(name, str):
        document.faults.append(document.problem("runtime.name", "is missing (The command that users type)"))
        name = "singularity"
    document.moved[joined("runtimes", name)] = "runtime"
    new["runtimes"] = {name: {key: one for key, one in value.items() if key != "name"}}


def _platform(entry: dict[str, Any], here: str, moved: dict[str, str]) -> dict[str, Any]:
    known = {old for keys in OF_PLATFORM.values() for old in keys}
    stacks = {}
    for stack, keys in OF_PLATFORM.items():
        if any(old in entry for old in keys):
            stacks[stack] = {new: entry[old] for old, new in keys.items() if old in entry}
            moved[f"{here}.stacks.{stack}"] = here
            moved |= {f"{here}.stacks.{stack}.{new}": f"{here}.{old}" for old, new in keys.items()}
    rest = {name: one for name, one in entry.items() if name not in known}
    return {**rest, "stacks": stacks} if stacks else rest


def _family(entry: dict[str, Any], here: str, moved: dict[str, str]) -> dict[str, Any]:
    new = _renamed(entry, OF_FAMILY)
    for old, key in OF_FAMILY.items():
        if key in new:
            moved |= {f"{here}.{key}": f"{here}.{old}", f"{here}.{key}.{DRIVEN}": f"{here}.{old}"}
            new[key] = {DRIVEN: new[key]}
    return new


def _module(entry: dict[str, Any], here: str, moved: dict[str, str]) -> dict[str, Any]:
    version = entry.get("version")
    if not isinstance(version, str):
        return dict(entry)
    made = VERSIONS.get(version, [version])
    moved |= {f"{here}.version[{index}]": f"{here}.version" for index in range(len(made))}
    return {**entry, "version": made}


def _exact(entry: Any, keys: tuple[str, ...]) -> Any:
    """Say of a value that it is meant as it stands, which format 1 did not ask."""
    if not isinstance(entry, dict) or not any(is_for_shell(key, entry.get(key)) for key in keys):
        return entry
    return {**entry, "exact": "yes"}


def is_for_shell(key: str, value: object) -> bool:
    """Tell whether a value of a bind or a setting has something in it that a shell would fill in."""
    return isinstance(value, str) and bool(shell_sign(value, "" if key == "value" else PATTERN_SIGNS))


def _renamed(entry: dict[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    return {names.get(key, key): one for key, one in entry.items()}


def _without(table: Any, key: str) -> Any:
    """Leave a retired key out of each entry of a table."""
    if not isinstance(table, dict):
        return table
    kept = {name: [*entry] for name, entry in table.items() if isinstance(entry, dict)}
    return {
        name: {one: entry[one] for one in kept[name] if one != key} if name in kept else entry
        for name, entry in table.items()
    }


def _lacking(key: str) -> Change:
    return lambda entry, _here, _moved: {name: one for name, one in entry.items() if name != key}


_TABLES: dict[str, Change] = {
    "platforms": _platform,
    "families": _family,
    "modules": _module,
    **{table: _lacking(key) for table, key in RETIRED.items() if table not in STACKS},
}
