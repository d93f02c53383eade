"""What `check --host` says on each node of a job: what is told of the node, of the release, and once."""

from __future__ import annotations

from typing import Any

import pytest

from lumisite.findings.finding import Finding, Severity
from lumisite.validate.lines import Gate
from lumisite.validate.probes.node.judge_check import checked_nodes
from lumisite.validate.probes.outcome import Located
from lumisite.validate.samples import Recorded
from lumisite.validate.verdict.causes import following
from lumisite.validate.verdict.system import Terms, judge_system
from tests.unit.validate.test_node_judge import FOUR, healthy, judged

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


def fault(path: str, code: str = "host-path") -> dict[str, str]:
    return FUSE | {"path": path, "code": code, "found": f"{path} is bad"}


def check(name: str, *faults: dict[str, str]) -> dict[str, Any]:
    return {"part": "check", "host": name, "local_rank": 0, "code": 0, "words": "", "faults": [*faults]}


def checked(checks: list[dict[str, Any]], down: str = "") -> list[Gate]:
    """Judge healthy nodes, the second perhaps with an interface that is down, with these records of the check."""
    records = healthy(FOUR)
    if down:
        records[1]["interfaces"][down]["state"] = "down"
    return judged(FOUR, records, (), (), checks)


@pytest.mark.parametrize("severity", ["node", "fault"])
def test_a_fault_of_one_node_is_reported_with_its_remedy_whatever_its_severity_on_a_single_node(
    severity: str,
) -> None:
    bad, fine = checked([check(name, *[FUSE | {"severity": severity}] * (name == "n3")) for name in FOUR.nodes])
    assert (bad.verdict, bad.code, bad.nodes, bad.asked) == ("fail", "node-check", ("n3",), FOUR.nodes)
    assert bad.text == "n3: /dev/fuse: missing; no image can be mounted"
    assert bad.advice == "modprobe fuse; drain the node until then"
    assert bad.values == {"subject": "/dev/fuse", "cause": "container-start"}
    assert (fine.verdict, fine.nodes) == ("pass", ("n1", "n2", "n4"))


def test_what_all_nodes_have_is_of_the_system_and_need_not_be_why_something_else_fails() -> None:
    (bad,) = checked([check(name, FUSE) for name in FOUR.nodes])
    assert (bad.verdict, bad.nodes, bad.asked, bad.advice) == ("fail", FOUR.nodes, (), "modprobe fuse")
    other = Gate("ddp", "fail", "x", "", "r", FOUR.nodes, 2.0)
    assert following([bad, other]) == {}
    verdict = judge_system(None, Recorded({}, (bad,)), Terms())
    assert (verdict.exit_code, verdict.bad_nodes) == (1, [])


# One that hangs checks nothing else.
@pytest.mark.parametrize(("without", "bad"), [(FOUR.nodes, ()), (FOUR.nodes[:3], ()), (("n3",), ("n3",))])
def test_that_no_node_has_a_task_prolog_is_the_sites_choice(without: tuple[str, ...], bad: tuple[str, ...]) -> None:
    prolog = fault("/etc/slurm/slurm.conf", "slurm-prolog")
    *failed, _ = checked([check(name, *[prolog] * (name in without)) for name in FOUR.nodes])
    assert tuple(node for gate in failed for node in gate.nodes) == bad


def test_one_bad_thing_of_a_node_is_reported_once() -> None:
    checks = [check("n2", fault("hsn1", "host-interface"), fault("/dev/fuse")), check("n1", fault("hsn1"))]
    *told, _fine = checked(checks, down="hsn1")
    assert [(gate.nodes, gate.code, gate.values["subject"]) for gate in told] == [
        (("n2",), "node-interface", "hsn1"),
        (("n2",), "node-check", "/dev/fuse"),
        (("n1",), "node-check", "hsn1"),
    ]


WRAPPER = fault("/appl/lumisite/releases/1a2b/spank/bin/singularity")
#: A library that is nowhere, which another library needs.
NEEDED = fault("/lib/libc.so.6", "host-library") | {"expected": "/opt/lib64/libfabric.so.1"}


@pytest.mark.parametrize(
    ("found", "told", "again"),
    [
        (fault("/flash"), "/flash", False),
        (fault("/opt/cray/libfabric/1.22.0/lib64/libfabric.so.1"), "/opt/cray/libfabric/1.22.0/lib64", False),
        (fault("/opt/cray"), "/opt/cray/libfabric/1.22.0/lib64", False),
        (WRAPPER, f"{RELEASE}/spank/bin/singularity", False),
        (WRAPPER, f"{RELEASE}/spank/task_prolog", True),
        (fault("hsn2", "host-interface"), "hsn0, hsn2", False),
        (NEEDED, "/opt/lib64", False),
        (NEEDED, "/opt/lib", True),
        (fault("locked memory", "host-limit"), "locked memory", False),
        (fault("/tmp", "host-mount"), "mount options of /tmp", False),
        (fault("/flashy"), "/flash", True),
    ],
)
def test_what_follows_from_what_is_reported(found: dict[str, str], told: str, again: bool) -> None:
    known = [Located(Finding("node-path", Severity.NODE, "x", subject=told), "n2")]
    assert bool([*checked_nodes({"n2": check("n2", found)}, known, RELEASE)]) is again


def test_a_node_where_the_check_does_not_run_is_fine_and_that_is_reported_once() -> None:
    lacking = check("n2") | {"faults": None, "code": 127, "words": "No module named lumisite"}
    late = check("n3") | {"faults": None, "code": 124}
    (fine,) = checked([check("n1"), lacking, late, check("n4")])
    assert (fine.verdict, fine.nodes) == ("pass", FOUR.nodes)
    assert fine.text.endswith("; `check --host` did not run on n2, n3: No module named lumisite")
    (fine,) = checked([check("n1"), check("n2"), late])
    assert fine.text.endswith("; `check --host` did not run on n3, n4: its time was over")
