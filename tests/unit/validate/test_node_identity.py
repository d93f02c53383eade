"""Who nodes are: names, addresses and who answers there, on records of healthy nodes of several sites, one changed."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lumisite.validate.probes.probe import Expected, scripts
from tests.support.records import a_job
from tests.unit.validate.test_node_judge import FOUR, TWO, healthy, lines, summary

INTERFACES = ("hsn0", "hsn1", "hsn2", "hsn3")
Records = dict[str, dict[str, Any]]


def address(name: str, network: int) -> str:
    return f"10.{network}.0.{name[1:]}"


def mac(name: str, network: int) -> str:
    return f"02:00:00:00:0{network}:0{name[1:]}"


def in_hosts_file(asker: str, name: str) -> list[str]:
    """As on the twin: plain names lead to the management network, and each interface has a name."""
    return [
        f"{name} {address(name, 0)}",
        *(f"{name}-{each} {address(name, at + 1)}" for at, each in enumerate(INTERFACES)),
    ]


def by_interface(asker: str, name: str) -> list[str]:
    """Plain names lead to the first high-speed interface, and no other names are known."""
    return [f"{name} {address(name, 1)}", *([f"{name}-{each}" for each in INTERFACES] if asker == name else [])]


def by_itself(asker: str, name: str) -> list[str]:
    """A node knows its own name by a loopback address, and only others see what the name server says."""
    return [f"{name} 127.0.1.1"] if asker == name else [f"{name} fd00::{name[1:]} {address(name, 0)}"]


def site_of(job: Expected, resolver: Callable[[str, str], list[str]]) -> Records:
    """Records of healthy nodes, each asked for its own names and those of all others."""
    records = {}
    for at, name in enumerate(job.nodes):
        links = ("eth0", *INTERFACES)
        following = job.nodes[(at + 1) % len(job.nodes)]
        identity = {
            "uname": f"{name}.site.example",
            "addresses": [
                *(f"{link} {address(name, each)}" for each, link in enumerate(links)),
                f"eth0 fd00::{name[1:]}",
                "docker0 172.17.0.1",
            ],
            "macs": ["lo 00:00:00:00:00:00", *(f"{link} {mac(name, each)}" for each, link in enumerate(links))],
            "names": [line for other in (name, *(n for n in job.nodes if n != name)) for line in resolver(name, other)],
            # A Linux host answers for all its addresses on each interface.
            "answers": [f"{address(following, each)} {mac(following, 1)}" for each in range(1, 5)],
        }
        records[name] = healthy(name) | {"identity": identity}
    return records


def found(records: Records, job: Expected = FOUR) -> list[tuple[str, object, tuple[str, ...]]]:
    return [line for line in summary(lines([*records.values()], job)) if line[0] != "node-fine"]


def replaced(records: Records, name: str, key: str, old: str, new: str) -> None:
    lines_of = records[name]["identity"][key]
    assert old in lines_of
    records[name]["identity"][key] = [new if line == old else line for line in lines_of]


@pytest.mark.parametrize("job", [FOUR, TWO, a_job(("n1",), 1, "node")], ids=["four", "two", "one"])
@pytest.mark.parametrize("resolver", [in_hosts_file, by_interface, by_itself, lambda *_: []])
def test_however_a_site_names_its_nodes_they_pass(job: Expected, resolver: Callable[[str, str], list[str]]) -> None:
    records = site_of(job, resolver)
    assert found(records, job) == []
    for record in records.values():
        record["identity"] |= {"uname": f"x1000c0s{record['host'][1:]}b0n0", "addresses": [], "macs": [], "answers": []}
    assert found(records, job) == []


@pytest.mark.parametrize("job", [FOUR, TWO], ids=["four", "two"])
def test_swapped_host_names_are_told_of_both_nodes_and_once(job: Expected) -> None:
    records = site_of(job, in_hosts_file)
    for name, other in (("n1", "n2"), ("n2", "n1")):
        records[name]["identity"]["uname"] = other
    assert found(records, job) == [("host-name-differs", None, ("n1",)), ("host-name-differs", None, ("n2",))]
    records["n1"]["identity"]["uname"] = "n1"
    records["n2"]["identity"]["uname"] = "localhost"
    (gate, _) = lines([*records.values()], job)
    assert (gate.code, gate.values["found"], gate.nodes) == ("host-name-differs", "localhost", ("n2",))


@pytest.mark.parametrize("job", [FOUR, TWO], ids=["four", "two"])
def test_swapped_addresses_are_told_of_both_nodes_and_once(job: Expected) -> None:
    records = site_of(job, in_hosts_file)
    one, two = records["n1"]["identity"], records["n2"]["identity"]
    one["addresses"], two["addresses"] = two["addresses"], one["addresses"]
    one["macs"], two["macs"] = two["macs"], one["macs"]
    assert [(code, nodes) for code, _, nodes in found(records, job)] == [
        ("host-name-misleads", ("n1",)),
        ("host-name-misleads", ("n2",)),
    ]


@pytest.mark.parametrize("job", [FOUR, TWO], ids=["four", "two"])
def test_an_entry_that_leads_to_the_management_network_is_the_node_s_that_has_it(job: Expected) -> None:
    records = site_of(job, in_hosts_file)
    for each, interface in enumerate(INTERFACES, 1):
        replaced(records, "n2", "names", f"n1-{interface} {address('n1', each)}", f"n1-{interface} {address('n1', 0)}")
    (gate, _) = lines([*records.values()], job)
    assert (gate.code, gate.values["subject"], gate.nodes) == ("host-name-misleads", "n1-hsn0", ("n2",))
    assert gate.values["interface"] == "eth0"
    assert gate.values["more"] == ("n1-hsn1", "n1-hsn2", "n1-hsn3")
    plain = site_of(job, by_interface)
    replaced(plain, "n2", "names", f"n1 {address('n1', 1)}", f"n1 {address('n1', 0)}")
    assert found(plain, job) == [("host-name-misleads", "n1", ("n2",))]


def test_a_name_that_leads_all_nodes_astray_is_the_named_node_s() -> None:
    records = site_of(FOUR, by_interface)
    for name in FOUR.nodes:
        replaced(records, name, "names", f"n3 {address('n3', 1)}", "n3 10.9.9.9")
    assert found(records) == [("host-name-misleads", "n3", ("n3",))]
    records = site_of(FOUR, in_hosts_file)
    replaced(records, "n3", "addresses", f"hsn1 {address('n3', 2)}", "hsn1 10.2.0.99")
    assert found(records) == [("host-name-misleads", "n3-hsn1", ("n3",))]


def test_names_that_do_not_resolve_on_one_node_are_that_node_s() -> None:
    records = site_of(FOUR, by_interface)
    names = records["n4"]["identity"]["names"]
    records["n4"]["identity"]["names"] = [line.split()[0] for line in names]
    assert found(records) == [("host-name-unresolved", "n4", ("n4",))]


@pytest.mark.parametrize("job", [FOUR, TWO], ids=["four", "two"])
def test_an_address_of_two_nodes_is_the_one_s_that_it_does_not_belong_to(job: Expected) -> None:
    records = site_of(job, in_hosts_file)
    records["n2"]["identity"]["addresses"].append(f"hsn1 {address('n1', 2)}")
    records["n2"]["identity"]["answers"] = [f"{address('n1', 2)} {mac('n2', 2)}"]
    (gate, *_) = lines([*records.values()], job)
    assert (gate.code, gate.values["subject"], gate.nodes) == ("address-twice", address("n1", 2), ("n2",))
    assert gate.values["owner"] == "n1"
    unknown = site_of(job, by_itself)
    replaced(unknown, "n2", "addresses", f"hsn1 {address('n2', 2)}", f"hsn1 {address('n1', 2)}")
    assert found(unknown, job) == [("address-twice", address("n1", 2), ("n1", "n2"))]


def test_an_address_on_the_management_network_may_be_of_two_nodes_too() -> None:
    records = site_of(FOUR, by_interface)
    replaced(records, "n4", "addresses", f"eth0 {address('n4', 0)}", f"eth0 {address('n3', 0)}")
    assert found(records) == [("address-twice", address("n3", 0), ("n3", "n4"))]


def test_of_hardware_addresses_of_infiniband_the_guid_counts() -> None:
    records = site_of(FOUR, by_interface)
    guid = "00:00:00:fe:80:00:00:00:00:00:00:b8:ce:f6:03:00:de:22:0"
    for name, record in records.items():
        following = FOUR.nodes[(FOUR.nodes.index(name) + 1) % 4]
        record["identity"]["macs"] = [f"hsn0 a0:{guid}{name[1:]}"]
        record["identity"]["answers"] = [f"{address(following, 1)} 80:{guid}{following[1:]}"]
    assert found(records) == []
    records["n1"]["identity"]["answers"] = [f"{address('n2', 1)} 80:{guid}3"]
    assert found(records) == [("address-answered", address("n2", 1), ("n3",))]


def test_what_answers_for_a_node_from_outside_of_the_job_is_told() -> None:
    records = site_of(FOUR, in_hosts_file)
    replaced(records, "n1", "answers", f"{address('n2', 3)} {mac('n2', 1)}", f"{address('n2', 3)} 02:99:99:99:99:99")
    assert found(records) == [("address-answered", address("n2", 3), ("n2",))]
    replaced(records, "n1", "answers", f"{address('n2', 3)} 02:99:99:99:99:99", f"{address('n2', 3)} {mac('n4', 3)}")
    assert found(records) == [("address-answered", address("n2", 3), ("n4",))]
    # A network that answers for all of its nodes.
    for record in records.values():
        record["identity"]["answers"] = [
            f"{line.split()[0]} fe:ff:ff:ff:ff:ff" for line in record["identity"]["answers"]
        ]
    assert found(records) == []


def test_an_interface_without_address_is_told_by_itself() -> None:
    records = site_of(FOUR, in_hosts_file)
    records["n2"]["interfaces"]["hsn1"]["addresses"] = ""
    records["n2"]["identity"]["addresses"].remove(f"hsn1 {address('n2', 2)}")
    assert found(records) == [("interface-no-address", "hsn1", ("n2",))]


@pytest.mark.parametrize("shell", ["dash", "bash"])
def test_the_script_records_names_and_who_has_which_address(tmp_path: Path, shell: str) -> None:
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "scontrol").write_text("#!/bin/sh\nprintf '%s\\n' localhost n8 n9\n")
    (programs / "scontrol").chmod(0o755)
    text = "".join(scripts()[name].read_text() for name in ("node_state.sh", "node.sh"))
    environment = {"SLURMD_NODENAME": "localhost", "PATH": f"{programs}:/usr/bin:/bin", "SLURM_JOB_NODELIST": "x"}
    command = [shell, "-c", text, "node.sh", str(tmp_path / "out"), "", "lo", "--"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    identity = json.loads((tmp_path / "out/0.json").read_text())["identity"]
    names = [line.split() for line in identity["names"]]
    assert [words[0] for words in names] == ["localhost", "localhost-lo", "n8", "n9"]
    assert "127.0.0.1" in names[0] or "::1" in names[0]
    assert names[1:] == [["localhost-lo"], ["n8"], ["n9"]]
    assert "lo 00:00:00:00:00:00" in identity["macs"]
    assert identity["uname"]
