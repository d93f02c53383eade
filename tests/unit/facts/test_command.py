"""`facts` and `changes` on the command line: exit codes, what is printed, bad input."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from lumisite.cli import main
from lumisite.facts.facts import Facts, format_facts, parse_facts
from tests.support.captured import node_with
from tests.support.dict_trees import write_tree
from tests.support.nodes import lumi_node


def written(path: Path, facts: Facts) -> str:
    path.write_text(format_facts(facts))
    return str(path)


def test_the_command_says_by_its_exit_code_whether_something_changed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    node = node_with()
    same = written(tmp_path / "same", node)
    other = written(tmp_path / "other", replace(node, slurm="25.05.1", host="nid9"))
    assert main(["changes", same, same]) == 0
    assert capsys.readouterr() == ("nothing changed\n", "")
    assert main(["changes", same, other]) == 1
    said = capsys.readouterr()
    assert "Slurm: 24.05.8 -> 25.05.1" in said.out
    assert "[facts-mismatch]" in said.err
    assert "\nLUMI was updated" in said.out
    assert main(["changes", same, other, "--json"]) == 1
    assert capsys.readouterr().out.startswith("{")


@pytest.mark.parametrize(
    ("before", "after", "more", "message"),
    [
        ("node", ".", [], ".: cannot be read: it is not a file but a directory"),
        ("node", "broken", [], "[file-unreadable]"),
        ("node", "twin", [], "[facts-mismatch]"),
        ("node", "node", ["--site", "twin"], "[facts-mismatch]"),
        ("hostile", "hostile", [], "[facts-mismatch]"),
    ],
)
def test_bad_input_is_named(
    before: str, after: str, more: list[str], message: str,
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    for name, facts in {"node": node_with(), "twin": Facts("twin"), "hostile": Facts("../../etc/passwd")}.items():
        written(tmp_path / name, facts)
    (tmp_path / "broken").write_text(format_facts(node_with())[:500])
    assert main(["changes", before, after, *more]) == 2
    output = capsys.readouterr()
    assert message in output.err
    assert "\n" not in output.err.strip()
    assert output.out == ""


def test_a_machine_that_nobody_has_described_is_read_and_given_no_site(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lumisite.cli.site_choice._chosen_site", lambda: ("", ""))
    root = write_tree(tmp_path / "node", lumi_node())
    assert main(["facts", "--root", str(root), "-o", "mine.json"]) == 0
    assert "[facts-mismatch]" in capsys.readouterr().err
    facts = parse_facts(Path("mine.json").read_bytes(), "mine.json")
    assert (facts.site, facts.libraries, facts.paths) == ("", {}, {})
    assert len(facts.gpus) == 8
    assert "rocm" in facts.stacks
    assert main(["changes", "mine.json", "mine.json"]) == 2
    assert "[facts-mismatch]" in capsys.readouterr().err
    assert main(["init", "mine.json", "-o", "mine.yaml"]) == 0
    assert "gpus:" in Path("mine.yaml").read_text()
    assert "lumi" not in Path("mine.yaml").read_text().replace("lumisite", "")


def test_the_commands_load_no_templates_before_they_write_any() -> None:
    """A node on which `lumisite facts` runs may have no Jinja."""
    script = "import sys, lumisite.cli.facts; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert "jinja2" not in done.stdout.split()
