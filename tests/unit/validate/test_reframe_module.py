"""The test module for ReFrame that lumisite writes, and what lumisite does when the module asks."""

from __future__ import annotations

import ast
import json
import shlex
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from lumisite.cli import main
from lumisite.findings.catalogue import make_finding
from lumisite.findings.writers import message
from lumisite.validate.lines import Gate, Sample
from lumisite.validate.reframe.module import answer
from lumisite.validate.run import slurm
from lumisite.validate.run.folder import SAMPLES
from tests.support.sites import site_text

pytestmark = pytest.mark.usefixtures("at_lumi")

Output = pytest.CaptureFixture[str]
ROOT = Path(__file__).parents[3]
PROBES = ["node", "environment", "transport", "communicators", "collectives", "ddp", "pairs"]


def module(capsys: Output, *words: str) -> str:
    assert main(["reframe", *words]) == 0
    return capsys.readouterr().out


def constants(text: str) -> dict[str, Any]:
    """Give what the module says of itself, without ReFrame: its constants, and its function of references."""
    parts: list[ast.stmt] = [
        node
        for node in ast.parse(text).body
        if isinstance(node, ast.Assign | ast.FunctionDef)
        or (isinstance(node, ast.Import) and node.names[0].name == "fnmatch")
    ]
    found: dict[str, Any] = {}
    exec(compile(ast.Module(parts, []), "module", "exec"), found)
    return found


def probes(text: str) -> list[str]:
    """Give the probes of the tests, in their order."""
    return [
        node.value.value
        for one in ast.parse(text).body
        if isinstance(one, ast.ClassDef) and one.decorator_list
        for node in one.body
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
    ]


# ---- the text


@pytest.mark.parametrize("options", [(), ("--site", "twin", "--nodes", "4", "--probe", "ddp")])
@pytest.mark.parametrize("words", [("check",), ("format", "--check")])
def test_the_module_is_as_a_careful_author_writes_it(
    tmp_path: Path, options: tuple[str, ...], words: tuple[str, ...]
) -> None:
    path = tmp_path / "probes.py"
    assert main(["reframe", *options, "-o", str(path)]) == 0
    ruff = [sys.executable, "-m", "ruff", *words, "--config", str(ROOT / "pyproject.toml"), str(path)]
    done = subprocess.run(ruff, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_command_in_its_first_line_writes_it_again(capsys: Output) -> None:
    options = ["--site", "twin", "--nodes", "4", "--probe", "ddp"]
    text = module(capsys, *options)
    command = shlex.split(text.splitlines()[0].removeprefix("# Written by: "))
    assert command[:2] == ["lumisite", "reframe"]
    assert module(capsys, *command[2:]) == text


def test_it_has_a_test_for_each_probe_of_the_suite(capsys: Output) -> None:
    assert probes(module(capsys, "--site", "twin")) == PROBES
    more = module(capsys, "--site", "twin", "--jax-image", "/j.sif", "--wrapper", "/w")
    assert probes(more) == PROBES
    assert constants(more)["OPTIONS_OF_LUMISITE"] == ("--site", "twin", "--jax-image", "/j.sif", "--wrapper", "/w")


def test_files_are_named_by_their_whole_path(capsys: Output, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my.yaml").write_text(site_text())
    asked = constants(module(capsys, "--site", "my.yaml", "--image", "x.sif"))["OPTIONS_OF_LUMISITE"]
    assert asked == ("--site", f"{tmp_path}/my.yaml", "--image", f"{tmp_path}/x.sif")


def test_it_asks_slurm_as_validate_does_but_for_the_nodes(capsys: Output) -> None:
    found = constants(module(capsys))
    assert (found["SYSTEMS"], found["NODES"], found["TASKS_PER_NODE"]) == (["lumi:standard-g"], 2, 8)
    assert found["OPTIONS"] == [
        "--partition=standard-g",
        "--nodes=2",
        "--ntasks-per-node=8",
        "--time=00:30:00",
        "--no-requeue",
        "--gpus-per-node=8",
        "--mem=0",
        "--export=HOME,USER,LOGNAME,PATH,SHELL,LANG,LC_ALL,TZ,XDG_RUNTIME_DIR,SLURM_CONF",
    ]


def test_references_are_what_the_site_expects(capsys: Output) -> None:
    reference = constants(module(capsys))["reference"]
    name = "collectives/all_reduce_busbw/128MiB/1n"
    assert reference(name, "higher", "GB/s") == (125.0, -0.4, None, "GB/s")
    # The rest only says which way is better.
    assert reference("ddp/samples_per_s/comm/2n", "higher", "1/s") == (0, 0, None, "1/s")
    assert reference("ddp/step_time_p50_s/comm/2n", "lower", "s") == (0, None, 1e100, "s")


def test_a_time_has_its_reference_above(capsys: Output, tmp_path: Path) -> None:
    site = tmp_path / "site.yaml"
    rule = "    - {metric: 'ddp/step_time_p50_s/*', spec: 0.2, floor: 0.5, source: here}\n"
    site.write_text(site_text(("  metrics:\n", f"  metrics:\n{rule}")))
    found = constants(module(capsys, "--site", str(site)))
    assert found["reference"]("ddp/step_time_p50_s/comm/2n", "lower", "s") == (0.2, None, 1.0, "s")
    assert found["OPTIONS_OF_LUMISITE"] == ("--site", str(site))


def test_a_probe_that_does_not_exist_is_refused(capsys: Output) -> None:
    assert main(["reframe", "--probe", "dpp"]) == 2
    assert "unknown-probe" in capsys.readouterr().err


# ---- what the module asks


@pytest.fixture
def site(tmp_path: Path) -> str:
    """A site whose shared file system is the test's own folder."""
    path = tmp_path / "site.yaml"
    path.write_text(site_text(("path: /scratch,", f"path: {tmp_path},")))
    return str(path)


def staged(site: str, tmp_path: Path, capsys: Output, probe: str) -> tuple[Path, Path]:
    """Stage a probe; give the stage directory and the job's script."""
    stage = tmp_path / "stage"
    assert main(["reframe", "--site", site, "--probe", probe, "--stage", str(stage)]) == 0
    return stage, stage / json.loads(capsys.readouterr().out)["script"]


def judged(site: str, stage: Path, capsys: Output, probe: str) -> tuple[int, dict[str, Any]]:
    code = main(["reframe", "--site", site, "--probe", probe, "--judge", str(stage), "--job", "77"])
    return code, json.loads(capsys.readouterr().out)


def test_a_staged_job_is_validates_own_for_nodes_that_slurm_chooses(site: str, tmp_path: Path, capsys: Output) -> None:
    stage, script = staged(site, tmp_path, capsys, "ddp")
    text = script.read_text()
    assert "--nodelist" not in text
    assert 'scontrol show hostnames "$SLURM_JOB_NODELIST" >"$job/nodes"' in text
    one, two = (line for line in text.splitlines() if line.startswith("step ddp"))
    assert "srun --nodes=1 --ntasks=1 --ntasks-per-node=1 --kill-on-bad-exit=1 --relative=0 singularity" in one
    assert "srun --nodes=2 --ntasks=2 --ntasks-per-node=1 --kill-on-bad-exit=1 singularity" in two
    assert (stage / "probes/ddp.py").is_file()


def test_a_module_that_does_not_load_fails_the_test_with_validates_words(
    site: str, tmp_path: Path, capsys: Output
) -> None:
    stage, script = staged(site, tmp_path, capsys, "transport")
    (script.parent / "nodes").write_text("nid000003\nnid000004\n")
    (script.parent / "module.stderr").write_text("Lmod has detected | an error\n")
    (script.parent / "done").write_text("77 module:1 1795274963\n")
    code, told = judged(site, stage, capsys, "transport")
    assert (code, told["verdict"], told["performance"]) == (1, "fail", {})
    line = json.loads((stage / SAMPLES).read_text())
    assert told["causes"] == [f"{line['cause']} ({line['advice']})"]
    assert (line["code"], line["nodes"]) == ("job-module-failed", ["nid000003", "nid000004"])
    assert line["values"] == {"node": "nid000003", "words": "Lmod has detected | an error"}


@pytest.mark.parametrize(
    ("began", "nodes"),
    [
        (True, ["nid000003", "nid000004"]),
        (False, ["standard-g"]),
    ],
)
def test_a_job_that_was_taken_away_says_so(
    monkeypatch: pytest.MonkeyPatch,
    site: str,
    tmp_path: Path,
    capsys: Output,
    began: bool,
    nodes: list[str],
) -> None:
    def poll(jobs: Sequence[str]) -> Mapping[str, slurm.JobState]:
        assert list(jobs) == ["77"]
        return {"77": slurm.JobState("CANCELLED")}

    monkeypatch.setattr(slurm, "poll", poll)
    now = [0.0]
    clock = SimpleNamespace(monotonic=lambda: now[0], sleep=lambda s: now.append(now.pop() + s), time=lambda: 1.8e9)
    monkeypatch.setattr("lumisite.validate.run.runner.time", clock)
    stage, script = staged(site, tmp_path, capsys, "environment")
    if began:
        (script.parent / "nodes").write_text("nid000003\nnid000004\n")
    code, _ = judged(site, stage, capsys, "environment")
    # It says nothing of the system, and another program's job is not submitted again.
    line = json.loads((stage / SAMPLES).read_text())
    assert (code, line["code"], line["nodes"]) == (4, "job-cancelled", nodes)


def test_without_a_number_no_job_is_judged_and_none_submitted(site: str, tmp_path: Path, capsys: Output) -> None:
    stage, script = staged(site, tmp_path, capsys, "transport")
    (script.parent / "done").write_text("77 module:1 1795274963\n")
    assert main(["reframe", "--site", site, "--probe", "transport", "--judge", str(stage)]) == 2
    assert "--judge: goes with --job ID" in capsys.readouterr().err


def test_a_stage_directory_that_nodes_do_not_see_is_refused(capsys: Output, tmp_path: Path) -> None:
    assert main(["reframe", "--site", "twin", "--probe", "environment", "--stage", str(tmp_path / "stage")]) == 2
    assert "stage directory: " in capsys.readouterr().err


# ---- the answer


def sample(metric: str, value: float, node: str) -> Sample:
    return Sample(metric, value, "higher", "1", (node,), 1.0, "GB/s")


def gate(verdict: Any, cause: str = "") -> Gate:
    return Gate("pairs", verdict, cause, "do this" if cause else "", "1", ("n1",), 1.0)


def test_a_metric_of_single_nodes_has_the_number_that_a_verdict_has() -> None:
    told = answer([gate("pass"), *(sample("pairs/copy_bw/1n", value, f"n{value}") for value in (1.0, 2.0, 9.0))])
    assert told["verdict"] == "pass"
    assert told["performance"] == {"pairs/copy_bw/1n": [2.0, "GB/s", "higher"]}


@pytest.mark.parametrize(
    ("lines", "verdict", "causes"),
    [
        ([gate("pass"), gate("inconclusive", "blind")], "inconclusive", ["inconclusive: blind (do this)"]),
        ([gate("inconclusive", "blind"), gate("fail", "down")], "fail", ["inconclusive: blind (do this)", "down (do this)"]),
        ([], "inconclusive", [f"inconclusive: {message(make_finding('nothing-measured'))}"]),
    ],
)  # fmt: skip
def test_only_gates_that_all_pass_make_a_test_pass(lines: list[Gate], verdict: str, causes: list[str]) -> None:
    told = answer(lines)
    assert (told["verdict"], told["causes"]) == (verdict, causes)
