"""The description that is written: what was read, with its source, what was guessed, and what is asked."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from lumisite.findings.catalogue import make_finding
from lumisite.init.describe import Seen, describe_site
from lumisite.init.node import Node, node_of
from lumisite.init.slurm import Cluster, read_cluster
from lumisite.site.load import parse_site
from tests.support.dict_trees import Link
from tests.support.nodes import lumi_node
from tests.unit.init.answers import (
    CONFIG,
    LUMI_G,
    mounts,
    network,
    node,
    partition,
    slurm,
    small,
    told,
)


def seen(nodes: Mapping[str, Node], cluster: Cluster, login: Node | None = None) -> Seen:
    addresses = {"n1": "10.1.0.1", "n1-ib0": "10.2.0.1"}
    return Seen(
        "skerry",
        "2026-11-22",
        cluster,
        login or small(),
        nodes,
        addresses.get,
        lambda tops: tuple(f"{one}/images" for one in tops if one == "/appl"),
    )


CACHES = {"MIOPEN_USER_DB_PATH", "MIOPEN_CUSTOM_CACHE_DIR"}


def written(one: Seen) -> dict[str, Any]:
    """Give the description, which has no faults."""
    text = describe_site(one).text
    parse_site(text.encode(), Path("skerry.yaml"))
    value: dict[str, Any] = yaml.load(text, Loader=getattr(yaml, "CBaseLoader", yaml.BaseLoader))
    return value


def test_a_lumi_node_is_described_as_lumi_is() -> None:
    login = small()
    cluster = read_cluster(slurm(partition("standard-g", "EXCLUSIVE", "1024"), LUMI_G))
    here = mounts({}, tmp="tmpfs", local="ext4")
    value = written(seen({"mi250": node_of(told(lumi_node(changes=here)), "lumi", [])}, cluster, login))
    kind = value["node_kinds"]["mi250"]
    assert (kind["memory_mib"], kind["reserved"]) == ("491520", "0,8,16,24,32,40,48,56")
    assert kind["l3"][7] == {"cores": "56-63", "siblings": "120-127", "numa": "3"}
    assert [gpu["l3"] for gpu in kind["gpus"]] == ["6", "7", "2", "3", "0", "1", "4", "5"]
    assert value["platforms"]["2026-11"]["gpu_bus_ids"]["mi250"][0] == "0000:c1:00.0"
    assert value["fabric"]["carrier"] == "cxi"
    rocm = value["platforms"]["2026-11"]["stacks"]["rocm"]
    assert (rocm["default"], rocm["runs"]) == ("6.3.4", ">=6.3,<6.4")
    assert value["partitions"]["standard-g"]["whole_nodes"] == "yes"
    tmp, local = ({name: one.get(name) for name in ("writable", "in_memory")} for one in value["file_systems"][::-1])
    assert (tmp, local) == ({"writable": "yes", "in_memory": "yes"}, {"writable": None, "in_memory": None})
    assert {one["name"] for one in value["settings"]} >= CACHES


def test_caches_are_left_out_where_no_place_for_them_was_read() -> None:
    cluster = read_cluster(slurm(partition("standard-g", "EXCLUSIVE", "1024"), LUMI_G))
    for here in ({}, mounts({}, local="ext4")):
        one = seen({"mi250": node_of(told(lumi_node(changes=here)), "lumi", [])}, cluster)
        assert not CACHES & {setting["name"] for setting in written(one)["settings"]}
        assert "# guessed: no private directory for caches" in describe_site(one).text


def pci(path: str, pci_class: str, vendor: str) -> dict[str, bytes | Link]:
    here = f"/sys/devices/{path}"
    files: dict[str, bytes | Link] = {f"{here}/class": pci_class.encode(), f"{here}/vendor": vendor.encode()}
    files |= {f"{here}/local_cpulist": b"0-1\n", f"{here}/numa_node": b"0\n"}
    return files | {f"/sys/bus/pci/devices/{path.rpartition('/')[2]}": Link(here)}


def h100() -> Node:
    """Two GPUs, each behind a PCI switch with an adapter of InfiniBand."""
    files: dict[str, bytes | Link] = {"/sys/module/nvidia/version": b"570.172.08\n"}
    files |= {
        "/usr/local/cuda-12.8/x": b"",
        "/usr/local/cuda-13.0/x": b"",
        "/usr/local/cuda": Link("/usr/local/cuda-13.0"),
    }
    files |= {"/usr/src/amdgpu-6.10.5/x": b"", "/opt/rocm-6.3.4/x": b""}  # installed, and not loaded
    files |= {
        "/output/apptainer path": b"/opt/apptainer/bin/apptainer",
        "/output/apptainer": b"apptainer version 1.4.1",
    }
    for number, bus in enumerate(("18", "2a")):
        bridge = f"pci0000:00/0000:{bus}:01.0"
        files |= pci(f"{bridge}/0000:{bus}:02.0/0000:{bus}:00.0", "0x030200", "0x10de")
        adapter, here = f"/sys/devices/{bridge}/0000:{bus}:03.0", f"/sys/class/infiniband/mlx5_{1 - number}"
        files |= {f"{adapter}/numa_node": b"0", f"{here}/device": Link(adapter)}
        files |= {f"{here}/ports/1/link_layer": b"InfiniBand", f"{here}/ports/1/state": b"4: ACTIVE"}
    return small(net=network(eth0=(1000, "10.1.0"), ib0=(400000, "10.2.0")), h100=files)


def test_a_node_with_gpus_and_infiniband() -> None:
    line = node("n1", gres="gpu:h100:2")
    value = written(seen({"h100": h100()}, read_cluster(slurm(partition("gpu") + partition("all"), line))))
    assert value["fabric"]["carrier"] == "IB"
    assert value["fabric"]["adapters"] == ["mlx5_0", "mlx5_1"]
    assert (value["fabric"]["interfaces"], value["fabric"]["host_suffix"]) == (["ib0"], "-ib0")
    assert [gpu["adapter"] for gpu in value["node_kinds"]["h100"]["gpus"]] == ["mlx5_1", "mlx5_0"]
    # The host's default is of a series that the driver does not run.
    cuda = value["platforms"]["2026-11"]["stacks"]["cuda"]
    assert cuda == {"default": "12.8", "driver": "nvidia 570.172.08", "runs": "<13"}
    assert list(value["stacks"]) == ["cuda"]
    assert value["stacks"]["cuda"]["releases"].keys() == {"12.8", "13.0"}
    assert value["runtimes"]["apptainer"]["gpu"] == "nv"
    assert not any(one["name"].startswith("MIOPEN") for one in value["settings"])
    assert value["modules"]["apptainer-AI-bindings"]["version"] == ["cuda"]


@pytest.mark.parametrize("driver", ["i915", "xe"])
def test_each_driver_of_a_vendor_runs_its_stack(driver: str) -> None:
    files = pci("pci0000:00/0000:29:00.0", "0x038000", "0x8086") | {
        f"/sys/module/{driver}/srcversion": b"1AB\n",
        "/opt/intel/oneapi/compiler/2025.0/x": b"",
        "/opt/intel/oneapi/compiler/latest": Link("2025.0"),
    }
    value = written(
        seen({"max": small(files=files)}, read_cluster(slurm(partition("all"), node("n1", gres="gpu:max:1"))))
    )
    assert value["platforms"]["2026-11"]["stacks"]["oneapi"]["driver"] == driver


def test_stacks_of_two_vendors_say_whose_they_are() -> None:
    lines = node("n1", gres="gpu:h100:2") + LUMI_G.replace("Partitions=standard-g", "Partitions=all")
    nodes = {"mi250": node_of(told(lumi_node()), "lumi", []), "h100": h100()}
    value = written(seen(nodes, read_cluster(slurm(partition("all"), lines))))
    stacks = value["platforms"]["2026-11"]["stacks"]
    assert {name: stack.get("kinds") for name, stack in stacks.items()} == {
        "rocm": ["mi250"],
        "cuda": ["h100"],
        "cpe": None,
    }


def test_a_kind_says_its_adapters_where_they_are_not_those_of_the_fabric() -> None:
    lines = node("n1", gres="gpu:h100:2") + LUMI_G.replace("Partitions=standard-g", "Partitions=all")
    nodes = {"mi250": node_of(told(lumi_node()), "lumi", []), "h100": h100()}
    value = written(seen(nodes, read_cluster(slurm(partition("all"), lines))))
    assert value["fabric"]["adapters"] == ["cxi0", "cxi1", "cxi2", "cxi3"]
    assert value["node_kinds"]["h100"]["adapters"] == ["mlx5_0", "mlx5_1"]
    assert [gpu["adapter"] for gpu in value["node_kinds"]["h100"]["gpus"]] == ["mlx5_1", "mlx5_0"]
    assert "adapters" not in value["node_kinds"]["mi250"]


def test_gpus_of_two_vendors_have_a_flag_each() -> None:
    files: dict[str, bytes | Link] = {"/output/apptainer path": b"/usr/bin/apptainer"}
    nodes = {"mi250": node_of(told({**lumi_node(), **files}), "lumi", []), "h100": h100()}
    lines = node("n1", gres="gpu:h100:2") + LUMI_G.replace("Partitions=standard-g", "Partitions=all")
    value = written(seen(nodes, read_cluster(slurm(partition("all"), lines))))
    assert value["runtimes"]["apptainer"]["gpu"] == {"amd": "rocm", "nvidia": "nv"}


def test_a_cache_of_two_domains_is_written_as_one() -> None:
    """As Intel's processors have it, with sub-NUMA clusters on: Leonardo's, by its own numbers."""
    files: dict[str, bytes | Link] = {"/sys/devices/system/cpu/online": b"0-31\n"}
    files |= {f"/sys/devices/system/node/node{at}/cpulist": f"{16 * at}-{16 * at + 15}".encode() for at in (0, 1)}
    for cpu in range(32):
        here = f"/sys/devices/system/cpu/cpu{cpu}"
        files |= {f"{here}/topology/physical_package_id": b"0\n", f"{here}/topology/core_cpus_list": f"{cpu}".encode()}
        files |= {f"{here}/cache/index3/level": b"3\n", f"{here}/cache/index3/shared_cpu_list": b"0-31\n"}
    cluster = read_cluster(slurm(partition("all"), node("n1", sockets=1, cores=32, total=32)))
    (kind,) = written(seen({"cpu": small(files=files)}, cluster))["node_kinds"].values()
    assert kind["l3"] == [
        {"cores": "0-15", "numa": "0", "cache": "0"},
        {"cores": "16-31", "numa": "1", "cache": "0"},
    ]


@pytest.mark.parametrize(
    ("old", "new"), [("=NO", "=EXCLUSIVE"), ("=NO", "=NO Exclusive=NODE"), ("cons_tres", "linear")]
)
def test_whole_nodes_in_the_words_of_each_slurm(old: str, new: str) -> None:
    rows, config = partition("all").replace(f"OverSubscribe{old}", f"OverSubscribe{new}"), CONFIG.replace(old, new)
    for answers, whole in (((rows, config), "yes"), ((partition("all"), CONFIG), "no")):
        value = written(seen({}, read_cluster(slurm(answers[0], node("n1"), answers[1]))))
        assert value["partitions"]["all"]["whole_nodes"] == whole


def test_a_partition_has_the_kinds_that_its_nodes_can_be_told_to_be_of() -> None:
    """Two kinds differ by what a node's kernel says; one by memory alone is named beside them."""
    lines = node("n1") + node("n2") + node("n3", cores=4, total=8) + node("n4", cores=4, total=8, memory=9000)
    one = seen({}, read_cluster(slurm(partition("all"), lines)))
    value = written(one)
    wide, most = (next(name for name in value["node_kinds"] if end in name) for end in ("8c-2g", "2c"))
    assert value["partitions"]["all"]["node_kind"] == [most, wide]
    other = f"# guessed: all also has nodes of {wide.replace('2g', '9g')}, which on a node cannot be told from these"
    assert other in describe_site(one).text
    assert (
        written(seen({}, read_cluster(slurm(partition("all"), node("n1")))))["partitions"]["all"]["node_kind"] == "cpu"
    )


def test_the_least_memory_of_a_kind_is_what_jobs_can_have() -> None:
    lines = node("n1", memory=2010) + node("n2", memory=2000) + node("n3", memory=2005)
    (kind,) = written(seen({}, read_cluster(slurm(partition("all"), lines))))["node_kinds"].values()
    assert kind["memory_mib"] == "2000"


def test_another_name_of_apptainer_is_no_runtime_of_its_own() -> None:
    says: dict[str, bytes | Link] = {
        "/output/apptainer path": b"/usr/bin/apptainer",
        "/output/apptainer": b"apptainer version 1.4.5",
    }
    says |= {"/output/singularity path": b"/usr/bin/singularity", "/output/singularity": b"apptainer version 1.4.5"}
    cluster = read_cluster(slurm(partition("all"), node("n1")))
    assert list(written(seen({"cpu": small(says=says)}, cluster))["runtimes"]) == ["apptainer"]
    says["/output/singularity"] = b"singularity-ce version 4.1.3"
    runtimes = written(seen({"cpu": small(says=says)}, cluster))["runtimes"]
    assert {name: keys["prefix"] for name, keys in runtimes.items()} == {
        "apptainer": "APPTAINER",
        "singularity": "SINGULARITY",
    }


def test_pyxis_and_podman_hpc_are_runtimes_of_their_own() -> None:
    says: dict[str, bytes | Link] = {"/output/srun --help": b"--container-image", "/output/enroot": b"3.4.1"}
    says |= {"/output/podman-hpc path": b"/usr/bin/podman-hpc", "/output/podman-hpc": b"podman-hpc 1.2.2"}
    cluster = read_cluster(slurm(partition("all"), node("n1")))
    one = seen({"cpu": small(says=says)}, cluster)
    runtimes = written(one)["runtimes"]
    assert {name: (keys["emit"], keys["variant"]) for name, keys in runtimes.items()} == {
        "pyxis": ("cdi", "pyxis, enroot 3.4.1"),
        "podman-hpc": ("cdi", "podman-hpc 1.2.2"),
    }
    question = "# QUESTION: what reads CDI devices here? podman does, enroot does not\n  pyxis:\n"
    assert describe_site(one).text.count(question) == 1
    says |= {"/output/apptainer path": b"/usr/bin/apptainer"}
    one = seen({"cpu": small(says=says)}, cluster)
    assert list(written(one)["runtimes"]) == ["apptainer", "pyxis", "podman-hpc"]


def test_home_is_not_bound_and_neither_is_what_the_login_node_lacks() -> None:
    table = mounts({}, users="nfs4", shared="lustre", local="xfs")
    cluster = read_cluster(slurm(partition("all"), node("n1")))
    login = small(m=mounts({}, users="nfs4", shared="lustre"), home={"/output/HOME": b"/users/admin"})
    value = written(seen({"cpu": small(m=table)}, cluster, login))
    assert {one["path"]: one.get("where") for one in value["file_systems"]} == {
        "/local": None,
        "/users": None,
        "/shared": "apptainer-userfilesystems",
    }
    assert value["root"] == "/shared/lumisite"


def test_a_facts_file_has_no_mounts_and_those_of_the_login_node_are_a_question() -> None:
    login = small(m=mounts({}, users="nfs4", shared="lustre", **{"a b": "nfs4", "x$y": "nfs4"}))
    captured = Node(small().facts, told({}))
    one = seen({"cpu": captured}, read_cluster(slurm(partition("all"), node("n1"))), login)
    assert written(one)["file_systems"] == []
    assert re.findall(r"# QUESTION: (/.*?) \(.*?: (.*?)\?", describe_site(one).text) == [
        ("/a b", "is it for users"),
        ("/shared", "is it on compute nodes too"),
        ("/users", "is it on compute nodes too"),
        ("/x$y", "is it for users"),
    ]


def test_what_some_nodes_have_is_a_question() -> None:
    lines = node("n1", gres="gpu:h100:2") + node("n2")
    names = {"h100": "g1", "cpu": "n2"}
    tables = {"h100": mounts({}, shared="lustre", local="xfs"), "cpu": mounts({}, shared="lustre")}
    nodes = {
        kind: small(m=tables[kind], host={"/proc/sys/kernel/hostname": name.encode()}) for kind, name in names.items()
    }
    one = seen(nodes, read_cluster(slurm(partition("all"), lines)), small(m=tables["cpu"]))
    (shared,) = written(one)["file_systems"]
    assert (shared["path"], shared["source"]) == ("/shared", "here: read on g1, n2, 2026-11-22")
    assert (
        "# QUESTION: /local (xfs, on g1): is it for users? Not all nodes that answered have it"
        in describe_site(one).text
    )


def test_questions_and_guesses_are_told() -> None:
    cluster = read_cluster(
        slurm(partition("all"), node("n1", cores=4, threads=2, gres="gpu:h100:2", special=" CoreSpecCount=1"))
    )
    text = describe_site(seen({}, cluster)).text
    assert text.count("# QUESTION: ") == 2
    for command in (
        "lscpu -e",
        "lstopo",
        "command -v apptainer singularity podman-hpc",
        "ip -brief address",
        "findmnt",
        "module --version",
    ):
        assert command in text


def test_no_text_of_the_machine_gets_out_of_its_place() -> None:
    evil = 'x"\n  evil: yes\x1b[31m \u202e'
    files = {
        "/etc/os-release": f"PRETTY_NAME='{evil}'\nID=x: y".encode(),
        "/output/apptainer path": b"/opt/a pt/apptainer",
        "/output/apptainer": b"ver: {1}, [2] # \x1b",
    }
    config = CONFIG.replace("task prolog.sh", "\x1b[31m\u202e.sh")
    cluster = read_cluster(slurm(partition("all"), node("n1", gres="gpu:\x1b[31m:1"), config))
    value = written(seen({"cpu": small(evil=files)}, cluster))
    assert "evil" not in str(value.keys())
    plain: dict[str, bytes | Link] = {"/etc/os-release": b"PRETTY_NAME='a: [b] # c'"}
    noted = replace(
        seen({"cpu": small(os=plain)}, cluster),
        findings=(make_finding("slurm-answer-cut", "a\nlumisite: 3", start="x"),),
    )
    value = written(noted)
    assert (value["lumisite"], value["platforms"]["2026-11"]["os"]) == ("2", "a: [b] # c")
    text = describe_site(seen({"cpu": small(evil=files)}, cluster)).text
    assert all(line.isprintable() for line in text.split("\n"))


def test_a_node_without_answer_has_what_slurm_says() -> None:
    cluster = read_cluster(slurm(partition("all"), node("n1", cores=4, threads=2)))
    (kind,) = written(seen({}, cluster))["node_kinds"].values()
    assert kind["l3"] == [
        {"cores": "0-3", "siblings": "8-11", "numa": "0", "package": "0"},
        {"cores": "4-7", "siblings": "12-15", "numa": "1", "package": "1"},
    ]


def test_a_facts_file_that_counts_more_threads_than_cpus_has_cores_all_the_same() -> None:
    captured = Node(replace(small().facts, threads_per_core=8), told({}))
    value = written(seen({"cpu": captured}, read_cluster(slurm(partition("all"), node("n1")))))
    assert value["node_kinds"]["cpu"]["l3"][0]["cores"]
