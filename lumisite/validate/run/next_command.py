"""The one command that a verdict waits for, as it is typed."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from contextlib import suppress

from lumisite.errors import ResolveError
from lumisite.validate.probes.suite import PROBES, probes_of
from lumisite.validate.run.request import RunRequest, parse_request
from lumisite.validate.run.sbatch_options import as_typed
from lumisite.validate.verdict.system import SystemVerdict


def next_command(verdict: SystemVerdict, request: RunRequest | None) -> str:
    """Return the command of a further run, to be judged together with this one; empty where none decides more.

    What needs more jobs comes first; then what tells which of the nodes of two sets is slow; then what was not shown
    because of bad nodes, on the nodes that are left.
    """
    if request is None or verdict.verdict == "fail":
        return ""
    bad, size = verdict.bad_nodes, len(request.node_sets[0])
    deciding = [metric for metric in verdict.metrics if metric.decides]
    waiting = [metric for metric in deciding if metric.more_jobs]
    open_gates = {gate.gate for gate in verdict.gates if gate.follows or not gate.runs}
    left = [node for node in request.nodes if node not in bad][:size]
    if waiting:
        # On one set of nodes, only another one confirms.
        avoid = [*bad, *(request.nodes if len(request.node_sets) == 1 else ())]
        words = ["--jobs", str(max(metric.more_jobs for metric in waiting)), "--nodes", str(size)]
        words += ["--avoid", ",".join(avoid)] if avoid else []
        return _typed(request, {metric.metric.partition("/")[0] for metric in waiting} | open_gates, words)
    if apart := sorted({node for metric in deciding for finding in metric.findings for node in finding.nodes}):
        return "" if verdict.slow_nodes else _typed(request, {"pairs"}, _one_job(apart))
    return _typed(request, open_gates, _one_job(left)) if len(left) > 1 or size == 1 else ""


def request_of(about: Mapping[str, object]) -> RunRequest | None:
    """Return the request of a run by its run.json, if that is there and of this version."""
    with suppress(ResolveError):
        return parse_request(json.dumps(dict(about)).encode(), "run.json") if about else None
    return None


def _one_job(nodes: Sequence[str]) -> list[str]:
    count = str(len(nodes))
    return ["--jobs", "1", "--node-sets", "1", "--nodes", count, "--nodelist", ",".join(nodes)]


def _typed(request: RunRequest, gates: set[str], words: Sequence[str]) -> str:
    """Return a command with the options that the run was begun with; empty where no probe has these gates."""
    probes = probes_of(gates) & PROBES.keys()
    options = ["--site", request.site_file, "--partition", request.partition, "--image", request.image]
    options += as_typed(request.sbatch)
    options += ["--limit", str(request.limit)] if request.limit else []
    options += [word for name, value in request.env.items() for word in ("--env", f"{name}={value}")]
    options += [*words, *(word for name in sorted(probes) for word in ("--probe", name))]
    return shlex.join(["lumisite", "validate", *options, "--out", f"{request.folder}-next"]) if probes else ""
