"""The configuration file: a site and a root that need not be typed; and the options of lumisite itself."""

from __future__ import annotations

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


def test_quiet_prints_errors_alone(machine: Path, capsys: Output) -> None:
    machine.write_text("site: twin\n")
    assert main(["--quiet", "why", "MASTER_ADDR"]) == 0
    assert capsys.readouterr().err == ""
    assert main(["-q", "why", "MASTER_ADR"]) == 2
    assert "MASTER_ADR" in capsys.readouterr().err


def test_help_is_a_command_too(capsys: Output) -> None:
    assert main(["help", "masks"]) == 0
    of_masks = capsys.readouterr().out
    assert main(["masks", "--help"]) == 0
    assert capsys.readouterr().out == of_masks
    assert main(["help"]) == 0
    assert "COMMAND" in capsys.readouterr().out
    assert main(["help", "maskz"]) == 2
    assert main(["-V"]) == 0
