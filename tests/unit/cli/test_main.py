"""The command line as its user meets it: exit codes, one clear error on stderr, never a traceback."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

from docs.reference.cli import commands_by_name
from lumisite.cli import main
from lumisite.paths import PACKAGE
from lumisite.site.load import EMBEDDED
from tests.support.sites import site_text


def run(capsys: pytest.CaptureFixture[str], *argv: str) -> tuple[int, str, str]:
    code = main(list(argv))
    captured = capsys.readouterr()
    assert "Traceback" not in captured.err
    return code, captured.out, captured.err


def test_render_writes_the_tree_and_says_how_to_use_it(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, "render", "--rocm", "6.2")
    assert code == 0
    assert "site-out/modules/singularity-AI-bindings/25.03-rocm6.2.lua" in out.splitlines()
    assert all(Path(line).is_file() for line in out.splitlines())
    assert f"module use {Path.cwd()}/site-out/modules" in err


def test_a_second_render_is_byte_identical_and_touches_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, "render", "--rocm", "6.2")[0] == 0
    before = {p: (p.read_bytes(), p.stat().st_mtime_ns) for p in Path("site-out").rglob("*") if p.is_file()}
    assert run(capsys, "render", "--rocm", "6.2")[0] == 0
    assert {p: (p.read_bytes(), p.stat().st_mtime_ns) for p in Path("site-out").rglob("*") if p.is_file()} == before


@pytest.mark.parametrize("argv", [[], ["rendr"], ["render", "--rocm"], ["why"], ["render", "--nodes", "x"]])
def test_usage_errors_exit_2(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, *argv)
    assert (code, out) == (2, "")
    assert err.startswith("lumisite")
    assert err.count("\n") == 1


@pytest.mark.parametrize("argv", [["--help"], ["--version"], ["render", "--help"], ["why", "--help"]])
def test_help_and_version_exit_0(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, *argv)[0] == 0


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["render", "--rocm", "6.0"], "[release-unavailable]"),
        (["render", "--rocm", "6.2", "--platform", "2026-1"], "did you mean 2026-01?"),
        (["render", "--rocm", "6.2", "--cpe", "25.4"], "is not installed on platform 2026-01"),
        (["render", "--rocm", "6.2", "--site", "lum"], "did you mean lumi?"),
        (
            ["render", "--rocm", "6.2", "--site", "./nowhere.yaml"],
            "nowhere.yaml: cannot be read: No such file or directory",
        ),
        (["render", "--rocm", "6.2", "--site", "."], "there is no embedded site '.'"),
        (["render", "--rocm", "6.2", "--site", "./"], "it is not a file but a directory (expected: a YAML file)"),
        (["render", "--rocm", "6.2", "--out", "x/current"], "--out: x/current has the name of a deployment's link"),
        (["why", "rocm", "--rocm", "9"], "lumi has no ROCm 9"),
        (["why", "NOBODY"], "[name-unknown]"),
    ],
)
def test_refusals_are_one_line_and_exit_2(argv: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, *argv)
    assert (code, out) == (2, "")
    assert said in err
    assert len(err.splitlines()) == 1
    assert not Path("site-out").exists()


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "[file-unreadable]"),
        (b"{", "not YAML"),
        (b"\xff\xfe\x00\x00", "is not UTF-8"),
        (b"a: &a [*a]\n", "[file-unreadable]"),
        (b"x" * (50 * 1024 * 1024), "bytes"),
        (b"lumisite: 3\n", "lumisite: 3 is not known here (have 2) [value-wrong]"),
    ],
    ids=["empty", "file-unreadable", "not-utf-8", "loop", "50-MB", "format-3"],
)
@pytest.mark.parametrize("command", [["check"], ["render", "--rocm", "6.2", "--site"]])
def test_a_bad_site_file_exits_2(
    command: list[str], content: bytes, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("site.yaml").write_bytes(content)
    code, out, err = run(capsys, *command, "./site.yaml")
    assert code == 2
    assert said in out + err
    assert "site.yaml" in out + err
    assert [path.name for path in Path().iterdir()] == ["site.yaml"]


def test_check_prints_every_fault_with_its_position(capsys: pytest.CaptureFixture[str]) -> None:
    Path("site.yaml").write_text(site_text(("title: the twin", "titel: the twin"), ("kind: shared", "kind: shred")))
    code, out, err = run(capsys, "check", "site.yaml")
    assert code == 2
    assert [line.split(": ")[1] for line in out.splitlines()] == ["titel", "file_systems[0].kind"]
    assert err == "lumisite: 2 faults\n"


def test_check_of_a_sound_file(capsys: pytest.CaptureFixture[str]) -> None:
    Path("site.yaml").write_text(site_text())
    code, out, err = run(capsys, "check", "site.yaml")
    assert (code, err) == (0, "")
    assert out.startswith("site.yaml: no faults: 2 platforms, 2 CPE releases, 2 ROCm releases, 1 image family,")


def test_why_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    names = ("NCCL_CROSS_NIC", "/opt/cray", "platform", "cpe", "rocm")
    explained = json.loads(run(capsys, "why", *names, "--rocm", "6.2", "--json")[1])
    assert tuple(entry["name"] for entry in explained) == names
    chosen = [[one["name"] for one in entry["candidates"] if one["chosen"]] for entry in explained[2:]]
    assert chosen == [["2026-01"], ["25.03"], ["6.2.4"]]
    assert all(one["reason"] for entry in explained[2:] for one in entry["candidates"])


def test_every_embedded_site_checks_by_name(capsys: pytest.CaptureFixture[str]) -> None:
    for path in EMBEDDED.glob("*.yaml"):
        assert run(capsys, "check", path.stem)[0] == 0


@pytest.mark.parametrize("argv", [["--help"], ["--version"], ["rendr"]])
def test_help_and_usage_errors_load_no_command(argv: list[str]) -> None:
    script = (
        "import sys; from lumisite.cli import main; main(sys.argv[1:]);"
        "print(*(name for name in sys.modules if name.startswith('lumisite')), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", script, *argv], capture_output=True, text=True, check=True)
    loaded = set(done.stderr.splitlines()[-1].split())
    rooms = [*("errors", "findings", "findings.finding", "text", "cli")]
    rooms += ["cli.commands", "cli.quiet_and_verbose", "cli.terminal"]
    assert loaded - {"lumisite.cli.version"} == {"lumisite", *(f"lumisite.{room}" for room in rooms)}


@pytest.mark.parametrize(("there", "missing"), [([], "click"), (["click"], "cattrs")])
def test_a_library_that_is_not_installed_is_named(tmp_path: Path, there: list[str], missing: str) -> None:
    for name in (*there, "yaml", "packaging", "jinja2", "markupsafe"):
        (tmp_path / name).symlink_to(Path(str(import_module(name).__file__)).parent)
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": f"{PACKAGE.parent}:{tmp_path}"}
    argv = [sys.executable, "-S", "-m", "lumisite", "check", "lumi"]
    done = subprocess.run(argv, env=environment, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (3, "", 1)
    assert f"has no package {missing} (`make render`" in done.stderr


def test_a_reader_that_leaves_is_no_failure(tmp_path: Path) -> None:
    command = f"{sys.executable} -m lumisite why rocm --rocm 6.2; echo $? >code"
    subprocess.run(["bash", "-c", f"({command}) | true"], check=True, cwd=tmp_path, timeout=60)
    assert (tmp_path / "code").read_text().strip() == "0"


def test_a_terminal_that_cannot_show_a_character_gets_its_number() -> None:
    Path("site.yaml").write_text(site_text(('why: "project space"', 'why: "proj\u00e9ct space \u2192"')))
    command = [sys.executable, "-c", "from lumisite.cli import run; run()", "why", "/project", "--site", "site.yaml"]
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert "why     proj\\xe9ct space \\u2192" in done.stdout


def test_an_interrupt_leaves_no_traceback(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("lumisite.cli.why.load_site", interrupted)
    code, _, err = run(capsys, "why", "rocm", "--site", "lumi")
    assert (code, err) == (130, "lumisite: interrupted\n")


def test_help_is_as_wide_as_the_terminal(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    widths = []
    for columns in ("60", "150", "none"):
        monkeypatch.setenv("COLUMNS", columns)
        assert main(["binds", "--help"]) == 0
        widths.append(max(map(len, capsys.readouterr().out.splitlines())))
    assert widths[0] <= 60 < widths[2] <= 80 < widths[1] <= 150


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="/dev/full (Linux) is not here")
def test_an_output_that_is_full_is_one_line() -> None:
    command = [sys.executable, "-m", "lumisite", "why", "rocm", "--site", "lumi", "--rocm", "6.2"]
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 3
    assert done.stderr.startswith("lumisite: standard output: cannot write: No space left on device")
    assert done.stderr.count("\n") == 1


# ---- the site where none is asked for


UNKNOWN = "no site is named (--site NAME|FILE or LUMISITE_SITE=NAME|FILE names it)"


@pytest.mark.parametrize(
    "command",
    ["why MASTER_ADDR", "why rocm", "render", "env", "lint ok.sh", "why rocm --json", "why MASTER_ADDR --json"],
)
def test_what_only_explains_takes_an_example_and_says_so(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "ok.sh").write_text("#!/bin/bash\n#SBATCH --nodes=1\ntrue\n")
    code, _, err = run(capsys, *command.split())
    assert (code, err.splitlines()[0]) == (0, f"lumisite: site lumi, an example: {UNKNOWN}")
    assert "an example" not in run(capsys, *command.split(), "--site", "lumi")[2]


@pytest.mark.parametrize(
    "command",
    [
        "check", "check --host", "masks", "masks --node lumi-g", "binds image", "images",
        "status", "validate --dry-run",
    ],
)  # fmt: skip
def test_what_needs_a_site_takes_none_that_nobody_named(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, *command.split()) == (2, "", f"lumisite: --site: {UNKNOWN}\n")


def test_every_command_with_a_site_is_one_of_these() -> None:
    """Those of neither test above know the site by a file that they read, or go without one."""
    takes = {name for name, command in commands_by_name().items() if any(one.name == "site" for one in command.params)}
    example = {"why", "render", "env", "lint"}
    needed = {"check", "masks", "binds", "images", "status", "validate"}
    assert takes == example | needed | {"changes", "report"} | {"transport", "verdict", "facts"}


def test_the_environment_chooses_the_site(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LUMISITE_SITE", "twin")
    assert run(capsys, "why", "MASTER_ADDR")[2] == "lumisite: site twin, by LUMISITE_SITE\n"
    assert run(capsys, "check")[1].startswith("twin.yaml: no faults")
    monkeypatch.setenv("LUMISITE_SITE", "twn")
    right = "there is no embedded site 'twn' (did you mean twin?; a file has / or .yaml in its name) [name-unknown]"
    assert run(capsys, "why", "MASTER_ADDR") == (2, "", f"lumisite: LUMISITE_SITE: {right}\n")
    Path("twn.yaml").touch()
    assert "(the file twn.yaml is ./twn.yaml)" in run(capsys, "why", "MASTER_ADDR")[2]


def test_a_record_is_of_the_site_that_it_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from lumisite.cli.site_choice import recorded_site

    (tmp_path / "mine.yaml").write_text(site_text(("name: twin\n", "name: mine\n")))
    assert [recorded_site(name) for name in ("twin", "mine", "./mine.yaml", "")] == ["twin", "", "", ""]
    monkeypatch.setenv("LUMISITE_SITE", "./mine.yaml")
    assert [recorded_site(name) for name in ("twin", "mine", "other")] == ["twin", "./mine.yaml", ""]


def test_what_judges_files_takes_a_site_that_is_named_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "log").write_text("x\n")
    assert run(capsys, "transport", "log")[2] == ""
    monkeypatch.setenv("LUMISITE_SITE", "lumi")
    assert run(capsys, "transport", "log")[2] == "lumisite: site lumi, by LUMISITE_SITE\n"


def test_a_release_of_any_stack_is_asked_for_by_use(capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        run(capsys, "why", "rocm", "--use", "rocm=6.2", "--use", "cpe=all")[1:]
        == run(capsys, "why", "rocm", "--rocm", "6.2", "--cpe", "all")[1:]
    )
    assert "ROCm 6.3.4, 6.2.4" in run(capsys, "why", "rocm", "--use", "rocm=6.2", "--use", "rocm=6.3")[1]
    for asked, said in (
        ("cuda=12", "--use cuda: cuda is not known here (have cpe, rocm) [name-unknown]"),
        ("cuda", "--use: 'cuda' is no stack with its release (NAME=12.8 would be right)"),
        ("=1", "--use: '=1' is no stack with its release (NAME=12.8 would be right)"),
    ):
        assert run(capsys, "why", "rocm", "--use", asked) == (2, "", f"lumisite: {said}\n")
