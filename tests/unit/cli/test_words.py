"""One way to say things: the same words in all commands, and errors that name what was typed."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import click
import pytest

from docs.reference.cli import commands_by_name
from lumisite.cli import main
from lumisite.cli.commands import COMMANDS, EXIT_CODES, GROUPS
from lumisite.site.load import EMBEDDED
from tests.support.sites import site_text

pytestmark = pytest.mark.usefixtures("at_lumi")

Output = pytest.CaptureFixture[str]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("rendr", "there is no command 'rendr' (did you mean render?)"),
        ("--verbos", "no option --verbos (did you mean --verbose?)"),
        ("xyzzy", "there is no command 'xyzzy' (`lumisite --help` lists them)"),
        ("render --rokm 6.2", "lumisite render: no option --rokm (did you mean --rocm?)"),
        ("render --rokm=6.2", "lumisite render: no option --rokm (did you mean --rocm?)"),
        ("render --xyzzy", "lumisite render: no option --xyzzy (`lumisite render --help` lists them)"),
        ("render --rocm", "lumisite: Option '--rocm' requires an argument"),
        ("status root what", "extra argument (what) (usage: lumisite status [OPTIONS] [ROOT])"),
        ("why", "lumisite why: Missing argument 'NAME...' (usage: lumisite why [OPTIONS] NAME...)"),
        ("", "lumisite: Missing command (usage: lumisite [OPTIONS] COMMAND [ARGS]...)"),
        ("masks --threads 3", "lumisite masks: Invalid value for '--threads': '3' is not one of '1', '2'"),
        ("masks --node live --topology x", "lumisite: --topology: not with --node (give one of them)"),
        ("--site lumi deploy out root", "lumisite: --site: `deploy` takes no site (leave it out)"),
    ],
)
def test_what_is_mistyped_comes_back_with_what_was_meant(words: str, said: str, capsys: Output) -> None:
    assert main(words.split()) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert said in err


@pytest.mark.parametrize(
    ("words", "first"),
    [
        ("render --rocm 9.9", "--rocm: lumi has no ROCm 9.9"),
        ("facts --host-root nowhere", "--host-root: 'nowhere' is no directory"),
        ("facts --host-root=nowhere", "--host-root: 'nowhere' is no directory"),
        ("check --site nowhere", "--site: there is no embedded site 'nowhere'"),
        ("render --site nowhere", "--site: there is no embedded site 'nowhere'"),
        ("check a.yaml --site b.yaml", "--site: FILE is a.yaml already (leave one out)"),
        ("check --root x", "--root: goes with --host only (give --host too, or leave it out) [keys-contradict]"),
    ],
)
def test_errors_name_the_option(words: str, first: str, capsys: Output) -> None:
    assert main(words.split()) == 2
    assert capsys.readouterr().err.startswith(f"lumisite: {first}")


def test_a_site_is_a_file_or_a_name_for_check_too(capsys: Output) -> None:
    for words in (["check", "lumi"], ["check", "--site", "lumi"], ["check", "--site", str(EMBEDDED / "lumi.yaml")]):
        assert main(words) == 0
        assert "lumi.yaml: no faults" in capsys.readouterr().out


def test_faults_of_a_site_are_json_for_a_machine(capsys: Output) -> None:
    assert main(["check", "--json", "--site", "lumi"]) == 0
    assert json.loads(capsys.readouterr().out) == []
    Path("site.yaml").write_text(site_text(("title: the twin", "titel: the twin"), ("kind: shared", "kind: shred")))
    assert main(["check", "site.yaml"]) == 2
    lines = capsys.readouterr().out.splitlines()
    assert main(["check", "site.yaml", "--json"]) == 2
    out, err = capsys.readouterr()
    faults = json.loads(out)
    assert [list(fault) for fault in faults] == [["file", "line", "column", "key", "code", "message", "advice"]] * 2
    assert [
        "{file}:{line}:{column}: {key}: {message} ({advice}) [{code}]".format_map(fault) for fault in faults
    ] == lines
    assert err == "lumisite: 2 faults\n"


def test_help_has_each_command_once_by_who_uses_it(capsys: Output) -> None:
    assert main(["--help"]) == 0
    out = capsys.readouterr().out
    assert sorted(name for names in GROUPS.values() for name in names) == sorted(COMMANDS)
    titles = [f"\n{title[:1].upper()}{title[1:]}:\n" for title in GROUPS]
    places = [out.index(title) for title in titles]
    assert places == sorted(places)
    for (title, names), start in zip(GROUPS.items(), places, strict=True):
        own = out[start:].partition("\n\n")[0]
        assert all(f"\n  {name} " in own for name in names), title


@pytest.mark.parametrize("name", COMMANDS)
def test_every_help_has_the_exit_codes(name: str, capsys: Output) -> None:
    assert main([name, "--help"]) == 0
    assert " ".join(EXIT_CODES.split()) in " ".join(capsys.readouterr().out.split())


def test_each_kind_of_root_has_one_name() -> None:
    for name, command in commands_by_name().items():
        for parameter in command.params:
            if parameter.metavar == "DIR" and "root" in str(parameter.name):
                assert "--host-root" in parameter.opts, name
            if "ROOT" in str(parameter.metavar):
                assert parameter.opts[-1] in ("--root", "root"), name
            if parameter.name == "out" and isinstance(parameter, click.Option):
                assert parameter.opts == ["-o", "--out"], name


def test_why_answers_for_what_is_deployed(capsys: Output) -> None:
    assert main(["render", "--rocm", "6.2", "--platform", "2026-01"]) == 0
    assert main(["deploy", "site-out", "root", "--apply"]) == 0
    capsys.readouterr()
    assert main(["why", "--root", "root", "singularity-AI-bindings"]) == 0
    out, err = capsys.readouterr()
    assert out.startswith("singularity-AI-bindings (module; platform 2026-01, cpe 25.03, rocm 6.2.4)\n")
    assert err.startswith("lumisite: as release 2026-01-")
    assert main(["why", "singularity-AI-bindings"]) == 0
    assert "rocm 6.3.4" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--rocm", "6.3"), "--root: the release says its platform and releases"),
        (("--platform", "2026-01"), "--root: the release says its platform and releases"),
        (("--site", "twin"), "--site: release 2026-01-"),
    ],
)
def test_a_release_says_by_itself_what_it_is(words: tuple[str, ...], said: str, capsys: Output) -> None:
    assert main(["render"]) == 0
    assert main(["deploy", "site-out", "root", "--apply"]) == 0
    capsys.readouterr()
    assert main(["why", "--root", "root", "MIOPEN_USER_DB_PATH", *words]) == 2
    assert said in capsys.readouterr().err


def test_a_release_of_a_file_knows_its_site_and_says_when_the_file_has_changed(capsys: Output) -> None:
    text = (
        (EMBEDDED / "twin.yaml").read_text().replace("\nsite: twin", "\nsite: ours").replace("name: twin", "name: ours")
    )
    Path("ours.yaml").write_text(text)
    shutil.copytree(EMBEDDED / "plans", "plans") if (EMBEDDED / "plans").is_dir() else None
    assert main(["render", "--site", "ours.yaml"]) == 0
    assert main(["deploy", "site-out", "root", "--apply"]) == 0
    capsys.readouterr()
    name = "NCCL_SOCKET_IFNAME"
    assert main(["why", "--root", "root", name]) == 0
    assert "is not as it was" not in capsys.readouterr().err
    assert main(["why", "--root", "root", name, "--site", "ours.yaml"]) == 0
    assert "is not as it was" not in capsys.readouterr().err
    Path("ours.yaml").write_text(f"{text}\n# more\n")
    assert main(["why", "--root", "root", name, "--site", "ours.yaml"]) == 0
    assert "ours.yaml is not as it was when" in capsys.readouterr().err


def test_a_root_without_a_release_says_so(capsys: Output) -> None:
    Path("root").mkdir()
    assert main(["why", "--root", "root", "NCCL_SOCKET_IFNAME"]) == 2
    assert "has no release that can be read" in capsys.readouterr().err
    assert main(["why", "--root", "nowhere", "NCCL_SOCKET_IFNAME"]) == 2
    assert "nowhere: does not exist" in capsys.readouterr().err
