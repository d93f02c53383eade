"""The next command is one that can be typed as it is printed, and works with as many nodes as there are."""

from __future__ import annotations

import json
import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lumisite.cli import main
from lumisite.findings.finding import Finding, Severity, Value
from lumisite.validate.lines import Gate, gate_of, line_json
from lumisite.validate.report.advice import advice
from lumisite.validate.run.commands import Commands, commands_of, request_of
from lumisite.validate.run.plan import choose_node_sets
from lumisite.validate.run.request import Batch, RunRequest
from lumisite.validate.samples import Recorded
from lumisite.validate.verdict.metric import MetricVerdict
from lumisite.validate.verdict.system import SystemVerdict, Terms, judge_system
from tests.support.command_lines import parsed
from tests.support.requests import a_request

FOUR = ("n1", "n2", "n3", "n4")


def request(*sets: tuple[str, ...], **more: Any) -> RunRequest:
    specs = {"node-4n": "1", "transport-4n": "2", "ddp-4n": "3", "environment-4n-node": "4"}
    return replace(a_request(), batches=(Batch("one", len(sets), sets),), specs=specs, **more)


def line(gate: str, code: str, *nodes: str, asked: tuple[str, ...] = FOUR, run: str = "r1") -> Gate:
    others = asked if nodes != asked else ()
    down = Finding("node-interface", Severity.NODE, "interface is down", subject="x")
    fine = Finding(code, Severity.INFO, "fine", subject="x")
    crashed = Finding(code, Severity.FAULT, "ended without a record", subject="x", cause=down.code)
    finding = down if code == down.code else fine if code in ("node-fine", "checks-passed") else crashed
    return gate_of(finding, gate, run, nodes, 1.0, asked=others)


def skipped(gate: str, *nodes: str) -> Gate:
    values: dict[str, Value] = {"cause": "node-interface", "gate": "node"}
    finding = Finding("step-skipped", Severity.DOUBT, "not run", "repair that first", gate, values=values)
    return gate_of(finding, gate, "r1", nodes, 1.0)


def bad(*nodes: str, of: tuple[str, ...] = FOUR) -> SystemVerdict:
    """Return the verdict where these nodes lack an interface, and ranks that work together were skipped."""
    lines = [*(line("node", "node-interface", node, asked=of) for node in nodes)]
    return judge_system(Recorded({}), Recorded({}, (*lines, skipped("transport", *of), skipped("ddp", *of))), Terms())


def works(command: str, request: RunRequest, nodes: dict[str, str]) -> list[tuple[str, ...]]:
    """Return the node sets that a command gets of these nodes, by the parser and the choice that it has when typed."""
    words = shlex.split(command)
    assert words.pop(0) == "lumisite"
    arguments = parsed(words)
    size = len(request.node_sets[0]) if arguments.more else arguments.nodes
    used = request.node_sets if arguments.more else []
    only = arguments.nodelist.split(",") if arguments.nodelist else None
    avoid = arguments.avoid.split(",") if arguments.avoid else []
    if not arguments.more:
        assert arguments.out.startswith(f"{request.folder}-")
        assert arguments.partition == request.partition
    return choose_node_sets(nodes, size, arguments.node_sets or 2, used, only=only, avoid=avoid)


def idle(*nodes: str) -> dict[str, str]:
    return dict.fromkeys(nodes, "idle")


def test_other_nodes_are_taken_where_there_are_as_many() -> None:
    one, nodes = request(FOUR), idle(*FOUR, "n5", "n6", "n7", "n8")
    found = commands_of(bad("n3"), one, nodes)
    assert found.more == "lumisite validate --more /scratch/run --jobs 1 --probe ddp --probe transport --avoid n3"
    assert works(found.more, one, nodes) == [("n5", "n6", "n7", "n8")]


def test_where_fewer_are_left_a_run_of_so_many_is_begun() -> None:
    one, nodes = request(FOUR, account="project_1", sbatch=("--qos=x y",)), idle(*FOUR) | {"n5": "drained"}
    found = commands_of(bad("n3"), one, nodes)
    assert works(found.more, one, nodes) == [("n1", "n2", "n4")]
    assert "--account project_1" in found.more
    assert found.repair == ()
    assert works(found.again, one, nodes) == [FOUR]
    assert "--probe node" in found.again


@pytest.mark.parametrize(("nodes", "of"), [(("n1", "n2"), ("n1", "n2")), (("n2",), ("n1", "n2"))])
def test_where_none_or_one_is_left_it_goes_on_once_they_are_repaired(
    nodes: tuple[str, ...], of: tuple[str, ...]
) -> None:
    one = request(of)
    verdict = bad(*nodes, of=of)
    found = commands_of(verdict, one, idle(*of))
    assert found.more == "lumisite validate --more /scratch/run --jobs 1 --probe ddp --probe transport"
    assert works(found.more, one, idle(*of)) == [of]
    assert found.repair == tuple(verdict.bad_nodes)
    assert all(run.code != "next-nodes" or len(nodes) < len(of) for run in verdict.missing_runs)


def test_jobs_that_confirm_need_sets_of_the_same_size() -> None:
    metric = MetricVerdict("ddp/a/4n", "higher", "unconfirmed", (), more_jobs=5)
    waits = SystemVerdict("inconclusive", bad("n3").gates, (metric,), (), (), ())
    assert commands_of(waits, request(FOUR), idle(*FOUR)).repair == ("n3",)


def test_a_slow_node_is_measured_again_in_its_own_set() -> None:
    pairs = request(("n1", "n2"), ("n3", "n4"))
    lines = [
        line("ddp", "rank-crashed", "n4", asked=("n3", "n4"), run="r2"),
        line("ddp", "checks-passed", "n1", "n2"),
    ]
    verdict = judge_system(Recorded({}), Recorded({}, tuple(lines)), Terms())
    found = commands_of(verdict, pairs, idle(*FOUR))
    assert verdict.bad_nodes == ["n4"]
    assert works(found.again, pairs, idle(*FOUR)) == [("n3", "n4")]


def test_a_baseline_has_a_command_that_can_be_typed_each_day() -> None:
    command = commands_of(bad("n3"), request(FOUR, folder="/scratch/lumisite-runs/one"), None).baseline
    place, _, typed = command.partition(" && ")
    assert place == "cd /scratch"
    arguments = parsed(shlex.split(typed)[1:])
    assert (arguments.baseline, arguments.nodes, arguments.out) == (True, 4, None)
    assert arguments.into == "/scratch/lumisite-runs/baseline"


def test_what_a_run_sets_is_set_in_what_goes_on_and_not_in_a_baseline() -> None:
    found = commands_of(bad("n3"), request(FOUR, env={"NOTE": "a b"}), idle(*FOUR))
    assert parsed(shlex.split(found.again)[1:]).env == ("NOTE=a b",)
    assert "--env" not in found.baseline


def test_without_a_request_there_is_no_command() -> None:
    assert commands_of(bad("n3"), None) == Commands()
    for about in ({}, {"site": "lumi"}, {"batches": 3}):
        assert request_of(about) is None
    assert request_of(json.loads(json.dumps(request(FOUR).about()))) == request(FOUR)


def test_a_report_has_the_commands_of_its_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one = request(FOUR, folder=str(tmp_path))
    (tmp_path / "run.json").write_text(json.dumps(one.about()))
    lines = [line("node", "node-interface", "n3"), skipped("ddp", *FOUR)]
    (tmp_path / "samples.jsonl").write_text("".join(f"{line_json(each)}\n" for each in lines))
    assert main(["report", str(tmp_path), "--json"]) == 5
    found = json.loads(capsys.readouterr().out)
    assert works(found["commands"]["more"], one, idle(*FOUR)) == [("n1", "n2", "n4")]
    assert main(["report", str(tmp_path)]) == 5
    out = capsys.readouterr().out
    assert found["commands"]["again"] in out
    assert f"to go on: `{found['commands']['more']}`" in out
    assert f"make a baseline before the next change: `{found['commands']['baseline']}`" in out
    assert "RUN" not in out


def test_the_command_that_finds_a_slow_node_is_one_to_type() -> None:
    metric = MetricVerdict("ddp/a/2n", "higher", "inconclusive", (), hunt=FOUR)
    pairs = request(("n1", "n2"), ("n3", "n4"))
    hunts = SystemVerdict("inconclusive", (), (metric,), (), (), ())
    commands = commands_of(hunts, pairs, idle(*FOUR))
    assert works(commands.hunt, pairs, idle(*FOUR)) == [FOUR]
    assert f"to find the node: `{commands.hunt}`" in list(advice(hunts, (), commands))
