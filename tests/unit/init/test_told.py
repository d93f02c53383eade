"""A node's answer as a tree; and the collector itself, on this machine."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

import lumisite.init
from lumisite.init.told import ToldError, read_told
from lumisite.machine.live import read_topology
from lumisite.machine.tree import resolve
from tests.support.dict_trees import Link
from tests.unit.init.answers import told

COLLECTOR = Path(lumisite.init.__file__).with_name("collect.sh")


def test_files_links_and_folders() -> None:
    tree = told({"/a/b": b"one\ntwo\n", "/c": Link("/a")})
    assert resolve(tree, "/c/b").path == "/a/b"
    assert tree.lines("/a/b") == ["one", "two"]
    assert tree.below("/") == ["/a", "/c"]


def test_a_file_cannot_play_another_or_the_end() -> None:
    tree = told({"/a": b"x\nF /etc/os-release\n|evil\nEND\nL /b\t/c"})
    assert (tree.below("/"), tree.lines("/a")[-1]) == (["/a"], "L /b\t/c")


@pytest.mark.parametrize("text", ["", "F /a\n|b\n", "srun: error\n", "|END\n"])
def test_an_answer_without_its_end_is_none(text: str) -> None:
    with pytest.raises(ToldError, match="the answer has no end"):
        read_told(text, "node")


def test_the_collector_says_what_this_machine_is() -> None:
    """With a Python nowhere near, and with nothing but POSIX."""
    done = subprocess.run(["sh", COLLECTOR, "/usr"], capture_output=True, text=True, check=True)
    tree = read_told(done.stdout, "this machine")
    assert done.stderr == ""
    assert read_topology(tree).cores
    assert tree.lines("/proc/self/mountinfo")
    assert resolve(tree, "/usr").entry is not None
