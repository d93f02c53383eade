"""What kept a task or a container from starting is said by its own line, of the nodes on which it did not start."""

from __future__ import annotations

from dataclasses import replace

import pytest

from lumisite.validate.lines import Gate
from lumisite.validate.probes.environment.judge import environment
from lumisite.validate.probes.failed_ranks import trouble
from lumisite.validate.probes.probe import Ended, ProbeStep
from lumisite.validate.probes.start_errors import START_ERRORS, start_failure
from tests.support.records import TWO_NODES, recorded, target_of
from tests.unit.validate.test_measuring_judges import GOOD, ended, expected

#: As Slurm 22.05 to 25.11, SingularityCE 4.1 and Apptainer 1.4 write them.
LINES = {
    "the node does not know the user": [
        "FATAL:   Couldn't determine user account information: user: unknown userid 327000123",
        "srun: error: Task launch for StepId=7.1 failed on node nid000002: Invalid user id",
    ],
    "the container runtime has neither": [
        "ERROR  : Installation issue: starter-suid doesn't have setuid bit set",
        "ERROR  : Failed to create user namespace: not allowed to create user namespace",
        "ERROR  : Failed to create user namespace: maximum number of user namespaces exceeded, check /proc/sys/user/max_user_namespaces",
    ],
    "the container runtime cannot use /dev/fuse": ["FATAL:   squashfuse_ll: fuse: device not found, try 'modprobe fuse' first"],
    "a node has another slurm.conf": [
        "srun: error: Task launch for StepId=7.1 failed on node nid000002: Can't find an address, check slurm.conf"
    ],
    "the node does not accept": ["srun: error: Task launch for StepId=7.1 failed on node n2: Invalid job credential"],
    "Slurm's Prolog failed": ["srun: error: Task launch for StepId=7.1 failed on node nid000002: Job prolog failed"],
    "a TaskProlog failed": ["slurmstepd: error: TaskProlog failed status=127"],
    "a program is not there": ["slurmstepd: error: execve(): singularity: No such file or directory"],
    "a shared library is not there": [
        "starter: error while loading shared libraries: libseccomp.so.2: cannot open shared object file"
    ],
    "a file system is full": ["FATAL:   while creating session directory: no space left on device"],
}  # fmt: skip
EXITED = "srun: error: nid000002: task 1: Exited with exit code 255"


@pytest.mark.parametrize(("meaning", "line"), [(meaning, line) for meaning in LINES for line in LINES[meaning]])
def test_a_line_has_its_meaning(meaning: str, line: str) -> None:
    found = start_failure(["srun: warning: something else", line, EXITED])
    assert found is not None
    assert found.message.startswith(meaning)
    assert found.message.endswith(line[:200])
    assert len(START_ERRORS) == len(LINES)


def test_the_node_on_which_a_container_does_not_start_is_named() -> None:
    """Where ranks work together, and where each is alone."""
    line = LINES["the container runtime has neither"][0]
    found = trouble(replace(ended([GOOD[0]], 255), stderr=(line, EXITED)), expected("ddp"))
    assert found is not None
    assert (found.code, found.nodes, found.asked) == ("start-failed", ("nid000002",), TWO_NODES.nodes)
    assert "starter-suid" in found.text
    probe = environment(target_of("twin"))
    records = [record for record in recorded("environment") if record.get("host") == "nid000001"]
    steps = []
    for part in probe.sruns:
        step = ProbeStep(probe.name, part, "several", TWO_NODES.nodes, 1, 60)
        of_part = tuple(record for record in records if record.get("part", part.name) == part.name)
        steps.append(Ended(step, of_part, 255, (line, EXITED)))
    lines = probe.judge(steps, replace(TWO_NODES, srun=probe.sruns[0], probe=probe.name))
    gates = [one for one in lines if isinstance(one, Gate) and one.code == "start-failed"]
    assert gates
    assert {one.nodes for one in gates} == {("nid000002",)}


def test_a_port_that_is_in_use_is_a_fault_of_that_node() -> None:
    error = {
        "error": "DistNetworkError: The server socket has failed to listen",
        "error_at": "joining",
        "error_time": 3.0,
    }
    first, second = {**GOOD[0], **error, "port_in_use": 20101, "port_users": ["alice"]}, {**GOOD[1], **error}
    found = trouble(replace(ended([first, second], 1), stderr=(EXITED,)), expected("ddp"))
    assert found is not None
    assert (found.gate, found.code, found.verdict, found.nodes) == ("node", "port-in-use", "fail", ("nid000001",))
    assert found.text == "nid000001: port 20101 (MASTER_PORT) is in use by a process of alice"


def test_ranks_without_slurms_variables_are_no_fault_of_a_node() -> None:
    found = trouble(ended([{**GOOD[0], "rank": -1}, {**GOOD[1], "rank": -1}], 1), expected("ddp"))
    assert found is not None
    assert (found.code, found.nodes, found.asked) == ("environment-cleaned", TWO_NODES.nodes, ())
