"""Two readings in two processes give what one after the other gives."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from lumisite.cli import apart, main
from lumisite.cli.apart import read_both
from lumisite.validate import InputError
from tests.unit.series import STEADY, after, scaled, series, write


@pytest.fixture(autouse=True)
def big(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two files that are big enough, on a machine of two processors."""
    monkeypatch.setattr(apart, "APART_BYTES", 10)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})
    monkeypatch.chdir(tmp_path)
    for name in ("before", "after"):
        Path(name).write_text("0123456789")


def read(first: Callable[[], object], second: Callable[[], object]) -> tuple[object, object]:
    return read_both(first, ["before"], second, ["after"])


def refusing(text: str) -> Callable[[], object]:
    def refuse() -> object:
        raise InputError(text)

    return refuse


def test_big_files_are_read_in_two_processes() -> None:
    first, second = read(os.getpid, os.getpid)
    assert second == os.getpid()
    assert first != second


@pytest.mark.parametrize("lacking", ["bytes", "file", "plain file", "processors"])
def test_else_in_one(lacking: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if lacking == "bytes":
        Path("before").write_text("012345678")
    if lacking in ("file", "plain file"):
        Path("after").unlink()
    if lacking == "plain file":
        os.mkfifo("after")
    if lacking == "processors":
        monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0})
    assert read(os.getpid, os.getpid) == (os.getpid(), os.getpid())


def test_the_verdict_is_the_same(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    write("before", series(STEADY))
    write("after", after(scaled(0.9, 10)))
    outputs = []
    for processors in ({0}, {0, 1}):
        monkeypatch.setattr(os, "sched_getaffinity", lambda _, found=processors: found)
        assert main(["verdict", "--before", "before", "--after", "after"]) == 1
        outputs.append(capsys.readouterr().out)
    assert outputs[0] == outputs[1]


def test_what_is_raised_is_what_one_after_the_other_raises() -> None:
    with pytest.raises(InputError, match=r"^first$"):
        read(refusing("first"), os.getpid)
    with pytest.raises(InputError, match=r"^second$"):
        read(os.getpid, refusing("second"))
    with pytest.raises(InputError, match=r"^first$"):
        read(refusing("first"), refusing("second"))


def test_what_a_killed_process_was_reading_is_read_here() -> None:
    here = os.getpid()

    def first() -> int:
        if os.getpid() != here:
            os.kill(os.getpid(), signal.SIGKILL)
        return os.getpid()

    assert read(first, os.getpid) == (here, here)


def test_no_process_outlives_an_interrupt() -> None:
    def interrupted() -> object:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        read(lambda: signal.pause(), interrupted)
    assert apart_children() == []


def apart_children() -> list[str]:
    return Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
