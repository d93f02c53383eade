"""The design of a trial: which arms run when in which allocations, and what decides, all fixed before the first job.

An arm is an environment of the ranks. Each allocation runs the reference first and last, and between them, in an order
drawn from the seed, every variant, a placebo (the reference under another name) and, where there is one, a positive
control. Several settings share the references, the placebo and the control. The order of every allocation that may run
is in the design, those in place of allocations that are thrown out too, so that nothing is drawn after data were seen.

In the file of a design, runs of arms are called `slots`, and the placebo `sham`.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from lumisite.errors import ResolveError
from lumisite.findings.catalogue import make_finding
from lumisite.findings.finding import Finding
from lumisite.site.decode import unknown
from lumisite.site.json_file import JsonFile

Role: TypeAlias = Literal["reference", "variant", "sham", "control"]

REFERENCE, PLACEBO, CONTROL = "reference", "sham", "control"
#: Patterns of the metrics that decide, unless others are requested; all others are only reported.
DECIDING = ("*_busbw/*", "ddp/samples_per_s/*")
#: Patterns of those of them that are a workload: what users run, not a microbenchmark.
WORKLOAD = ("ddp/*",)
#: What a job needs beside the runs and signs: to load the module, to check its nodes; in seconds.
BESIDE_S = 600
#: What a variable of the environment may be called.
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)


@dataclass(frozen=True)
class TrialSetting:
    """A variable of the environment: set to `value`, or unset where that is None."""

    name: str
    value: str | None = None

    def __str__(self) -> str:
        return f"{self.name} unset" if self.value is None else f"{self.name}={self.value}"


@dataclass(frozen=True)
class Arm:
    """What is compared: `settings` is all that it changes of the environment that lumisite gives a rank.

    `tried` is that among them which a variant is about, None for all other arms. `value` is the value whose effect is
    measured: the variant's, or the reference's where the variant unsets it (None where that is not known).
    """

    name: str
    role: Role
    settings: tuple[TrialSetting, ...] = ()
    tried: TrialSetting | None = None
    value: str | None = None

    @property
    def sign(self) -> int:
        """-1 for a variant without the setting that is tried, 1 for all other arms."""
        return -1 if self.tried is not None and self.tried.value is None else 1


@dataclass(frozen=True, order=True)
class PlannedRun:
    """One run of an arm: `allocation` and `position` in it, both from 1; `attempt` from 1 among the arm's in there.

    `check` is 0 for a run of the design, else the number of a plain reference run that had to pass after the run of
    this position hung; it shows whether the allocation is still clean, and counts for nothing else.
    """

    allocation: int
    position: int
    arm: str
    attempt: int = 1
    check: int = 0


@dataclass(frozen=True)
class Thresholds:
    """What decides, as parts (0.03: 3 %) of the reference's value; `alpha` bounds the false discovery rate.

    A smaller effect than `smallest` is of no interest. An allocation is thrown out where the placebo differs from the
    references by more than `sham`, the last reference from the first by more than `drift`, or the positive control
    costs less than `control`. A setting without which the workload loses more than `needed` is needed.
    """

    smallest: float = 0.03
    sham: float = 0.05
    drift: float = 0.05
    control: float = 0.10
    needed: float = 0.20
    alpha: float = 0.005


@dataclass(frozen=True)
class Design:
    """All that is fixed before the first job.

    Stopping rule: allocations run in their order until `allocations` are valid, or `most_allocations` have run, and
    nothing else ends a trial. `attempts`: in each allocation every variant runs at least so often, and so do references
    and placebo together. `slot_s` bounds one run, and `job_s` the job of one allocation, in seconds; node hours are
    those of `allocations`, and of `most_allocations`, were every job to take so long.
    """

    seed: int
    arms: tuple[Arm, ...]
    slots: tuple[PlannedRun, ...]
    probes: tuple[str, ...]
    metrics: tuple[str, ...]
    workload: tuple[str, ...]
    thresholds: Thresholds
    nodes: int
    allocations: int
    most_allocations: int
    attempts: int
    slot_s: int
    job_s: int
    node_hours: float
    most_node_hours: float

    @property
    def by_name(self) -> Mapping[str, Arm]:
        """The arms by their names."""
        return {arm.name: arm for arm in self.arms}

    @property
    def variants(self) -> tuple[Arm, ...]:
        """The arms that try a setting."""
        return tuple(arm for arm in self.arms if arm.role == "variant")

    def runs_of(self, allocation: int) -> tuple[PlannedRun, ...]:
        """Return the runs of an allocation, in their order."""
        return tuple(run for run in self.slots if run.allocation == allocation)


_FILE = JsonFile(
    name="design of a trial",
    key="lumisite_trial",
    written_by="lumisite try",
    error=ResolveError,
    may_lack=(),
)


def design_text(design: Design) -> str:
    """Format the file of a design: the same design always gives the same bytes."""
    return _FILE.encode(design)


def read_design(data: bytes, file: str) -> Design:
    """Parse the file of a design. Raises `ResolveError`."""
    return _FILE.decode(data, Design, file, (_unknown_arms,))


def _unknown_arms(design: Design) -> Iterator[Finding]:
    for index, run in enumerate(design.slots):
        yield from unknown(f"slots[{index}].arm", [run.arm], design.by_name)


def plan(
    seed: int,
    tried: Sequence[TrialSetting],
    *,
    against: Sequence[TrialSetting] = (),
    control: Sequence[TrialSetting] = (),
    present: Mapping[str, str] | None = None,
    probes: Sequence[str],
    metrics: Sequence[str] = DECIDING,
    nodes: int,
    allocations: int = 3,
    attempts: int = 1,
    slot_s: int,
    sign_s: int = 0,
    thresholds: Thresholds | None = None,
) -> Design:
    """Return the design in which each of `tried` is a variant by itself, and `against` is what the reference sets.

    `present` are values that ranks have already. `sign_s` bounds the short step that shows whether an arm takes effect,
    in seconds. The same arguments give the same design. Raises `ResolveError` for what cannot be compared.
    """
    _check_arms(tried, against, control)
    arms = _arms(tried, against, control, present or {})
    most = 2 * allocations
    slots = [run for number in range(1, most + 1) for run in _order(seed, number, arms, attempts)]
    job_s = len(slots) // most * slot_s + (1 + len(tried)) * sign_s + BESIDE_S
    hours = job_s * nodes / 3600
    return Design(
        seed=seed,
        arms=arms,
        slots=tuple(slots),
        probes=tuple(probes),
        metrics=tuple(metrics),
        workload=WORKLOAD,
        thresholds=thresholds or Thresholds(),
        nodes=nodes,
        allocations=allocations,
        most_allocations=most,
        attempts=attempts,
        slot_s=slot_s,
        job_s=job_s,
        node_hours=round(hours * allocations, 3),
        most_node_hours=round(hours * most, 3),
    )


def _check_arms(
    tried: Sequence[TrialSetting], against: Sequence[TrialSetting], control: Sequence[TrialSetting]
) -> None:
    if not tried:
        raise ResolveError(make_finding("nothing-to-try", "try"))
    for option, names in (("try", [*map(str, tried)]), ("--against", [setting.name for setting in against])):
        if repeated := next((name for name in names if names.count(name) > 1), None):
            raise ResolveError(make_finding("setting-repeated", option, name=repeated))
    for setting in tried:
        if setting in against:
            raise ResolveError(make_finding("setting-in-reference", "try", setting=str(setting)))
    if control and {*control} <= {*against}:
        raise ResolveError(make_finding("control-in-reference", "--against", settings=tuple(map(str, control))))


def _arms(
    tried: Sequence[TrialSetting],
    against: Sequence[TrialSetting],
    control: Sequence[TrialSetting],
    present: Mapping[str, str],
) -> tuple[Arm, ...]:
    values = {**present, **{setting.name: setting.value for setting in against}}
    arms = [Arm(REFERENCE, "reference", tuple(against)), Arm(PLACEBO, "sham", tuple(against))]
    if control:
        arms.append(Arm(CONTROL, "control", (*_without(against, control), *control)))
    for setting in tried:
        value = values.get(setting.name) if setting.value is None else setting.value
        arms.append(Arm(str(setting), "variant", (*_without(against, [setting]), setting), setting, value))
    return tuple(arms)


def _without(settings: Sequence[TrialSetting], others: Sequence[TrialSetting]) -> list[TrialSetting]:
    names = [other.name for other in others]
    return [setting for setting in settings if setting.name not in names]


def _order(seed: int, allocation: int, arms: Sequence[Arm], attempts: int) -> list[PlannedRun]:
    """Return the runs of one allocation. The order is that of a hash, so that every Python draws the same one."""

    def drawn(run: tuple[str, int]) -> bytes:
        return hashlib.sha256(f"{seed}/{allocation}/{run[0]}/{run[1]}".encode()).digest()

    references = max(2, attempts - 1)
    inner = [(REFERENCE, attempt) for attempt in range(2, references)]
    for arm in arms:
        if arm.role == "variant":
            inner += [(arm.name, attempt) for attempt in range(1, attempts + 1)]
        elif arm.role != "reference":
            inner.append((arm.name, 1))
    runs = [(REFERENCE, 1), *sorted(inner, key=drawn), (REFERENCE, references)]
    return [PlannedRun(allocation, position, arm, attempt) for position, (arm, attempt) in enumerate(runs, start=1)]
