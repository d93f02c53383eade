"""Exit codes, JSON and written files of every command, kept without the sentences: what a script may build on.

A string of three or more words is a sentence and is kept as `...`; paths of this machine, hashes and times are blanked.
`pytest tests/golden --update-golden` writes them anew.
"""

from __future__ import annotations

import codecs
import contextlib
import io
import json
import os
import re
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from lumisite import __version__
from lumisite.cli import main
from lumisite.findings import catalogue
from lumisite.findings.catalogue import CatalogueEntry
from lumisite.findings.writers import message
from tests.support.fuzz import at_edges
from tests.support.fuzz_commands import COMMANDS
from tests.support.fuzz_scene import make

HERE = Path(__file__).parent / "commands"
SCRIPTS = Path(__file__).parents[1] / "data/scripts"
#: Beside what is fuzzed.
MORE = (
    ("init --from facts.json --out site.yaml", ""),
    ("check nothing.yaml", ""),
    ("check faults.yaml", ""),
    ("resolve --site lumi --rocm 9.9", ""),
    ("why rccl/aws --site lumi", ""),
    ("masks --node lumi-g --site lumi --tasks 8", ""),
    ("masks --node lumi-g --site lumi --tasks 4 --cpus 1-15,17-31 --gpus 4,5", ""),
    ("masks --node lumi-g --site lumi --tasks 8 --threads 2", ""),
    ("binds image --host-root node --site lumi --library libcxi.so.1", ""),
    ("transport fail.log", ""),
    ("releases nothing", ""),
    ("lint scripts/*/*.sh --site lumi", ""),
)
NAMES = sorted({words.split()[0] for words, *_ in (*COMMANDS, *MORE)})
#: They print no JSON.
TEXT_ONLY = ("deploy", "facts", "init", "reframe", "render", "rollback")
_BLANKS = (
    (r"[0-9a-f]{64}", "SHA256"),
    (r"\b(?=[0-9]*[a-f])[0-9a-f]{12}\b", "HASH"),
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


@contextlib.contextmanager
def scene(top: Path) -> Iterator[None]:
    """Lay all out that commands read, and let nothing of this machine be seen."""
    before = Path.cwd()
    with mock.patch.dict(os.environ):
        for name in [name for name in os.environ if name.startswith(("LUMISITE", "SLURM", "NCCL", "SINGULARITY"))]:
            del os.environ[name]
        at_edges()
        try:
            _lay_out(top)
            yield
        finally:
            mock.patch.stopall()
            os.chdir(before)


def _lay_out(top: Path) -> None:
    make(top / "scene", top / "now", lambda words: _call(words.split()))
    shutil.copytree(SCRIPTS, top / "scene/scripts")
    (top / "scene/faults.yaml").write_text("format: 3\nname: x\nnothing: 1\nruntime: {}\n")
    shutil.copytree(top / "scene", top / "now", symlinks=True)
    os.chdir(top / "now")


def _play(now: Path, scene: Path) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {name: {} for name in NAMES}
    for words, writes in [(words, writes) for words, _, writes in COMMANDS] + list(MORE):
        name = words.split()[0]
        forms = [words, f"{words} --json"] if _takes_json(words) else [words]
        for form in forms:
            files = _files(now)
            code, out = _call(_expanded(form))
            entry: dict[str, Any] = {"exit": code}
            if "--json" in form:
                entry["json"] = _plain(json.loads(out), str(now)) if out.strip() else None
            if changed := sorted({_text(path, str(now)) for path, stamp in _files(now) - files}):
                entry["writes"] = changed
            found[name][form] = entry
            for path in writes.split():
                _restore(scene / path, now / path)
    return found


def _takes_json(words: str) -> bool:
    name, *options = words.split()
    return name not in TEXT_ONLY and not {"--json", "--draft", "--users", "-o", "--judge", "--dry-run"} & set(options)


def _expanded(words: str) -> list[str]:
    return [path for word in words.split() for path in (sorted(map(str, Path().glob(word))) if "*" in word else [word])]


def _call(words: list[str]) -> tuple[int, str]:
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(io.StringIO()):
        return main(words), out.getvalue()


def _files(top: Path) -> set[tuple[str, tuple[int, int]]]:
    files = (Path(folder, name) for folder, _, names in os.walk(top) for name in names)
    return {
        (str(path.relative_to(top)), (path.lstat().st_mtime_ns, path.lstat().st_ino))
        for path in files
        if path.name != "slurm.asked"
    }


def _restore(whole: Path, now: Path) -> None:
    if now.is_dir() and not now.is_symlink():
        shutil.rmtree(now)
    else:
        now.unlink(missing_ok=True)
    if whole.is_dir():
        shutil.copytree(whole, now, symlinks=True)
    elif os.path.lexists(whole):
        shutil.copy2(whole, now, follow_symlinks=False)


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


def test_every_command_answers_as_before_whatever_its_sentences_say(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """One test: the scene takes longer to lay out than to play."""
    top = tmp_path.resolve()
    with scene(top):
        found = _play(top / "now", top / "scene")
        words = {group: scrambled(group) for group in catalogue.groups()}
        finding = catalogue.make_finding("system-refused", action="read", reason="gone")
        known = message(finding)
        with mock.patch.object(catalogue, "load_group", words.__getitem__):
            assert message(finding) != known, "nothing is scrambled"
            with_other_sentences = _play(top / "now", top / "scene")
    for name in NAMES:
        golden = HERE / f"{name}.json"
        if request.config.getoption("--update-golden"):
            golden.parent.mkdir(exist_ok=True)
            golden.write_text(json.dumps(found[name], indent=1, ensure_ascii=False) + "\n")
        assert found[name] == json.loads(golden.read_text()), name
        decided = (_without_texts(entries[name]) for entries in (with_other_sentences, found))
        assert next(decided) == next(decided), f"{name}: something reads a sentence"


def _without_texts(entries: dict[str, Any]) -> dict[str, Any]:
    """Leave out that a bind plan is written: it has sentences, and is written again where one is another."""
    texts = ("writes", ["plan.yaml"])
    return {
        form: {key: value for key, value in entry.items() if (key, value) != texts} for form, entry in entries.items()
    }


def scrambled(group: str) -> Mapping[str, CatalogueEntry]:
    """Return a file of the catalogue with other letters in each sentence; the values that are filled in stay."""
    return {code: _scrambled(entry) for code, entry in catalogue.load_group(group).items()}


def _scrambled(entry: CatalogueEntry) -> CatalogueEntry:
    texts, advice = tuple(map(_other, entry.text)), tuple(map(_other, entry.advice))
    return replace(entry, title=_other(entry.title), meaning=_other(entry.meaning), text=texts, advice=advice)


def _other(text: str) -> str:
    parts = re.split(r"(\{[^}]*\})", text)
    return "".join(part if at % 2 else codecs.encode(part, "rot13") for at, part in enumerate(parts))


def test_no_other_command_is_kept() -> None:
    assert {path.stem for path in HERE.iterdir()} <= set(NAMES)
