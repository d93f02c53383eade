"""Whether the settings of an arm took effect: they reached all its ranks, and something there acts on them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from lumisite.findings.catalogue import make_finding
from lumisite.findings.finding import Finding
from lumisite.site.cpus import format_cpu_list
from lumisite.validate.probes.probe import Record
from lumisite.validate.probes.records import number, rank_of, table, text, texts
from lumisite.validate.run.folder import Run
from lumisite.validate.run.script import JobPlan
from lumisite.validate.trial.design import Arm, Design
from lumisite.validate.trial.jobs import SIGN, sign_name

TookEffect: TypeAlias = Literal["yes", "no", "unknown"]
#: Words of a library that did not take what it was given.
_REFUSED = re.compile(r"not available|ignor|invalid|unsupported|not supported|unknown|falling back", re.IGNORECASE)


@dataclass(frozen=True)
class Signs:
    """What a short step of an arm left, beside its ranks' environment.

    `devices`, `carried` and `cpus` are by rank; a rank that did not record one of them is not in it.
    """

    named: Mapping[str, str] = field(default_factory=dict)
    devices: Mapping[int, frozenset[str]] = field(default_factory=dict)
    carried: Mapping[int, Mapping[str, int]] = field(default_factory=dict)
    cpus: Mapping[int, str] = field(default_factory=dict)
    log: tuple[str, ...] = ()

    @property
    def by_rank(self) -> Mapping[str, Mapping[int, object]]:
        """What can only be compared with the same rank of the reference, by its key in a record."""
        return {"devices": self.devices, "carried": self.carried, "cpus": self.cpus}


def read_signs(design: Design, run: Run, plans: Sequence[JobPlan]) -> dict[str, Signs]:
    """Read the short steps of each arm, those of the first allocation that has them."""
    found: dict[str, Signs] = {}
    for plan in plans:
        for arm in design.arms:
            steps = [step for step in plan.steps if step.probe == SIGN and step.slot == sign_name(arm, design)]
            records = [record for step in steps for record in run.records(plan.run, step)]
            if records and arm.name not in found:
                found[arm.name] = _signs_of(arm, sorted(records, key=rank_of))
    return found


def _signs_of(arm: Arm, records: Sequence[Record]) -> Signs:
    names = [setting.name for setting in ([arm.tried] if arm.tried else arm.settings)]
    named = {name: next((file for record in records if (file := text(record, "named", name))), "") for name in names}
    lines = [line for record in records for line in text(record, "log").splitlines()]
    logged = [line.partition("NCCL ")[2] for line in lines if any(re.search(rf"\b{name}\b", line) for name in names)]
    return Signs(
        named,
        # A rank may have none open, and says so.
        {rank_of(one): frozenset(texts(one, "devices")) for one in records if isinstance(one.get("devices"), list)},
        # Of a rank there is what it reported while it worked, too, which has none of these.
        {rank_of(record): counts for record in records if (counts := _carried_by(record))},
        {rank_of(record): listed for record in records if (listed := _cpu_list(record))},
        tuple(dict.fromkeys(filter(None, logged))),
    )


def _carried_by(record: Record) -> dict[str, int]:
    """Return the bytes of each interface that carried some."""
    counts = {name: int(number(record, "carried", name) or 0) for name in table(record, "carried")}
    return {name: count for name, count in counts.items() if count > 0}


def _cpu_list(record: Record) -> str:
    cpus = record.get("cpus")
    return format_cpu_list(cpu for cpu in cpus if isinstance(cpu, int)) if isinstance(cpus, list) else ""


def find_proof(
    arm: Arm, records: Sequence[Record], ranks: int, signs: Signs | None, reference: Signs | None
) -> tuple[TookEffect, tuple[Finding, ...]]:
    """Return whether what an arm sets has reached all its `ranks` and is acted on there, and how that is known.

    What a rank did not record shows nothing, on either side: neither that it has a variable nor that it lacks one.
    """
    if not arm.settings:
        return "yes", ()
    for setting in arm.settings:
        for record in records:
            given = table(record, "given")
            actual = given.get(setting.name)
            if setting.name in given and actual != setting.value:
                finding = make_finding(
                    "setting-not-reached",
                    name=setting.name,
                    actual=None if actual is None else str(actual),
                    rank=rank_of(record),
                    setting=str(setting),
                )
                return "no", (finding,)
    for setting in arm.settings:
        recorded = {rank_of(record) for record in records if setting.name in table(record, "given")}
        if silent := tuple(rank for rank in range(ranks) if rank not in recorded):
            return "unknown", (make_finding("setting-not-recorded", name=setting.name, ranks=silent),)
    if signs is None:
        return "unknown", (make_finding("setting-not-shown"), make_finding("sign-missing", sides=("variant",)))
    refused = [line for line in signs.log if _REFUSED.search(line)]
    if refused:
        return "unknown", (make_finding("setting-refused", line=refused[0]),)
    if found := tuple(_acted_on(signs, reference or Signs())):
        return "yes", found
    not_shown = make_finding("setting-not-shown", name=arm.settings[-1].name)
    return "unknown", (not_shown, *_not_compared(signs, reference))


def _acted_on(signs: Signs, reference: Signs) -> Iterator[Finding]:
    for name, file in signs.named.items():
        if file:
            yield make_finding("library-names-setting", file=file, name=name)
    if signs.log:
        yield make_finding("library-logs-setting", line=signs.log[0])
    ranks = sorted(signs.carried.keys() & reference.carried.keys())
    if ranks and (carrier := _carrier(signs, ranks)) != (before := _carrier(reference, ranks)):
        yield make_finding("carrier-changed", carrier=carrier, reference=before)
    for rank in sorted(signs.cpus.keys() & reference.cpus.keys()):
        if signs.cpus[rank] != reference.cpus[rank]:
            yield make_finding("cpus-changed", rank=rank, cpus=signs.cpus[rank], reference=reference.cpus[rank])
            break
    both = signs.devices.keys() & reference.devices.keys()
    opened, before_open = ({device for rank in both for device in one.devices[rank]} for one in (signs, reference))
    if devices := sorted(opened ^ before_open):
        yield make_finding("devices-changed", devices=tuple(devices))


def _carrier(signs: Signs, ranks: Sequence[int]) -> str:
    """Return the interface that carried most of the bytes of these ranks."""
    carried: Counter[str] = Counter()
    for rank in ranks:
        carried.update(signs.carried[rank])
    return carried.most_common(1)[0][0]


def _not_compared(signs: Signs, reference: Signs | None) -> Iterator[Finding]:
    """Yield what could not be compared, as one side or both have no value of it."""
    if reference is None:
        yield make_finding("sign-missing", sides=("reference",))
        return
    every = {rank for one in (signs, reference) for ranks in one.by_rank.values() for rank in ranks}
    for sign, found in signs.by_rank.items():
        before = reference.by_rank[sign]
        if ranks := tuple(sorted(every - (found.keys() & before.keys()))):
            lacking = {"variant": found, "reference": before}
            sides = tuple(side for side, known in lacking.items() if not known.keys() >= {*ranks})
            yield make_finding("sign-missing", sign=sign, ranks=ranks, sides=sides)
