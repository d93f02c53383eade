"""What ranks may use of a node: on records of healthy nodes with one changed, and on this machine."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from lumisite.validate.lines import Gate
from lumisite.validate.probes.node.judge import node
from lumisite.validate.probes.probe import Ended, Expected, ProbeStep, scripts
from tests.support.records import a_job, target_of
from tests.support.sites import load_text, site_text
from tests.unit.validate.test_node_judge import FOUR, TWO, healthy, lines, summary

RESOURCES = {
    "memory": "528000000",
    "/dev/shm": "264000000 263990000",
    "/tmp": "900000000 500000000",
    "memlock": "unlimited unlimited",
    "nofile": "131072 524288",
    "nproc": "2062000 2062000",
    "stack": "8388608 unlimited",
}


def nodes_of(job: Expected, **changed: str) -> list[dict[str, Any]]:
    """Records of nodes whose memory and local disks are nearly alike; of the second, some resources are others."""
    records = []
    for at, name in enumerate(job.nodes):
        found = RESOURCES | {
            "memory": str(528000000 + 1000 * at),
            "/dev/shm": f"{264000000 + 500 * at} {263990000 - at}",
        }
        found |= {"/tmp": f"900000000 {(500, 870, 100, 640)[at]}000000"} | (changed if name == "n2" else {})
        records.append(
            healthy(name) | {"resources": [f"{key} {value}".strip() for key, value in found.items() if value]}
        )
    return records


def faults(records: list[dict[str, Any]], job: Expected = FOUR) -> list[Gate]:
    return [gate for gate in lines(records, job) if gate.code != "checks-passed"]


@pytest.mark.parametrize("job", [FOUR, TWO, a_job(("n1",), 1, "node")], ids=["four", "two", "one"])
@pytest.mark.parametrize(
    "changed",
    [
        {},
        # Half the memory, and what systems derive from it.
        {"memory": "264000000", "/dev/shm": "132000000 131990000", "nproc": "1031000 1031000"},
        {"/tmp": "900000000 90000000"},
        {"memlock": "", "/dev/shm": "", "memory": ""},
    ],
    ids=["alike", "half", "fuller", "unread"],
)
def test_nodes_that_differ_as_healthy_ones_do_pass(job: Expected, changed: dict[str, str]) -> None:
    assert faults(nodes_of(job, **changed), job) == []


@pytest.mark.parametrize("job", [FOUR, TWO], ids=["four", "two"])
def test_lower_limits_of_one_node_are_one_finding(job: Expected) -> None:
    (gate,) = faults(nodes_of(job, memlock="65536 65536", nofile="1024 524288"), job)
    assert (gate.code, gate.nodes) == ("node-differs", ("n2",))
    words = "locked memory: hard limit is 65536 B, on the other nodes unlimited; lower too: open files"
    assert gate.text == f"n2: {words}"
    (gate,) = faults(nodes_of(job, nproc="4096 2062000"), job)
    assert gate.text == "n2: processes: soft limit is 4096, on the other nodes 2062000"


@pytest.mark.parametrize(
    ("changed", "subject", "text"),
    [
        ({"/dev/shm": "65536 65536"}, "/dev/shm", "size 64 MiB, on the other nodes 257813 MiB"),
        ({"/dev/shm": "264000000 66000000"}, "/dev/shm", "free 64453 MiB, on the other nodes "),
        ({"/tmp": "52000000 51000000"}, "/tmp", "size 50781 MiB, on the other nodes 878906 MiB"),
    ],
)
def test_what_one_node_has_less_of_is_named_where_more_than_half_agree(
    changed: dict[str, str], subject: str, text: str
) -> None:
    (gate,) = faults(nodes_of(FOUR, **changed))
    code = "node-full" if subject.startswith("/") else "node-differs"
    assert (gate.code, gate.values["subject"], gate.nodes) == (code, subject, ("n2",))
    assert text in gate.text
    assert faults(nodes_of(TWO, **changed), TWO) == [], "of two nodes neither is known to be wrong"


def test_files_in_a_tmp_of_memory_count_sooner_than_on_a_disk() -> None:
    records = nodes_of(FOUR)
    for record, free in zip(records, (890, 300, 891, 892), strict=True):
        record["resources"] = [*record["resources"][:2], f"/tmp 900000000 {free}000000"]
    on_disk = site_text(("writable: yes, in_memory: yes,", "writable: yes,"))
    for text, expected in ((site_text(), [("node-full", "/tmp", ("n2",))]), (on_disk, [])):
        probe = node(target_of(load_text(text).site))
        step = ProbeStep("node", probe.sruns[0], "several", FOUR.nodes, 1, 60)
        gates = [line for line in probe.judge([Ended(step, tuple(records))], FOUR) if isinstance(line, Gate)]
        assert summary(gates)[:-1] == expected


@pytest.mark.parametrize("job", [FOUR, TWO, a_job(("n1",), 1, "node")], ids=["four", "two", "one"])
def test_shared_memory_too_small_for_any_job_needs_no_other_node(job: Expected) -> None:
    records = nodes_of(job)
    for record in records:
        record["resources"] = [*record["resources"], "/dev/shm 131072 60000"]
    (gate,) = faults(records, job)
    assert (gate.code, gate.nodes) == ("node-full", job.nodes)
    assert gate.text.endswith("/dev/shm: 59 MiB free of 128 MiB")


@pytest.mark.parametrize(("folder", "key"), [("/dev/shm", "shm"), ("/tmp", "private")])
def test_a_full_folder_that_cannot_be_written_is_named_once(folder: str, key: str) -> None:
    records = nodes_of(FOUR, **{folder: "65536 0"})
    records[1][key] = "No space left on device"
    assert summary(faults(records)) == [("node-full", folder, ("n2",))]


@pytest.mark.parametrize("shell", ["dash", "bash"])
def test_the_script_records_resources(tmp_path: Path, shell: str) -> None:
    text = scripts()["node.sh"].read_text()
    command = [shell, "-c", text, "node.sh", str(tmp_path / "out"), str(tmp_path), "--"]
    environment = {"LD_PRELOAD": "/none.so"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (0, "")
    record = json.loads((tmp_path / "out/0.json").read_text())
    resources = dict(line.split(None, 1) for line in record["resources"])
    assert resources.keys() >= {"memory", "/dev/shm", str(tmp_path), "memlock", "nofile", "nproc", "stack", "tasks"}
    assert all(len(resources[name].split()) == 2 for name in ("/dev/shm", "memlock", "nofile"))
    assert record["shm"] == record["private"] == ""
