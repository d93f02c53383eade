"""The configuration file: a site and a root that need not be typed; and the options of lumisite itself."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from lumisite.cli import main
from tests.support.sites import site_text

Output = pytest.CaptureFixture[str]


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A machine that nobody knows, without files of configuration; return that of all users."""
    monkeypatch.delenv("LUMISITE_SITE", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    (tmp_path / "home/.config").mkdir(parents=True)
    monkeypatch.setattr("lumisite.cli.config_file.OF_THE_MACHINE", tmp_path / "lumisite.yaml")
    return tmp_path / "lumisite.yaml"


def why(capsys: Output) -> tuple[int, str]:
    code = main(["why", "MASTER_ADDR"])
    return code, capsys.readouterr().err


def test_the_site_of_the_machine_is_used(machine: Path, capsys: Output) -> None:
    machine.write_text("site: twin\n")
    assert why(capsys) == (0, f"lumisite: site twin, by {machine}\n")


def test_a_users_own_file_comes_first_key_by_key(machine: Path, tmp_path: Path, capsys: Output) -> None:
    machine.write_text(f"site: lumi\nroot: {tmp_path}/root\n")
    own = tmp_path / "home/.config/lumisite.yaml"
    own.write_text("site: twin\n")
    assert why(capsys) == (0, f"lumisite: site twin, by {own}\n")
    assert main(["status", "--all"]) == 2
    assert f"{tmp_path}/root" in capsys.readouterr().err


def test_a_description_is_beside_the_file_that_names_it(machine: Path, capsys: Output) -> None:
    machine.write_text("site: our.yaml\n")
    (machine.parent / "our.yaml").write_text(site_text())
    assert why(capsys) == (0, f"lumisite: site {machine.parent}/our.yaml, by {machine}\n")


def test_the_variable_comes_before_the_file(machine: Path, monkeypatch: pytest.MonkeyPatch, capsys: Output) -> None:
    machine.write_text("site: twin\n")
    monkeypatch.setenv("LUMISITE_SITE", "lumi")
    assert why(capsys) == (0, "lumisite: site lumi, by LUMISITE_SITE\n")


def test_the_release_that_is_loaded_comes_before_the_file(
    machine: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Output
) -> None:
    """Its description is in it, with the plans that it names: a command explains what tasks really get."""
    machine.write_text("site: lumi\n")
    plan = Path(__file__).parents[2] / "golden/plans/small.yaml"
    (tmp_path / "ours/plans").mkdir(parents=True)
    (tmp_path / "ours/plans/small.yaml").write_bytes(plan.read_bytes())
    ours = site_text(
        ("value: hsn0,hsn1,hsn2,hsn3", "value: hsn7"), ("\nmodules:\n", "\nplans: [plans/small.yaml]\nmodules:\n")
    )
    (tmp_path / "ours/twin.yaml").write_text(ours)
    release = tmp_path / "2026-01-0"
    assert main(["render", "--site", str(tmp_path / "ours/twin.yaml"), "--out", str(release)]) == 0
    monkeypatch.setenv("LUMISITE_RELEASE", str(release))
    capsys.readouterr()
    assert main(["why", "NCCL_SOCKET_IFNAME"]) == 0
    out, err = capsys.readouterr()
    assert "NCCL_SOCKET_IFNAME = hsn7" in out
    assert err == f"lumisite: site {release}/site/site.yaml, by the module that is loaded, of release 2026-01-0\n"
    assert main(["check", f"{release}/site/site.yaml"]) == 0
    (release / "site/site.yaml").unlink()
    assert why(capsys) == (0, f"lumisite: site lumi, by {machine}\n")


def test_a_description_by_another_name_renders_the_same(tmp_path: Path) -> None:
    trees = []
    for name in ("one", "two"):
        (tmp_path / f"{name}.yaml").write_text(site_text())
        assert main(["render", "--site", str(tmp_path / f"{name}.yaml"), "--out", str(tmp_path / name)]) == 0
        files = sorted(path for path in (tmp_path / name).rglob("*") if path.is_file())
        trees.append({str(path.relative_to(tmp_path / name)): path.read_bytes() for path in files})
    assert trees[0] == trees[1]
    assert len(trees[0]) > 8


@pytest.mark.parametrize(
    ("text", "code"),
    [("sites: lumi\n", "key-unknown"), ("root: here\n", "value-wrong"), ("site: [lumi]\n", "value-wrong")],
)
def test_a_file_with_a_fault_is_named(machine: Path, text: str, code: str, capsys: Output) -> None:
    machine.write_text(text)
    exit_code, error = why(capsys)
    assert exit_code == 2
    assert error.startswith(f"lumisite: {machine}:1:")
    assert f"[{code}]" in error


def test_a_site_that_is_not_there_is_an_error_of_the_file(machine: Path, capsys: Output) -> None:
    machine.write_text("site: lumy\n")
    code, error = why(capsys)
    assert code == 2
    assert f"{machine}: site" in error


@pytest.mark.parametrize(
    "words",
    ["why MASTER_ADDR", "render", "check broken.yaml", "masks --node live", "facts -o facts.json", "deploy out root"],
)
@pytest.mark.parametrize("behind", [False, True])
def test_quiet_prints_errors_alone(words: str, behind: bool, machine: Path, tmp_path: Path, capsys: Output) -> None:
    machine.write_text("site: twin\n")
    Path("broken.yaml").write_text("lumisite: 2\n")
    assert main(["render", "--out", "out"]) == 0
    capsys.readouterr()
    main([*words.split(), "-q"] if behind else ["--quiet", *words.split()])
    assert capsys.readouterr().err == ""
    main(words.split())
    assert capsys.readouterr().err != ""


def test_quiet_prints_the_error_of_a_command(machine: Path, capsys: Output) -> None:
    machine.write_text("site: twin\n")
    assert main(["-q", "why", "MASTER_ADR"]) == 2
    assert "MASTER_ADR" in capsys.readouterr().err
    assert main(["-q", "why", "--nonsense"]) == 2
    assert "no option --nonsense" in capsys.readouterr().err


def test_the_site_may_be_named_before_the_command(machine: Path, capsys: Output) -> None:
    machine.write_text("site: lumi\n")
    found = []
    for words in (["--site", "twin", "why", "platform"], ["why", "platform", "--site", "twin"]):
        assert main(words) == 0
        found.append(capsys.readouterr())
    assert found[0] == found[1]
    assert found[0].out.startswith("platform (site twin")
    assert main(["--site", "twin", "why", "platform", "--site", "lumi"]) == 0
    assert capsys.readouterr().out.startswith("platform (site lumi")


def test_a_shell_completes_commands_options_and_files(tmp_path: Path) -> None:
    def completed(*words: str) -> list[str]:
        variables = {"_LUMISITE_COMPLETE": "bash_complete", "COMP_WORDS": " ".join(("lumisite", *words))}
        variables |= {"COMP_CWORD": str(len(words))}
        command = [sys.executable, "-m", "lumisite"]
        done = subprocess.run(command, env={**os.environ, **variables}, capture_output=True, text=True, check=False)
        assert done.stderr == ""
        return done.stdout.splitlines()

    assert completed("re") == ["plain,render", "plain,report"]
    assert completed("render", "--pl") == ["plain,--platform", "plain,--plan"]
    assert completed("lint", "jo") == ["file,jo"]


def test_help_is_a_command_too(capsys: Output) -> None:
    assert main(["help", "masks"]) == 0
    of_masks = capsys.readouterr().out
    assert main(["masks", "--help"]) == 0
    assert capsys.readouterr().out == of_masks
    assert main(["help"]) == 0
    assert "COMMAND" in capsys.readouterr().out
    assert main(["help", "maskz"]) == 2
    assert main(["-V"]) == 0
