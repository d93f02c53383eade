"""The ledger: the first entry whose conditions hold wins, and the verdict says why."""

from __future__ import annotations

import itertools

import pytest

from lumisite.site.entries import When
from lumisite.site.images import Holds
from lumisite.site.ledger import (
    Situation,
    choose,
    decide,
    harmful_values,
    judge_conditions,
)
from lumisite.site.load import load_site
from lumisite.site.versions import parse_version, parse_version_range
from tests.support.sites import load_text, site_text

LUMI = load_site("lumi").site


def situation(rocm: str | None = "6.2.4", **more: object) -> Situation:
    held = {} if rocm is None else {"rocm": parse_version(rocm)}
    return Situation("2026-01", {"cpe": parse_version("25.03"), **held}, **more)  # type: ignore[arg-type]


def test_exactly_one_entry_wins_once_all_is_known() -> None:
    read = {"partition": "standard-g", "gpus": True, "plugin": True, "libfabric": parse_version("2.1")}
    for rocm, nodes, family in itertools.product(LUMI.stacks["rocm"].releases, ("one", "several"), LUMI.families):
        found = decide(LUMI, situation(rocm, nodes=nodes, family=family, **read)).settings
        won = [one.entry.name for one in found if one.outcome == "wins"]
        assert len(won) == len({*won})
        assert "may win" not in [one.outcome for one in found]


@pytest.mark.parametrize(
    ("when", "where", "holds"),
    [
        (When(), situation(), True),
        (When(stacks={"rocm": parse_version_range(">=6.1,<6.3")}), situation(), True),
        (When(stacks={"rocm": parse_version_range("<6")}), situation(), False),
        (When(stacks={"cpe": parse_version_range(">=25")}), situation(), True),
        (When(platform=("2024-08",)), situation(), False),
        (When(family=("a", "b")), situation(family="b"), True),
        (When(family=("a", "b")), situation(), None),
        (When(nodes="one", stacks={"rocm": parse_version_range("<6")}), situation(), False),
        (When(kind=("lumi-g",)), situation(kind="lumi-c"), False),
    ],
)
def test_conditions_hold_fail_or_stay_open(when: When, where: Situation, holds: bool | None) -> None:
    assert judge_conditions(when, where)[0] is holds


def test_what_the_image_sets_outweighs_a_setting_of_tasks_and_none_of_a_module() -> None:
    entries = "".join(
        f"  - {{name: {name}, value: '1', where: {where}, why: w, source: here}}\n"
        for name, where in (("A", "singularity-AI-bindings"), ("B", "task"))
    )
    site = load_text(site_text(("settings:\n", f"settings:\n{entries}"))).site
    known = Situation("2026-01", {"cpe": parse_version("25.03")}).with_image(Holds(sets={"A": "2", "B": "2"}))
    found = {str(one.entry.name): one for one in decide(site, known).settings}
    assert (found["A"].outcome, found["B"].outcome) == ("wins", "does not apply")
    assert found["B"].reason == "the image itself sets B=2"


def test_what_is_bound_is_decided_with_its_reason() -> None:
    entry = "  - {path: /opt/a, where: singularity-CPEbits, when: {stacks: {cpe: '>=25'}}, why: w, source: here}\n"
    site = load_text(site_text(("binds:\n", f"binds:\n{entry}"))).site
    now, before = (decide(site, Situation("2026-01", {"cpe": parse_version(cpe)})) for cpe in ("25.03", "24.03"))
    assert "/opt/a" in [bind.path for bind in now.bound_by("singularity-CPEbits")]
    assert "/opt/a" not in [bind.path for bind in before.bound_by("singularity-CPEbits")]
    verdict = next(one for one in before.binds if one.key == "binds[0]")
    assert (verdict.outcome, verdict.holds) == ("does not apply", False)
    assert verdict.reason == "needs cpe >=25, here it is 24.03"


def test_a_value_that_harms_known_images_alone_is_no_doubt_about_unknown_ones() -> None:
    def found(where: Situation) -> list[str]:
        return [one.code for one in harmful_values(LUMI, where, {"AITER_JIT_DIR": "/tmp/jit"})]

    assert found(situation(None)) == []
    assert found(situation("7.2")) == ["harmful-value-exported"]


@pytest.mark.parametrize(
    ("first", "second", "outcomes"),
    [
        ("when: {nodes: several}", "", [("does not apply", "needs nodes several, here it is one"), ("wins", "always")]),
        ("when: {nodes: one}", "when: {gpus: yes}", [("wins", "nodes one"), ("lost", "settings[0] comes first")]),
        (
            "when: {nodes: one}",
            "when: {nodes: several}",
            [("wins", "nodes one"), ("does not apply", "needs nodes several, here it is one")],
        ),
        ("when: {gpus: yes}", "", [("may win", "where gpus is yes"), ("wins", "always")]),
    ],
)
def test_the_first_entry_that_applies_wins(first: str, second: str, outcomes: list[tuple[str, str]]) -> None:
    entries = "".join(f"  - {{name: A, value: '1', why: w, source: here, {when}}}\n" for when in (first, second))
    site = load_text(site_text(("settings:\n", f"settings:\n{entries}"))).site
    verdicts = decide(site, Situation("2026-01", {"cpe": parse_version("25.03")}, nodes="one")).settings
    assert [(one.outcome, one.reason) for one in verdicts if one.entry.name == "A"] == outcomes


SETTINGS = """\
settings:
  - {name: A, leave: yes, when: {family: [twin-torch]}, why: w, source: here}
  - {name: A, value: '1', when: {plugin: yes}, why: w, source: here}
  - {name: A, value: '2', why: w, source: here}
"""


@pytest.mark.parametrize(
    ("holds", "sees_image", "entry", "is_open"),
    [
        (Holds(), False, 1, True),
        (Holds(), True, 1, True),
        (Holds(family="twin-torch"), True, 0, False),
        (Holds(family="other", plugin=True), True, 1, False),
        (Holds(plugin=False), True, 2, False),
        (Holds(sets={"A": "3"}), True, None, False),
    ],
)
def test_what_is_not_known_of_an_image_is_not_set(
    holds: Holds, sees_image: bool, entry: int | None, is_open: bool
) -> None:
    site = load_text(site_text(("settings:\n", SETTINGS))).site
    situation = Situation("2026-01", {"cpe": parse_version("25.03")}).with_image(holds)
    choice = choose(site, decide(site, situation), "A", sees_image=sees_image)
    found = None if choice is None else (choice.verdict.key, choice.is_open)
    assert found == (None if entry is None else (f"settings[{entry}]", is_open))
