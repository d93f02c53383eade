"""Long work tells how far it is: on a terminal in one line, in a log a line a step, and Ctrl-C ends the line."""

from __future__ import annotations

import doctest
import io
import os
import pty
import re
import signal
import sys
from pathlib import Path

import pytest

from lumisite.cli import main, progress
from lumisite.cli.progress import Progress
from lumisite.cli.terminal import plain_output

pytestmark = pytest.mark.usefixtures("at_lumi")

Output = pytest.CaptureFixture[str]
PYTHON = (sys.executable, "-c", "from lumisite.cli import run; run()")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_the_examples_in_the_docstrings_are_true() -> None:
    assert doctest.testmod(progress).failed == 0


def test_on_a_terminal_one_line_is_drawn_anew_and_what_is_printed_clears_it(monkeypatch: pytest.MonkeyPatch) -> None:
    shown, clock = Terminal(), Clock()
    monkeypatch.setattr(sys, "stderr", shown)
    with plain_output():
        tell = Progress("images", clock=clock)
        tell(0, 12, "a")
        clock.now = 4.0
        tell(2, 12, "b")
        tell(3, 12, "too soon to be drawn")
        clock.now = 8.0
        tell(4.5, 12, "c\x1b[2J")
        print("a result", file=sys.stderr)
    first, second = "2 of 12 images, 30.0/min, 20 s left: b", "4 of 12 images, 33.8/min, 13 s left: c\\x1b[2J"
    assert shown.getvalue() == "".join(
        (first, f"\r{' ' * len(first)}\r", second, f"\r{' ' * len(second)}\r", "a result\n")
    )


def test_work_that_is_over_at_once_and_what_was_done_before_tell_nothing_of_the_rate(
    monkeypatch: pytest.MonkeyPatch, capsys: Output
) -> None:
    clock = Clock()
    tell = Progress("steps", clock=clock)
    tell(1, 3)
    tell(3, 3)
    assert capsys.readouterr().err == ""
    tell = Progress("steps", clock=clock)
    tell(90, 100)
    clock.now = 3600.0
    tell(91, 100)
    assert capsys.readouterr().err == "lumisite: 91 of 100 steps, 1.0/h, 9 h 0 min left\n"


def test_a_log_has_a_line_for_each_image(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Output) -> None:
    monkeypatch.setattr(progress, "QUIET_S", 0.0)
    for name in ("a.sif", "b.sif"):
        (tmp_path / name).write_bytes(bytes(3 << 20))
    assert main(["images", str(tmp_path)]) == 1
    lines = [line for line in capsys.readouterr().err.splitlines() if " of 2 images" in line]
    assert [re.sub(r", .* left", "", line) for line in lines] == [
        f"lumisite: {number} of 2 images: {tmp_path}/{name}.sif" for number, name in ((1, "a"), (2, "b"))
    ]


@pytest.mark.thorough
def test_ctrl_c_ends_the_line(tmp_path: Path) -> None:
    with (tmp_path / "large.log").open("wb") as stream:
        stream.truncate(1 << 38)
    process, terminal = pty.fork()
    if process == 0:
        signal.signal(signal.SIGINT, signal.default_int_handler)  # what starts the tests may have it ignored
        os.environ["COLUMNS"] = "200"
        os.execv(sys.executable, [*PYTHON, "transport", str(tmp_path / "large.log")])
    seen = b""
    while b"large.log" not in seen:
        seen += os.read(terminal, 4096)
    os.write(terminal, b"\x03")
    try:
        while more := os.read(terminal, 4096):
            seen += more
    except OSError:  # the other side has gone
        pass
    _, status = os.waitpid(process, 0)
    assert os.waitstatus_to_exitcode(status) == 130
    line = rb"\d+ of \d+ MB, [\d.]+/\w+, [\w ]+ left: [^\r\n]*large\.log"
    assert seen.startswith(b"lumisite: site ")
    assert re.search(line + rb"(\^C)?\r\nlumisite: interrupted\r\n$", seen), seen
