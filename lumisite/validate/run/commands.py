"""The commands to run next, as they are typed: each works with the nodes that there are."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from lumisite.errors import ResolveError, ToolError
from lumisite.text import some
from lumisite.validate.probes.suite import probes_of
from lumisite.validate.run.plan import choose_node_sets, hunt_words, more_words
from lumisite.validate.run.request import KEPT_OPTIONS, RunRequest, parse_request
from lumisite.validate.run.slurm import IN_SERVICE
from lumisite.validate.verdict.system import SystemVerdict


@dataclass(frozen=True)
class Commands:
    """What to type next; empty where there is nothing to do. `repair` are nodes that have to be repaired before `more`.

    `more` goes on with a run, `hunt` finds a slow node, `again` measures bad nodes once more, `baseline` makes or
    extends a baseline.
    """

    more: str = ""
    repair: tuple[str, ...] = ()
    hunt: str = ""
    again: str = ""
    baseline: str = ""

    def next_ones(self) -> list[tuple[str, str]]:
        """Return what a verdict waits for, each as what the command is for and the command."""
        go_on = f"when {some(self.repair, between=', ')} are repaired, go on" if self.repair else "to go on"
        commands = [(go_on, self.more), ("to find the node", self.hunt)]
        return [(purpose, command) for purpose, command in commands if command]

    def remeasure(self, nodes: Sequence[str]) -> str:
        """Return that nodes are to be measured again, before they are drained."""
        how = f"`{self.again}`" if self.again else "measure them once more among other nodes"
        return f"Re-measure {some(nodes, between=', ')}: {how}. If the result is the same, drain the node."

    def make_baseline(self) -> str:
        """Return why a baseline is made, and how."""
        return f"to have numbers to compare with, make a baseline before the next change: `{self.baseline}`"


def commands_of(verdict: SystemVerdict, request: RunRequest | None, nodes: Mapping[str, str] | None = None) -> Commands:
    """Return the commands of a verdict on a run; `nodes` are those of its partition, by default only the run's own."""
    if request is None:
        return Commands()
    own = {node: "idle" for names in request.node_sets for node in names}
    more, repair = _more(verdict, request, own if nodes is None else nodes)
    hunt = hunt_words(verdict)
    return Commands(
        more,
        repair,
        _typed(request, *hunt, "--out", f"{request.folder}-hunt") if hunt else "",
        _again(verdict, request),
        baseline_command(request),
    )


def request_of(about: Mapping[str, object]) -> RunRequest | None:
    """Return the request of a run by its run.json, if that is there and of this version."""
    with suppress(ResolveError):
        return parse_request(json.dumps(dict(about)).encode(), "run.json") if about else None
    return None


def baseline_command(request: RunRequest) -> str:
    """Return the command that makes a baseline of jobs like those of a run, or adds to it; it may be typed each day."""
    runs = Path(request.folder).parent
    into = request.into or f"{runs}/baseline"
    size = len(request.node_sets[0])
    shape = ["--nodes", str(size)]
    if request.step_nodes:
        every = {node for nodes in request.batches[0].node_sets for node in nodes}
        shape = ["--nodes", str(len(every)), "--step-nodes", str(request.step_nodes)]
    place = runs.parent if runs.name == "lumisite-runs" else runs
    if request.purpose != "baseline":
        request = replace(request, env={})
    return f"cd {shlex.quote(str(place))} && " + _typed(request, "--baseline", *shape, "--into", into)


def _more(verdict: SystemVerdict, request: RunRequest, nodes: Mapping[str, str]) -> tuple[str, tuple[str, ...]]:
    """Return the command for the jobs that are missing: of the run itself, or a new run where fewer nodes are left."""
    probes = {folder.partition("-")[0] for folder in request.specs}
    words = more_words(verdict, probes)
    if not words:
        return "", ()
    size, bad = len(request.node_sets[0]), verdict.bad_nodes
    more = ("lumisite", "validate", "--more", request.folder)
    with suppress(ToolError):
        choose_node_sets(nodes, size, 1, request.node_sets, reserved=bool(request.reservation), avoid=bad)
        return shlex.join([*more, *words]), ()
    usable = [name for name, state in nodes.items() if state in IN_SERVICE and name not in bad][:size]
    chosen = words[words.index("--probe") : words.index("--avoid") if bad else None]
    if len(usable) > 1 and not any(metric.decides and metric.more_jobs for metric in verdict.metrics):
        return _of_nodes(request, [tuple(usable)], chosen, "rest"), ()
    return shlex.join([*more, *words[: words.index("--avoid") if bad else None]]), tuple(bad)


def _again(verdict: SystemVerdict, request: RunRequest) -> str:
    """Return the command that measures the bad nodes once more, among the nodes that they were measured with."""
    bad = {*verdict.bad_nodes}
    sets: list[tuple[str, ...]] = []
    for nodes in request.node_sets:
        # A node of a machine is in several.
        if bad.intersection(nodes) and not any(set(nodes).intersection(other) for other in sets):
            sets.append(nodes)
    names = {gate.gate for gate in verdict.gates if bad.intersection(gate.nodes)}
    names |= {slow.metric.partition("/")[0] for slow in verdict.slow_nodes}
    probes = sorted(probes_of(names) & {folder.partition("-")[0] for folder in request.specs})
    if not sets or not probes:
        return ""
    return _of_nodes(request, sets, [word for name in probes for word in ("--probe", name)], "again")


def _of_nodes(request: RunRequest, sets: Sequence[tuple[str, ...]], probes: Sequence[str], name: str) -> str:
    """Return the command of a new run on these very nodes."""
    count = str(len(sets))
    shape = ["--nodes", str(len(sets[0])), "--jobs", count, "--node-sets", count]
    names = ",".join(node for nodes in sets for node in nodes)
    return _typed(request, *shape, "--nodelist", names, *probes, "--out", f"{request.folder}-{name}")


def _typed(request: RunRequest, *words: str) -> str:
    """Return a command with the options that the run was begun with."""
    options = ["--site", request.site_file, "--partition", request.partition, "--image", request.image]
    for name in KEPT_OPTIONS:
        if (value := getattr(request, name)) is not None:
            options += [f"--{name.replace('_', '-')}", str(value)]
    options += [word for name, value in request.env.items() for word in ("--env", f"{name}={value}")]
    return shlex.join(["lumisite", "validate", *options, *(f"--sbatch={option}" for option in request.sbatch), *words])
