"""All kinds of change, in the order of the report: what breaks containers before what only describes the machine.

A file here has a group of kinds. A kind is a row of `KINDS`: a function that compares two captures, one that finds what
a change touches and, where facts are texts by name, one that reads them. Its words are in `findings/changes.yaml`.
"""

from lumisite.facts.kind import ChangeKind
from lumisite.facts.kinds import (
    containers,
    deployed,
    devices,
    images,
    kernel,
    libraries,
    limits,
    modules,
    mounts,
    paths,
    releases,
    runtime,
    slurm,
    slurm_gres,
    slurm_node,
    system,
)

KINDS: tuple[ChangeKind, ...] = (
    paths.CLOSED_KIND,
    *releases.KINDS,
    *modules.KINDS,
    *libraries.KINDS,
    *paths.KINDS,
    *devices.KINDS,
    *kernel.KINDS,
    *images.KINDS,
    *deployed.KINDS,
    *runtime.KINDS,
    *containers.KINDS,
    *system.KINDS,
    *limits.KINDS,
    *mounts.KINDS,
    *slurm.KINDS,
    *slurm_node.KINDS,
    *slurm_gres.KINDS,
)
