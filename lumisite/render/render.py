"""The rendered tree: a pure map of path to text, the same bytes each time that its inputs are the same."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from lumisite import __version__
from lumisite.errors import shown
from lumisite.paths import CLI_FILTER, MODULEFILE, PROLOG, SITE_FILE, SITE_FOLDER, WRAPPERS
from lumisite.render.helper import join_filter, join_script, prolog_data, wrapper_data
from lumisite.render.ledger_table import ledger_table
from lumisite.render.manifest import (
    MANIFEST,
    Manifest,
    RenderedFile,
    file_entries,
    format_manifest,
    sha256_of,
)
from lumisite.render.modules import ModulePlan, Rendering, plan_modules
from lumisite.render.runtimes import RUNTIMES
from lumisite.render.stored_plans import plan_summaries
from lumisite.render.templates import make_environment
from lumisite.site.load import LoadedSite
from lumisite.site.plans import LoadedPlan
from lumisite.site.selection import Selection

if TYPE_CHECKING:
    from lumisite.images.lock import LoadedLock

#: Stands for the release id until the tree's own hash is known, since the id is part of the texts.
RELEASE_TOKEN = "@lumisite-release-id@"  # noqa: S105  # no secret

#: The files of `spank_helpers/` that make up what a task runs.
PROLOG_SCRIPTS = ("prolog.sh", "common.sh", "caches.sh", "masks.sh")
WRAPPER_SCRIPTS = ("wrapper.sh", "common.sh")


def render_tree(
    loaded: LoadedSite,
    selection: Selection,
    templates: Mapping[str, str],
    plans: Sequence[LoadedPlan] = (),
    lock: LoadedLock | None = None,
) -> dict[str, RenderedFile]:
    """Render a selection of releases to files; the release id is the hash of the tree with the id itself left out.

    `plans` are the reviewed plans of images; those for other platforms only count as inputs. `lock` says what images
    hold that have no plan.
    Raises `ResolveError` when the site names a template that is not there.
    """
    of = Rendering(loaded, selection, RELEASE_TOKEN, templates, plans, lock)
    modules = plan_modules(of)
    files = {**_module_files(of, modules), **_helper_files(of), **_description(of)}
    draft = Manifest(
        release=RELEASE_TOKEN,
        lumisite=__version__,
        site=loaded.site.name,
        platform=selection.platform,
        stacks={stack: tuple(map(str, versions)) for stack, versions in selection.stacks.items()},
        inputs=_inputs(of),
        modules={plan.full_name: plan.summary for plan in modules},
        tasks=ledger_table(of),
        plans=plan_summaries(
            loaded.site, (loaded_plan for loaded_plan in plans if loaded_plan.plan.platform == selection.platform)
        ),
        defaults={plan.name: plan.full_name for plan in reversed(modules)},
        files=file_entries(files),
    )
    release = f"{selection.platform}-{sha256_of(format_manifest(draft).encode())[:12]}"
    final = {
        path: replace(file, text=file.text.replace(RELEASE_TOKEN, release)) for path, file in sorted(files.items())
    }
    manifest = replace(draft, release=release, files=file_entries(final))
    return {**final, MANIFEST: RenderedFile(format_manifest(manifest))}


def _module_files(of: Rendering, plans: Sequence[ModulePlan]) -> dict[str, RenderedFile]:
    environment, files = make_environment(of.templates), {}

    def write_module(path: str, template: str, **values: object) -> None:
        origin = f"modulefiles_src/{template}.lua.j2 and {of.description}"
        text = environment.get_template(f"{template}.lua.j2").render(origin=origin, **values)
        files[MODULEFILE.format(path)] = RenderedFile(text)

    for plan in plans:
        write_module(plan.full_name, plan.template, module=plan)
    for default in {plan.name: plan for plan in reversed(plans)}.values():  # the first of each module
        write_module(f"{default.name}/.modulerc", ".modulerc", default=default)
    return files


def _helper_files(of: Rendering) -> dict[str, RenderedFile]:
    prolog = join_script(of, PROLOG_SCRIPTS, prolog_data(of))
    command, *others = RUNTIMES
    wrapper = join_script(of, WRAPPER_SCRIPTS, wrapper_data(of))
    return {
        PROLOG: RenderedFile(prolog, executable=True),
        CLI_FILTER: RenderedFile(join_filter(of)),
        f"{WRAPPERS}/{command}": RenderedFile(wrapper, executable=True),
        **{f"{WRAPPERS}/{other}": RenderedFile(command, is_link=True) for other in others},
    }


def _description(of: Rendering) -> dict[str, RenderedFile]:
    """Return the description with the plans and the lock that it names: what explains the release later, and where."""
    site, carried = of.site, {SITE_FILE: of.loaded.data}
    carried |= {plan.file: plan.data for plan in of.plans if plan.file in site.plans}
    if of.lock is not None and site.images is not None and site.images.lock is not None:
        carried[site.images.lock] = of.lock.data
    return {f"{SITE_FOLDER}/{name}": RenderedFile(data.decode()) for name, data in carried.items()}


def _inputs(of: Rendering) -> dict[str, str]:
    loaded, lock = of.loaded, of.lock
    return {
        **({} if lock is None else {shown(lock.file): sha256_of(lock.data)}),
        of.description: sha256_of(loaded.data),
        **{loaded_plan.file: sha256_of(loaded_plan.data) for loaded_plan in of.plans},
        **{name: sha256_of(text.encode()) for name, text in of.templates.items()},
    }
