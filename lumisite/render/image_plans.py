"""Images as the wrapper looks them up: a case for each plan, by the path that users type, and for each locked file."""

from __future__ import annotations

import glob
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from lumisite.images.lock import Lock
from lumisite.render.helper_settings import plugin_word, rocm_word
from lumisite.render.manifest import PlannedLibrary, PlanSummary
from lumisite.render.modules import bind_marker
from lumisite.site.images import Holds, family_by_path, told_release
from lumisite.site.model import Site
from lumisite.site.plans import ImagePlan, LoadedPlan, PlanLine, literal_path


@dataclass(frozen=True)
class TakenBind:
    """An entry that the module behind `marker` has put into the list, and that the image must not have."""

    marker: str
    entry: str


@dataclass(frozen=True)
class PlanCase:
    """What the wrapper does for the images that fit `patterns`; `accepted` says what they do without, and why.

    `links` led to `planned` when the plan was made: where one leads elsewhere now, the plan is not followed. `names`
    are other paths of one file; `patterns` may fit copies, whose age says nothing.
    """

    file: str
    links: tuple[str, ...]
    planned: str
    names: tuple[str, ...]
    patterns: tuple[str, ...]
    family: str
    rocm: str
    plugin: str
    binds: tuple[PlanLine, ...]
    without: tuple[TakenBind, ...]
    library_path: str
    accepted: tuple[str, ...]


@dataclass(frozen=True)
class ImageCase:
    """What a file holds: its family, its ROCm release as a number, and yes or no for the plugin; empty is unknown."""

    pattern: str
    family: str
    rocm: str
    plugin: str


def plan_cases(site: Site, platform: str, plans: Iterable[LoadedPlan]) -> tuple[PlanCase, ...]:
    """Give the cases of the plans that are for a platform, in their order."""
    return tuple(_case(site, one) for one in plans if one.plan.platform == platform)


def case_pattern(text: str) -> str:
    r"""Write a shell pattern as it may stand in `case`, with everything but its wildcards made literal.

    >>> print(case_pattern("*/a b;[0-9]$(x).sif"))
    */a\ b\;[0-9]\$\(x\).sif
    """
    return "".join(c if c.isalnum() or c in "/._+-,:=@%*?[]!" else f"\\{c}" for c in text)


def left_out(platform: str, plans: Sequence[LoadedPlan]) -> tuple[str, ...]:
    """Say which plans are for other platforms, since their images are then treated by their family alone."""
    return tuple(
        f"{one.file}: is for platform {one.plan.platform}, so it is left out (`lumisite binds IMAGE --write` makes one "
        f"for {platform})"
        for one in plans
        if one.plan.platform != platform
    )


def plan_summaries(platform: str, plans: Iterable[LoadedPlan]) -> dict[str, PlanSummary]:
    """Give what the plans for a platform need of a host; what a module binds for them they need too."""
    return {one.file: _summary(one.plan) for one in plans if one.plan.platform == platform}


def _summary(plan: ImagePlan) -> PlanSummary:
    return PlanSummary(
        images=plan.paths,
        digest="" if plan.image is None else plan.image.digest,
        libraries=tuple(
            PlannedLibrary(line.source, line.target, line.soname or line.library)
            for line in plan.lines
            if line.decision == "bind" and line.source is not None and line.target is not None
        ),
        folders=plan.library_path,
    )


def _case(site: Site, loaded: LoadedPlan) -> PlanCase:
    plan: ImagePlan = loaded.plan
    links = () if plan.image is None else plan.image.names
    return PlanCase(
        file=loaded.file,
        links=tuple(map(case_pattern, links)),
        planned="" if plan.image is None or plan.image.file is None else plan.image.file,
        names=tuple(case_pattern(path) for path in plan.paths if path not in links and literal_path(path)),
        patterns=tuple(case_pattern(path) for path in plan.paths if not literal_path(path)),
        family=plan.family,
        rocm=rocm_word(plan.holds.rocm),
        plugin=plugin_word(plan.holds.plugin),
        binds=tuple(line for line in plan.lines if line.spec is not None and line.by is None),
        without=tuple(
            TakenBind(bind_marker(bind.where), bind.spec)
            for line in plan.lines
            for bind in site.binds
            if bind.path == line.without and bind.where in site.modules
        ),
        library_path=":".join(plan.library_path),
        accepted=tuple(_accepted(line) for line in plan.unmet),
    )


def _accepted(line: PlanLine) -> str:
    return f"runs without the host's {line.library} here: {line.accepted}"


def image_cases(site: Site, lock: Lock | None) -> tuple[ImageCase, ...]:
    """Give a case for each file of a lock."""
    return tuple(
        ImageCase(
            pattern=case_pattern(glob.escape(path)),
            family=holds.family or "",
            rocm=rocm_word(holds.rocm),
            plugin=plugin_word(holds.plugin),
        )
        for path, holds in (_locked(site, lock) if lock is not None else ())
    )


def _locked(site: Site, lock: Lock) -> Iterator[tuple[str, Holds]]:
    """Give each file once with what was read in it; a plugin that was not found is not there."""
    seen = set()
    for path, image in lock.images.items():
        target = image.target or path
        if not image.fault and image.versions and target not in seen:
            seen.add(target)
            rocm = told_release(image.versions.get("rocm"))
            yield target, Holds(_family(site, image.family, target, path), rocm, "ofi_plugin" in image.versions)


def _family(site: Site, name: str | None, *paths: str) -> str | None:
    """Give a family that a lock names, if it recognised the image and does not only stand for what none recognises."""
    family = site.families.get(name or "")
    if family is None or (family.default_for is not None and family_by_path(site, *paths) != name):
        return None
    return name
