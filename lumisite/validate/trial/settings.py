"""Which settings are tried, and what the reference has; what a trial cannot answer is refused before its first job."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from lumisite.errors import ResolveError
from lumisite.findings.catalogue import make_finding
from lumisite.site.entries import Evidence, Setting
from lumisite.site.ledger import decide
from lumisite.validate.probes.probe import Target
from lumisite.validate.trial.design import NAME, TrialSetting

#: The beginnings of names that Slurm, the helper or a runtime sets anew in each task.
SET_ANEW = ("SLURM_", "LUMISITE", "SINGULARITY", "APPTAINER")
#: What a user may set for the helper, by which its masks and its choice of GPUs are tried.
SWITCHES = ("LUMISITE_CPU_BIND", "LUMISITE_GPUS")


def parse_settings(
    tried: Sequence[str], unset: Sequence[str], against: Sequence[str], target: Target
) -> tuple[list[TrialSetting], list[TrialSetting]]:
    """Return what is tried, and what the reference sets. Raises `ResolveError`.

    What ranks have already is tried by doing without it: so the reference is what works today.
    """
    reference = [parse_setting(text, "--against") for text in against]
    variants = [parse_setting(text, "try") for text in tried]
    for name in unset:
        if not NAME.fullmatch(name):
            raise ResolveError(make_finding("setting-malformed", "--unset", text=name, expected="NAME"))
        variants.append(TrialSetting(name))
    for setting in (*variants, *reference):
        _check(setting, target)
    present = settings_present(target)
    changed = [setting.name for setting in reference]
    for index, setting in enumerate(variants):
        entry = present.get(setting.name)
        if entry and entry.value == setting.value and setting.name not in changed:
            variants[index] = TrialSetting(setting.name)
    return variants, reference


def parse_setting(text: str, option: str) -> TrialSetting:
    """Parse NAME=VALUE; `option` is named in the `ResolveError` for what is not."""
    name, equals, value = text.partition("=")
    if not equals or not NAME.fullmatch(name) or not value.isprintable():
        bare = name if NAME.fullmatch(text) else None
        raise ResolveError(make_finding("setting-malformed", option, text=text, expected="NAME=VALUE", name=bare))
    return TrialSetting(name, value)


def settings_present(target: Target) -> dict[str, Setting]:
    """Return the entries of the ledger that surely give ranks a value here, by variable."""
    situation = replace(target.situation, nodes="several" if target.plan.nodes > 1 else "one")
    winners = (choice.entry for choice in decide(target.site, situation).settings if choice.outcome == "wins")
    return {entry.name: entry for entry in winners if entry.value is not None}


def unmeasured(target: Target) -> list[TrialSetting]:
    """Return what ranks have here by entries that nobody measured on this platform, as trials of doing without each."""
    return [
        TrialSetting(name)
        for name, entry in settings_present(target).items()
        if not any(_is_measured(evidence, target.site.platform) for evidence in entry.evidence)
    ]


def _is_measured(evidence: Evidence, platform: str | None) -> bool:
    return evidence.by == "measured" and evidence.of is None and evidence.platform in (None, platform)


def _check(setting: TrialSetting, target: Target) -> None:
    entries = [entry for entry in target.site.settings if entry.name == setting.name]
    anew = setting.name.startswith(SET_ANEW) and setting.name not in SWITCHES
    if anew or any(entry.computed or entry.directory for entry in entries):
        raise ResolveError(make_finding("setting-computed", "try", name=setting.name))
    same = [entry for entry in entries if entry.value == setting.value and setting.value is not None]
    if same and target.situation.plugin is False and all(entry.when.plugin for entry in same):
        needs = make_finding("setting-needs-plugin", "try", setting=str(setting), image=target.image, why=same[0].why)
        raise ResolveError(needs)
