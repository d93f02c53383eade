"""A machine that is divided into jobs of few nodes: which, at what cost, and how many at once."""

from __future__ import annotations

import json
from itertools import chain
from pathlib import Path

import pytest

from lumisite.cli import main
from lumisite.findings.finding import Finding
from lumisite.validate.lines import Gate
from lumisite.validate.run.folder import SAMPLES, lines_of
from lumisite.validate.run.node_sets import MOST_NODES, machine_sets
from lumisite.validate.run.runner import MOST_JOBS
from tests.support.played_machine import PlayedMachine, machine_of, request_of, validate
from tests.support.played_slurm import job_gates, play

NODES, SIZE = 26, 4


@pytest.mark.parametrize("size", [2, 3, 4, 16, 64])
@pytest.mark.parametrize("count", [2, 3, 4, 5, 16, 17, 33, 63, 64, 65, 66, 2978])
def test_each_node_is_in_one_job_and_all_jobs_hang_together(count: int, size: int) -> None:
    nodes = [f"n{number:05}" for number in range(count)]
    sets = machine_sets(nodes, size)
    assert all(2 <= len(names) <= max(size, 3) for names in sets)
    first: list[str] = []
    for names in sets:
        if len(first) < count:
            first += names
    assert first == nodes
    reached = {nodes[0]}
    while more := {*chain(*(names for names in sets if reached.intersection(names)))} - reached:
        reached |= more
    assert reached == {*nodes}
    assert len(sets) == len({*sets})


def test_a_dry_run_prints_what_a_machine_costs(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["validate", "--site", "lumi", "--jobs", "1", "--out", "/scratch/x", "--dry-run", "--nodes"]
    for count, jobs in ((MOST_NODES, "1 job"), (MOST_NODES + 1, "6 jobs")):
        assert main([*words, str(count)]) == 0
        assert capsys.readouterr().out.startswith(f"{jobs} on {count} nodes, ")
    assert main([*words, "2978"]) == 0
    first, _, *rest = capsys.readouterr().out.splitlines()
    assert first == f"200 jobs on 2978 nodes, {(2978 + 187 + 12) / 2} node hours at most"
    assert any(line.split() == ["pairs-16n", "128", "ranks", "on", "16", "nodes"] for line in rest)
    assert len(rest) < 40  # one screen
    assert main([*words, "2978", "--json"]) == 0
    assert "step pairs-16n 240 srun --nodes=16 --ntasks=128 " in json.loads(capsys.readouterr().out)["script"]


# ---- a played machine


def bad_gates(folder: Path) -> set[tuple[str, tuple[str, ...]]]:
    gates = [line for line in lines_of(folder / SAMPLES) if isinstance(line, Gate)]
    return {(gate.code, gate.nodes) for gate in gates if gate.verdict != "pass"}


def test_only_nodes_at_fault_are_named_as_in_one_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    machine, reports = machine_of(NODES), list[Finding]()
    play(monkeypatch, machine)
    result = validate(request_of(machine, tmp_path / "machine", SIZE), reports)
    assert machine.most_jobs <= MOST_JOBS
    expected = {("node-interface", (machine.down_link,)), ("job-node-lost", (machine.lost,))}
    assert {entry for entry in bad_gates(tmp_path / "machine") if entry[0] != "step-skipped"} == expected
    assert {slow["node"] for slow in result["verdict"]["slow_nodes"]} == {machine.slow}
    # One line says what many wait for.
    assert [report.code for report in reports].count("job-waits") == 1
    few = PlayedMachine([*machine.nodes][:SIZE], slow="n0004", down_link="n0002", lost="n0003")
    play(monkeypatch, few)
    validate(request_of(few, tmp_path / "few", SIZE, divided=False), [])
    assert {code for code, _ in bad_gates(tmp_path / "few")} == {code for code, _ in bad_gates(tmp_path / "machine")}


def test_jobs_whose_nodes_do_not_come_back_do_not_keep_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    machine, reports = machine_of(NODES), list[Finding]()
    play(monkeypatch, machine)
    machine.nodes["n0001"] = "drained"
    request = request_of(machine, tmp_path, SIZE)
    validate(request, reports)
    waiting = {report.subject for report in reports if report.code == "job-nodes-away" and report.nodes == ("n0001",)}
    # The first of its set is in one on each level of the tree.
    assert len(waiting) == sum("n0001" in names for names in request.node_sets) == len(machine.cancelled)
    assert ("job-nodes-away", ("n0001",)) in bad_gates(tmp_path)
    machine.nodes["n0001"] = "idle"
    validate(request, [], again=True)
    ends = job_gates(lines_of(tmp_path / SAMPLES))
    # That of the lost node waits for it now.
    assert {(gate.code, gate.nodes) for gate in ends if gate.verdict != "pass"} == {("job-nodes-away", (machine.lost,))}
