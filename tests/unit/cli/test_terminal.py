"""Nothing that stands in a file reaches a terminal as more than text, or as a line of its own."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import shutil
import struct
import subprocess
import sys
import termios
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

import pytest

from lumisite.cli import main
from lumisite.cli.terminal import plain
from tests.support.sites import site_text
from tests.support.trees import NEW, tree, written

REPOSITORY = Path(__file__).parents[3]
EXAMPLES = REPOSITORY / "docs/examples"
#: A title, a carriage return, an escape of one byte, marks that turn and hide text, and a line that is forged.
HOSTILE = "\x1b]0;x\x07\r\x9b2K\u202e\u200b\x7f\nFORGED: all is well"


def planted(value: object, *keys: str | int) -> str:
    """Give JSON with something hostile behind the text at a place, or behind the key that the place ends in."""
    inner = top = json.loads(json.dumps(value))
    *way, last = keys
    for key in way:
        inner = inner[key]
    if isinstance(last, str) and last.startswith("key:"):
        inner[last[4:] + HOSTILE] = inner.pop(last[4:])
    else:
        inner[last] += HOSTILE
    return json.dumps(top)


def sample(*keys: str) -> None:
    lines = (EXAMPLES / "after/samples.jsonl").read_text().splitlines()
    number = next(n for n, line in enumerate(lines) if f'"{keys[-1].removeprefix("key:")}"' in line)
    lines[number] = planted(json.loads(lines[number]), *keys)
    run_with("samples.jsonl", "\n".join(lines))


def run_with(name: str, text: str) -> None:
    shutil.copytree(EXAMPLES / "after", "run")
    Path("run", name).write_text(text)


def run_json(key: str) -> None:
    run_with("run.json", planted(json.loads((EXAMPLES / "after/run.json").read_text()), key))


def facts(*keys: str | int) -> None:
    Path("facts.json").write_text(planted(json.loads((EXAMPLES / "after/facts.json").read_text()), *keys))


def deployed() -> Path:
    written(Path("out").absolute(), tree(NEW))
    assert main(["deploy", "out", "root", "--apply"]) == 0
    return Path("root/releases", NEW)


def edited() -> None:
    (deployed() / "modules/singularity-CPEbits/25.03.lua").write_text(f"-- {HOSTILE}\n")


def odd_file() -> None:
    (deployed() / f"x{HOSTILE}").write_text("")


def manifest(*keys: str | int) -> None:
    path = deployed() / "MANIFEST.json"
    path.write_text(planted(json.loads(path.read_text()), *keys))


def history(key: str) -> None:
    deployed()
    Path("root/history").write_text(planted(json.loads(Path("root/history").read_text()), key) + "\n")


def text(name: str, content: str) -> None:
    Path(name).write_text(content)


REPORT = ("report", "run", "--before", str(EXAMPLES / "before"))
CASES: Sequence[tuple[Callable[..., None], Sequence[str | int], Sequence[str]]] = (
    *((sample, (key,), REPORT) for key in ("key:metric", "metric", "cause", "key:gate", "run")),
    (sample, ("cause",), (*REPORT, "--json")),
    *((run_json, (key,), REPORT) for key in ("site", "image")),
    *((facts, (key,), ("changes", str(EXAMPLES / "before/facts.json"), "facts.json")) for key in ("site",)),
    (edited, (), ("deploy", "out", "root", "--details")),
    (edited, (), ("deploy", "out", "root", "--json")),
    *((odd_file, (), words) for words in (("status", "root", "--all"), ("deploy", "out", "root"))),
    *(
        (manifest, ("stacks", "cpe", 0), words)
        for words in (("status", "root", "--all"), ("check", "--host", "--root", "root"))
    ),
    (history, ("time",), ("status", "root", "--all")),
    (history, ("by",), ("status", "root", "--all")),
    (
        text,
        ("a.sh", f"#!/bin/bash\nexport NCCL_SOCKET_IFNAME=ib{HOSTILE}\n"),
        ("lint", "a.sh"),
    ),
    (text, ("a.log", f"nid1:1:1 [0] NCCL INFO NET/{HOSTILE}: Using [0]hsn0{HOSTILE}\n"), ("transport", "a.log")),
    (text, ("a.yaml", site_text(("title: ", f"title{json.dumps(HOSTILE)[1:-1]}: "))), ("check", "a.yaml")),
    (text, ("a.yaml", site_text(("platform: ", f"platform: {json.dumps(HOSTILE)} #"))), ("check", "a.yaml")),
)


@pytest.mark.parametrize(("prepare", "what", "words"), CASES)
def test_what_is_hostile_in_a_file_is_spelled_out(
    prepare: Callable[..., None], what: Sequence[str | int], words: Sequence[str], capsys: pytest.CaptureFixture[str]
) -> None:
    prepare(*what)
    capsys.readouterr()
    main(list(words))
    said = "".join(capsys.readouterr())
    assert said
    assert all(line.replace("\t", "").isprintable() for line in said.split("\n")), ascii(said)
    assert not any(line.lstrip().startswith("FORGED") for line in said.split("\n") if words[-1] != "--details")


@pytest.mark.parametrize("name", ["out.md", "out.txt", "out.xml", "out.html"])
def test_a_report_in_a_file_is_plain_too(name: str) -> None:
    run_json("image")
    main([*REPORT, "-o", name])
    assert all(line.replace("\t", "").isprintable() for line in Path(name).read_text().split("\n"))


def test_text_of_any_script_and_what_is_spelled_out_already_stay_as_they_are() -> None:
    for told in ("ümläut 日本語 🚀 …\n\tx", json.dumps(HOSTILE), plain(HOSTILE)):
        assert plain(told) == told
    assert plain(HOSTILE) == r"\x1b]0;x\x07\r\x9b2K\u202e\u200b\x7f" + "\nFORGED: all is well"


def test_a_pipe_gets_what_a_terminal_gets(tmp_path: Path) -> None:
    script = tmp_path / f"{os.urandom(2).hex()}\x1b[2J.sh"
    script.write_text("export NCCL_SOCKET_IFNAME=ib0\n")
    command = [sys.executable, "-m", "lumisite", "lint", str(script)]
    found = subprocess.run(command, capture_output=True, check=False)
    assert b"\x1b" not in found.stdout + found.stderr
    assert rb"\x1b[2J.sh:" in found.stdout + found.stderr


def on_a_terminal(*words: str, columns: int = 80, **environment: str) -> list[str]:
    """Run a command as somebody at a terminal sees it, with its colours as [NUMBER]."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    clean = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "NO_COLOR")}
    command = [sys.executable, "-m", "lumisite", *words]
    with subprocess.Popen(command, stdout=slave, env={**clean, "TERM": "xterm", **environment}) as process:
        os.close(slave)
        shown = b""
        with suppress(OSError):  # from a terminal that nobody writes to any more
            while block := os.read(master, 1 << 16):
                shown += block
    os.close(master)
    assert process.returncode in (0, 1, 4)
    return re.sub(r"\x1b\[(\d+)m", r"[\1]", shown.decode()).splitlines()


def test_a_terminal_gets_the_words_that_tell_how_it_went_in_colour() -> None:
    log = str(REPOSITORY / "tests/data/transport/fail-ib-errors.log")
    shown = on_a_terminal("transport", log)
    assert shown[0].startswith("[31]FAIL[0]: ")
    assert next(line for line in shown if line.startswith("0 ")).split()[:3] == ["0", "nid005001:4100", "[31]fail[0]"]
    plain_text = on_a_terminal("transport", log, NO_COLOR="1")
    assert [re.sub(r"\[\d+\](pass|fail|FAIL)\[0\]", r"\1", line) for line in shown] == plain_text
    report = on_a_terminal("report", str(EXAMPLES / "after"), "--before", str(EXAMPLES / "before"))
    assert any(re.search(r"  \[32\]pass\[0\]  ", line) for line in report)


@pytest.mark.parametrize("columns", [70, 90, 500])
def test_the_last_column_of_a_table_fits_a_terminal(columns: int, tmp_path: Path) -> None:
    adapters = " ".join(f"[{number}]adapter_{number}:1/IB" for number in range(16))
    (tmp_path / "log").write_text(f"n1:1:1 [0] NCCL INFO NET/IB : Using {adapters} ; OOB e0:10.0.0.1<0>\n")
    shown = on_a_terminal("transport", str(tmp_path / "log"), columns=columns)
    first = next(number for number, line in enumerate(shown) if line.startswith("plugin in use"))
    rows = shown[first : shown.index("", first)]
    assert all(len(line) <= columns for line in rows)
    assert (len(rows) == 5) == (columns == 500)
    assert " ".join(rows).count("adapter_") == 16  # nothing of a line is lost


def test_a_command_to_copy_stays_on_its_line(tmp_path: Path) -> None:
    assert main(["deploy", str(written(tmp_path / "out", tree(NEW))), str(tmp_path / "root"), "--apply"]) == 0
    wide, narrow = (on_a_terminal("status", str(tmp_path / "root"), columns=columns) for columns in (500, 60))
    assert wide[-1].startswith("next  ")
    assert len(wide[-1]) > 60
    assert narrow[-1] == wide[-1]
    assert sum(line.startswith("next  ") for line in narrow) == 1


VALIDATE = ("validate", "--site", "./site.yaml", "--image", "x.sif", "--out", "/scratch/run")


def test_verbose_prints_files_and_programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "sinfo").write_text("#!/bin/sh\nexit 1\n")
    (tmp_path / "sinfo").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.chdir(tmp_path)
    Path("site.yaml").write_text(site_text(("root: /appl/lumisite", f"root: {tmp_path}")))
    Path("current/modules").mkdir(parents=True)
    for words, expected in (
        (("--verbose", *VALIDATE), r"lumisite: runs sinfo .*"),
        (("masks", "-v", "--site", "lumi"), r"lumisite: reads .*/sites/lumi\.yaml"),
    ):
        done = subprocess.run([sys.executable, "-m", "lumisite", *words], capture_output=True, text=True, check=False)
        lines = done.stderr.splitlines()
        assert any(re.fullmatch(expected, line) for line in lines)
        assert not any(re.search(r"^lumisite: reads .*\.pyc?$", line) for line in lines)
        assert len(lines) == len(set(lines))
    done = subprocess.run([sys.executable, "-m", "lumisite", *VALIDATE], capture_output=True, text=True, check=False)
    assert "lumisite: runs " not in done.stderr


@pytest.mark.parametrize("words", [("--help",), ("check", "--help"), ("help", "validate"), ("-V",)])
def test_help_that_cannot_be_written_is_an_error(words: tuple[str, ...]) -> None:
    with Path("/dev/full").open("w") as full:
        command = [sys.executable, "-m", "lumisite", *words]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 3
    assert "standard output: cannot write" in done.stderr
