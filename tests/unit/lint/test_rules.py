from __future__ import annotations

import json
import random
from dataclasses import replace
from pathlib import Path
from typing import Literal

import pytest

from lumisite.cli import main
from lumisite.lint.rule_table import RULES, lint_job, read_script
from lumisite.lint.script import read_commands
from lumisite.site.versions import parse_version
from tests.support.linted import LUMI, findings, found
from tests.unit.lint.traps import TRAPS

SCRIPTS = Path(__file__).parents[2] / "data" / "scripts"
GOOD = sorted((SCRIPTS / "good").glob("*.sh"))
BAD = sorted((SCRIPTS / "bad").glob("*.sh"))
#: Scripts of users' kinds: some with marked mistakes, and others that are like these and right.
USERS = sorted((SCRIPTS / "users").glob("*.sh"))
MARKED = json.loads((SCRIPTS / "users" / "marked.json").read_text())
Output = pytest.CaptureFixture[str]


@pytest.mark.parametrize("path", GOOD, ids=lambda path: path.stem)
def test_a_right_script_has_no_finding(path: Path) -> None:
    assert found(path.read_text()) == []


@pytest.mark.parametrize("path", BAD, ids=lambda path: path.stem)
def test_a_bad_script_has_the_findings_beside_it(path: Path) -> None:
    assert found(path.read_text()) == path.with_suffix(".expected").read_text().splitlines()


def marked(path: Path) -> list[str]:
    """Return the lines and codes of what is wrong in a user's script."""
    found: list[str] = MARKED.get(path.stem, [])
    return found


@pytest.mark.parametrize("path", USERS, ids=lambda path: path.stem)
def test_a_users_script_has_exactly_the_marked_mistakes(path: Path) -> None:
    assert found(path.read_text()) == marked(path)


@pytest.mark.parametrize("path", BAD, ids=lambda path: path.stem)
def test_a_bad_line_in_a_comment_is_none(path: Path) -> None:
    lines = ["#!/bin/bash", "true", *(f"# {line}" for line in path.read_text().splitlines())]
    assert found("\n".join(lines)) == []


def test_every_rule_is_tested_and_says_what_it_finds() -> None:
    tested = {line.split()[1] for path in BAD for line in path.with_suffix(".expected").read_text().splitlines()}
    tested |= {line.split()[1] for path in USERS for line in marked(path)}
    tested |= {code for _, codes in TRAPS for code in codes}
    codes = [rule.code for rule in RULES]
    assert tested == {*codes} - {"srun-without-cpus", "conflicting-modules", "value-may-harm"}, "which have their own"
    assert len(codes) == len(set(codes))
    assert all(rule.find.__doc__ and rule.source for rule in RULES)


def test_lines_of_windows_and_without_an_end_are_the_same() -> None:
    for path in BAD:
        text = path.read_text()
        assert found(text.replace("\n", "\r\n")) == sorted(["1 dos-line-ends", *found(text)], key=place_and_code)
        assert found(text) == found(text.rstrip("\n"))


def place_and_code(text: str) -> tuple[int, str]:
    return int(text.split()[0]), text.split()[1]


# ---------------------------------------------------------------- reading scripts


@pytest.mark.parametrize(
    ("text", "expected"),
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
def test_words_of_commands(text: str, expected: list[str]) -> None:
    read = [command.values for command in read_commands(text) if command.words]
    assert read == [tuple(words.split("|") if "|" in words else words.split()) for words in expected]


@pytest.mark.parametrize("seed", range(40))
def test_any_text_is_read_to_its_end(seed: int) -> None:
    """Pieces of shell in any order: no error, no endless loop, and no line that the text does not have."""
    chance = random.Random(seed)
    pieces = [*"'\"`)}\\\n#;&|{ a\té", "$(", "${", "<<E", "E", "srun bash -c ", "x=", "$'"]
    text = "".join(chance.choice(pieces) for _ in range(chance.randrange(1, 120)))
    last = text.count("\n") + 1
    assert all(1 <= word.line <= last for command in read_commands(text) for word in command.words)
    findings(text)


# ---------------------------------------------------------------- the command


def test_the_command(tmp_path: Path, capsys: Output) -> None:
    good, bad = str(GOOD[0]), str(BAD[0])
    assert main(["lint", good]) == 0
    assert capsys.readouterr().out.splitlines()[-1].startswith("1 script: ")
    assert main(["lint", good, bad]) == 1
    *lines, last = [line for line in capsys.readouterr().out.splitlines() if "module-not-loaded" not in line]
    assert len(lines) == len(BAD[0].with_suffix(".expected").read_text().splitlines())
    assert all(line.startswith(f"{bad}:") for line in lines)
    assert last.startswith(f"2 scripts: {len(lines)} bad lines")
    assert main(["lint", bad, "--json"]) == 1
    answers = json.loads(capsys.readouterr().out)
    assert list(answers[0]) == ["file", "line", "code", "certain", "reason", "right", "source"]
    assert answers[0]["file"] == bad


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
    assert main(["lint", "job"]) == 2
    captured = capsys.readouterr()
    assert message in captured.err
    assert captured.out == ""


# ---------------------------------------------------------------- traps


@pytest.mark.parametrize(("text", "codes"), TRAPS)
def test_a_trap_is_found_and_what_is_like_it_is_right(text: str, codes: tuple[str, ...]) -> None:
    bad = [one.code for one in lint_job(read_script(text.encode(), "s", LUMI), "s")]
    if "unknown-module" not in codes and "module-not-loaded" not in codes:
        bad = [code for code in bad if code != "module-not-loaded"]
    assert bad == list(codes)


def cpus(options: str, cpu: Literal["core", "thread"]) -> list[str]:
    kind = replace(LUMI.node_kinds["lumi-g"], reserved=None, cpu=cpu)
    site = replace(LUMI, node_kinds={**LUMI.node_kinds, "lumi-g": kind})
    return found(f"#SBATCH -p standard-g -N 1 --ntasks-per-node=4 {options}\n", site)


def test_cores_are_counted_in_the_unit_of_the_sites_slurm() -> None:
    assert cpus("-c 32", "thread") == cpus("-c 16", "core") == []
    assert cpus("-c 32", "core") == cpus("-c 33", "thread") == ["1 too-many-cores"]
    assert cpus("-c 32 --hint=multithread", "core") == []
    assert cpus("-c 32 --threads-per-core=1", "thread") == ["1 too-many-cores"]


def test_srun_takes_cpus_over_where_the_sites_slurm_lets_it() -> None:
    text = "#SBATCH -p standard-g -N 1 -n 8 -c 7\nsrun ./app\nsrun -c 7 ./app\n"
    platform = replace(LUMI.platforms[LUMI.platform], slurm=parse_version("22.05.8"))
    old = replace(LUMI, platforms={**LUMI.platforms, LUMI.platform: platform})
    assert found(text) == []
    assert found(text, old) == ["2 srun-without-cpus"]
    assert found(f"{text.splitlines()[0]}\nexport SRUN_CPUS_PER_TASK=7\nsrun ./app\n", old) == []
