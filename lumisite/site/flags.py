"""The flag by which a runtime brings the GPUs in, as entries of the settings ledger: a variable for each flag.

Source of the variables: cmd/internal/cli/action_flags.go of sylabs/singularity and apptainer/apptainer, where each flag
has one of its own name behind the runtime's prefix.
"""

from __future__ import annotations

from typing import Any

from lumisite.site.document import Document


def with_flags(document: Document) -> Document:
    """Write the flags of runtimes out: one that stands alone is that of all vendors, and each is a setting of tasks."""
    runtimes, kinds = _table(document.value, "runtimes"), _kinds_by_vendor(document.value)
    settings = document.value.get("settings", [])
    for name in runtimes if isinstance(settings, list) else ():
        runtime = _table(runtimes, name)
        flags = runtime.get("gpu")
        if isinstance(flags, str):
            flags = runtime["gpu"] = dict.fromkeys(kinds, flags)
            document.moved |= {f"runtimes.{name}.gpu.{vendor}": f"runtimes.{name}.gpu" for vendor in kinds}
        taken = {one.get("name") for one in settings if isinstance(one, dict)}
        prefix, wanted = runtime.get("prefix"), dict[str, list[str]]()
        for vendor, flag in flags.items() if isinstance(flags, dict) and prefix else ():
            if isinstance(flag, str):
                wanted.setdefault(flag, []).extend(kinds.get(vendor, ()))
        for flag, mine in wanted.items():
            variable = f"{prefix}_{flag}".upper().replace("-", "_")
            if mine and variable not in taken:
                here = f"settings[{len(settings)}]"
                document.moved |= dict.fromkeys((here, f"{here}.name"), f"runtimes.{name}.gpu")
                own: dict[str, Any] = {"gpus": "yes"} if len(mine) == sum(map(len, kinds.values())) else {"kind": mine}
                said = {key: runtime[key] for key in ("source", "confirmed") if key in runtime}
                why = f"as --{flag}, which brings the GPUs into the container (`gpu` of {name})"
                settings = [*settings, {"name": variable, "value": "1", "when": own, "why": why, **said}]
    if settings:
        document.value["settings"] = settings
    return document


def _kinds_by_vendor(whole: dict[str, Any]) -> dict[str, list[str]]:
    """Give the node kinds with GPUs of each vendor, as the stacks of all platforms have them."""
    nodes = _table(whole, "node_kinds")
    every = [kind for kind in nodes if _table(nodes, kind).get("gpus")]
    found: dict[str, list[str]] = {}
    for name in (platforms := _table(whole, "platforms")):
        for stack, here in (stacks := _table(_table(platforms, name), "stacks")).items():
            vendor = _table(_table(whole, "stacks"), stack).get("gpu")
            kinds = _table(stacks, stack).get("kinds", every)
            if isinstance(vendor, str) and isinstance(here, dict) and isinstance(kinds, list):
                known = found.setdefault(vendor, [])
                known += [kind for kind in every if kind in kinds and kind not in known]
    return found


def _table(whole: dict[str, Any], name: str) -> dict[str, Any]:
    """Give a table of a file that may have anything in its place."""
    table = whole.get(name)
    return table if isinstance(table, dict) else {}
