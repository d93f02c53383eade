"""Judge `wrapper`: the same training in the container and in an environment of the container wrapper (Tykky)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial

from lumisite.validate.probes.probe import Backend, Expected, Line, Plan, Record, Target, probe
from lumisite.validate.probes.ranks import STDERR, Fault, Said, faults_of, judge_records, tell
from lumisite.validate.probes.records import slowest, table, text, texts

#: The environment is much slower above this. A missing plugin cost a factor of 2 or more on two sites alike;
#: what costs less is for the samples to show.
SLOWER = 2.0
EPOCHS = 4
#: The first epoch has the search for kernels in it.
SKIPPED_EPOCHS = 1
#: Steps of an epoch: about a second on GPUs, less on cores.
EPOCH_STEPS: dict[Backend, int] = {"nccl": 200, "gloo": 2}
#: Eight linear layers: 8 MB of gradients cross the network in each step. Data are made up, so that file systems have no
#: part in it.
MODEL = "epoch"
TRAINING = ("--model", f"{MODEL}:linear:8:512:16", "--warm-up", "2", "--limit", "60")
#: The two environments by their parts' names, the one that should be as fast last.
CONTAINER, WRAPPER = "container", "wrapper"


@probe("A training run in the container and in the container wrapper's environment.")
def wrapper(target: Target) -> Plan:
    """Give the probe, for which the directory of an environment is named."""
    training = (*TRAINING, "--steps", str(EPOCHS * EPOCH_STEPS[target.plan.backend]))
    inside, outside = (target.together("ddp.py", "--part", part, *training, name=part) for part in (CONTAINER, WRAPPER))
    return (inside, replace(outside, start=(f"{target.wrapper}/bin/python",))), judge_records(_judge)


def _judge(records: Sequence[Record], expected: Expected) -> list[Line]:
    parts = {part: [one for one in records if text(one, "part") == part] for part in (CONTAINER, WRAPPER)}
    faults: list[Fault] = []
    for part, own in parts.items():
        faults += faults_of(own, expected, partial(_failure, part), f"the rank in the {part}")
    seconds = {part: _epoch_seconds(own) for part, own in parts.items()}
    if not faults and not all(seconds.values()):
        faults = [Fault("an environment told no epoch times", STDERR, expected.nodes[0])]
    if faults:
        return tell(faults, "", expected)
    # Whatever else runs beside it only makes an epoch longer, so the fastest tells most of the environment.
    usual = {part: min(values[SKIPPED_EPOCHS:] or values) for part, values in seconds.items()}
    ratio = usual[WRAPPER] / usual[CONTAINER]
    shown = (
        f"the fastest epoch takes {usual[WRAPPER]:.3g} s in the wrapper's environment and "
        f"{usual[CONTAINER]:.3g} s in the container ({ratio:.2f} times)"
    )
    if ratio > SLOWER:
        lacks, advice = _difference(parts[CONTAINER][0], parts[WRAPPER][0])
        faults = [Fault(shown + lacks, advice, expected.nodes[0])]
    # One rank alone has always been `1g` here, on one node too.
    named = replace(expected, shape="one-gpu") if expected.ranks == 1 else expected
    return [
        *tell(faults, shown, expected),
        *(expected.series(f"epoch_s/{part}", values, "s") for part, values in seconds.items()),
        *(named.sample(f"epoch_s/{part}", value, "lower", "s") for part, value in usual.items()),
        named.sample("epoch_ratio", ratio, "lower", ""),
    ]


def _epoch_seconds(records: Sequence[Record]) -> list[float]:
    """Give the seconds of each epoch in one environment: those of its slowest rank."""
    steps = slowest([table(record, "models", MODEL) for record in records], "step_s")
    each = max(1, len(steps) // EPOCHS)
    return [sum(steps[first : first + each]) for first in range(0, len(steps), each)]


def _failure(part: str, record: Record) -> Iterator[Said]:
    if text(record, "error"):
        yield f"training in the {part} failed: {text(record, 'error')}", STDERR


def _difference(there: Record, here: Record) -> tuple[str, str]:
    """Say what the slow environment lacks of the other's, as far as the records tell, and what to do."""
    mine = table(here, "environment")
    told = [
        f"{name} is {mine.get(name, 'not set')}, not {value}"
        for name, value in table(there, "environment").items()
        if name.startswith(("NCCL_", "GLOO_", "FI_")) and mine.get(name) != value
    ]
    theirs, own = (
        {path.rpartition("/")[2].partition(".so")[0] for path in texts(one, "mapped")} for one in (there, here)
    )
    lacks = sorted(theirs - own)
    told += [f"{name} is not in use" for name in lacks]
    advice = "compare the environment variables of the two steps, and use the container for training on several nodes"
    if lacks:
        advice = "LUMISITE_TYKKY=/path/of/the/plugin/lib gives the environment libfabric and the plugin of the host"
    return "; in the environment " + ", ".join(told) if told else "", advice
