"""What the wrapper around the container runtime is told: families, images that somebody has read, reviewed plans."""

from __future__ import annotations

import glob
import posixpath
import shlex
from collections.abc import Iterator, Sequence

from lumisite.images.lock import Lock
from lumisite.render.helper import HelperRelease, family_data, step_data, wrapper_binds
from lumisite.render.helper_settings import plugin_word, rocm_word, wrapper_chains
from lumisite.render.modules import bind_marker
from lumisite.render.shell_text import assign, call, case, case_pattern, decide, function, lookup, row
from lumisite.site.images import family_by_path, told_release
from lumisite.site.model import Site
from lumisite.site.plans import ImagePlan, LoadedPlan, literal_path


def wrapper_data(of: HelperRelease, command: str, plans: Sequence[LoadedPlan], lock: Lock | None) -> Iterator[str]:
    """Give the data of the wrapper that stands for `command`."""
    site = of.site
    followed = [one for one in plans if one.plan.platform == of.selection.platform]
    yield from step_data(of)
    yield assign(ls_site_runtime=posixpath.join(posixpath.dirname(site.runtime.executable), command))
    # A plan that names an image counts more than one of which a pattern only fits it.
    planned = [planned for one in followed for planned in _planned(one)]
    yield from lookup("ls_site_plan", sorted(planned, key=lambda one: one[1].endswith("ls_planned=''")))
    yield from lookup("ls_site_image", () if lock is None else _locked(site, lock))
    yield from family_data(of)
    yield from wrapper_binds(of)
    rows = [([shlex.quote(one.file)], list(_followed(site, one.plan))) for one in followed]
    yield from function("ls_site_follow", case('"$1"', rows) if rows else ())
    yield from function("ls_site_settings", decide(wrapper_chains(site, of.stacks)))


def _planned(loaded: LoadedPlan) -> Iterator[tuple[Sequence[str], str]]:
    """Give the patterns by which a plan's image is known, with the file that it was made for, where that is known.

    Where a link leads elsewhere now than when the plan was made, the plan is not followed. Other paths that fit one
    file are that file, as it is itself; patterns may fit copies, whose age says nothing.
    """
    plan, image = loaded.plan, loaded.plan.image
    links, file = ((), "") if image is None else (image.names, image.file or "")
    values = row(
        ls_family=plan.family,
        ls_rocm=rocm_word(plan.holds.rocm),
        ls_plugin=plugin_word(plan.holds.plugin),
        ls_plan=loaded.file,
    )
    names = [path for path in (*plan.paths, *([glob.escape(file)] if file else ())) if path not in links]
    for paths, led in (
        (links, shlex.quote(file)),
        ([path for path in dict.fromkeys(names) if literal_path(path)], '"$ls_path"'),
        ([path for path in names if not literal_path(path)], "''"),
    ):
        if paths:
            yield list(map(case_pattern, paths)), f"{values} ls_planned={led}"


def _followed(site: Site, plan: ImagePlan) -> Iterator[str]:
    """Give what is done for a plan's image: what modules bind and it must not have, its own binds, what it lacks."""
    for line in plan.lines:
        for bind in site.binds:
            if bind.path == line.without and bind.where in site.modules:
                yield f'ls_take_out_planned "${{{bind_marker(bind.where)}-}}" {shlex.quote(bind.spec)}'
    for line in plan.lines:
        if line.spec is not None and line.by is None:
            yield call("ls_add_planned", str(line.source), str(line.target), line.spec)
    for line in plan.unmet:
        yield call("ls_accept", f"runs without the host's {line.library} here: {line.accepted}")
    yield assign(ls_libraries=":".join(plan.library_path))


def _locked(site: Site, lock: Lock) -> Iterator[tuple[Sequence[str], str]]:
    """Give each file of a lock once with what was read in it; a plugin that was not found is not there."""
    seen = set()
    for path, image in lock.images.items():
        target = image.target or path
        if not image.fault and image.versions and target not in seen:
            seen.add(target)
            values = row(
                ls_family=_locked_family(site, image.family or "", target, path),
                ls_rocm=rocm_word(told_release(image.versions.get("rocm"))),
                ls_plugin=plugin_word("ofi_plugin" in image.versions),
            )
            yield [case_pattern(glob.escape(target))], values


def _locked_family(site: Site, name: str, *paths: str) -> str:
    """Give a family that a lock names, if it recognised the image and does not only stand for what none recognises."""
    family = site.families.get(name)
    if family is None or (family.default_for is not None and family_by_path(site, *paths) != name):
        return ""
    return name
