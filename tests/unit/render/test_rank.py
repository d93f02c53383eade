"""What is decided for a rank is what the rendered scripts do: both for every site, shape of a step and kind of image.

A rule that is broken in one of the two is a difference here. `tests/golden/test_images.py` compares the same for
LUMI's own images, by plans, locks and names.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from lumisite.images.lock import LoadedLock, Lock, LockedImage
from lumisite.render.rank_environment import Step
from lumisite.site.load import LoadedSite, load_site, site_of
from lumisite.site.model import Site
from lumisite.site.plans import ImagePlan, LoadedPlan, PlanLine, PlannedContents, PlannedImage
from lumisite.site.scalars import AbsolutePath, Chain, Line, Name, VariableName
from lumisite.site.selection import ALL, resolve_selection
from lumisite.site.versions import parse_version
from tests.support.made_up_step import Tree, compared, tree_of
from tests.support.prologs import EVERY_SHELL

#: Settings of every form, with conditions of every kind, in front of LUMI's own.
SETTINGS = """\
  - {name: ODD_MODULE, value: m, where: singularity-AI-bindings}
  - {name: ODD_BOTH, value: task, when: {nodes: several}}
  - {name: ODD_BOTH, value: m, where: singularity-AI-bindings}
  - {name: ODD_UNSET, unset: yes, when: {nodes: one}}
  - {name: ODD_UNSET, value: m, where: singularity-AI-bindings}
  - {name: ODD_IMAGE, leave: yes, when: {family: [lumi-jax]}}
  - {name: ODD_IMAGE, value: f, when: {family: [laif-multitorch, lumi-pytorch]}}
  - {name: ODD_IMAGE, value: r, when: {stacks: {rocm: '>=6.1,<6.3'}}}
  - {name: ODD_IMAGE, value: z, when: {kind: [lumi-g]}}
  - {name: ODD_LEFT, leave: yes, when: {stacks: {rocm: '>=7'}}}
  - {name: ODD_LEFT, unset: yes, when: {plugin: no}}
  - {name: ODD_LEFT, value: all}
  - {name: ODD_PLUGIN, value: y, when: {plugin: yes, gpus: yes}}
  - {name: ODD_PLUGIN, value: n, when: {plugin: no, gpus: yes}}
  - {name: ODD_LIBFABRIC, leave: yes, when: {libfabric: '>=2.5'}}
  - {name: ODD_LIBFABRIC, value: x}
  - {name: ODD_HARM, value: bad, when: {nodes: several, stacks: {rocm: '>=6'}}}
  - {name: ODD_HARM, value: good, harmful: [{value: bad, when: {stacks: {rocm: '<6'}}}]}
  - {name: ODD_CPE, value: new, when: {stacks: {cpe: '>=25.09'}}}
  - {name: ODD_CPE, value: old, when: {platform: ['2026-01']}}
  - {name: ODD_DIRECTORY, directory: 'odd/{rank}', when: {family: [laif-multitorch]}}
  - {name: ODD_KIND, value: c, when: {kind: [lumi-c]}}
  - {name: ODD_KIND, value: g, when: {kind: [lumi-g]}}
"""
PARTITIONS = """\
partitions:
  mixed: {node_kind: lumi-g, whole_nodes: no, source: here}
"""
STORE = "/images/store/lumi-pytorch-rocm-6.2.4-python-3.12-pytorch-v2.7.1.sif"


def odd() -> LoadedSite:
    text = load_site("lumi").data.decode()
    entries = SETTINGS.replace("}\n", ", why: it is tried, source: here}\n")
    for old, new in (
        ("\nsettings:\n", f"\nsettings:\n{entries}"),
        ("\npartitions:\n", f"\n{PARTITIONS}"),
    ):
        assert old in text
        text = text.replace(old, new, 1)
    return site_of(text.encode(), Path("odd.yaml"))


def firth() -> LoadedSite:
    return load_site(str(Path(__file__).parents[2] / "golden/sites/firth.yaml"))


SITES: dict[str, Callable[[], LoadedSite]] = {
    **{name: functools.partial(load_site, name) for name in ("lumi", "twin", "university")},
    "firth": firth,
    "odd": odd,
}


def plan(loaded: LoadedSite, paths: list[str], image: PlannedImage | None = None) -> LoadedPlan:
    """Return a plan that binds a library, leaves out one that a module binds, and knows a release."""
    site = loaded.site
    family = list(site.families)[-1]
    bound = [bind.path for bind in site.binds if bind.where in site.modules]
    lines = [
        PlanLine(
            library=Line("libx.so.1"),
            decision="bind",
            source=AbsolutePath("/usr/lib64/libx.so.1"),
            target=AbsolutePath("/host/libx.so.1"),
            reason=Line("new"),
            chain=Chain(()),
        )
    ]
    lines += [
        PlanLine(library=Line("liby.so.1"), decision="skip", without=path, reason=Line("own"), chain=Chain(()))
        for path in bound[-1:]
    ]
    contents = PlannedContents(
        stacks={} if site.gpu_stack is None else {site.gpu_stack: parse_version("6.2.4")},
        plugin=True,
        libfabric=parse_version("2.6.0"),
        sets={VariableName("NCCL_CROSS_NIC"): Line("0")},
    )
    made = ImagePlan(
        plan="2",
        site=Name(site.name),
        platform=site.platform,
        family=family,
        paths=tuple(map(Name, paths)),
        image=image,
        holds=contents,
        lines=tuple(lines),
        library_path=(AbsolutePath("/host"),),
    )
    return LoadedPlan(made, "plan.yaml", b"")


def images(loaded: LoadedSite) -> Iterator[str]:
    """Yield a name that no family knows, an address, and names of some families, in and outside the site's folders."""
    site = loaded.site
    yield from ("/scratch/me/mine.sif", "docker://rocm/pytorch:latest")
    folders = site.images.folders if site.images is not None else ()
    for family in site.families.values():
        if family.paths:
            name = family.paths[0].replace("[0-9]", "2").replace("*", "x").replace("?", "y").rpartition("/")[2]
            yield from (f"{folder.path}/{name}" for folder in folders[:1])
            yield f"/scratch/me/{name}"


def helper(site: Site) -> str:
    return next(name for name, module in site.modules.items() if module.helper)


@functools.cache
def tree(name: str, *, everything: bool = False) -> Tree:
    loaded = SITES[name]()
    requests = {str(stack): [ALL] for stack in loaded.site.stacks} if everything else {}
    return tree_of(loaded, resolve_selection(loaded.site, platform=None, **requests))


def first_partitions(site: Site) -> list[str]:
    """Return one partition for each kind of node that has some."""
    return list({partition.node_kind: name for name, partition in reversed(list(site.partitions.items()))}.values())


@pytest.mark.parametrize("nodes", [1, 2])
@pytest.mark.parametrize("name", SITES)
def test_every_step_and_image_gets_what_is_decided(name: str, nodes: int) -> None:
    rendered, site = tree(name), tree(name).site
    for partition in site.partitions:
        compared(rendered, helper(site), Step(partition, nodes, 1), None)
    for partition in first_partitions(site) if name != "lumi" else ():
        for image in images(SITES[name]()):
            compared(rendered, helper(site), Step(partition, nodes, 1), image)


@pytest.mark.parametrize("shell", [shell for shell in EVERY_SHELL if shell != "dash"])
def test_every_shell_does_the_same(shell: str) -> None:
    rendered, site = tree("odd"), tree("odd").site
    for image in (None, *images(odd())):
        compared(rendered, helper(site), Step(next(iter(site.partitions)), 2, 1), image, shell=shell)


@pytest.mark.parametrize("name", [name for name in SITES if name != "odd"])
def test_masks_are_those_that_the_prolog_sets(name: str) -> None:
    for partition in first_partitions(tree(name).site):
        for tasks in (1, 3, 4, 8, 16):
            compared(tree(name), "", Step(partition, 1, tasks), None)


@pytest.mark.parametrize("name", ["firth", "odd", "twin", "university"])
def test_other_modules_and_none(name: str) -> None:
    site, everything = tree(name).site, tree(name, everything=True)
    names = {plan.name: plan.full_name for plan in everything.plans}
    some = list(images(SITES[name]()))[1:4]
    for module in ("", *names.values(), everything.plans[0].full_name):
        for image in (None, *some):
            compared(everything, module, Step(next(iter(site.partitions)), 2, 1), image)


@pytest.mark.parametrize("name", ["twin", "odd"])
def test_what_a_plan_or_a_lock_knows_counts(name: str, tmp_path: Path) -> None:
    loaded = SITES[name]()
    site = loaded.site
    (tmp_path / "planned.sif").touch()
    (tmp_path / "other.sif").touch()
    links = {"same.sif": "planned.sif", "moved.sif": "other.sif", "broken.sif": "gone.sif"}
    for link, target in links.items():
        (tmp_path / link).symlink_to(tmp_path / target)
    names = [f"{tmp_path}/{link}" for link in links]
    image = PlannedImage(
        bytes=1, digest=Line(f"header:{'0' * 64}"), file=Name(f"{tmp_path}/planned.sif"), names=tuple(map(Name, names))
    )
    plans = [plan(loaded, [*names, "/scratch/me/exact.sif", "*/pattern-*.sif"], image)]
    locked = {
        STORE: LockedImage(
            versions={"rocm": "6.2.4", "glibc": "2.39", "ofi_plugin": "1", "libfabric": "2.6.0"},
            libfabric="/opt/lib/libfabric.so.1",
            sets={"NCCL_CROSS_NIC": "0"},
        ),
        "/scratch/me/seen.sif": LockedImage(family=next(iter(site.families)), versions={"rocm": "7.0.2"}),
        "/scratch/me/bad.sif": LockedImage(fault="file-unreadable", versions={"rocm": "7.0.2"}),
    }
    lock = LoadedLock(Lock(site.name, (), locked), "images.lock", b"")
    rendered = tree_of(loaded, resolve_selection(site), plans, lock)
    others = ["/scratch/me/exact.sif", "/scratch/me/pattern-1.sif", *locked]
    for partition, module in ((next(iter(site.partitions)), helper(site)), (list(site.partitions)[-1], "")):
        for path in (*names, f"{tmp_path}/planned.sif", *others):
            compared(rendered, module, Step(partition, 2, 1), path, plans, lock)
