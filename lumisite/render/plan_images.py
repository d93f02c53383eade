"""Whether the images behind stored plans are still those that the plans were made for."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from lumisite.errors import LumisiteError
from lumisite.images.digest import digest_of
from lumisite.machine.host import DiskTree
from lumisite.machine.tree import Source, resolve
from lumisite.site.plans import LoadedPlan, literal_path


@dataclass(frozen=True)
class PlannedFile:
    """What a plan knows of its image: the plan's `file`, the shell `patterns` of its image, and the header digest."""

    file: str
    patterns: tuple[str, ...]
    digest: str


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


def planned_files(plans: Iterable[LoadedPlan]) -> tuple[PlannedFile, ...]:
    """Give what plans know of their images; those of unpacked images know nothing, and are left out."""
    return tuple(
        PlannedFile(one.file, one.plan.paths, one.plan.image.digest) for one in plans if one.plan.image is not None
    )


def other_images(plans: Iterable[PlannedFile], tree: DiskTree) -> Iterator[OtherImage]:
    """Compare the images of a tree with their plans, by at most some 5 MB of each file.

    Looked at is every path that a pattern names in full, not where one may fit several.
    """
    known: dict[str, str] = {}
    for plan in plans:
        for path in filter(None, map(literal_path, plan.patterns)):
            place = resolve(tree, path)
            if place.entry is None:
                yield OtherImage(plan.file, path, place.trouble, gone=True)
                continue
            if place.path not in known:
                known[place.path] = _digest(tree.source(place.path) if place.entry.kind == "file" else None)
            if known[place.path] != plan.digest:
                what = "is another file than it was planned for" if known[place.path] else "is no file to be read"
                yield OtherImage(plan.file, path, what)


def _digest(source: Source | None) -> str:
    try:
        return "" if source is None else digest_of(source, "header")
    except LumisiteError:
        return ""
