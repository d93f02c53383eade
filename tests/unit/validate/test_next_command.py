"""The one command that a verdict waits for works when it is typed."""

from __future__ import annotations

import json
import shlex
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from lumisite.cli import main
from lumisite.findings.finding import Finding, Severity
from lumisite.validate.lines import Gate, gate_of, line_json
from lumisite.validate.run.next_command import next_command
from lumisite.validate.run.request import RunRequest
from lumisite.validate.samples import Recorded
from lumisite.validate.verdict.metric import MetricVerdict
from lumisite.validate.verdict.system import SystemVerdict, Terms, judge_system
from tests.support.command_lines import parsed
from tests.support.requests import a_request

FOUR = ("n1", "n2", "n3", "n4")
PAIRS = (("n1", "n2"), ("n3", "n4"))


def request(*sets: tuple[str, ...], **more: Any) -> RunRequest:
    return replace(a_request(), node_sets=sets, jobs=len(sets), **more)


def skipped(gate: str, *nodes: str) -> Gate:
    finding = Finding("step-skipped", Severity.DOUBT, "not run", "repair that first", gate)
    return gate_of(finding, gate, "r1", nodes, 1.0)


def lines(*bad: str, of: tuple[str, ...] = FOUR) -> list[Gate]:
    """Nodes that lack an interface, and steps that were skipped for it."""
    down = Finding("node-interface", Severity.NODE, "interface is down", subject="hsn0")
    found = [gate_of(down, "node", "r1", (node,), 1.0, asked=of) for node in bad]
    return [*found, skipped("transport", *of), skipped("ddp", *of)]


def verdict(*gates: Gate, metric: MetricVerdict | None = None) -> SystemVerdict:
    judged = judge_system(Recorded({}), Recorded({}, gates), Terms())
    return replace(judged, metrics=(metric,)) if metric else judged


def typed(command: str) -> SimpleNamespace:
    """Return the options of a command, by the parser that it has when it is typed."""
    name, *words = shlex.split(command)
    assert name == "lumisite"
    options = parsed(words)
    assert (options.out, options.partition) == ("/scratch/run-next", "standard-g")
    return options


UNCONFIRMED = MetricVerdict("ddp/samples_per_s/comm/2n", "higher", "unconfirmed", (), more_jobs=5)


def test_jobs_that_confirm_run_as_the_first_did() -> None:
    found = typed(
        next_command(
            verdict(metric=UNCONFIRMED), request(*PAIRS, env={"NOTE": "a b"}, sbatch=("--account=project_1", "--qos=x"))
        )
    )
    assert (found.jobs, found.nodes, found.avoid, found.probe) == (5, 2, None, ("ddp",))
    assert (found.env, found.account, found.sbatch) == (("NOTE=a b",), "project_1", ("--qos=x",))


def test_what_was_seen_on_one_set_is_confirmed_on_another() -> None:
    assert typed(next_command(verdict(metric=UNCONFIRMED), request(FOUR))).avoid == ",".join(FOUR)


def test_bad_nodes_are_left_out_of_jobs_that_are_missing() -> None:
    waits = verdict(*lines("n3"), metric=replace(UNCONFIRMED, more_jobs=2))
    found = typed(next_command(waits, request(*PAIRS)))
    assert (found.jobs, found.avoid, found.probe) == (2, "n3", ("ddp", "transport"))


def test_steps_behind_a_bad_node_run_on_the_nodes_that_are_left() -> None:
    found = typed(next_command(verdict(*lines("n3")), request(FOUR)))
    assert (found.jobs, found.nodes, found.nodelist, found.probe) == (1, 3, "n1,n2,n4", ("ddp", "transport"))


@pytest.mark.parametrize("bad", [("n1",), ("n1", "n2")])
def test_where_none_or_one_is_left_there_is_nothing_to_run(bad: tuple[str, ...]) -> None:
    assert next_command(verdict(*lines(*bad, of=("n1", "n2"))), request(("n1", "n2"))) == ""


def test_sets_that_differ_are_measured_together() -> None:
    differ = Finding("metric-bad-nodes", Severity.DOUBT, "only on n1, n2, not on n3, n4", nodes=FOUR)
    split = replace(UNCONFIRMED, verdict="inconclusive", findings=(differ,), more_jobs=0)
    found = typed(next_command(verdict(metric=split), request(*PAIRS)))
    assert (found.jobs, found.node_sets, found.nodes, found.nodelist) == (1, 1, 4, ",".join(FOUR))
    assert found.probe == ("pairs",)


@pytest.mark.parametrize(
    "waits",
    [
        verdict(),
        verdict(metric=replace(UNCONFIRMED, decides=False)),
        verdict(metric=replace(UNCONFIRMED, metric="imported.metric")),
    ],
)
def test_where_nothing_helps_there_is_no_command(waits: SystemVerdict) -> None:
    assert next_command(waits, request(*PAIRS)) == ""
    assert next_command(verdict(metric=UNCONFIRMED), None) == ""


def test_a_report_has_the_command_of_its_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one = request(FOUR, folder=str(tmp_path))
    (tmp_path / "run.json").write_text(json.dumps(vars(one)))
    (tmp_path / "samples.jsonl").write_text("".join(f"{line_json(line)}\n" for line in lines("n3")))
    assert main(["report", str(tmp_path), "--json"]) == 5
    command = json.loads(capsys.readouterr().out)["next_command"]
    assert " --nodelist n1,n2,n4 " in command
    assert main(["report", str(tmp_path)]) == 5
    assert f"to go on: `{command}`" in capsys.readouterr().out
