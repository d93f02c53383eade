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
    """What a short step of an arm left, beside its ranks' environment; `cpus` are those of each rank."""

    named: Mapping[str, str] = field(default_factory=dict)
    devices: tuple[str, ...] = ()
    carrier: str = ""
    cpus: tuple[str, ...] = ()
    log: tuple[str, ...] = ()


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
    carried: Counter[str] = Counter()
    for record in records:
        carried.update({name: int(number(record, "carried", name) or 0) for name in table(record, "carried")})
    lines = [line for record in records for line in text(record, "log").splitlines()]
    logged = [line.partition("NCCL ")[2] for line in lines if any(re.search(rf"\b{name}\b", line) for name in names)]
    devices = {device for record in records for device in texts(record, "devices")}
    return Signs(
        named,
        tuple(sorted(devices)),
        next((name for name, _ in carried.most_common(1)), ""),
        tuple(map(_cpu_list, records)),
        tuple(dict.fromkeys(filter(None, logged))),
    )


def _cpu_list(record: Record) -> str:
    cpus = record.get("cpus")
    return format_cpu_list(cpu for cpu in cpus if isinstance(cpu, int)) if isinstance(cpus, list) else ""


def find_proof(
    arm: Arm, records: Sequence[Record], signs: Signs | None, reference: Signs | None
) -> tuple[TookEffect, tuple[Finding, ...]]:
    """Return whether what an arm sets has reached all its ranks and is acted on there, and how that is known."""
    if not arm.settings:
        return "yes", ()
    for setting in arm.settings:
        for record in records:
            actual = table(record, "given").get(setting.name)
            if actual != setting.value:
                finding = make_finding(
                    "setting-not-reached",
                    name=setting.name,
                    actual=None if actual is None else str(actual),
                    rank=rank_of(record),
                    setting=str(setting),
                )
                return "no", (finding,)
    if not records or signs is None:
        return "unknown", (make_finding("setting-not-shown"),)
    refused = [line for line in signs.log if _REFUSED.search(line)]
    if refused:
        return "unknown", (make_finding("setting-refused", line=refused[0]),)
    if found := tuple(_acted_on(signs, reference or Signs())):
        return "yes", found
    return "unknown", (make_finding("setting-not-shown", name=arm.settings[-1].name),)


def _acted_on(signs: Signs, reference: Signs) -> Iterator[Finding]:
    for name, file in signs.named.items():
        if file:
            yield make_finding("library-names-setting", file=file, name=name)
    if signs.log:
        yield make_finding("library-logs-setting", line=signs.log[0])
    if signs.carrier and reference.carrier and signs.carrier != reference.carrier:
        yield make_finding("carrier-changed", carrier=signs.carrier, reference=reference.carrier)
    for rank, (cpus, before) in enumerate(zip(signs.cpus, reference.cpus, strict=False)):
        if cpus and before and cpus != before:
            yield make_finding("cpus-changed", rank=rank, cpus=cpus, reference=before)
            break
    if signs.devices and (devices := sorted({*signs.devices} ^ {*reference.devices})):
        yield make_finding("devices-changed", devices=tuple(devices))
