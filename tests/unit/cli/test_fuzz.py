"""Damaged files of everything, through every command: an answer or a fault in words, in bounded time and memory."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from lumisite.cli import main
from lumisite.cli.commands import COMMANDS as ALL
from lumisite.errors import MOST_PRINTED, SiteError, ToolError
from lumisite.findings.catalogue import make_finding
from lumisite.site.load import load_site
from lumisite.validate.run.folder import Run
from tests.support.fuzz import played
from tests.support.fuzz_commands import COMMANDS


@pytest.mark.thorough
def test_some_of_all_damage_to_all_files_ends_in_an_answer() -> None:
    """`python -m tests.bench fuzz` does ten thousand."""
    cases = played(4000, 200)
    assert [case for case in cases if case.what] == []
    assert [case.seed for case in cases] == [*range(4000, 4200)]


def test_damage_comes_to_every_command() -> None:
    assert {words.split()[0] for words, _, _ in COMMANDS} == set(ALL)


def test_faults_and_what_they_quote_are_told_up_to_a_length() -> None:
    Path("site.yaml").write_text("name: x\n" * 30_000)
    with pytest.raises(SiteError) as refused:
        load_site("site.yaml")
    assert len(refused.value.findings) == MOST_PRINTED
    assert refused.value.findings[-1].code == "too-many-faults"
    assert str(refused.value.findings[-1].place) == f"site.yaml:{MOST_PRINTED + 1}:1"
    told = str(SiteError([make_finding("unknown-name", "key", name="x" * 100_000, near="y")]))
    assert len(told) < 7000
    assert len(str(ToolError("sinfo said " + "\0" * 5000))) < 7000
    assert told.endswith("is not known here (did you mean y?) [unknown-name]")


def test_what_cannot_be_read_on_the_way_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    Path("x.sif").symlink_to("/proc/self/mem")
    assert main(["binds", "x.sif", "--site", "lumi"]) == 3
    assert "x.sif: cannot read: Input/output error" in capsys.readouterr().err


def test_what_a_job_notes_of_its_files_is_read_up_to_a_size(tmp_path: Path) -> None:
    (tmp_path / "jobs/r").mkdir(parents=True)
    (tmp_path / "jobs/r/seen").write_text("image\tx\tend\n")
    assert Run(tmp_path).seen("r") == [{"image": "x"}]
    (tmp_path / "jobs/r/seen").write_text("image\tx\tend\n" * 500_000)
    assert Run(tmp_path).seen("r") == []


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


def test_what_holds_nothing_but_faults_is_not_read_to_its_end(capsys: pytest.CaptureFixture[str]) -> None:
    Path("after").write_text("{}x\n" * 30_000)
    assert main(["verdict", "--before", "after", "--after", "after"]) == 2
    assert capsys.readouterr().err.endswith("… and 9950 more\n")


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
    (tmp_path / "samples.jsonl").unlink()
    for event in ("[]", '{"event": []}', '{"event": "over", "attempt": "²"}', '{"event": "over", "time": 1e999}'):
        (tmp_path / "jobs.jsonl").write_text(f'{{"event": "over", "run": "r"}}\n{event}\n')
        run = Run(tmp_path)
        with pytest.raises(ToolError) as refused:
            run.lock()
        finding = refused.value.finding
        assert finding.code in ("journal-line-invalid", "line-not-object", "time-invalid")
        assert str(finding.place).endswith("jobs.jsonl:2")
        run.release()


@pytest.mark.parametrize("word", ["--het-group=²", "--het-group=" + "9" * 5000, "--gpus-per-node=" + "9" * 5000])
def test_a_script_may_hold_any_digits(word: str) -> None:
    Path("job.sh").write_text(f"#!/bin/bash\n#SBATCH --nodes=2\nsrun {word} singularity exec x.sif true\n")
    assert main(["lint", "job.sh"]) in (0, 1)


def test_a_version_of_thousands_of_digits_is_none(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["why", "rocm", "--rocm", "9" * 5000]) == 2
    assert "is not a version" in capsys.readouterr().err
