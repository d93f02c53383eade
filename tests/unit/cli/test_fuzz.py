"""Damaged files of everything, through every command: an answer or a fault in words, in bounded time and memory."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from lumisite.cli import main
from tests.support.fuzz import CONTENTS, PLACES, played


@pytest.mark.thorough
def test_some_of_all_damage_to_all_files_ends_in_an_answer() -> None:
    """`python -m tests.bench fuzz` does ten thousand."""
    bad, done = played(4000, 200, processes=2)
    assert bad == []
    assert done == 200
    assert len(CONTENTS) + len(PLACES) > 20


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
        assert main(["lint", f"/dev/fd/{reading}"]) == 0
    finally:
        os.close(reading)
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("word", ["--het-group=²", "--het-group=" + "9" * 5000, "--gpus-per-node=" + "9" * 5000])
def test_a_script_may_hold_any_digits(word: str) -> None:
    Path("job.sh").write_text(f"#!/bin/bash\n#SBATCH --nodes=2\nsrun {word} singularity exec x.sif true\n")
    assert main(["lint", "job.sh"]) in (0, 1)


def test_a_version_of_thousands_of_digits_is_none(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["resolve", "--rocm", "9" * 5000]) == 2
    assert "is not a version" in capsys.readouterr().err
