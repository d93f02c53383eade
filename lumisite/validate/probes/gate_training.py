"""Judge the probes `jax` (devices and a collective) and `wrapper` (the same training in two environments)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from lumisite.validate.probes.findings import (
    Fault,
    Finding,
    Found,
    JobShape,
    Measure,
    Record,
    Trace,
    by_rank,
    counted,
    findings,
    missing,
    number,
    rows,
    text,
    value_at,
)

#: The environment is much slower above this. A missing plugin cost a factor of 2 or more on LUMI and Perlmutter alike;
#: what costs less is for the samples to show.
SLOWER = 2.0
#: The first epoch has the search for kernels in it.
SKIPPED_EPOCHS = 1


@dataclass(frozen=True)
class ExpectedJax:
    """What JAX should find: its platform (`gpu` or `cpu`) and the devices of each rank."""

    platform: str
    local_devices: int = 1


@dataclass(frozen=True)
class ExpectedWrapper:
    """The two environments by their parts' names, the one that should be as fast last."""

    container: str = "container"
    wrapper: str = "wrapper"
    slower: float = SLOWER


def judge_jax(records: Sequence[Record], expected: ExpectedJax, job: JobShape) -> tuple[Finding, ...]:
    """Judge what JAX found on every rank."""
    faults = missing(records, job, each="gpu", what="the rank")
    for record in by_rank(records):
        found = _of_jax(record, expected, job)
        faults += [Fault(cause, advice, text(record, "host"), number(record, "rank")) for cause, advice in found]
    versions = sorted({text(record, "jax") for record in records})
    devices = len(job.nodes) * job.tasks_per_node * expected.local_devices
    all_devices = counted(devices, f"{expected.platform} device")
    passed = f"JAX {', '.join(versions)} finds {all_devices}, and the sum over them is right"
    return findings("jax", faults, passed, job)


def _of_jax(record: Record, expected: ExpectedJax, job: JobShape) -> Iterator[tuple[str, str]]:
    if text(record, "error"):
        yield f"JAX failed: {text(record, 'error')}", "look at MASTER_ADDR, and whether the image's JAX fits its driver"
        return
    # JAX says rocm, cuda or gpu, by its release.
    platform = "cpu" if text(record, "platform") == "cpu" else "gpu"
    if platform != expected.platform:
        yield (
            f"JAX runs on the {text(record, 'platform')}, expected {expected.platform}",
            "the image's JAX has no plugin for this GPU, or the GPU is hidden (ROCR_VISIBLE_DEVICES, --rocm)",
        )
        return
    ranks = len(job.nodes) * job.tasks_per_node
    for what, met, right in (
        ("processes", number(record, "processes"), ranks),
        ("devices of its own", number(record, "local_devices"), expected.local_devices),
        ("devices in all", number(record, "devices"), ranks * expected.local_devices),
    ):
        if met != right:
            yield (
                f"JAX counts {met} {what}, expected {right}",
                "one process for each GPU: look at the number of tasks, local_device_ids and ROCR_VISIBLE_DEVICES",
            )
            return
    devices = ranks * expected.local_devices
    right_sum = devices * (devices + 1) / 2
    if value_at(record, "sum") != right_sum:
        yield (
            f"the sum over {devices} devices is {value_at(record, 'sum')}, expected {right_sum:g}",
            "a collective gave a wrong result: run the probe `collectives`",
        )


def judge_wrapper(records: Sequence[Record], expected: ExpectedWrapper, job: JobShape) -> tuple[Found, ...]:
    """Compare the two environments: the gate, then the samples `wrapper/…`, then what each epoch took."""
    faults = []
    for part in (expected.container, expected.wrapper):
        own = [record for record in records if text(record, "part") == part]
        faults += missing(own, job, each="gpu", what=f"the rank in the {part}")
        faults += [
            Fault(
                f"training in the {part} failed: {text(record, 'error')}",
                "read the step's stderr",
                text(record, "host"),
                number(record, "rank"),
            )
            for record in by_rank(own)
            if text(record, "error")
        ]
    if faults:
        return findings("wrapper", faults, "", job)
    seconds = {part: epoch_seconds(records, part) for part in (expected.container, expected.wrapper)}
    if not all(seconds.values()):
        faults = [Fault("an environment told no epoch times", "read the step's stderr", job.nodes[0])]
        return findings("wrapper", faults, "", job)
    # Whatever else runs beside it only makes an epoch longer, so the fastest tells most of the environment.
    usual = {part: min(values[SKIPPED_EPOCHS:] or values) for part, values in seconds.items()}
    ratio = usual[expected.wrapper] / usual[expected.container]
    measures: tuple[Found, ...] = (
        *(Trace(f"epoch_s/{part}", values, "s") for part, values in seconds.items()),
        *(
            Measure(f"wrapper/epoch_s/{part}/{job.shape}", value, "lower", job.nodes, "s")
            for part, value in usual.items()
        ),
        Measure(f"wrapper/epoch_ratio/{job.shape}", ratio, "lower", job.nodes, ""),
    )
    shown = (
        f"the fastest epoch takes {usual[expected.wrapper]:.3g} s in the wrapper's environment and "
        f"{usual[expected.container]:.3g} s in the container ({ratio:.2f} times)"
    )
    if ratio > expected.slower:
        faults = [Fault(f"{shown}{_difference(records, expected)}", _advice(records, expected), job.nodes[0])]
    return (*findings("wrapper", faults, shown, job), *measures)


def epoch_seconds(records: Sequence[Record], part: str) -> tuple[float, ...]:
    """Give the seconds of each epoch in one environment: those of its slowest rank."""
    ranks = [
        [value for value in rows(record, "epoch_s") if isinstance(value, int | float)]
        for record in records
        if text(record, "part") == part
    ]
    return tuple(max(values) for values in zip(*ranks, strict=False)) if ranks else ()


def _difference(records: Sequence[Record], expected: ExpectedWrapper) -> str:
    """Say what the slow environment lacks of the other's, as far as the records tell."""
    there, here = (_first(records, part) for part in (expected.container, expected.wrapper))
    names = [
        name
        for name in _environment(there)
        if name.startswith(("NCCL_", "GLOO_", "FI_")) and _environment(here).get(name) != _environment(there)[name]
    ]
    lacks = sorted(_files(there) - _files(here))
    told = [f"{name} is {_environment(here).get(name, 'not set')}, not {_environment(there)[name]}" for name in names]
    told += [f"{name} is not in use" for name in lacks]
    return "; in the environment " + ", ".join(told) if told else ""


def _advice(records: Sequence[Record], expected: ExpectedWrapper) -> str:
    if _files(_first(records, expected.container)) - _files(_first(records, expected.wrapper)):
        return "LUMISITE_TYKKY=/path/of/the/plugin/lib gives the environment libfabric and the plugin of the host"
    return "compare the environment variables of the two steps, and use the container for training on several nodes"


def _first(records: Sequence[Record], part: str) -> Record:
    return next((record for record in by_rank(records) if text(record, "part") == part), {})


def _environment(record: Record) -> Mapping[str, object]:
    value = value_at(record, "environment")
    return value if isinstance(value, Mapping) else {}


def _files(record: Record) -> set[str]:
    return {str(path).rpartition("/")[2].partition(".so")[0] for path in rows(record, "mapped")}
