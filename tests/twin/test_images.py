"""What is read from images without running them, beside what their containers say."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from lumisite.cli import main
from tests.twin.cluster import IMAGES, Cluster, ClusterPlan, running
from tests.twin.fixtures import require_twin
from tests.twin.node import first_process

pytestmark = [pytest.mark.root, pytest.mark.slurm, pytest.mark.apptainer]
Output = pytest.CaptureFixture[str]

NAMES = ("torch", "own-network", "older-libc")
#: What a container says of itself, one version a line, nothing where it has none.
ASK = """
import os, platform
print("glibc", platform.libc_ver()[1])
for library in ("libcxi.so.1", "libefa.so.1", "libfabric.so.1", "libibverbs.so.1"):
    path = f"/usr/lib/x86_64-linux-gnu/{library}"
    if os.path.exists(path):
        print(library.partition(".")[0], os.path.basename(os.path.realpath(path)))
try:
    import torch
    print("torch", torch.__version__)
except ImportError:
    pass
"""


def root_of(cluster: Cluster, node: str) -> str:
    """The node's own file system, as this machine sees it."""
    return f"/proc/{first_process(cluster.node_folder(node)).pid}/root"


def answer(capsys: Output, *words: str) -> list[dict[str, Any]]:
    capsys.readouterr()
    assert main([*words, "--json"]) in (0, 1)
    found = json.loads(capsys.readouterr().out)
    assert isinstance(found, list)
    return found


@pytest.fixture
def cluster() -> Any:
    require_twin()
    with running(ClusterPlan(nodes=1, images=NAMES)) as running_cluster:
        yield running_cluster


def test_versions_are_those_that_the_containers_say(cluster: Cluster, capsys: Output) -> None:
    (cluster.exchange / "ask.py").write_text(ASK)
    words = ["images", "--site", "twin", "--host-root", root_of(cluster, cluster.nodes[0])]
    found = {Path(one["path"]).stem: one for one in answer(capsys, *words)}
    assert sorted(found) == sorted(NAMES)
    assert {(one["path"].rpartition("/")[0], one["why"]) for one in found.values()} == {
        (IMAGES, "image family twin-torch (by its path, /appl/images/*)")
    }
    for name in NAMES:
        command = f"singularity --quiet exec --bind /var/lib/twin {IMAGES}/{name}.sif python3 /var/lib/twin/ask.py"
        said = dict(line.split() for line in cluster.run(command, node=cluster.nodes[0]).check().stdout.splitlines())
        versions = {key: version["value"] for key, version in found[name]["versions"].items()}
        assert versions == {key: value for key, value in said.items() if key in versions}
    assert "torch" in found["torch"]["versions"]
