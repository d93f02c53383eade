"""What a trial cannot answer is refused before its first job, and its plan is printed on any machine."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from lumisite.cli import main
from lumisite.cli.commands import parse
from lumisite.cli.try_ import new_trial
from lumisite.errors import ResolveError
from lumisite.site.load import EMBEDDED
from lumisite.validate.trial.design import TrialSetting
from lumisite.validate.trial.jobs import deciding, with_time
from lumisite.validate.trial.settings import parse_settings, settings_present
from tests.support.records import target_of
from tests.support.requests import LOADED
from tests.unit.validate.test_trial_jobs import HELD, NEW, TWIN, a_design, a_trial


def test_what_ranks_have_is_tried_by_doing_without_it() -> None:
    assert settings_present(TWIN)["GLOO_SOCKET_IFNAME"].value == "hsn0"
    assert parse_settings(["GLOO_SOCKET_IFNAME=hsn0", "A=1"], ["B"], [], TWIN)[0] == [
        HELD,
        TrialSetting("A", "1"),
        TrialSetting("B"),
    ]
    assert parse_settings(["GLOO_SOCKET_IFNAME=hsn1"], [], [], TWIN)[0] == [TrialSetting("GLOO_SOCKET_IFNAME", "hsn1")]
    against = ["GLOO_SOCKET_IFNAME=eth0"]
    assert parse_settings(["GLOO_SOCKET_IFNAME=hsn0"], [], against, TWIN)[0] == [
        TrialSetting("GLOO_SOCKET_IFNAME", "hsn0")
    ]


@pytest.mark.parametrize(
    ("words", "option", "code"),
    [
        ([], "try", "nothing-to-try"),
        (["1A=2"], "try", "setting-malformed"),
        (["A"], "try", "setting-malformed"),
        (["A=\n"], "try", "setting-malformed"),
        (["A=1", "--against", "B"], "--against", "setting-malformed"),
        (["A=1", "--unset", "B=2"], "--unset", "setting-malformed"),
        (["A=1", "--unset", "B-2"], "--unset", "setting-malformed"),
        (["A=1", "--against", "GLOO_SOCKET_IFNAME=eth0"], "--against", "control-in-reference"),
        (["A=1", "--nodes", "1"], "--nodes", "rank-alone"),
        (["MASTER_ADDR=x"], "try", "setting-computed"),
        (["MIOPEN_USER_DB_PATH=/x"], "try", "setting-computed"),
        (["SLURM_CPU_BIND=none"], "try", "setting-computed"),
        (["A=1", "--probe", "communicators", "--probe", "transport"], "--probe", "probe-not-compared"),
        (["A=1", "--against", "A=1"], "try", "setting-in-reference"),
    ],
)
def test_bad_input_is_refused_before_any_job(words: list[str], option: str, code: str) -> None:
    arguments = parse(["try", "--site", "twin", "--seed", "1", *words])
    with pytest.raises(ResolveError) as refused:
        new_trial(arguments)
    assert (refused.value.finding.subject, refused.value.finding.code) == (option, code)


def test_what_an_image_lacks_is_not_tried() -> None:
    target = target_of("lumi", "/appl/local/containers/sif-images/lumi-mpi4py-rocm-6.2.0.sif")
    with pytest.raises(ResolveError) as refused:
        parse_settings(["NCCL_NET=AWS Libfabric"], [], [], target)
    assert refused.value.finding.code == "setting-needs-plugin"


def test_a_budget_is_for_the_ledger(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["try", "--site", "twin", "--seed", "1", "A=1", "--budget", "9"]) == 2
    assert "--budget" in capsys.readouterr().err


def test_a_variable_that_may_be_mistyped_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["try", "--site", "lumi", "--dry-run", "NCCL_CROS_NIC=1", "NCCL_CROSS_NIC=1", "NCCL_ALGO=Ring"]
    assert main(words) == 0
    told = "lumisite: NCCL_CROS_NIC is not in the ledger (did you mean NCCL_CROSS_NIC?)\n"
    assert capsys.readouterr().err == told


def test_what_ranks_have_is_that_of_as_many_nodes(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["try", "--site", "lumi", "--dry-run", "NCCL_CROSS_NIC=1"]
    for nodes, variant in (("2", "NCCL_CROSS_NIC unset"), ("1", "NCCL_CROSS_NIC=1")):
        assert main([*words, "--nodes", nodes]) == 0
        assert f"variant: {variant}\n" in capsys.readouterr().out


@pytest.mark.parametrize("words", ["LUMISITE_CPU_BIND=off", "LUMISITE_GPUS=one", "NCCL_ALGO=Ring"])
def test_what_a_user_may_say_to_the_helper_can_be_tried(words: str) -> None:
    assert main(["try", "--site", "twin", "--seed", "1", "--dry-run", words]) == 0


def test_a_file_that_evidence_cannot_go_into_is_told_before_any_job(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["try", "--site", "twin", "--seed", "1", "--dry-run", "A_B=1", "--write"]
    (tmp_path / "other.yaml").write_text((EMBEDDED / "dardel.yaml").read_text())
    (tmp_path / "faulty.yaml").write_text("lumisite: 2\n")
    for name, said in (
        ("other", "describes dardel, and this is tried on twin"),
        ("faulty", "name"),
        ("gone", "cannot"),
    ):
        assert main([*words, str(tmp_path / f"{name}.yaml")]) == 2
        captured = capsys.readouterr()
        assert captured.out == ""
        assert said in captured.err


def test_a_job_is_asked_for_as_long_as_its_runs_may_take() -> None:
    design = a_design(NEW, HELD)
    request, _ = a_trial(design)
    assert with_time(request, design).sbatch == (
        "--qos=x",
        "--time=38",
    )  # 6 runs and 3 signs of 180 s, 10 minutes
    longer = replace(request, sbatch=("--time=02:00:00",))
    assert with_time(longer, design) == longer


def test_rules_of_the_site_say_what_decides_and_how_noisy_it_is() -> None:
    metrics, limits = deciding(LOADED.site, ("collectives", "pairs"))
    assert metrics == ("collectives/all_reduce_busbw/4MiB/*", "pairs/*")
    assert (limits.sham, limits.drift, limits.control) == (0.2, 0.2, 0.2)
    assert deciding(LOADED.site, ("communicators",))[0] == ("*_busbw/*", "ddp/samples_per_s/*")


def test_a_plan_is_printed_without_slurm_and_without_a_shared_folder(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["try", "--site", "lumi", "--seed", "1", "--dry-run", "NCCL_CROSS_NIC=2"]
    assert main([*words, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["seed"], len(told["slots"])) == (1, 30)
    assert main(words) == 0
    out = capsys.readouterr().out
    rows = dict(re.split(" {2,}", line, maxsplit=1) for line in out.splitlines())
    assert (rows["seed"], rows["control"]) == ("1", "control: NCCL_MAX_NCHANNELS=4")
    assert rows["allocation 3"] == "reference, control, NCCL_CROSS_NIC=2, placebo, reference"
    assert rows["node hours"] == "7.8 at most on 2 nodes, 15.6 where allocations are run again"
    assert main(["validate", "--site", "lumi", "--dry-run", "--probe", "ddp"]) == 0
    out = capsys.readouterr().out
    assert "#SBATCH --nodes=2\n" in out
    assert "--nodelist" not in out
