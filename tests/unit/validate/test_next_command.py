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
DIFFER = Finding("metric-bad-nodes", Severity.DOUBT, "only on n1, n2, not on n3, n4", nodes=FOUR)
SPLIT = replace(UNCONFIRMED, verdict="inconclusive", findings=(DIFFER,), more_jobs=0)
USUAL = {"env": {"NOTE": "a b"}, "sbatch": ("--account=project_1", "--qos=x")}


@pytest.mark.parametrize(
    ("waits", "begun", "options"),
    [
        (verdict(metric=UNCONFIRMED), request(*PAIRS, **USUAL),
         {"jobs": 5, "nodes": 2, "avoid": None, "probe": ("ddp",), "env": ("NOTE=a b",), "account": "project_1",
          "sbatch": ("--qos=x",)}),
        # What was seen on one set is confirmed on another.
        (verdict(metric=UNCONFIRMED), request(FOUR), {"jobs": 5, "avoid": ",".join(FOUR)}),
        # Bad nodes are left out of jobs that are missing, and of steps that were skipped because of them.
        (verdict(*lines("n3"), metric=replace(UNCONFIRMED, more_jobs=2)), request(*PAIRS),
         {"jobs": 2, "avoid": "n3", "probe": ("ddp", "transport")}),
        (verdict(*lines("n3")), request(FOUR),
         {"jobs": 1, "nodes": 3, "nodelist": "n1,n2,n4", "probe": ("ddp", "transport")}),
        # Sets that differ are measured together.
        (verdict(metric=SPLIT), request(*PAIRS),
         {"jobs": 1, "node_sets": 1, "nodes": 4, "nodelist": ",".join(FOUR), "probe": ("pairs",)}),
    ],
)  # fmt: skip
def test_the_command_runs_what_the_verdict_waits_for_as_the_first_run_did(
    waits: SystemVerdict, begun: RunRequest, options: dict[str, object]
) -> None:
    found = typed(next_command(waits, begun))
    assert {name: getattr(found, name) for name in options} == options


@pytest.mark.parametrize(
    ("waits", "begun"),
    [
        (verdict(), request(*PAIRS)),
        (verdict(metric=replace(UNCONFIRMED, decides=False)), request(*PAIRS)),
        (verdict(metric=replace(UNCONFIRMED, metric="imported.metric")), request(*PAIRS)),
        (verdict(metric=UNCONFIRMED), None),
        # One node is left, and none.
        (verdict(*lines("n1", of=FOUR[:2])), request(FOUR[:2])),
        (verdict(*lines("n1", "n2", of=FOUR[:2])), request(FOUR[:2])),
    ],
)
def test_where_nothing_helps_there_is_no_command(waits: SystemVerdict, begun: RunRequest | None) -> None:
    assert next_command(waits, begun) == ""


def test_a_report_has_the_command_of_its_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one = request(FOUR, folder=str(tmp_path))
    (tmp_path / "run.json").write_text(json.dumps(vars(one)))
    (tmp_path / "samples.jsonl").write_text("".join(f"{line_json(line)}\n" for line in lines("n3")))
    assert main(["report", str(tmp_path), "--json"]) == 5
    command = json.loads(capsys.readouterr().out)["next_command"]
    assert " --nodelist n1,n2,n4 " in command
    assert main(["report", str(tmp_path)]) == 5
    assert f"to go on: `{command}`" in capsys.readouterr().out
