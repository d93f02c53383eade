"""`env`: the environment, binds and CPU mask that a rank will have."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import click

from lumisite.cli.commands import Command
from lumisite.cli.options import (
    FILE_NAME,
    json_option,
    load_lock,
    lock_option,
    plan_option,
    platform_option,
    site_or_example_option,
)
from lumisite.cli.output import print_note, print_result
from lumisite.cli.site_choice import site_or_example
from lumisite.errors import ResolveError
from lumisite.findings.exit_code import exit_code
from lumisite.findings.finding import Finding, Severity
from lumisite.findings.writers import as_json, line
from lumisite.lint.own_variables import judge_own_variables
from lumisite.render.rank import Cpus, Environment, FirstRank, Step, StepBind, Variable
from lumisite.render.wrapper_image import WrapperImage, wrapper_image
from lumisite.site.cpu_list import format_cpu_list
from lumisite.site.decode import unknown_name
from lumisite.site.ledger import Situation, harmful_values
from lumisite.site.load import load_plans, load_site
from lumisite.site.model import Site
from lumisite.site.selection import ALL, Combination, Selection, module_version, resolve_selection
from lumisite.text import counted, printable

if TYPE_CHECKING:
    from lumisite.images.known import KnownImage

#: Why variables are set that no entry of the ledger is about.
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
    "site": "from its name, which the site itself gave",
    "name": "guessed from its name: what could abort or hang a wrong image is not set; "
    "`lumisite images --lock FILE` reads it",
}


@click.command(cls=Command)
@click.argument(
    "image",
    metavar="[IMAGE]",
    required=False,
    type=FILE_NAME,
    help="The image, as a job names it; it need not be here.",
)
@click.option(
    "--nodes", metavar="N", type=click.IntRange(1, 999_999), default=1, help="Nodes of the step (default: 1)."
)
@click.option(
    "--tasks-per-node",
    metavar="T",
    type=click.IntRange(1, 1024),
    help="Tasks on each node (default: one for each GPU, else 1).",
)
@click.option("--partition", metavar="P", help="Partition (default: the one that the site validates).")
@click.option(
    "--node", metavar="KIND", help="Node kind, where the partition has nodes of several (default: the first)."
)
@click.option(
    "--module",
    metavar="M",
    help="The module that is loaded, with or without its version, or `none`, where the site's cli_filter attaches the "
    "helper (default: the module with the helper).",
)
@click.option("--all", is_flag=True, help="Print also why each is set, and what the site knows and leaves alone.")
@platform_option
@plan_option
@lock_option
@site_or_example_option
@json_option
def command(**options: Any) -> int:
    """Print what the first rank of a step finds: each variable, bind and CPU mask, with who sets it.

    Set they are by module, prolog, wrapper or image, on a node that has all that the site describes and grants all of
    its CPUs. With --all also by which entry of the site description, and why. A variable that this shell has set before
    is named with its value. What does harm comes first: a value that is known to, of this shell or of the image itself,
    or an image that the GPUs or the network cannot take (exit code 1, or 4 where the image or the node decides), and a
    variable that programs in containers read when they start, such as PYTHONPATH. Without IMAGE it is what every
    container gets that no wrapper sees. Slurm is not asked, and no container is started.
    """
    arguments = SimpleNamespace(**options)
    loaded = load_site(site_or_example(arguments.site))
    site = loaded.site
    step = _step(site, arguments)
    versioned = "/" in (arguments.module or "")
    releases = {stack: [ALL] for stack in site.stacks} if versioned else {}
    selection = resolve_selection(site, platform=arguments.platform, **releases)
    combination, modules = _loaded(site, selection, arguments.module)
    lock, plans = load_lock(loaded, arguments.lock), load_plans(loaded, arguments.plan_files)
    image = known = None
    if arguments.image is not None:
        image = wrapper_image(site, selection.platform, arguments.image, plans, lock)
        from lumisite.images.known import know_image

        known = know_image(site, arguments.image, selection.platform, None if lock is None else lock.lock)
        if image.known_from != "content" and image.plan is None:
            _compare_with_image(site, arguments.image, image, known)
    rank = FirstRank(site, combination, modules, step, image, os.getuid())
    of_user = _of_user()
    found = rank.environment() if known is None else _with_image(rank.environment(), known, of_user)
    before = _set_before(found, of_user)
    findings = [
        *(() if known is None else _judge_image(site, known, arguments.image, rank.situation)),
        *_harmful(site, known, rank.situation, found, of_user),
        *judge_own_variables(site, step.partition, step.nodes, of_user),
    ]
    variables = {
        name: {
            "value": variable.value,
            "by": variable.by,
            "entry": variable.entry,
            "why": _why(site, step, name, variable),
        }
        for name, variable in found.variables.items()
    }
    cpus = [{"task": task.task, "mask": task.mask, "cpus": None, "why": _why_cpus(step, task)} for task in found.cpus]
    reasons = {name: str(variable["why"]) for name, variable in variables.items()}
    names = [f"{name}/{module_version(site, site.modules[name], combination)}" for name in modules]
    lines = [*_head(site, image, step, names, arguments.image), *_of_shell(before)]
    lines += _everything(found, reasons) if arguments.all else _screen(found)
    lines += ["", "CPUs, by task of a node", *(_cpus_line(step, task) for task in found.cpus)]
    document = asdict(found) | {"variables": variables, "cpus": cpus, "set_before": before}
    document["image"] = image and _image_record(site, image)
    document |= {"harmful": list(map(as_json, findings))}
    first = [line(one) for one in findings]
    print_result(document, [*first, "", *lines] if first else lines, as_json=arguments.as_json)
    return exit_code(findings)


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


def _why_cpus(step: Step, cpus: Cpus) -> str:
    return cpus.why or f"task {cpus.task} of {step.tasks_per_node}"


def _set_before(found: Environment, of_user: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of this shell that the helper would set to another value.

    What the helper of an earlier step exported does not count.
    """
    values = {
        name: variable.value for name, variable in found.variables.items() if variable.entry.startswith("settings[")
    }
    return {
        name: of_user[name] for name, value in values.items() if value is not None and of_user.get(name, value) != value
    }


def _of_user() -> dict[str, str]:
    """Return the variables of this shell without those that the helper exported in an outer step."""
    exported = os.environ.get("LUMISITE_EXPORTS", "")
    return {name: value for name, value in os.environ.items() if f";{name}={value};" not in exported}


def _step(site: Site, arguments: SimpleNamespace) -> Step:
    default = site.validation.partition if site.validation is not None else next(iter(site.partitions), "")
    name = arguments.partition or default
    if name not in site.partitions:
        raise ResolveError(unknown_name("--partition", name, "partition", site.name, site.partitions))
    kinds = site.kinds_of(name)
    kind = arguments.node or next(iter(kinds))
    if kind not in kinds:
        raise ResolveError(unknown_name("--node", kind, "node kind", f"partition {name}", kinds))
    if len(kinds) > 1 and not arguments.node:
        print_note(
            f"partition {name} has nodes of the kinds {', '.join(kinds)}: this is for {kind} (others: --node KIND)"
        )
    return Step(name, arguments.nodes, arguments.tasks_per_node or len(kinds[kind].gpus) or 1, kind)


def _loaded(site: Site, selection: Selection, requested: str | None) -> tuple[Combination, tuple[str, ...]]:
    """Return the releases behind a module, and the modules that loading it loads, in the order of loading."""
    if requested == "none":
        return selection.default, ()
    name, _, version = (requested or site.helper_module or next(iter(site.modules))).partition("/")
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
    return versions.get(version, selection.default), tuple(found)


def _compare_with_image(site: Site, path: str, image: WrapperImage, known: KnownImage) -> None:
    """Print where the content of the image differs from what the wrapper infers."""
    if not Path(path).exists():
        print_note(f"{printable(path)} not found; its releases and family are inferred from the file name")
        return
    if known.note is not None:
        print_note(line(known.note))
        return
    content, inferred, stack = known.holds, image.holds, site.gpu_stack or ""
    differing = [
        f"{what} {_format_fact(actual)}, taken for {_format_fact(assumed)}"
        for what, actual, assumed in (
            (_release_name(site), content.stacks.get(stack), inferred.stacks.get(stack)),
            ("plugin with libfabric", content.plugin, inferred.plugin),
        )
        if actual is not None and actual != assumed and not str(actual).startswith(f"{assumed}.")
    ]
    if differing:
        remedy = "`lumisite images --lock FILE` and `lumisite render --lock FILE` make the wrapper know"
        print_note(f"{printable(path)} holds {'; '.join(differing)} ({remedy})")


def _format_fact(value: object) -> str:
    return "unknown" if value is None else ("yes" if value else "no") if isinstance(value, bool) else str(value)


def _release_name(site: Site) -> str:
    """Return the name of the releases that images bring."""
    return "release" if site.gpu_stack is None else site.stacks[site.gpu_stack].title


def _image_record(site: Site, image: WrapperImage) -> dict[str, object]:
    """Return what the wrapper takes the image for, and how it knows."""
    release = image.holds.stacks.get(site.gpu_stack or "")
    return {
        "family": image.holds.family,
        "release": None if release is None else str(release),
        "plugin": image.holds.plugin,
        "known_from": image.known_from,
    }


def _head(
    site: Site, image: WrapperImage | None, step: Step, modules: Sequence[str], path: str | None
) -> Iterator[str]:
    """Yield what was asked, and what the wrapper takes the image for."""
    subject = printable(path) if path is not None else "any image that no wrapper sees"
    nodes = f"{counted(step.nodes, 'node')} of {step.partition}"
    yield f"{subject} on {nodes}, {step.tasks_per_node} on each, with {' '.join(modules) or 'no module'}"
    if image is not None:
        record = _image_record(site, image)
        words = {"family": "family", "release": _release_name(site), "plugin": "plugin with libfabric"}
        facts = (
            f"{word} {'not known' if record[key] is None else _format_fact(record[key])}" for key, word in words.items()
        )
        yield f"image: {', '.join(facts)} ({_KNOWN_FROM[image.known_from]})"


def _of_shell(before: Mapping[str, str]) -> Iterator[str]:
    """Yield what the shell has set before, which stays."""
    if before:
        yield "\nSet in this shell already, which counts more than what follows:"
    yield from (f"  {name}={printable(value)}" for name, value in before.items())


def _screen(found: Environment) -> Iterator[str]:
    """Yield what is set and bound, on one screen."""
    yield "\nVariables, by whom (`lumisite why NAME` says why)"
    for name, variable in found.variables.items():
        if variable.value is not None:
            yield f"  {variable.by:7}  {name}={printable(variable.value)}"
    left = sum(variable.value is None for variable in found.variables.values())
    yield f"  known to the site and not set: {left} (--all says why)"
    yield "\nBinds, by whom"
    for by in dict.fromkeys(bind.by for bind in found.binds):
        specs = (_spec(bind) for bind in found.binds if bind.by == by)
        yield f"  {by:7}  {' '.join(specs)}"


def _everything(found: Environment, reasons: Mapping[str, str]) -> Iterator[str]:
    """Yield each variable and bind with its entry and the reason, also those that are left alone."""
    for title, is_set in (("Variables", True), ("Not set", False)):
        yield f"\n{title}"
        for name, variable in found.variables.items():
            if (variable.value is not None) == is_set:
                yield f"  {name}={printable(variable.value)}" if variable.value is not None else f"  {name}"
                yield _reason(variable.by, variable.entry, reasons[name])
    yield "\nBinds"
    for bind in found.binds:
        yield f"  {_spec(bind)}"
        yield _reason(bind.by, bind.entry, bind.why)


def _spec(bind: StepBind) -> str:
    return bind.source + (f":{bind.target}" if bind.target != bind.source else "")


def _cpus_line(step: Step, cpus: Cpus) -> str:
    if not cpus.mask:
        return f"  {cpus.task}  as Slurm binds  ({_why_cpus(step, cpus)})"
    mask = int(cpus.mask, 16)
    numbers = format_cpu_list(number for number in range(mask.bit_length()) if mask >> number & 1)
    return f"  {cpus.task}  {numbers:17}  {cpus.mask}"


def _reason(by: str, entry: str, why: str) -> str:
    return f"      {by}{f', {entry}' if entry else ''}{f': {why}' if why else ''}"
