"""Run gate probes on a cluster by plain srun, as the runner does in a job, and judge what they wrote."""

from __future__ import annotations

import json
import secrets
import shlex
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from lumisite.validate.lines import Gate
from lumisite.validate.probes.probe import OUT, PROBES, Ended, Line, Part, Probe, Record, Step, scripts
from lumisite.validate.probes.suite import choose_probes
from tests.support.records import a_job, target_of
from tests.twin.cluster import Cluster
from tests.twin.helper_site import LOAD
from tests.twin.process import Result

TORCH, JAX = "/appl/images/torch.sif", "/appl/images/jax.sif"


@dataclass(frozen=True)
class GateRun:
    """One run of one probe: its lines, its records, and how each step ended."""

    lines: tuple[Line, ...]
    records: tuple[Record, ...]
    steps: tuple[Result, ...]

    @property
    def findings(self) -> list[Gate]:
        return [line for line in self.lines if isinstance(line, Gate)]

    @property
    def causes(self) -> list[str]:
        return [f"{finding.verdict} {finding.cause}" for finding in self.findings]

    @property
    def only(self) -> Gate:
        (finding,) = self.findings
        return finding


@dataclass(frozen=True)
class Start:
    """How a probe is started: what a user has typed before it, options of srun, and the job's shape."""

    typed: str = ""
    options: str = ""
    nodes: int = 2
    tasks: int = 1


def twin_probe(name: str, *, wrapper: str = "/no/environment") -> Probe:
    """Give a probe of the twin's own site."""
    (probe,) = choose_probes(target_of("twin", jax_image=JAX, wrapper=wrapper), [name])
    return probe


def judged(probe: Probe, records: Sequence[Record], nodes: tuple[str, ...], tasks: int = 1) -> tuple[Line, ...]:
    """Judge the records of all parts of a probe together."""
    step = Step(probe.name, probe.parts[0], "several", nodes, tasks, 60)
    return tuple(
        probe.judge([Ended(step, tuple(records))], replace(a_job(nodes, tasks, probe.name), part=probe.parts[0]))
    )


def run_gate(cluster: Cluster, probe: Probe, start: Start = Start()) -> GateRun:
    """Run all parts of a probe and judge them together."""
    run = f"/scratch/run-{secrets.token_hex(3)}"
    (cluster.shared / run[1:]).mkdir()
    (cluster.shared / run[1:]).chmod(0o777)
    steps = tuple(_run_part(cluster, part, start, run) for part in probe.parts)
    records = records_in(cluster.shared / run[1:])
    return GateRun(judged(probe, records, cluster.nodes[: start.nodes], start.tasks), records, steps)


def _run_part(cluster: Cluster, part: Part, start: Start, run: str) -> Result:
    place = f"{run}/{part.name or 'all'}"
    folder = cluster.shared / place[1:]
    (folder / "probes").mkdir(parents=True)
    (folder / "records").mkdir()
    (folder / "records").chmod(0o777)
    for script in part.files:
        shutil.copy(scripts()[script], folder / "probes" / script)
    words = [word.replace(PROBES, f"{place}/probes").replace(OUT, f"{place}/records") for word in part.words]
    tasks = start.tasks if part.each == "gpu" else 1
    # The record of one node is worth having even if the other's container does not start. The nodes are named, so that
    # a step runs where the one before it prepared something, even while Slurm still cleans up after that one.
    where = f"-p standard-g -N{start.nodes} -w {','.join(cluster.nodes[: start.nodes])}"
    srun = f"srun --kill-on-bad-exit=0 {where} --ntasks-per-node={tasks} {start.options}"
    return cluster.run(f"{LOAD}; {start.typed or ':'}; {srun} {shlex.join(words)}")


def records_in(folder: Path) -> tuple[Record, ...]:
    """Read the records of all steps below a folder."""
    return tuple(json.loads(path.read_text()) for path in sorted(folder.glob("*/records/*.json")))
