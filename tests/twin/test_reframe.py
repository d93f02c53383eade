"""The module that `lumisite reframe` writes, run by a real ReFrame on a real cluster."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from lumisite.cli import main
from lumisite.validate.run.folder import SAMPLES
from tests.twin import faults
from tests.twin.cluster import Cluster, ClusterPlan
from tests.twin.fixtures import require_twin
from tests.twin.login_node import LUMISITE, ready_cluster
from tests.twin.process import Result
from tests.twin.reframe import REFRAME, install_reframe

pytestmark = [pytest.mark.root, pytest.mark.slurm, pytest.mark.apptainer, pytest.mark.lmod]

#: `node` comes with those in which ranks work together.
PROBES = ("node", "environment", "transport", "ddp", "pairs")


@dataclass(frozen=True)
class Checked:
    """A cluster on which the module has run once, with nothing wrong; `folder` is where this machine sees it."""

    cluster: Cluster
    folder: Path
    done: Result

    @property
    def stages(self) -> list[Path]:
        """The stage directories of all tests."""
        return sorted((self.folder / "stage").glob("*/*/*/Lumisite*"))


@pytest.fixture(scope="module")
def checked() -> Iterator[Checked]:
    require_twin()
    with ready_cluster(ClusterPlan(images=("torch",))) as cluster:
        install_reframe(cluster)
        probes = " ".join(f"--probe {name}" for name in PROBES)
        cluster.run(f"mkdir /scratch/checks && {LUMISITE} reframe --site twin {probes} -o /scratch/checks/m.py").check()
        yield Checked(cluster, cluster.shared / "scratch/checks", reframe(cluster, "good", "--keep-stage-files"))


def reframe(cluster: Cluster, name: str, options: str) -> Result:
    return cluster.run(f"cd /scratch/checks && {REFRAME} -c m.py -r --report-file={name}.json {options}")


def cases(checked: Checked, name: str) -> dict[str, dict[str, object]]:
    report = json.loads((checked.folder / f"{name}.json").read_text())
    return {case["name"]: case for case in report["runs"][0]["testcases"]}


def samples(folder: Path, below: str) -> list[Path]:
    return sorted((folder / below).glob(f"*/*/*/Lumisite*/{SAMPLES}"))


def recorded(checked: Checked) -> list[str]:
    """What lumisite itself wrote into the stage directories."""
    return sorted(line for stage in checked.stages for line in (stage / SAMPLES).read_text().splitlines())


def test_on_an_untouched_cluster_every_probe_passes(checked: Checked) -> None:
    assert checked.done.code == 0, checked.done.stdout + checked.done.stderr
    found = {name: case["result"] for name, case in cases(checked, "good").items()}
    assert found == {f"Lumisite{probe.capitalize()}": "pass" for probe in PROBES}


def test_the_numbers_are_those_of_the_suite(checked: Checked) -> None:
    numbers = cases(checked, "good")["LumisiteDdp"]["perfvalues"]
    assert isinstance(numbers, dict)
    assert "twin:standard-g:ddp/samples_per_s/comm/2n" in numbers
    assert "twin:standard-g:ddp/scaling_efficiency/comm/2n" in numbers  # what only all shapes together tell


def test_the_output_directories_hold_what_lumisite_recorded(checked: Checked) -> None:
    lines = recorded(checked)
    assert any('"metric": "pairs/gemm/1n"' in line and '["nid000002"]' in line for line in lines)
    kept = [path.read_text().splitlines() for path in samples(checked.folder, "output")]
    assert sorted(line for own in kept for line in own) == lines


def test_a_stage_directory_judged_again_gives_the_same(checked: Checked) -> None:
    before = recorded(checked)
    for stage in checked.stages:
        place = f"/scratch/checks/{stage.relative_to(checked.folder)}"
        probe = json.loads((stage / "run.json").read_text())["batches"][0]["probes"][0]
        done = checked.cluster.run(f"{LUMISITE} reframe --site twin --probe {probe} --judge {place} --job 1")
        assert done.code == 0, done.stderr
        kept = [json.loads(line) for line in (stage / SAMPLES).read_text().splitlines()]
        assert json.loads(done.stdout)["verdict"] == "pass"
        assert [json.loads(line) for line in (stage / SAMPLES).read_text().splitlines()] == kept
    assert recorded(checked) == before


def test_a_fault_fails_the_right_test_with_the_cause_that_validate_names(
    checked: Checked, capsys: pytest.CaptureFixture[str]
) -> None:
    # The next run of a test empties its output directory.
    before = checked.folder / "before.jsonl"
    before.write_text("".join(path.read_text() for path in samples(checked.folder, "output")))
    with faults.interface_down(checked.cluster, "nid000002", "hsn1"):
        done = reframe(
            checked.cluster, "down", "--stage stage-down --keep-stage-files -n 'LumisiteTransport|LumisiteEnvironment'"
        )
    assert done.code == 1, done.stdout + done.stderr
    found = cases(checked, "down")
    assert found["LumisiteEnvironment"]["result"] == "pass"
    assert found["LumisiteTransport"]["result"] == "fail"
    reason = str(found["LumisiteTransport"]["fail_reason"])
    assert reason.startswith("sanity error: nid000002: hsn1: ")  # as in test_one_bad_node
    down = [str(path) for path in samples(checked.folder, "stage-down")]
    assert main(["verdict", f"--before={before}", *(f"--after={path}" for path in down)]) == 5
    assert "node: nid000002: hsn1: " in capsys.readouterr().out
