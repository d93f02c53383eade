"""The request of a run: which nodes it takes, kept in run.json, and gone on with only as it began."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from lumisite.cli import main
from lumisite.cli.validate import no_capture
from lumisite.errors import ResolveError, ToolError
from lumisite.findings.finding import Place
from lumisite.validate.run.node_sets import choose_node_sets
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


@pytest.mark.parametrize(
    ("words", "deployed", "refusal"),
    [
        ([], False, "ROOT: nothing is deployed here"),
        (["--baseline", "--into", "ROOT/before"], True, "ROOT/before/samples.jsonl:1: "),
    ],
)
def test_no_job_is_submitted_that_would_be_for_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], words: list[str], deployed: bool,
    refusal: str,
) -> None:  # fmt: skip
    """Where no module is deployed, and where the lines of the baseline that it is to be added to are damaged."""
    monkeypatch.setattr("lumisite.validate.run.new_request.require_shared", lambda *_: None)
    (tmp_path / "before").mkdir()
    (tmp_path / "before/samples.jsonl").write_text("{\n")
    if deployed:
        (tmp_path / "current/modules").mkdir(parents=True)
    Path("site.yaml").write_text(site_text((f"root: {LOADED.site.root}\n", f"root: {tmp_path}\n")))
    words = [word.replace("ROOT", str(tmp_path)) for word in words]
    assert main(["validate", "--site", "site.yaml", "--out", str(tmp_path / "run"), *words]) == 3
    assert refusal.replace("ROOT", str(tmp_path)) in capsys.readouterr().err


def test_why_no_node_could_be_captured_is_reported_with_what_does_it_by_hand(tmp_path: Path) -> None:
    run, plans = new_run(tmp_path / "run"), plans_of(a_request(), LOADED)
    assert no_capture(run, plans).startswith("no node could be captured: no job came so far (")
    (run.job_folder(plans[1].run)).mkdir(parents=True)
    (run.job_folder(plans[1].run) / "facts.stderr").write_text("No such file: python3.11\nNo module named lumisite\n")
    words = f"No module named lumisite (`lumisite facts -o {tmp_path}/run/facts.json` on a node does it by hand)"
    assert no_capture(run, plans) == f"no node could be captured: {words}"


# ---- its nodes


def nodes(text: str) -> dict[str, str]:
    return {name: state for name, _, state in (word.partition(":") for word in text.split())}


@pytest.mark.parametrize(
    ("state", "size", "wanted", "found"),
    [
        ("a:idle b:idle c:idle d:idle", 2, 2, [("a", "b"), ("c", "d")]),
        ("a:idle b:idle c:idle", 2, 2, [("a", "b")]),
        ("a:drained b:idle c:down d:idle e:idle f:idle", 2, 2, [("b", "d"), ("e", "f")]),
        ("a:allocated b:idle c:idle", 1, 3, [("b",), ("c",), ("a",)]),
        ("a:maint b:idle", 1, 2, [("b",)]),
    ],
)
def test_free_nodes_first_and_never_drained_ones(
    state: str, size: int, wanted: int, found: list[tuple[str, ...]]
) -> None:
    assert choose_node_sets(nodes(state), size, wanted) == found


def test_in_a_reservation_its_nodes_count_as_free() -> None:
    assert choose_node_sets(nodes("a:maint b:reserved c:idle"), 1, 3, reserved=True, only=["a", "b"]) == [
        ("a",),
        ("b",),
    ]


def test_too_few_nodes_are_refused_with_their_states() -> None:
    with pytest.raises(ToolError, match=r"2 nodes are needed and 1 are usable: a drained \(bad DIMM\), b down \("):
        choose_node_sets(nodes("a:drained b:down c:idle"), 2, 1, reasons={"a": "bad DIMM"})
