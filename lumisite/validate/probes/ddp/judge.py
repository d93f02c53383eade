"""Judge `ddp`: did all ranks train one model together, and how fast."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from lumisite.validate.lines import Sample
from lumisite.validate.probes.probe import Expected, Line, Plan, Record, Target, each, probe, rounded
from lumisite.validate.probes.ranks import judge_together
from lumisite.validate.probes.records import number, numbers, slowest, table

#: What the metrics are called that say how fast training is.
RATE = "ddp/samples_per_s/"
#: Gradients are sums of float32 in any order, so they agree to about this part of their size.
AGREEMENT = 1e-3
#: A part of the step time that cannot be told from none.
LEAST_PART = 1e-3
#: Percentiles of the step time that are kept.
PERCENTS = (50, 90, 99)


@probe("Ranks train one model together, and how fast.", "one-gpu", "one-node", "several", together=True)
def ddp(target: Target) -> Plan:
    """Give the probe; on the CPU all is small enough for a laptop."""
    if target.plan.backend == "gloo":
        models = ("comm:linear:8:512:8", "compute:conv:3:16:16")
        limits = ("--steps", "12", "--warm-up", "3", "--limit", "120")
    else:
        # 16 layers of 4096: 1 GB of gradients. 8 layers of 256 channels and 32 images: 19 MB of gradients for 1 TFLOP.
        models = ("comm:linear:16:4096:64", "compute:conv:8:256:32")
        limits = ("--steps", "60", "--warm-up", "15", "--limit", "120")
    return (target.together("ddp.py", *each("model", models), *limits),), judge_together(_judge)


def _judge(done: Sequence[Record], expected: Expected) -> list[Line]:
    lines: list[Line] = []
    for model in table(done[0], "models"):
        own = [table(record, "models", model) for record in done]
        wrong = _disagreement(model, own)
        if wrong:
            return [expected.gate("fail", wrong, "a collective gave wrong sums or was left out: run collectives")]
        lines += _numbers(model, own, expected)
    return [expected.gate("pass", f"{len(done)} ranks trained together and their gradients agree"), *lines]


def _disagreement(model: str, own: Sequence[Record]) -> str:
    """Say how gradients differ, or nothing."""
    gradients = [table(each, "gradient") for each in own]
    for rank, gradient in enumerate(gradients):
        if gradient.get("digest") != gradients[0].get("digest"):
            return f"model {model}: after the exchange the gradient of rank {rank} is not that of rank 0"
    got = number(gradients[0], "exchanged")
    known = [value for value in (number(each, "own") for each in gradients) if value is not None]
    if got is None or len(known) < len(own):
        return f"model {model}: a rank recorded no gradient"
    mean = statistics.fmean(known)
    size = max(*(abs(each) for each in known), abs(got), 1e-12)
    if abs(got - mean) > AGREEMENT * size:
        return f"model {model}: the exchanged gradient is not the mean of the ranks' own ({got:.6g}, not {mean:.6g})"
    return ""


def _numbers(model: str, own: Sequence[Record], expected: Expected) -> Iterator[Line]:
    """Give the numbers of one model, of all ranks in their order; a step takes as long as its slowest rank."""
    steps = slowest(own, "step_s")
    total = max(number(each, "total_s") or 0.0 for each in own)
    batch = number(own[0], "batch") or 0.0
    yield expected.sample(f"samples_per_s/{model}", batch * len(own) * len(steps) / total, "higher", "1/s")
    percentiles = statistics.quantiles(steps, n=100, method="inclusive")
    for percent in PERCENTS:
        yield expected.sample(f"step_time_p{percent}_s/{model}", percentiles[percent - 1], "lower", "s")
    yield expected.series(f"first_step_s/{model}", [number(each, "first_step_s") or 0.0 for each in own], "s")
    if len(own) > 1:
        exposed = max(LEAST_PART, 1 - statistics.median(slowest(own, "alone_s")) / statistics.median(steps))
        yield expected.sample(f"exposed_communication/{model}", exposed, "lower", "of the step time")
    for rank, one in enumerate(own):
        yield expected.series(f"step_time_s/{model}", numbers(one, "step_s"), "s", rank)
        yield expected.series(f"compute_time_s/{model}", numbers(one, "alone_s"), "s", rank)


def scaling(samples: Iterable[Sample], ranks: Mapping[str, int]) -> Iterator[Sample]:
    """Give each model's scaling from its smallest shape, from all samples of a job; `ranks` by shape."""
    rates = {sample.metric.removeprefix(RATE): sample for sample in samples if sample.metric.startswith(RATE)}
    for model in sorted({name.partition("/")[0] for name in rates}):
        shapes = [shape for shape in sorted(ranks, key=lambda shape: ranks[shape]) if f"{model}/{shape}" in rates]
        for shape in shapes[1:]:
            own, first = (rates[f"{model}/{one}"].value / ranks[one] for one in (shape, shapes[0]))
            name = f"{model}/{shape}"
            value = rounded(own / first)
            yield replace(rates[name], metric=f"ddp/scaling_efficiency/{name}", value=value, unit="of linear")
