"""What a rank finds on LUMI, image by image, through the rendered prolog and wrapper: a table for a person to review.

`pytest tests/golden --update-golden` writes the tables anew.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from pathlib import Path

import pytest

from lumisite.render.rank import Environment, Step
from lumisite.site.load import load_site
from lumisite.site.selection import resolve_selection
from tests.support.made_up_step import Tree, compared, tree_of

HERE = Path(__file__).parent / "environments"
LUMI = load_site("lumi")
CENTRAL = "/appl/local/containers/sif-images"
LAIF = "/appl/local/laifs/containers"

#: Images with what is true of them: their ROCm release. `None`: anything may be.
IMAGES: dict[str, tuple[str | None, tuple[int, int] | None]] = {
    "laif-rocm": (f"{LAIF}/a/lumi-multitorch-rocm-u24r64f21m43t29-20260319_153422.sif", (6, 4)),
    "laif-libfabric": (f"{LAIF}/a/lumi-multitorch-libfabric-u24r64f21m43t29-20260319_153422.sif", (6, 4)),
    "laif-mpich": (f"{LAIF}/a/lumi-multitorch-mpich-u24r64f21m43t29-20260319_153422.sif", (6, 4)),
    "laif-r64": (f"{LAIF}/a/lumi-multitorch-full-u24r64f21m43t29-20260319_153422.sif", (6, 4)),
    "laif-rocm70": (f"{LAIF}/b/lumi-multitorch-full-u24r70f21m50t210-20260807_115122.sif", (7, 0)),
    "laif-rocm72": (f"{LAIF}/c/lumi-multitorch-full-u24r72f21m50t211-20260929_104918.sif", (7, 2)),
    "laif-latest": (f"{LAIF}/lumi-multitorch-latest.sif", (7, 2)),
    "laif-copy": ("/scratch/project_1/lumi-multitorch-full-u24r70f21m50t210-20260807_115122.sif", (7, 0)),
    "easybuild": ("/appl/local/containers/easybuild-sif-images/lumi-pytorch-rocm-6.2.4-x.sif", (6, 2)),
    "lumi-pytorch": (f"{CENTRAL}/lumi-pytorch-rocm-6.2.4-python-3.12-pytorch-v2.7.1.sif", (6, 2)),
    "lumi-pytorch-conda": (f"{CENTRAL}/lumi-pytorch-rocm-6.1.3-python-3.12-pytorch-v2.4.1.sif", (6, 1)),
    "lumi-jax": (f"{CENTRAL}/lumi-jax-rocm-6.2.0-python-3.12-jax-0.4.28.sif", (6, 2)),
    "lumi-tensorflow": (f"{CENTRAL}/lumi-tensorflow-rocm-6.2.0-python-3.10-tensorflow-2.16.1.sif", (6, 2)),
    "lumi-mpi4py": (f"{CENTRAL}/lumi-mpi4py-rocm-6.2.0-python-3.12-mpi4py-3.1.6.sif", (6, 2)),
    "lumi-rocm": (f"{CENTRAL}/lumi-rocm-rocm-6.0.3.sif", (6, 0)),
    "cotainr": ("/scratch/project_1/my-environment.sif", None),
    "unknown": ("docker://rocm/pytorch:latest", None),
    "tykky-through-the-wrapper": ("/projappl/project_1/env/container.sif", None),
    "tykky-and-all-past-the-wrapper": (None, None),
}
STEPS = {
    "1 node, GPUs": Step("standard-g", 1, 8),
    "2 nodes, GPUs": Step("standard-g", 2, 8),
    "1 node, CPUs": Step("standard", 1, 8),
    "2 nodes, CPUs": Step("standard", 2, 8),
}
LEVELS = ("PHB", "SYS", "3", "4", "5")


@functools.cache
def rendered(rocm: str) -> Tree:
    return tree_of(LUMI, resolve_selection(LUMI.site, rocm=[rocm] if rocm else [], cpe=["all"] if rocm else []))


def found(image: str | None, step: Step, rocm: str = "", version: str = "") -> Environment:
    tree = rendered(rocm)
    helper = next(plan.full_name for plan in tree.plans if plan.helper and version in ("", plan.version))
    return compared(tree, helper, step, image)


def hazards(name: str, values: dict[str, str | None], nodes: int, *, gpus: bool) -> Iterator[str]:
    """Say what would hang or abort a job, by what is true of the image and by nothing that lumisite knows."""
    _, rocm = IMAGES[name]
    if values.get("NCCL_NET_GDR_LEVEL") in LEVELS and (rocm is None or rocm >= (6, 2)):
        yield "NCCL_NET_GDR_LEVEL hangs ROCm 7.0 and gains nothing from 6.2 on"
    if values.get("NCCL_NET"):
        yield "NCCL_NET aborts where the plugin is missing or finds no libfabric, which no name tells"
    known_by_name = name != "laif-latest"
    wanted = None if rocm is not None and rocm >= (7, 2) and known_by_name else "userfaultfd"
    if nodes > 1 and gpus and values.get("FI_MR_CACHE_MONITOR") != wanted:
        yield f"FI_MR_CACHE_MONITOR is not {wanted}: the second communicator hangs without userfaultfd, and images of ROCm 7.2 choose"
    for variable in ("NCCL_DMABUF_ENABLE", "HSA_NO_SCRATCH_RECLAIM", "FI_HMEM_ROCR_USE_DMABUF", "SLURM_MPI_TYPE"):
        if values.get(variable) is not None:
            yield f"{variable} is needed by no image, and does harm to some"
    for variable, value in values.items():
        if not gpus and value is not None and variable.startswith(("NCCL_", "FI_", "HSA_", "MIOPEN_", "ROCR_", "HIP_")):
            yield f"{variable} is for GPUs"
        if value is not None and "/tmp/" not in value and variable.endswith(("_CACHE_DIR", "_DB_PATH", "JIT_DIR")):
            yield f"{variable} is on no private directory"


def values_of(environment: Environment) -> dict[str, str | None]:
    return {name: one.value for name, one in environment.variables.items()}


@pytest.mark.thorough
@pytest.mark.parametrize("name", IMAGES)
def test_no_image_gets_what_would_hang_or_abort_it_whatever_module_is_loaded(name: str) -> None:
    for plan in (plan for plan in rendered("all").plans if plan.helper):
        for step in STEPS.values():
            short = Step(step.partition, step.nodes, 1)
            values = values_of(found(IMAGES[name][0], short, "all", plan.version))
            bad = list(hazards(name, values, step.nodes, gpus=step.partition == "standard-g"))
            assert not bad, f"{plan.full_name}, {step}: {bad}"


def test_what_is_good_for_an_image_reaches_it() -> None:
    old, new = (values_of(found(IMAGES[name][0], STEPS["2 nodes, GPUs"])) for name in ("laif-rocm70", "laif-rocm72"))
    assert (old["FI_MR_CACHE_MONITOR"], new["FI_MR_CACHE_MONITOR"]) == ("userfaultfd", None)


def test_every_family_has_a_table() -> None:
    assert set(LUMI.site.families) - {"laif-multitorch", "tykky"} <= set(IMAGES)


def table(name: str) -> str:
    columns = {title: found(IMAGES[name][0], step) for title, step in STEPS.items()}
    values = {title: values_of(one) for title, one in columns.items()}
    known = sorted({variable for one in values.values() for variable in one if not _own(variable)})
    names = [variable for variable in known if any(one.get(variable) is not None for one in values.values())]
    rows = [("", *columns)]
    rows += [(variable, *(_shown(one.get(variable)) for one in values.values())) for variable in names]
    specs = list(dict.fromkeys(bind.target for one in columns.values() for bind in one.binds))
    rows += [(spec, *(_bound(one, spec) for one in columns.values())) for spec in specs]
    masks = {title: " ".join(dict.fromkeys(cpus.mask or "-" for cpus in one.cpus)) for title, one in columns.items()}
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    told = [f"CPU masks, {title}: {mask}" for title, mask in masks.items()]
    told += [f"never set: {' '.join(variable for variable in known if variable not in names)}"]
    return "\n".join([f"# {IMAGES[name][0] or 'a runtime that is called past the wrapper'}", *lines, *told]) + "\n"


def _own(variable: str) -> bool:
    return variable.startswith("LUMISITE_") or variable in ("PATH", "SLURM_TASK_PROLOG", "SINGULARITY_BINDPATH")


def _shown(value: str | None) -> str:
    return "-" if value is None else value


def _bound(one: Environment, target: str) -> str:
    return next((bind.by for bind in one.binds if bind.target == target), "-")


@pytest.mark.parametrize("name", IMAGES)
def test_the_table_is_the_golden_one(name: str, request: pytest.FixtureRequest) -> None:
    path = HERE / f"{name}.txt"
    text = table(name).replace("lumisite-1000", "lumisite-UID")
    if request.config.getoption("--update-golden"):
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    assert text == path.read_text()


def test_no_table_is_left_over() -> None:
    assert {path.stem for path in HERE.glob("*.txt")} == set(IMAGES)
