"""Say which jobs a verdict waits for, as options of `lumisite validate`."""

from __future__ import annotations

from collections.abc import Collection

from lumisite.validate.verdict.system import SystemVerdict


def more_words(verdict: SystemVerdict, probes: Collection[str]) -> tuple[str, ...]:
    """Give the options beside `--more`, empty if no job is missing; `probes` are those that a run can have.

    Only the probes of what is open are run again; nodes that are known to be bad are left out.
    """
    waiting = [metric for metric in verdict.metrics if metric.decides and metric.more_jobs]
    if waiting:
        jobs = max(metric.more_jobs for metric in waiting)
        names = {metric.metric.partition("/")[0] for metric in waiting}
    else:
        jobs = 1
        names = {gate.gate for gate in verdict.gates if not gate.runs}
    wanted = sorted(names & set(probes))
    if not wanted:
        return ()
    bad = sorted({one.node for one in verdict.slow_nodes} | {node for gate in verdict.gates for node in gate.nodes})
    words = ["--jobs", str(jobs), *(word for name in wanted for word in ("--probe", name))]
    return (*words, "--avoid", ",".join(bad)) if bad and waiting else tuple(words)


def hunt_words(verdict: SystemVerdict) -> tuple[str, ...]:
    """Give the options of the run that finds the slow node, empty if none is to be found."""
    nodes = sorted({node for metric in verdict.metrics if metric.decides for node in metric.hunt})
    if not nodes or verdict.slow_nodes:
        return ()
    words = f"--probe pairs --jobs 1 --node-sets 1 --nodes {len(nodes)} --nodelist"
    return (*words.split(), ",".join(nodes))
