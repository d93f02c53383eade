"""What links counted: the judge on counters of nodes, and the script on this machine and on files as adapters have them."""

from __future__ import annotations

import importlib.util
import json
import socket
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from lumisite.validate.lines import Gate
from lumisite.validate.probes.links import link_lines
from lumisite.validate.probes.probe import Line, Vector, scripts
from lumisite.vendors import all_fabrics
from tests.support.records import a_job

FOUR = ("n1", "n2", "n3", "n4")
JOB = a_job(FOUR, 1, "ddp")
BAD = "n2"


def records(nodes: Sequence[str] = FOUR) -> dict[str, dict[str, Any]]:
    """Healthy nodes: some drops and resends, as there are everywhere."""
    return {
        name: {
            "host": name,
            "addresses": {f"10.0.{rail}.{number}": f"hsn{rail}" for rail in range(2)},
            "links": {
                "hsn0": {"rx_packets": 50_000, "tx_packets": 50_000, "rx_dropped": 2},
                "mlx5_0/1": {"local_ack_timeout_err": 1},
                "tcp": {"OutSegs": 90_000, "RetransSegs": 7},
            },
            "streams": [stream(number, other) for other in range(1, len(nodes) + 1) if other != number],
        }
        for number, name in enumerate(nodes, start=1)
    }


def stream(source: int, target: int, sent: int = 20_000, resent: int = 1) -> dict[str, Any]:
    return {"from": f"10.0.1.{source}", "to": f"10.0.1.{target}", "sent": sent, "resent": resent}


def judged(nodes: dict[str, dict[str, Any]]) -> list[Line]:
    # As they come from disk.
    return link_lines(json.loads(json.dumps([*nodes.values()])), a_job(tuple(nodes), 1, "ddp"))


def gates(nodes: dict[str, dict[str, Any]]) -> list[Gate]:
    return [line for line in judged(nodes) if isinstance(line, Gate)]


@pytest.mark.parametrize(("got_twice", "lost"), [(0, 400), (100, 300), (395, None), (500, None)])
def test_what_a_peer_has_got_twice_was_not_lost(got_twice: int, lost: int | None) -> None:
    every = records()
    every[BAD]["streams"][0] |= {"resent": 400, "got_twice": got_twice}
    assert [gate.values["resent"] for gate in gates(every)] == ([] if lost is None else [lost])


@pytest.mark.parametrize("nodes", [FOUR, FOUR[:2], FOUR[:1], ()])
def test_links_that_are_all_alike_are_no_finding_but_kept(nodes: Sequence[str]) -> None:
    lines = judged(records(nodes))
    assert not any(isinstance(line, Gate) for line in lines)
    kept = {(line.series, line.nodes, line.values) for line in lines if isinstance(line, Vector)}
    assert {series for series, _, _ in kept} == ({f"ddp/links/{name}/{len(nodes)}n" for name in (
        "hsn0_rx_dropped", "mlx5_0/1_local_ack_timeout_err", "tcp_RetransSegs")} if nodes else set())  # fmt: skip
    assert len(kept) == 3 * len(nodes)


@pytest.mark.parametrize(
    ("link", "counters"),
    [
        ("hsn0", {"rx_errors": 30}),
        ("hsn0", {"rx_dropped": 4000}),
        ("hsn1", {"carrier_changes": 2}),
        ("mlx5_0/1", {"symbol_error": 99}),
        ("cxi1", {"hni_pcs_uncorrected_cw": 40}),
    ],
)
@pytest.mark.parametrize("nodes", [FOUR, FOUR[:2]])
def test_a_link_that_alone_loses_is_named(link: str, counters: dict[str, int], nodes: Sequence[str]) -> None:
    every = records(nodes)
    every[BAD]["links"].setdefault(link, {}).update(counters)
    (gate,) = gates(every)
    assert (gate.gate, gate.code, gate.nodes, gate.asked) == ("links", "link-errors", (BAD,), tuple(nodes))
    assert gate.values["subject"] == link
    assert gate.values["counters"] == tuple(f"{name} +{value}" for name, value in counters.items())


@pytest.mark.parametrize("counters", [{"rx_dropped": 4}, {"rx_errors": 5}, {"rx_packets": 10**9, "rx_dropped": 20_000}])
def test_a_few_losses_are_no_finding(counters: dict[str, int]) -> None:
    every = records()
    every[BAD]["links"]["hsn0"].update(counters)
    assert gates(every) == []


def test_what_others_have_too_is_no_finding() -> None:
    every = records()
    every[BAD]["links"]["hsn0"]["rx_errors"] = 500
    every["n4"]["links"]["hsn1"] = {"rx_errors": 60}
    assert gates(every) == []


def lossy(every: dict[str, dict[str, Any]], *edges: tuple[int, int], resent: int = 600) -> dict[str, dict[str, Any]]:
    for source, target in edges:
        streams = every[FOUR[source - 1]]["streams"]
        streams[:] = [each for each in streams if each["to"] != f"10.0.1.{target}"]
        streams.append(stream(source, target, resent=resent))
    return every


@pytest.mark.parametrize(
    ("edges", "node"),
    [
        ([(2, 1), (2, 3), (2, 4)], "n2"),
        ([(1, 2), (3, 2), (4, 2)], "n2"),
        ([(2, 1), (3, 2)], "n2"),
    ],
)
def test_the_node_that_all_bad_connections_share_is_named(edges: list[tuple[int, int]], node: str) -> None:
    (gate,) = gates(lossy(records(), *edges))
    assert (gate.code, gate.verdict, gate.nodes) == ("link-resends", "fail", (node,))
    assert gate.values["subject"] == "hsn1"
    assert gate.values["part"] == pytest.approx(0.03)


def test_of_one_bad_connection_the_end_counts_that_loses_elsewhere_too() -> None:
    """As in a ring, where each node sends much to one other."""
    every = lossy(records(), (2, 3))
    (gate,) = gates(every)
    assert (gate.code, gate.verdict, gate.nodes, gate.values["either"]) == (
        *("link-resends", "inconclusive"),
        *(("n2", "n3"), "n2, n3"),
    )
    for source, target, node in ((1, 2, "n2"), (3, 4, "n3")):
        (gate,) = gates(lossy(lossy(records(), (2, 3)), (source, target), resent=12))
        assert (gate.verdict, gate.nodes) == ("fail", (node,))


def test_losses_all_over_are_no_finding() -> None:
    assert gates(lossy(records(), (1, 2), (2, 3), (3, 4), (4, 1))) == []
    assert gates(lossy(records(), (1, 2), (3, 4))) == [], "no node is an end of both"
    assert gates(lossy(lossy(records(), (2, 1), resent=300), (3, 4), resent=90)) == [], "others lose nearly as much"
    assert gates(lossy(records(), (2, 1), resent=90)) == [], "so few are noise"


def test_losses_of_connections_that_carry_little_hide_nothing() -> None:
    every = lossy(records(), (2, 1), (2, 3))
    every["n4"]["streams"] = [stream(4, 1, 1500, 12), stream(4, 2, 6000, 46)]
    (gate,) = gates(every)
    assert gate.nodes == (BAD,)


def test_errors_of_the_link_come_before_what_is_sent_again() -> None:
    every = lossy(records(), (2, 1), (2, 3))
    every[BAD]["links"]["hsn1"] = {"tx_errors": 300}
    (gate,) = gates(every)
    assert gate.code == "link-errors"


@pytest.mark.parametrize("odd", [None, 3, "x", [], {"hsn0": 3}, {"hsn0": {"rx_errors": None}}, {"tcp": {"x": "y"}}])
def test_whatever_a_record_holds_nothing_breaks(odd: Any) -> None:
    every = records()
    every[BAD].update(links=odd, streams=odd, addresses=odd)
    every["n3"]["streams"] = [odd, {"from": odd, "to": "10.0.1.1", "sent": "x"}]
    assert gates(every) == []


# ---- the script


@pytest.fixture
def links(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The module as ranks import it."""
    monkeypatch.syspath_prepend(str(scripts()["lumisite_links.py"].parent))
    spec = importlib.util.spec_from_file_location("lumisite_links", scripts()["lumisite_links.py"])
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.delitem(sys.modules, "lumisite_record", raising=False)
    return module


DEV = """Inter-|   Receive                                                |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier compressed
    lo: 1 1 0 0 0 0 0 0 1 1 0 0 0 0 0 0
  hsn0:1000 11 12 13 14 15 0 0 2000 21 22 23 24 0 25 0
"""
SNMP = "Tcp: RtoMin OutSegs RetransSegs InErrs\nTcp: 200 99 3 1\n"


def test_counters_are_read_where_kernel_and_adapters_have_them(tmp_path: Path, links: ModuleType) -> None:
    for path, text in {
        "proc/net/dev": DEV,
        "proc/net/snmp": SNMP,
        "sys/class/net/hsn0/carrier_changes": "2\n",
        "sys/class/infiniband/mlx5_0/ports/1/counters/symbol_error": "7\n",
        "sys/class/infiniband/mlx5_0/ports/1/counters/port_xmit_data": "7\n",
        "sys/class/infiniband/mlx5_0/ports/1/hw_counters/req_cqe_flush_error": "7\n",
        "sys/class/infiniband/mlx5_0/ports/1/hw_counters/out_of_sequence": "N/A\n",
        "sys/class/cxi/cxi0/device/telemetry/hni_pcs_uncorrected_cw": "5@1700000000.5\n",
    }.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    patterns = [pattern for fabric in all_fabrics() for pattern in fabric.counters]
    found = links.counters(list(dict.fromkeys(patterns)), f"{tmp_path}/")
    assert found == {
        "hsn0": {"rx_packets": 11, "rx_errors": 12, "rx_dropped": 13, "rx_fifo_errors": 14, "rx_frame_errors": 15,
                 "tx_packets": 21, "tx_errors": 22, "tx_dropped": 23, "tx_fifo_errors": 24, "tx_carrier_errors": 25,
                 "carrier_changes": 2},
        "mlx5_0/1": {"symbol_error": 7},
        "cxi0": {"hni_pcs_uncorrected_cw": 5},
        "tcp": {"OutSegs": 99, "RetransSegs": 3, "InErrs": 1},
    }  # fmt: skip
    assert links.counters(patterns, f"{tmp_path}/none/") == {"tcp": {}}
    later = {**found, "hsn0": {**found["hsn0"], "rx_errors": 20, "tx_errors": 1}, "new": {"x": 1}}
    assert links.growth(found, later) == {"hsn0": {"rx_errors": 8}}


def test_connections_of_this_process_tell_what_they_sent(links: ModuleType) -> None:
    """Two ends on one machine have other addresses, as all of 127.0.0.0/8 are its own."""
    with socket.create_server(("127.0.0.2", 0)) as server:
        taken: list[socket.socket] = []
        thread = threading.Thread(target=lambda: taken.append(server.accept()[0]))
        thread.start()
        with socket.create_connection(server.getsockname(), source_address=("127.0.0.3", 0)) as client:
            thread.join()
            client.sendall(bytes(1000))
            found = {(each["from"], each["to"]): each for each in links.streams()}
            assert client.fileno() >= 0
        taken[0].close()
    there = found["127.0.0.3", "127.0.0.2"]
    assert there["sent"] >= 2
    assert there["resent"] == there["got_twice"] == 0
    assert ("127.0.0.2", "127.0.0.3") in found
    assert links.addresses()["127.0.0.1"] == "lo"
    assert links.driver("none0") == {}
