"""What the site description rules out: sizes beyond a partition, and partitions, accounts and paths of other sites."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from fnmatch import fnmatchcase
from typing import TypeVar

from lumisite.lint.job import BadLine, Job, bad_line
from lumisite.lint.options import SrunStep
from lumisite.lint.script import with_lines
from lumisite.machine.tree import is_under
from lumisite.site.model import Partition, Site
from lumisite.text import minutes_of, nearest_name

T = TypeVar("T")

_GPUS = re.compile(r"(?:gpu:)?(?:([A-Za-z][\w-]*):)?\d+")
_PATH = re.compile(r"(?<![\w:/.~}$)-])/[\w.-]+(?:/[\w.-]+)*")
#: What stands for an account in examples.
_PLACEHOLDER = re.compile(r"x{3}|y{3}|your|my|name|<|\$|0{6}|12345|id\b", re.IGNORECASE)


def _limits(job: Job, of: Callable[[Partition], T | None]) -> Iterator[tuple[SrunStep, list[T]]]:
    """Yield the allocation and each step, with the limits of their partitions, where all of them have one."""
    for step in job.requests:
        names = step.partitions(job.site)
        limits = [of(job.site.partitions[name]) for name in names if name in job.site.partitions]
        known = [limit for limit in limits if limit is not None]
        if names and len(known) == len(names):
            yield step, known


def too_many_nodes(job: Job) -> Iterator[BadLine]:
    """More nodes than a job can have in any of its partitions."""
    for step, limits in _limits(job, lambda partition: partition.max_nodes):
        option = step.merged.get("nodes") or step.merged.get("ntasks")
        if option and step.nodes and step.nodes > max(limits):
            yield bad_line(option.line, f"--{option.name}", nodes=step.nodes, most=max(limits))


def too_long(job: Job) -> Iterator[BadLine]:
    """More time than a job can have in any of its partitions."""
    for step, limits in _limits(job, lambda partition: partition.max_time):
        option, most = step.merged.get("time"), max(limits, key=minutes_of)
        if option and 0 < minutes_of(most) < minutes_of(option.value):
            yield bad_line(option.line, "--time", time=option.value, most=most)


def too_many_gpus(job: Job) -> Iterator[BadLine]:
    """More GPUs than a node has, or GPUs of a type that it does not have, where the site describes any."""
    described = any(kind.gpus for kind in job.site.node_kinds.values())
    for step in job.requests if described else ():
        kinds = step.node_kinds(job.site)
        names = ("gpus-per-node", "gres", *(("gpus",) if step.number("nodes") else ()))
        option = next((step.merged[name] for name in names if name in step.merged), None)
        found = _GPUS.fullmatch(option.value) if option else None
        if not kinds or option is None or found is None:
            continue
        gpus, most = step.gpus_per_node or 0, max(len(kind.gpus) for kind in kinds)
        types = tuple({kind.gpu_type: None for kind in kinds})
        if gpus > most:
            yield bad_line(option.line, f"--{option.name}", gpus=gpus, most=most)
        elif found[1] and None not in types and found[1] not in types:
            yield bad_line(option.line, f"--{option.name}", type=found[1], expected=tuple(map(str, types)))


def unknown_partition(job: Job) -> Iterator[BadLine]:
    """A partition whose name is almost one of this site."""
    site = job.site
    known = (*site.partitions, *site.other_partitions)
    steps = {name: step for step in job.requests for name in step.partitions(site) if name[0].isalpha()}
    for name, step in steps.items():
        option = step.merged.get("partition")
        near = nearest_name(name.lower().replace("_", "-"), known, 0.8)
        if option and name not in known and near:
            yield bad_line(option.line, name, near=near)


def _is_account(text: str, site: Site) -> bool:
    return any(fnmatchcase(text.lower(), pattern.lower()) for pattern in site.accounts) and not _PLACEHOLDER.search(
        text
    )


def _is_foreign(account: str, site: Site) -> bool:
    """Return whether a text is an account, with a number, and none of this site."""
    account_like = re.fullmatch(r"[\w-]*\d{3}[\w-]*", account) and not _PLACEHOLDER.search(account)
    return bool(site.accounts and account_like) and not _is_account(account, site)


def _stem(site: Site) -> str:
    """Return how accounts begin, up to the first digit or wildcard."""
    found = re.match(r"[A-Za-z_-]*", site.accounts[0] if site.accounts else "")
    return found[0] if found else ""


def other_account(job: Job) -> Iterator[BadLine]:
    """An account that is none of this site."""
    for step in job.requests:
        option = step.merged.get("account")
        if option and _is_foreign(option.value, job.site):
            near = f"{_stem(job.site)}{option.value}"
            expected = near if _is_account(near, job.site) else job.site.accounts[0].replace("*", "…")
            yield bad_line(option.line, option.value, expected=expected)


def other_path(job: Job) -> Iterator[BadLine]:
    """A path of an account of another site, or with a name that is almost right."""
    site, stem = job.site, _stem(job.site)
    ours = tuple(system.path for system in site.file_systems)
    for word in job.words:
        for found in _PATH.finditer(word.value):
            path, line = found[0], word.line + word.value.count("\n", 0, found.start())
            top, _, rest = path[1:].partition("/")
            account = rest.partition("/")[0]
            owned = bool(stem) and account.startswith(stem)
            if any(is_under(path, system) for system in ours):
                if owned and _is_foreign(account, site):
                    yield bad_line(line, path, account=account, expected=site.accounts[0].replace("*", "…"))
            elif owned and (near := nearest_name(f"/{top}", ours, 0.7)):
                yield bad_line(line, path, near=near)


def old_library(job: Job) -> Iterator[BadLine]:
    """The directory of a library in another version than the host has."""
    for library in job.site.platforms[job.site.platform].libraries.values():
        folder, _, version = library.rpartition("/")
        pinned = re.compile(rf"{re.escape(folder)}/(\d[\w.]*)")
        for word in job.words:
            for found, line in with_lines(pinned, word.raw, word.line):
                if found[1].rstrip(".") != version:
                    yield bad_line(line, found[0], library=library, module=job.site.helper_module)
