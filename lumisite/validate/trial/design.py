"""The design of a trial: which arms run in which slots of which allocations, and what decides, all fixed before.

An arm is an environment of the rank. Each allocation runs the reference first and last, and between them, in an order
drawn from the seed, every variant, a sham (the reference under another name) and, where there is one, a positive
control. Several settings share the references, the sham and the control. The order of every allocation that may be run
is in the design, those in place of allocations that are thrown out too, so that nothing is drawn after data were seen.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from lumisite.errors import ResolveError
from lumisite.site.decode import JsonFile
from lumisite.validate.lines import Better, Sample

Role: TypeAlias = Literal["reference", "variant", "sham", "control"]
#: How a slot ended. `hung`: the watchdog ended it; `failed`: it ended itself, without success; `lost`: neither, through
#: Slurm, a node or a person, so that it is no evidence.
Outcome: TypeAlias = Literal["done", "hung", "failed", "lost"]
TookEffect: TypeAlias = Literal["yes", "no", "unknown"]

REFERENCE, SHAM, CONTROL = "reference", "sham", "control"
#: Patterns of the metrics that decide, if nothing else is asked; all others are shown only.
DECIDING = ("*_busbw/*", "ddp/samples_per_s/*")
#: Patterns of those of them that are a workload: what users run, not a microbenchmark.
WORKLOAD = ("ddp/*",)
#: What a job needs beside its slots and signs: to load the module, to look at its nodes, checks; in seconds.
BESIDE_S = 600
#: What a variable of the environment may be called.
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)


@dataclass(frozen=True)
class Setting:
    """A variable of the environment: set to `value`, or unset where that is None."""

    name: str
    value: str | None = None

    def __str__(self) -> str:
        return f"{self.name} unset" if self.value is None else f"{self.name}={self.value}"


@dataclass(frozen=True)
class Arm:
    """What is compared: `settings` is all that it changes of the environment that lumisite gives a rank.

    `tried` is the one among them that a variant is about, None for all other arms.
    """

    name: str
    role: Role
    settings: tuple[Setting, ...] = ()
    tried: Setting | None = None


@dataclass(frozen=True, order=True)
class Slot:
    """One run of an arm: `allocation` and `position` in it, both from 1; `attempt` from 1 among the arm's in there.

    `check` is 0 for a slot of the design, else the number of a plain reference slot that had to pass after the slot of
    this position hung; such a slot says whether the allocation is still clean, and counts for nothing else.
    """

    allocation: int
    position: int
    arm: str
    attempt: int = 1
    check: int = 0


@dataclass(frozen=True)
class Thresholds:
    """What decides, as parts (0.03: 3 %) of the reference's value; `alpha` bounds the false discovery rate.

    A smaller effect than `smallest` is of no interest. An allocation is thrown out where the sham differs from the
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
    and sham together. `slot_s` bounds one slot, and `job_s` the job of one allocation, in seconds; node hours are those
    of `allocations`, and of `most_allocations`, were every job to take so long.
    """

    seed: int
    arms: tuple[Arm, ...]
    slots: tuple[Slot, ...]
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

    def of_role(self, role: Role) -> tuple[Arm, ...]:
        """Give the arms of a role."""
        return tuple(arm for arm in self.arms if arm.role == role)

    def slots_of(self, allocation: int) -> tuple[Slot, ...]:
        """Give the slots of an allocation, in the order in which they run."""
        return tuple(slot for slot in self.slots if slot.allocation == allocation)


@dataclass(frozen=True)
class Measured:
    """What one slot measured of one metric; values are finite and above 0."""

    values: tuple[float, ...]
    better: Better
    unit: str = ""


@dataclass(frozen=True)
class SlotResult:
    """How one slot ended.

    `values` are by metric, as samples name them. `took_effect` says whether what the arm sets reached the rank and was
    acted on, with its `evidence`. `leftovers` are nodes on which processes were left after the slot was reaped. `cause`
    says why it failed or was lost; `job` is Slurm's id.
    """

    slot: Slot
    outcome: Outcome
    values: Mapping[str, Measured] = field(default_factory=dict)
    took_effect: TookEffect = "unknown"
    evidence: str = ""
    leftovers: tuple[str, ...] = ()
    seconds: float = 0.0
    nodes: tuple[str, ...] = ()
    cause: str = ""
    job: str = ""


_FILE = JsonFile(
    name="design of a trial",
    key="lumisite_trial",
    remedy="`lumisite try` writes one",
    error=ResolveError,
    may_lack=(),
)


def setting_of(text: str, option: str = "try") -> Setting:
    """Read NAME=VALUE, or NAME alone for one that is unset; `option` is named in the `ResolveError` for another."""
    name, equals, value = text.partition("=")
    if not NAME.fullmatch(name):
        raise ResolveError(f"{option}: {text!r} is no setting (NAME=VALUE would be right)")
    if not value.isprintable():
        raise ResolveError(f"{option}: the value of {name} has a character that does not print")
    return Setting(name, value if equals else None)


def values_of(samples: Iterable[Sample]) -> dict[str, Measured]:
    """Give what the samples of one slot say, by metric."""
    found: dict[str, list[Sample]] = {}
    for sample in samples:
        found.setdefault(sample.metric, []).append(sample)
    return {
        name: Measured(tuple(sample.value for sample in own), own[0].better, own[0].unit) for name, own in found.items()
    }


def plan(
    seed: int,
    tried: Sequence[Setting],
    *,
    against: Sequence[Setting] = (),
    control: Sequence[Setting] = (),
    probes: Sequence[str],
    metrics: Sequence[str] = DECIDING,
    nodes: int,
    allocations: int = 3,
    attempts: int = 1,
    slot_s: int,
    sign_s: int = 0,
    thresholds: Thresholds | None = None,
) -> Design:
    """Make the design: each of `tried` is a variant by itself, `against` is what the reference sets.

    `sign_s` bounds the short step that asks whether an arm takes effect, in seconds. The same arguments give the same
    design. Raises `ResolveError` for what cannot be compared.
    """
    arms = _arms(tried, against, control)
    most = 2 * allocations
    slots = [slot for number in range(1, most + 1) for slot in _order(seed, number, arms, attempts)]
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


def _arms(tried: Sequence[Setting], against: Sequence[Setting], control: Sequence[Setting]) -> tuple[Arm, ...]:
    if not tried:
        raise ResolveError("try: there is nothing to try (NAME=VALUE, or --unset NAME)")
    for given, option in ((against, "--against"), (control, "the positive control")):
        names = [one.name for one in given]
        if twice := next((name for name in names if names.count(name) > 1), None):
            raise ResolveError(f"{option}: {twice} stands twice")
    if twice := next((str(one) for one in tried if tried.count(one) > 1), None):
        raise ResolveError(f"try: {twice} stands twice")
    if same := next((str(one) for one in tried if one in against), None):
        raise ResolveError(f"try: the reference has {same} too, so there is nothing to compare")
    if control and {*control} <= {*against}:
        raise ResolveError(
            f"--against: {', '.join(map(str, control))} is the control, which has to cost speed against it"
        )
    reference = tuple(against)
    variants = [Arm(str(one), "variant", (*_without(against, [one]), one), one) for one in tried]
    controls = [Arm(CONTROL, "control", (*_without(against, control), *control))] if control else []
    return (Arm(REFERENCE, "reference", reference), Arm(SHAM, "sham", reference), *controls, *variants)


def _without(settings: Sequence[Setting], others: Sequence[Setting]) -> list[Setting]:
    names = [one.name for one in others]
    return [one for one in settings if one.name not in names]


def _order(seed: int, allocation: int, arms: Sequence[Arm], attempts: int) -> list[Slot]:
    """Give the slots of one allocation. By a hash, so that every Python draws the same order from a seed."""

    def drawn(run: tuple[str, int]) -> bytes:
        return hashlib.sha256(f"{seed}/{allocation}/{run[0]}/{run[1]}".encode()).digest()

    more = max(2, attempts - 1)
    inner = [(arm.name, attempt) for arm in arms if arm.role == "variant" for attempt in range(1, attempts + 1)]
    inner += [(arm.name, 1) for arm in arms if arm.role in ("sham", "control")]
    inner += [(REFERENCE, attempt) for attempt in range(2, more)]
    runs = [(REFERENCE, 1), *sorted(inner, key=drawn), (REFERENCE, more)]
    return [Slot(allocation, place, arm, attempt) for place, (arm, attempt) in enumerate(runs, start=1)]


def design_text(design: Design) -> str:
    """Write the file of a design: the same design always gives the same bytes."""
    return _FILE.encode(design)


def read_design(data: bytes, file: str) -> Design:
    """Read the file of a design; raises `ResolveError` for what is none."""
    return _FILE.decode(data, Design, file)
