"""ROCm in the layout of its Core SDK (7.14, 10.0), as a node tells it to `init`."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from lumisite.init.answer import collector, parse_answer
from lumisite.init.node import Node, node_of, releases_of
from lumisite.init.slurm import read_cluster
from lumisite.vendors import vendor
from tests.support.dict_trees import Link, write_tree
from tests.support.nodes import NodeFiles, lumi_node
from tests.support.rocm10 import rocm_files
from tests.unit.init.answers import LUMI_G, partition, slurm, small, told
from tests.unit.init.test_describe import seen, written

ROCM = vendor("amd").software[0]


def node(rocm: NodeFiles) -> Node:
    rest = {path: content for path, content in lumi_node().items() if not path.startswith("/opt/rocm")}
    return node_of(told(rest | rocm), "site", [])


def answer(top: Path) -> str:
    """Run the collector with what vendors have below another root than that of this machine."""
    script = collector().replace("/opt/", f"{top}/opt/")
    done = subprocess.run(["sh", "-c", script], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.replace(str(top), "")


@pytest.mark.parametrize("links", [True, False])
def test_a_release_is_read_with_and_without_links(links: bool) -> None:
    assert releases_of(node(rocm_files(links=links)), ROCM)[0] == ["10.0.0"]
    assert releases_of(node(rocm_files(links=links, info=False)), ROCM)[0] == ["10.0"]
    assert releases_of(node(rocm_files()), ROCM)[1] == "10.0.0"


@pytest.mark.parametrize("links", [True, False])
def test_the_collector_tells_it(links: bool, tmp_path: Path) -> None:
    old: NodeFiles = {"/opt/rocm-7.2.1/lib/x": b"", "/opt/rocm-10.0.0": Link("rocm/core-10.0")}
    write_tree(tmp_path, rocm_files(links=False) | rocm_files("10.1.0", links=False, info=False) | old)
    for name in ("core", "core-10", "lib") if links else ():
        (tmp_path / "opt/rocm" / name).symlink_to("core-10.0" if name.startswith("core") else "core-10.0/lib")
    (tmp_path / "opt/rocm-6.3.4").mkdir()  # as a package leaves it that was removed
    found = node_of(parse_answer(answer(tmp_path), "node"), "site", [])
    versions, default = releases_of(found, ROCM)
    assert versions == ["7.2.1", "10.0.0", "10.1"]
    assert default == "10.0.0" or not links
    assert found.answer.files["/opt/rocm/core-10.0/.info/version"] == ["10.0.0"]


def test_it_is_described() -> None:
    cluster = read_cluster(slurm(partition("standard-g", "EXCLUSIVE", "1024"), LUMI_G))
    value = written(seen({"mi250": node(rocm_files())}, cluster, small()))
    assert list(value["stacks"]["rocm"]["releases"]) == ["10.0.0"]
    assert value["platforms"]["2026-11"]["stacks"]["rocm"]["default"] == "10.0.0"
