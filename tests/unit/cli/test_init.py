"""`lumisite init`, with stand-ins for Slurm's commands: `srun` runs its command here."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from lumisite.cli import main
from lumisite.facts.capture import capture
from lumisite.facts.facts import format_facts
from lumisite.site.load import load_site
from tests.support.dict_trees import DictTree
from tests.support.nodes import lumi_node
from tests.unit.init.answers import CONFIG, LUMI_G, node, partition

SCONTROL = """#!/bin/sh
for last; do :; done
cat "{0}/$last"
"""
#: Options of srun end where the command begins.
SRUN = """#!/bin/sh
[ "$1" != --help ] || exit 0
echo "$*" | head -1 >>"{0}/asked"
env >>"{0}/environment"
while [ "$1" != sh ]; do shift; done
exec "$@"
"""


@pytest.fixture
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with Slurm's answers, and its commands on PATH; the working directory is beside it."""
    answers = tmp_path / "slurm"
    (answers / "bin").mkdir(parents=True)
    (answers / "config").write_text(CONFIG)
    (answers / "partition").write_text(partition("all") + partition("gpu", "EXCLUSIVE"))
    (answers / "node").write_text(node("n1") + node("n2") + node("g1", gres="gpu:h100:4", partitions="gpu"))
    for name, text in (("scontrol", SCONTROL), ("srun", SRUN)):
        program = answers / "bin" / name
        program.write_text(text.format(answers))
        program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{answers}/bin:/usr/bin:/bin")
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    monkeypatch.chdir(tmp_path)
    return answers


def test_one_node_of_each_kind_is_asked(slurm: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["init", "--srun=--account=project"]) == 0
    asked = (slurm / "asked").read_text().splitlines()
    assert [line.split(" sh -c")[0].split(" --chdir=/ ")[1] for line in asked] == [
        "--partition=all --nodelist=n1 --account=project",
        "--partition=gpu --nodelist=g1 --account=project",
    ]
    assert "SLURM_JOB_ID" not in (slurm / "environment").read_text()  # a job of its own, also from inside of one
    said = capsys.readouterr()
    assert said.out == ""
    assert "[gpus-differ]" in said.err
    questions = Path("skerry.yaml").read_text().count("# QUESTION: ")
    assert f"lumisite: wrote skerry.yaml: {questions} questions to answer" in said.err
    assert main(["check", "skerry.yaml"]) == 0


def test_a_file_that_is_there_stays(slurm: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("skerry.yaml").write_text("mine")
    assert main(["init"]) == 2
    assert main(["init", "--out", "skerry.yaml"]) == 2
    assert capsys.readouterr().err.count("[description-exists]") == 2
    assert Path("skerry.yaml").read_text() == "mine"
    assert not (slurm / "asked").exists()


def test_a_node_that_does_not_answer_is_described_as_slurm_has_it(
    slurm: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (slurm / "bin/srun").write_text(
        "#!/bin/sh\necho 'srun: error: Unable to allocate resources: \x1b[31mno' >&2\nexit 1\n"
    )
    assert main(["init"]) == 0
    said = capsys.readouterr().err
    assert "lumisite: cpu: no node answered: 'srun: error: Unable to allocate resources: \\x1b[31mno'" in said
    assert re.search(r"^# note: cpu: .* \[node-kind-silent\]$", Path("skerry.yaml").read_text(), re.MULTILINE)
    assert main(["check", "skerry.yaml"]) == 0


def test_without_slurm_this_node_alone_is_described(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    assert main(["init", "--name", "alone"]) == 0
    assert "[slurm-absent]" in capsys.readouterr().err
    assert "\npartitions: {}\n" in Path("alone.yaml").read_text()
    assert main(["check", "alone.yaml"]) == 0
    assert main(["init", "--name", "other", "--partition", "all"]) == 3
    assert not Path("other.yaml").exists()


def test_partitions_and_names_that_are_none(slurm: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["init", "--partition", "gpu", "--partition", "gpus"]) == 2
    assert main(["init", "--name", "a b"]) == 2
    said = capsys.readouterr().err
    assert "[partition-unknown]" in said
    assert "[site-name-unusable]" in said
    assert list(slurm.parent.glob("*.yaml")) == []


@pytest.mark.parametrize(("said", "name"), [("../../evil", "vm"), ("x\x1b[31m", "vm"), ("-rf", "vm"), ("a.b", "a.b")])
def test_a_cluster_has_no_say_in_where_the_file_is_written(
    slurm: Path, monkeypatch: pytest.MonkeyPatch, said: str, name: str
) -> None:
    monkeypatch.setattr("lumisite.cli.init.names_of_this_node", lambda: ("", "vm"))
    (slurm / "config").write_text(CONFIG.replace("= skerry", f"= {said}"))
    assert main(["init", "--partition", "all"]) == 0
    assert [path.name for path in slurm.parent.rglob("*.yaml")] == [f"{name}.yaml"]


def test_facts_that_were_captured_before_stand_for_a_node(slurm: Path) -> None:
    (slurm / "partition").write_text(partition("standard-g"))
    (slurm / "node").write_text(LUMI_G.replace("nid005000", "nid005001"))
    files = {**lumi_node(), "/proc/sys/kernel/hostname": b"nid005001\n"}
    facts = capture(DictTree(files), load_site("lumi").site).facts
    Path("facts.json").write_text(format_facts(facts))
    assert main(["init", "--from", "facts.json"]) == 0
    assert not (slurm / "asked").exists()
    text = Path("skerry.yaml").read_text()
    assert "  mi250:\n    memory_mib: 491520\n" in text
    assert "      - {cores: 56-63, siblings: 120-127, numa: 3}\n" in text
    assert "read on nid005001" in text
    assert main(["check", "skerry.yaml"]) == 0


def test_facts_with_a_list_of_cpus_that_is_none_are_named(slurm: Path, capsys: pytest.CaptureFixture[str]) -> None:
    facts = format_facts(capture(DictTree(lumi_node()), load_site("lumi").site).facts)
    assert '"cpus": "48-55,112-119"' in facts
    (slurm / "facts.json").write_text(facts.replace('"cpus": "48-55,112-119"', '"cpus": "48-99999"', 1))
    assert main(["init", "--from", str(slurm / "facts.json")]) == 2
    assert "[facts-cpus-unreadable]" in capsys.readouterr().err
    assert not Path("skerry.yaml").exists()
