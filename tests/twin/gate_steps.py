"""Run gate probes on a cluster by plain srun, as the runner does in a job, and judge what they wrote."""

from __future__ import annotations

import secrets
import shlex
import shutil
from dataclasses import dataclass, replace
from pathlib import Path

from lumisite.site.model import Site
from lumisite.validate.lines import Gate
from lumisite.validate.probes.probe import OUT, PROBES, Line, Probe, Record, Srun, scripts
from lumisite.validate.probes.records import finished
from lumisite.validate.probes.suite import choose_probes
from lumisite.validate.run.folder import read_records
from tests.support.records import a_job, codes, judged, only, target_of
from tests.twin.cluster import Cluster
from tests.twin.helper_site import LOAD
from tests.twin.process import Result


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
    def codes(self) -> list[str]:
        """What did not pass."""
        return codes(self.lines)

    @property
    def only(self) -> Gate:
        """The one gate that did not pass."""
        return only(self.lines)


@dataclass(frozen=True)
class Start:
    """How a probe is started: what a user has typed before it, options of srun, and the job's shape."""

    typed: str = ""
    options: str = ""
    nodes: int = 2
    tasks: int = 1


def environment_of(site: Site | str = "twin", *parts: str) -> Probe:
    """Return the probe `environment`, or some of its parts."""
    (probe,) = choose_probes(target_of(site), ["environment"])
    return replace(probe, sruns=tuple(part for part in probe.sruns if not parts or part.name in parts))


def run_gate(cluster: Cluster, probe: Probe, start: Start = Start()) -> GateRun:
    """Run all parts of a probe and judge them together."""
    records, steps = run_parts(cluster, probe, start)
    lines = judged(probe, records, a_job(cluster.nodes[: start.nodes], start.tasks))
    return GateRun(tuple(lines), records, steps)


def run_parts(cluster: Cluster, probe: Probe, start: Start) -> tuple[tuple[Record, ...], tuple[Result, ...]]:
    """Run all parts of a probe; return their records, and how they ended."""
    run = f"/scratch/run-{secrets.token_hex(3)}"
    (cluster.shared / run[1:]).mkdir()
    (cluster.shared / run[1:]).chmod(0o777)
    steps = tuple(_run_part(cluster, part, start, run) for part in probe.sruns)
    return records_in(cluster.shared / run[1:]), steps


def _run_part(cluster: Cluster, part: Srun, start: Start, run: str) -> Result:
    place = f"{run}/{part.name}"
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
    """Read the records of all steps below a folder, each with the name of its part."""
    parts = sorted(folder.glob("*/records"))
    return tuple({**record, "part": part.parent.name} for part in parts for record in finished(read_records(part)))
