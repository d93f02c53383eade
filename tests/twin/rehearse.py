"""A maintenance on one machine, on screen: what an admin and a user see before it, after it, and after a new release.

Every line that starts with a prompt is a command that really runs: `admin$` on this machine, `user@uan01$`
in the twin. Whatever does not come out as it should makes the exit code 1.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from lumisite.errors import LumisiteError
from lumisite.site.load import EMBEDDED
from tests.twin import faults
from tests.twin.cluster import EXCHANGE, LOGIN, SITE_TREE, Cluster, ClusterPlan, running
from tests.twin.fence import SCRIPTS
from tests.twin.host_tree import host_tree
from tests.twin.login_node import install_command
from tests.twin.process import Result, run_tool
from tests.twin.training import by_hand, read_training, with_module

BEFORE, AFTER = "2024-08", "2026-01"
LOAD = "module load singularity-AI-bindings"
CONTAINER = f"srun -N2 singularity --quiet exec --bind {EXCHANGE} /appl/images/small.sif"
SHOW = f"{LOAD} && {CONTAINER} python3 {EXCHANGE}/arrived.py"
# What Lmod remembers for itself is no part of the comparison.
KEEP = "env | grep -v -E '^(_ModuleTable|__LMOD|LMOD_|_=)' | sort"
UNLOAD = f"{KEEP} >/tmp/a; {LOAD}; module unload singularity-AI-bindings; {KEEP} | diff /tmp/a - && echo the same"

#: What is measured here: enough to see the network, and short. After the maintenance, nodes are looked at too.
MEASURED = "--probe collectives"
FACTS = "srun -N1 -w nid000001 lumisite facts --site twin -o /scratch/{when}.json"
BASELINE = (
    f"cd /scratch && lumisite validate --baseline --site /scratch/twin-before.yaml {MEASURED} --into before.jsonl"
)
VALIDATE = (
    f"cd /scratch && lumisite validate --site twin --probe node {MEASURED} --before before.jsonl --out /scratch/after"
)
VERDICT = "cd /scratch && lumisite verdict --site twin --before before.jsonl --after after/samples.jsonl"


def main() -> int:
    """Run the rehearsal; 0 if every step did what it should, 1 if one did not, 3 if the machine refused."""
    try:
        return rehearse()
    except LumisiteError as error:
        print(f"rehearse: {error}", file=sys.stderr)
        return error.exit_code


def rehearse() -> int:
    """Start a cluster as it was before the maintenance, carry the maintenance out, and repair what it broke."""
    # Links that bound what is measured: the CPUs of this machine are shared by all nodes.
    plan = ClusterPlan(platform=BEFORE, nodes=4, management_rate="100mbit", high_speed_rate="400mbit")
    parts = Parts()
    with running(plan) as cluster, tempfile.TemporaryDirectory() as work, ExitStack() as maintenance:
        stage = Stage(cluster, Path(work))
        stage.prepare()
        parts.begin(f"before: platform {BEFORE}")
        parts.add(*stage.release(BEFORE, "6.0", first=True), stage.user(SHOW, BEFORE))
        parts.add(stage.user(FACTS.format(when="before")), stage.user(BASELINE, "4 of 10 jobs"))

        parts.begin("the maintenance: other host libraries on every node, the modules are still the old ones")
        for node in (LOGIN, *cluster.nodes):
            maintenance.enter_context(faults.library_tree_replaced(cluster, node, host_tree(AFTER)))
        parts.add(stage.user(SHOW, AFTER, unlike=BEFORE), stage.user(FACTS.format(when="after")))

        parts.begin("what changed, and what that touches")
        renamed = "release folder /opt/cray/libfabric/1.15.2.0 -> /opt/cray/libfabric/1.22.0"
        parts.add(stage.user("lumisite changes /scratch/before.json /scratch/after.json", renamed, code=1))

        parts.begin(f"after: a release for platform {AFTER}")
        parts.add(*stage.release(AFTER, "6.2"), stage.user(SHOW, AFTER))

        parts.begin(
            "is it as fast as before? the verdict is of real jobs, and anyone can reach it again from their numbers"
        )
        parts.add(stage.user(VALIDATE, "collectives/all_reduce_busbw/4MiB/2n"), stage.user(VERDICT, "all_reduce_busbw"))

        parts.begin("what the module is worth: DDP on two nodes, where the user sets nothing but where ranks meet")
        parts.add(stage.worth())

        parts.begin("unloaded, the environment is what it was")
        parts.add(stage.user(UNLOAD, "the same"))

        parts.begin("and back: one command gives the release of before the maintenance")
        parts.add(stage.rollback(), stage.user(f"{LOAD} && module list 2>&1", "24.03-rocm6.0"))
    parts.print_summary()
    return 0 if parts.went_well else 1


class Parts:
    """The parts of the rehearsal, and whether the steps of each went well."""

    def __init__(self) -> None:
        self.results: dict[str, list[bool]] = {}

    @property
    def went_well(self) -> bool:
        """Whether each step did what it should."""
        return all(map(all, self.results.values()))

    def begin(self, title: str) -> None:
        """Begin a part."""
        print(f"\n==== {title}", flush=True)
        self.results[title] = []

    def add(self, *results: bool) -> None:
        """Add how steps of the current part went."""
        self.results[next(reversed(self.results))].extend(results)

    def print_summary(self) -> None:
        """Print what was shown and how it went, on one screen."""
        print(f"\n==== {'all as it should be' if self.went_well else 'NOT as it should be'}")
        for title, results in self.results.items():
            print(f"{'ok    ' if all(results) else 'FAILED'}  {sum(results)}/{len(results)}  {title[:66]}", flush=True)


@dataclass(frozen=True)
class Stage:
    """The cluster, and the folder on this machine that the admin works in. Each step says whether it went well."""

    cluster: Cluster
    work: Path

    @property
    def root(self) -> str:
        """Where this machine sees the deployed releases."""
        return str(self.cluster.shared / SITE_TREE.removeprefix("/"))

    def prepare(self) -> None:
        """Put what users start where nodes see it, and the site description as it was before."""
        for script in ("arrived.py", "ddp.py"):
            shutil.copy(SCRIPTS / script, self.cluster.exchange)
        install_command(self.cluster)
        text = (EMBEDDED / "twin.yaml").read_text()
        before = text.replace(f"\nplatform: {AFTER}\n", f"\nplatform: {BEFORE}\n", 1)
        for name, content in {"twin": text, "twin-before": before}.items():
            (self.cluster.shared / f"scratch/{name}.yaml").write_text(content)

    def release(self, platform: str, rocm: str, *, first: bool = False) -> list[bool]:
        """Render the twin's site, look at the difference, and deploy it; the diff of the files is left out."""
        rendered = self._admin(["render", "--site", "twin", "--platform", platform, "--rocm", rocm, "--out", platform])
        print(rendered.stderr.rstrip(), flush=True)
        differs = self._admin(["deploy", platform, self.root])
        print(_head(differs), flush=True)
        deployed = self._admin(["deploy", platform, self.root, "--apply"])
        print(_head(deployed), deployed.stderr.rstrip(), sep="\n", flush=True)
        return [rendered.code == 0, differs.code == 1, first or bool(_head(differs)), deployed.code == 0]

    def rollback(self) -> bool:
        """Give the release before the current one back."""
        back = self._admin(["rollback", self.root])
        print((back.stdout + back.stderr).rstrip(), flush=True)
        return back.code == 0

    def _admin(self, words: Sequence[str]) -> Result:
        print(f"\nadmin$ lumisite {' '.join(words)}", flush=True)
        return run_tool([sys.executable, "-m", "lumisite", *words], cwd=self.work)

    def user(self, command: str, hope: str = "", *, unlike: str = "", code: int = 0) -> bool:
        """Run a command as the ordinary user, on screen as it goes on.

        Say whether it ended with `code`, and its output has what was hoped for and not what it should be unlike.
        """
        print(f"\nuser@{LOGIN}$ {command}", flush=True)
        found, text = _shown(self.cluster.command(command))
        if found != 0:
            print(f"(exit code {found})", flush=True)
        return found == code and hope in text and not (unlike and unlike in text)

    def worth(self) -> bool:
        """Train without and with the module, and say how many times faster the module makes it."""
        speeds = []
        for command in (by_hand(self.cluster, None), with_module()):
            print(f"\nuser@{LOGIN}$ {command}", flush=True)
            code, text = _shown(self.cluster.command(command))
            if code != 0:
                return False
            speeds.append(read_training(text).steps_per_s)
        print(f"\nwith the module {speeds[1] / speeds[0]:.1f} times as fast", flush=True)
        return speeds[1] > speeds[0]


def _shown(argv: Sequence[str]) -> tuple[int, str]:
    """Run a command, print what it says as it says it, and give that too."""
    said = []
    with subprocess.Popen(
        list(argv), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            print(line, end="", flush=True)
            said.append(line)
    return process.returncode, "".join(said)


def _head(done: Result) -> str:
    return done.stdout.partition("\n\n")[0]


if __name__ == "__main__":
    sys.exit(main())
