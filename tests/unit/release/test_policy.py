"""The policy of a deployment root, through the command line as an admin types it."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path

import pytest

from lumisite.release import policy
from lumisite.release.policy import read_policy
from lumisite.site.load import EMBEDDED
from tests.support.rendered_trees import deploy
from tests.unit.release.conftest import Run


@pytest.fixture(autouse=True)
def root(run: Run) -> Path:
    deploy("old")
    return Path("ROOT")


def lines(run: Run, *words: str) -> list[str]:
    code, out, err = run("policy", "ROOT", *words, "--json")
    assert (code, err) == (0, "")
    assert json.loads(out)["policy"][0].keys() == {"word", "scope", "name"}
    found = read_policy(Path("ROOT").resolve())
    assert found is not None
    assert not found.faults
    return [line.text for line in found.lines]


def test_a_line_comes_first_or_in_the_place_of_its_like_and_a_word_for_all_jobs_replaces_all(run: Run) -> None:
    assert lines(run, "observe") == ["observe default"]
    assert lines(run, "on", "--partition", "dev-g") == ["on partition dev-g", "observe default"]
    others = ["off partition standard-g", "off account project_462000001"]
    words = ["off", "--account", "project_462000001", "--partition", "standard-g"]
    assert lines(run, *words) == [*others, "on partition dev-g", "observe default"]
    assert lines(run, "off", "--partition", "dev-g") == ["off partition dev-g", *others, "observe default"]
    assert lines(run, "off") == ["off default"]


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["observe", "--partition", "dev_g"], "no partition of site lumi"),
        (["observe", "--partition", "a,b"], "cannot be written into a policy as "),
        (["observe", "--account", "zz"], "no account of site lumi"),
    ],
)
def test_a_name_that_there_is_not_is_refused(run: Run, words: Sequence[str], code: str) -> None:
    run("policy", "ROOT", "on")
    status, out, err = run("policy", "ROOT", *words)
    assert (status, out, code in err) == (2, "", True)
    assert lines(run) == ["on default"]


@pytest.mark.parametrize(("word", "noted"), [("on", False), ("observe", True)])
def test_validate_says_for_whom_the_helper_is_not_on(run: Run, word: str, *, noted: bool) -> None:
    run("policy", "ROOT", word)
    text = (EMBEDDED / "lumi.yaml").read_text()
    Path("site.yaml").write_text(re.sub(r"(?m)^root: .*", f"root: {Path('ROOT').resolve()}", text))
    code, _, err = run("validate", "--site", "site.yaml", "--dry-run", "--probe", "ddp", "--jobs", "1")
    assert (code, "ROOT/policy: " in err) == (0, noted)


@pytest.mark.parametrize("text", ["", "on default", "act default\n"])
def test_a_damaged_policy_is_reported_with_its_line(run: Run, text: str) -> None:
    Path("ROOT/policy").write_text(text)
    for words in ([], ["on", "--partition", "dev-g"]):
        status, out, err = run("policy", "ROOT", *words)
        assert (status, out) == (1, "")
        assert f"{Path('ROOT').resolve()}/policy:" in err
        assert "[policy-damaged]" in err
    assert Path("ROOT/policy").read_text() == text
    assert lines(run, "off") == ["off default"]


def plant(kind: str) -> None:
    path = Path("ROOT/policy")
    if kind == "folder":
        path.mkdir()
        return
    path.write_text("observe default\n" if kind != "long" else "on account a\n" * policy.MOST_LINES + "off default\n")
    if kind in ("link", "lost link"):
        path.rename("elsewhere")
        path.symlink_to("../elsewhere" if kind == "link" else "../nowhere")
    if kind == "closed":
        path.chmod(0o640)


#: For whom the helper is on by each policy, and what is said of it.
UNFIT = {
    "link": ("observe for all other jobs", "a symbolic link: the helper follows it"),
    "lost link": ("on for who has loaded", "a link to nothing: the helper acts as without a policy"),
    "folder": ("off for all other jobs", "a directory, expected a file: the helper is off for all jobs"),
    "closed": ("off for all other jobs", "mode 0640, so that users cannot read it: the helper is off for all jobs"),
    "long": ("on for account a; ", "is behind 64 lines, so the helper is off for all whom no line before it fits"),
}


@pytest.mark.parametrize("kind", UNFIT)
def test_what_the_helper_makes_of_a_policy_is_said_by_all(run: Run, kind: str) -> None:
    plant(kind)
    effect, fault = UNFIT[kind]
    status, _, err = run("policy", "ROOT")
    assert (status, fault in err, "[policy-damaged]" in err) == (1, True, True)
    found = json.loads(run("status", "ROOT", "--site", "lumi", "--json")[1])
    assert found["policy"].startswith(effect)
    assert fault in found["policy"]
    if kind != "folder":
        assert lines(run, "on") == ["on default"]


@pytest.mark.parametrize("limit", ["MOST_BYTES", "MOST_LINES"])
def test_too_many_lines_are_refused(run: Run, monkeypatch: pytest.MonkeyPatch, limit: str) -> None:
    assert run("policy", "ROOT", "observe")[0] == 0
    monkeypatch.setattr(policy, limit, 40 if limit == "MOST_BYTES" else 2)
    status, _, err = run("policy", "ROOT", "on", "--partition", "dev-g", "--partition", "standard-g")
    assert (status, "[policy-damaged]" in err) == (1, True)
    assert lines(run) == ["observe default"]
