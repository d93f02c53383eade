"""The srun helper: what LUMI's task prolog adds to a step of 32 tasks, and the wrapper to starting a container.

The nodes are the twin's; Slurm is told that they have 64 CPUs, and the prolog reads what the kernel of a LUMI-G node says.
So each task takes the prolog's longest way: the policy, binds, variables, its private directory and `taskset` for its row
of the table of a whole node (which this machine then refuses, having fewer CPUs).
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence

from lumisite.site.load import load_site
from tests.bench.measure import Row
from tests.support.kernels import be_node, kernel_files, seen_in
from tests.support.prologs import render_files
from tests.twin.cluster import EXCHANGE, Cluster, ClusterPlan, running
from tests.twin.helper_site import IMAGE, deploy_site

TASKS, NODES = 32, 2
ROUNDS = 40

EMPTY = "#!/bin/sh\nexit 0\n"

# All kinds in turn, so that a machine that slows down slows all; the first round only warms up.
LOOP = """
for round in $(seq 0 {rounds}); do
    for kind in {kinds}; do
        start=$EPOCHREALTIME
        {command}
        end=$EPOCHREALTIME
        echo $kind $(( ${{end/./}} - ${{start/./}} ))
    done
done
"""


def run() -> list[Row]:
    """Measure everything of this module."""
    plan = ClusterPlan(nodes=NODES, images=("small",), cpus=64)
    with running(plan) as cluster:
        deploy_site(cluster)
        return [_prolog(cluster), _wrapper(cluster)]


def _prolog(cluster: Cluster) -> Row:
    loaded = load_site("lumi")
    helper = seen_in(f"{EXCHANGE}/node", render_files(loaded, rocm=("6.2",))["spank/task_prolog"])
    _give_policy(cluster, loaded.site.root)
    be_node(cluster.exchange / "node", kernel_files(load_site("lumi").site, "lumi-g"))
    step = f"srun -p standard-g -N{NODES} -n{TASKS} --cpu-bind=none"
    _install(cluster, {"helper": helper, "empty": EMPTY})
    output = cluster.run(f"LUMISITE_VERBOSE=1 SLURM_TASK_PROLOG={EXCHANGE}/helper {step} true").check().stdout
    assert output.count("taskset refused") + output.count(": CPUs ") == TASKS, output
    command = f"SLURM_TASK_PROLOG={EXCHANGE}/$kind {step} true >/dev/null"
    times = _loop(cluster, ("empty", "helper"), command)
    detail = ", ".join(f"{kind} {statistics.median(values):.0f} ms" for kind, values in times.items())
    return Row(f"srun -n{TASKS}: helper / empty sh prolog", _ratio(times, "helper", "empty"), 1.15, detail)


def _give_policy(cluster: Cluster, root: str) -> None:
    """Write a policy of three lines where the helper looks for it."""
    assert root.startswith("/appl/")
    folder = cluster.shared / root.removeprefix("/")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "policy").write_text("off account project_1\nobserve partition dev-g\non default\n")


def _wrapper(cluster: Cluster) -> Row:
    real, ours = "/usr/bin/singularity", "/appl/lumisite/current/spank/bin/singularity"
    command = f"case $kind in real) {real} exec {IMAGE} true ;; *) {ours} exec {IMAGE} true ;; esac 2>/dev/null"
    times = _loop(cluster, ("real", "wrapper"), command)
    added = statistics.median(times["wrapper"]) - statistics.median(times["real"])
    detail = f"exec IMAGE true takes {statistics.median(times['real']):.0f} ms, the wrapper adds {added:.1f} ms"
    return Row("singularity exec: wrapper / without", _ratio(times, "wrapper", "real"), 1.05, detail)


def _install(cluster: Cluster, scripts: Mapping[str, str]) -> None:
    for name, text in scripts.items():
        path = cluster.exchange / name
        path.write_text(text)
        path.chmod(0o755)


def _loop(cluster: Cluster, kinds: Sequence[str], command: str) -> dict[str, list[float]]:
    """Give the times of each kind in ms, in the order of the rounds."""
    script = LOOP.format(rounds=ROUNDS, kinds=" ".join(kinds), command=command)
    lines = [line.split() for line in cluster.run(script, timeout_s=600).check().stdout.splitlines()]
    times = {kind: [int(us) / 1000 for name, us in lines if name == kind][1:] for kind in kinds}
    assert all(len(values) == ROUNDS for values in times.values()), lines
    return times


def _ratio(times: Mapping[str, Sequence[float]], one: str, other: str) -> float:
    """The median ratio of pairs."""
    return statistics.median(a / b for a, b in zip(times[one], times[other], strict=True))
