"""The srun helper: its scripts, each with the site's data for it.

What differs between sites is data, and every choice that can be made before the job is made here; the scripts of
`spank_helpers` look it up. A rendered file is the script, its data, and a last line that starts it.
"""

from __future__ import annotations

import glob
import posixpath
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import TYPE_CHECKING

from lumisite.machine.masks import has_own_cores, mask_tables
from lumisite.machine.topology import topology_of
from lumisite.render import shell_text as sh
from lumisite.render.helper_settings import (
    names_left_alone,
    number_of,
    plugin_word,
    prolog_chains,
    prolog_names,
    step_of,
    wrapper_chains,
)
from lumisite.render.modules import Rendering, bind_marker
from lumisite.render.rank_environment import private_places
from lumisite.render.runtimes import (
    ACTION_VALUED,
    ACTION_VALUED_LETTERS,
    RUNTIMES,
)
from lumisite.render.templates import comment, lua_pattern, quote_lua
from lumisite.site.entries import HostPath
from lumisite.site.images import Holds, plugin_by_name
from lumisite.site.library_path import host_path, library_path
from lumisite.site.model import Site
from lumisite.site.node_recognition import NO_GPUS, fingerprint_of
from lumisite.site.plans import ImagePlan, LoadedPlan, PlanLine, holds_by_plan, literal_path
from lumisite.site.scalars import TASK
from lumisite.vendors import drivers_of

if TYPE_CHECKING:
    from lumisite.images.lock import Lock


def join_script(of: Rendering, names: Sequence[str], data: Iterable[str]) -> str:
    """Write one sh script: several files of `spank_helpers` as they are but for `marks`, then the site's data."""
    scripts = (_script(of, name) for name in names)
    return "\n".join([*scripts, _origin("#", of), *data, ""])


def join_filter(of: Rendering) -> str:
    """Write the cli_filter module, with its data at its end."""
    data = "".join(f"{line}\n" for line in _filter_data(of))
    return f"{_script(of, 'cli_filter.lua')}\n{_origin('--', of)}\n{data}"


def _script(of: Rendering, name: str) -> str:
    text = of.templates[f"spank_helpers/{name}"]
    for mark, value in marks(of.site, of.release).items():
        text = text.replace(mark, value)
    return text


def marks(site: Site, release: str) -> dict[str, str]:
    """Return what stands in scripts for what their headers say of the site, and for the title of images' stack."""
    title = "" if site.gpu_stack is None else site.stacks[site.gpu_stack].title
    return {
        "@STACK@": title if re.fullmatch(r"[\w.+ -]+", title, re.ASCII) else "stack",
        "@RELEASE@": release,
        "@SITE@": comment(site.name),
        "@ROOT@": comment(site.root),
        "@SUPPORT@": comment(site.support.name),
        "@CONTACT@": comment(site.support.contact),
    }


def _origin(mark: str, of: Rendering) -> str:
    return f"{mark} ---- the site's data, from {comment(of.description)}: change that and render again"


def prolog_data(of: Rendering) -> Iterator[str]:
    """Yield the data of the task prolog; the variables are those of the site's default runtime."""
    site = of.site
    yield from _head(of)
    yield sh.assign(ls_site_prefix=site.runtime.prefix)
    yield sh.assign(site_release=of.release, site_host_suffix=site.fabric.host_suffix or "")
    yield from sh.lookup("site_partition", (([shlex.quote(name)], _partition(site, name)) for name in site.partitions))
    yield sh.numbers("site_drivers", [driver for drivers in drivers_of(site).values() for driver in drivers])
    yield from sh.function("site_binds", _prolog_binds(of))
    yield sh.numbers("site_names", [*prolog_names(site), "PET_LOCAL_ADDR", "PET_RDZV_CONF"])
    settings, caches = (prolog_chains(site, of.decisions, directories=these) for these in (False, True))
    yield from sh.function("site_settings", sh.decide(sh.alike(settings), "step"))
    yield from sh.function("site_caches", sh.decide(sh.alike(caches), "step"))
    yield from sh.function("site_directories", _directories(site))
    yield from sh.function("site_places", [f"place {path}" for path in private_places(site)])
    yield from sh.lookup("site_cpus", _cpus(site))
    yield "start"


def _head(of: Rendering) -> Iterator[str]:
    """Yield what both scripts know."""
    yield sh.assign(ls_site_root=of.site.root)
    yield sh.numbers("ls_site_combinations", of.decisions)


def _partition(site: Site, name: str) -> str:
    """Return what is known of the nodes of a partition, and how many CPUs Slurm grants at least of a whole one."""
    partition = site.partitions[name]
    kind = site.node_kinds[partition.node_kind]
    described = fingerprint_of(site, partition.node_kind).gpus
    tables = mask_tables(topology_of(partition.node_kind, kind))
    # In a partition of whole nodes one thread of each core is enough.
    whole = tables.get((1, 2)) if not partition.whole_nodes and (1, 2) in tables else tables.get((1, 1))
    return sh.row(
        kind=partition.node_kind,
        kind_gpus=str(len(kind.gpus)),
        kind_devices="0" if described == NO_GPUS else described.partition(" ")[0],
        whole_cpus=str(len(whole[0].pu_os)) if whole else "",
    )


def _wrapper_binds(of: Rendering) -> Iterator[str]:
    """Yield what remembers the binds in the list, and a function for those that an image of some family lacks."""
    site = of.site
    yield sh.numbers("ls_site_markers", [bind_marker(module) for module in _binding(site)])
    everywhere = set.intersection(*map(set, of.modules.values()))
    all_modules = dict.fromkeys(of.decisions, tuple(site.modules))
    chains: list[sh.Chain] = []
    for item, where in _binds(of, all_modules):
        if item.where != TASK and item.where not in everywhere:
            chains.append(((where, sh.call("ls_module_bind", bind_marker(str(item.where)), *_bind_words(item))),))
    yield from sh.function("ls_site_binds", sh.decide(chains, "ls_step"))


def _filter_data(of: Rendering) -> Iterator[str]:
    """Yield the table of the cli_filter module; the first image counts of which the pattern fits."""
    yield "site = {"
    yield f"  release = {quote_lua(of.release)},"
    yield f"  root = {quote_lua(of.site.root)},"
    yield "  images = {"
    images = [(path, family.mpi) for family in of.site.families.values() for path in family.paths]
    while images and images[-1][1] is None:  # what no later pattern follows needs no exception
        images.pop()
    for path, mpi in images:
        choice = f", mpi = {quote_lua(mpi)}" if mpi else ""
        yield f"    {{ pattern = {quote_lua(lua_pattern(sh.case_pattern(path)))}{choice} }},"
    yield "  },"
    yield "  needs = {"
    for need in of.site.needs:
        relation = "needs" if need.needs else "does not go together with"
        text = f"{need.title} {relation} {' or '.join(need.partners)}: {need.why}"
        flags = "" if need.needs else "excluded = true, "
        flags += "several_tasks = true, " if need.several_tasks else ""
        yield f"    {{ this = {_term(need.this)},"
        yield f"      partners = {{ {', '.join(map(_term, need.partners))} }},"
        yield f"      {flags}text = {quote_lua(text)} }},"
    yield "  },"
    yield "}"
    yield "lumisite.release = site.release"
    yield "return lumisite"


def _term(text: str) -> str:
    """Return a variable or an option of srun, with the patterns of its values, for the cli_filter."""
    name, _, values = text.removeprefix("--").partition("=")
    patterns = [quote_lua(lua_pattern(sh.case_pattern(value.lower()))) for value in values.split("|") if value]
    kind = "option" if text.startswith("--") else "variable"
    values = f", patterns = {{ {', '.join(patterns)} }}" if patterns else ""
    return f"{{ {kind} = {quote_lua(name)}{values} }}"


def _families(of: Rendering) -> Iterator[tuple[Sequence[str], Sequence[str]]]:
    """Yield the families of which the same is known, and what that is."""
    names_of: dict[tuple[str, ...], list[str]] = {}
    for name, family in of.site.families.items():
        needs = sh.row(ls_needs=f" {' '.join(map(bind_marker, family.modules))} ")
        values = sh.row(
            ls_front=":".join(family.prepend_path),
            ls_libraries=":".join(library_path(of.site, of.selection.platform, name)),
            ls_has=plugin_word(plugin_by_name(of.site, name)),
        )
        lines = (needs, values) if values != sh.NOTHING else (needs,)
        names_of.setdefault(lines, []).append(shlex.quote(name))
    yield from ((names, lines) for lines, names in names_of.items())


def _prolog_binds(of: Rendering) -> Iterator[str]:
    chains: list[sh.Chain] = []
    for module, binds in groupby(_binds(of, of.modules), key=lambda bind: bind[0].where):
        marker = bind_marker(str(module))
        chains.append(((sh.Where(), f"begin_module {marker}"),))
        for item, where in binds:
            required = "required" if item.required else "optional"
            chains.append(((where, sh.call("bind", required, *_bind_words(item))),))
        chains.append(((sh.Where(), f"end_module {marker}"),))
    yield from sh.decide(chains, "step")


def _bind_words(item: HostPath | PlanLine) -> Sequence[str]:
    """Return a bind, with its path and target where they are not the bind itself."""
    path, target = (item.path, item.target or item.path) if isinstance(item, HostPath) else (item.source, item.target)
    spec = str(item.spec)
    return (spec,) if (path, target) == (spec, spec) else (spec, str(path), str(target))


def _binds(of: Rendering, modules: Mapping[str, tuple[str, ...]]) -> Iterator[tuple[HostPath, sh.Where]]:
    """Yield what the modules of each stack bind, then what only a task binds, in the site's order."""
    for module in _binding(of.site):
        bound = {
            stack: decision.bound_by(module)
            for stack, decision in of.decisions.items()
            if module in (TASK, *modules[stack])
        }
        for item in of.site.host_paths.values():
            if stacks := tuple(stack for stack, binds in bound.items() if item in binds):
                yield item, step_of(item.when, () if len(stacks) == len(of.decisions) else stacks)


def _binding(site: Site) -> Iterator[str]:
    """Yield the modules that bind something, then `task` if tasks do."""
    binding = {item.where for item in site.host_paths.values()}
    yield from (module for module in (*site.modules, TASK) if module in binding)


def _directories(site: Site) -> Iterator[str]:
    """Yield the private directories, in one variable; their names have no blanks."""
    words: dict[str, None] = {}
    for setting in site.settings:
        if setting.where == TASK and setting.directory:
            below = [f"{setting.directory}/{name}" for name in setting.with_directories]
            words.update(dict.fromkeys(name.replace("{rank}", "$ls_local_id") for name in below or [setting.directory]))
    yield f'directories="{" ".join(words)}"'


def _cpus(site: Site) -> Iterator[tuple[list[str], Sequence[str]]]:
    """Yield the CPUs of each task of a whole node, by kind, tasks and threads.

    Where each GPU has cores of its own, those near it are known on part of a node too.
    """
    for name, kind in site.node_kinds.items():
        topology = topology_of(name, kind)
        for (tasks, threads), answers in mask_tables(topology).items():
            keys = [shlex.quote(f"{name}/{tasks}/{threads}")]
            if tasks == len(kind.gpus) and has_own_cores(topology):
                keys.append(shlex.quote(f"{name}/near/{threads}"))
            least = min(len(answer.pu_os) for answer in answers)
            lists = sh.numbers("lists", (answer.cpus for answer in answers))
            short = len(lists) < sh.WIDTH - 40
            yield keys, (f"fewest={least} {lists}",) if short else (f"fewest={least}", lists)


def wrapper_data(of: Rendering) -> Iterator[str]:
    """Yield the data of the wrapper."""
    site = of.site
    followed = [loaded_plan for loaded_plan in of.plans if loaded_plan.plan.platform == of.selection.platform]
    yield from _head(of)
    runtimes = [([command if command != RUNTIMES[0] else "*"], [_runtime(site, command)]) for command in RUNTIMES[::-1]]
    yield from sh.function("ls_site_runtime_of", sh.case('"$1"', runtimes))
    yield "# options of which the next word is the value, and their letters"
    yield from sh.lookup("ls_site_option", [(ACTION_VALUED, sh.NOTHING)])
    yield sh.assign(ls_site_letters=ACTION_VALUED_LETTERS)
    planned = [planned for loaded_plan in followed for planned in _planned(site, loaded_plan)]
    yield from sh.lookup("ls_site_plan", [(patterns, values) for patterns, values, exact in planned if exact])
    yield from sh.lookup("ls_site_plan_like", [(patterns, values) for patterns, values, exact in planned if not exact])
    yield from sh.lookup("ls_site_image", () if of.lock is None else _locked(of, of.lock.lock))
    families = site.families.items()
    patterns = [
        (list(map(sh.case_pattern, family.paths)), sh.row(ls_family=name)) for name, family in families if family.paths
    ]
    yield from sh.lookup("ls_site_name", patterns)
    yield from sh.lookup("ls_site_family", _families(of))
    yield from _wrapper_binds(of)
    rows = [
        ([shlex.quote(plan.file)], ["if ls_plan_fits; then", *map(sh.indented, _followed(site, plan.plan)), "fi"])
        for plan in followed
    ]
    yield from sh.function("ls_site_follow", sh.case('"$1"', rows) if rows else ())
    yield "# ls_rule: release, families, plugin (each may be empty), what to do, the value"
    yield from sh.function("ls_site_settings", sh.decide(wrapper_chains(site, of.decisions), "ls_step"))
    yield 'ls_start "$@"'


def _runtime(site: Site, command: str) -> str:
    """Return the variables of the runtime of a name, or of the default one, and the real program of that name."""
    runtime = site.runtimes.get(command, site.runtime)
    # Without a path of the site, one that no system has: the wrapper goes on to PATH.
    folder = posixpath.dirname(runtime.executable or "/")
    return sh.assign(ls_site_prefix=runtime.prefix, ls_site_runtime=posixpath.join(folder, command))


def _planned(site: Site, loaded: LoadedPlan) -> Iterator[tuple[Sequence[str], str, bool]]:
    """Yield the patterns by which a plan's image is known, what is known of it, and whether they name the file itself.

    Where a link leads elsewhere now than when the plan was made, the plan is not followed. Other paths that fit one
    file are that file, as it is itself; patterns may fit copies, whose age says nothing.
    """
    plan, image = loaded.plan, loaded.plan.image
    links, file = ((), "") if image is None else (image.names, image.file or "")
    values = sh.row(
        ls_family=plan.family, **_read_values(site, plan.platform, holds_by_plan(plan)), ls_plan=loaded.file
    )
    names = [path for path in (*plan.paths, *([glob.escape(file)] if file else ())) if path not in links]
    for paths, led in (
        (links, shlex.quote(file)),
        ([path for path in dict.fromkeys(names) if literal_path(path)], '"$ls_path"'),
        ([path for path in names if not literal_path(path)], "''"),
    ):
        if paths:
            yield list(map(sh.case_pattern, paths)), f"{values} ls_planned={led}", led != "''"


def _followed(site: Site, plan: ImagePlan) -> Iterator[str]:
    """Yield what is done for a plan's image: what modules bind and it must not have, its own binds, what it lacks."""
    for line in plan.lines:
        for bind in site.binds:
            if bind.path == line.without and bind.where in site.modules:
                yield sh.call("ls_plan_without", bind_marker(bind.where), bind.spec)
    for line in plan.lines:
        if line.spec is not None and line.by is None:
            yield sh.call("ls_plan_bind", *_bind_words(line))
    for line in (line for line in plan.lines if line.accepted is not None):
        yield sh.call("ls_warn", f"runs without the host's {line.library} here: {line.accepted}")
    yield sh.assign(ls_libraries=":".join(plan.library_path))


def _read_values(site: Site, platform: str, holds: Holds) -> dict[str, str]:
    """Return the wrapper's variables for what was read in an image."""
    version = None if site.gpu_stack is None else holds.stacks.get(site.gpu_stack)
    lacking = f"{host_path(site, holds.lacking)}/libfabric.so.1" if holds.lacking else holds.too_old
    return {
        "ls_version": "" if version is None else number_of(version),
        "ls_plugin": plugin_word(holds.plugin),
        "ls_lacking": lacking,
        "ls_left_alone": " ".join(names_left_alone(site, platform, holds)),
    }


def _locked(of: Rendering, lock: Lock) -> Iterator[tuple[Sequence[str], str]]:
    """Yield each file of a lock once with what was read in it."""
    from lumisite.images.lock import holds_by_lock  # with the readers of images, which a lock alone needs

    site, platform = of.site, of.selection.platform
    seen = set()
    for path, image in lock.images.items():
        target = image.target or path
        if not image.fault and image.versions and target not in seen:
            seen.add(target)
            contents = holds_by_lock(site, path, image, platform)
            values = sh.row(ls_family=contents.family or "", **_read_values(site, platform, contents))
            yield [sh.case_pattern(glob.escape(target))], values
