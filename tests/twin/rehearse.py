"""A maintenance on one machine, on one screen: what an admin and a user see before it, after it, and after a new release.

Every line with a prompt is a command that really runs: `admin$` on this machine, `user@uan01$` in the twin. Below it is
the line of its output that counts; all of it where the command did not do what it should, which makes the exit code 1.
"""

from __future__ import annotations

import re
import shutil
import sys
import tempfile
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from lumisite.errors import LumisiteError
from lumisite.site.load import EMBEDDED
from tests.twin import faults
from tests.twin.cluster import EXCHANGE, LOGIN, SITE_TREE, Cluster, ClusterPlan, running
from tests.twin.fence import SCRIPTS
from tests.twin.host_tree import host_tree
from tests.twin.login_node import install_command
from tests.twin.process import Result, run_tool

BEFORE, AFTER = "2024-08", "2026-01"
LOAD = "module load singularity-AI-bindings"
SHOW = f"{LOAD} && srun -N2 singularity -q exec -B {EXCHANGE} /appl/images/small.sif python3 {EXCHANGE}/arrived.py"
FACTS = "srun -N1 -w nid000001 lumisite facts --site twin -o /scratch/{when}.json"
CHANGES = "lumisite changes /scratch/before.json /scratch/after.json"
# One probe, which is enough to see the network, and short; after the maintenance nodes are looked at too.
BASELINE = "cd /scratch && lumisite validate --baseline --site ./before.yaml --probe collectives --into before"
VALIDATE = "cd /scratch && lumisite validate --site twin --probe node --probe collectives --before before --out after"


def main() -> int:
    """Run the rehearsal; 0 if every step did what it should, 1 if one did not, 3 if the machine refused."""
    # Links that bound what is measured: the CPUs of this machine are shared by all nodes.
    plan = ClusterPlan(platform=BEFORE, nodes=4, management_rate="100mbit", high_speed_rate="400mbit")
    try:
        with running(plan) as cluster, tempfile.TemporaryDirectory() as work, ExitStack() as maintenance:
            rehearsal = Rehearsal(cluster, Path(work))
            rehearsal.prepare()
            rehearse(rehearsal, maintenance)
    except LumisiteError as error:
        print(f"rehearse: {error}", file=sys.stderr)
        return error.exit_code
    print(f"\n{rehearsal.steps - len(rehearsal.failed)} of {rehearsal.steps} commands did what they should")
    return 1 if rehearsal.failed else 0


def rehearse(rehearsal: Rehearsal, maintenance: ExitStack) -> None:
    """Deploy, measure, carry the maintenance out, deploy for it, validate, and go back."""
    cluster = rehearsal.cluster
    print(f"-- before: platform {BEFORE}")
    rehearsal.admin(f"render --site twin --platform {BEFORE} --rocm 6.0 --out {BEFORE}", "modules/")
    rehearsal.admin(f"deploy {BEFORE} {rehearsal.root} --apply", "deployed")
    rehearsal.user(SHOW, f"libfabric .*{BEFORE}")
    rehearsal.user(FACTS.format(when="before"))
    rehearsal.user(BASELINE, "of 10 jobs")
    print("-- the maintenance: other host libraries on every node, the modules are still the old ones")
    for node in (LOGIN, *cluster.nodes):
        maintenance.enter_context(faults.library_tree_replaced(cluster, node, host_tree(AFTER)))
    rehearsal.user(SHOW, f"libfabric .*{AFTER}")
    rehearsal.user(FACTS.format(when="after"))
    rehearsal.user(CHANGES, "/opt/cray/libfabric: 1.15.2.0 -> 1.22.0", code=1)
    print(f"-- after: a release for platform {AFTER}")
    rehearsal.admin(f"render --site twin --platform {AFTER} --rocm 6.2 --out {AFTER}", "modules/")
    rehearsal.admin(f"deploy {AFTER} {rehearsal.root}", r"\+ platform: 2026-01", code=1)
    rehearsal.admin(f"deploy {AFTER} {rehearsal.root} --apply", "deployed")
    rehearsal.user(VALIDATE, "^(PASS|WARN)")
    print("-- and back")
    rehearsal.admin(f"rollback {rehearsal.root}", "rolled back")
    rehearsal.user(f"{LOAD} && module list 2>&1", "singularity-AI-bindings/24.03-rocm6.0")


@dataclass
class Rehearsal:
    """The cluster, the folder on this machine that the admin works in, and which commands failed so far."""

    cluster: Cluster
    work: Path
    steps: int = 0
    failed: list[str] = field(default_factory=list)

    @property
    def root(self) -> str:
        """Where this machine sees the deployed releases."""
        return str(self.cluster.shared / SITE_TREE.removeprefix("/"))

    def prepare(self) -> None:
        """Put what users start where nodes see it, and the site description as it was before."""
        shutil.copy(SCRIPTS / "arrived.py", self.cluster.exchange)
        install_command(self.cluster)
        text = (EMBEDDED / "twin.yaml").read_text()
        before = text.replace(f"\nplatform: {AFTER}\n", f"\nplatform: {BEFORE}\n", 1)
        (self.cluster.shared / "scratch/before.yaml").write_text(before)

    def admin(self, words: str, expected: str, code: int = 0) -> None:
        """Run lumisite on this machine."""
        done = run_tool([sys.executable, "-m", "lumisite", *words.split()], cwd=self.work)
        self._print(f"admin$ lumisite {words.replace(self.root, 'ROOT')}", done, expected, code)

    def user(self, command: str, expected: str = "", code: int = 0) -> None:
        """Run a command as the ordinary user on the login node."""
        self._print(f"user@{LOGIN}$ {command}", run_tool(self.cluster.command(command)), expected, code)

    def _print(self, typed: str, done: Result, expected: str, code: int) -> None:
        """Print the first line with what is expected, or everything where the command did something else."""
        text = done.stdout + done.stderr
        line = next((line for line in text.splitlines() if re.search(expected, line)), None)
        good = done.code == code and (line is not None or not expected)
        self.steps += 1
        print(typed, f"    {line.strip()}" if good and line else "", sep="\n" if good and line else "", flush=True)
        if not good:
            self.failed.append(typed)
            print(f"FAILED (exit code {done.code}, expected {code} and a line with {expected!r})\n{text}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
