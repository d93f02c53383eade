"""The suite on the twin: what a job takes beside the steps of its probes, which are the benchmarks' own time."""

from __future__ import annotations

import statistics
from pathlib import Path

from tests.bench.measure import Row, table
from tests.twin.cluster import ClusterPlan
from tests.twin.login_node import LUMISITE, ready_cluster

JOBS = 3


def run() -> list[Row]:
    """Measure everything of this module."""
    with ready_cluster(ClusterPlan(images=("torch",))) as cluster:
        cluster.run(f"{LUMISITE} validate --site twin --jobs {JOBS} --node-sets 1 --out /scratch/run", timeout_s=600)
        jobs = [_times(folder) for folder in sorted((cluster.shared / "scratch/run/jobs").iterdir())]
    added = [whole - steps for whole, steps, _ in jobs]
    detail = f"{jobs[0][2]} steps take {statistics.median(steps for _, steps, _ in jobs):.1f} s; {JOBS} jobs"
    return [Row("validate: a job beside its probes' steps", statistics.median(added), 3.0, detail, unit="s")]


def _times(job: Path) -> tuple[float, float, int]:
    """Give the seconds of a job, those of its steps, and how many steps it has."""
    began = next(job.glob("slurm-*.out")).stat().st_mtime  # nothing is written to it
    ended = float((job / "done").read_text().split()[2])
    steps = [step for step in job.iterdir() if (step / "exit").exists()]
    own = sum(float((step / "exit").read_text().split()[1]) - float((step / "began").read_text()) for step in steps)
    return ended - began, own, len(steps)


if __name__ == "__main__":
    print(table(run()))
