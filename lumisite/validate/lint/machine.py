"""What rules must know of a site."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from lumisite.site.model import Site
from lumisite.site.versions import VersionRange

#: A hit: the line, and what fills `{...}` in reason, right line and source.
Hit = tuple[int, dict[str, str]]


@dataclass(frozen=True)
class Harmful:
    """A value that a variable must not be set to.

    `value` is a shell pattern that the set value must fit, whatever its case. The other conditions must all hold;
    None is no condition. `rocm` and `families` are those of the image; where the script does not say which image it
    runs, `applies_to_unknown_image` decides.
    """

    name: str
    value: str
    nodes: Literal["one", "several"] | None
    rocm: VersionRange | None
    families: tuple[str, ...] | None
    reason: str
    right: str
    source: str
    applies_to_unknown_image: bool


@dataclass(frozen=True)
class Machine:
    """A site, and what is worked out from its description once for all scripts.

    `partitions`: all of them; `gpu_cores`: usable cores of a node, for each partition with GPUs; `shared`: partitions
    where several jobs may be on a node; `gpu_order`: GPUs in the order of their cores; `libraries`: directories that
    end in a version; `harmful`: values that variables must not have.
    """

    site: Site
    partitions: frozenset[str]
    gpu_cores: Mapping[str, int]
    shared: frozenset[str]
    gpu_order: str
    cores_per_task: int
    libraries: tuple[str, ...]
    harmful: tuple[Harmful, ...]
