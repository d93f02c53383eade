"""Values of variables: what does harm, leftovers, interfaces, directories of caches, and paths of old libraries."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from lumisite.images.known import KnownImage
from lumisite.lint.job import BadLine, Job, ScriptSetting, variables_in
from lumisite.lint.programs import Start, known_image, starts_of
from lumisite.lint.script import with_lines
from lumisite.machine.tree import is_under
from lumisite.site.harmful_values import Harm, harms
from lumisite.site.ledger import Situation, depends_on_image, judge_conditions
from lumisite.site.model import Site
from lumisite.site.partner_options import missing_partners
from lumisite.vendors import is_built_in

# ---------------------------------------------------------------- values that do harm


def harmful_value(job: Job) -> Iterator[BadLine]:
    """A value that does harm where this script uses it."""
    yield from _harmful(job, certain=True)


def value_may_harm(job: Job) -> Iterator[BadLine]:
    """A value that does harm with some images, where the script does not say which one it runs."""
    yield from _harmful(job, certain=False)


def _harmful(job: Job, *, certain: bool) -> Iterator[BadLine]:
    known, starts = tuple(harms(job.site)), tuple(starts_of(job))
    for setting, value in job.in_force({harm.setting.name for harm in known}):
        conditions = [(harm, _condition(job, harm, setting, value, starts)) for harm in known]
        # What does harm here comes before what may.
        found = sorted(((harm, text) for harm, text in conditions if text is not None), key=lambda pair: bool(pair[1]))
        for harm, condition in found[:1]:
            if certain is (condition == ""):
                reason = harm.setting.why + (f" (only {condition}, which the script does not say)" if condition else "")
                yield BadLine(setting.line, f"{setting.name}={value}", reason, _instead(job.site, setting.name))


def _condition(job: Job, harm: Harm, setting: ScriptSetting, value: str, starts: tuple[Start, ...]) -> str | None:
    """Return the condition under which a value does harm, empty where it does so here; `None` where it does none.

    Where the script does not say how many nodes it has it does none; where it does not say which image it runs, or the
    image's name does not tell what is in it, the entry decides whether it may.
    """
    fits = harm.setting.name == setting.name and "$" not in value and harm.fits(value)
    nodes = job.nodes_reached(setting) if fits else None
    if not fits or (harm.harmful.when.nodes and not nodes):
        return None
    images = dict.fromkeys(start.image for start in starts if start.command is setting.command)
    images = images or dict.fromkeys(start.image for start in starts)
    site = job.site
    defaults = site.platforms[site.platform].defaults
    installed = {stack: defaults[stack] for stack in site.host_stacks if stack in defaults}
    outcomes: dict[bool | None, str] = {}
    for known in [known_image(job, image) for image in images] or [KnownImage()]:
        situation = Situation(site.platform, installed, nodes=nodes)
        # Where no setting goes by a form of name, a warning may.
        situation = situation.with_image(replace(known.holds, stacks=known.releases))
        outcome, reason = judge_conditions(harm.harmful.when, situation)
        outcomes.setdefault(outcome, reason)
    if True in outcomes:
        return ""
    return outcomes[None] if False not in outcomes and harm.harmful.unknown_images else None


def _instead(site: Site, name: str) -> str:
    """Return the line that sets what the ledger does whatever the image, if anything."""
    always = (entry.value for entry in site.settings if entry.name == name and not depends_on_image(site, entry.when))
    value = next((value for value in always if value is not None), None)
    return f"unset {name}" if value is None else f"export {name}={value}"


def missing_partner(job: Job) -> Iterator[BadLine]:
    """A setting or option of a step that works only together with an option that the step does not have."""
    of_srun = {setting.name for setting in job.settings if setting.name.startswith("SLURM_")}
    for step in job.steps:
        found = job.in_force({*of_srun, *(need.variable for need in job.site.needs)})
        reached = [(setting, value) for setting, value in found if job.step_of(setting.command) in (None, step)]
        variables = {setting.name: value for setting, value in reached}
        lines = {setting.name: setting.line for setting, _ in reached}
        options = {option.name: option.value for option in step.options.values()}
        alone = 1 in (step.tasks_per_node, step.number("ntasks"))
        for need in missing_partners(job.site, variables, options, alone=alone):
            if need.option and not step.partitions:
                continue
            line = lines[need.variable] if need.variable else step.options[need.option].line
            subject = f"{need.variable}={variables[need.variable]}" if need.variable else f"--{need.option}"
            yield BadLine(line, subject, need.why, need.partner)


#: What users take over from other machines or from a search for an error: the values, and what does not work then.
_LEFTOVERS = (
    ("NCCL_NET", r"socket", "network"),
    ("NCCL_NET", r"ib", "plugin"),
    ("NCCL_NET_PLUGIN", r"none", "plugin"),
    ("NCCL_IB_DISABLE", r"1", "adapters"),
    ("FI_PROVIDER", r"\^?(?:tcp|sockets|udp)(?:;.*)?", "network"),
    ("FI_PROVIDER", r"verbs(?:;.*)?|efa|opx|psm[23]", "plugin"),
    ("NCCL_P2P_DISABLE", r"1", "peers"),
    ("NCCL_P2P_LEVEL", r"0|LOC", "peers"),
)


def leftover_setting(job: Job) -> Iterator[BadLine]:
    """A setting of another machine or of a search for an error: TCP between nodes, no peers, another GPU."""
    carrier = job.site.fabric.carrier
    tcp = f"traffic between nodes does not go over {carrier}, but over TCP if at all"
    reasons = {
        "peers": "GPUs of a node exchange data through the memory of the host",
        "architecture": "programs load code for another type of GPU, whatever the node has",
    }
    overrides = tuple((name, r".+", "architecture") for gpu in job.gpus for name in gpu.overrides)
    for name, pattern, kind in (*_LEFTOVERS, *overrides):
        for setting, value in job.in_force((name,)):
            # On one node there is no traffic for a network; where NCCL needs no plugin its own adapters count.
            between = job.nodes_reached(setting) == "several"
            built_in = is_built_in(carrier)
            needed = {"network": between, "plugin": between and not built_in, "adapters": between and built_in}
            fits = re.fullmatch(pattern, value, re.IGNORECASE) and not value.lower().startswith(carrier.lower())
            if fits and needed.get(kind, True):
                yield BadLine(setting.line, f"{name}={value}", reasons.get(kind, tcp), f"unset {name}")


# ---------------------------------------------------------------- interfaces

#: NCCL takes the beginnings of names (src/misc/socket.cc), the others whole names.
_BY_PREFIX = ("NCCL_SOCKET_IFNAME", "NCCL_OOB_NET_IFNAME")
_BY_NAME = ("GLOO_SOCKET_IFNAME", "TP_SOCKET_IFNAME")


def wrong_interface(job: Job) -> Iterator[BadLine]:
    """An interface that the site does not have for traffic."""
    fast = job.site.fabric.interfaces
    for setting, value in job.in_force((*_BY_PREFIX, *_BY_NAME)):
        by_name = setting.name in _BY_NAME
        names = [name.partition(":")[0].strip() for name in value.split(",") if name.strip()]
        # On one node there is no traffic between nodes.
        fine = {"one": ("lo", *job.site.fabric.management), None: ("lo",)}.get(job.nodes_reached(setting), ())
        if "$" in value or value[:1] in ("^", "=") or value in fine:  # NCCL has another meaning of names with these
            continue
        if reason := _wrong_interfaces(names, job.site, by_name=by_name):
            right = f"export {setting.name}={fast[0] if by_name else ','.join(fast)}"
            yield BadLine(setting.line, f"{setting.name}={value}", reason, right)


def _wrong_interfaces(names: list[str], site: Site, *, by_name: bool) -> str | None:
    """Return what is wrong with a list of interfaces, if anything: NCCL needs one that there is, gloo each."""

    def has(interface: str, name: str) -> bool:
        return interface == name if by_name else interface.startswith(name)

    fast = [any(has(interface, name) for interface in site.fabric.interfaces) for name in names]
    slow = [name for name in names if any(has(interface, name) for interface in site.fabric.management)]
    if slow:
        return f"{slow[0]} is the management network, which must not carry traffic"
    if not names or (all(fast) if by_name else any(fast)):
        return None
    return f"no high-speed interface of this system {'is called' if by_name else 'begins with'} {','.join(names)}"


# ---------------------------------------------------------------- caches

_HOME = re.compile(r"(?:~|\$HOME|\$\{HOME\})(?:/|$)")
_MKTEMP = re.compile(r"(?<!\\)(?:\$\(|`)[^)`$]{0,200}\bmktemp\b")


def _caches(job: Job) -> set[str]:
    """Return the variables that name directories of caches and databases."""
    of_site = {setting.name for setting in job.site.settings if setting.directory is not None}
    return of_site | {cache.variable for gpu in job.gpus for cache in gpu.caches}


def misnamed_variable(job: Job) -> Iterator[BadLine]:
    """A variable that nothing reads, in place of one that has another name."""
    misspelt = {name: meant for gpu in job.gpus for name, meant in gpu.misspelt.items()}
    for setting in job.settings:
        if name := misspelt.get(setting.name):
            reason = f"nothing reads this variable, and {name} keeps its default"
            yield BadLine(setting.line, setting.name, reason, _directory(job, name))


def cache_by_mktemp(job: Job) -> Iterator[BadLine]:
    """`mktemp` in the batch script, for the directory of a cache or for a variable that such a one is made of."""
    made: dict[str, int] = {}
    reason = "mktemp in the batch script makes a directory on the first node only"
    for setting in job.settings:
        lines = [made[name] for name in variables_in(setting.value) if name in made]
        if setting.command.spot == "batch" and _MKTEMP.search(setting.value):
            lines = [setting.line]
        if lines:
            made[setting.name] = lines[0]
        if lines and setting.name in _caches(job):
            yield BadLine(lines[0], setting.name, reason, _directory(job, setting.name))


def shared_cache(job: Job) -> Iterator[BadLine]:
    """A cache of kernels or of a compiler, which belongs on the node, on a file system that all nodes share."""
    for setting, value in job.in_force(_caches(job)):
        holding = [system for system in job.site.file_systems if is_under(value, system.path)]
        nearest = max(holding, key=lambda system: len(system.path), default=None)
        path = "$HOME" if _HOME.match(value) else nearest.path if nearest and nearest.kind == "shared" else None
        if path:
            reason = f"on {path}, which all nodes share: many tasks that write there are slow, and fail at times"
            yield BadLine(setting.line, setting.name, reason, _directory(job, setting.name))


def _directory(job: Job, name: str) -> str:
    """Return what to do with a cache: to leave it to the helper, or to lead it to a directory of the node."""
    if job.site.helper_module and any(setting.name == name for setting in job.site.settings):
        return f"without this line: the module sets {name} in each task"
    private = next(iter(job.site.private_places), None)
    local = "$TMPDIR/${USER}" if private is None else f"{private.path}/${{USER}}"
    return f"export {name}={local}/{name.lower()}, and mkdir -p it in the task"


# ---------------------------------------------------------------- paths


def old_library(job: Job) -> Iterator[BadLine]:
    """The directory of a library in another version than the host has."""
    module = job.site.helper_module
    for library in job.site.platforms[job.site.platform].libraries.values():
        folder, _, version = library.rpartition("/")
        pinned = re.compile(rf"{re.escape(folder)}/(\d[\w.]*)")
        reason = f"this system has {library}, so that the network plugin falls back to TCP"
        right = f"module load {module}, which binds the libraries of this system" if module else library
        for found, line in (match for word in job.words for match in with_lines(pinned, word.raw, word.line)):
            if found[1].rstrip(".") != version:
                yield BadLine(line, found[0], reason, right)
