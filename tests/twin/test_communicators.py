"""The probe `communicators` on a real cluster: who hangs is named, all of it is ended on every node, the run goes on."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from lumisite.validate.lines import Gate
from lumisite.validate.run.folder import SAMPLES, lines_of
from tests.support.sites import site_text
from tests.twin import faults
from tests.twin.cluster import Cluster, ClusterPlan
from tests.twin.fence import SCRIPTS
from tests.twin.fixtures import require_twin
from tests.twin.login_node import LUMISITE, ready_cluster
from tests.twin.process import Result
from tests.twin.test_faults_of_a_run import NCCL, SMALL, set_by_site
from tests.twin.test_validate import at_work, end_step, ended, gates

pytestmark = [pytest.mark.root, pytest.mark.slurm, pytest.mark.apptainer, pytest.mark.lmod]

#: What LUMI's ledger knows of settings that hang, in place of the twin's own entry.
LEDGER = (
    """\
  - name: NCCL_NET_GDR_LEVEL
    value: PHB
    when: {nodes: several}
    why: as on LUMI
    source: lumi.yaml
""",
    """\
  - name: NCCL_NET_GDR_LEVEL
    leave: yes
    why: as on LUMI
    harmful: [{value: 'PHB|SYS|[345]', when: {nodes: several}}]
    source: lumi.yaml
  - name: FI_MR_CACHE_MONITOR
    value: userfaultfd
    when: {nodes: several}
    why: as on LUMI
    source: lumi.yaml
""",
)

#: Where ranks are that wait for the second group.
ENTERING = "no progress for 15 s: {} while entering group 2 of 8"
SETTING = "; set: GLOO_SOCKET_IFNAME=hsn0"


def nccl_site() -> str:
    """Return the twin's description for NCCL."""
    return site_text(NCCL, LEDGER)


@pytest.fixture(scope="module")
def site() -> Iterator[Cluster]:
    """A cluster with the modules deployed, lumisite on its login node, and a site file for NCCL."""
    require_twin()
    with ready_cluster(ClusterPlan()) as cluster:
        (cluster.shared / "scratch/nccl.yaml").write_text(nccl_site())
        yield cluster


@contextmanager
def planted(cluster: Cluster, script: str, *lines: str, **files: str) -> Iterator[None]:
    """Have the container's Python find a folder of tests/twin/scripts first, with `files` in it, and the user's lines."""
    place = cluster.shared / "scratch" / script
    shutil.copytree(SCRIPTS / script, place, ignore=shutil.ignore_patterns("__pycache__"))
    place.chmod(0o777)
    for name, text in files.items():
        (place / name).write_text(text)
    try:
        with set_by_site(cluster, f"export SINGULARITYENV_PYTHONPATH=/scratch/{script}", *lines):
            yield
        left = place / "left"
        assert not left.exists(), left.read_text()
    finally:
        shutil.rmtree(place)


def validate(cluster: Cluster, name: str, words: str) -> tuple[Result, dict[str, Gate]]:
    """Run one job's worth of probes, and give how each gate ended."""
    done = cluster.run(f"{LUMISITE} validate --jobs 1 --out /scratch/{name} {words}")
    lines = lines_of(cluster.shared / "scratch" / name / SAMPLES)
    return done, {line.gate: line for line in lines if isinstance(line, Gate)}


def nothing_is_left(cluster: Cluster) -> None:
    """Wait until the user has no process on any node."""
    own = "ps -u $(id -u) -o args= | grep -v -e '^ps ' -e '^grep ' -e '^bash ' -e '^timeout ' || true"

    def free() -> bool:
        return not any(cluster.run(own, node=node).check().stdout for node in cluster.nodes)

    faults.wait_until(free, "the nodes are free")


@pytest.mark.parametrize(
    ("plan", "code", "end"),
    [
        ("hang 1", "step-hung", ENTERING.format("hung") + "; 1 other rank waited" + SETTING),
        ("freeze 1", "step-hung", ENTERING.format("fell silent") + "; 1 other rank waited"),
        # As the kernel does where memory is out: the other rank reports a connection that was closed.
        ("kill 1", "rank-failed", ": Killed"),
    ],
)
def test_the_rank_that_goes_wrong_in_the_second_group_is_named_and_the_run_goes_on(
    site: Cluster, plan: str, code: str, end: str
) -> None:
    # After a rank that no signal ends, ranks also meet again on the same nodes.
    more = "--probe collectives" if plan == "freeze 1" else ""
    with planted(site, "hang", plan=plan):
        done, gates = validate(site, plan.replace(" ", "-"), f"--site twin --probe communicators {more}")
    assert done.code == 5, done.stdout + done.stderr
    found = gates.pop("communicators")
    assert (found.verdict, found.code, found.nodes) == ("fail", code, ("nid000002",))
    assert found.text.startswith("rank 1 on nid000002: ")
    assert end in found.text
    assert {gate.verdict for gate in gates.values()} == {"pass"}
    assert ("collectives" in gates) == bool(more)
    nothing_is_left(site)


def test_the_setting_that_hangs_is_named_with_the_value_met_in_the_container(site: Cluster) -> None:
    """The module of the twin sets PHB."""
    words = f"--site /scratch/nccl.yaml --probe communicators --limit 600 {SMALL}"
    at = site.shared / "scratch/settings/jobs"
    place = '"group": 1, "part": "running"'

    def hang() -> bool:
        return [place in path.read_text() for path in at.glob("*/communicators-2n/records/?.at")] == [True, True]

    with planted(site, "rccl", hangs=""), at_work(site, "settings", words, "communicators-2n …") as process:
        faults.wait_until(hang, "both ranks hang")
        end_step(site, "settings/jobs/*/communicators-2n")
        code, out, err = ended(process)
    assert code == 1, out + err
    (found,) = gates(site, "settings", "communicators")
    assert found.code == "step-hung"
    both = "ranks 0-1 on nid000001, nid000002: no progress for 600 s: hung while running group 1 of 8; "
    assert both in found.text
    assert "NCCL_NET_GDR_LEVEL=PHB" in found.text
    assert "; unset: FI_MR_CACHE_MONITOR" in found.text
    nothing_is_left(site)
