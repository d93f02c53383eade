"""Odd files, numbers and words, through the command line: an answer or one line."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from lumisite.cli import main
from lumisite.errors import ToolError
from lumisite.validate.run.folder import Run


def test_what_cannot_be_read_on_the_way_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    Path("x.sif").symlink_to("/proc/self/mem")
    assert main(["binds", "x.sif", "--site", "lumi"]) == 3
    assert "x.sif: cannot read: Input/output error" in capsys.readouterr().err


@pytest.mark.parametrize("columns", ["²", "0", "1", "-5", "9" * 400, "9" * 5000, "x", ""])
def test_any_width_of_a_terminal_will_do(
    columns: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    assert main(["--help"]) == 0
    assert "render" in capsys.readouterr().out


@pytest.mark.parametrize("words", ["report now", "verdict --before now --after now", "transport now", "lint now"])
def test_a_pipe_is_named_and_not_waited_for(words: str, capsys: pytest.CaptureFixture[str]) -> None:
    os.mkfifo("now")
    assert main(words.split()) == 2
    assert "now: cannot be read: it is not a file but a pipe" in capsys.readouterr().err


def test_what_the_shell_opens_may_be_a_pipe(capsys: pytest.CaptureFixture[str]) -> None:
    reading, writing = os.pipe()
    os.write(writing, b"#!/bin/bash\ntrue\n")
    os.close(writing)
    try:
        assert main(["lint", f"/dev/fd/{reading}", "--site", "lumi"]) == 0
    finally:
        os.close(reading)
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("name", ["done", "exit", "began"])
@pytest.mark.parametrize("words", ["", "² 1", "0 nan", "0 1e999", "x y", "\udcff 1", "0 " + "9" * 5000, "-1 -1"])
def test_a_damaged_mark_of_a_job_is_none(name: str, words: str, tmp_path: Path) -> None:
    (tmp_path / "jobs/r").mkdir(parents=True)
    (tmp_path / f"jobs/r/{name}").write_text(words, errors="surrogateescape")
    assert Run(tmp_path).end("r", name) is None


def test_a_damaged_line_of_a_run_is_told_with_its_place_before_anything_runs(tmp_path: Path) -> None:
    (tmp_path / "samples.jsonl").write_text('{"metric": 1}\n')
    run = Run(tmp_path)
    with pytest.raises(ToolError, match=r"samples\.jsonl:1: value, better, run, nodes, time missing"):
        run.lock()
    run.release()


@pytest.mark.parametrize("word", ["--het-group=²", "--het-group=" + "9" * 5000, "--gpus-per-node=" + "9" * 5000])
def test_a_script_may_hold_any_digits(word: str) -> None:
    Path("job.sh").write_text(f"#!/bin/bash\n#SBATCH --nodes=2\nsrun {word} singularity exec x.sif true\n")
    assert main(["lint", "job.sh"]) in (0, 1)


def test_a_version_of_thousands_of_digits_is_none(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["why", "rocm", "--rocm", "9" * 5000]) == 2
    assert "is not a version" in capsys.readouterr().err
