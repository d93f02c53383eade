"""What ranks may use of a node, and who else uses it: on records of healthy nodes with one changed, and on this machine."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
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
    "hugepages-2048kB": "1024",
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
    return [gate for gate in lines(records, job) if gate.code != "node-fine"]


@pytest.mark.parametrize("job", [FOUR, TWO, a_job(("n1",), 1, "node")], ids=["four", "two", "one"])
@pytest.mark.parametrize(
    "changed",
    [
        {},
        # Half the memory, and what systems derive from it.
        {"memory": "264000000", "/dev/shm": "132000000 131990000", "nproc": "1031000 1031000"},
        {"/tmp": "900000000 90000000"},
        {"memlock": "", "/dev/shm": "", "memory": ""},
        {"hugepages-2048kB": "1020", "hugepages-1048576kB": "0"},
    ],
    ids=["alike", "half", "fuller", "unread", "nearly"],
)
def test_nodes_that_differ_as_healthy_ones_do_pass(job: Expected, changed: dict[str, str]) -> None:
    assert faults(nodes_of(job, **changed), job) == []


@pytest.mark.parametrize("job", [FOUR, TWO], ids=["four", "two"])
def test_lower_limits_of_one_node_are_one_finding(job: Expected) -> None:
    (gate,) = faults(nodes_of(job, memlock="65536 65536", nofile="1024 524288"), job)
    assert (gate.code, gate.values["subject"], gate.nodes) == ("limit-lower", "locked memory", ("n2",))
    assert (gate.values["kind"], gate.values["found"], gate.values["expected"]) == ("hard", "65536 B", "unlimited")
    assert gate.values["more"] == ("open files",)
    (gate,) = faults(nodes_of(job, nproc="4096 2062000"), job)
    assert (gate.values["subject"], gate.values["kind"], gate.values["found"]) == ("processes", "soft", "4096")


@pytest.mark.parametrize(
    ("changed", "subject", "quantity"),
    [
        ({"/dev/shm": "65536 65536"}, "/dev/shm", "size"),
        ({"/dev/shm": "264000000 66000000"}, "/dev/shm", "free"),
        ({"/tmp": "52000000 51000000"}, "/tmp", "size"),
        ({"hugepages-2048kB": "0"}, "hugepages-2048kB", None),
    ],
)
def test_what_one_node_has_less_of_is_named_where_more_than_half_agree(
    changed: dict[str, str], subject: str, quantity: str | None
) -> None:
    (gate,) = faults(nodes_of(FOUR, **changed))
    assert (gate.code, gate.values["subject"], gate.nodes) == ("resource-lower", subject, ("n2",))
    assert gate.values.get("quantity") == quantity
    assert faults(nodes_of(TWO, **changed), TWO) == [], "of two nodes neither is known to be wrong"


def test_files_in_a_tmp_of_memory_count_sooner_than_on_a_disk() -> None:
    records = nodes_of(FOUR)
    for record, free in zip(records, (890, 300, 891, 892), strict=True):
        record["resources"] = [*record["resources"][:2], f"/tmp 900000000 {free}000000"]
    on_disk = site_text(("writable: yes, in_memory: yes,", "writable: yes,"))
    for text, expected in ((site_text(), [("resource-lower", "/tmp", ("n2",))]), (on_disk, [])):
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
    assert (gate.code, gate.nodes) == ("shared-memory-small", job.nodes)
    assert (gate.values["size"], gate.values["free"]) == ("128 MiB", "59 MiB")


def test_a_number_that_one_node_could_not_read_is_compared_among_the_others() -> None:
    records = nodes_of(FOUR, memlock="65536 65536", tasks="4915 4915")
    records[3]["resources"] = ["memory 528000000"]
    for record in (records[0], records[2]):
        record["resources"].append("tasks unlimited unlimited")
    (gate,) = faults(records)
    assert (gate.code, gate.nodes, gate.values["more"]) == ("limit-lower", ("n2",), ("cgroup tasks",))


def test_shared_memory_that_cannot_be_written_is_named_once() -> None:
    records = nodes_of(FOUR, **{"/dev/shm": "65536 0"})
    records[1]["shm"] = "No space left on device"
    assert summary(faults(records)) == [("folder-not-writable", "/dev/shm", ("n2",))]


# ---- who else uses a node


def of_others(job: Expected, **entries: list[str]) -> list[dict[str, Any]]:
    return [healthy(name) | {"processes": entries.get(name, []), "running": ["41", "77"]} for name in job.nodes]


def test_what_others_left_is_one_finding_for_a_user_s_command() -> None:
    left = [f"cpu {99 - at} {500 + at} 3600 327000001 alice 41 python3.11 x" for at in range(6)]
    (gate,) = faults(of_others(FOUR, n2=[*left, "gpu 2147483648 500 0 327000001 alice 41 python3.11 x"], n4=left[:1]))
    assert (gate.code, gate.values["subject"], gate.nodes) == ("process-left-over", "python3.11 x", ("n2", "n4"))
    known = {"user": "alice", "job": "41", "cpu_percent": 99 + sum(range(94, 100)), "gpu_mib": 2048}
    assert known.items() <= gate.values.items()
    assert gate.values["processes"] == "n2: 500, n2: 501, n2: 502, n2: 503 and 3 more"


def test_on_shared_nodes_what_runs_there_is_not_left_over() -> None:
    shared = node(target_of(load_text(site_text(("  partition: standard-g\n", "  partition: small-g\n"))).site))
    records = of_others(FOUR, n1=["cpu 99 5 9 2000 bob 41 a.out"], n2=["cpu 99 6 9 2000 bob 40 a.out"])
    step = ProbeStep("node", shared.sruns[0], "several", FOUR.nodes, 1, 60)
    gates = [line for line in shared.judge([Ended(step, tuple(records))], FOUR) if isinstance(line, Gate)]
    assert summary(gates) == [("process-left-over", "a.out", ("n2",)), ("node-fine", None, ("n1", "n3", "n4"))]
    assert summary(faults(records)) == [("process-left-over", "a.out", ("n1", "n2"))]


@pytest.mark.parametrize(
    ("entries", "nodes"),
    [
        ({"n1": ["cpu 99 5 60 0 root - puppet"]}, ("n1",)),
        ({"n1": ["cpu 79 5 60 0 root - puppet"], "n2": ["cpu 99 5 2 0 root - rpm"], "n3": ["broken", "cpu x"]}, ()),
        ({name: ["cpu 90 5 600 995 telegraf - telegraf"] for name in ("n1", "n2", "n3")}, ()),
        ({"n1": ["gpu 300000000 5 0 0 root - exporter"]}, ()),
        ({"n1": ["gpu 0 5 0 3001 eve - jupyter"]}, ("n1",)),
        ({"n1": ["gpu 5000000000 5 0 65534 nobody - miner"]}, ("n1",)),
    ],
)
def test_what_the_system_does_itself_counts_where_it_is_much_and_not_usual(
    entries: dict[str, list[str]], nodes: tuple[str, ...]
) -> None:
    assert [gate.nodes for gate in faults(of_others(FOUR, **entries))] == ([nodes] if nodes else [])


@contextmanager
def busy(**environment: str) -> Iterator[int]:
    """A process that uses a CPU, and has done so for a second of CPU time."""
    text = "import time\nwhile time.process_time() < 1.1: pass\nprint(flush=True)\nwhile True: pass"
    with subprocess.Popen([sys.executable, "-c", text], env=environment, stdout=subprocess.PIPE) as loop:
        assert loop.stdout is not None
        loop.stdout.readline()
        yield loop.pid
        loop.kill()


@pytest.mark.parametrize("shell", ["dash", "bash"])
def test_the_script_records_resources_and_who_uses_the_node(tmp_path: Path, shell: str) -> None:
    text = "".join(scripts()[name].read_text() for name in ("node_state.sh", "node.sh"))
    command = [shell, "-c", text, "node.sh", str(tmp_path / "out"), str(tmp_path), "--"]
    with busy(SLURM_JOB_ID="8") as left, busy(SLURM_JOB_ID="9") as own:
        users = f"echo {left} 1000; echo {left} 24; echo {own} 5; echo nonsense"
        environment = {"SLURM_JOB_ID": "9", "LUMISITE_GPU_USERS": users}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    record = json.loads((tmp_path / "out/0.json").read_text())
    resources = dict(line.split(None, 1) for line in record["resources"])
    assert resources.keys() >= {"memory", "/dev/shm", str(tmp_path), "memlock", "nofile", "nproc", "stack", "tasks"}
    assert all(len(resources[name].split()) == 2 for name in ("/dev/shm", "memlock", "nofile"))
    of_left = [line.split() for line in record["processes"] if line.split()[2] == str(left)]
    assert [words[0] for words in of_left] == ["cpu", "gpu"]
    assert [words[6] for words in of_left] == ["8", "8"]
    assert of_left[1][1] == "1024"
    assert not any(line.split()[2] == str(own) for line in record["processes"])
    assert record["shm"] == ""
