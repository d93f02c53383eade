"""What `validate` prints of a run: its results, and the commands that go on from there."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from lumisite.cli.output import print_note
from lumisite.cli.runs import read_side
from lumisite.cli.terminal import print_lines
from lumisite.errors import ToolError
from lumisite.site.load import LoadedSite
from lumisite.site.model import Site
from lumisite.text import figure, percent, some
from lumisite.validate.lines import Gate, Sample
from lumisite.validate.report.gather import Side, make_report
from lumisite.validate.report.write import WRITERS
from lumisite.validate.run import slurm
from lumisite.validate.run.commands import Commands, commands_of
from lumisite.validate.run.folder import SAMPLES, Run, lines_of
from lumisite.validate.run.request import RunRequest
from lumisite.validate.verdict.causes import following, nodes_behind
from lumisite.validate.verdict.gates import next_step
from lumisite.validate.verdict.system import SystemVerdict, Terms, judge_system


def print_run(run: Run, request: RunRequest, site: Site, *, as_json: bool) -> int:
    """Print the metrics of a run, its gates, and the nodes that are slower than the others; return the exit code."""
    lines = lines_of(run.folder / SAMPLES)
    verdict = judge_system(None, read_side([str(run.folder)]).recorded, Terms.of(site.validation))
    gates = [line for line in lines if isinstance(line, Gate)]
    samples = [line for line in lines if isinstance(line, Sample)]
    causes = following(gates)
    if as_json:
        gate_rows = [
            vars(gate)
            | {
                "follows": nodes_behind(gate, causes) if gate in causes else (),
                "caused_by": sorted({cause.code or cause.gate for cause in causes.get(gate, ())}),
            }
            for gate in gates
        ]
        medians = {
            metric.metric: {"median": metric.after, "unit": metric.unit, "jobs": metric.jobs_after}
            for metric in verdict.metrics
            if metric.after is not None
        }
        document = {"run": str(run.folder), "gates": gate_rows, "metrics": medians}
        slow = {"slow_nodes": [vars(node) for node in verdict.slow_nodes], "drain": verdict.drain}
        print(json.dumps(document | slow, indent=1))
    else:
        print_lines(_text(run.folder, gates, verdict))
        sys.stdout.flush()
    commands = commands_of(verdict, request, _nodes_of(request))
    _print_commands(commands)
    if verdict.bad_nodes and commands.again:
        print_note(commands.remeasure(verdict.bad_nodes))
    if not samples and any(gate.code == "sbatch-refused" for gate in gates):
        return 3
    if request.purpose == "validate" and verdict.exit_code in (0, 5):
        print_note(commands.make_baseline())
    return verdict.exit_code


def print_against_baseline(run: Run, request: RunRequest, loaded: LoadedSite, before: Side, *, as_json: bool) -> int:
    """Print the verdict against runs from before the change, and the command that runs the jobs that it needs."""
    terms = Terms.of(loaded.site.validation)
    report = make_report(before, read_side([str(run.folder)]), terms, loaded, _nodes_of(request))
    if as_json:
        sys.stdout.write(WRITERS["json"](report))
    else:
        print_lines([WRITERS["text"](report).rstrip("\n")])
    sys.stdout.flush()
    _print_commands(report.commands)
    return report.verdict.exit_code


def _nodes_of(request: RunRequest) -> dict[str, str] | None:
    """Return the nodes that a run may have, with their states; none where Slurm does not answer."""
    with suppress(ToolError):
        nodes = slurm.nodes_of(request.partition)
        reserved = slurm.nodes_of_reservation(request.reservation) if request.reservation else nodes
        return {name: state for name, state in nodes.items() if name in reserved}
    return None


def _print_commands(commands: Commands) -> None:
    """Print the commands that a verdict waits for."""
    for purpose, command in commands.next_ones():
        print_note(f"{purpose}, run:")
        print_note(f"  {command}")


def _text(folder: Path, gates: Sequence[Gate], verdict: SystemVerdict) -> Iterator[str]:
    """Yield the metrics, each gate with its causes, once each, and what to do; what follows only says from what."""
    for metric in verdict.metrics:
        yield f"{metric.metric:44} {figure(metric.after):>12} {metric.unit}".rstrip()
    judged = {gate.gate: gate for gate in verdict.gates}
    answers = Counter(gate.gate for gate in gates)
    passed = Counter(gate.gate for gate in gates if gate.verdict == "pass")
    for name, number in answers.items():
        causes = [cause for cause in judged[name].causes if not cause.follows]
        followed = [cause for cause in judged[name].causes if cause.follows]
        if followed and not causes:
            yield f"{name}: {judged[name].reason}"
            continue
        state = {"pass": "passed", "bad-nodes": "fail"}.get(judged[name].verdict, judged[name].verdict)
        yield f"{name}: {state} ({passed[name]} of {number})"
        for cause in causes:
            yield f"    {some(cause.runs)}: {cause.cause}"
            yield f"        {next_step(cause)}"
    for slow in verdict.slow_nodes:
        worse = f"{percent(slow.below)} worse than the median of all nodes (z {slow.z:.1f})"
        yield f"{slow.node} is slow: {slow.metric} {worse}"
    for command in verdict.drain:
        yield f"drain the bad nodes (the command is not executed): {command}"
    yield from verdict.next_runs
    yield f"{folder}"
