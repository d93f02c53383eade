"""The probe `communicators` on a real cluster: who hangs is named, all of it is ended on every node, the run goes on."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from lumisite.validate.lines import Gate, Sample
from lumisite.validate.run.folder import SAMPLES, lines_of
from tests.support.sites import site_text
from tests.twin import faults
from tests.twin.cluster import Cluster, ClusterPlan
from tests.twin.fence import SCRIPTS
from tests.twin.fixtures import require_twin
from tests.twin.login_node import LUMISITE, ready_cluster
from tests.twin.process import Result
from tests.twin.test_planted_faults import NCCL, set_by_site
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
ONE, BOTH = "rank 1 on nid000002: ", "ranks 0-1 on nid000001, nid000002: "


def nccl_site() -> str:
    """Return the twin's description for NCCL."""
    return site_text(NCCL, LEDGER)


@pytest.fixture(scope="module")
def site() -> Iterator[Cluster]:
    """A cluster with the modules deployed, lumisite on its login node, and a site file for NCCL."""
    require_twin()
    with ready_cluster(ClusterPlan(images=("torch",))) as cluster:
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


def test_groups_that_come_up_pass_with_their_times(site: Cluster) -> None:
    done, gates = validate(site, "good", "--site twin --probe communicators")
    assert done.code == 0, done.stdout + done.stderr
    assert gates["communicators"].code == "checks-passed"
    samples = [line for line in lines_of(site.shared / "scratch/good" / SAMPLES) if isinstance(line, Sample)]
    assert {one.metric for one in samples} == {"communicators/first_group_s/2n", "communicators/next_group_s/2n"}


@pytest.mark.parametrize(
    ("plan", "code", "begin", "end", "nodes"),
    [
        ("hang all", "step-hung", BOTH, ENTERING.format("hung") + SETTING, (0, 1)),
        ("hang 1", "step-hung", ONE, ENTERING.format("hung") + "; 1 other rank waited" + SETTING, (1,)),
        ("freeze 1", "step-hung", ONE, ENTERING.format("fell silent") + "; 1 other rank waited", (1,)),
        # As the kernel does where memory is out: the other rank reports a connection that was closed.
        ("kill 1", "rank-failed", ONE, ": Killed", (1,)),
        ("wrong 1", "results-wrong", "", "collective of group 2 gave wrong sums on " + BOTH[:-2], (0, 1)),
    ],
)
def test_what_goes_wrong_in_the_second_group_is_named_and_the_run_goes_on(
    site: Cluster, plan: str, code: str, begin: str, end: str, nodes: tuple[int, ...]
) -> None:
    with planted(site, "hang", plan=plan):
        # After a rank that no signal ends, and after one that ended by itself, ranks also meet again on the same nodes.
        words = "--probe communicators --probe collectives"
        done, gates = validate(site, plan.replace(" ", "-"), f"--site twin {words}")
    assert done.code == (5 if nodes == (1,) else 1), done.stdout + done.stderr
    found = gates.pop("communicators")
    assert (found.verdict, found.code) == ("fail", code)
    assert found.text.startswith(begin)
    assert end in found.text
    assert found.nodes == tuple(site.nodes[at] for at in nodes)
    # After a hang on all nodes nothing more is run that needs the network.
    collectives = "inconclusive" if plan == "hang all" else "pass"
    verdicts = {"node": "pass", "collectives": collectives, "job": "pass"}
    assert {name: gate.verdict for name, gate in gates.items()} == verdicts
    nothing_is_left(site)


@pytest.mark.parametrize(
    ("settings", "group", "variable"),
    [
        ("", 1, "NCCL_NET_GDR_LEVEL=PHB"),
        ("NCCL_NET_GDR_LEVEL=LOC", 2, "unset: FI_MR_CACHE_MONITOR"),
        ("NCCL_NET_GDR_LEVEL=LOC FI_MR_CACHE_MONITOR=userfaultfd", 0, ""),
    ],
)
def test_the_setting_that_hangs_is_named_with_the_value_met_in_the_container(
    site: Cluster, settings: str, group: int, variable: str
) -> None:
    """The module of the twin sets PHB."""
    name = f"settings-{len(settings)}"
    words = "--site /scratch/nccl.yaml --probe communicators --limit 600"
    at = site.shared / f"scratch/{name}/jobs"
    place = f'"group": {group}, "part": "running"'

    def hang() -> bool:
        return [place in path.read_text() for path in at.glob("*/communicators-2n/records/?.at")] == [True, True]

    with (
        planted(site, "rccl", f"export {settings}", hangs=""),
        at_work(site, name, words, "communicators-2n …") as process,
    ):
        if variable:
            faults.wait_until(hang, "both ranks hang")
            end_step(site, f"{name}/jobs/*/communicators-2n")
        code, out, err = ended(process)
    assert code == bool(variable), out + err
    (found,) = gates(site, name, "communicators")
    if variable:
        assert found.code == "step-hung"
        assert f"{BOTH}no progress for 600 s: hung while running group {group} of 8; " in found.text
        assert variable in found.text
    else:
        assert found.verdict == "pass"
    nothing_is_left(site)
