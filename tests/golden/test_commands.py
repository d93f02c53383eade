"""One call of each command: its exit code and its JSON, kept without the sentences: what a script may build on.

A string of three or more words is a sentence and is kept as `...`; paths of this machine, hashes and times are blanked.
`pytest tests/golden --update-golden` writes them anew.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lumisite import __version__
from tests.support.command_files import call, command_files
from tests.support.golden import check_golden

HERE = Path(__file__).parent / "commands"
SCRIPTS = Path(__file__).parents[1] / "data/scripts"
#: They print no JSON.
TEXT_ONLY = ("facts", "init", "render", "rollback")
#: In this order, since some write what others read.
CALLS = (
    "init facts.json -o made.yaml",
    "check faults.yaml",
    "why NCCL_SOCKET_IFNAME /opt/cray singularity-AI-bindings rocm --site lumi",
    "env lumi-multitorch-x.sif --site lumi.yaml",
    "masks --node lumi-g --site lumi --tasks 8",
    "binds image --host-root node --site lumi",
    "images sifs --site lumi",
    "transport fail.log rank.log --nics 4",
    "lint scripts/bad/harmful-values.sh scripts/users/leftovers.sh scripts/good/settings.sh --site lumi",
    "render --site site.yaml --out out --rocm 6.2",
    "deploy new root",
    "status host-root --site site.yaml --host-root node",
    "policy root",
    "rollback root",
    "facts --root node --site lumi.yaml",
    "changes facts.json later.json --site lumi",
    "validate --resume resumed",
    "verdict --before runs/before/samples.jsonl --after runs/after/samples.jsonl",
    "report runs/after --before runs/before",
)
_BLANKS = (
    (r"[0-9a-f]{64}", "SHA256"),
    (r"(?<=\b20\d\d-\d\d-)[0-9a-f]{12}\b|\b(?=[0-9]*[a-f])[0-9a-f]{12}\b", "HASH"),
    (r"\b\d{8}T\d{6}-\d{3}", "RUN"),
    (r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d)?(\.\d+)?(Z|[+-]\d\d:?\d\d)?", "TIME"),
    (r"^[\w.-]+@[\w.-]+$", "USER@HOST"),
    (rf"/tmp/lumisite-{os.getuid()}\b", "/tmp/lumisite-UID"),
    (re.escape(__version__) + r"(\+\S+)?", "VERSION"),
)
#: Numbers of these keys are this run's.
_OF_THIS_RUN = ("time", "began", "ended", "seconds", "mtime", "cpu_s")
#: Strings of these keys are sentences, however short.
_SENTENCES = ("remedy", "found", "expected", "why", "reason", "right", "next", "fault", "faults", "notes", "message")


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with command_files(tmp_path_factory.mktemp("commands").resolve()) as folder:
        shutil.copytree(SCRIPTS, folder / "scripts")
        (folder / "faults.yaml").write_text("format: 3\nname: x\nnothing: 1\nruntime: {}\n")
        yield folder


@pytest.mark.parametrize("words", CALLS, ids=lambda words: words.split()[0])
def test_a_command_answers_as_before(
    words: str, scene: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(scene)
    name = words.split()[0]
    with_json = name not in TEXT_ONLY
    code, out = call([*_expanded(words), *(["--json"] if with_json else [])])
    found: dict[str, Any] = {"call": words, "exit": code}
    if with_json:
        found["json"] = _plain(json.loads(out), str(scene))
    check_golden(request, HERE / f"{name}.json", json.dumps(found, indent=1, ensure_ascii=False) + "\n")


def test_every_command_is_kept_and_no_other() -> None:
    assert {path.stem for path in HERE.iterdir()} == {words.split()[0] for words in CALLS}


def _expanded(words: str) -> list[str]:
    return [path for word in words.split() for path in (sorted(map(str, Path().glob(word))) if "*" in word else [word])]


def _plain(value: Any, top: str, key: str = "") -> Any:
    """Blank what is a sentence, or this run's."""
    if isinstance(value, dict):
        return {_text(name, top): _plain(of, top, name) for name, of in sorted(value.items())}
    if isinstance(value, list):
        return [_plain(of, top, key) for of in value]
    if isinstance(value, str):
        return "..." if len(value.split()) >= 3 or (value and key in _SENTENCES) else _text(value, top)
    if isinstance(value, (int, float)) and not isinstance(value, bool) and key in _OF_THIS_RUN:
        return 0
    return float(f"{value:.6g}") if isinstance(value, float) else value


def _text(text: str, top: str) -> str:
    text = text.replace(top, "TOP")
    for pattern, blank in _BLANKS:
        text = re.sub(pattern, blank, text)
    return text
