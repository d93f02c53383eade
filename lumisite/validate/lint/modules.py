"""Find what scripts load wrongly with `module` and `ml`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from fnmatch import fnmatchcase

from lumisite.release.modules import module_version
from lumisite.site.model import Site
from lumisite.site.selection import Stack, supported_rocm
from lumisite.validate.lint.job import Job
from lumisite.validate.lint.lexer import Command
from lumisite.validate.lint.machine import Hit, Machine

#: Modules that carry binds, those of other hands among them.
_BINDINGS = re.compile(
    r"(?:singularity-(?:AI-|slurm-)?bindings|lumi-aif-singularity-bindings|singularity-CPEbits)(?:/.*)?"
)
#: Folders of modules that were made for a course and are no longer kept up. The schema has no place for them yet.
RETIRED_FOLDERS = ("*/training/modules/AI-20240529", "*/training/modules/AI-20241126")
#: Modules whose Python is the host's.
_PYTHONS = re.compile(r"(?:cray-)?python(?:/.*)?", re.IGNORECASE)
#: What Lmod takes for the version that it would choose itself.
_DEFAULTS = ("", "default")


def build_with_binds(job: Job, machine: Machine) -> Iterator[Hit]:
    """The build of an image while a module has its binds in the environment."""
    loaded: set[str] = set()
    for command in job.script.commands:
        values = _given(command)
        replaced = any(
            name == "SINGULARITY_BIND" and "SINGULARITY_BIND" not in word.value for name, word in command.assignments
        )
        if values[:1] in (("module",), ("ml",)):
            _track(values, loaded)
        elif (values[:1] == ("unset",) and "SINGULARITY_BIND" in values) or (replaced and not _builds(command)):
            loaded.clear()
        elif loaded and _builds(command) and not replaced:
            yield command.line, {"module": " ".join(sorted(loaded))}


def _given(command: Command) -> tuple[str, ...]:
    """Give the words without long options, which may stand before the verb."""
    return tuple(value for at, value in enumerate(command.values) if not (at and value.startswith("--")))


def _request(values: tuple[str, ...]) -> tuple[str, tuple[str, ...]]:
    """Give what `module` or `ml` is asked to do, and for which names; `ml NAME` loads."""
    verb, names = ("load", values[1:]) if values[0] == "ml" else (values[1] if len(values) > 1 else "", values[2:])
    if values[0] == "ml" and names[:1] in (("load",), ("add",), ("unload",), ("purge",), ("rm",), ("use",)):
        verb, names = names[0], names[1:]
    return verb, names


def _track(values: tuple[str, ...], loaded: set[str]) -> None:
    """Follow `module load`, `unload` and `purge`, and `ml NAME -NAME`."""
    verb, names = _request(values)
    for name in (name for name in names if _BINDINGS.fullmatch(name.lstrip("-"))):
        if verb in ("load", "add", "swap") and not name.startswith("-"):
            loaded.add(name)
        else:
            loaded.difference_update(
                {one for one in loaded if one.partition("/")[0] == name.lstrip("-").partition("/")[0]}
            )
    if verb in ("purge", "reset", "restore"):
        loaded.clear()


def _builds(command: Command) -> bool:
    names = command.programs
    return any(
        name in ("singularity", "apptainer", "cotainr") and "build" in names[at + 1 : at + 3]
        for at, name in enumerate(names)
    )


def _requests(job: Job) -> Iterator[tuple[Command, str, tuple[str, ...]]]:
    """Give all that `module` and `ml` are asked to do, with variables put in."""
    for command in job.script.commands:
        values = tuple(job.resolved(value) for value in _given(command))
        if values[:1] in (("module",), ("ml",)):
            yield command, *_request(values)


def unknown_version(job: Job, machine: Machine) -> Iterator[Hit]:
    """A version of a module of the site that the site cannot have now; modules from folders of others are theirs."""
    if job.elsewhere(machine.partitions):
        return
    others = False
    for command, verb, names in _requests(job):
        if verb == "use":
            others |= any(not _below(name, machine.site.root) and not _retired(name) for name in names)
        for name in names if verb in ("load", "add") and not others else ():
            module, _, version = name.partition("/")
            known = _versions(machine.site, module)
            if known and "$" not in version and version.lstrip(".") not in (*_DEFAULTS, *known):
                yield command.line, {"module": module, "version": version, "example": known[0]}


def _below(path: str, root: str) -> bool:
    return path == root or path.startswith(f"{root.rstrip('/')}/")


def _versions(site: Site, name: str) -> tuple[str, ...]:
    """All versions that a render for the current platform can give a module, the default's first, and its old names."""
    module = site.modules.get(name)
    if module is None:
        return ()
    platform = site.platforms[site.platform]
    cpes = dict.fromkeys((platform.cpe, *platform.cpe_supported, *platform.cpe_leftover))
    rocms = dict.fromkeys((platform.rocm, *supported_rocm(site, platform)))
    made = (module_version(module, Stack(site.platform, cpe, rocm)) for cpe in cpes for rocm in rocms)
    return tuple(dict.fromkeys((*made, *module.old_versions)))


def retired_folder(job: Job, machine: Machine) -> Iterator[Hit]:
    """A folder of a past course, from which modules are loaded that the site has."""
    requests = list(_requests(job))
    for at, (command, verb, names) in enumerate(requests):
        folder = next((name for name in names if verb == "use" and _retired(name)), None)
        if folder is None:
            continue
        loaded = dict.fromkeys(
            name.partition("/")[0] for _, later, given in requests[at:] if later in ("load", "add") for name in given
        )
        wanted = [name for name in loaded if name in machine.site.modules]
        if wanted:
            yield command.line, {"folder": folder, "modules": " ".join(wanted)}


def host_venv(job: Job, machine: Machine) -> Iterator[Hit]:
    """A venv that a module's Python made to use its packages, where a container uses it."""
    module, made = "", dict[str, str]()
    for command in job.script.commands:
        values = tuple(job.resolved(value) for value in _given(command))
        contained = command.spot == "container" or command.names_any("singularity", "apptainer")
        if values[:1] in (("module",), ("ml",)):
            verb, names = _request(values)
            loaded = next((name for name in names if verb in ("load", "add") and _PYTHONS.fullmatch(name)), "")
            module = loaded or ("" if verb in ("purge", "unload", "rm", "swap", "reset") else module)
        elif not contained and module and _makes_venv(command):
            folder = next(value for value in reversed(values) if not value.startswith("-"))
            made[folder.rstrip("/")] = module
        for word in command.words if contained else ():
            found = re.fullmatch(r"(.+)/bin/(?:activate|python[\d.]*)", job.resolved(word.value))
            if found and found[1] in made:
                yield word.line, {"venv": found[1], "module": made[found[1]]}


def _makes_venv(command: Command) -> bool:
    """Whether it is `python -m venv --system-site-packages FOLDER`, in any order, with one folder."""
    words = [value for value in command.values[3:] if not value.startswith("-")]
    return (
        command.spot == "batch"
        and bool(re.fullmatch(r"python[\d.]*", command.programs[0] if command.programs else ""))
        and command.values[1:3] == ("-m", "venv")
        and "--system-site-packages" in command.values
        and len(words) == 1
    )


def _retired(path: str) -> bool:
    return any(fnmatchcase(path.rstrip("/"), pattern) for pattern in RETIRED_FOLDERS)
