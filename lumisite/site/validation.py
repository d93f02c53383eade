"""What a site description says of its validation: what is run, and from which drop on a metric counts."""

# No `from __future__ import annotations`: `decode` reads real types (see `model`).
from dataclasses import dataclass
from typing import Literal

from lumisite.site.decode import key
from lumisite.site.entries import Known
from lumisite.site.scalars import AbsolutePath, Line, source_ids

#: A baseline of fewer days needs a reason: how fast a machine is differs from day to day.
LEAST_DAYS = 3


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class MetricRule:
    """What is expected of a metric; the first rule whose pattern matches a metric's name counts."""

    metric: Line = key("Shell pattern of names: `collectives/all_reduce_busbw/128MiB/2n`.")
    spec: float | None = key("The value that the system is known to reach, in the metric's unit.", default=None)
    floor: float = key(
        "The part of `spec` below which the metric fails whatever the baseline says.", most=1, default=0.6
    )
    threshold: float = key("A drop counts only above this part (0.05: 5 %).", most=0.99, default=0.05)
    why: Line | None = key("The reason.", default=None)
    source: Line | None = key(
        "Where `spec` or a threshold is known from.", names="sources", split=source_ids, default=None
    )


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class Validation(Known):
    """What is run to prove the system after a change, and what is expected of it."""

    image: AbsolutePath = key("The image that the probes run in.")
    partition: str = key("The partition that they run in.", names="partitions")
    tasks_per_node: int = key("Ranks on a node, one for each GPU.", least=1)
    nodes: int = key("Nodes of the job with several nodes.", least=2, default=2)
    backend: Literal["nccl", "gloo"] = key(
        "What carries the collectives: `nccl`, as the GPUs' vendor has it, or `gloo`."
    )
    time_limit: Line = key("Time limit of a job, as sbatch takes it: `00:30:00`.")
    metrics: tuple[MetricRule, ...] = key("What is expected of metrics, by name.", default=())
    deciding: tuple[Line, ...] = key(
        "Shell patterns of the metrics that decide, in place of the usual eight; all others are shown only.", default=()
    )
    baseline_days: int = key(
        f"Days that a baseline's jobs must come from; fewer than {LEAST_DAYS} hide daily noise.",
        least=1,
        default=LEAST_DAYS,
    )
    baseline_why: Line | None = key(f"Why fewer than {LEAST_DAYS} days are enough here.", default=None)
