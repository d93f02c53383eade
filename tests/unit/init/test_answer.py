"""A node's answer as a tree; and the collector itself, on this machine."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

import lumisite.init
from lumisite.errors import ToolError
from lumisite.init.answer import parse_answer
from lumisite.init.node import node_of
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
    with pytest.raises(ToolError) as caught:
        parse_answer(text, "node")
    finding = caught.value.finding
    assert (finding.code, finding.subject, finding.values) == ("collector-failed", "node", {"files": text.count("F ")})


#: As NVIDIA/pyxis prints them in its README.
HELP = """      --cpu-bind=             Bind tasks to CPUs
      --container-image=[USER@][REGISTRY#]IMAGE[:TAG]|PATH
                              [pyxis] the image to use for the container
      --container-mounts=SRC:DST[:FLAGS][,SRC:DST...]
"""


def test_the_collector_finds_plug_ins_of_srun_and_podman_hpc(tmp_path: Path) -> None:
    says = {
        "srun": f"[ $* = --help ] && cat <<'E'\n{HELP}E",
        "podman-hpc": "echo podman-hpc $*",
        "enroot": "echo 3.4.1",
    }
    for name, script in says.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / name).chmod(0o755)
    path = {"PATH": f"{tmp_path}:/usr/bin:/bin"}
    done = subprocess.run(["sh", COLLECTOR], capture_output=True, text=True, check=True, env=path)
    found = node_of(parse_answer(done.stdout, "node"), "site", []).reads_no_modulefile
    assert found.pop("podman-hpc") == {"variant": "podman-hpc --version", "emit": "cdi"}
    assert found == {"pyxis": {"variant": "pyxis, enroot 3.4.1", "emit": "cdi", "question": "cdi-reader"}}


@pytest.mark.parametrize(
    ("file", "line", "there"),
    [
        ("plugstack.conf", "required /usr/local/lib/slurm/spank_pyxis.so runtime_path=/run/pyxis", True),
        ("plugstack.conf.d/pyxis.conf", "optional spank_pyxis.so", True),
        ("plugstack.conf", "#required /usr/local/lib/slurm/spank_pyxis.so", False),
        ("plugstack.conf", "required /usr/lib/slurm/other.so /x/spank_pyxis.so", False),
        ("slurm.conf", "PlugStackConfig=/etc/slurm/plugstack.conf", False),
    ],
)
def test_pyxis_is_what_plugstack_names(file: str, line: str, there: bool) -> None:
    node = node_of(told({f"/etc/slurm/{file}": f"# ours\n{line}\n".encode()}), "site", [])
    assert ("pyxis" in node.reads_no_modulefile) == there


def test_the_collector_says_what_this_machine_is() -> None:
    """With a Python nowhere near, and with nothing but POSIX."""
    done = subprocess.run(["sh", COLLECTOR, "/usr"], capture_output=True, text=True, check=True)
    tree = parse_answer(done.stdout, "this machine")
    assert done.stderr == ""
    assert read_topology(tree).cores
    assert tree.lines("/proc/self/mountinfo")
    assert resolve(tree, "/usr").entry is not None
