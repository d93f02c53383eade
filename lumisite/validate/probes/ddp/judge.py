"""Judge `ddp`: did all ranks train one model together, and how fast."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import replace

from lumisite.findings.finding import Finding, Severity
from lumisite.validate.probes.definition import make_probe, options_of
from lumisite.validate.probes.outcome import judge_together, passed
from lumisite.validate.probes.probe import Expected, Line, Probe, Record, Target
from lumisite.validate.probes.records import number, rank_of, slowest, table, text, usual

#: Gradients are sums of float32 in any order, so they agree to about this part of their size.
AGREEMENT = 1e-3
#: A part of the step time that cannot be told from none.
LEAST_PART = 1e-3
WRONG = "a collective gave wrong sums or was left out: `lumisite validate --probe collectives`"


def ddp(target: Target) -> Probe:
    """Return the probe."""
    srun = target.together("ddp.py", *options_of("ddp", target.plan.backend))
    return make_probe("ddp", (srun,), judge_together(_judge))


def _judge(done: Sequence[Record], expected: Expected) -> list[Line]:
    lines: list[Line] = []
    for model in table(done[0], "models"):
        of_ranks = [table(record, "models", model) for record in done]
        wrong = _disagreement(model, of_ranks)
        if wrong is not None:
            finding, ranks = wrong
            nodes = tuple(dict.fromkeys(str(done[rank].get("host")) for rank in ranks))
            return [expected.gate(replace(finding, nodes=nodes), [rank_of(done[rank]) for rank in ranks])]
        lines += _numbers(model, of_ranks, expected)
    return [expected.gate(passed(f"{len(done)} ranks trained together and their gradients agree")), *lines]


def _disagreement(model: str, of_ranks: Sequence[Record]) -> tuple[Finding, list[int]] | None:
    """Return how gradients differ, if they do, and the ranks whose gradient is wrong, where that is known."""
    gradients = [table(each, "gradient") for each in of_ranks]
    own = [number(each, "own") for each in gradients]
    exchanged = [number(each, "exchanged") for each in gradients]
    lacking = [rank for rank, values in enumerate(zip(own, exchanged, strict=True)) if None in values]
    if lacking:
        advice = "see the rank's record, in the step's folder"
        missing = Finding("record-missing", Severity.FAULT, "a rank recorded no gradient", advice, subject=model)
        return missing, lacking
    of_each, results = [value or 0.0 for value in own], [value or 0.0 for value in exchanged]
    mean = statistics.fmean(of_each)
    near = AGREEMENT * max(*map(abs, of_each), *map(abs, results), 1e-12)
    off = [rank for rank, result in enumerate(results) if abs(result - mean) > near]
    digests = [text(each, "digest") for each in gradients]
    if len(set(digests)) > 1:
        common = usual(digests)
        others = [rank for rank, digest in enumerate(digests) if common not in (None, digest)]
        # The mean tells which is right, unless all are near it, or none is.
        wrong = off if 0 < len(off) < len(results) else others
        first = (wrong or [_first_other(digests)])[0]
        message = f"after the exchange the gradient of rank {first} is not that of rank 0"
        return Finding("results-wrong", Severity.FAULT, message, WRONG, subject=model), wrong
    if not off:
        return None
    left = _left_out(of_each, results[0], near)
    message = f"the exchanged gradient is {results[0]:g}, the mean of the ranks' own {mean:g}"
    message += f": that of rank {left[0]} is not in it" if left else ""
    return Finding("results-wrong", Severity.FAULT, message, WRONG, subject=model), left


def _first_other(digests: Sequence[str]) -> int:
    return next(rank for rank, digest in enumerate(digests) if digest != digests[0])


def _left_out(own: Sequence[float], result: float, near: float) -> list[int]:
    """Return the one rank without whose gradient the exchanged one is a mean, or a part of it."""
    count, total = len(own), sum(own)
    found = [
        rank
        for rank, value in enumerate(own)
        if any(abs(result - (total - value) / parts) <= near for parts in (count, count - 1) if parts)
    ]
    return found if len(found) == 1 else []


def _numbers(model: str, of_ranks: Sequence[Record], expected: Expected) -> Iterator[Line]:
    """Yield the numbers of one model, of all ranks in their order; a step takes as long as its slowest rank."""
    steps = slowest(of_ranks, "step_s")
    total = max(number(each, "total_s") or 0.0 for each in of_ranks)
    batch = number(of_ranks[0], "batch") or 0.0
    yield expected.sample(f"samples_per_s/{model}", batch * len(of_ranks) * len(steps) / total, "higher", "1/s")
    # What comes and goes in some steps does not show in the rate.
    tail = statistics.quantiles(steps, n=10, method="inclusive")[-1]
    yield expected.sample(f"step_time_p90_s/{model}", tail, "lower", "s")
    if len(of_ranks) > 1:
        exposed = max(LEAST_PART, 1 - statistics.median(slowest(of_ranks, "alone_s")) / statistics.median(steps))
        yield expected.sample(f"exposed_communication/{model}", exposed, "lower", "of the step time")
