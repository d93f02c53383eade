"""The probe `communicators` on a real cluster: who hangs is named, all of it is ended on every node, the run goes on."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from lumisite.validate.lines import Gate, Sample
from lumisite.validate.run.folder import SAMPLES, lines_of
from tests.support.sites import site_text
from tests.twin.cluster import Cluster, ClusterPlan, running
from tests.twin.fence import SCRIPTS
from tests.twin.fixtures import require_twin
from tests.twin.helper_site import deploy_site
from tests.twin.login_node import LUMISITE, install_lumisite
from tests.twin.process import Result
from tests.twin.test_planted_faults import NCCL, set_by_user

pytestmark = [pytest.mark.root, pytest.mark.slurm, pytest.mark.apptainer, pytest.mark.lmod]

BOTH = "ranks 0-1 on nid000001, nid000002"
SECOND = "the first collective of group 2"
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
    evidence:
      - {effect: harmful, by: documented, of: 'PHB|SYS|[345]', when: {nodes: several}, source: lumi.yaml}
  - name: FI_MR_CACHE_MONITOR
    value: userfaultfd
    when: {nodes: several}
    why: as on LUMI
    evidence:
      - {effect: needed, by: documented, source: lumi.yaml}
""",
)
SOURCES = ("runtimes:\n", "sources:\n  LUMI: {title: LUMI, address: https://docs.lumi-supercomputer.eu}\nruntimes:\n")
NO_SETTING = "no setting that is known to hang (GLOO_SOCKET_IFNAME=hsn0)"


def nccl_site() -> str:
    """Give the twin's description for NCCL; evidence asks for a table of sources, which all entries then name."""
    return re.sub(r"source: ('[^']*'|[^,}\n]+)", "source: here", site_text(NCCL, LEDGER, SOURCES))


@pytest.fixture(scope="module")
def site() -> Iterator[Cluster]:
    """A cluster with the modules deployed, lumisite on its login node, and a site file for NCCL."""
    require_twin()
    with running(ClusterPlan(images=("torch",))) as cluster:
        deploy_site(cluster)
        install_lumisite(cluster)
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
        with set_by_user(cluster, f"export SINGULARITYENV_PYTHONPATH=/scratch/{script}", *lines):
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


def processes(cluster: Cluster) -> dict[str, str]:
    """Give what the user still has on each node."""
    own = "ps -u $(id -u) -o args= | grep -v -e '^ps ' -e '^grep ' -e '^bash ' -e '^timeout ' || true"
    return {node: cluster.run(own, node=node).check().stdout for node in cluster.nodes}


def test_groups_that_come_up_pass_within_seconds(site: Cluster) -> None:
    done, gates = validate(site, "good", "--site twin --probe communicators")
    assert done.code == 0, done.stdout + done.stderr
    assert gates["communicators"].cause.startswith("8 groups of 2 ranks came up one after the other")
    samples = [line for line in lines_of(site.shared / "scratch/good" / SAMPLES) if isinstance(line, Sample)]
    assert {one.metric for one in samples} == {"communicators/first_group_s/2n", "communicators/next_group_s/2n"}
    assert sum(one.value for one in samples) < 10


@pytest.mark.parametrize(
    ("plan", "cause", "nodes"),
    [
        ("hang all", f"no progress for 15 s: {BOTH} hung on entering {SECOND} of 8; {NO_SETTING}", (0, 1)),
        (
            "hang 1",
            f"no progress for 15 s: rank 1 on nid000002 hung on entering {SECOND} of 8; 1 other rank waited; {NO_SETTING}",
            (1,),
        ),
        (
            "freeze 1",
            f"no progress for 15 s: rank 1 on nid000002 fell silent on entering {SECOND} of 8; 1 other rank waited",
            (1,),
        ),
        ("crash 1", f"rank 1 on nid000002 ended without a record while entering {SECOND}: Aborted", (1,)),
        ("fail 1", f"rank 1 on nid000002 failed while entering {SECOND}: RuntimeError: planted", (0, 1)),
        ("wrong 1", f"{SECOND} gave wrong sums on {BOTH}", (0, 1)),
    ],
)
def test_what_goes_wrong_in_the_second_group_is_named_and_the_run_goes_on(
    site: Cluster, plan: str, cause: str, nodes: tuple[int, ...]
) -> None:
    with planted(site, "hang", plan=plan):
        # After a rank that no signal ends, and after one that ended by itself, ranks also meet again on the same nodes.
        after = ["collectives", "conda"] if plan in ("hang all", "crash 1") else ["conda"]
        words = " ".join(f"--probe {probe}" for probe in ("communicators", *after))
        done, gates = validate(site, plan.replace(" ", "-"), f"--site twin {words}")
    assert done.code == 1, done.stdout + done.stderr
    found = gates.pop("communicators")
    assert found.verdict == "fail"
    assert found.cause.startswith(cause)
    assert found.nodes == tuple(site.nodes[at] for at in nodes)
    assert {name: gate.verdict for name, gate in gates.items()} == dict.fromkeys(("node", *after, "job"), "pass")
    assert processes(site) == dict.fromkeys(site.nodes, "")


@pytest.mark.parametrize(
    ("settings", "cause"),
    [
        ("", f"{BOTH} hung in the first collective of group 1 of 8; suspect NCCL_NET_GDR_LEVEL=PHB"),
        ("NCCL_NET_GDR_LEVEL=LOC", f"{BOTH} hung in {SECOND} of 8; suspect FI_MR_CACHE_MONITOR (not set)"),
        (
            "NCCL_NET_GDR_LEVEL=LOC FI_MR_CACHE_MONITOR=memhooks",
            f"{BOTH} hung in {SECOND} of 8; suspect FI_MR_CACHE_MONITOR=memhooks",
        ),
        ("NCCL_NET_GDR_LEVEL=LOC FI_MR_CACHE_MONITOR=userfaultfd", ""),
    ],
)
def test_the_setting_that_hangs_is_named_with_the_value_met_in_the_container(
    site: Cluster, settings: str, cause: str
) -> None:
    """The module of the twin sets PHB. Here the time of the step ends before a rank loses its patience."""
    name = f"settings-{len(settings)}"
    with planted(site, "rccl", f"export {settings}", hangs=""):
        done, gates = validate(site, name, "--site /scratch/nccl.yaml --probe communicators --limit 12")
    assert done.code == bool(cause), done.stdout + done.stderr
    found = gates["communicators"]
    assert found.cause == f"not done after 12 s: {cause}" if cause else found.verdict == "pass"
    assert processes(site) == dict.fromkeys(site.nodes, "")
