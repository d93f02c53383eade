"""What scripts load wrongly with `module` and `ml`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from fnmatch import fnmatchcase

from lumisite.lint.job import BadLine, Job, bad_line
from lumisite.lint.script import ShellCommand
from lumisite.machine.tree import is_under
from lumisite.render.runtimes import RUNTIMES
from lumisite.site.model import Site
from lumisite.site.selection import combinations, module_version, usable

_UNLOADING = ("unload", "rm", "del")
_EMPTYING = ("purge", "reset", "restore")
_VERBS = ("load", "add", "swap", "use", *_UNLOADING, *_EMPTYING)
_BIND_LIST = re.compile(r"(?:SINGULARITY|APPTAINER)_BIND(?:PATH)?")
#: Past the wrapper that the site's module has put on PATH.
_RUNTIME_BY_PATH = re.compile(rf".*/(?:{'|'.join(RUNTIMES)})")
#: Modules whose Python is the host's: `python`, or with a vendor in front.
_PYTHONS = re.compile(r"(?:\w+-)?python(?:/.*)?", re.IGNORECASE)
#: What Lmod takes for the version that it would choose itself.
_DEFAULTS = ("", "default")


def _request(job: Job, command: ShellCommand) -> tuple[str, tuple[str, ...]]:
    """Return the verb and the names of `module` or `ml`, where `ml NAME` loads; nothing for other commands."""
    if command.values[:1] not in (("module",), ("ml",)):
        return "", ()
    words = tuple(job.resolved(value) for value in command.values[1:] if not value.startswith("--"))
    if command.values[0] == "ml" and words[:1] and words[0] not in _VERBS:
        return "load", words
    return (words[0], words[1:]) if words else ("", ())


def build_with_binds(job: Job) -> Iterator[BadLine]:
    """The build of an image while a module has its binds in the environment, and no wrapper of ours takes them away."""
    modules, helper = job.site.modules, job.site.helper_module
    carrying = {*modules, *(name for module in modules.values() for name in module.conflicts)}
    loaded: dict[str, str] = {}
    ours = True
    for command in job.commands:
        verb, names = _request(job, command)
        ours &= verb != "use" or all(is_under(folder, job.site.root) for folder in names)
        if verb in _EMPTYING or _removes_binds(command):
            loaded.clear()
        for name in names:
            module = name.lstrip("-").partition("/")[0]
            if verb in _UNLOADING or name.startswith("-"):
                loaded.pop(module, None)
            elif verb in ("load", "add", "swap") and module in carrying:
                loaded[module] = name
        wrapped = ours and helper in loaded and not any(map(_RUNTIME_BY_PATH.fullmatch, command.values))
        left = tuple(sorted(name for module, name in loaded.items() if not wrapped or module not in modules))
        if left and _builds(command) and not _replaces_binds(command):
            yield bad_line(command.line, " ".join(left))


def _removes_binds(command: ShellCommand) -> bool:
    """Return whether a command takes the binds away from all that follows."""
    unset = command.values[:1] == ("unset",) and any(map(_BIND_LIST.fullmatch, command.values))
    return unset or (_replaces_binds(command) and not _builds(command))


def _replaces_binds(command: ShellCommand) -> bool:
    return any(_BIND_LIST.fullmatch(name) and name not in word.value for name, word in command.assignments)


def _builds(command: ShellCommand) -> bool:
    words = command.words_after(*RUNTIMES, "cotainr") or ()
    return "build" in [word.value for word in words[:2]]


def unknown_version(job: Job) -> Iterator[BadLine]:
    """A version of a module of the site that the site cannot have now; modules from folders of others are theirs."""
    others = False
    for command in job.commands:
        verb, names = _request(job, command)
        if verb == "use":
            others |= not all(is_under(name, job.site.root) or _retired(job.site, name) for name in names)
        for name in names if verb in ("load", "add") and not others else ():
            module, _, version = name.partition("/")
            known = _versions(job.site, module)
            if known and "$" not in version and version.lstrip(".") not in (*_DEFAULTS, *known):
                yield bad_line(command.line, name, module=module, example=known[0])


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


def retired_folder(job: Job) -> Iterator[BadLine]:
    """A folder of a past course, from which modules are loaded that the site has."""
    requests = [(command, *_request(job, command)) for command in job.commands]
    for index, (command, verb, names) in enumerate(requests):
        folder = next((name for name in names if verb == "use" and _retired(job.site, name)), None)
        if not folder:
            continue
        later = [name for _, verb, names in requests[index:] if verb in ("load", "add") for name in names]
        loaded = dict.fromkeys(name.partition("/")[0] for name in later)
        if any(name in job.site.modules for name in loaded):
            yield bad_line(command.line, folder, modules=" ".join(name for name in loaded if name in job.site.modules))


def _retired(site: Site, path: str) -> bool:
    return any(fnmatchcase(path.rstrip("/"), pattern) for pattern in site.retired_modules)


def host_venv(job: Job) -> Iterator[BadLine]:
    """A venv that a module's Python made to use its packages, where a container uses it."""
    module = ""
    makers: dict[str, str] = {}
    for command in job.commands:
        contained = command.spot == "container" or command.names_any(*RUNTIMES)
        verb, names = _request(job, command)
        if verb:
            loaded = next((name for name in names if verb in ("load", "add") and _PYTHONS.fullmatch(name)), "")
            module = loaded or ("" if verb in (*_EMPTYING, *_UNLOADING, "swap") else module)
        elif not contained and module and (folder := _venv_made(job, command)):
            makers[folder] = module
        for word in command.words if contained else ():
            found = re.fullmatch(r"(.+)/bin/(?:activate|python[\d.]*)", job.resolved(word.value))
            if found and found[1] in makers:
                yield bad_line(word.line, found[1], module=makers[found[1]])


def _venv_made(job: Job, command: ShellCommand) -> str | None:
    """Return the folder of `python -m venv --system-site-packages FOLDER`, in any order, with one folder."""
    folders = [value for value in command.values[3:] if not value.startswith("-")]
    makes = command.values[1:3] == ("-m", "venv") and re.fullmatch(r"python[\d.]*", command.programs[0])
    if command.spot != "batch" or not makes or "--system-site-packages" not in command.values or len(folders) != 1:
        return None
    return job.resolved(folders[0]).rstrip("/")
