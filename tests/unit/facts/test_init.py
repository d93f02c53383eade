"""`init`: what facts of nodes tell is written, and what they do not tell is named."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from lumisite.cli import main
from lumisite.errors import SiteError
from lumisite.facts.capture import capture_undescribed
from lumisite.facts.facts import Adapter, CpuGroup, Device, Driver, Facts, Interface, Releases, format_facts
from lumisite.facts.init import describe_site
from lumisite.site.load import parse_site
from lumisite.site.model import Site
from tests.support.dict_trees import DictTree
from tests.support.nodes import lumi_node

DATE = "2026-01-31"
Output = pytest.CaptureFixture[str]
FAST, SLOW = Interface(state="up", speed_mbit=100_000, numa=0), Interface(state="up", speed_mbit=1_000, numa=0)
CPU_NODE = Facts("", host="n1.fjord", cpus=(CpuGroup("0-3", 0),), interfaces={"ib0": FAST, "eth0": SLOW})


@pytest.fixture(name="gpu_node", scope="module")
def _gpu_node() -> Facts:
    return capture_undescribed(DictTree(lumi_node())).facts


def faults(text: str) -> list[str]:
    with pytest.raises(SiteError) as refused:
        parse_site(text.encode(), Path("site.yaml"))
    return [finding.subject for finding in refused.value.findings]


def filled(text: str) -> Site:
    """Take each line that a reader is to fill in as it stands there."""
    example = re.compile(r"^( *)# ((?:  )*(?:- \{|(?!guessed)[\w.]+:).*)$", re.MULTILINE)
    return parse_site(example.sub(r"\1\2", text).encode(), Path("site.yaml"))


def test_what_no_file_tells_is_left_for_check(gpu_node: Facts) -> None:
    text = describe_site([gpu_node], DATE)
    missing = ["file_systems", "name", "partitions", "root", "runtimes", "support", "title"]
    assert faults(text) == [*missing, "platforms.2026-01.since", "node_kinds.gpu.memory_mib"]
    assert all(re.search(rf"^ *# {name.rpartition('.')[2]}:", text, re.MULTILINE) for name in faults(text))


def test_filled_in_it_is_the_site_of_the_node(gpu_node: Facts) -> None:
    site = filled(describe_site([CPU_NODE, gpu_node, gpu_node, CPU_NODE], DATE))
    assert site.fabric.interfaces == ("hsn0", "hsn1", "hsn2", "hsn3")
    assert (site.fabric.carrier, site.fabric.adapters) == ("cxi", ("cxi0", "cxi1", "cxi2", "cxi3"))
    assert [*site.node_kinds] == ["cpu", "gpu", "gpu-2", "cpu-2"]
    kind, platform = site.node_kinds["gpu"], site.platforms["2026-01"]
    assert [gpu.l3 for gpu in kind.gpus] == [6, 7, 2, 3, 0, 1, 4, 5]
    assert (kind.l3[0].cores, kind.l3[0].siblings, kind.l3[-1].numa) == (tuple(range(8)), tuple(range(64, 72)), 3)
    assert kind.source == "here: lumisite facts on nid005001"
    assert platform.os == "SLES 15 SP6"
    assert {name: str(release) for name, release in platform.defaults.items()} == {"cpe": "25.03", "rocm": "6.3.4"}
    assert [str(release) for release in platform.stacks["cpe"].supported] == ["25.03", "25.09"]
    assert platform.stacks["rocm"].driver == "amdgpu 6.10.5"
    assert len(platform.gpu_bus_ids["gpu"]) == 8


def test_of_a_machine_without_anything_all_is_missing() -> None:
    text = describe_site([Facts("")], DATE)
    assert {"fabric.interfaces", "node_kinds.cpu.l3", "platforms.2026-01.os"} <= {*faults(text)}
    assert "here: lumisite facts on an unnamed node" in text
    assert filled(text).stacks == {}


def test_interfaces_without_a_device_count_where_none_has_one() -> None:
    net = {f"/sys/class/net/{name}/operstate": b"up\n" for name in ("lo", "eth0")}
    assert [*capture_undescribed(DictTree(net)).facts.interfaces] == ["eth0"]
    assert "lo" not in capture_undescribed(DictTree({**lumi_node(), **net})).facts.interfaces


@pytest.mark.parametrize(
    ("interfaces", "fast", "management"),
    [
        ({"eth0": SLOW, "ib0": replace(FAST, state="down")}, ("eth0",), ()),
        ({"eth0": SLOW, "hsn10": FAST, "hsn9": FAST}, ("hsn9", "hsn10"), ("eth0",)),
    ],
)
def test_the_fastest_interfaces_carry_data(
    interfaces: dict[str, Interface], fast: tuple[str, ...], management: tuple[str, ...]
) -> None:
    fabric = filled(describe_site([replace(CPU_NODE, interfaces=interfaces)], DATE)).fabric
    assert (fabric.interfaces, fabric.management) == (fast, management)


BUS = "0000:01:00.0"


@pytest.mark.parametrize(
    ("adapter", "carrier"),
    [
        (Adapter(kind="infiniband", link="InfiniBand", port="ACTIVE"), "IB"),
        (Adapter(kind="infiniband", link="InfiniBand", port="DOWN"), "tcp"),
        (Adapter(BUS, kind="infiniband", link="Ethernet", port="ACTIVE"), "RoCE"),
        (Adapter("0000:02:00.0", kind="infiniband", link="Ethernet", port="ACTIVE"), "tcp"),
        (Adapter(kind="infiniband", driver="efa", link="Unspecified", port="ACTIVE"), "EFA"),
    ],
)
def test_the_carrier_is_that_of_an_adapter_of_a_fast_interface(adapter: Adapter, carrier: str) -> None:
    node = replace(CPU_NODE, interfaces={"ens1": replace(FAST, bus=BUS)}, nics={"mlx5_0": adapter})
    fabric = filled(describe_site([node], DATE)).fabric
    assert (fabric.carrier, fabric.adapters) == (carrier, () if carrier == "tcp" else ("mlx5_0",))


def test_gpus_without_a_place_and_releases_that_were_not_read_are_named() -> None:
    gpu = replace(CPU_NODE, gpus=(Device("0000:c1:00.0", 7),), drivers={"nvidia": Driver("570.86.15")})
    text = describe_site([gpu], DATE)
    assert "# not read: where the 1 GPUs are" in text
    assert "# not read: releases of the GPU software that images alone have" in text
    stack = describe_site([replace(gpu, stacks={"cuda": Releases(("12.4", "12.8", "12-x"))})], DATE)
    assert "# guessed: the newest, as no link names a default" in stack
    assert str(filled(stack).platforms["2026-01"].defaults["cuda"]) == "12.8"


@pytest.mark.parametrize("text", ["a\nb: c", "'\"", "# x", "{", "\x1b[1m"])
def test_a_text_of_a_node_stays_a_text(text: str) -> None:
    written = describe_site([replace(CPU_NODE, host=text, kernel=text)], DATE)
    assert "\x1b" not in written
    assert "name" in faults(written)


def test_init_takes_facts_files_or_this_node(tmp_path: Path, capsys: Output, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("cpu.json").write_text(format_facts(CPU_NODE))
    assert main(["init", "cpu.json", "cpu.json", "-o", "site.yaml"]) == 0
    assert "from the facts of n1, n1, " in Path("site.yaml").read_text()
    assert main(["check", "site.yaml"]) == 2
    assert "site.yaml:3:1: name: is missing" in capsys.readouterr().out
    before = Path("site.yaml").read_bytes()
    assert main(["init", "cpu.json", "-o", "site.yaml"]) == 2
    assert "[file-exists]" in capsys.readouterr().err
    assert Path("site.yaml").read_bytes() == before
    assert main(["init", "nothing.json"]) == 2
    capsys.readouterr()
    assert main(["init"]) == 0
    assert capsys.readouterr().out.startswith("# Written by `lumisite init`")
