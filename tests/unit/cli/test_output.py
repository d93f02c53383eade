"""What is printed and written: plain text in a pipe, rich on a terminal, and nothing that steers one."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import shutil
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

import pytest

from lumisite.cli import main
from lumisite.cli.output import plain
from tests.support.rendered_trees import NEW, tree, written
from tests.support.sites import site_text

REPOSITORY = Path(__file__).parents[3]
EXAMPLES = REPOSITORY / "docs/examples"
LUMISITE = f"{sys.executable} -m lumisite"
Output = pytest.CaptureFixture[str]


# ---- what is hostile in a file

#: A title, a carriage return, an escape of one byte, marks that turn and hide text, and a line that is forged.
HOSTILE = "\x1b]0;x\x07\r\x9b2K\u202e\u200b\x7f\nFORGED: all is well"


def planted(path: Path, *keys: str) -> str:
    """Return the JSON of a file with something hostile behind the text of a key."""
    top = inner = json.loads(path.read_text())
    for key in keys[:-1]:
        inner = inner[key]
    inner[keys[-1]] += HOSTILE
    return json.dumps(top)


def sample() -> None:
    shutil.copytree(EXAMPLES / "after", "run")
    lines = Path("run/samples.jsonl").read_text().splitlines()
    for number, line in enumerate(lines):
        values = json.loads(line)
        lines[number] = json.dumps(values | {key: values[key] + HOSTILE for key in ("metric", "run") if key in values})
    Path("run/samples.jsonl").write_text("\n".join(lines))


def run_json() -> None:
    shutil.copytree(EXAMPLES / "after", "run")
    Path("run/run.json").write_text(planted(EXAMPLES / "after/run.json", "image"))


def facts() -> None:
    Path("facts.json").write_text(planted(EXAMPLES / "after/facts.json", "site"))


def text(name: str, content: str) -> Callable[[], object]:
    return lambda: Path(name).write_text(content)


REPORT = ("report", "run", "--before", str(EXAMPLES / "before"))
CASES: Sequence[tuple[Callable[[], object], Sequence[str]]] = (
    (sample, REPORT),
    (run_json, (*REPORT, "-o", "out.html")),
    (facts, ("changes", str(EXAMPLES / "before/facts.json"), "facts.json")),
    (text("a.sh", f"#!/bin/bash\nexport NCCL_SOCKET_IFNAME=ib{HOSTILE}\n"), ("lint", "a.sh")),
    (text("a.log", f"nid1:1:1 [0] NCCL INFO NET/{HOSTILE}: Using [0]hsn0{HOSTILE}\n"), ("transport", "a.log")),
    (text("a.yaml", site_text(("title: ", f"title{json.dumps(HOSTILE)[1:-1]}: "))), ("check", "a.yaml")),
)


@pytest.mark.parametrize(("prepare", "words"), CASES)
def test_what_is_hostile_in_a_file_is_spelled_out(
    prepare: Callable[[], object], words: Sequence[str], capsys: Output
) -> None:
    prepare()
    capsys.readouterr()
    main(list(words))
    shown = "".join([*capsys.readouterr(), *(path.read_text() for path in Path().glob("out.html"))])
    assert shown
    assert all(line.replace("\t", "").isprintable() for line in shown.split("\n")), ascii(shown)
    assert not any(line.lstrip().startswith("FORGED") for line in shown.split("\n"))


def test_text_of_any_script_stays_as_it_is() -> None:
    assert plain("ümläut 日本語 🚀 …\n\tx") == "ümläut 日本語 🚀 …\n\tx"
    assert plain(HOSTILE) == r"\x1b]0;x\x07\r\x9b2K\u202e\u200b\x7f" + "\nFORGED: all is well"


# ---- terminals


def on_a_terminal(*words: str, columns: int = 80, **environment: str) -> list[str]:
    """Run a command as somebody at a terminal sees it, with its colours as [NUMBER]."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    clean = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "NO_COLOR")}
    command = [*LUMISITE.split(), *words]
    with subprocess.Popen(command, stdout=slave, env={**clean, "TERM": "xterm", **environment}) as process:
        os.close(slave)
        shown = b""
        with suppress(OSError):  # from a terminal that nobody writes to any more
            while block := os.read(master, 1 << 16):
                shown += block
    os.close(master)
    assert process.returncode in (0, 1, 4)
    return re.sub(r"\x1b\[(\d+)m", r"[\1]", shown.decode()).splitlines()


def test_a_terminal_gets_the_words_for_an_outcome_in_colour() -> None:
    log = str(REPOSITORY / "tests/data/transport/fail-ib-errors.log")
    shown = on_a_terminal("transport", log)
    assert shown[0].startswith("[31]FAIL[0]: ")
    assert next(line for line in shown if line.startswith("0 ")).split()[:3] == ["0", "nid005001:4100", "[31]fail[0]"]
    plain_text = on_a_terminal("transport", log, NO_COLOR="1")
    assert [re.sub(r"\[\d+\](pass|fail|FAIL)\[0\]", r"\1", line) for line in shown] == plain_text


@pytest.mark.parametrize("columns", [70, 500])
def test_the_last_column_of_a_table_fits_a_terminal(columns: int, tmp_path: Path) -> None:
    adapters = " ".join(f"[{number}]adapter_{number}:1/IB" for number in range(16))
    (tmp_path / "log").write_text(f"n1:1:1 [0] NCCL INFO NET/IB : Using {adapters} ; OOB e0:10.0.0.1<0>\n")
    shown = on_a_terminal("transport", str(tmp_path / "log"), columns=columns)
    first = next(number for number, line in enumerate(shown) if line.startswith("plugin in use"))
    rows = shown[first : next(number for number in range(first, len(shown)) if not shown[number].strip())]
    assert all(len(line) <= columns for line in rows)
    assert (len(rows) == 5) == (columns == 500)
    assert " ".join(rows).count("adapter_") == 16  # nothing of a line is lost


def test_a_command_to_copy_stays_on_its_line(tmp_path: Path) -> None:
    assert main(["deploy", str(written(tmp_path / "out", tree(NEW))), str(tmp_path / "root"), "--apply"]) == 0
    wide, narrow = (on_a_terminal("status", str(tmp_path / "root"), columns=columns) for columns in (500, 60))
    assert wide[-1].startswith("next  ")
    assert len(wide[-1]) > 60
    assert narrow[-1] == wide[-1]


@pytest.mark.thorough
def test_progress_is_a_line_of_a_terminal_and_ctrl_c_ends_it(tmp_path: Path) -> None:
    with (tmp_path / "large.log").open("wb") as stream:
        stream.truncate(1 << 38)
    process, terminal = pty.fork()
    if process == 0:
        signal.signal(signal.SIGINT, signal.default_int_handler)  # what starts the tests may have it ignored
        os.environ["COLUMNS"] = "200"
        os.execv(sys.executable, [*LUMISITE.split(), "transport", str(tmp_path / "large.log"), "--site", "lumi"])
    seen = b""
    while b"large.log" not in seen:
        seen += os.read(terminal, 4096)
    os.write(terminal, b"\x03")
    with suppress(OSError):  # the other side has gone
        while more := os.read(terminal, 4096):
            seen += more
    _, status = os.waitpid(process, 0)
    assert os.waitstatus_to_exitcode(status) == 130
    assert re.search(rb"\d+/274877\x1b\[0m MB ", seen), seen
    assert seen.rstrip().endswith(b"lumisite: interrupted")
    assert seen.rindex(b"\x1b[?25h") > seen.rindex(b"\x1b[?25l"), "the cursor is shown again"


# ---- outputs that are full, closed or gone


def shell(line: str) -> tuple[int, str, str]:
    """Run a line of bash; its exit code is that of lumisite."""
    done = subprocess.run(["bash", "-c", line], capture_output=True, text=True, timeout=60, check=False)
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize(
    ("words", "where", "code"),
    [
        ("why rocm --site lumi", ">/dev/full", 3),
        ("--help", ">/dev/full", 3),
        ("why rocm --site lumi", ">&- 2>&-", 0),
        ("why rocm --site lumi", "2>/dev/full", 0),
        ("why rocm --site lumi", "2>&-", 0),
        ("why rocm --site lumi", "<&-", 0),
    ],
)
def test_what_cannot_be_printed_is_one_line_and_never_a_traceback(words: str, where: str, code: int) -> None:
    found, out, err = shell(f"{LUMISITE} {words} {where}")
    assert found == code
    assert bool(out) == (not where.startswith(">"))
    full = "lumisite: standard output: cannot write: No space left on device"
    assert [line[: len(full)] for line in err.splitlines()] == ([full] if code else [])


def test_a_reader_that_leaves_is_no_failure() -> None:
    assert shell(f"({LUMISITE} why rocm --site lumi; echo $? >code) | true")[0] == 0
    assert Path("code").read_text().strip() == "0"


def test_a_file_that_cannot_be_written_whole_stays_as_it_was(tmp_path: Path) -> None:
    script = "import resource, signal; resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100));"
    script += "signal.signal(signal.SIGXFSZ, signal.SIG_IGN); from lumisite.__main__ import run; run()"
    old = tmp_path / "facts.json"
    old.write_text("of yesterday\n")
    command = [sys.executable, "-c", script, "facts", "--site", "lumi", "-o", str(old)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 3
    assert f"{old}: cannot write: File too large" in done.stderr
    assert old.read_text() == "of yesterday\n"
    assert [path.name for path in tmp_path.iterdir()] == ["facts.json"]


def test_an_output_keeps_its_mode_and_its_link_and_a_new_one_follows_the_umask(tmp_path: Path) -> None:
    (tmp_path / "old").write_text("x")
    (tmp_path / "old").chmod(0o640)
    (tmp_path / "link").symlink_to("old")
    before = os.umask(0o027)
    try:
        for name in ("link", "new"):
            assert main(["facts", "--site", "lumi", "-o", str(tmp_path / name)]) == 0
    finally:
        os.umask(before)
    assert (tmp_path / "link").is_symlink()
    assert [oct((tmp_path / name).stat().st_mode & 0o777) for name in ("old", "new")] == ["0o640", "0o640"]


def test_an_output_may_be_a_device_or_a_pipe(tmp_path: Path, capsys: Output) -> None:
    assert main(["facts", "--site", "lumi", "-o", "/dev/full"]) == 3
    assert "/dev/full: cannot write: No space left on device" in capsys.readouterr().err
    assert shell(f"{LUMISITE} facts --site lumi -o /dev/stdout | head -c 1")[:2] == (0, "{")
    assert list(tmp_path.iterdir()) == []


# ---- interrupts


def test_an_interrupt_while_a_class_is_made_is_no_traceback(monkeypatch: pytest.MonkeyPatch, capsys: Output) -> None:
    """An enum in a module that loads late: up to Python 3.11 the interrupt is the cause of a RuntimeError."""

    class Interrupted:
        def __set_name__(self, owner: object, name: str) -> None:
            raise KeyboardInterrupt

    monkeypatch.setattr("lumisite.cli.check.load_site", lambda _: type("Late", (), {"member": Interrupted()}))
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
