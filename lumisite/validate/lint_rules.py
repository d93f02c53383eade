"""The known-bad lines of job scripts, as a table: what is wrong, what would be right, and where this is known from.

What depends on the machine (partitions, usable cores, the order of GPUs, libraries) is taken from the site description.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from lumisite.validate.lint_job import Job, Step
from lumisite.validate.lint_shell import Command


@dataclass(frozen=True)
class Machine:
    """What rules must know of a site.

    `gpu_cores`: usable cores of a node, for each partition with GPUs; `shared`: partitions where several jobs may be on
    a node; `gpu_order`: GPUs in the order of their cores; `libraries`: directories that end in a version.
    """

    gpu_cores: Mapping[str, int]
    shared: frozenset[str]
    gpu_order: str
    cores_per_task: int
    libraries: tuple[str, ...]


#: A hit: the line, and what fills `{...}` in reason and right line.
Hit = tuple[int, dict[str, str]]


@dataclass(frozen=True)
class Rule:
    """One known fault."""

    id: str
    reason: str
    right: str
    source: str
    find: Callable[[Job, Machine], Iterator[Hit]]


_BINDINGS = re.compile(
    r"(?:singularity-(?:AI-|slurm-)?bindings|lumi-aif-singularity-bindings|singularity-CPEbits)(?:/.*)?"
)
_LAUNCHERS = r"(?:^|/)(?:torchrun|accelerate|deepspeed)$|torch\.distributed\.(?:run|launch)"
_ROCM7 = re.compile(r"rocm-?7(?:\.|\b)|u\d\dr7\d")
_DEFAULT_PORT = "29500"


def _miopen_name(job: Job, machine: Machine) -> Iterator[Hit]:
    for setting in job.named("MIOPEN_USER_DB"):
        yield setting.line, {}


def _miopen_mktemp(job: Job, machine: Machine) -> Iterator[Hit]:
    """`mktemp` in the batch script, for a variable of MIOpen or for one that such a variable is made of."""
    made = [s for s in job.settings if s.spot == "batch" and re.search(r"[$`(]\s*mktemp\b", s.value)]
    for setting in made:
        used = re.compile(rf"\$\{{?{setting.name}\b")
        if setting.name.startswith("MIOPEN_") or any(used.search(other.value) for other in job.named("MIOPEN_.*")):
            yield setting.line, {}


def _fixed_port(job: Job, machine: Machine) -> Iterator[Hit]:
    """A fixed port meets that of another job where nodes are shared; the default one meets strays on others too."""
    partition = job.directives.get("partition")
    alone = partition is None or partition.value not in machine.shared or "exclusive" in job.directives
    for setting in job.named("MASTER_PORT"):
        if re.fullmatch(r"\d+", setting.value) and (not alone or setting.value == _DEFAULT_PORT):
            yield setting.line, {"port": setting.value}
    for command in job.script.commands:
        for at, word in enumerate(command.words):
            following = command.values[at + 1] if at + 1 < len(command.words) else ""
            found = re.match(r"--master[-_]port(?:=(\d+)$|$)|--rdzv[-_]endpoint=.*[^:]:([1-9]\d*)$", word.value)
            port = (found[1] or found[2] or following) if found else ""
            if port.isdigit() and (not alone or port == _DEFAULT_PORT):
                yield word.line, {"port": port}


def _with_conda(job: Job, machine: Machine) -> Iterator[Hit]:
    """`$WITH_CONDA` in what a container gets, expanded by the shell outside of it."""
    bare = re.compile(r"(?<!\\)\$\{?WITH_CONDA\b")
    for command in job.script.commands:
        if command.spot != "batch":
            continue
        names = {value.rpartition("/")[2] for value in command.values}
        if not names.isdisjoint({"srun", "singularity", "apptainer", "bash", "sh"}):
            for part in (part for word in command.words for part in word.parts if part.quote != "'"):
                for found in bare.finditer(part.text):
                    yield part.line + part.text.count("\n", 0, found.start()), {}
        for document in command.documents:
            if not document.quoted:
                for found in bare.finditer(document.text):
                    yield document.line + document.text.count("\n", 0, found.start()), {}


def _gpu_binding(job: Job, machine: Machine) -> Iterator[Hit]:
    for step in job.steps:
        flags = step.merged.get("gres-flags")
        if (step.tasks_per_node or 1) < 2 or (flags and "allow-task-sharing" in flags.value):
            continue
        bind = step.merged.get("gpu-bind")
        if bind and re.search(r"(?:^|,)none$", bind.value):
            continue
        for option in (step.merged.get("gpus-per-task"), bind):
            if option and (
                option.name != "gpu-bind" or re.search(r"(?:^|[,:])(?:closest|map|mask|single|per_task)", option.value)
            ):
                yield option.line, {"option": f"--{option.name}"}
                break


def _too_many_cores(job: Job, machine: Machine) -> Iterator[Hit]:
    for step in (Step(0, {}, job.directives), *job.steps):
        cores = _cores_of_nodes(step, machine)
        both_threads = step.merged.get("hint") or step.merged.get("threads-per-core")
        tasks, each = step.tasks_per_node, step.number("cpus-per-task") or 1
        if cores is None or tasks is None or tasks * each <= cores:
            continue
        if both_threads and both_threads.value in ("multithread", "2"):
            continue
        option = step.merged.get("cpus-per-task") or step.merged.get("ntasks-per-node") or step.merged.get("ntasks")
        if option:
            yield option.line, {"asked": str(tasks * each), "cores": str(cores)}


def _cores_of_nodes(step: Step, machine: Machine) -> int | None:
    partition = step.merged.get("partition")
    if partition:
        return machine.gpu_cores.get(partition.value)
    gpus = any(name.startswith("gpu") for name in step.merged) or "gpu" in getattr(step.merged.get("gres"), "value", "")
    return min(machine.gpu_cores.values(), default=None) if gpus else None


def _bind_and_count(job: Job, machine: Machine) -> Iterator[Hit]:
    for step in job.steps:
        bind = step.own.get("cpu-bind")
        if bind and "cpus-per-task" in step.own and re.search(r"\b(?:mask|map)_cpu", bind.value):
            yield bind.line, {}


def _gdr_level(job: Job, machine: Machine) -> Iterator[Hit]:
    image = next((found[0] for word in job.words if (found := _ROCM7.search(word.value))), None)
    if image:
        for setting in job.named("NCCL_NET_GDR_LEVEL"):
            yield setting.line, {"image": image}


def _world_size(job: Job, machine: Machine) -> Iterator[Hit]:
    steps = job.steps
    gpus = max(step.number("gpus-per-node") or step.number("gpus") or 1 for step in steps)
    if gpus < 2 or any(step.tasks_per_node != 1 for step in steps) or job.runs(_LAUNCHERS):
        return
    for setting in job.named("WORLD_SIZE"):
        if re.fullmatch(r"\$\{?SLURM_(?:NTASKS|NPROCS|NNODES|JOB_NUM_NODES)\}?", setting.value):
            yield setting.line, {"gpus": str(gpus)}


def _rdzv_literal(job: Job, machine: Machine) -> Iterator[Hit]:
    for command in job.script.commands:
        for at, word in enumerate(command.words):
            found = re.match(r"--rdzv[-_](?:id|endpoint)(=.*|$)", word.value, re.DOTALL)
            following = command.values[at + 1] if at + 1 < len(command.words) else ""
            if found and (escaped := re.search(r"\\(\$\{?\w+\}?)", found[1] or following)):
                yield word.line, {"variable": escaped[1]}


def _nodelist(job: Job, machine: Machine) -> Iterator[Hit]:
    cutting = re.compile(
        r"\$\{SLURM_(?:JOB_)?NODELIST[^}\w]|NODELIST.*\|\s*(?:cut|sed|awk|tr|grep|perl|python\w*)\b|"
        r"^\$\{?SLURM_(?:JOB_)?NODELIST\}?$",
        re.DOTALL,
    )
    for setting in job.named("MASTER_ADDR"):
        if "scontrol" not in setting.value and cutting.search(setting.value):
            yield setting.line, {}


def _old_library(job: Job, machine: Machine) -> Iterator[Hit]:
    for library in machine.libraries:
        folder, _, version = library.rpartition("/")
        pinned = re.compile(rf"{re.escape(folder)}/(\d[\w.]*)")
        for word in job.words:
            for part in word.parts:
                for found in pinned.finditer(part.text):
                    if found[1].rstrip(".") != version:
                        line = part.line + part.text.count("\n", 0, found.start())
                        yield line, {"pinned": found[0], "library": library}


def _build_with_binds(job: Job, machine: Machine) -> Iterator[Hit]:
    loaded: set[str] = set()
    for command in job.script.commands:
        values = command.values
        if values[:1] in (("module",), ("ml",)):
            _track(values, loaded)
        elif loaded and _builds(command):
            yield command.line, {"module": " ".join(sorted(loaded))}


def _track(values: tuple[str, ...], loaded: set[str]) -> None:
    """Follow `module load`, `unload` and `purge`, and `ml NAME -NAME`."""
    verb, names = ("load", values[1:]) if values[0] == "ml" else (values[1] if len(values) > 1 else "", values[2:])
    if values[0] == "ml" and names[:1] in (("load",), ("add",), ("unload",), ("purge",), ("rm",)):
        verb, names = names[0], names[1:]
    for name in (name for name in names if _BINDINGS.fullmatch(name.lstrip("-"))):
        if verb in ("load", "add", "swap") and not name.startswith("-"):
            loaded.add(name)
        else:
            loaded.difference_update(
                {one for one in loaded if one.partition("/")[0] == name.lstrip("-").partition("/")[0]}
            )
    if verb in ("purge", "reset", "restore"):
        loaded.clear()


def _builds(command: Command) -> bool:
    names = [value.rpartition("/")[2] for value in command.values]
    return any(
        name in ("singularity", "apptainer", "cotainr") and "build" in names[at + 1 : at + 3]
        for at, name in enumerate(names)
    )


def _fork_safe(job: Job, machine: Machine) -> Iterator[Hit]:
    for setting in job.named("CXI_FORK_SAFE(?:_HP)?"):
        if setting.value not in ("", "0"):
            yield setting.line, {"name": setting.name}


RULES = (
    Rule(
        "miopen-name",
        "MIOpen has no variable MIOPEN_USER_DB, so that its database stays in the home directory",
        "export MIOPEN_USER_DB_PATH=/tmp/miopen-config-${{USER}}",
        "LUMI-AI-Guide 81 and 108; MIOpen documentation",
        _miopen_name,
    ),
    Rule(
        "miopen-mktemp",
        "mktemp in the batch script makes a folder on the first node only",
        "export MIOPEN_USER_DB_PATH=/tmp/miopen-config-${{USER}}-${{SLURM_JOB_ID}}, and mkdir -p it in the task",
        "LUMI-AI-Guide 108; ROCm/MIOpen 2214",
        _miopen_mktemp,
    ),
    Rule(
        "fixed-port",
        "port {port} may be taken by another job on the node",
        'export MASTER_PORT="1${{SLURM_JOB_ID:0-4}}"',
        "LUMI-AI-Guide 05-multi-gpu-and-node",
        _fixed_port,
    ),
    Rule(
        "with-conda",
        "$WITH_CONDA is expanded outside of the container, where it is empty",
        "bash -c '$WITH_CONDA; python …' in single quotes, or \\$WITH_CONDA in double ones",
        "LUMI-EasyBuild-containers, PyTorch recipes; LUMI training 2day-20260422",
        _with_conda,
    ),
    Rule(
        "gpu-binding",
        "{option} with several tasks on a node hides the other GPUs from each task: RCCL and MPI fail or slow down",
        "srun --gpu-bind=map:{gpu_order} --gres-flags=allow-task-sharing …, or no GPU binding and "
        "ROCR_VISIBLE_DEVICES=$SLURM_LOCALID in the task",
        "LUMI training 2day-20260422 202-Binding; SchedMD bug 17875",
        _gpu_binding,
    ),
    Rule(
        "too-many-cores",
        "{asked} cores of a node of which jobs get {cores}: the job never starts",
        "#SBATCH --cpus-per-task={cores_per_task} with one task for each GPU",
        "lumi-userguide runjobs/scheduled-jobs/lumig-job.md",
        _too_many_cores,
    ),
    Rule(
        "cpu-bind-and-count",
        "--cpu-bind with a list of masks or CPUs does not go together with --cpus-per-task on one srun",
        "srun --cpu-bind=mask_cpu:… without -c; the number of cores stands in #SBATCH",
        "LUMI training 2day-20260422 202-Binding; srun(1)",
        _bind_and_count,
    ),
    Rule(
        "gdr-level",
        "NCCL_NET_GDR_LEVEL makes RCCL of ROCm 7 images hang ({image})",
        "unset NCCL_NET_GDR_LEVEL",
        "laifs-container-recipes 28 and 30; LUMI-AI-Guide 97",
        _gdr_level,
    ),
    Rule(
        "world-size",
        "one task on each node makes WORLD_SIZE the number of nodes, and {gpus} GPUs of a node train as one",
        "#SBATCH --ntasks-per-node={gpus}, or torchrun --nproc-per-node={gpus}, which sets WORLD_SIZE itself",
        "laifs-container-tests pytorch-ddp-singlenode-srun",
        _world_size,
    ),
    Rule(
        "rdzv-literal",
        "{variable} after a backslash stays as it is, so that every job has the same rendezvous",
        "--rdzv_id={variable} without the backslash, as nothing else in the single quotes has one",
        "LUMI-AI-Guide run_ddp_torchrun_4.sh",
        _rdzv_literal,
    ),
    Rule(
        "nodelist",
        "the list of nodes may read nid[005001-005004,005010], which no cutting takes apart",
        'export MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)',
        "laifs-container-tests; sbatch(1)",
        _nodelist,
    ),
    Rule(
        "old-library",
        "{pinned} is not what this system has ({library}), so that the network plugin falls back to TCP",
        "module load singularity-AI-bindings, which binds what fits",
        "LUMI-EasyBuild-contrib 422; LUMI training Update-202601",
        _old_library,
    ),
    Rule(
        "build-with-binds",
        "{module} binds paths that a new image does not have, and the build fails",
        "module unload {module} before the build",
        "LUMI training 2day-20260422 205-Containers",
        _build_with_binds,
    ),
    Rule(
        "fork-safe",
        "{name} is not needed from SLES 15 SP4 on, and may crash workers of a DataLoader",
        "unset {name}",
        "HewlettPackard/shs-ccl-docs; libfabric fi_cxi(7)",
        _fork_safe,
    ),
)
