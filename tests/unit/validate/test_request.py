"""The request of a run: kept in run.json, and gone on with only as it began."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from lumisite.cli import main
from lumisite.cli.validate import no_capture
from lumisite.errors import ResolveError
from lumisite.findings.finding import Place
from lumisite.validate.run.plan import plans_of, require_unchanged
from lumisite.validate.run.request import parse_request, request_json
from tests.support.played_slurm import new_run
from tests.support.requests import LOADED, a_request
from tests.support.sites import load_text, site_text


def test_run_json_holds_all_of_it() -> None:
    request = replace(a_request(), node_sets=(("n1", "n2"), ("n2", "n3")))
    data = request_json(request).encode()
    assert parse_request(data, "run.json") == request
    about = json.loads(data)
    assert about["node_sets"] == [["n1", "n2"], ["n2", "n3"]]
    assert request.nodes == ("n1", "n2", "n3")


def test_options_of_sbatch_reach_it(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--account", "a", "--reservation", "r", "--sbatch=--qos=x"]
    assert main(["validate", "--site", "lumi", "--dry-run", "--json", *words]) == 0
    assert json.loads(capsys.readouterr().out)["sbatch"][-3:] == ["--account=a", "--reservation=r", "--qos=x"]


@pytest.mark.parametrize("text", ["NCCL_ALGO", "=Ring", "1A=2", "A B=1", "A=1\n"])
def test_what_sets_no_variable_is_one_line(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["validate", "--site", "twin", "--dry-run", "--env", text]) == 2
    assert capsys.readouterr().err == f"lumisite: --env: {text!r} does not set a variable (NCCL_ALGO=Ring would)\n"


@pytest.mark.parametrize(
    ("change", "key", "code"),
    [
        ({"node_sets": []}, "node_sets", "value-wrong"),
        ({"node_sets": "x"}, "node_sets", "value-wrong"),
        ({"sbatch": 3}, "sbatch", "value-wrong"),
        (None, "", "value-wrong"),
    ],
)
def test_a_damaged_run_json_is_refused(change: dict[str, object] | None, key: str, code: str) -> None:
    about = [] if change is None else vars(a_request()) | change
    with pytest.raises(ResolveError) as refused:
        parse_request(json.dumps(about).encode(), "run.json")
    finding = refused.value.finding
    assert (finding.code, finding.subject, finding.place) == (code, key, Place("run.json"))


def test_a_run_does_not_go_on_where_what_it_measures_has_changed() -> None:
    request = a_request()
    other = load_text(site_text(("nodes: 2\n", "nodes: 3\n")))
    changed = {
        "begun with lumisite 1, and this is 2": (request, LOADED, "2", "d"),
        "is another image": (request, LOADED, "1", "e"),
        "the site description": (request, other, "1", "d"),
    }
    require_unchanged(request, LOADED, "1", "d", "run")
    for words, (begun, loaded, version, digest) in changed.items():
        with pytest.raises(ResolveError) as refused:
            require_unchanged(begun, loaded, version, digest, "run")
        assert "(start a new run)" in str(refused.value)
        assert words in str(refused.value)


def test_no_job_is_submitted_where_nothing_is_deployed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("lumisite.validate.run.new_request.require_shared", lambda *_: None)
    root = LOADED.site.root
    Path("site.yaml").write_text(site_text((f"root: {root}\n", f"root: {tmp_path}\n")))
    assert main(["validate", "--site", "site.yaml", "--out", str(tmp_path / "run")]) == 3
    assert f"{tmp_path}: nothing is deployed here" in capsys.readouterr().err


def test_why_no_node_could_be_captured_is_said_with_what_does_it_by_hand(tmp_path: Path) -> None:
    run, plans = new_run(tmp_path / "run"), plans_of(a_request(), LOADED)
    assert no_capture(run, plans).startswith("no node could be captured: no job came so far (")
    (run.job_folder(plans[1].run)).mkdir(parents=True)
    (run.job_folder(plans[1].run) / "facts.stderr").write_text("No such file: python3.11\nNo module named lumisite\n")
    words = f"No module named lumisite (`lumisite facts -o {tmp_path}/run/facts.json` on a node does it by hand)"
    assert no_capture(run, plans) == f"no node could be captured: {words}"
