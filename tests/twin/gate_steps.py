"""Run gate probes on a cluster by plain srun, as the runner does in a job, and judge what they wrote."""

from __future__ import annotations

import json
import secrets
import shlex
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import lumisite
from lumisite.site.load import load_site
from lumisite.site.selection import resolve_selection
from lumisite.validate.probes.findings import Finding, Found, JobShape, Record
from lumisite.validate.probes.gates import GateProbe, GateStep, gate_probes, step_command
from tests.twin.cluster import Cluster
from tests.twin.helper_site import LOAD
from tests.twin.process import Result

JOBSIDE = Path(lumisite.__file__).parent / "validate/probes/jobside"
TORCH, JAX = "/appl/images/torch.sif", "/appl/images/jax.sif"


@dataclass(frozen=True)
class GateRun:
    """One run of one probe: its lines, its records, and how each step ended."""

    lines: tuple[Found, ...]
    records: tuple[Record, ...]
    steps: tuple[Result, ...]

    @property
    def findings(self) -> list[Finding]:
        return [line for line in self.lines if isinstance(line, Finding)]

    @property
    def causes(self) -> list[str]:
        return [f"{finding.verdict} {finding.cause}" for finding in self.findings]

    @property
    def only(self) -> Finding:
        (finding,) = self.findings
        return finding


@dataclass(frozen=True)
class Start:
    """How a probe is started: what a user has typed before it, options of srun, and the job's shape."""

    typed: str = ""
    options: str = ""
    nodes: int = 2
    tasks: int = 1


def twin_probe(name: str, *, wrapper: str | None = None) -> GateProbe:
    """Give a probe of the twin's own site."""
    site = load_site("twin").site
    probes = gate_probes(site, resolve_selection(site, rocm=["6.2"]), jax_image=JAX, wrapper=wrapper)
    return next(probe for probe in probes if probe.name == name)


def run_gate(cluster: Cluster, probe: GateProbe, start: Start = Start()) -> GateRun:
    """Run all steps of a probe and judge them together."""
    run = f"/scratch/run-{secrets.token_hex(3)}"
    (cluster.shared / run[1:]).mkdir()
    (cluster.shared / run[1:]).chmod(0o777)
    steps = tuple(_run_step(cluster, probe, step, start, run) for step in probe.steps)
    records = records_in(cluster.shared / run[1:])
    job = JobShape(cluster.nodes[: start.nodes], start.tasks)
    return GateRun(tuple(probe.judge(records, job)), records, steps)


def _run_step(cluster: Cluster, probe: GateProbe, step: GateStep, start: Start, run: str) -> Result:
    folder = cluster.shared / run[1:] / step.name
    (folder / "probes").mkdir(parents=True)
    (folder / "records").mkdir()
    (folder / "records").chmod(0o777)
    for name in step.files:
        shutil.copy(JOBSIDE / name, folder / "probes")
    words = step_command(
        probe, step, runtime="singularity", probes=f"{run}/{step.name}/probes", out=f"{run}/{step.name}/records"
    )
    tasks = start.tasks if step.tasks == "gpu" else 1
    # The record of one node is worth having even if the other's container does not start. The nodes are named, so that
    # a step runs where the one before it prepared something, even while Slurm still cleans up after that one.
    where = f"-p standard-g -N{start.nodes} -w {','.join(cluster.nodes[: start.nodes])}"
    srun = f"srun --kill-on-bad-exit=0 {where} --ntasks-per-node={tasks} {start.options}"
    return cluster.run(f"{LOAD}; {start.typed or ':'}; {srun} {shlex.join(words)}")


def records_in(folder: Path) -> tuple[Record, ...]:
    """Read the records of all steps below a folder."""
    return tuple(json.loads(path.read_text()) for path in sorted(folder.glob("*/records/*.json")))


def lines_without(lines: Sequence[Found], verdict: str) -> list[str]:
    """Give the causes of all findings but those of one verdict."""
    return [line.cause for line in lines if isinstance(line, Finding) and line.verdict != verdict]
