"""Modules that are misspelt, conflict, are retired or are not loaded."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase

from lumisite.lint.job import BadLine, Job
from lumisite.lint.programs import starts_of
from lumisite.machine.tree import is_under
from lumisite.render.runtimes import RUNTIMES
from lumisite.site.model import Site
from lumisite.site.selection import combinations, module_version, usable
from lumisite.text import nearest_name


def _of_others(job: Job, line: int) -> bool:
    """Return whether a folder of others was added before a line, whose modules may have any name."""
    folders = [folder for folder, at in job.module_folders if at <= line]
    return any(not is_under(folder, job.site.root) and not _retired(job.site, folder) for folder in folders)


def _retired(site: Site, path: str) -> bool:
    return any(fnmatchcase(path.rstrip("/"), pattern) for pattern in site.retired_modules)


def _foreign(site: Site) -> set[str]:
    """Return the modules of others that those of a site conflict with."""
    return {name for module in site.modules.values() for name in module.conflicts}


def retired_folder(job: Job) -> Iterator[BadLine]:
    """A folder of modules that is not kept up."""
    for folder, line in job.module_folders:
        if _retired(job.site, folder):
            yield BadLine(line, folder, "not maintained any more", f"module load {job.site.helper_module}")


def unknown_module(job: Job) -> Iterator[BadLine]:
    """A module of this site that is misspelt, or in a version that the site cannot have now."""
    for at in job.modules:
        for name in at.loads if not _of_others(job, at.line) else ():
            module, _, version = name.partition("/")
            known = _versions(job.site, module)
            near = nearest_name(module, job.site.modules, 0.88)
            if module in _foreign(job.site) or "$" in module:
                continue
            if not known and near:
                yield BadLine(at.line, name, "no module of this site", f"module load {near}")
            elif known and "$" not in version and version.lstrip(".") not in ("", "default", *known):
                reason = f"not available on this system, whose versions are like {known[0]}"
                right = f"module load {module}, or a version that module spider {module} lists"
                yield BadLine(at.line, name, reason, right)


def _versions(site: Site, name: str) -> tuple[str, ...]:
    """Return all versions that a render for the current platform can give a module."""
    module = site.modules.get(name)
    if module is None:
        return ()
    platform = site.platforms[site.platform]
    releases = {
        stack: dict.fromkeys((known.default, *usable(site, platform, stack)))
        for stack, known in platform.stacks.items()
    }
    made = (module_version(site, module, versions) for versions in combinations(site, site.platform, releases))
    return tuple(dict.fromkeys(made))


def conflicting_modules(job: Job) -> Iterator[BadLine]:
    """A module of this site together with one that it conflicts with."""
    conflicts: Mapping[str, tuple[str, ...]] = {name: module.conflicts for name, module in job.site.modules.items()}
    for at in job.modules:
        names = [name.partition("/")[0] for name in at.loads]
        for index, module in enumerate(names):
            for other in (*at.before, *names[:index]):
                if other in conflicts.get(module, ()) or module in conflicts.get(other, ()):
                    reason = f"conflicts with {other} of line {at.before.get(other, at.line)}: the module is refused"
                    yield BadLine(at.line, module, reason, f"module unload {other}, or without this line")


def foreign_module(job: Job) -> Iterator[BadLine]:
    """A module of almost the name of one of this site, which does the same by other binds."""
    for at in job.modules:
        for name in at.loads if job.site.modules.keys().isdisjoint((*at.before, *at.loads)) else ():
            module = name.partition("/")[0]
            near = nearest_name(module, job.site.modules, 0.85)
            if near and module in _foreign(job.site) and not _of_others(job, at.line):
                reason = f"not {near}, and conflicts with it: its binds are not those of this description"
                yield BadLine(at.line, name, reason, f"module load {near}")


def module_not_loaded(job: Job) -> Iterator[BadLine]:
    """A container that is started, in a job of this site, where no line loads the module that prepares it.

    An image that the script only has as a variable (`$SIF`) is of a module that may bind for itself.
    """
    helper = job.site.helper_module
    starts = [start for start in starts_of(job) if start.action in ("exec", "run") and start.image]
    starts = [start for start in starts if not re.fullmatch(r"\$\{?\w+\}?", start.image or "")]
    names = {name.partition("/")[0] for at in job.modules for name in at.loads}
    binding = {*job.site.modules, *_foreign(job.site)}
    loaded = any(name in binding or nearest_name(name, job.site.modules, 0.88) for name in names)
    if helper and starts and job.allocation.partitions and not loaded and not _of_others(job, len(job.text)):
        reason = f"no line loads {helper}: unless the submitting shell has, containers get no binds and settings"
        yield BadLine(starts[0].line, starts[0].action, reason, f"module load {helper}")


_BIND_LIST = re.compile(r"(?:SINGULARITY|APPTAINER)_BIND(?:PATH)?")


def build_with_binds(job: Job) -> Iterator[BadLine]:
    """The build of an image while a module has its binds in the environment.

    The wrapper of the helper's module takes away those of this site's modules.
    """
    changed = any(map(_BIND_LIST.fullmatch, (setting.name for setting in job.settings)))
    changed |= any(command.values[:1] == ("unset",) for command in job.commands)
    for command in job.commands if not changed else ():
        words = command.words_after(*RUNTIMES, "cotainr") or ()
        before = [at for at in job.modules if at.line < command.line]
        if "build" not in [word.value for word in words[:2]] or not before:
            continue
        loaded = {*before[-1].before, *(name.partition("/")[0] for name in before[-1].loads)}
        wrapped = job.site.modules if job.site.helper_module in loaded else ()
        if left := sorted(loaded & {*job.site.modules, *_foreign(job.site)} - {*wrapped}):
            reason = "binds paths that a new image does not have, and the build fails"
            yield BadLine(command.line, " ".join(left), reason, f"module unload {' '.join(left)} before the build")
