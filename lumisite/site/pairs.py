"""Settings and options of srun that work only together with another option, or without it."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterator, Mapping

from lumisite.site.model import Requirement, Site


def missing_partners(
    site: Site, variables: Mapping[str, str], options: Mapping[str, str], *, alone: bool = False
) -> Iterator[Requirement]:
    """Yield what a step has without its partner: `options` of its srun by name, without dashes.

    `alone` is whether it has one task on each node. Variables that srun reads (`SLURM_NETWORK`) are options too.
    """
    read = {name[6:].lower().replace("_", "-"): value for name, value in variables.items() if name[:6] == "SLURM_"}
    options = {**read, **options}
    for need in site.needs:
        pattern = need.this.partition("=")[2]
        has = _fits(pattern, variables.get(need.variable)) if need.variable else _has(need.this, options)
        if not has or (need.several_tasks and alone):
            continue
        lacks = need.needs and not any(_has(option, options) for option in need.needs.split(" or "))
        if lacks or (need.excludes and _has(need.excludes, options)):
            yield need


def _has(option: str, options: Mapping[str, str]) -> bool:
    """Return whether options have one, written as `--NAME=PATTERN`: a list with commas has it if one of its words does.

    >>> _has("--network=no_*", {"network": "single_node_vni,no_vni"}), _has("--gpus-per-task", {"gpus-per-task": "1"})
    (True, True)
    """
    name, _, pattern = option.removeprefix("--").partition("=")
    return name in options and (not pattern or any(_fits(pattern, word) for word in options[name].split(",")))


def _fits(pattern: str, value: str | None) -> bool:
    """Return whether a value is one of some shell patterns that `|` parts, whatever its case."""
    return value is not None and any(fnmatch.fnmatchcase(value.lower(), one.lower()) for one in pattern.split("|"))
