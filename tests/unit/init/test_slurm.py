"""What is read of Slurm, in the shapes of real machines and in damaged ones."""

from __future__ import annotations

import pytest

from lumisite.init.slurm import Cluster, read_cluster
from tests.unit.init.answers import BAMBOO, CONFIG, DCCN, LUMI_G, node, partition, slurm

ALL = partition("all")


def names(cluster: Cluster) -> dict[str, list[str]]:
    return {kind.name: [one.name for one in kind.nodes] for kind in cluster.kinds}


def test_config_partitions_and_nodes_are_read() -> None:
    cluster = read_cluster(slurm(ALL + partition("big", "EXCLUSIVE", "64"), node("n1", partitions="all,big")))
    assert cluster.config["SlurmdSpoolDir"] == "/var/spool/slurmd"
    assert cluster.config["TaskProlog"] == "/etc/slurm/task prolog.sh"
    assert "Prolog" not in cluster.config  # (null)
    assert cluster.partitions["big"]["OverSubscribe"] == "EXCLUSIVE"
    (kind,) = cluster.kinds
    assert (kind.name, kind.nodes[0].memory_mib, kind.nodes[0].keys["Partitions"]) == ("cpu", 2000, "all,big")


@pytest.mark.parametrize(
    ("line", "gpus", "memory", "special", "ready"),
    [
        (LUMI_G, ("mi250", 8), 491520, "0,16,32,48,64,80,96,112", True),
        (DCCN, ("nvidia_a100-sxm4-40gb", 4), 511482, "63", True),
        (BAMBOO, ("nvidia_geforce_rtx_5090", 4), 384000, "71,95", False),
        (node("c", gres="gpu:8"), ("", 8), 2000, "", True),
        (node("c", gres="gpu:a:2,gpu:b:1,shard:9"), ("a", 3), 2000, "", True),
    ],
)
def test_nodes_of_real_machines(line: str, gpus: tuple[str, int], memory: int, special: str, ready: bool) -> None:
    names = "".join(map(partition, ("all", "standard-g", "gpu", "shared-gpu")))
    (kind,) = read_cluster(slurm(names, line)).kinds
    (one,) = kind.nodes
    assert (one.gpus, one.memory_mib, one.keys.get("CPUSpecList", ""), one.ready) == (gpus, memory, special, ready)


def test_kinds_are_named_by_what_sets_them_apart() -> None:
    nodes = [
        node("a1", gres="gpu:h100:4"), node("a2", gres="gpu:h100:4"), node("b", gres="gpu:h100:8"), node("c", memory=1900),
        node("d", cores=8), node("e", cores=8, memory=64000), node("f", cores=8, memory=64000, threads=2),
    ]  # fmt: skip
    assert names(read_cluster(slurm(ALL, "".join(nodes)))) == {
        "h100-x4": ["a1", "a2"], "h100-x8": ["b"], "cpu-2c": ["c"], "cpu-16c-2g": ["d"], "cpu-16c-62g-5": ["e"], "cpu-16c-62g-6": ["f"],
    }  # fmt: skip


def test_only_the_partitions_asked_for_count() -> None:
    cluster = read_cluster(slurm(ALL + partition("old"), node("a") + node("b", partitions="old")), ["old"])
    assert (list(cluster.partitions), names(cluster)) == (["old"], {"cpu": ["b"]})


def test_an_answer_that_is_cut_loses_its_last_line_and_says_so() -> None:
    cluster = read_cluster(slurm(ALL, node("a") + node("b")[:-20]))  # what it is can be read, and where it belongs not
    assert names(cluster) == {"cpu": ["a"]}
    assert [finding.code for finding in cluster.findings] == ["slurm-answer-cut"]


def test_names_that_cannot_be_written_are_left_out_and_told() -> None:
    cluster = read_cluster(slurm(ALL + partition("x\x1b[31m") + partition("-rf"), node("a") + node("../b")))
    assert (list(cluster.partitions), names(cluster)) == (["all"], {"cpu": ["a"]})
    found = [(finding.code, finding.values["sort"], finding.subject) for finding in cluster.findings]
    assert found == [
        ("slurm-name-unusable", "PartitionName", "x\x1b[31m"),
        ("slurm-name-unusable", "PartitionName", "-rf"),
        ("slurm-name-unusable", "NodeName", "../b"),
    ]


def test_a_reason_cannot_say_what_a_node_is() -> None:
    (kind,) = read_cluster(slurm(ALL, node("a", reason="Reason=x RealMemory=9 Gres=gpu:b:9"))).kinds
    assert (kind.nodes[0].memory_mib, kind.nodes[0].gpus) == (2000, ("", 0))


@pytest.mark.parametrize("config", ["", "\x00\xff = ", CONFIG[:80]])
def test_no_configuration_is_no_fault(config: str) -> None:
    assert read_cluster(slurm("", "", config)).kinds == ()
