"""Which site a command works for, where none is typed, and what `--quiet` leaves of that."""

from __future__ import annotations

from pathlib import Path

import pytest

from docs.reference.cli import commands_by_name
from lumisite.cli import main
from lumisite.cli.site_choice import recorded_site
from tests.support.sites import site_text

Output = pytest.CaptureFixture[str]
UNKNOWN = "no site is named (--site NAME|FILE or LUMISITE_SITE=NAME|FILE names it)"


@pytest.fixture(autouse=True)
def configuration(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A shell that names no site; return the configuration file, which is not there."""
    monkeypatch.delenv("LUMISITE_SITE", raising=False)
    monkeypatch.setattr("lumisite.cli.site_choice.CONFIGURATION", tmp_path / "lumisite.yaml")
    return tmp_path / "lumisite.yaml"


def why(capsys: Output, name: str = "MASTER_ADDR") -> tuple[int, str]:
    code = main(["why", name])
    return code, capsys.readouterr().err


@pytest.mark.parametrize("command", ["why MASTER_ADDR", "why rocm --json", "render", "env", "lint ok.sh"])
def test_what_only_explains_takes_an_example_and_says_so(command: str, capsys: Output) -> None:
    Path("ok.sh").write_text("#!/bin/bash\n#SBATCH --nodes=1\ntrue\n")
    assert main(command.split()) == 0
    assert capsys.readouterr().err.splitlines()[0] == f"lumisite: site lumi, an example: {UNKNOWN}"
    assert main([*command.split(), "--site", "lumi"]) == 0
    assert "an example" not in capsys.readouterr().err


@pytest.mark.parametrize(
    "command", ["check", "masks --node lumi-g", "binds image", "images", "status", "validate --dry-run"]
)
def test_what_needs_a_site_takes_none_that_nobody_named(command: str, capsys: Output) -> None:
    assert main(command.split()) == 2
    assert capsys.readouterr() == ("", f"lumisite: --site: {UNKNOWN}\n")


def test_every_command_with_a_site_is_one_of_these() -> None:
    """Those of neither test above know the site by a file that they read, or go without one."""
    takes = {name for name, command in commands_by_name().items() if any(one.name == "site" for one in command.params)}
    example = {"why", "render", "env", "lint"}
    needed = {"check", "masks", "binds", "images", "status", "validate"}
    assert takes == example | needed | {"changes", "report", "transport", "verdict", "facts"}


def test_the_environment_chooses_before_the_configuration_file(
    configuration: Path, capsys: Output, monkeypatch: pytest.MonkeyPatch
) -> None:
    configuration.write_text("site: twin\n")
    assert why(capsys) == (0, f"lumisite: site twin, by {configuration}\n")
    monkeypatch.setenv("LUMISITE_SITE", "lumi")
    assert why(capsys) == (0, "")
    monkeypatch.setenv("LUMISITE_SITE", "twn")
    advice = "there is no embedded site 'twn' (did you mean twin?; a file has / or .yaml in its name) [name-unknown]"
    assert why(capsys) == (2, f"lumisite: LUMISITE_SITE: {advice}\n")
    Path("twn.yaml").touch()
    assert "(the file twn.yaml is ./twn.yaml)" in why(capsys)[1]


def test_a_description_is_beside_the_configuration_file_that_names_it(configuration: Path, capsys: Output) -> None:
    configuration.write_text("site: our.yaml\n")
    (configuration.parent / "our.yaml").write_text(site_text())
    assert why(capsys) == (0, f"lumisite: site {configuration.parent}/our.yaml, by {configuration}\n")


@pytest.mark.parametrize(
    ("text", "code"),
    [("sites: lumi\n", "key-unknown"), ("site: [lumi]\n", "value-wrong"), ("site: lumy\n", "name-unknown")],
)
def test_a_configuration_file_with_a_fault_is_named(configuration: Path, text: str, code: str, capsys: Output) -> None:
    configuration.write_text(text)
    exit_code, error = why(capsys)
    assert exit_code == 2
    assert error.startswith(f"lumisite: {configuration}:")
    assert f"[{code}]" in error


def test_the_release_that_is_loaded_comes_before_the_configuration_file(
    configuration: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Output
) -> None:
    """Its description is in it, with the plans that it names: a command explains what tasks really get."""
    configuration.write_text("site: lumi\n")
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
    assert why(capsys) == (0, f"lumisite: site lumi, by {configuration}\n")


def test_the_site_may_be_named_before_the_command(capsys: Output) -> None:
    found = []
    for words in (["--site", "twin", "why", "platform"], ["why", "platform", "--site", "twin"]):
        assert main(words) == 0
        found.append(capsys.readouterr())
    assert found[0] == found[1]
    assert found[0].out.startswith("platform (site twin")
    assert main(["--site", "twin", "why", "platform", "--site", "lumi"]) == 0
    assert capsys.readouterr().out.startswith("platform (site lumi")


@pytest.mark.parametrize("words", ["why MASTER_ADDR", "check broken.yaml"])
def test_quiet_prints_errors_alone(words: str, configuration: Path, capsys: Output) -> None:
    configuration.write_text("site: twin\n")
    Path("broken.yaml").write_text("lumisite: 2\n")
    for quiet in (["--quiet", *words.split()], [*words.split(), "-q"]):
        main(quiet)
        assert capsys.readouterr().err == ""
    main(words.split())
    assert capsys.readouterr().err != ""
    assert main(["-q", "why", "MASTER_ADR"]) == 2
    assert "MASTER_ADR" in capsys.readouterr().err


def test_a_record_is_of_the_site_that_it_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine.yaml").write_text(site_text(("name: twin\n", "name: mine\n")))
    assert [recorded_site(name) for name in ("twin", "mine", "./mine.yaml", "")] == ["twin", "", "", ""]
    monkeypatch.setenv("LUMISITE_SITE", "./mine.yaml")
    assert [recorded_site(name) for name in ("twin", "mine", "other")] == ["twin", "./mine.yaml", ""]


def test_what_judges_files_goes_without_a_site(capsys: Output, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("log").write_text("x\n")
    main(["transport", "log"])
    assert capsys.readouterr().err == ""
    monkeypatch.setenv("LUMISITE_SITE", "lumi")
    main(["transport", "log"])
    assert capsys.readouterr().err == ""
