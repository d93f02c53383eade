"""Judge `jax`: each rank has one device, all count the same number, and a sum over all devices is right."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial

from lumisite.text import counted
from lumisite.validate.probes.probe import Expected, Line, Plan, Record, Target, each, probe
from lumisite.validate.probes.ranks import Said, faults_of, judge_records, tell
from lumisite.validate.probes.records import text, value_at, whole


@probe("JAX finds its devices, and a collective is right.", "one-gpu", "one-node", "several")
def jax(target: Target) -> Plan:
    """Give the probe, for which an image with JAX is named."""
    platform = "gpu" if target.has_gpus else "cpu"
    visible = target.gpu.visible if target.gpu else ()
    arguments = ("--one-gpu", "yes", *each("selecting", visible)) if platform == "gpu" else ()
    part = replace(target, image=target.jax_image or "").alone("jax_devices.py", *arguments)
    return (part,), judge_records(partial(_judge, platform, _hiding(target)))


def _hiding(target: Target) -> list[str]:
    """Name the variable and the option by which a process sees a GPU, or none."""
    if target.gpu is None:
        return []
    flags = target.site.gpu_flags(target.kind) or {target.gpu.flag}
    return [*target.gpu.visible[:1], *(f"--{flag}" for flag in sorted(flags) if flag)]


def _judge(platform: str, hiding: Sequence[str], records: Sequence[Record], expected: Expected) -> list[Line]:
    """Judge what JAX found on every rank; each should have one device."""
    versions = sorted({text(record, "jax") for record in records})
    devices = counted(expected.ranks, f"{platform} device")
    passed = f"JAX {', '.join(versions)} finds {devices}, and the sum over them is right"
    return tell(faults_of(records, expected, partial(_of_rank, platform, hiding, expected.ranks)), passed, expected)


def _of_rank(platform: str, hiding: Sequence[str], ranks: int, record: Record) -> Iterator[Said]:
    if text(record, "error"):
        yield f"JAX failed: {text(record, 'error')}", "look at MASTER_ADDR, and whether the image's JAX fits its driver"
        return
    # JAX names the platform of GPUs by their software, or says gpu, by its release.
    met = text(record, "platform")
    if ("cpu" if met == "cpu" else "gpu") != platform:
        yield (
            f"JAX runs on the {met}, expected {platform}",
            f"the image's JAX has no plugin for this GPU, or the GPU is hidden ({', '.join(hiding)})",
        )
        return
    for key, what, right in (
        ("processes", "processes", ranks),
        ("local_devices", "devices of its own", 1),
        ("devices", "devices in all", ranks),
    ):
        if whole(record, key) != right:
            yield (
                f"JAX counts {whole(record, key)} {what}, expected {right}",
                f"one process for each GPU: look at {', '.join(('the number of tasks', 'local_device_ids', *hiding))}",
            )
            return
    right_sum = ranks * (ranks + 1) / 2
    if value_at(record, "sum") != right_sum:
        yield (
            f"the sum over {ranks} devices is {value_at(record, 'sum')}, expected {right_sum:g}",
            "a collective gave a wrong result: run the probe `collectives`",
        )
