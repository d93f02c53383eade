"""Whole scripts with marked mistakes, how a script is read, and the command."""

from __future__ import annotations

import json
import random
import re
from pathlib import Path

import pytest

from lumisite.cli import main
from lumisite.lint.rule_table import RULES
from lumisite.lint.script import read_commands, with_lines
from tests.support.linted import findings, found

SCRIPTS = Path(__file__).parents[2] / "data" / "scripts"
GOOD = sorted((SCRIPTS / "good").glob("*.sh"))
BAD = sorted((SCRIPTS / "bad").glob("*.sh"))
#: Scripts of users' kinds: some with marked mistakes, and others that are like these and right.
USERS = sorted((SCRIPTS / "users").glob("*.sh"))
MARKED = json.loads((SCRIPTS / "users" / "marked.json").read_text())
Output = pytest.CaptureFixture[str]


def expected(path: Path) -> list[str]:
    """Return the lines and codes of what is wrong in a script."""
    if path in BAD:
        return path.with_suffix(".expected").read_text().splitlines()
    marked: list[str] = MARKED.get(path.stem, [])
    return marked


@pytest.mark.parametrize("path", [*GOOD, *BAD, *USERS], ids=lambda path: path.stem)
def test_a_script_has_exactly_the_marked_mistakes(path: Path) -> None:
    text = path.read_text()
    assert found(text) == expected(path)
    assert found(text.rstrip("\n")) == expected(path)
    as_comments = ["#!/bin/bash", "true", *(f"# {line}" for line in text.splitlines())]
    assert found("\n".join(as_comments)) == []


@pytest.mark.parametrize("path", BAD[:8], ids=lambda path: path.stem)
def test_line_ends_of_windows_hide_nothing(path: Path) -> None:
    text = path.read_text().replace("\n", "\r\n")
    assert sorted(found(text)) == sorted(["1 dos-line-ends", *expected(path)])


def test_every_rule_says_what_it_finds_and_where_that_is_known_from_and_finds_something_here() -> None:
    codes = [rule.code for rule in RULES]
    assert len(codes) == len(set(codes))
    texts = [path.read_text() for path in (*Path(__file__).parent.glob("*.py"), *SCRIPTS.rglob("*.expected"))]
    assert set(codes) <= set(re.findall(r"[a-z-]+", json.dumps(MARKED) + "".join(texts)))
    assert all(rule.find.__doc__ and rule.source for rule in RULES)


# ---------------------------------------------------------------- reading scripts


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a b;c&&d||e|f &\ng", ["a b", "c", "d", "e", "f", "g"]),
        ("a \\\n  b", ["a b"]),
        ("a 'x y' \"p $q\" r\\ s", ["a|x y|p $q|r s"]),
        ("a '$x' \"\\$y\" \\$z", [r"a|\$x|\$y|\$z"]),
        ("a $(b; c 'd)' \"e)\") f", ["a|$(b; c 'd)' \"e)\")|f"]),
        ("a ${b#c d} `e;f` g#h # i", ["a|${b#c d}|`e;f`|g#h"]),
        ("((x = 1 << 2)) && a; for ((i=0; i<<n; i++)); do b; done", ["a", "for", "b", "done"]),
        ("(a; b) { c; }", ["a", "b", "c", "}"]),
        ("x=1 y='2 3' a b=4", ["a b=4"]),
        ("a 'no end\nb", ["a", "b"]),
        ("cat <<A <<-'B'\none\nA\n\ttwo\n\tB\nd", ["cat", "d"]),
        ("cat << EOF\nno end", ["cat", "no end"]),
        ("srun bash -c 'a; b'", ["srun|bash|-c|a; b", "a", "b"]),
        ("", []),
    ],
)
def test_words_of_commands(text: str, words: list[str]) -> None:
    read = [command.values for command in read_commands(text) if command.words]
    assert read == [tuple(line.split("|") if "|" in line else line.split()) for line in words]


@pytest.mark.parametrize("seed", range(40))
def test_any_text_is_read_to_its_end(seed: int) -> None:
    """Pieces of shell in any order: no error, no endless loop, and no line that the text does not have."""
    chance = random.Random(seed)
    pieces = [*"'\"`)}\\\n#;&|{ a\té", "$(", "${", "<<E", "E", "srun bash -c ", "x=", "$'"]
    text = "".join(chance.choice(pieces) for _ in range(chance.randrange(1, 120)))
    last = text.count("\n") + 1
    assert all(1 <= word.line <= last for command in read_commands(text) for word in command.words)
    findings(text)


def test_the_lines_of_matches_are_those_of_the_text() -> None:
    (command,) = read_commands('echo "a\n$X\n\n$X $X"\n', 7)
    pattern = re.compile(r"\$X")
    assert [line for _, line in command.words[1].matches(pattern)] == [8, 10, 10]
    assert [line for _, line in with_lines(pattern, "$X\n\n$X", 1)] == [1, 3]


# ---------------------------------------------------------------- the command


def test_the_command(capsys: Output) -> None:
    good, bad = str(GOOD[0]), str(BAD[0])
    assert main(["lint", good, bad, "--site", "lumi"]) == 1
    *lines, last = [line for line in capsys.readouterr().out.splitlines() if "module-not-loaded" not in line]
    assert len(lines) == len(expected(BAD[0]))
    assert all(line.startswith(f"{bad}:") for line in lines)
    assert last.startswith(f"2 scripts: {len(lines)} bad lines")


@pytest.mark.parametrize(
    ("text", "last"),
    [
        ("#SBATCH -p small-g\nsrun ./app\n", "1 script: nothing wrong; checked for LUMI, small-g"),
        ("#SBATCH -p small-g\n# SBATCH -N 1\nsrun ./app\n", "1 script: 1 hint; checked for LUMI, small-g"),
        (
            "#SBATCH -p booster\nsrun ./app\n",
            "1 script: nothing wrong; no partition of LUMI is named (booster): checked for what is wrong on every Slurm",
        ),
        (
            "srun ./app\n",
            "1 script: nothing wrong; no partition is named: checked for LUMI without what its partitions have",
        ),
    ],
)
def test_the_last_line_says_what_was_checked(text: str, last: str, capsys: Output) -> None:
    Path("job.sh").write_text(text)
    assert main(["lint", "job.sh", "--site", "lumi"]) == 0, "hints do not count"
    assert capsys.readouterr().out.splitlines()[-1] == last


@pytest.mark.parametrize(
    ("data", "message"), [(None, "cannot be read"), (b"\x7fELF\0", "[no-script]"), (b"x" * (2 << 20), "[no-script]")]
)
def test_what_is_no_script_is_exit_2(data: bytes | None, message: str, capsys: Output) -> None:
    if data is not None:
        Path("job").write_bytes(data)
    assert main(["lint", "job", "--site", "lumi"]) == 2
    captured = capsys.readouterr()
    assert message in captured.err
    assert captured.out == ""
