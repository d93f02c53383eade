"""What a trial cannot answer is refused before its first job, and its plan is printed on any machine."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from lumisite.cli import main
from lumisite.site.load import EMBEDDED
from lumisite.validate.trial.bad_input import check_asked, given_to_ranks, settings_of
from lumisite.validate.trial.design import Setting
from lumisite.validate.trial.jobs import deciding
from tests.support.asked import LOADED
from tests.unit.validate.test_trial_jobs import HELD, NEW, TWIN, a_design, a_trial


def test_what_ranks_have_is_tried_by_doing_without_it() -> None:
    assert given_to_ranks(TWIN)["GLOO_SOCKET_IFNAME"].value == "hsn0"
    assert settings_of(["GLOO_SOCKET_IFNAME=hsn0", "A=1"], ["B"], [], TWIN)[0] == [
        HELD,
        Setting("A", "1"),
        Setting("B"),
    ]
    assert settings_of(["GLOO_SOCKET_IFNAME=hsn1"], [], [], TWIN)[0] == [Setting("GLOO_SOCKET_IFNAME", "hsn1")]
    against = ["GLOO_SOCKET_IFNAME=eth0"]
    assert settings_of(["GLOO_SOCKET_IFNAME=hsn0"], [], against, TWIN)[0] == [Setting("GLOO_SOCKET_IFNAME", "hsn0")]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "try: there is nothing to try (NAME=VALUE, or --unset NAME)"),
        (["1A=2"], "try: '1A=2' is no setting (NAME=VALUE would be right)"),
        (["A"], "try: A has no value (NAME=VALUE, or `--unset A` to try without it)"),
        (["A=1", "--against", "B"], "--against: B has no value (NAME=VALUE, or `--unset B` to try without it)"),
        (["A=1", "--unset", "B=2"], "--unset: 'B=2' is no name (--unset NAME would be right)"),
        (["A=1", "--unset", "B-2"], "--unset: 'B-2' is no name (--unset NAME would be right)"),
        (["A=1", "--budget", "9"], "--budget: is for --ledger (leave it out, or give both)"),
        (
            ["A=1", "--against", "GLOO_SOCKET_IFNAME=eth0"],
            "--against: GLOO_SOCKET_IFNAME=eth0 is the control, which has",
        ),
        (
            ["A=1", "--nodes", "1"],
            "--nodes: one rank on one node measures nothing that slots compare (--nodes 2 would be",
        ),
        (
            ["MASTER_ADDR=x"],
            "try: MASTER_ADDR is worked out by the helper on each node, so no value of it can be compared",
        ),
        (["MIOPEN_USER_DB_PATH=/x"], "try: MIOPEN_USER_DB_PATH is worked out by the helper on each node"),
        (["SLURM_CPU_BIND=none"], "try: SLURM_CPU_BIND is made anew in each task, whatever it was before"),
        (["A=1", "--probe", "binds"], "--probe: binds measures nothing that slots compare"),
        (["A=1", "--probe", "bends"], "--probe: there is no probe 'bends'"),
        (["A=1", "--sbatch=--nodes=1"], "--sbatch: 1 nodes are another allocation than the design's (--nodes 1)"),
        (["A=1", "--sbatch=--time=5"], "--sbatch: 5 is less than an allocation may take ("),
        (["A=1", "--against", "A=1"], "try: the reference has A=1 too, so there is nothing to compare"),
    ],
)
def test_bad_input_is_refused_before_any_job(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["try", "--site", "twin", "--seed", "1", *words]) == 2
    assert capsys.readouterr().err.splitlines()[-1].startswith(f"lumisite: {said}")


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


def test_a_job_is_asked_for_as_long_as_its_slots_may_take() -> None:
    design = a_design(NEW, HELD)
    asked, _ = a_trial(design)
    assert check_asked(asked, LOADED, design).sbatch == (
        "--qos=x",
        "--time=38",
    )  # 6 slots and 3 signs of 180 s, 10 minutes
    longer = replace(asked, sbatch=("--time=02:00:00",))
    assert check_asked(longer, LOADED, design) == longer


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
    assert rows["allocation 3"] == "reference, control, NCCL_CROSS_NIC=2, sham, reference"
    assert rows["node hours"] == "7.8 at most on 2 nodes, 15.6 where allocations are run again"
    assert main(["validate", "--site", "lumi", "--dry-run", "--probe", "ddp"]) == 0
    out = capsys.readouterr().out
    assert "#SBATCH --nodes=2\n" in out
    assert "--nodelist" not in out
