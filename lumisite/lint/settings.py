"""Variables that scripts set to what hangs, fails or is slow on this site."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator
from itertools import dropwhile
from typing import Literal

from lumisite.findings.finding import Value
from lumisite.findings.writers import message
from lumisite.lint.images import Start, contents_of, starts_of
from lumisite.lint.job import BadLine, Job, ScriptSetting, bad_line, variables_in
from lumisite.machine.tree import is_under
from lumisite.render.explain import references
from lumisite.site.evidence import Harm, harms
from lumisite.site.images import Holds
from lumisite.site.ledger import Situation, decided_by_image, judge_conditions
from lumisite.site.model import Site
from lumisite.vendors import is_built_in

#: Variables that name interfaces. NCCL takes the beginnings of names (src/misc/socket.cc), the others whole names.
_BY_PREFIX = ("NCCL_SOCKET_IFNAME", "NCCL_OOB_NET_IFNAME")
_BY_NAME = ("GLOO_SOCKET_IFNAME", "TP_SOCKET_IFNAME")
_WITH_DEFAULT = re.compile(r"\$\{\w+:?[-=]([^{}]*)\}")
_HOME = re.compile(r"(?:~|\$HOME|\$\{HOME\})(?:/|$)")
_STARTERS = ("srun", "mpirun", "mpiexec", "singularity", "apptainer", "torchrun", "accelerate", "deepspeed")
_MKTEMP = r"(?<!\\)(?:\$\(|`)[^)`$]{0,200}\bmktemp\b"


def misnamed_variable(job: Job) -> Iterator[BadLine]:
    """A variable that nothing reads, in place of one that has another name."""
    for setting in job.settings_of(*job.misspelt):
        name = job.misspelt[setting.name]
        yield bad_line(setting.line, setting.name, expected=name, **_directory(job, name))


def cache_by_mktemp(job: Job) -> Iterator[BadLine]:
    """`mktemp` in the batch script, for the directory of a cache or for a variable that such a one is made of."""
    caches = job.caches | {name for name, meant in job.misspelt.items() if meant in job.caches}
    made: dict[str, set[int]] = {}
    for setting in job.settings:
        lines = made.setdefault(setting.name, set())
        if setting.command.spot == "batch" and re.search(_MKTEMP, setting.value):
            lines.clear()
            lines.add(setting.line)
        else:
            for name in variables_in(setting.value):
                lines.update(made.get(name, set()))
    found = {line: name for name, lines in made.items() if name in caches for line in lines}
    inside = re.compile(rf"\b(?:{'|'.join(sorted(caches))})=[\"'\\]*{_MKTEMP}") if caches else re.compile(r"(?!)")
    for word in (word for command in job.commands if command.spot == "batch" for word in command.words):
        found |= {line: text.partition("=")[0] for text, line in word.matches(inside)}
    for line, name in found.items():
        name = job.misspelt.get(name, name)
        yield bad_line(line, name, **_directory(job, name))


def _directory(job: Job, name: str) -> dict[str, Value]:
    """Return what leads a cache to a directory of the node, of each rank where ranks must not share it.

    A directory that only some images need is left to the helper, which knows the image.
    """
    settings = [setting for setting in job.site.settings if setting.name == name]
    if name not in job.caches or any(decided_by_image(job.site, setting) for setting in settings):
        return {}
    private = next(iter(job.site.private_places), None)
    local = "$TMPDIR/${USER}" if private is None else private.job_folder or f"{private.path}/${{USER}}"
    folder = f"{local}/{re.sub(r'_(?:PATH|DIR)$', '', name).lower().replace('_', '-')}"
    of_rank = any("{rank}" in (setting.directory or "") for setting in settings)
    return {"of_rank": f"{folder}/${{SLURM_LOCALID}}"} if of_rank else {"directory": folder}


def in_force(job: Job, names: Collection[str]) -> Iterator[tuple[ScriptSetting, str]]:
    """Yield the settings of some variables that hold when something is started, with what they set.

    Other variables are put in; of `${NAME:-value}` it is the value.
    """
    for setting in job.settings_of(*names):
        if not _replaced(job, setting):
            yield setting, _WITH_DEFAULT.sub(lambda found: found[1], job.resolved(setting.value))


def _replaced(job: Job, setting: ScriptSetting) -> bool:
    """Return whether the variable is set again or unset before anything is started."""
    later = dropwhile(lambda command: command is not setting.command, job.commands)
    for command in later:
        if command.names_any(*_STARTERS):
            return False
        again = any(name == setting.name for name, _ in command.assignments)
        gone = command.values[:1] == ("unset",) and setting.name in command.values
        if command is not setting.command and command.spot == setting.command.spot and (again or gone):
            return True
    return False


def nodes_reached(job: Job, setting: ScriptSetting) -> Literal["one", "several"] | None:
    """Return whether what a setting reaches has one node or several: its own step, or else any step of the job."""
    counts = job.node_counts.get(id(setting.command)) or job.node_counts[0]
    if any(count is not None and count > 1 for count in counts):
        return "several"
    return "one" if counts == {1} else None


def harmful_value(job: Job) -> Iterator[BadLine]:
    """A value that is known to do harm, in the situations in which it does."""
    known, starts = tuple(harms(job.site)), tuple(starts_of(job))
    for setting, value in in_force(job, {harm.setting.name for harm in known}):
        judged = [(harm, _judge(job, harm, setting, value, starts)) for harm in known]
        # What is known to do harm here comes before what may.
        found = sorted((pair for pair in judged if pair[1] is not None), key=lambda pair: bool(pair[1]))
        for harm, condition in found[:1]:
            known_from = harm.setting.source
            source = "; ".join(map(str, references(job.site, known_from))) or known_from
            values = {"condition": condition, "effect": harm.setting.why, "source": source}
            yield bad_line(setting.line, f"{setting.name}={value}", **values, **_instead(job.site, setting.name))


def _judge(job: Job, harm: Harm, setting: ScriptSetting, value: str, starts: tuple[Start, ...]) -> str | None:
    """Return the condition under which a value does harm, empty where it does so here; `None` where it does none.

    A value is one of those that do harm whatever its case, with any image that the setting reaches. Where the script
    does not say how many nodes it has it does none; where it does not say which image it runs, or the image's name does
    not tell what is in it, the entry decides whether it may.
    """
    fits = harm.setting.name == setting.name and "$" not in value and harm.fits(value)
    nodes = nodes_reached(job, setting) if fits else None
    if not fits or (harm.harmful.when.nodes and not nodes):
        return None
    images = dict.fromkeys(start.image for start in starts if start.command is setting.command)
    images = images or dict.fromkeys(start.image for start in starts)
    site = job.site
    defaults = site.platforms[site.platform].defaults
    installed = {stack: defaults[stack] for stack in site.host_stacks if stack in defaults}
    outcomes: dict[bool | None, str] = {}
    for contents in [contents_of(job, image) for image in images] or [Holds()]:
        stacks = {**installed, **contents.stacks}
        situation = Situation(site.platform, stacks, contents.family, contents.plugin, nodes)
        outcome, reason = judge_conditions(harm.harmful.when, situation)
        outcomes.setdefault(outcome, message(reason))
    if True in outcomes:
        return ""
    return outcomes[None] if False not in outcomes and harm.harmful.unknown_images else None


#: What users take over from other machines or from a search for an error, and what comes of it.
_LEFTOVERS = (
    ("NCCL_NET", r"socket", "network"),
    ("NCCL_NET_PLUGIN", r"none", "plugin"),
    ("NCCL_NET", r"ib", "plugin"),
    ("NCCL_IB_DISABLE", r"1", "adapters"),
    ("FI_PROVIDER", r"\^?(?:tcp|sockets|udp)(?:;.*)?", "network"),
    ("FI_PROVIDER", r"verbs(?:;.*)?|efa|opx|psm[23]", "plugin"),
    ("NCCL_P2P_DISABLE", r"1", "peers"),
    ("NCCL_P2P_LEVEL", r"0|LOC", "peers"),
)


def leftover_setting(job: Job) -> Iterator[BadLine]:
    """A setting of another machine or of a search for an error: TCP between nodes, no peers, another GPU."""
    carrier = job.site.fabric.carrier
    built_in = is_built_in(carrier)
    overrides = tuple((name, r".+", "architecture") for gpu in job.gpus for name in gpu.overrides)
    for name, pattern, kind in (*_LEFTOVERS, *overrides):
        for setting, value in in_force(job, (name,)):
            # On one node there is no traffic for a network; where NCCL needs no plugin its own adapters count.
            between = nodes_reached(job, setting) == "several"
            needed = {"network": between, "plugin": between and not built_in, "adapters": between and built_in}
            fits = re.fullmatch(pattern, value, re.IGNORECASE) and not value.lower().startswith(carrier.lower())
            if fits and needed.get(kind, True):
                reason: dict[str, Value] = {"network": carrier} if kind in needed else {kind: value}
                yield bad_line(setting.line, f"{name}={value}", variable=name, **reason)


def _instead(site: Site, name: str) -> dict[str, Value]:
    """Return what the ledger sets whatever the image, if anything."""
    always = (entry.value for entry in site.settings if entry.name == name and not decided_by_image(site, entry))
    return {"variable": name, "expected": next((value for value in always if value is not None), None)}


def wrong_interface(job: Job) -> Iterator[BadLine]:
    """An interface that the site does not have for traffic."""
    for setting, value in in_force(job, (*_BY_PREFIX, *_BY_NAME)):
        exact = setting.name in _BY_NAME
        kind = _wrong(value, exact, nodes_reached(job, setting), job.site) if "$" not in value else None
        if kind:
            fast = job.site.fabric.interfaces
            expected = fast[0] if exact else ",".join(fast)
            values = {kind: value.lstrip("^="), "expected": f"{setting.name}={expected}"}
            yield bad_line(setting.line, f"{setting.name}={value}", **values)


def _wrong(value: str, exact: bool, nodes: Literal["one", "several"] | None, site: Site) -> str | None:
    """Return what a list of interfaces is that is wrong, if it is.

    With `^` in front NCCL takes all but these, with `=` it takes whole names. It passes over names that nothing has,
    as long as one is left; gloo fails on the first.
    """
    fast, slow = site.fabric.interfaces, site.fabric.management
    sign = "" if exact else value[: len(value) - len(value.lstrip("^="))]
    names = [name.partition(":")[0].strip() for name in value[len(sign) :].split(",") if name.strip()]
    whole = exact or "=" in sign
    if not names:
        return None
    if "^" in sign:
        return "excluded" if all(_named(interface, names, whole) for interface in fast) else None
    if any(_named(interface, names, whole) for interface in slow):
        return "management" if nodes != "one" else None
    fits = [any(_named(interface, [name], whole) for interface in fast) for name in names]
    if ("lo" in names and nodes != "several") or (all(fits) if exact else any(fits)):
        return None
    return "name" if whole else "prefix"


def _named(interface: str, names: Iterable[str], whole: bool) -> bool:
    return any(interface == name if whole else interface.startswith(name) for name in names)


def shared_cache(job: Job) -> Iterator[BadLine]:
    """A cache of kernels or of a compiler, which belongs on the node, on a file system that all nodes share."""
    for setting, value in in_force(job, job.caches):
        if path := _shared(value, job.site):
            yield bad_line(setting.line, setting.name, path=path, **_directory(job, setting.name))


def _shared(path: str, site: Site) -> str | None:
    """Return the shared file system that a path is on; a home directory is always on one."""
    if _HOME.match(path):
        return "$HOME"
    holding = [system for system in site.file_systems if is_under(path, system.path)]
    nearest = max(holding, key=lambda system: len(system.path), default=None)
    return nearest.path if nearest and nearest.kind == "shared" else None
