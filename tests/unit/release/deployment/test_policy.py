"""The policy of a deployment root, through the command line as an admin types it."""

from __future__ import annotations

import grp
import json
import os
import re
from collections.abc import Sequence
from pathlib import Path

import pytest

from lumisite.errors import DifferenceError
from lumisite.release import policy
from lumisite.release.policy import Policy, Rule, parse_policy, read_policy
from lumisite.release.root import locked
from lumisite.site.load import EMBEDDED
from tests.support.prologs import write_script
from tests.support.scene import Run, deploy

OF_ALL = Rule("observe")


@pytest.fixture(autouse=True)
def root(run: Run) -> Path:
    deploy("old")
    return Path("ROOT")


def rules(run: Run, *words: str) -> list[str]:
    code, out, err = run("policy", "ROOT", *words, "--json")
    assert (code, err) == (0, "")
    assert json.loads(out)["policy"] is not None
    found = read_policy(Path("ROOT").resolve())
    assert found is not None
    return [rule.line for rule in found.rules]


def test_a_mode_for_everybody_replaces_the_policy(run: Run) -> None:
    assert rules(run, "observe") == ["observe"]
    assert rules(run, "act", "--partition", "dev-g") == ["act partition=dev-g", "observe"]
    assert rules(run, "off") == ["off"]


def test_a_rule_comes_before_those_that_are_there(run: Run) -> None:
    rules(run, "observe")
    rules(run, "act", "--partition", "dev-g", "--share", "30%")
    found = rules(run, "off", "--account", "project_462000001", "--group", grp.getgrgid(0).gr_name)
    assert found == ["off account=project_462000001 group=0", "act partition=dev-g share=30", "observe"]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--partition", "dev-g"], ["act partition=dev-g", "observe"]),
        (["--partition", "dev-g", "--share", "50"], ["act partition=dev-g share=50", "observe"]),
        (
            ["--partition", "dev-g", "--share", "10"],
            ["act partition=dev-g share=10", "off partition=dev-g share=30", "observe"],
        ),
        (["--partition", "dev-g", "--partition", "standard-g"], ["act partition=dev-g,standard-g", "observe"]),
        (["--partition", "standard-g"], ["act partition=standard-g", "off partition=dev-g share=30", "observe"]),
        (["--share", "100"], ["act"]),
    ],
)
def test_a_rule_that_could_never_count_again_goes(run: Run, words: Sequence[str], expected: list[str]) -> None:
    rules(run, "observe")
    rules(run, "off", "--partition", "dev-g", "--share", "30")
    assert rules(run, "act", *words) == expected


def test_a_canary_acts_for_a_share_and_observes_the_rest(run: Run) -> None:
    assert rules(run, "--canary", "5%") == ["act share=5", "observe"]
    rules(run, "off")
    found = rules(run, "--canary", "10", "--partition", "dev-g")
    assert found == ["act partition=dev-g share=10", "observe partition=dev-g", "off"]


def test_it_is_printed_for_people(run: Run) -> None:
    code, out, _ = run("policy", "ROOT")
    assert (code, "none, so the helper acts for users who have loaded the module" in out) == (0, True)
    assert "next: lumisite policy" in out
    run("policy", "ROOT", "observe")
    _, out, _ = run("policy", "ROOT", "act", "--partition", "dev-g", "--share", "5")
    rows = [line.split(maxsplit=1) for line in out.splitlines()[1:]]
    assert rows == [["mode", "for"], ["act", "5 % of the jobs, partition dev-g"], ["observe", "all jobs"]]
    assert run("policy", "ROOT")[1] == out


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["observe", "--partition", "dev_g"], "policy-partition"),
        (["observe", "--partition", "a,b"], "policy-name"),
        (["observe", "--account", "a b"], "policy-name"),
        (["observe", "--group", "no-such-group"], "policy-group"),
    ],
)
def test_a_name_that_there_is_not_is_refused(run: Run, words: Sequence[str], code: str) -> None:
    run("policy", "ROOT", "act")
    status, out, err = run("policy", "ROOT", *words)
    assert (status, out, f"[{code}]" in err) == (2, "", True)
    assert rules(run) == ["act"]


def test_the_near_partition_is_named(run: Run) -> None:
    assert "did you mean dev-g?" in run("policy", "ROOT", "act", "--partition", "dev_g")[2]


@pytest.mark.parametrize("share", ["0", "101", "120%", "5.5", "-3", "", "²"])
def test_a_share_is_a_whole_number_of_percent(run: Run, share: str) -> None:
    code, _, err = run("policy", "ROOT", "act", f"--share={share}")
    assert (code, "whole number of percent" in err) == (2, True)


@pytest.mark.parametrize("words", [["--canary", "5", "act"], ["--canary", "5", "--share", "6"], ["--share", "6"]])
def test_options_that_do_not_go_together_are_refused(run: Run, words: Sequence[str]) -> None:
    assert run("policy", "ROOT", *words)[0] == 2
    assert not Path("ROOT/policy").exists()


def test_slurm_is_asked_for_accounts(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_script(tmp_path / "bin/sacctmgr", "#!/bin/sh\ncase $* in *name=known*) echo known ;; esac\n")
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:{os.environ['PATH']}")
    assert run("policy", "ROOT", "act", "--account", "known")[::2] == (0, "")
    status, _, err = run("policy", "ROOT", "act", "--account", "other")
    assert (status, "[policy-account]" in err) == (2, True)


def test_without_accounting_the_sites_patterns_count(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_script(tmp_path / "bin/sacctmgr", "#!/bin/sh\nexit 1\n")
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:{os.environ['PATH']}")
    assert run("policy", "ROOT", "act", "--account", "project_465000001")[::2] == (0, "")
    assert run("policy", "ROOT", "act", "--account", "zz")[0] == 2


@pytest.mark.parametrize(("words", "noted"), [(["act"], False), (["observe"], True), (["--canary", "5"], True)])
def test_validate_says_for_whom_the_helper_is_not_on(run: Run, words: Sequence[str], *, noted: bool) -> None:
    run("policy", "ROOT", *words)
    text = (EMBEDDED / "lumi.yaml").read_text()
    Path("site.yaml").write_text(re.sub(r"(?m)^root: .*", f"root: {Path('ROOT').resolve()}", text))
    code, _, err = run("validate", "--site", "site.yaml", "--dry-run", "--probe", "ddp", "--jobs", "1")
    assert (code, "ROOT/policy: " in err) == (0, noted)


def test_a_policy_that_others_could_write_is_refused(run: Run) -> None:
    run("policy", "ROOT", "observe")
    Path("ROOT/policy").chmod(0o666)
    for words in (["deploy", "new", "ROOT", "--apply"], ["policy", "ROOT", "act"]):
        status, out, err = run(*words)
        assert (status, out) == (1, "")
        assert f"chmod go-w {Path('ROOT').resolve()}/policy" in err
    assert "observe" in Path("ROOT/policy").read_text()


DAMAGED = ("", "lumisite-policy 1\nact\n", "lumisite-policy 1\nact share=101\nend\n", "lumisite-policy 1\nkill\nend\n")


@pytest.mark.parametrize("text", DAMAGED)
def test_a_damaged_policy_is_reported_with_its_line(run: Run, text: str) -> None:
    Path("ROOT/policy").write_text(text)
    for words in ([], ["act", "--partition", "dev-g"]):
        status, out, err = run("policy", "ROOT", *words)
        assert (status, out) == (1, "")
        assert f"{Path('ROOT').resolve()}/policy:" in err
        assert "[policy-damaged]" in err
    assert Path("ROOT/policy").read_text() == text
    assert rules(run, "off") == ["off"]


@pytest.mark.parametrize("kind", ["link", "folder", "large"])
def test_a_policy_that_is_no_file_of_ours_is_reported(run: Run, kind: str) -> None:
    path = Path("ROOT/policy")
    if kind == "link":
        Path("elsewhere").write_text(Policy((OF_ALL,), "t", "b").text)
        path.symlink_to("../elsewhere")
    elif kind == "folder":
        path.mkdir()
    else:
        path.write_text("#" * (policy.MOST_BYTES + 1))
    status, _, err = run("policy", "ROOT")
    assert (status, "[policy-unreadable]" in err) == (1, True)


def test_of_two_at_once_one_is_refused_by_name(run: Run) -> None:
    run("policy", "ROOT", "observe")
    with locked(Path("ROOT").resolve(), "other@login2"):
        status, _, err = run("policy", "ROOT", "act")
    assert (status, "other@login2" in err) == (3, True)
    assert rules(run) == ["observe"]


def test_everybody_can_read_it_whatever_the_umask_is(run: Run) -> None:
    before = os.umask(0o077)
    try:
        run("policy", "ROOT", "observe")
    finally:
        os.umask(before)
    assert Path("ROOT/policy").stat().st_mode & 0o777 == 0o644
    assert not [path for path in Path("ROOT").iterdir() if path.name.startswith(".lumisite-new-")]


def test_too_many_rules_are_refused(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    assert run("policy", "ROOT", "observe")[0] == 0
    monkeypatch.setattr(policy, "MOST_BYTES", Path("ROOT/policy").stat().st_size + 20)
    status, _, err = run("policy", "ROOT", "act", "--partition", "dev-g", "--partition", "standard-g")
    assert (status, "[policy-too-large]" in err) == (1, True)
    assert rules(run) == ["observe"]


def test_a_deployment_and_a_rollback_leave_it(run: Run) -> None:
    run("policy", "ROOT", "observe")
    text = Path("ROOT/policy").read_text()
    assert run("deploy", "new", "ROOT", "--apply")[0] == 0
    assert run("rollback", "ROOT")[0] == 0
    assert Path("ROOT/policy").read_text() == text


def test_what_is_written_is_read_back() -> None:
    many = Policy(
        (Rule("act", ("a", "b"), ("c",), (0, 7), 5), Rule("off", accounts=("d",)), OF_ALL),
        "2026-11-27T02:00:00Z",
        "root@login1",
    )
    assert parse_policy(many.text, "policy") == many


@pytest.mark.parametrize("line", ["act  partition=a", "act partition=", "act share=00", "act group=x", "act share=5 x"])
def test_no_other_form_is_read(line: str) -> None:
    with pytest.raises(DifferenceError) as raised:
        parse_policy(f"lumisite-policy 1\n{line}\nend\n", "policy")
    place = raised.value.finding.place
    assert place is not None
    assert (raised.value.finding.code, place.line) == ("policy-damaged", 2)


def test_a_rule_covers_what_it_leaves_nothing_of() -> None:
    wide, narrow = Rule("act", partitions=("a", "b")), Rule("off", partitions=("a",), share=5)
    assert wide.covers(narrow)
    assert not narrow.covers(wide)
    assert OF_ALL.covers(wide)
    assert not wide.covers(OF_ALL)
    assert not Rule("act", groups=(1,)).covers(narrow)
