"""What a few lines of a log show; none of them is proof of a run."""

from __future__ import annotations

from pathlib import Path

import pytest

from lumisite.cli import main
from lumisite.validate.nccl_log import scan
from lumisite.validate.transport import Expectation, Result, judge

RANK = "nid005001:7000:7040 [0] NCCL INFO "
OTHER = "nid005002:7001:7041 [1] NCCL INFO "
ANY = Expectation()


def shown(text: str, expectation: Expectation = ANY) -> Result:
    return judge(scan([("log", [text.encode()])]), expectation)


#: Lines, and what they show: plugin in use, provider, network, GPU Direct RDMA, interfaces.
FRAGMENTS = {
    "interfaces of sockets": (
        f"{RANK}NET/Socket : Using [0]nmn0:10.252.1.7<0> [1]hsn0:fe80::1%hsn0<0>",
        ("no", "none", "Socket", "no", ["nmn0", "hsn0"]),
    ),
    "a device of sockets": (
        f"{RANK}NET/Socket : GPU Direct RDMA Disabled for HCA 0 'hsn0'",
        ("no", "none", "Socket", "no", ["hsn0"]),
    ),
    "the plugin does not start, and sockets are opened": (
        (
            "n1:7:8 [1] nccl_net_ofi_create_plugin:259 NCCL WARN NET/OFI aws-ofi-nccl initialization failed\n"
            "n1:7:8 [1] NCCL INFO NET/Socket : Using [0]eth0:10.0.227.37<0>"
        ),
        ("no", "none", "Socket", "no", ["eth0"]),
    ),
    "sockets for the bootstrap, then adapters": (
        f"{RANK}NET/Socket : Using [0]eno1:10.1.1.1<0>\n{RANK}NET/IB : Using [0]mlx5_0:1/IB ; OOB eno1:10.1.1.1<0>",
        ("no", "none", "IB", "unknown", ["mlx5_0"]),
    ),
    "adapters of a plugin over verbs": (
        f"{RANK}NET/Plugin: Loaded net plugin NCCL RDMA Plugin v6 (v6)\n{RANK}NET/IB : Using [0]mlx5_0:1/IB",
        ("unknown", "unknown", "unknown", "unknown", []),
    ),
    "devices of a plugin": (
        f"{RANK}NET/AWS Libfabric : GPU Direct RDMA Enabled for HCA 0 'cxi0'",
        ("yes", "unknown", "AWS Libfabric", "unknown", ["cxi0"]),
    ),
    "one process each says one thing": (
        f"{RANK}Using network Libfabric\n{OTHER}NET/OFI Selected provider is efa (found 3 nics)\n{OTHER}Bootstrap: Using e0",
        ("yes", "efa", "Libfabric", "unknown", []),
    ),
    "channels of one rank, one way": (
        f"{RANK}Channel 00/0 : 4092[d6000] -> 0[d6000] [receive] via NET/AWS Libfabric/2/GDRDMA comm 0x9b nRanks 4096",
        ("yes", "unknown", "AWS Libfabric", "yes", []),
    ),
    "channels of one rank, not by GPU Direct": (
        f"{RANK}Ring 00 : 7 -> 8 [receive] via NET/AWS Libfabric/0",
        ("yes", "unknown", "AWS Libfabric", "no", []),
    ),
    "a plugin that finds no provider": (
        "n1:7:8 [1] get_provider:99 NCCL WARN NET/OFI Could not find any optimal provider",
        ("no", "none", "unknown", "unknown", []),
    ),
    "a plugin over sockets": (
        f"{RANK}Using network FastSocket\n{RANK}Channel 00/0 : 0[40] -> 4[40] [send] via NET/FastSocket/0",
        ("yes", "none", "FastSocket", "no", []),
    ),
}


@pytest.mark.parametrize("name", FRAGMENTS)
def test_a_fragment_shows_what_it_says_and_proves_nothing(name: str) -> None:
    text, answers = FRAGMENTS[name]
    result = shown(text)
    found = (result.plugin_in_use, result.provider, result.network, result.gdr, list(result.interfaces))
    assert found == answers
    asked = (Expectation(), Expectation("cxi"), Expectation("efa", 4, require_gdr=True), Expectation("IB"))
    assert all(shown(text, one).verdict != "pass" for one in asked)


def test_a_line_of_odd_bytes_is_shown_on_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "log").write_bytes(RANK.encode() + b"NET/OFI Selected provider is cxi\x1b]0;x\x07\xff\n")
    main(["transport", "log"])
    assert "\x1b" not in capsys.readouterr().out
