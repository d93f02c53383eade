"""What `check --host` says on each node of a job: what is told of the node, of the release, and once; and the script."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from lumisite.findings.finding import Finding, Severity
from lumisite.validate.lines import Gate
from lumisite.validate.probes.node.judge import node
from lumisite.validate.probes.node.judge_check import checked_nodes
from lumisite.validate.probes.outcome import Located
from lumisite.validate.probes.probe import Ended, Expected, ProbeStep, scripts
from lumisite.validate.samples import Recorded
from lumisite.validate.verdict.causes import following
from lumisite.validate.verdict.system import Terms, judge_system
from tests.support.records import target_of
from tests.unit.validate.test_node_judge import FOUR, healthy

PROBE = node(target_of("twin"))
RELEASE = "/appl/lumisite/current"
#: As `check --host --json` prints it.
FUSE = {
    "path": "/dev/fuse",
    "code": "container-start",
    "severity": "node",
    "expected": "singularity",
    "found": "missing; no image can be mounted",
    "remedy": "modprobe fuse",
}


def fault(path: str, code: str = "host-path", severity: str = "node") -> dict[str, str]:
    return FUSE | {"path": path, "code": code, "severity": severity, "found": f"{path} is bad"}


def check(name: str, *faults: dict[str, str]) -> dict[str, Any]:
    number = int(name[1:]) - 1
    return {"part": "check", "host": name, "rank": number, "local_rank": 0, "code": 0, "words": "", "faults": [*faults]}


def judged(checks: list[dict[str, Any]], job: Expected = FOUR, **changes: Any) -> list[Gate]:
    """Judge healthy nodes, the second with some changes, with these records of the check."""
    records = [healthy(name) for name in job.nodes]
    records[1] |= changes
    steps = [
        Ended(ProbeStep("node", srun, "several", job.nodes, 1, 60), tuple(of_srun))
        for srun, of_srun in zip(PROBE.sruns, (records, (), (), checks), strict=True)
    ]
    return [line for line in PROBE.judge(steps, job) if isinstance(line, Gate)]


def test_a_fault_of_one_node_is_told_of_it_with_its_remedy_whatever_its_severity_says_of_a_single_node() -> None:
    for severity in ("node", "fault"):
        bad, fine = judged([check(name, *[FUSE | {"severity": severity}] * (name == "n3")) for name in FOUR.nodes])
        assert (bad.gate, bad.verdict, bad.code, bad.nodes, bad.asked) == (
            "node",
            "fail",
            "node-check",
            ("n3",),
            FOUR.nodes,
        )
        assert bad.text == "n3: /dev/fuse: missing; no image can be mounted"
        assert bad.advice == "modprobe fuse; drain the node until then"
        assert bad.values == {"subject": "/dev/fuse", "cause": "container-start"}
        assert (fine.verdict, fine.nodes) == ("pass", ("n1", "n2", "n4"))


def test_what_all_nodes_have_is_of_the_system_and_need_not_be_why_something_else_fails() -> None:
    (bad,) = judged([check(name, FUSE) for name in FOUR.nodes])
    assert (bad.verdict, bad.nodes, bad.asked, bad.advice) == ("fail", FOUR.nodes, (), "modprobe fuse")
    other = Gate("ddp", "fail", "x", "", "r", FOUR.nodes, 2.0)
    assert following([bad, other]) == {}
    verdict = judge_system(None, Recorded({}, (bad,)), Terms())
    assert (verdict.exit_code, verdict.bad_nodes) == (1, [])


def test_that_no_node_has_a_task_prolog_is_the_sites_choice() -> None:
    prolog = fault("/etc/slurm/slurm.conf", "slurm-prolog")
    # One that hangs checks nothing else.
    for nodes in (FOUR.nodes, FOUR.nodes[:3]):
        (fine,) = judged([check(name, *[prolog] * (name in nodes)) for name in FOUR.nodes])
        assert fine.verdict == "pass"
    bad, _ = judged([check(name, *[prolog] * (name == "n3")) for name in FOUR.nodes])
    assert bad.nodes == ("n3",)


def test_one_bad_thing_of_a_node_is_told_once() -> None:
    down = {f"hsn{each}": healthy("n2")["interfaces"]["hsn0"] for each in range(4)}
    down["hsn1"] = down["hsn1"] | {"state": "down"}
    checks = [check("n2", fault("hsn1", "host-interface"), fault("/dev/fuse")), check("n1", fault("hsn1"))]
    *told, _fine = judged(checks, interfaces=down)
    assert [(gate.nodes, gate.code, gate.values["subject"]) for gate in told] == [
        (("n2",), "node-interface", "hsn1"),
        (("n2",), "node-check", "/dev/fuse"),
        (("n1",), "node-check", "hsn1"),
    ]


@pytest.mark.parametrize(
    ("found", "told", "again"),
    [
        (fault("/flash"), "/flash", False),
        (fault("/opt/cray/libfabric/1.22.0/lib64/libfabric.so.1"), "/opt/cray/libfabric/1.22.0/lib64", False),
        (fault("/opt/cray"), "/opt/cray/libfabric/1.22.0/lib64", False),
        (fault("/appl/lumisite/releases/1a2b/spank/bin/singularity"), f"{RELEASE}/spank/bin/singularity", False),
        (fault("/appl/lumisite/releases/1a2b/spank/bin/singularity"), f"{RELEASE}/spank/task_prolog", True),
        (fault("hsn2", "host-interface"), "hsn0, hsn2", False),
        # A library that is nowhere, and a file or folder that is missing.
        # What another library needs of it.
        (fault("/lib/libc.so.6", "host-library") | {"expected": "/opt/lib64/libfabric.so.1"}, "/opt/lib64", False),
        (fault("/lib/libc.so.6", "host-library") | {"expected": "/opt/lib64/libfabric.so.1"}, "/opt/lib", True),
        (fault("locked memory", "host-limit"), "locked memory", False),
        (fault("/tmp", "host-mount"), "mount options of /tmp", False),
        (fault("/flashy"), "/flash", True),
    ],
)
def test_what_is_the_same_as_what_is_told(found: dict[str, str], told: str, again: bool) -> None:
    known = [Located(Finding("node-path", Severity.NODE, "x", subject=told), "n2")]
    assert bool([*checked_nodes({"n2": check("n2", found)}, known, RELEASE)]) is again


def test_a_node_where_the_check_does_not_run_is_fine_and_that_is_said_once() -> None:
    lacking = check("n2") | {"faults": None, "code": 127, "words": "No module named lumisite"}
    late = check("n3") | {"faults": None, "code": 124}
    (fine,) = judged([check("n1"), lacking, late, check("n4")])
    assert (fine.verdict, fine.nodes) == ("pass", FOUR.nodes)
    assert fine.text.endswith("; `check --host` did not run on n2, n3: No module named lumisite")
    (fine,) = judged([check("n1"), check("n2"), late])
    assert fine.text.endswith("; `check --host` did not run on n3, n4: its time was over")


# ---- the script


def recorded(folder: Path, python: str, path: str = "") -> dict[str, Any]:
    """What the script leaves that checks with a Python of these lines of the shell."""
    given = folder / "python"
    given.write_text(f"#!/bin/sh\n{python}\n")
    given.chmod(0o755)
    text = "".join(scripts()[name].read_text() for name in ("node_common.sh", "node_check.sh")).replace(
        "budget_s=40 patience_s=45", "budget_s=1 patience_s=3"
    )
    words = ["sh", "-c", text, "node_check.sh", str(folder / "out"), str(given), path, "-m", "lumisite"]
    done = subprocess.run(words, env={"SLURMD_NODENAME": "n1", "SLURM_PROCID": "2"}, capture_output=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    record: dict[str, Any] = json.loads((folder / "out/2.json").read_text())
    assert (record["part"], record["host"], record["rank"]) == ("check", "n1", 2)
    return record


def test_the_script_records_what_the_check_prints_whatever_it_found(tmp_path: Path) -> None:
    found = recorded(tmp_path, f"echo '{json.dumps([FUSE])}'; echo note >&2; exit 5")
    assert (found["faults"], found["code"]) == ([FUSE], 5)


def test_the_script_says_why_the_check_did_not_run(tmp_path: Path) -> None:
    # Neither does it with the node's own Python, which knows no lumisite at this place.
    found = recorded(tmp_path, "exit 127", str(tmp_path))
    assert (found["faults"], found["words"].endswith("No module named lumisite")) == (None, True)


def test_the_script_ends_a_check_that_takes_too_long(tmp_path: Path) -> None:
    found = recorded(tmp_path, "echo '['; exec sleep 30")
    assert (found["faults"], found["code"]) == (None, 124)
