"""What stored plans need of a host, and whether the images behind them are still those that they were made for."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass

from lumisite.errors import LumisiteError
from lumisite.images.digest import digest_of
from lumisite.machine.host import DiskTree
from lumisite.machine.tree import file_of, resolve
from lumisite.render.manifest import PlannedLibrary, PlanSummary
from lumisite.site.library_path import host_path
from lumisite.site.model import Site
from lumisite.site.plans import LoadedPlan, literal_path


@dataclass(frozen=True)
class OtherImage:
    """A path that a plan is for, and `what` is not as planned there; `gone` where nothing is there."""

    file: str
    path: str
    what: str
    gone: bool = False

    def __str__(self) -> str:
        """Give one line."""
        return f"{self.path}: {self.what}; {self.file} is for it (`lumisite binds {self.path} --write` makes it anew)"


def plan_summaries(site: Site, plans: Iterable[LoadedPlan]) -> dict[str, PlanSummary]:
    """Give what plans need of a host, by the plan's file; what a module binds for them they need too."""
    return {
        one.file: PlanSummary(
            images=one.plan.paths,
            digest="" if one.plan.image is None else one.plan.image.digest,
            libraries=tuple(
                PlannedLibrary(line.source, line.target, line.soname or line.library)
                for line in one.plan.lines
                if line.decision == "bind" and line.source is not None and line.target is not None
            ),
            folders=tuple(host_path(site, folder) for folder in one.plan.library_path),
        )
        for one in plans
    }


def other_images(plans: Mapping[str, PlanSummary], tree: DiskTree) -> Iterator[OtherImage]:
    """Compare the images of a tree with their plans, by at most some 5 MB of each file; unpacked images have no digest.

    Looked at is every path that a pattern names in full, not where one may fit several.
    """
    known: dict[str, str] = {}
    for file, plan in plans.items():
        for path in filter(None, map(literal_path, plan.images if plan.digest else ())):
            place = resolve(tree, path)
            if place.entry is None:
                yield OtherImage(file, path, place.trouble, gone=True)
                continue
            if place.path not in known:
                known[place.path] = ""
                with suppress(LumisiteError):
                    source = file_of(tree, place.path)
                    known[place.path] = "" if source is None else digest_of(source, "header")
            if known[place.path] != plan.digest:
                what = "is another file than it was planned for" if known[place.path] else "is no file to be read"
                yield OtherImage(file, path, what)
