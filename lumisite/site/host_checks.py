"""Rules for what a description has of the host: node kinds, file systems, runtimes, library directories."""

from __future__ import annotations

import posixpath
from collections.abc import Collection
from itertools import combinations

from lumisite.findings.catalogue import make_finding
from lumisite.site.decode import Faults, Rule, unknown
from lumisite.site.kinds import fingerprint_of
from lumisite.site.library_path import folders_inside
from lumisite.site.model import Site
from lumisite.site.nodes import DescribedGpu, NodeKind
from lumisite.site.scalars import TASK

#: Node kinds that the helper tells apart on the nodes of one partition: each is compared with each.
MOST_KINDS = 16


def node_kinds_add_up(site: Site) -> Faults:
    """Cores belong to one L3 group, siblings pair up, and GPUs are near something that the node has."""
    for name, kind in site.node_kinds.items():
        path = f"node_kinds.{name}"
        yield from _cpu_faults(path, kind)
        domains = {group.numa for group in kind.l3}
        domains_of = {"gpus": [gpu.numa for gpu in kind.gpus], "nics": [nic.numa for nic in kind.nics]}
        for key, numbers in domains_of.items():
            for index, numa in enumerate(numbers):
                yield from unknown(f"{path}.{key}[{index}].numa", [str(numa)], map(str, sorted(domains)))
        for index, gpu in enumerate(kind.gpus):
            yield from _gpu_faults(f"{path}.gpus[{index}]", kind, gpu, site.fabric_of(name).adapters)


def _cpu_faults(path: str, kind: NodeKind) -> Faults:
    seen: set[int] = set()
    for index, group in enumerate(kind.l3):
        cores, siblings = group.cores, group.siblings or ()
        if siblings and len(siblings) != len(cores):
            yield make_finding("wrong-count", f"{path}.l3[{index}].siblings", actual=len(siblings), expected=len(cores))
        repeated = seen.intersection(cores + siblings) | set(cores).intersection(siblings)
        if repeated:
            yield make_finding("named-twice", f"{path}.l3[{index}].cores", name=min(repeated))
        seen.update(cores + siblings)
    unknown_cpus = [str(cpu) for cpu in kind.reserved or () if cpu not in seen]
    yield from unknown(f"{path}.reserved", unknown_cpus, map(str, sorted(seen)))


def _gpu_faults(path: str, kind: NodeKind, gpu: DescribedGpu, adapters: Collection[str]) -> Faults:
    if gpu.adapter is not None:
        yield from unknown(f"{path}.adapter", [gpu.adapter], adapters)
    if gpu.l3 is None:
        return
    if gpu.l3 >= len(kind.l3):
        yield make_finding("value-out-of-range", f"{path}.l3", value=gpu.l3, most=len(kind.l3) - 1)
    elif kind.l3[gpu.l3].cache is not None:
        yield make_finding("l3-shared", f"{path}.l3", l3=gpu.l3)
    elif kind.l3[gpu.l3].numa != gpu.numa:
        yield make_finding("numa-mismatch", f"{path}.numa", l3=gpu.l3, numa=kind.l3[gpu.l3].numa)


def partitions_have_distinct_kinds(site: Site) -> Faults:
    """Kinds with GPUs of one partition have different numbers of them, by which the prolog tells them apart.

    A partition that is validated has nodes of one kind: results differ by kind.
    """
    plan = site.validation
    if plan is not None and len(kinds := site.partitions[plan.partition].node_kind) > 1:
        yield make_finding("validation-of-several-kinds", "validation.partition", partition=plan.partition, kinds=kinds)
    for name, partition in site.partitions.items():
        path, kinds = f"partitions.{name}.node_kind", partition.node_kind
        if len(kinds) > MOST_KINDS:
            yield make_finding("value-out-of-range", path, value=len(kinds), most=MOST_KINDS)
            continue
        for first, second in combinations(range(len(kinds)), 2):
            kind, other = kinds[second], kinds[first]
            if kind == other:
                yield make_finding("named-twice", f"{path}[{second}]", name=kind)
                continue
            gpus = fingerprint_of(site, kind).gpus
            if site.node_kinds[kind].gpus and gpus == fingerprint_of(site, other).gpus:
                yield make_finding("kinds-not-distinct", f"{path}[{second}]", kind=kind, other=other, gpus=gpus)


def libraries_are_bound(site: Site) -> Faults:
    """Families name libraries that platforms have, below a path that one of their modules binds.

    The container wrapper (Tykky) binds all of the host by itself.
    """
    for name, family in site.families.items():
        path = f"families.{name}.library_path"
        for platform in site.platforms.values():
            yield from unknown(path, family.library_path, platform.libraries)
        if family.activation != "tykky":
            for index, library in enumerate(family.library_path):
                yield from _unbound(site, name, f"{path}[{index}]", library)


def _unbound(site: Site, family: str, path: str, library: str) -> Faults:
    for name, platform in site.platforms.items():
        if library not in platform.libraries:
            continue
        folder = platform.libraries[library]
        if not folders_inside(site, name, family, f"{folder}/lib64"):
            yield make_finding(
                "library-unbound",
                path,
                path=f"{folder}/lib64",
                platform=name,
                modules=site.families[family].modules,
                parent=posixpath.dirname(folder),
            )


def private_folders_have_a_place(site: Site) -> Faults:
    """The folders of jobs are in their file systems, and settings that name a directory have a place for it."""
    for index, file_system in enumerate(site.file_systems):
        folder = file_system.job_folder or ""
        if folder.startswith("/") and not folder.startswith(f"{file_system.path.rstrip('/')}/"):
            path = f"file_systems[{index}].job_folder"
            yield make_finding("folder-outside", path, folder=folder, path=file_system.path)
    local = tuple(system.path for system in site.file_systems if system.kind == "node-local") or ("a node-local one",)
    for index, setting in enumerate(() if site.private_places else site.settings):
        if setting.directory is not None and setting.where == TASK:
            path = f"settings[{index}].directory"
            yield make_finding("no-private-directory", path, name=setting.name, file_systems=local)


HOST_RULES: tuple[Rule, ...] = (
    node_kinds_add_up,
    partitions_have_distinct_kinds,
    libraries_are_bound,
    private_folders_have_a_place,
)
