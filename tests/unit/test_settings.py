"""The ledger: the first entry whose conditions hold wins, and the verdict says why."""

from __future__ import annotations

import doctest

import pytest

import lumisite.site.settings
from lumisite.site.load import load_site
from lumisite.site.model import When
from lumisite.site.settings import (
    Situation,
    default_family,
    describe_conditions,
    judge_conditions,
    judge_settings,
    module_settings,
)
from lumisite.site.versions import parse_version, parse_version_range
from tests.unit.sites import load_text, site_text

LUMI = load_site("lumi").site


def situation(rocm: str = "6.2.4", **more: str) -> Situation:
    return Situation("2026-01", parse_version("25.03"), parse_version(rocm), **more)  # type: ignore[arg-type]


def outcomes(name: str, where: Situation) -> list[str]:
    return [verdict.outcome for verdict in judge_settings(LUMI, where, [name])]


@pytest.mark.parametrize(
    ("where", "result"),
    [
        (situation("7.0", nodes="several"), ["wins", "lost", "lost"]),
        (situation(nodes="several"), ["does not apply", "wins", "lost"]),
        (situation(nodes="one"), ["does not apply", "does not apply", "wins"]),
        (situation(), ["does not apply", "may win", "wins"]),
    ],
)
def test_the_gdr_level_by_rocm_and_step_shape(where: Situation, result: list[str]) -> None:
    assert outcomes("NCCL_NET_GDR_LEVEL", where) == result


def test_exactly_one_entry_wins_once_all_is_known() -> None:
    for rocm in LUMI.rocm:
        for nodes in ("one", "several"):
            for family in LUMI.families:
                known = situation(rocm, nodes=nodes, family=family, partition="standard-g")
                for name in {setting.name for setting in LUMI.settings}:
                    assert outcomes(name, known).count("wins") <= 1
                    assert "may win" not in outcomes(name, known)


@pytest.mark.parametrize(
    ("when", "where", "holds"),
    [
        (When(), situation(), True),
        (When(rocm=parse_version_range(">=6.1,<6.3")), situation(), True),
        (When(rocm=parse_version_range("<6")), situation(), False),
        (When(cpe=parse_version_range(">=25")), situation(), True),
        (When(platform=("2024-08",)), situation(), False),
        (When(family=("a", "b")), situation(family="b"), True),
        (When(family=("a", "b")), situation(), None),
        (When(nodes="one", rocm=parse_version_range("<6")), situation(), False),
        (When(partition=("dev-g",)), situation(partition="small-g"), False),
    ],
)
def test_conditions_hold_fail_or_stay_open(when: When, where: Situation, holds: bool | None) -> None:
    assert judge_conditions(when, where)[0] is holds


def test_reasons_name_what_was_wanted_and_what_was_met() -> None:
    assert judge_conditions(When(nodes="one"), situation(nodes="several"))[1] == "needs nodes one, here it is several"
    assert judge_conditions(When(nodes="one"), situation())[1] == "where nodes is one"
    assert describe_conditions(When()) == "always"


@pytest.mark.parametrize(
    ("rocm", "family"),
    [("5.4.5", "lumi-pytorch"), ("6.2.4", "lumi-pytorch"), ("6.3.4", "laif-multitorch"), ("7.0", "laif-multitorch")],
)
def test_the_default_family_follows_the_rocm_release(rocm: str, family: str) -> None:
    assert default_family(LUMI, parse_version(rocm)) == family


def test_a_module_sets_only_what_wins_and_names_it() -> None:
    laif = situation("6.4.4", family="laif-multitorch")
    assert [s.name for s in module_settings(LUMI, laif, "singularity-AI-bindings")] == ["SLURM_MPI_TYPE"]
    assert module_settings(LUMI, laif, "singularity-CPEbits") == ()
    assert module_settings(LUMI, situation(family="lumi-pytorch"), "singularity-AI-bindings") == ()


def test_an_open_entry_does_not_end_the_race() -> None:
    site = load_text(
        site_text(
            (
                "settings:\n",
                (
                    "settings:\n"
                    "  - {name: A, value: '1', when: {nodes: one}, why: w, source: s}\n"
                    "  - {name: A, value: '2', why: w, source: s}\n"
                ),
            )
        )
    ).site
    verdicts = judge_settings(site, Situation("2026-01", parse_version("25.03"), parse_version("6.2.4")), ["A"])
    assert [v.outcome for v in verdicts] == ["may win", "wins"]


def test_every_entry_names_a_reason_and_a_source() -> None:
    for setting in LUMI.settings:
        assert len(setting.why) > 10, setting.name
        assert len(setting.source) > 2, setting.name


def test_examples_in_docstrings() -> None:
    assert doctest.testmod(lumisite.site.settings).failed == 0
