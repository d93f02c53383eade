"""What is probed: a site, the releases chosen of it, and an image; and the parts of probes that run in that image."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from lumisite.site.images import family_by_path, has_plugin, holds_by_name
from lumisite.site.ledger import Situation, default_family
from lumisite.site.model import Family, Site, Validation
from lumisite.site.selection import Selection
from lumisite.validate.probes.probe import OUT, PROBES, Part

#: What the scripts import from beside them: those that ask each rank by itself, and those whose ranks work together.
RECORD, RANK = "lumisite_record.py", "rank.py"
#: What a container must see of the job.
BINDS = ("--bind", f"{PROBES},{OUT}")


@dataclass(frozen=True)
class Target:
    """What all else follows from; `wrapper` is the directory of an environment of the container wrapper."""

    site: Site
    selection: Selection
    plan: Validation
    image: str
    jax_image: str | None = None
    wrapper: str | None = None

    @property
    def family_name(self) -> str:
        """The image's family by name."""
        return family_by_path(self.site, self.image) or default_family(self.site, self.selection.rocm[0])

    @property
    def family(self) -> Family:
        """The image's family."""
        return self.site.families[self.family_name]

    @property
    def has_gpus(self) -> bool:
        """Whether the nodes that are probed have GPUs."""
        return bool(self.site.kind_of(self.plan.partition).gpus)

    @property
    def situation(self) -> Situation:
        """The situation in which settings and binds are decided; the step's nodes are left open."""
        return Situation(
            self.selection.platform,
            self.selection.cpe[0],
            self.family_name,
            holds_by_name(self.site, self.image).rocm,
            has_plugin(self.site, self.family_name),
            gpus=self.has_gpus,
            partition=self.plan.partition,
        )

    def alone(self, script: str, *arguments: str, each: Literal["node", "gpu"] = "gpu", name: str = "") -> Part:
        """Give a part that asks each node or rank by itself, in the container as users start it."""
        action = "run" if self.family.activation == "runscript" else "exec"
        start = (self.site.runtime.name, action, *BINDS, self.image, "python3")
        return Part(script, start, arguments, (RECORD,), each, name)

    def together(
        self, script: str, *arguments: str, name: str = "", environment: tuple[tuple[str, str], ...] = ()
    ) -> Part:
        """Give a part whose ranks work together, in the container."""
        start = (self.site.runtime.name, "--quiet", "exec", *BINDS, self.image, "python3")
        asked = ("--backend", self.plan.backend, *arguments)
        return Part(script, start, asked, (RANK, RECORD), name=name, environment=environment)


def each(option: str, values: Iterable[str]) -> tuple[str, ...]:
    """Give an option once for each value.

    >>> each("path", ["/a", "/b"])
    ('--path', '/a', '--path', '/b')
    """
    return tuple(word for value in values for word in (f"--{option}", value))
