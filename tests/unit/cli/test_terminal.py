"""Nothing that stands in a file reaches a terminal as more than text, or as a line of its own."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
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


REPORT = ("report", "run", "--baseline", str(EXAMPLES / "before"))
CASES: Sequence[tuple[Callable[..., None], Sequence[str | int], Sequence[str]]] = (
    *((sample, (key,), REPORT) for key in ("key:metric", "metric", "cause", "key:gate", "run")),
    (sample, ("cause",), (*REPORT, "--format", "markdown")),
    (sample, ("cause",), (*REPORT, "--format", "junit")),
    (sample, ("cause",), (*REPORT, "--json")),
    *((run_json, (key,), REPORT) for key in ("site", "image")),
    *((facts, (key,), ("changes", str(EXAMPLES / "before/facts.json"), "facts.json")) for key in ("site",)),
    (edited, (), ("diff", "out", "root", "--full")),
    (edited, (), ("diff", "out", "root", "--json")),
    *((odd_file, (), words) for words in (("releases", "root"), ("deploy", "out", "root"))),
    *(
        (manifest, ("stacks", "cpe", 0), words)
        for words in (("releases", "root"), ("check", "--host", "--root", "root"))
    ),
    (history, ("time",), ("releases", "root")),
    (history, ("by",), ("releases", "root")),
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
    assert not any(line.lstrip().startswith("FORGED") for line in said.split("\n") if words[-1] != "--full")


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
