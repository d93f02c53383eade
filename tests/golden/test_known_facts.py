"""Which values that do harm to some images reach which image, by how its facts are known: one table for each site.

`pytest tests/golden --update-golden` writes the tables anew.
"""

from __future__ import annotations

import fnmatch
import functools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from lumisite.images.lock import LoadedLock, Lock, LockedImage
from lumisite.render.rank import Step
from lumisite.site.evidence import harms
from lumisite.site.images import family_by_path
from lumisite.site.ledger import Situation, default_family, depends_on_image, judge_conditions
from lumisite.site.load import load_site
from lumisite.site.plans import ImagePlan, LoadedPlan, PlannedContents
from lumisite.site.scalars import Line, Name, VariableName
from lumisite.site.selection import resolve_selection
from lumisite.site.versions import parse_version
from tests.support.made_up_step import Tree, compared, tree_of

HERE = Path(__file__).parent / "known_facts"
SITES = {"lumi": load_site("lumi")}


@dataclass(frozen=True)
class Image:
    """An image by its name, with what is true of it; `folder` is where the site keeps it, if it does.

    `libfabric` is the release of its own; without one its plugin looks for that which the host had until January 2026.
    `level` is what the image itself sets NCCL_NET_GDR_LEVEL to.
    """

    name: str
    rocm: str | None
    plugin: bool | None
    folder: str | None = None
    libfabric: str | None = None
    level: str | None = None


CENTRAL, LAIF = "/appl/local/containers/sif-images", "/appl/local/laifs/containers"
GONE = "/opt/cray/libfabric/1.15.2.0/lib64"
IMAGES = {
    "lumi": (
        # Built for the libfabric that the host had until January 2026: to 2025-03-21.
        Image("lumi-rocm-rocm-5.4.6.sif", "5.4.6", True, CENTRAL),
        Image("lumi-rocm-rocm-6.0.3.sif", "6.0.3", True, CENTRAL),
        Image("lumi-pytorch-rocm-5.5.1-python-3.10-pytorch-v2.0.1.sif", "5.5.1", True, CENTRAL),
        Image("lumi-pytorch-rocm-5.6.1-python-3.10-pytorch-v2.2.0.sif", "5.6.1", True, CENTRAL),
        Image("lumi-pytorch-rocm-5.7.3-python-3.12-pytorch-v2.2.2.sif", "5.7.3", True, CENTRAL),
        Image("lumi-pytorch-rocm-6.0.3-python-3.12-pytorch-v2.3.1.sif", "6.0.3", True, CENTRAL),
        Image("lumi-pytorch-rocm-6.1.3-python-3.12-pytorch-v2.4.1.sif", "6.1.3", True, CENTRAL),
        Image("lumi-pytorch-rocm-6.2.1-python-3.12-pytorch-20240918-vllm-4075b35.sif", "6.2.1", True, CENTRAL),
        Image("lumi-pytorch-rocm-6.2.3-python-3.12-pytorch-v2.5.1.sif", "6.2.3", True, CENTRAL),
        Image("lumi-jax-rocm-6.2.0-python-3.12-jax-0.4.28.sif", "6.2.0", True, CENTRAL),
        Image("lumi-tensorflow-rocm-6.2.0-python-3.10-tensorflow-2.16.1.sif", "6.2.0", True, CENTRAL),
        Image("lumi-mpi4py-rocm-6.2.0-python-3.12-mpi4py-3.1.6.sif", "6.2.0", False, CENTRAL),
        # With a libfabric of their own and what RCCL needs on Slingshot in their environment: from 2025-03-21 on.
        Image("lumi-rocm-rocm-6.2.4.sif", "6.2.4", True, CENTRAL, "2.1.0", "PHB"),
        Image("lumi-pytorch-rocm-6.2.4-python-3.12-pytorch-v2.6.0.sif", "6.2.4", True, CENTRAL, "2.1.0", "PHB"),
        Image("lumi-pytorch-rocm-6.2.4-python-3.12-pytorch-v2.7.0.sif", "6.2.4", True, CENTRAL, "2.1.0", "PHB"),
        Image("lumi-pytorch-rocm-6.2.4-python-3.12-pytorch-v2.7.1.sif", "6.2.4", True, CENTRAL, "2.1.0", "PHB"),
        Image("lumi-jax-rocm-6.2.4-python-3.12-jax-0.4.35.sif", "6.2.4", True, CENTRAL, "2.1.0", "PHB"),
        # LAIF's, of three releases of ROCm.
        Image("lumi-multitorch-full-u24r64f21m43t29-20260124_092648.sif", "6.4.4", True, LAIF, "2.1.0"),
        Image("lumi-multitorch-full-u24r64f21m43t29-20260319_153422.sif", "6.4.4", True, LAIF, "2.1.0"),
        Image("lumi-multitorch-rocm-u24r70f21m50t210-20260807_115122.sif", "7.0.2", False, LAIF),
        Image("lumi-multitorch-libfabric-u24r70f21m50t210-20260807_115122.sif", "7.0.2", False, LAIF, "2.1.0"),
        Image("lumi-multitorch-mpich-u24r70f21m50t210-20260807_115122.sif", "7.0.2", True, LAIF, "2.1.0"),
        Image("lumi-multitorch-full-u24r70f21m50t210-20260415_130625.sif", "7.0.2", True, LAIF, "2.1.0"),
        Image("lumi-multitorch-full-u24r70f21m50t210-20260513_121430.sif", "7.0.2", True, LAIF, "2.1.0"),
        Image("lumi-multitorch-full-u24r70f21m50t210-20260807_115122.sif", "7.0.2", True, LAIF, "2.1.0"),
        Image("lumi-multitorch-full-u24r72f21m50t211-20260929_104918.sif", "7.2.0", True, LAIF, "2.1.0"),
        # No family knows their names: built on an old lumi-rocm image, on a new one, and with what is to come.
        Image("experiment-7.sif", "6.0.3", True),
        Image("experiment-8.sif", "7.0.2", True, None, "2.1.0", "PHB"),
        Image("experiment-9.sif", "7.0.2", True, None, "2.6.0"),
        # Their names tell something else than what is in them.
        Image("lumi-pytorch-rocm-6.0.3-python-3.12-pytorch-v2.9.0.sif", "7.0.2", False),
        Image("lumi-rocm-rocm-6.0.3-mine.sif", "7.2.2", True, None, "2.1.0"),
        Image("lumi-multitorch-full-u24r70-old.sif", "6.1.3", True),
        Image("pytorch-cuda-12.8.sif", None, False),
    ),
}
#: The facts are known from a plan of this very file, from a lock, from a name of the site, from a plan whose pattern fits
#: the name, from another name, or not.
KNOWN = ("plan", "lock", "site's name", "pattern", "other name", "nothing")
#: How facts are known that are no more than a guess.
GUESSES = ("pattern", "other name", "nothing")
OLD, NEW = "lumi-rocm-rocm-6.0.3.sif", "lumi-multitorch-full-u24r70f21m50t210-20260807"
#: A libfabric of 2.5 or newer, or images that choose a monitor by themselves.
UNTRIED_MONITORS = tuple(
    image for image in IMAGES["lumi"] if (image.libfabric or "") >= "2.5" or (image.rocm or "") >= "7.2"
)
RUNS_PROLOG = [(site, known) for site in IMAGES for known in KNOWN]


def harmful_to_some(site: str) -> list[str]:
    """Return the variables of which some entry sets a value that, by the evidence, does harm in some images."""
    described = SITES[site].site
    known = [one for one in harms(described) if depends_on_image(described, one.harmful.when)]
    return sorted(
        {
            one.setting.name
            for one in known
            for setting in described.settings
            if setting.name == one.setting.name and any(fits(pattern, setting.value) for pattern in one.patterns)
        }
    )


def fits(pattern: str, value: str | None) -> bool:
    """Return whether a pattern of harmful values fits; what is worked out on the node has no value yet."""
    return pattern == "*" or (value is not None and fnmatch.fnmatchcase(value, pattern))


def path_of(image: Image, known: str) -> str | None:
    if known == "nothing":
        return "docker://example/image:latest"
    if known == "site's name":
        return None if image.folder is None else f"{image.folder}/{image.name}"
    return f"/scratch/project_1/{image.name}"


def plans_and_lock(site: str, known: str) -> tuple[tuple[LoadedPlan, ...], LoadedLock | None]:
    described = SITES[site].site
    plans, locked = [], {}
    for number, image in enumerate(IMAGES[site]):
        path = path_of(image, known)
        assert path is not None
        family = family_by_path(described, path)
        stacks = {} if image.rocm is None else {"rocm": parse_version(image.rocm)}
        plan = ImagePlan(
            plan="2",
            site=described.name,
            platform=described.platform,
            family=family or default_family(described, stacks),
            paths=(Name(f"*/{image.name}" if known == "pattern" else path),),
            holds=PlannedContents(
                stacks=stacks,
                plugin=image.plugin and image.libfabric is not None,
                libfabric=None if image.libfabric is None else parse_version(image.libfabric),
                sets={VariableName("NCCL_NET_GDR_LEVEL"): Line(image.level)} if image.level else {},
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
            sets={"NCCL_NET_GDR_LEVEL": image.level} if image.level else {},
        )
    if known in ("plan", "pattern"):
        return tuple(plans), None
    lock = Lock(described.name, (), locked)
    return (), LoadedLock(lock, "images.lock", b"") if known == "lock" else None


@functools.cache
def rendered(site: str, known: str) -> tuple[Tree, tuple[LoadedPlan, ...], LoadedLock | None]:
    plans, lock = plans_and_lock(site, known) if known in ("plan", "lock", "pattern") else ((), None)
    return tree_of(SITES[site], resolve_selection(SITES[site].site), plans, lock), plans, lock


@functools.cache
def values(site: str, image: Image, known: str, nodes: int) -> Mapping[str, str | None] | None:
    """Return what the first rank finds; `None` where the site keeps no such image."""
    path = path_of(image, known)
    if path is None:
        return None
    tree, plans, lock = rendered(site, known)
    step = Step(next(iter(SITES[site].site.partitions)), nodes, 1)
    found = compared(tree, str(SITES[site].site.helper_module), step, path, plans, lock).variables
    return {name: one.value for name, one in found.items()}


def harm_done(site: str, image: Image, known: str, given: Mapping[str, str | None], nodes: int) -> Iterator[str]:
    """Yield the variables whose value evidence calls harmful, by what is true of the image."""
    described = SITES[site].site
    stacks = {} if image.rocm is None else {"rocm": parse_version(image.rocm)}
    plugin = image.plugin and image.libfabric is not None
    truth = Situation(described.platform, stacks, None, plugin, nodes="one" if nodes == 1 else "several")
    for harm in harms(described):
        value = given.get(harm.setting.name)
        harmful = value is not None and any(fits(pattern, value) for pattern in harm.patterns)
        if harmful and judge_conditions(harm.harmful.when, truth)[0] is True:
            yield f"{harm.setting.name}={value}"
    if image.libfabric is None and given.get("NCCL_NET"):
        yield "NCCL_NET aborts an image whose libfabric is gone"
    if known not in GUESSES and given.get("FI_MR_CACHE_MONITOR") and image in UNTRIED_MONITORS:
        yield "FI_MR_CACHE_MONITOR was not tried with its libfabric, which ends where it cannot start"


@pytest.mark.parametrize(("site", "known"), RUNS_PROLOG)
@pytest.mark.parametrize("nodes", [1, 2])
def test_no_image_gets_what_some_image_dies_of_unless_that_was_read(site: str, known: str, nodes: int) -> None:
    for image in IMAGES[site]:
        given = values(site, image, known, nodes)
        if given is None:
            continue
        assert not list(harm_done(site, image, known, given, nodes)), image.name
        if known in GUESSES:
            assert not {name: given[name] for name in harmful_to_some(site) if given.get(name)}, image.name


def test_what_was_read_is_given() -> None:
    old, new = (next(one for one in IMAGES["lumi"] if one.name.startswith(name)) for name in (OLD, NEW))
    for known in ("plan", "lock"):
        found_old, found_new = values("lumi", old, known, 2), values("lumi", new, known, 2)
        assert found_old is not None
        assert found_new is not None
        assert (found_old["NCCL_NET_GDR_LEVEL"], found_new["NCCL_NET_GDR_LEVEL"]) == ("PHB", None)
        assert (found_old["NCCL_NET"], found_new["NCCL_NET"]) == (None, "AWS Libfabric")


def table(site: str) -> str:
    names = ["FI_MR_CACHE_MONITOR", *harmful_to_some(site)]
    lines = []
    for image in IMAGES[site]:
        truth = f"ROCm {image.rocm or 'none'}, plugin {'yes' if image.plugin else 'no'}"
        truth += f", libfabric {image.libfabric or 'gone'}" if image.plugin else ""
        truth += f", sets {image.level}" if image.level else ""
        lines.append(f"{image.name} ({truth})")
        for known in KNOWN:
            for nodes in (1, 2):
                given = values(site, image, known, nodes)
                if given is not None:
                    cells = " ".join(f"{name}={given[name]}" for name in names if given.get(name)) or "-"
                    lines.append(f"  {known:12} {nodes} node{'s' * (nodes > 1):2} {cells}")
    return "\n".join(lines).replace("lumisite-1000", "lumisite-UID") + "\n"


@pytest.mark.parametrize("site", SITES)
def test_the_table_is_the_golden_one(site: str, request: pytest.FixtureRequest) -> None:
    path = HERE / f"{site}.txt"
    if request.config.getoption("--update-golden"):
        path.parent.mkdir(exist_ok=True)
        path.write_text(table(site))
    assert table(site) == path.read_text()
