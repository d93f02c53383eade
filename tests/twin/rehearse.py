"""A maintenance on one machine, on screen: what a user sees before it, after it, and after a new release.

Every line that starts with a prompt is a command that really runs: `admin$` on this machine, `user@uan01$`
in the twin.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from lumisite.errors import LumisiteError
from tests.twin import faults
from tests.twin.cluster import EXCHANGE, LOGIN, SITE_TREE, Cluster, ClusterPlan, running
from tests.twin.fence import SCRIPTS
from tests.twin.host_tree import host_tree
from tests.twin.process import Result, run_tool
from tests.twin.training import by_hand, read_training, with_module

BEFORE, AFTER = "2024-08", "2026-01"
LOAD = "module load singularity-AI-bindings"
CONTAINER = f"srun -N2 singularity --quiet exec --bind {EXCHANGE} /appl/images/small.sif"
SHOW = f"{LOAD} && {CONTAINER} python3 {EXCHANGE}/arrived.py"
# What Lmod remembers for itself is no part of the comparison.
KEEP = "env | grep -v -E '^(_ModuleTable|__LMOD|LMOD_|_=)' | sort"
UNLOAD = f"{KEEP} >/tmp/a; {LOAD}; module unload singularity-AI-bindings; {KEEP} | diff /tmp/a - && echo the same"


def main() -> int:
    """Run the rehearsal; 0 if every step did what it should, 1 if one did not, 3 if the machine refused."""
    try:
        return rehearse()
    except LumisiteError as error:
        print(f"rehearse: {error}", file=sys.stderr)
        return error.exit_code


def rehearse() -> int:
    """Start a cluster as it was before the maintenance, carry the maintenance out, and repair what it broke."""
    plan = ClusterPlan(platform=BEFORE)
    with running(plan) as cluster, tempfile.TemporaryDirectory() as work, ExitStack() as maintenance:
        for script in ("arrived.py", "ddp.py"):
            shutil.copy(SCRIPTS / script, cluster.exchange)
        _title(f"before: platform {BEFORE}")
        steps = [_release(cluster, Path(work), BEFORE, "6.0"), _user(cluster, SHOW, BEFORE)]

        _title("the maintenance: other host libraries on every node, the modules are still the old ones")
        for node in (LOGIN, *cluster.nodes):
            maintenance.enter_context(faults.library_tree_replaced(cluster, node, host_tree(AFTER)))
        steps.append(not _user(cluster, SHOW, BEFORE))

        _title(f"after: a release for platform {AFTER}")
        steps += [_release(cluster, Path(work), AFTER, "6.2"), _user(cluster, SHOW, AFTER)]

        _title("what the module is worth: DDP on two nodes, where the user sets nothing but where ranks meet")
        steps.append(_worth(cluster))

        _title("unloaded, the environment is what it was")
        steps.append(_user(cluster, UNLOAD, "the same"))
    _title("all as it should be" if all(steps) else "NOT as it should be")
    return 0 if all(steps) else 1


def _release(cluster: Cluster, work: Path, platform: str, rocm: str) -> bool:
    """Render the twin's site and deploy it where its nodes see it; the diff of the files is left out."""
    root = cluster.shared / SITE_TREE.removeprefix("/")
    choice = ["--site", "twin", "--platform", platform, "--rocm", rocm]
    rendered = _admin(work, ["render", *choice, "--out", platform])
    print(rendered.stderr.rstrip(), flush=True)
    deployed = _admin(work, ["deploy", platform, str(root), "--apply"])
    print(deployed.stdout.partition("\n\n")[0], deployed.stderr.rstrip(), sep="\n", flush=True)
    return rendered.code == deployed.code == 0


def _admin(work: Path, words: Sequence[str]) -> Result:
    print(f"\nadmin$ lumisite {' '.join(words)}", flush=True)
    return run_tool([sys.executable, "-m", "lumisite", *words], cwd=work)


def _user(cluster: Cluster, command: str, hope: str) -> bool:
    """Run a command as the ordinary user; say whether it succeeded and what was hoped for is in its output."""
    print(f"\nuser@{LOGIN}$ {command}", flush=True)
    done = cluster.run(command)
    print((done.stdout + done.stderr).rstrip(), flush=True)
    if done.code != 0:
        print(f"(exit code {done.code})", flush=True)
    return done.code == 0 and hope in done.stdout


def _worth(cluster: Cluster) -> bool:
    """Train without and with the module, and say how many times faster the module makes it."""
    speeds = []
    for command in (by_hand(cluster, None), with_module()):
        print(f"\nuser@{LOGIN}$ {command}", flush=True)
        done = cluster.run(command)
        print((done.stdout + done.stderr).rstrip(), flush=True)
        if done.code != 0:
            return False
        speeds.append(read_training(done.stdout).steps_per_s)
    print(f"\nwith the module {speeds[1] / speeds[0]:.1f} times as fast", flush=True)
    return speeds[1] > speeds[0]


def _title(text: str) -> None:
    print(f"\n==== {text}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
