"""Put the gate probes into jobs: their steps beside those that measure, and their findings into a run's lines."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from lumisite.validate.probes.findings import Finding, Found, JobShape, Trace
from lumisite.validate.probes.gates import GateProbe, GateStep, step_command
from lumisite.validate.probes.probe import OUT, PROBES, Ended, Expected, Group, Judge, Line, Shape, Step
from lumisite.validate.probes.ranks import finished


def gate_group(
    probe: GateProbe, shape: Shape, nodes: tuple[str, ...], tasks_per_node: int, runtime: str, limit_s: int
) -> Group:
    """Give the steps of one gate probe in one shape; all of them are judged together."""

    def step(one: GateStep) -> Step:
        return Step(
            probe=probe.name,
            shape=shape,
            nodes=nodes,
            tasks=1 if shape == "one-gpu" or one.tasks == "node" else tasks_per_node,
            words=step_command(probe, one, runtime=runtime, probes=PROBES, out=OUT),
            files=one.files,
            arguments=one.arguments,
            limit_s=limit_s,
            variant=one.name if len(probe.steps) > 1 else "",
            # The record of one rank is worth having even if another's container does not start.
            together=False,
        )

    return Group(tuple(step(one) for one in probe.steps), _judge_of(probe, shape, tasks_per_node))


def _judge_of(probe: GateProbe, shape: Shape, tasks_per_node: int) -> Judge:
    def judge(steps: Sequence[Ended], expected: Expected) -> list[Line]:
        late = [ended.step for ended in steps if ended.late]
        if late:
            cause = f"{late[0].folder} was not done after {late[0].limit_s} s"
            return [expected.gate("fail", cause, "look at the nodes and at the step's stderr")]
        records = [record for ended in steps for record in finished(ended.records)]
        dead = [ended for ended in steps if ended.exit_code]
        if dead and not records:
            told = dead[0].words or f"exit code {dead[0].exit_code}"
            return [expected.gate("fail", f"{dead[0].step.folder} ran on no node: {told}", "start it by hand in a job")]
        job = JobShape(expected.nodes, 1 if shape == "one-gpu" else tasks_per_node)
        return [_line(found, expected) for found in probe.judge(records, job)]

    return judge


def _line(found: Found, expected: Expected) -> Line:
    if isinstance(found, Finding):
        gate = expected.gate(found.verdict, found.cause, found.advice, found.rank)
        return replace(gate, gate=found.gate, nodes=tuple(sorted(found.nodes or expected.nodes)))
    if isinstance(found, Trace):
        return expected.series(found.quantity, found.values, found.unit)
    sample = expected.sample("", found.value, found.better, found.unit)
    return replace(sample, metric=found.metric, nodes=tuple(sorted(found.nodes or expected.nodes)))
