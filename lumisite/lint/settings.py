"""Variables that scripts set to what hangs, fails or is slow on this site."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator
from fnmatch import fnmatchcase
from itertools import dropwhile
from typing import Literal

from lumisite.lint.images import Start, holds_of, starts_of
from lumisite.lint.job import Job, Setting, Told
from lumisite.machine.tree import is_under
from lumisite.render.explain import references
from lumisite.site.evidence import Harm, harms
from lumisite.site.images import Holds
from lumisite.site.ledger import Situation, decided_by_image, judge_conditions
from lumisite.site.model import Site

#: Variables that name interfaces. NCCL takes the beginnings of names (src/misc/socket.cc), the others whole names.
_BY_PREFIX = ("NCCL_SOCKET_IFNAME", "NCCL_OOB_NET_IFNAME")
_BY_NAME = ("GLOO_SOCKET_IFNAME", "TP_SOCKET_IFNAME")
_WITH_DEFAULT = re.compile(r"\$\{\w+:?[-=]([^{}]*)\}")
_HOME = re.compile(r"(?:~|\$HOME|\$\{HOME\})(?:/|$)")
_STARTERS = ("srun", "mpirun", "mpiexec", "singularity", "apptainer", "torchrun", "accelerate", "deepspeed")


def _in_force(job: Job, names: Collection[str]) -> Iterator[tuple[Setting, str]]:
    """Give the settings of some variables that hold when something is started, with what they set.

    Other variables are put in; of `${NAME:-value}` it is the value.
    """
    for setting in job.named(*names):
        if not _replaced(job, setting):
            yield setting, _WITH_DEFAULT.sub(lambda found: found[1], job.resolved(setting.value))


def _replaced(job: Job, setting: Setting) -> bool:
    """Whether the variable is set again or taken away before anything is started."""
    for command in dropwhile(lambda one: one is not setting.command, job.commands):
        if command.names_any(*_STARTERS):
            return False
        again = any(name == setting.name for name, _ in command.assignments)
        gone = command.values[:1] == ("unset",) and setting.name in command.values
        if command is not setting.command and command.spot == setting.command.spot and (again or gone):
            return True
    return False


def _nodes(job: Job, setting: Setting) -> Literal["one", "several"] | None:
    """Whether what a setting reaches has one node or several: its own step, or else any step of the job."""
    own = {step.nodes for step in job.steps if step.command is setting.command}
    counts = own or {step.nodes for step in job.steps}
    if any(count is not None and count > 1 for count in counts):
        return "several"
    return "one" if counts == {1} else None


def harmful_value(job: Job) -> Iterator[Told]:
    """A value that is known to do harm, in the situations in which it does."""
    known, starts = tuple(harms(job.site)), tuple(starts_of(job))
    for setting, value in _in_force(job, {harm.setting.name for harm in known}):
        mine = [(one, _judge(job, one, setting, value, starts)) for one in known if one.setting.name == setting.name]
        # What is known to do harm here comes before what may.
        found = sorted((one for one in mine if one[1] is not None), key=lambda one: bool(one[1]))
        for harm, open_condition in found[:1]:
            limited = f"only {open_condition}, which the script does not say: " if open_condition else ""
            yield Told(
                setting.line,
                f"{setting.name}={value}: {limited}{harm.evidence.what or harm.setting.why}",
                _instead(job.site, setting.name),
                "; ".join(map(str, references(job.site, harm.evidence.source))) or harm.evidence.source,
            )


def _judge(job: Job, harm: Harm, setting: Setting, value: str, starts: tuple[Start, ...]) -> str | None:
    """Return the condition under which a value does harm, empty where it does so here; `None` where it does none.

    A value is one of those that do harm whatever its case, with any image that the setting reaches. Where the script
    does not say how many nodes it has it does none; where it does not say which image it runs, or the image's name does
    not tell what is in it, the evidence decides whether it may.
    """
    fits = "$" not in value and any(fnmatchcase(value.lower(), pattern.lower()) for pattern in harm.patterns)
    nodes = _nodes(job, setting) if fits else None
    if not fits or (harm.evidence.when.nodes and not nodes):
        return None
    own = {start.image for start in starts if start.command is setting.command}
    held = [holds_of(job, image) for image in own or {start.image for start in starts}] or [Holds()]
    site = job.site
    defaults = site.platforms[site.platform].defaults
    installed = {stack: defaults[stack] for stack in site.host_stacks if stack in defaults}
    judged = [
        judge_conditions(
            harm.evidence.when,
            Situation(site.platform, {**installed, **one.stacks}, one.family, one.plugin, nodes),
        )
        for one in held
    ]
    outcomes = {outcome for outcome, _ in judged}
    if True in outcomes:
        return ""
    return judged[0][1] if False not in outcomes and harm.evidence.unknown_images else None


def _instead(site: Site, name: str) -> str:
    """Give the line that would be right: what the ledger sets whatever the image, else nothing."""
    always = (one.value for one in site.settings if one.name == name and not decided_by_image(site, one))
    value = next((value for value in always if value is not None), None)
    return f"unset {name}" if value is None else f"export {name}={value}"


def wrong_interface(job: Job) -> Iterator[Told]:
    """An interface that the site does not have for traffic."""
    interfaces = job.site.fabric.interfaces
    for setting, value in _in_force(job, (*_BY_PREFIX, *_BY_NAME)):
        exact = setting.name in _BY_NAME
        fault = _fault(value, exact, _nodes(job, setting), job.site) if "$" not in value else None
        if fault:
            yield Told(
                setting.line,
                f"{setting.name}={value} {fault}",
                f"export {setting.name}={interfaces[0] if exact else ','.join(interfaces)}",
            )


def _fault(value: str, exact: bool, nodes: Literal["one", "several"] | None, site: Site) -> str | None:
    """Say what is wrong with a list of interfaces.

    With `^` in front NCCL takes all but these, with `=` it takes whole names. It passes over names that nothing has,
    as long as one is left; gloo fails on the first.
    """
    fast, slow = site.fabric.interfaces, site.fabric.management
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
    if ("lo" in names and nodes != "several") or (all(fits) if exact else any(fits)):
        return None
    return f"is not {'the name' if whole else 'the beginning of the name'} of a high-speed interface of this system"


def _named(interface: str, names: Iterable[str], whole: bool) -> bool:
    return any(interface == name if whole else interface.startswith(name) for name in names)


def shared_cache(job: Job) -> Iterator[Told]:
    """A cache of kernels or of a compiler, which belongs on the node, on a file system that all nodes share."""
    for setting, value in _in_force(job, job.caches):
        if where := _shared(value, job.site):
            yield Told(
                setting.line,
                f"{setting.name} is {where}, which all nodes share: "
                "many tasks write there at once, which is slow and fails at times",
                job.made_in_task(setting.name),
            )


def _shared(path: str, site: Site) -> str | None:
    """Say where on a shared file system a path is; a home directory is always on one."""
    if _HOME.match(path):
        return "in the home directory"
    holding = [one for one in site.file_systems if is_under(path, one.path)]
    nearest = max(holding, key=lambda one: len(one.path), default=None)
    return f"on {nearest.path}" if nearest and nearest.kind == "shared" else None
