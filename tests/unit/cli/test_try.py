"""What `try` writes into the ledger, and of what it is told before any job that it cannot stand there."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from lumisite.cli import main
from lumisite.cli.arguments import choose_site
from lumisite.cli.commands import parse
from lumisite.cli.try_ import Trial, write_evidence
from lumisite.errors import SiteError
from lumisite.site.load import EMBEDDED, load_site
from lumisite.validate.trial.design import TrialSetting, plan
from lumisite.validate.trial.judge import TrialVerdict, judge_trial
from tests.support.requests import LOADED, a_request
from tests.support.trials import CONTROL, Machine, tried

HELD = TrialSetting("USE_LIBUV")


@pytest.fixture(name="site")
def _site(tmp_path: Path) -> Path:
    path = tmp_path / "site.yaml"
    path.write_bytes((EMBEDDED / "twin.yaml").read_bytes())
    return path


def a_trial(settings: Sequence[TrialSetting], *against: TrialSetting, bad: str) -> tuple[Trial, TrialVerdict]:
    """Give a trial in which every run of an arm hangs, and no other one."""
    design = plan(1, settings, against=against, control=CONTROL, probes=("ddp",), nodes=2, attempts=5, slot_s=60)
    verdict = tried(Machine(0.001, 0.001, hangs=lambda arm: float(arm == bad)), 1, design)
    return Trial(a_request(), LOADED, design), verdict


def of_libuv(path: Path) -> list[tuple[str, str | None, str | None]]:
    (entry,) = (one for one in load_site(str(path)).site.settings if one.name == HELD.name)
    return [(one.effect, one.of, one.what) for one in entry.evidence]


@pytest.mark.parametrize(("bad", "metric"), [("A_B=1", "stalls"), ("none", "speed")])
def test_evidence_names_what_was_measured(site: Path, bad: str, metric: str) -> None:
    write_evidence(site, *a_trial([TrialSetting("A_B", "1")], bad=bad))
    (entry,) = (one for one in load_site(str(site)).site.settings if one.name == "A_B")
    assert [one.metric for one in entry.evidence] == [metric]


def test_what_is_needed_is_written_to_the_entry_that_ranks_have(site: Path) -> None:
    write_evidence(site, *a_trial([HELD], bad="USE_LIBUV unset"))
    ((effect, value, what),) = of_libuv(site)
    assert (effect, value) == ("needed", None)
    assert "0 of 15" in str(what)


def test_evidence_is_of_the_value_that_the_reference_was_given(site: Path) -> None:
    write_evidence(site, *a_trial([HELD], TrialSetting("USE_LIBUV", "7"), bad="USE_LIBUV unset"))
    ((effect, value, what),) = of_libuv(site)
    assert (effect, value) == ("needed", "7")
    assert str(what).endswith("; against USE_LIBUV=7")


def test_of_what_is_not_answered_nothing_is_written(site: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trial, _ = a_trial([HELD], bad="none")
    before = site.read_bytes()
    write_evidence(site, trial, judge_trial(trial.design, []))
    assert site.read_bytes() == before
    assert "USE_LIBUV is unverified" in capsys.readouterr().err


def test_what_the_ledger_forbids_leaves_the_file_as_it_was(site: Path) -> None:
    before = site.read_bytes()
    with pytest.raises(SiteError, match="harmful-value-set"):
        write_evidence(
            site, *a_trial([HELD, TrialSetting("A_B", "1")], TrialSetting("USE_LIBUV", "0"), bad="reference")
        )
    assert site.read_bytes() == before


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("OMP_PROC_BIND", "OMP_PROC_BIND is reserved"),
        ("LUMISITE_GPUS", "LUMISITE_GPUS is reserved"),
    ],
)
def test_what_cannot_stand_in_the_ledger_is_told_before_any_job(
    name: str, said: str, site: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["try", "--site", "twin", "--dry-run", f"{name}=1", "--write", str(site)]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert said in captured.err
    assert main(["try", "--site", "twin", "--dry-run", f"{name}=1"]) == 0


def test_of_a_run_that_goes_on_no_other_site_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for command in ("try", "validate"):
        assert main([command, "--resume", str(tmp_path)]) == 2
        arguments = parse([command, "--resume", str(tmp_path)])
        assert list(choose_site(arguments)) == []
    assert capsys.readouterr().err.count(f"{tmp_path}: not a run: it has no run.json") == 2
