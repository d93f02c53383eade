"""The command line as its user meets it: exit codes, help, completion, and errors that name what was typed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

from lumisite import __version__
from lumisite.cli import main
from lumisite.cli.commands import COMMANDS, EXIT_CODES, GROUPS
from lumisite.paths import PACKAGE
from tests.support.sites import site_text

Output = pytest.CaptureFixture[str]


def run(capsys: Output, *argv: str) -> tuple[int, str, str]:
    code = main(list(argv))
    captured = capsys.readouterr()
    assert "Traceback" not in captured.err
    return code, captured.out, captured.err


def test_render_says_how_to_use_the_tree_and_a_second_one_touches_nothing(capsys: Output) -> None:
    code, out, err = run(capsys, "render", "--rocm", "6.2")
    assert code == 0
    assert f"module use {Path.cwd()}/site-out/modules" in err
    before = {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in map(Path, out.splitlines())}
    assert Path("site-out/modules/singularity-AI-bindings/25.03-rocm6.2.lua") in before
    assert run(capsys, "render", "--rocm", "6.2")[:2] == (0, out)
    assert {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in before} == before


# ---- help, version, completion


def test_help_has_each_command_once_by_who_uses_it(capsys: Output) -> None:
    code, out, _ = run(capsys, "--help")
    assert code == 0
    assert sorted(name for names in GROUPS.values() for name in names) == sorted(COMMANDS)
    titles = [f"\n{title[:1].upper()}{title[1:]}:\n" for title in GROUPS]
    places = [out.index(title) for title in titles]
    assert places == sorted(places)
    for (title, names), start in zip(GROUPS.items(), places, strict=True):
        own = out[start:].partition("\n\n")[0]
        assert all(f"\n  {name} " in own for name in names), title


def test_every_help_has_the_exit_codes(capsys: Output) -> None:
    for name in COMMANDS:
        code, out, _ = run(capsys, name, "--help")
        assert code == 0
        assert " ".join(EXIT_CODES.split()) in " ".join(out.split()), name


@pytest.mark.parametrize("columns", ["60", "150", "none", "-5"])
def test_help_is_as_wide_as_the_terminal(columns: str, capsys: Output, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    _, out, _ = run(capsys, "binds", "--help")
    width = max(map(len, out.splitlines()))
    assert width <= (60 if columns == "60" else 120)
    assert width > 80 or columns != "150"


def test_the_version_is_printed(capsys: Output) -> None:
    assert run(capsys, "--version") == run(capsys, "-V")
    assert run(capsys, "-V")[:2] == (0, f"lumisite {__version__}\n")


def test_a_shell_completes_commands_options_and_files() -> None:
    def completed(*words: str) -> list[str]:
        variables = {"_LUMISITE_COMPLETE": "bash_complete", "COMP_WORDS": " ".join(("lumisite", *words))}
        variables |= {"COMP_CWORD": str(len(words))}
        command = [sys.executable, "-m", "lumisite"]
        done = subprocess.run(command, env={**os.environ, **variables}, capture_output=True, text=True, check=False)
        assert done.stderr == ""
        return done.stdout.splitlines()

    assert completed("re") == ["plain,render", "plain,report"]
    assert completed("render", "--pl") == ["plain,--platform"]
    assert completed("lint", "jo") == ["file,jo"]


@pytest.mark.parametrize("argv", [["--help"], ["rendr"]])
def test_help_and_usage_errors_load_no_command(argv: list[str]) -> None:
    script = (
        "import sys; from lumisite.cli import main; main(sys.argv[1:]);"
        "print(*(name for name in sys.modules if name.startswith(('lumisite', 'rich'))), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", script, *argv], capture_output=True, text=True, check=True)
    loaded = set(done.stderr.splitlines()[-1].split())
    rooms = ("errors", "findings", "findings.finding", "text", "cli", "cli.commands", "cli.options", "cli.output")
    assert loaded == {"lumisite", *(f"lumisite.{room}" for room in rooms)}


@pytest.mark.parametrize(("there", "missing"), [([], "click"), (["click"], "cattrs")])
def test_a_library_that_is_not_installed_is_named(tmp_path: Path, there: list[str], missing: str) -> None:
    for name in (*there, "yaml", "packaging", "jinja2", "markupsafe"):
        (tmp_path / name).symlink_to(Path(str(import_module(name).__file__)).parent)
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": f"{PACKAGE.parent}:{tmp_path}"}
    argv = [sys.executable, "-S", "-m", "lumisite", "check", "lumi"]
    done = subprocess.run(argv, env=environment, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (3, "", 1)
    assert f"has no package {missing} (`make render`" in done.stderr


# ---- errors: one line, with what would be right


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("", "lumisite: Missing command (`lumisite --help` lists what it takes)"),
        ("rendr", "lumisite: No such command 'rendr'. Did you mean 'render'? (`lumisite --help`"),
        ("render --rokm=6.2", "lumisite render: No such option '--rokm'. Did you mean '--rocm'? (`lumisite render"),
        ("status root what", "extra argument (what) (`lumisite status --help` lists what it takes)"),
        ("masks --node live --topology x", "lumisite: --topology: not with --node (give one of them)"),
        ("--site lumi deploy out root", "lumisite: --site: `deploy` takes no site"),
        ("check a.yaml --site b.yaml", "lumisite: --site: FILE is a.yaml already (leave one out)"),
        ("check --root x", "lumisite: --root and --host-root: go with --host only"),
        ("render --site nowhere", "lumisite: --site: there is no embedded site 'nowhere'"),
        ("render --site ./nowhere.yaml", "nowhere.yaml: cannot be read: No such file or directory"),
        ("render --site ./", "it is not a file but a directory (expected: a YAML file)"),
        ("render --site lumi --out x/current", "--out: x/current has the name of a deployment's link"),
        (f"why rocm --site lumi --rocm {'9' * 5000}", "is not a version"),
        ("why rocm --site lumi --use cuda=12", "--use cuda: cuda is not known here (have cpe, rocm)"),
        ("why rocm --site lumi --use cuda", "--use: 'cuda' is no stack with its release (NAME=12.8 would be right)"),
        ("report pipe", "pipe: cannot be read: it is not a file but a pipe"),
    ],
)
def test_a_wrong_call_is_one_line_with_what_would_be_right(words: str, message: str, capsys: Output) -> None:
    os.mkfifo("pipe")
    code, out, err = run(capsys, *words.split())
    assert (code, out) == (2, "")
    assert message in err
    assert err.count("\n") == 1
    assert not Path("site-out").exists()


@pytest.mark.parametrize(
    "words",
    [
        "render --site lumi --out round",
        "env --site lumi round",
        "validate --resume round",
        "deploy round root",
        "check round/site.yaml",
    ],
)
def test_links_that_go_round_are_one_line(words: str, capsys: Output) -> None:
    Path("round").symlink_to("other")
    Path("other").symlink_to("round")
    code, _, err = run(capsys, *words.split())
    assert code in (0, 2, 3)
    assert len([line for line in err.splitlines() if line.startswith("lumisite: ")]) <= 4


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"{", "not YAML"),
        (b"\xff\xfe\x00\x00", "is not UTF-8"),
        (b"x" * (50 * 1024 * 1024), "bytes"),
        (b"lumisite: 3\n", "lumisite: 3 is not known here (have 2) [value-wrong]"),
    ],
    ids=["not-yaml", "not-utf-8", "50-MB", "format-3"],
)
def test_a_bad_site_file_exits_2(content: bytes, message: str, capsys: Output) -> None:
    Path("site.yaml").write_bytes(content)
    for command in (["check"], ["render", "--site"]):
        code, out, err = run(capsys, *command, "./site.yaml")
        assert code == 2
        assert message in out + err
        assert "site.yaml" in out + err
    assert [path.name for path in Path().iterdir()] == ["site.yaml"]


# ---- check, why


def test_check_prints_every_fault_with_its_position(capsys: Output) -> None:
    Path("site.yaml").write_text(site_text(("title: the twin", "titel: the twin"), ("kind: shared", "kind: shred")))
    code, out, err = run(capsys, "check", "site.yaml")
    lines = out.splitlines()
    assert (code, err) == (2, "lumisite: 2 faults\n")
    assert [line.split(": ")[1] for line in lines] == ["titel", "file_systems[0].kind"]
    code, out, _ = run(capsys, "check", "site.yaml", "--json")
    faults = json.loads(out)
    assert code == 2
    assert [list(fault) for fault in faults] == [["file", "line", "column", "key", "code", "message", "advice"]] * 2
    assert [
        "{file}:{line}:{column}: {key}: {message} ({advice}) [{code}]".format_map(fault) for fault in faults
    ] == lines


def test_check_of_a_sound_file(capsys: Output) -> None:
    Path("site.yaml").write_text(site_text())
    assert run(capsys, "check", "site.yaml") == (0, "site.yaml: no faults\n", "")
    assert run(capsys, "check", "--site", "site.yaml", "--json")[:2] == (0, "[]\n")


def test_a_release_of_any_stack_is_chosen_by_use(capsys: Output) -> None:
    assert (
        run(capsys, "why", "rocm", "--use", "rocm=6.2", "--use", "cpe=all")[1:]
        == run(capsys, "why", "rocm", "--rocm", "6.2", "--cpe", "all")[1:]
    )
    assert "ROCm 6.3.4, 6.2.4" in run(capsys, "why", "rocm", "--use", "rocm=6.2", "--use", "rocm=6.3")[1]
