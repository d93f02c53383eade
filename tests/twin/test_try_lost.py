"""What goes wrong in a trial on a real cluster: a hang, a kill, a node that is drained."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from lumisite.cli import main
from tests.twin import faults
from tests.twin.cluster import Cluster
from tests.twin.login_node import LUMISITE
from tests.twin.test_communicators import processes
from tests.twin.test_try import answers, trial_cluster, tried

pytestmark = [pytest.mark.root, pytest.mark.slurm, pytest.mark.apptainer, pytest.mark.lmod]


@pytest.fixture(scope="module")
def site() -> Iterator[Cluster]:
    with trial_cluster() as cluster:
        yield cluster


def test_a_hang_is_evidence_and_leaves_nothing_behind(site: Cluster) -> None:
    words = "PLANTED_HANG=1 --probe communicators --allocations 1 --attempts 5 --limit 30"
    done, told = tried(site, "hang", words, planted=True)
    assert done.code == 1, done.stdout + done.stderr
    answer = answers(told)["PLANTED_HANG=1"]
    assert answer["worth"] == "harmful", done.stdout
    (reason,) = (one for one in answer["findings"] if one["code"] == "runs-failed")
    sides = {"variant": "PLANTED_HANG=1", "baseline": "PLANTED_HANG unset"}
    assert reason["values"] == sides | {"failed": "5 of 5", "baseline_failed": "0 of 5"}
    assert processes(site) == dict.fromkeys(site.nodes, "")
    # Plain ranks met after each of them.
    checks = sorted((site.shared / "scratch/hang/jobs").glob("*/s*-check-2n/exit"))
    assert sorted(path.read_text().split()[0] for path in checks) == [*["0"] * 5, *["skipped"] * 6]


def test_what_breaks_ranks_when_they_end_is_harmful(site: Cluster) -> None:
    words = "PLANTED_EXIT=segfault PLANTED_EXIT=hang --probe collectives --allocations 1 --attempts 5"
    done, told = tried(site, "ending", words, planted=True)
    assert done.code == 1, done.stdout + done.stderr
    for setting in ("PLANTED_EXIT=segfault", "PLANTED_EXIT=hang"):
        answer = answers(told)[setting]
        assert answer["worth"] == "harmful", done.stdout
        (reason,) = (one for one in answer["findings"] if one["code"] == "runs-failed-at-exit")
        assert reason["values"] == {"count": 5, "side": "variant"}
    assert answers(told)["PLANTED_EXIT=hang"]["hangs"]["with_it"]["hung"] == 5
    # As the plain ranks end: with nothing wrong.
    assert answers(told)["PLANTED_EXIT=hang"]["hangs"]["without"]["bad"] == 0
    assert processes(site) == dict.fromkeys(site.nodes, "")


def test_killed_it_goes_on(site: Cluster) -> None:
    words = "OMP_PROC_BIND=false --probe collectives --allocations 1"
    command = f"{LUMISITE} try --site /scratch/site.yaml --seed 3 --out /scratch/killed {words}"
    site.run(f"cd /scratch && {{ {command} & }} 2>err; while ! grep -qs s02 err; do sleep 0.2; done; kill -9 $!")
    lines = (site.shared / "scratch/killed/samples.jsonl").read_text().splitlines()
    assert lines
    done = site.run(f"{LUMISITE} try --resume /scratch/killed --json")
    assert done.code in (0, 4), done.stderr
    whole = (site.shared / "scratch/killed/samples.jsonl").read_text().splitlines()
    assert whole[: len(lines)] == lines
    keys = [(one.get("metric", one.get("gate")), one["run"]) for one in map(json.loads, whole)]
    assert len(keys) == len({*keys})
    submitted = (site.shared / "scratch/killed/jobs.jsonl").read_text().count('"submitted"')
    assert submitted == len({run.partition(".")[0] for _, run in keys})


def test_a_plan_needs_neither_slurm_nor_a_shared_folder(site: Cluster, capsys: pytest.CaptureFixture[str]) -> None:
    with faults.node_drained(site, "nid000002"):
        done = site.run(f"{LUMISITE} try --site twin --seed 3 --dry-run A_B=1")
    assert done.code == 0, done.stderr
    assert main(["try", "--site", "twin", "--seed", "3", "--dry-run", "A_B=1"]) == 0
    assert capsys.readouterr().out == done.stdout
