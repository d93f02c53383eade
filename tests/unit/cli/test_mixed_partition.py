"""Commands asked about a partition with nodes of several kinds: they say for which kind, or what holds for all."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from lumisite.cli import main
from lumisite.machine.masks import MaskRequest, cpu_masks
from lumisite.machine.topology import topology_of
from lumisite.site.load import EMBEDDED
from tests.unit.render.test_prolog_kinds import MIXED, SETTINGS, WIDE, mixed

Output = pytest.CaptureFixture[str]
SEVERAL = "lumisite: partition mixed has nodes of the kinds lumi-g, wide, striped, lumi-c: this is for lumi-g"


@pytest.fixture(autouse=True)
def _site(monkeypatch: pytest.MonkeyPatch) -> None:
    text = (EMBEDDED / "lumi.yaml").read_text()
    gpus = MIXED.replace("mixed:", "gpus:").replace("[lumi-g, wide, striped, lumi-c]", "[lumi-g, wide]")
    for title, more in (("node_kinds", WIDE), ("partitions", f"\n{MIXED}{gpus}"), ("settings", SETTINGS)):
        assert text.count(f"\n{title}:\n") == 1
        text = text.replace(f"\n{title}:\n", f"\n{title}:{more.rstrip()}\n")
    Path("site.yaml").write_text(text)
    monkeypatch.setenv("LUMISITE_SITE", str(Path("site.yaml").absolute()))


def env(capsys: Output, *words: str) -> tuple[list[str | None], str | None, str]:
    """The masks, the setting that differs by kind, and what was said besides."""
    assert main(["env", "--json", *words]) == 0
    said = capsys.readouterr()
    found = json.loads(said.out)
    return [one["mask"] for one in found["cpus"]], found["variables"]["BY_KIND"]["value"], said.err


def masks(kind: str, tasks: int) -> list[str | None]:
    return [one.mask for one in cpu_masks(topology_of(kind, mixed().site.node_kinds[kind]), MaskRequest(tasks))]


def test_env_says_for_which_kind_it_is(capsys: Output) -> None:
    told, setting, said = env(capsys, "--partition", "mixed")
    assert (told, setting) == (masks("lumi-g", 8), "lumi-g")
    assert f"{SEVERAL} (others: --node KIND)\n" in said


def test_env_is_for_the_kind_that_is_named(capsys: Output) -> None:
    told, setting, said = env(capsys, "--partition", "mixed", "--node", "striped")
    assert (told, setting) == (masks("striped", 2), None)
    assert "several" not in said
    assert "kinds" not in said
    assert env(capsys, "--partition", "standard-g", "--node", "lumi-g")[0] == masks("lumi-g", 8)


@pytest.mark.parametrize(
    ("partition", "kind", "right"),
    [("standard-g", "wide", "have lumi-g"), ("mixed", "wid", "did you mean wide?")],
)
def test_a_kind_that_the_partition_does_not_have_is_refused(
    capsys: Output, partition: str, kind: str, right: str
) -> None:
    assert main(["env", "--partition", partition, "--node", kind]) == 2
    error = capsys.readouterr().err.splitlines()[-1]
    assert error.startswith("lumisite: --node: ")
    assert f"({right}) [name-unknown]" in error


def test_why_leaves_open_what_the_kind_decides(capsys: Output) -> None:
    for partition, outcomes in (("mixed", ["may win", "may win"]), ("gpus", ["may win", "may win"])):
        assert main(["why", "BY_KIND", "--partition", partition, "--json"]) == 0
        assert [one["outcome"] for one in json.loads(capsys.readouterr().out)[0]["entries"]] == outcomes
    assert main(["why", "BY_GPUS", "--partition", "mixed", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)[0]["entries"][0]["outcome"] == "may win"
    assert main(["why", "BY_GPUS", "--partition", "gpus", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)[0]["entries"][0]["outcome"] == "wins"


def test_lint_finds_what_is_wrong_on_nodes_of_every_kind(capsys: Output) -> None:
    """LUMI-G has 56 cores for jobs, the other kind 40."""
    for cores, found in ((6, False), (8, True)):
        Path("job.sh").write_text(f"#!/bin/bash\n#SBATCH -p gpus -N 1 --ntasks-per-node=8 -c {cores}\n")
        main(["lint", "job.sh"])
        assert ("64 cores of a node of which jobs get 56" in capsys.readouterr().out) is found
