"""Find variables that scripts set to what hangs, fails or is slow on this site."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Literal

from lumisite.site.model import Site
from lumisite.validate.lint.images import image_family, image_rocm, starts_of
from lumisite.validate.lint.job import Job, Setting
from lumisite.validate.lint.machine import Harmful, Hit, Machine
from lumisite.validate.lint.shell import program_at

#: Variables that name interfaces. NCCL takes the beginnings of names (src/misc/socket.cc), the others whole names.
_BY_PREFIX = ("NCCL_SOCKET_IFNAME", "NCCL_OOB_NET_IFNAME")
_BY_NAME = ("GLOO_SOCKET_IFNAME", "TP_SOCKET_IFNAME")
#: Variables that name directories of small files, written and locked by many tasks at once.
_CACHES = (
    *("MIOPEN_USER_DB_PATH", "MIOPEN_CUSTOM_CACHE_DIR", "AITER_JIT_DIR"),
    *("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR", "TORCH_EXTENSIONS_DIR"),
)
_WITH_DEFAULT = re.compile(r"\$\{\w+:?[-=]([^{}]*)\}")
_HOME = re.compile(r"(?:~|\$HOME|\$\{HOME\})(?:/|$)")
_STARTERS = ("srun", "mpirun", "mpiexec", "singularity", "apptainer", "torchrun", "accelerate", "deepspeed")


@dataclass(frozen=True)
class _Reach:
    """What settings of a job reach, worked out once: commands are known by `id`, since two may be equal.

    `places`: the place of each command; `images`: all that the job starts, and those of each command; `nodes`: the
    least number of nodes of all steps, and of those that begin on a line.
    """

    job: Job
    places: Mapping[int, int]
    images: frozenset[str]
    own_images: Mapping[int, frozenset[str]]
    nodes: frozenset[int | None]
    own_nodes: Mapping[int, frozenset[int | None]]


def _reach(job: Job) -> _Reach:
    images: dict[int, set[str]] = {}
    for start in starts_of(job):
        images.setdefault(id(start.command), set()).add(start.image)
    nodes: dict[int, set[int | None]] = {}
    for step in job.steps:
        nodes.setdefault(step.line, set()).add(step.nodes)
    return _Reach(
        job=job,
        places={id(command): at for at, command in enumerate(job.script.commands)},
        images=frozenset().union(*images.values()),
        own_images={place: frozenset(some) for place, some in images.items()},
        nodes=frozenset().union(*nodes.values()),
        own_nodes={line: frozenset(some) for line, some in nodes.items()},
    )


def _set_here(job: Job, machine: Machine, names: Collection[str]) -> Iterator[tuple[Setting, str, _Reach]]:
    """Give the settings of some variables that hold when something is started, with what they set and reach."""
    settings = [] if job.elsewhere(machine.partitions) else [one for one in job.settings if one.name in names]
    reach = _reach(job) if settings else None
    for setting in settings:
        if reach and not _replaced(setting, reach):
            yield setting, _value(job, setting), reach


def harmful_value(job: Job, machine: Machine) -> Iterator[Hit]:
    """A value that is known to do harm, in the situations in which it does."""
    for setting, value, reach in _set_here(job, machine, {entry.name for entry in machine.harmful}):
        for entry in machine.harmful:
            if entry.name == setting.name and "$" not in value and _applies(entry, value, setting, reach, machine.site):
                texts = {"reason": entry.reason, "right": entry.right, "source": entry.source}
                yield setting.line, {"name": setting.name, "value": value, **texts}
                break


def _value(job: Job, setting: Setting) -> str:
    """What a variable is set to, with other variables put in; of `${NAME:-value}` the value."""
    return _WITH_DEFAULT.sub(lambda found: found[1], job.resolved(setting.value))


def _replaced(setting: Setting, reach: _Reach) -> bool:
    """Whether the variable is set again or taken away before anything is started."""
    for command in reach.job.script.commands[reach.places[id(setting.command)] :]:
        if command.names_any(*_STARTERS):
            return False
        again = any(name == setting.name for name, _ in command.assignments)
        gone = command.values[:1] == ("unset",) and setting.name in command.values
        if command is not setting.command and command.spot == setting.spot and (again or gone):
            return True
    return False


def _applies(entry: Harmful, value: str, setting: Setting, reach: _Reach, site: Site) -> bool:
    if not fnmatchcase(value.lower(), entry.value.lower()):
        return False
    if entry.nodes is not None and entry.nodes != _nodes(setting, reach):
        return False
    if entry.rocm is None and entry.families is None:
        return True
    images = reach.own_images.get(id(setting.command), reach.images)
    fits = {_image_fits(entry, image, site) for image in images}
    return True in fits or (False not in fits and entry.applies_to_unknown_image)


def _image_fits(entry: Harmful, image: str, site: Site) -> bool | None:
    """Whether an image is one of those that are harmed; None where its name does not tell."""
    rocm, family = image_rocm(site, image), image_family(site, image)
    answers = [
        *([None if rocm is None else rocm in entry.rocm] if entry.rocm is not None else []),
        *([None if family is None else family in entry.families] if entry.families is not None else []),
    ]
    return False if False in answers else None if None in answers else True


def _nodes(setting: Setting, reach: _Reach) -> Literal["one", "several"] | None:
    """Whether what a setting reaches has one node or several: its own step, or else any step of the job."""
    at = program_at(setting.command, "srun")
    own = reach.own_nodes.get(setting.command.words[at].line) if at is not None else None
    counts = own or reach.nodes
    if any(count is not None and count > 1 for count in counts):
        return "several"
    return "one" if counts == {1} else None


def wrong_interface(job: Job, machine: Machine) -> Iterator[Hit]:
    """An interface that the site does not have for traffic."""
    network = machine.site.network
    for setting, value, reach in _set_here(job, machine, (*_BY_PREFIX, *_BY_NAME)):
        exact = setting.name in _BY_NAME
        fault = _fault(value, exact, _nodes(setting, reach), machine.site) if "$" not in value else None
        if fault:
            right = network.interfaces[0] if exact else ",".join(network.interfaces)
            yield setting.line, {"name": setting.name, "value": value, "fault": fault, "interfaces": right}


def _fault(value: str, exact: bool, nodes: Literal["one", "several"] | None, site: Site) -> str | None:
    """Say what is wrong with a list of interfaces.

    With `^` in front NCCL takes all but these, with `=` it takes whole names. It passes over names that nothing has,
    as long as one is left; gloo fails on the first.
    """
    fast, slow = site.network.interfaces, site.network.management
    sign = re.match(r"\^?=?", "" if exact else value)
    assert sign is not None
    names = [name.partition(":")[0].strip() for name in value[sign.end() :].split(",") if name.strip()]
    whole = exact or "=" in sign[0]
    if not names:
        return None
    if "^" in sign[0]:
        left_out = all(_named(interface, names, whole) for interface in fast)
        return "leaves out the high-speed network" if left_out else None
    if any(_named(interface, names, whole) for interface in slow):
        return "is the management network, which must not carry traffic" if nodes != "one" else None
    fits = [any(_named(interface, [name], whole) for interface in fast) for name in names]
    if "lo" in names and nodes != "several":
        return None
    if all(fits) if exact else any(fits):
        return None
    return f"is not {'the name' if whole else 'the beginning of the name'} of a high-speed interface of this system"


def _named(interface: str, names: Iterable[str], whole: bool) -> bool:
    return any(interface == name if whole else interface.startswith(name) for name in names)


def shared_cache(job: Job, machine: Machine) -> Iterator[Hit]:
    """A cache of MIOpen or of a compiler on a file system that all nodes share."""
    for setting, value, _ in _set_here(job, machine, _CACHES):
        if where := _shared(value, machine.site):
            folder = re.sub(r"_(?:PATH|DIR)$", "", setting.name).lower().replace("_", "-")
            yield setting.line, {"name": setting.name, "where": where, "right": _local(machine.site, folder)}


def _shared(path: str, site: Site) -> str | None:
    """Say where on a shared file system a path is; a home directory is always on one."""
    if _HOME.match(path):
        return "in the home directory"
    holding = [one for one in site.file_systems if f"{path}/".startswith(f"{one.path.rstrip('/')}/")]
    nearest = max(holding, key=lambda one: len(one.path), default=None)
    return f"on {nearest.path}" if nearest and nearest.kind == "shared" else None


def _local(site: Site, folder: str) -> str:
    local = next((one.path for one in site.file_systems if one.kind == "node-local"), None)
    return f"{local}/${{USER}}/{folder}" if local else "a directory of the node's own"
