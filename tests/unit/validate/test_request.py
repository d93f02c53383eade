"""The request of a run: kept in run.json, gone on with only as it began, and added to on other nodes."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from lumisite.cli import main
from lumisite.cli.validate import no_capture, require_deployed
from lumisite.errors import ResolveError, ToolError
from lumisite.findings.finding import Place
from lumisite.site.scalars import RootPath
from lumisite.validate.run.folder import create_run
from lumisite.validate.run.plan import (
    choose_node_sets,
    hunt_words,
    more_words,
    plans_of,
    require_unchanged,
    with_specs,
)
from lumisite.validate.run.request import Batch, parse_request
from lumisite.validate.verdict.gates import GateVerdict
from lumisite.validate.verdict.metric import MetricVerdict
from lumisite.validate.verdict.nodes import SlowNode
from lumisite.validate.verdict.system import SystemVerdict
from tests.support.requests import FIRST, LOADED, a_request
from tests.support.sites import load_text, site_text


def test_run_json_holds_all_of_it() -> None:
    request = replace(a_request(), batches=(FIRST, Batch("two", 5, (("n5", "n6"),), ("pairs",))))
    data = json.dumps(request.about()).encode()
    assert parse_request(data, "run.json") == request
    about = json.loads(data)
    assert about["node_sets"] == [["n1", "n2"], ["n3", "n4"], ["n5", "n6"]]
    assert len(about["spec"]) == 12


def test_what_a_run_sets_does_not_count_as_what_it_measures() -> None:
    plain, measured = a_request(), replace(a_request(), env={"NCCL_ALGO": "Ring"})
    assert parse_request(json.dumps(measured.about()).encode(), "run.json") == measured
    assert with_specs(measured, LOADED).specs == plain.specs


@pytest.mark.parametrize("text", ["NCCL_ALGO", "=Ring", "1A=2", "A B=1", "A=1\n"])
def test_what_sets_no_variable_is_one_line(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["validate", "--site", "twin", "--dry-run", "--env", text]) == 2
    assert capsys.readouterr().err == f"lumisite: --env: {text!r} does not set a variable (NCCL_ALGO=Ring would)\n"


@pytest.mark.parametrize(
    ("change", "key", "code"),
    [
        ({"batches": []}, "batches", "value-wrong"),
        ({"batches": [{"stamp": "s"}]}, "batches[0].jobs", "key-missing"),
        ({"batches": "x"}, "batches", "value-wrong"),
        ({"sbatch": 3}, "sbatch", "value-wrong"),
        (None, "", "value-wrong"),
    ],
)
def test_a_damaged_run_json_is_refused(change: dict[str, object] | None, key: str, code: str) -> None:
    about = [] if change is None else a_request().about() | change
    with pytest.raises(ResolveError) as refused:
        parse_request(json.dumps(about).encode(), "run.json")
    finding = refused.value.finding
    assert (finding.code, finding.subject, finding.place) == (code, key, Place("run.json"))


def test_each_batch_has_its_own_jobs_and_probes() -> None:
    request = replace(a_request(), batches=(FIRST, Batch("two", 2, (("n5", "n6"),), ("transport",))))
    plans = plans_of(request, LOADED)
    assert [plan.run for plan in plans] == [*(f"one-0{n}" for n in range(1, 6)), "two-01", "two-02"]
    assert [step.folder for step in plans[-1].steps] == [
        *("node-2n", "node-2n-exchange", "node-2n-files", "node-2n-check"),
        *("transport-2n", "transport-2n-control"),
    ]
    assert plans[-1].nodes == ("n5", "n6")


def test_a_run_does_not_go_on_where_what_it_measures_has_changed() -> None:
    request = a_request()
    other = load_text(site_text(("nodes: 2\n", "nodes: 3\n")))
    changed = {
        "begun with lumisite 1, and this is 2": (request, LOADED, "2", "d"),
        "is another image": (request, LOADED, "1", "e"),
        "the site description": (request, other, "1", "d"),
        "the probes have changed": (replace(request, specs=dict.fromkeys(request.specs, "old")), LOADED, "1", "d"),
    }
    require_unchanged(request, LOADED, "1", "d", "run")
    for words, (begun, loaded, version, digest) in changed.items():
        with pytest.raises(ResolveError) as refused:
            require_unchanged(begun, loaded, version, digest, "run")
        assert "(start a new run)" in str(refused.value)
        assert words in str(refused.value)


def test_no_job_is_submitted_where_nothing_is_deployed(tmp_path: Path) -> None:
    site = replace(LOADED.site, root=RootPath(str(tmp_path)))
    with pytest.raises(ToolError, match=f"{tmp_path}: nothing is deployed here"):
        require_deployed(site)
    (tmp_path / "releases/a/modules").mkdir(parents=True)
    (tmp_path / "current").symlink_to("releases/a")
    require_deployed(site)


def test_why_no_node_could_be_captured_is_said_with_what_does_it_by_hand(tmp_path: Path) -> None:
    run, plans = create_run(tmp_path / "run", {}), plans_of(a_request(), LOADED)
    assert no_capture(run, plans).startswith("no node could be captured: no job came so far (")
    (run.job_folder(plans[1].run)).mkdir(parents=True)
    (run.job_folder(plans[1].run) / "facts.stderr").write_text("No such file: python3.11\nNo module named lumisite\n")
    words = f"No module named lumisite (`lumisite facts -o {tmp_path}/run/facts.json` on a node does it by hand)"
    assert no_capture(run, plans) == f"no node could be captured: {words}"


# ---- where more jobs go


def nodes(text: str) -> dict[str, str]:
    return {name: state for name, _, state in (word.partition(":") for word in text.split())}


FOUR = "n1:idle n2:idle n3:idle n4:idle"


def test_other_nodes_come_first() -> None:
    assert choose_node_sets(nodes(f"{FOUR} n5:idle n6:allocated"), 2, 2, FIRST.node_sets) == [("n5", "n6")]


def test_where_there_are_no_others_its_own_sets_are_taken_whole() -> None:
    """A mixed set would share a node with every deciding job, and confirm nothing."""
    assert choose_node_sets(nodes(f"{FOUR} n0:idle"), 2, 2, FIRST.node_sets) == [("n1", "n2"), ("n3", "n4")]


def test_a_set_that_is_broken_up_is_not_taken() -> None:
    assert choose_node_sets(nodes(FOUR), 2, 2, FIRST.node_sets, avoid=["n3"]) == [("n1", "n2")]
    with pytest.raises(ToolError) as refused:
        choose_node_sets(nodes(FOUR), 2, 2, FIRST.node_sets, avoid=["n3", "n1"])
    assert "that this run has not used" in str(refused.value)
    assert "usable: n2, n4 (" in str(refused.value)


# ---- what a verdict waits for


def a_verdict(*metrics: MetricVerdict, gates: tuple[GateVerdict, ...] = (), slow: str = "") -> SystemVerdict:
    nodes = (SlowNode(slow, "pairs/gemm/1n", 0.1, -9.0),) if slow else ()
    return SystemVerdict("inconclusive", gates, metrics, nodes, (), ())


def open_metric(name: str, jobs: int, *, decides: bool = True) -> MetricVerdict:
    return MetricVerdict(name, "higher", "unconfirmed", (), more_jobs=jobs, decides=decides)


PROBES = {"collectives", "ddp", "pairs", "environment"}


def test_a_hunt_has_all_nodes_of_both_sets_in_one_job() -> None:
    split = replace(open_metric("ddp/a/2n", 0), hunt=("n1", "n2", "n3", "n4"))
    words = "--probe pairs --jobs 1 --node-sets 1 --nodes 4 --nodelist n1,n2,n3,n4"
    assert " ".join(hunt_words(a_verdict(split))) == words
    # What is found already is not looked for.
    assert hunt_words(a_verdict(split, slow="n2")) == ()


@pytest.mark.parametrize(
    ("verdict", "words"),
    [
        (a_verdict(), ""),
        (a_verdict(open_metric("ddp/a/2n", 2), open_metric("ddp/b/2n", 5)), "--jobs 5 --probe ddp"),
        (a_verdict(open_metric("ddp/a/2n", 5), open_metric("pairs/b", 5)), "--jobs 5 --probe ddp --probe pairs"),
        (a_verdict(open_metric("ddp/a/2n", 5), slow="n3"), "--jobs 5 --probe ddp --avoid n3"),
        (a_verdict(open_metric("ddp/a/2n", 5, decides=False)), ""),
        (a_verdict(open_metric("imported.metric", 5)), ""),
        (a_verdict(gates=(GateVerdict("miopen", "inconclusive", (), 0, 0),)), "--jobs 1 --probe environment"),
        (a_verdict(gates=(GateVerdict("miopen", "fail", (), 5, 5),)), ""),
    ],
)
def test_what_a_verdict_waits_for_is_said_in_options(verdict: SystemVerdict, words: str) -> None:
    assert " ".join(more_words(verdict, PROBES)) == words
