"""What a rank finds on LUMI, image by image, through the rendered prolog and wrapper: tables for a person to review.

`environments/` has all of it, for the images that families know. `known_facts/` has the values that do harm to some
images, by how the facts of an image are known: they reach only those of which that was read.
"""

from __future__ import annotations

import fnmatch
import functools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from lumisite.images.lock import LoadedLock, Lock, LockedImage
from lumisite.render.rank_environment import Environment, Step
from lumisite.site.harmful_values import harms
from lumisite.site.images import family_by_path
from lumisite.site.ledger import Situation, default_family, depends_on_image, judge_conditions
from lumisite.site.load import load_site
from lumisite.site.plans import ImagePlan, LoadedPlan, PlannedContents
from lumisite.site.scalars import Line, Name, VariableName
from lumisite.site.selection import resolve_selection
from lumisite.site.versions import parse_version
from tests.support.golden import check_golden
from tests.support.made_up_step import Tree, compared, tree_of

HERE = Path(__file__).parent
LUMI = load_site("lumi")
SITE = LUMI.site
CENTRAL, LAIF = "/appl/local/containers/sif-images", "/appl/local/laifs/containers"
LEVEL, NET, MONITOR = "NCCL_NET_GDR_LEVEL", "NCCL_NET", "FI_MR_CACHE_MONITOR"


@functools.cache
def rendered(known: str = "") -> tuple[Tree, tuple[LoadedPlan, ...], LoadedLock | None]:
    plans, lock = plans_and_lock(known) if known in ("plan", "lock", "pattern") else ((), None)
    return tree_of(LUMI, resolve_selection(SITE), plans, lock), plans, lock


def found(path: str | None, step: Step, known: str = "") -> Environment:
    tree, plans, lock = rendered(known)
    return compared(tree, str(SITE.helper_module), step, path, plans, lock)


# ---- all that a rank finds

NAMED = {
    "laif-rocm": f"{LAIF}/a/lumi-multitorch-rocm-u24r64f21m43t29-20260319_153422.sif",
    "laif-libfabric": f"{LAIF}/a/lumi-multitorch-libfabric-u24r64f21m43t29-20260319_153422.sif",
    "laif-mpich": f"{LAIF}/a/lumi-multitorch-mpich-u24r64f21m43t29-20260319_153422.sif",
    "laif-r64": f"{LAIF}/a/lumi-multitorch-full-u24r64f21m43t29-20260319_153422.sif",
    "laif-rocm70": f"{LAIF}/b/lumi-multitorch-full-u24r70f21m50t210-20260807_115122.sif",
    "laif-rocm72": f"{LAIF}/c/lumi-multitorch-full-u24r72f21m50t211-20260929_104918.sif",
    "laif-latest": f"{LAIF}/lumi-multitorch-latest.sif",
    "laif-copy": "/scratch/project_1/lumi-multitorch-full-u24r70f21m50t210-20260807_115122.sif",
    "easybuild": "/appl/local/containers/easybuild-sif-images/lumi-pytorch-rocm-6.2.4-x.sif",
    "lumi-pytorch": f"{CENTRAL}/lumi-pytorch-rocm-6.2.4-python-3.12-pytorch-v2.7.1.sif",
    "lumi-pytorch-conda": f"{CENTRAL}/lumi-pytorch-rocm-6.1.3-python-3.12-pytorch-v2.4.1.sif",
    "lumi-jax": f"{CENTRAL}/lumi-jax-rocm-6.2.0-python-3.12-jax-0.4.28.sif",
    "lumi-tensorflow": f"{CENTRAL}/lumi-tensorflow-rocm-6.2.0-python-3.10-tensorflow-2.16.1.sif",
    "lumi-mpi4py": f"{CENTRAL}/lumi-mpi4py-rocm-6.2.0-python-3.12-mpi4py-3.1.6.sif",
    "lumi-rocm": f"{CENTRAL}/lumi-rocm-rocm-6.0.3.sif",
    "cotainr": "/scratch/project_1/my-environment.sif",
    "unknown": "docker://rocm/pytorch:latest",
    "tykky-through-the-wrapper": "/projappl/project_1/env/container.sif",
    "tykky-and-all-past-the-wrapper": None,
}
STEPS = {
    f"{nodes} node{'s' * (nodes > 1)}, {what}": Step(partition, nodes, 1)
    for what, partition in (("GPUs", "standard-g"), ("CPUs", "standard"))
    for nodes in (1, 2)
}


@pytest.mark.parametrize("name", NAMED)
def test_what_a_rank_finds_is_the_golden_table(name: str, request: pytest.FixtureRequest) -> None:
    columns = {title: found(NAMED[name], step) for title, step in STEPS.items()}
    values = [{variable: one.value for variable, one in column.variables.items()} for column in columns.values()]
    own = ("LUMISITE_", "PATH", "SLURM_TASK_PROLOG", "SINGULARITY_BINDPATH")
    known = sorted({variable for one in values for variable in one if not variable.startswith(own)})
    is_set = [variable for variable in known if any(one.get(variable) is not None for one in values)]
    binds = [{bind.target: bind.by for bind in column.binds} for column in columns.values()]
    rows = [("", *columns)]
    rows += [(variable, *(one.get(variable) or "-" for one in values)) for variable in is_set]
    rows += [
        (path, *(one.get(path, "-") for one in binds)) for path in dict.fromkeys(path for one in binds for path in one)
    ]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    never = " ".join(variable for variable in known if variable not in is_set)
    title = NAMED[name] or "a runtime that is called past the wrapper"
    text = "\n".join([f"# {title}", *lines, f"never set: {never}"]) + "\n"
    check_golden(request, HERE / f"environments/{name}.txt", text.replace("lumisite-1000", "lumisite-UID"))


def test_every_family_has_a_table_and_no_table_is_left_over() -> None:
    assert set(SITE.families) - {"laif-multitorch", "tykky"} <= set(NAMED)
    assert {path.stem for path in (HERE / "environments").iterdir()} == set(NAMED)


# ---- which values reach an image by how its facts are known


@dataclass(frozen=True)
class Image:
    """An image by its name, with what is true of it; `folder` is where the site keeps it, if it does.

    `libfabric` is the release of its own; without one its plugin looks for that which the host had until January 2026.
    `level` is what the image itself sets NCCL_NET_GDR_LEVEL to.
    """

    name: str
    rocm: str | None
    plugin: bool
    folder: str | None = None
    libfabric: str | None = None
    level: str | None = None


GONE = "/opt/cray/libfabric/1.15.2.0/lib64"
IMAGES = (
    # Built for the libfabric that the host had until January 2026: to 2025-03-21.
    Image("lumi-rocm-rocm-5.4.6.sif", "5.4.6", True, CENTRAL),
    Image("lumi-pytorch-rocm-6.0.3-python-3.12-pytorch-v2.3.1.sif", "6.0.3", True, CENTRAL),
    Image("lumi-pytorch-rocm-6.1.3-python-3.12-pytorch-v2.4.1.sif", "6.1.3", True, CENTRAL),
    Image("lumi-jax-rocm-6.2.0-python-3.12-jax-0.4.28.sif", "6.2.0", True, CENTRAL),
    Image("lumi-mpi4py-rocm-6.2.0-python-3.12-mpi4py-3.1.6.sif", "6.2.0", False, CENTRAL),
    # With a libfabric of their own and what RCCL needs on Slingshot in their environment: from 2025-03-21 on.
    Image("lumi-rocm-rocm-6.2.4.sif", "6.2.4", True, CENTRAL, "2.1.0", "PHB"),
    Image("lumi-pytorch-rocm-6.2.4-python-3.12-pytorch-v2.7.1.sif", "6.2.4", True, CENTRAL, "2.1.0", "PHB"),
    # LAIF's, of three releases of ROCm.
    Image("lumi-multitorch-full-u24r64f21m43t29-20260319_153422.sif", "6.4.4", True, LAIF, "2.1.0"),
    Image("lumi-multitorch-rocm-u24r70f21m50t210-20260807_115122.sif", "7.0.2", False, LAIF),
    Image("lumi-multitorch-full-u24r70f21m50t210-20260807_115122.sif", "7.0.2", True, LAIF, "2.1.0"),
    Image("lumi-multitorch-full-u24r72f21m50t211-20260929_104918.sif", "7.2.0", True, LAIF, "2.1.0"),
    # No family knows their names: built on an old lumi-rocm image, on a new one, and with what is to come.
    Image("experiment-7.sif", "6.0.3", True),
    Image("experiment-8.sif", "7.0.2", True, None, "2.1.0", "PHB"),
    Image("experiment-9.sif", "7.0.2", True, None, "2.6.0"),
    # Their names say something else than what is in them.
    Image("lumi-pytorch-rocm-6.0.3-python-3.12-pytorch-v2.9.0.sif", "7.0.2", False),
    Image("lumi-rocm-rocm-6.0.3-mine.sif", "7.2.2", True, None, "2.1.0"),
    Image("lumi-multitorch-full-u24r70-old.sif", "6.1.3", True),
    Image("pytorch-cuda-12.8.sif", None, False),
)
#: The facts are known from a plan of this very file, from a lock, from a name of the site, from a plan whose pattern fits
#: the name, from another name, or not. The last three are no more than a guess.
KNOWN = ("plan", "lock", "site name", "pattern", "other name", "nothing")
GUESSES = KNOWN[3:]


@pytest.mark.parametrize(("known", "nodes"), [*((known, 2) for known in KNOWN), ("lock", 1)])
def test_no_image_gets_what_some_image_dies_of_unless_that_was_read(
    known: str, nodes: int, request: pytest.FixtureRequest
) -> None:
    harmful_to_some, lines = set(harmful_names()), []
    for image in IMAGES:
        path = path_of(image, known)
        if path is None:
            continue
        step = Step(next(iter(SITE.partitions)), nodes, 1)
        given = {name: one.value for name, one in found(path, step, known).variables.items() if one.value}
        assert not list(harm_done(image, known, given, nodes)), image.name
        assert known not in GUESSES or not harmful_to_some & set(given), image.name
        facts = [f"ROCm {image.rocm or 'none'}", f"plugin {'yes' if image.plugin else 'no'}"]
        facts += [f"libfabric {image.libfabric or 'gone'}"] if image.plugin else []
        facts += [f"sets {image.level}"] if image.level else []
        values = " ".join(f"{name}={given[name]}" for name in (MONITOR, *sorted(harmful_to_some)) if name in given)
        lines.append(f"{image.name} ({', '.join(facts)}): {values or '-'}\n")
    text = "".join(lines).replace("lumisite-1000", "lumisite-UID")
    check_golden(request, HERE / f"known_facts/{known.replace(' ', '-')}-{nodes}.txt", text)


def harmful_names() -> Iterator[str]:
    """Yield the variables of which some entry sets a value that, by the evidence, does harm in some images."""
    for harm in harms(SITE):
        if depends_on_image(SITE, harm.harmful.when):
            values = [setting.value for setting in SITE.settings if setting.name == harm.setting.name]
            if any(fits(pattern, value) for pattern in harm.patterns for value in values):
                yield harm.setting.name


def fits(pattern: str, value: str | None) -> bool:
    """Return whether a pattern of harmful values fits; what is worked out on the node has no value yet."""
    return pattern == "*" or (value is not None and fnmatch.fnmatchcase(value, pattern))


def harm_done(image: Image, known: str, given: Mapping[str, str], nodes: int) -> Iterator[str]:
    """Yield the variables whose value evidence calls harmful, by what is true of the image."""
    stacks = {} if image.rocm is None else {"rocm": parse_version(image.rocm)}
    plugin = image.plugin and image.libfabric is not None
    truth = Situation(SITE.platform, stacks, None, plugin, nodes="one" if nodes == 1 else "several")
    for harm in harms(SITE):
        value = given.get(harm.setting.name)
        harmful = value is not None and any(fits(pattern, value) for pattern in harm.patterns)
        if harmful and judge_conditions(harm.harmful.when, truth)[0] is True:
            yield f"{harm.setting.name}={value}"
    if image.libfabric is None and NET in given:
        yield "NCCL_NET aborts an image whose libfabric is gone"
    if known not in GUESSES and MONITOR in given and ((image.libfabric or "") >= "2.5" or (image.rocm or "") >= "7.2"):
        yield "FI_MR_CACHE_MONITOR was not tried with its libfabric, which ends where it cannot start"


def path_of(image: Image, known: str) -> str | None:
    if known == "nothing":
        return "docker://example/image:latest"
    if known == "site name":
        return None if image.folder is None else f"{image.folder}/{image.name}"
    return f"/scratch/project_1/{image.name}"


def plans_and_lock(known: str) -> tuple[tuple[LoadedPlan, ...], LoadedLock | None]:
    plans, locked = [], {}
    for number, image in enumerate(IMAGES):
        path = str(path_of(image, known))
        family = family_by_path(SITE, path)
        stacks = {} if image.rocm is None else {"rocm": parse_version(image.rocm)}
        plan = ImagePlan(
            plan="2",
            site=SITE.name,
            platform=SITE.platform,
            family=family or default_family(SITE, stacks),
            paths=(Name(f"*/{image.name}" if known == "pattern" else path),),
            holds=PlannedContents(
                stacks=stacks,
                plugin=image.plugin and image.libfabric is not None,
                libfabric=None if image.libfabric is None else parse_version(image.libfabric),
                sets={VariableName(LEVEL): Line(image.level)} if image.level else {},
            ),
        )
        plans.append(LoadedPlan(plan, f"plan-{number}.yaml", b""))
        versions = {"glibc": "2.39"} | {name: str(version) for name, version in stacks.items()}
        versions |= {"ofi_plugin": "1"} if image.plugin else {}
        versions |= {"libfabric": image.libfabric} if image.libfabric else {}
        locked[path] = LockedImage(
            family=family,
            versions=versions,
            libfabric="/opt/libfabric/lib/libfabric.so.1" if image.libfabric else None,
            libfabric_folders=() if image.libfabric else (GONE,),
            sets={LEVEL: image.level} if image.level else {},
        )
    if known == "lock":
        return (), LoadedLock(Lock(SITE.name, (), locked), "images.lock", b"")
    return tuple(plans), None
