"""What the wrapper around the container runtime is told: families, images that somebody has read, reviewed plans."""

from __future__ import annotations

import posixpath
import shlex
from collections.abc import Iterator, Sequence

from lumisite.images.lock import Lock
from lumisite.render.helper import HelperRelease, family_data, step_data, wrapper_binds
from lumisite.render.helper_settings import wrapper_chains
from lumisite.render.image_plans import PlanCase, image_cases, plan_cases
from lumisite.render.shell_text import assign, call, case, decide, function, lookup, row
from lumisite.site.plans import LoadedPlan


def wrapper_data(of: HelperRelease, command: str, plans: Sequence[LoadedPlan], lock: Lock | None) -> Iterator[str]:
    """Give the data of the wrapper that stands for `command`."""
    site = of.site
    images = plan_cases(site, of.selection.platform, plans)
    yield from step_data(of)
    yield assign(ls_site_runtime=posixpath.join(posixpath.dirname(site.runtime.executable), command))
    yield from lookup("ls_site_plan", (planned for image in images for planned in _planned(image)))
    known = (
        ([one.pattern], row(ls_family=one.family, ls_rocm=one.rocm, ls_plugin=one.plugin))
        for one in image_cases(site, lock)
    )
    yield from lookup("ls_site_image", known)
    yield from family_data(of)
    yield from wrapper_binds(of)
    rows = [([shlex.quote(image.file)], list(_followed(image))) for image in images]
    yield from function("ls_site_follow", case('"$1"', rows) if rows else ())
    yield from function("ls_site_settings", decide(wrapper_chains(site, of.stacks)))


def _planned(image: PlanCase) -> Iterator[tuple[Sequence[str], str]]:
    """Give the patterns by which a plan's image is known, with the file that it was made for, where that is known."""
    values = row(ls_family=image.family, ls_rocm=image.rocm, ls_plugin=image.plugin, ls_plan=image.file)
    for patterns, file in (
        (image.links, shlex.quote(image.planned)),
        (image.names, '"$ls_path"'),
        (image.patterns, "''"),
    ):
        if patterns:
            yield patterns, f"{values} ls_planned={file}"


def _followed(image: PlanCase) -> Iterator[str]:
    for taken in image.without:
        yield f'ls_take_out_planned "${{{taken.marker}-}}" {shlex.quote(taken.entry)}'
    for bind in image.binds:
        yield call("ls_add_planned", str(bind.source), str(bind.target), str(bind.spec))
    for text in image.accepted:
        yield call("ls_accept", text)
    yield assign(ls_libraries=image.library_path)
