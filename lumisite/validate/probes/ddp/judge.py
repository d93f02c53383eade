"""Judge `ddp`: did all ranks train one model together; and its metrics (`_numbers`), of what job.py records."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import replace

from lumisite.findings.finding import Finding, Severity
from lumisite.validate.probes.failed_ranks import judge_together
from lumisite.validate.probes.outcome import passed
from lumisite.validate.probes.probe import Expected, Line, Probe, Record, Target
from lumisite.validate.probes.records import rank_of, slowest, table, text, usual

#: Options of the script by back-end: several models, NAME:KIND:LAYERS:WIDTH:BATCH. nccl: 16 layers of 4096 are 1 GB of
#: gradients; 8 layers of 256 channels are 19 MB for 1 TFLOP.
OPTIONS = {
    "gloo": "--model comm:linear:8:512:8 --model compute:conv:3:16:16 --steps 12 --warm-up 3 --limit 120",
    "nccl": "--model comm:linear:16:4096:64 --model compute:conv:8:256:32 --steps 60 --warm-up 15 --limit 120",
}
#: Gradients are sums of float32 in any order, so they agree to about this part of their size.
AGREEMENT = 1e-3
#: A part of the step time that cannot be told from none.
LEAST_PART = 1e-3
WRONG = "a collective gave wrong sums or was left out: `lumisite validate --probe collectives`"


def ddp(target: Target) -> Probe:
    """Return the probe."""
    srun = target.together("ddp.py", *OPTIONS[target.plan.backend].split())
    return Probe("ddp", (srun,), judge_together(_judge), ("one-gpu", "one-node", "several"), together=True)


def _judge(done: Sequence[Record], expected: Expected) -> list[Line]:
    lines: list[Line] = []
    for model in table(done[0], "models"):
        of_ranks = [table(record, "models", model) for record in done]
        wrong = _disagreement(model, of_ranks)
        if wrong is not None:
            finding, ranks = wrong
            nodes = tuple(dict.fromkeys(done[rank]["host"] for rank in ranks))
            return [expected.gate(replace(finding, nodes=nodes), [rank_of(done[rank]) for rank in ranks])]
        lines += _numbers(model, of_ranks, expected)
    return [expected.gate(passed(f"{len(done)} ranks trained together and their gradients agree")), *lines]


def _disagreement(model: str, of_ranks: Sequence[Record]) -> tuple[Finding, list[int]] | None:
    """Return how gradients differ, if they do, and the ranks whose gradient is wrong, where that is known."""
    gradients = [table(each, "gradient") for each in of_ranks]
    own, exchanged = ([each["own"] for each in gradients], [each["exchanged"] for each in gradients])
    mean = statistics.fmean(own)
    near = AGREEMENT * max(*map(abs, own), *map(abs, exchanged), 1e-12)
    off = [rank for rank, result in enumerate(exchanged) if abs(result - mean) > near]
    digests = [text(each, "digest") for each in gradients]
    common = usual(digests)
    if len(set(digests)) > 1:
        others = [rank for rank, digest in enumerate(digests) if common not in (None, digest)]
        # The mean tells which is right, unless all are near it, or none is.
        wrong = off if 0 < len(off) < len(exchanged) else others
        first = wrong[0] if wrong else next(rank for rank, digest in enumerate(digests) if digest != digests[0])
        message = f"after the exchange the gradient of rank {first} is not that of rank 0"
        return Finding("results-wrong", Severity.FAULT, message, WRONG, subject=model), wrong
    if not off:
        return None
    message = f"the exchanged gradient is {exchanged[0]:g}, the mean of the ranks' own {mean:g}"
    return Finding("results-wrong", Severity.FAULT, message, WRONG, subject=model), []


def _numbers(model: str, of_ranks: Sequence[Record], expected: Expected) -> Iterator[Line]:
    """Yield the numbers of one model, of all ranks in their order; a step takes as long as its slowest rank."""
    steps = slowest(of_ranks, "step_s")
    total = max(each["total_s"] for each in of_ranks)
    batch = of_ranks[0]["batch"]
    yield expected.sample(f"samples_per_s/{model}", batch * len(of_ranks) * len(steps) / total, "higher", "1/s")
    # What comes and goes in some steps does not show in the rate.
    tail = statistics.quantiles(steps, n=10, method="inclusive")[-1]
    yield expected.sample(f"step_time_p90_s/{model}", tail, "lower", "s")
    if len(of_ranks) > 1:
        exposed = max(LEAST_PART, 1 - statistics.median(slowest(of_ranks, "alone_s")) / statistics.median(steps))
        yield expected.sample(f"exposed_communication/{model}", exposed, "lower", "of the step time")
