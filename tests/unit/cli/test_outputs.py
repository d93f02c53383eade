"""Where results go that cannot go anywhere: full, closed or gone, and files that must not be left half written."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from lumisite.cli import main

LUMISITE = f"{sys.executable} -m lumisite"
RESOLVE = "why rocm --site lumi --rocm 6.2"
Output = pytest.CaptureFixture[str]


def shell(line: str) -> tuple[int, str, str]:
    """Run a line of bash; its exit code is that of lumisite."""
    done = subprocess.run(["bash", "-c", line], capture_output=True, text=True, timeout=60, check=False)
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize(
    ("where", "code", "reason"),
    [
        (">/dev/full", 3, "No space left on device"),
        (">&-", 3, "Bad file descriptor"),
        (">&- 2>&-", 3, ""),
        (">/dev/full 2>/dev/full", 3, ""),
        ("2>/dev/full", 0, ""),
        ("2>&-", 0, ""),
        ("<&-", 0, ""),
    ],
)
def test_what_cannot_be_printed_is_one_line_and_never_a_traceback(where: str, code: int, reason: str) -> None:
    found, out, err = shell(f"{LUMISITE} {RESOLVE} {where}")
    assert found == code
    assert ("6.2.4" in out) == (code == 0)
    if reason:
        assert err.startswith("lumisite: standard output: cannot write: ")
        assert reason in err
        assert err.count("\n") == 1


@pytest.mark.parametrize("words", ["--version", "nonsense", "check no-such-site"])
def test_usage_and_errors_too(words: str) -> None:
    usual, _, _ = shell(f"{LUMISITE} {words}")
    code, _, err = shell(f"{LUMISITE} {words} >/dev/full")
    assert code == (usual or 3)
    assert "Traceback" not in err
    assert "Exception" not in err


def test_a_closed_output_does_not_become_a_file_that_is_opened(tmp_path: Path) -> None:
    """The next file that a process opens gets the lowest number that is free: what is printed would go there."""
    code, _, err = shell(f"cd {tmp_path}; {LUMISITE} facts --root / --site lumi -o facts.json >&-")
    assert (code, "Traceback" in err) == (0, False)
    assert (tmp_path / "facts.json").read_text().startswith("{")


def test_a_file_that_cannot_be_written_whole_stays_as_it_was(tmp_path: Path) -> None:
    script = "import resource, sys; resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100));"
    script += "from lumisite.__main__ import run; run()"
    old = tmp_path / "facts.json"
    old.write_text("of yesterday\n")
    words = ["facts", "--root", "/", "--site", "lumi", "-o", str(old)]

    def ignoring() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)

    done = subprocess.run(
        [sys.executable, "-c", script, *words], capture_output=True, text=True, preexec_fn=ignoring, check=False
    )
    assert done.returncode == 3
    assert f"{old}: cannot write: File too large" in done.stderr
    assert old.read_text() == "of yesterday\n"
    assert [path.name for path in tmp_path.iterdir()] == ["facts.json"]
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[0] != 100


def test_an_output_keeps_its_mode_and_its_link_and_a_new_one_follows_the_umask(tmp_path: Path) -> None:
    (tmp_path / "old").write_text("x")
    (tmp_path / "old").chmod(0o640)
    (tmp_path / "link").symlink_to("old")
    before = os.umask(0o027)
    try:
        for name in ("link", "new"):
            assert main(["facts", "--root", "/", "--site", "lumi", "-o", str(tmp_path / name)]) == 0
    finally:
        os.umask(before)
    assert (tmp_path / "link").is_symlink()
    assert [oct((tmp_path / name).stat().st_mode & 0o777) for name in ("old", "new")] == ["0o640", "0o640"]


def test_an_output_may_be_a_device_or_a_pipe(tmp_path: Path, capsys: Output) -> None:
    assert main(["facts", "--root", "/", "--site", "lumi", "-o", "/dev/null"]) == 0
    assert main(["facts", "--root", "/", "--site", "lumi", "-o", "/dev/full"]) == 3
    assert "/dev/full: cannot write: No space left on device" in capsys.readouterr().err
    code, out, _ = shell(f"{LUMISITE} facts --root / --site lumi -o /dev/stdout | head -c 1")
    assert (code, out) == (0, "{")
    assert list(tmp_path.iterdir()) == []


def test_an_interrupt_while_a_class_is_made_is_no_traceback(monkeypatch: pytest.MonkeyPatch, capsys: Output) -> None:
    """An enum in a module that loads late: up to Python 3.11 the interrupt is the cause of a RuntimeError."""

    class Interrupted:
        def __set_name__(self, owner: object, name: str) -> None:
            raise KeyboardInterrupt

    def load_site(_: object) -> int:
        return len(type("Late", (), {"member": Interrupted()}).__name__)

    monkeypatch.setattr("lumisite.cli.check.load_site", load_site)
    assert main(["check", "lumi"]) == 130
    assert capsys.readouterr().err == "lumisite: interrupted\n"


def test_an_interrupt_at_any_moment_is_no_traceback() -> None:
    """While modules load there is nothing to catch it; a command says that it was interrupted."""
    for wait in (0.03, 0.06, 0.1, 0.15, 0.2, 0.3):
        process = subprocess.Popen(
            [sys.executable, "-X", "importtime", "-c", "from lumisite.__main__ import run; run()", "check", "lumi"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler) and None,
        )
        assert process.stderr is not None
        for line in process.stderr:  # what comes before is Python's own start
            if "lumisite.__main__" in line:
                break
        time.sleep(wait)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
        assert process.returncode in (0, 130, -signal.SIGINT)
        assert "Traceback" not in err
        assert "Exception" not in err
