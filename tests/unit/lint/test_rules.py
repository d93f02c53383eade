from __future__ import annotations

import json
import random
import subprocess
from pathlib import Path

import pytest

from lumisite.cli import main
from lumisite.lint.find import ANYWHERE, HERE, lint_script
from lumisite.lint.shell import parse_script
from lumisite.site.load import load_site

SCRIPTS = Path(__file__).parents[2] / "data" / "scripts"
GOOD = sorted((SCRIPTS / "good").glob("*.sh"))
BAD = sorted((SCRIPTS / "bad").glob("*.sh"))
LUMI = load_site("lumi").site
Output = pytest.CaptureFixture[str]


def found(text: str) -> list[str]:
    return [f"{finding.line} {finding.rule}" for finding in lint_script(text.encode(), "s", LUMI)]


@pytest.mark.parametrize("path", GOOD, ids=lambda path: path.stem)
def test_a_right_script_has_no_finding(path: Path) -> None:
    assert found(path.read_text()) == []


@pytest.mark.parametrize("path", BAD, ids=lambda path: path.stem)
def test_a_bad_script_has_the_findings_beside_it(path: Path) -> None:
    assert found(path.read_text()) == path.with_suffix(".expected").read_text().splitlines()


@pytest.mark.parametrize("path", [*GOOD, *BAD], ids=lambda path: path.stem)
def test_the_scripts_are_what_bash_accepts(path: Path) -> None:
    subprocess.run(["bash", "-n", str(path)], check=True)


@pytest.mark.parametrize("path", BAD, ids=lambda path: path.stem)
def test_a_bad_line_in_a_comment_is_none(path: Path) -> None:
    lines = ["#!/bin/bash", "true", *(f"# {line}" for line in path.read_text().splitlines())]
    assert found("\n".join(lines)) == []


def test_every_rule_is_tested_and_is_named_as_its_findings() -> None:
    tested = {line.split()[1] for path in BAD for line in path.with_suffix(".expected").read_text().splitlines()}
    tested.add("gpu-flag")  # on a machine with GPUs of two vendors: tests/unit/site/test_flags.py
    assert tested == {rule.__name__.replace("_", "-") for rule in (*ANYWHERE, *HERE)}


def test_lines_of_windows_and_without_an_end_are_the_same() -> None:
    for path in BAD:
        text = path.read_text()
        assert found(text.replace("\n", "\r\n")) == found(text) == found(text.rstrip("\n"))


def test_the_machine_is_the_sites() -> None:
    script = (SCRIPTS / "bad" / "sixty-four-cores.sh").read_bytes()
    assert lint_script(script, "s", LUMI) != ()
    assert lint_script(script, "s", load_site("twin").site) == ()
    (finding,) = lint_script(b"#SBATCH -p dev-g\nsrun -n 8 -N 1 --gpu-bind=closest x\n", "s", LUMI)
    assert "--gpu-bind=map:4,5,2,3,6,7,0,1 " in finding.right


def test_a_finding_names_place_reason_and_right_line(capsys: Output) -> None:
    Path("job.sh").write_text("#SBATCH -p dev-g\n#SBATCH -n 8 -N 1 -c 8\n")
    assert main(["lint", "job.sh"]) == 1
    assert capsys.readouterr().out == (
        "job.sh:2: 64 cores of a node of which jobs get 56: the job never starts "
        "(#SBATCH --cpus-per-task=7 with one task for each GPU)\n"
    )


# ---------------------------------------------------------------- reading shell


def words(text: str) -> list[tuple[str, ...]]:
    return [command.values for command in parse_script(text).commands]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a b;c&&d||e|f &\ng", [("a", "b"), ("c",), ("d",), ("e",), ("f",), ("g",)]),
        ("a \\\n  b", [("a", "b")]),
        ("a 'x y' \"p $q\" r\\ s", [("a", "x y", "p $q", "r s")]),
        ("a '$x' \"\\$y\" \\$z", [("a", r"\$x", r"\$y", r"\$z")]),
        ("a $(b; c 'd)' \"e)\") f", [("a", "$(b; c 'd)' \"e)\")", "f")]),
        ("a ${b#c d} `e;f` g#h # i", [("a", "${b#c d}", "`e;f`", "g#h")]),
        ("a > b 2>&1 <<< c", [("a", "b", "2", "1", "c")]),
        ("((x = 1 << 2)) && a; for ((i=0; i<<n; i++)); do b; done", [("a",), ("for",), ("b",), ("done",)]),
        ("((a); b)", [("a",), ("b",)]),
        ("(a; b) { c; }", [("a",), ("b",), ("c",)]),
        ("x=1 y='2 3' a b=4", [("a", "b=4")]),
        ("a {b,c}", [("a", "{b,c}")]),
        ("a $'x\\ny'", [("a", "x\\ny")]),
        ("a 'unterminated\nb", [("a", "unterminated\nb")]),
        ("cat <<A <<-'B'\none\nA\n\ttwo\n\tB\nd", [("cat",), ("one",), ("two",), ("d",)]),
        ("cat << EOF\nnever ends", [("cat",), ("never", "ends")]),
        ("srun bash -c 'a; b'", [("srun", "bash", "-c", "a; b"), ("a",), ("b",)]),
        ("", []),
    ],
)
def test_words_of_commands(text: str, expected: list[tuple[str, ...]]) -> None:
    assert words(text) == expected


def test_assignments_and_where_they_run() -> None:
    script = parse_script("A=1 B='x y'\nexport C=\"$A\" D=2\nsrun bash -c 'E=3'\nbash -c 'F=4'\ncat <<X\nG=5\nX\n")
    read = [
        (name, word.value, word.line, command.spot) for command in script.commands for name, word in command.assignments
    ]
    assert read == [
        ("A", "1", 1, "batch"),
        ("B", "x y", 1, "batch"),
        ("C", "$A", 2, "batch"),
        ("D", "2", 2, "batch"),
        ("E", "3", 3, "task"),
        ("F", "4", 4, "batch"),
        ("G", "5", 6, "task"),
    ]


def test_directives_end_where_sbatch_stops_to_read_them() -> None:
    script = parse_script("#!/bin/bash\n#SBATCH -N 2  # two\n\n# x\n#SBATCH --gpus=8\ntrue\n#SBATCH --gpus=1\n")
    assert script.directives == (("-N", 2), ("2", 2), ("--gpus=8", 5))


@pytest.mark.parametrize("seed", range(200))
def test_any_text_is_read_to_its_end(seed: int) -> None:
    """Pieces of shell in any order: no error, no endless loop, and no line that the text does not have."""
    chance = random.Random(seed)
    pieces = [
        "'",
        '"',
        "`",
        "$(",
        ")",
        "${",
        "}",
        "\\",
        "\n",
        "<<E",
        "E",
        "#",
        ";",
        "&",
        "|",
        "{",
        " ",
        "srun bash -c ",
        "x=",
        "a",
        "$'",
        "\t",
        "é",
    ]
    text = "".join(chance.choice(pieces) for _ in range(chance.randrange(1, 120)))
    last = text.count("\n") + 1
    assert all(1 <= word.line <= last for command in parse_script(text).commands for word in command.words)
    lint_script(text.encode(), "s", LUMI)


def test_scripts_in_scripts_end() -> None:
    assert len(words("bash -c 'bash -c \"bash -c a\"'")) == 4
    text = "a"
    for _ in range(7):
        text = "bash -c " + "'" + text.replace("'", "'\\''") + "'"
    assert len(words(text)) == 5


# ---------------------------------------------------------------- the command


def test_the_command(tmp_path: Path, capsys: Output) -> None:
    good, bad = str(GOOD[0]), str(BAD[0])
    assert main(["lint", good]) == 0
    assert capsys.readouterr().out == ""
    assert main(["lint", good, bad]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == len(BAD[0].with_suffix(".expected").read_text().splitlines())
    assert all(line.startswith(f"{bad}:") for line in lines)
    assert main(["lint", bad, "--json"]) == 1
    answers = json.loads(capsys.readouterr().out)
    assert list(answers[0]) == ["file", "line", "rule", "reason", "right", "source"]
    assert answers[0]["file"] == bad
    assert main(["lint", good, "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == []


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (None, "cannot be read"),
        (b"\x7fELF\0", "is not a script"),
        (b"x" * (2 << 20), "is not a script"),
        (b"\n" * 60_000, "is not a script"),
    ],
)
def test_what_is_no_script_is_exit_2(data: bytes | None, message: str, capsys: Output) -> None:
    if data is not None:
        Path("job").write_bytes(data)
    assert main(["lint", "job"]) == 2
    captured = capsys.readouterr()
    assert message in captured.err
    assert captured.out == ""
