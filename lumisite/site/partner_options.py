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
        if not _has(need.this, variables if need.variable else options) or (need.several_tasks and alone):
            continue
        if any(_has(option, options) for option in need.partners) == (need.needs is None):
            yield need


def _has(term: str, values: Mapping[str, str]) -> bool:
    """Return whether an option or variable is set, to a word between commas that fits one of some shell patterns.

    >>> _has("--network=no_*|other", {"network": "single_node_vni,NO_VNI"}), _has("--gpus-per-task", {"gpus": "1"})
    (True, False)
    """
    name, _, patterns = term.removeprefix("--").partition("=")
    words = values.get(name, "").lower().split(",")
    fits = (fnmatch.fnmatchcase(word, pattern.lower()) for word in words for pattern in patterns.split("|"))
    return name in values and (not patterns or any(fits))
