"""All kinds of change, in the order of the report: what breaks containers before what only describes the machine.

A kind is a row of `KINDS`: a function that compares two captures, one that finds what a change touches and, where facts
are texts by name, one that reads them. What needs no meaning of its own is a row of `texts`: one comparison for all.
"""

from lumisite.facts.kind import ChangeKind
from lumisite.facts.kinds import (
    deployed,
    devices,
    images,
    libraries,
    modules,
    paths,
    releases,
    runtime,
    slurm,
    system,
    texts,
)

KINDS: tuple[ChangeKind, ...] = (
    paths.CLOSED_KIND,
    *releases.KINDS,
    *modules.KINDS,
    *libraries.KINDS,
    *paths.KINDS,
    *devices.KINDS,
    *images.KINDS,
    *deployed.KINDS,
    *runtime.KINDS,
    *system.KINDS,
    *texts.KINDS,
    *slurm.KINDS,
)
