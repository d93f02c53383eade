"""`env`: the environment, binds and CPU mask that a rank will have."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

import click

from lumisite.cli.commands import Command
from lumisite.cli.options import FILE_NAME, OR_EXAMPLE, json_option, load_lock, site_option
from lumisite.cli.output import print_note, print_result
from lumisite.cli.site_choice import site_or_example
from lumisite.errors import ResolveError
from lumisite.findings.exit_code import exit_code
from lumisite.findings.finding import Finding, Severity
from lumisite.findings.writers import as_json as finding_as_json
from lumisite.findings.writers import line
from lumisite.lint.own_variables import judge_own_variables
from lumisite.render.rank_environment import Cpus, Environment, FirstRank, Step, Variable
from lumisite.render.wrapper_image import WrapperImage, wrapper_image
from lumisite.site.cpu_list import format_cpu_list
from lumisite.site.decode import unknown_name
from lumisite.site.ledger import Situation, harmful_values
from lumisite.site.load import load_plans, load_site
from lumisite.site.model import Site
from lumisite.site.selection import ALL, Combination, module_version, resolve_selection
from lumisite.text import counted, printable

if TYPE_CHECKING:
    from lumisite.images.known import KnownImage

#: Why variables are set that no entry of the ledger is about, by the end of their names.
_REASONS = {
    "PATH": "the wrapper around the container runtime comes first",
    "SLURM_TASK_PROLOG": "switches the srun helper on",
    "BINDPATH": "the list of binds",
    "PREPEND_PATH": "what activates the image's Python",
    "LD_LIBRARY_PATH": "where the image's loader looks for host libraries",
    "PET_LOCAL_ADDR": "ranks meet by a name like MASTER_ADDR",
    "PET_RDZV_CONF": "this node hosts the torchrun rendezvous",
}
#: What to print for each source of the facts about an image.
_KNOWN_FROM = {
    "content": "read in the image",
    "name": "by its name, so what depends on its contents is not set; `lumisite images --lock FILE` reads it",
}


@click.command(cls=Command)
@click.argument("image", metavar="[IMAGE]", required=False, type=FILE_NAME, help="The image, as a job names it.")
@click.option("--nodes", metavar="N", type=click.IntRange(1, 999_999), default=1, help="Nodes (default: 1).")
@click.option(
    "--tasks-per-node", metavar="T", type=click.IntRange(1, 1024), help="Tasks on a node (default: one a GPU, else 1)."
)
@click.option("--partition", metavar="P", help="Partition (default: the one that the site validates).")
@click.option("--module", metavar="M", help="The loaded module, or `none` (default: the module with the helper).")
@click.option("--all", "show_all", is_flag=True, help="Print also why each is set, and what is not set and why.")
@site_option(OR_EXAMPLE)
@json_option
def command(
    image: str | None,
    nodes: int,
    tasks_per_node: int | None,
    partition: str | None,
    module: str | None,
    show_all: bool,
    site: str,
    as_json: bool,
) -> int:
    """Print what the first rank of a step finds: each variable, bind and CPU mask, with who sets it.

    What does harm comes first: a value of this shell or of the image, or an image that the GPUs or the network cannot
    take (exit code 1, or 4 where the image or the node decides). Without IMAGE it is what every container gets that no
    wrapper sees. Slurm is not asked, and no container is started.
    """
    loaded = load_site(site_or_example(site))
    described = loaded.site
    step = _step(described, partition, nodes, tasks_per_node)
    combination, modules, platform = _loaded(described, module)
    lock = load_lock(loaded)
    seen = known = None
    if image is not None:
        seen = wrapper_image(described, platform, image, load_plans(loaded), lock)
        from lumisite.images.known import know_image  # which brings all that reads images

        known = know_image(described, image, platform, lock.lock if lock else None)
        if known.note is not None:
            print_note(line(known.note))
        _compare_releases(described, image, seen, known)
    rank = FirstRank(described, combination, modules, step, seen, os.getuid())
    of_user = _of_user()
    found = rank.environment() if known is None else _with_image(rank.environment(), known, of_user)
    findings = [
        *(() if known is None else _judge_image(described, known, str(image), rank.situation)),
        *_harmful(described, known, rank.situation, found, of_user),
        *judge_own_variables(described, step.partition, step.nodes, of_user),
    ]
    document: dict[str, Any] = _document(described, step, found, seen)
    document |= {"set_before": _set_before(found, of_user), "harmful": list(map(finding_as_json, findings))}
    names = [f"{name}/{module_version(described, described.modules[name], combination)}" for name in modules]
    lines = [*map(line, findings), *([""] if findings else []), _asked(image, step, names)]
    lines += [] if seen is None else [_taken_for(described, seen)]
    lines += _text(document, found, show_all=show_all)
    print_result(document, lines, as_json=as_json)
    return exit_code(findings)


# ---------------------------------------------------------------- what is asked


def _step(site: Site, partition: str | None, nodes: int, tasks_per_node: int | None) -> Step:
    default = site.validation.partition if site.validation is not None else next(iter(site.partitions), "")
    name = partition or default
    if name not in site.partitions:
        raise ResolveError(unknown_name("--partition", name, "partition", site.name, site.partitions))
    return Step(name, nodes, tasks_per_node or len(site.kind_of(name).gpus) or 1)


def _loaded(site: Site, module: str | None) -> tuple[Combination, tuple[str, ...], str]:
    """Return the releases behind a module, the modules that loading it loads, in their order, and the platform."""
    releases = {stack: [ALL] for stack in site.stacks} if "/" in (module or "") else {}
    selection = resolve_selection(site, platform=None, **releases)
    if module == "none":
        return selection.default, (), selection.platform
    name, _, version = (module or site.helper_module or next(iter(site.modules))).partition("/")
    if name not in site.modules:
        raise ResolveError(unknown_name("--module", name, "module", site.name, site.modules))
    versions: dict[str, Combination] = {}
    for combination in selection.combinations:
        versions.setdefault(module_version(site, site.modules[name], combination), combination)
    if version and version not in versions:
        known = [f"{name}/{one}" for one in versions]
        raise ResolveError(unknown_name("--module", f"{name}/{version}", "module", site.name, known))
    found: dict[str, None] = {}

    def load(module: str) -> None:
        for other in site.modules[module].loads:
            load(other)
        found.setdefault(module)

    load(name)
    return versions.get(version, selection.default), tuple(found), selection.platform


def _of_user() -> dict[str, str]:
    """Return the variables of this shell without those that the helper exported in an outer step."""
    exported = os.environ.get("LUMISITE_EXPORTS", "")
    return {name: value for name, value in os.environ.items() if f";{name}={value};" not in exported}


# ---------------------------------------------------------------- what the image and the shell bring


def _compare_releases(site: Site, image: str, seen: WrapperImage, known: KnownImage) -> None:
    """Print where the image that was read holds another release than the wrapper takes it for."""
    stack = site.gpu_stack
    actual, assumed = known.holds.stacks.get(stack or ""), seen.holds.stacks.get(stack or "")
    if stack is None or known.read is None or seen.known_from == "content" or actual is None or actual == assumed:
        return
    if assumed is None or not str(actual).startswith(f"{assumed}."):
        title = site.stacks[stack].title
        remedy = "`lumisite images --lock FILE`, named in `images.lock` of the site, makes the wrapper know"
        print_note(f"{printable(image)} holds {title} {actual}, taken for {assumed or 'unknown'} ({remedy})")


def _with_image(found: Environment, known: KnownImage, of_user: Mapping[str, str]) -> Environment:
    """Return what a rank finds in the container, after what the image itself sets."""
    given = {name: variable.value for name, variable in found.variables.items() if variable.value is not None}
    before = {**given, **{name: value for name, value in of_user.items() if name in (*given, *known.holds.sets)}}
    after = known.in_container(before)
    by_image = {
        name: Variable(after[name], "image", "")
        for name in known.holds.sets
        if name in after and after[name] != before.get(name)
    }
    return replace(found, variables=dict(sorted({**found.variables, **by_image}.items())))


def _judge_image(site: Site, known: KnownImage, image: str, situation: Situation) -> Iterator[Finding]:
    """Yield why the image does not fit the GPUs or the network of the step."""
    from lumisite.images.fit import for_other_gpus, outside_range
    from lumisite.images.network import without_network

    if not situation.gpus:
        return
    for_others = for_other_gpus(site, known.built_for)
    for reason, right in (*for_others, *outside_range(site, known.releases, situation.platform)):
        yield Finding("image-unfit", Severity.FAULT, reason, f"use {right}", image)
    severity = Severity.FAULT if situation.nodes == "several" else Severity.INFO
    yield from without_network(image, known.holds, severity)


def _harmful(
    site: Site, known: KnownImage | None, situation: Situation, found: Environment, of_user: Mapping[str, str]
) -> Iterator[Finding]:
    """Yield the values of this shell, and of the image, that are known to do harm in the step."""
    if known is not None and known.read is not None:
        situation = situation.with_image(replace(known.holds, family=situation.family, sets={}))
    by_image = {name: str(one.value) for name, one in found.variables.items() if one.by == "image"}
    yield from harmful_values(site, situation, {name: of_user[name] for name in of_user if name not in by_image})
    yield from harmful_values(site, situation, by_image, of_image=True)


def _set_before(found: Environment, of_user: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of this shell that the helper would set to another value."""
    return {
        name: of_user[name]
        for name, variable in found.variables.items()
        if variable.entry.startswith("settings[")
        and variable.value is not None
        and of_user.get(name, variable.value) != variable.value
    }


# ---------------------------------------------------------------- the answer


def _document(site: Site, step: Step, found: Environment, image: WrapperImage | None) -> dict[str, Any]:
    """Return the answer for JSON: each variable with its reason, the binds, the CPUs and the image."""
    variables = {
        name: {
            "value": variable.value,
            "by": variable.by,
            "entry": variable.entry,
            "why": _why(site, step, name, variable),
        }
        for name, variable in found.variables.items()
    }
    cpus = [
        {
            "task": one.task,
            "mask": one.mask,
            "cpus": None,
            "why": one.why or f"task {one.task} of {step.tasks_per_node}",
        }
        for one in found.cpus
    ]
    taken_for = None
    if image is not None:
        release = image.holds.stacks.get(site.gpu_stack or "")
        taken_for = {
            "family": image.holds.family,
            "release": None if release is None else str(release),
            "plugin": image.holds.plugin,
            "known_from": image.known_from,
        }
    return {"variables": variables, "binds": [asdict(bind) for bind in found.binds], "cpus": cpus, "image": taken_for}


def _why(site: Site, step: Step, name: str, variable: Variable) -> str:
    """Return why a variable is as it is: the reason of its entry, or what the helper needs it for."""
    if variable.entry:
        entry = site.settings[int(variable.entry.removeprefix("settings[").removesuffix("]"))]
        return f"the image decides: {entry.why}" if variable.open else str(entry.why)
    if variable.by == "image":
        return "the image itself sets it"
    if variable.value is None:
        return f"no site setting applies to this step ({counted(step.nodes, 'node')})"
    return next((why for end, why in _REASONS.items() if name == end or name.endswith(f"_{end}")), "")


def _asked(image: str | None, step: Step, modules: Sequence[str]) -> str:
    subject = printable(image) if image is not None else "any image that no wrapper sees"
    nodes = f"{counted(step.nodes, 'node')} of {step.partition}"
    return f"{subject} on {nodes}, {step.tasks_per_node} on each, with {' '.join(modules) or 'no module'}"


def _taken_for(site: Site, image: WrapperImage) -> str:
    """Return what the wrapper takes the image for, and how it knows."""
    stack = site.gpu_stack
    release = image.holds.stacks.get(stack or "")
    plugin = {None: "not known", True: "yes", False: "no"}[image.holds.plugin]
    facts = (
        f"family {image.holds.family or 'not known'}",
        f"{'release' if stack is None else site.stacks[stack].title} {release or 'not known'}",
        f"plugin with libfabric {plugin}",
    )
    return f"image: {', '.join(facts)} ({_KNOWN_FROM[image.known_from]})"


def _text(document: dict[str, Any], found: Environment, *, show_all: bool) -> Iterator[str]:
    """Yield what is set and bound, on one screen, or all of it with reasons."""
    if document["set_before"]:
        yield "\nSet in this shell already, which counts more than what follows:"
    yield from (f"  {name}={printable(value)}" for name, value in document["set_before"].items())
    variables = document["variables"].items()
    left = [(name, one) for name, one in variables if one["value"] is None]
    yield "\nVariables, by whom (`lumisite why NAME` says why)"
    for name, one in variables:
        if one["value"] is not None:
            yield f"  {one['by']:7}  {name}={printable(one['value'])}"
            yield from _reason(one) if show_all else ()
    if show_all:
        yield "\nNot set"
    else:
        yield f"  known to the site and not set: {len(left)} (--all says why)"
    for name, one in left if show_all else ():
        yield f"  {one['by']:7}  {name}"
        yield from _reason(one)
    yield "\nBinds, by whom"
    specs: dict[str, list[str]] = {}
    for bind in found.binds:
        specs.setdefault(bind.by, []).append(bind.source + (f":{bind.target}" if bind.target != bind.source else ""))
    yield from (f"  {by:7}  {' '.join(of_one)}" for by, of_one in specs.items())
    yield "\nCPUs, by task of a node"
    yield from map(_cpus_line, found.cpus)


def _reason(variable: Mapping[str, str]) -> Iterator[str]:
    if text := ": ".join(filter(None, (variable["entry"], variable["why"]))):
        yield f"      {text}"


def _cpus_line(cpus: Cpus) -> str:
    if not cpus.mask:
        return f"  {cpus.task}  as Slurm binds  ({cpus.why})"
    mask = int(cpus.mask, 16)
    numbers = format_cpu_list(number for number in range(mask.bit_length()) if mask >> number & 1)
    return f"  {cpus.task}  {numbers:17}  {cpus.mask}"
