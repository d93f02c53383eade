"""What each node is: the judge on records of healthy nodes with one thing changed."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from lumisite.validate.lines import Gate
from lumisite.validate.probes.node.judge import node
from lumisite.validate.probes.node.judge_files import BLOCK_BYTES, NOTHING
from lumisite.validate.probes.probe import Ended, Expected, Probe, ProbeStep
from tests.support.node_records import FLASH, KFD, LIBRARY, PROBE, TMP, healthy_node
from tests.support.records import a_job, target_of
from tests.support.sites import load_text, site_text

ONE, TWO, FOUR = (a_job(tuple(f"n{number + 1}" for number in range(count)), 1, "node") for count in (1, 2, 4))
MOUNTS = healthy_node("n2")["mounts"]
CXI = "/usr/lib64/libcxi.so.1"
LIBRARIES = "/opt/cray/libfabric/1.22.0/lib64"
GONE = {"is": "", "leads": "", "shut": ""}
Record = dict[str, Any]


def judged(job: Expected, *of_steps: Sequence[Record], probe: Probe = PROBE, **ended: Any) -> list[Gate]:
    """Judge the records of the steps: what nodes are, what they sent each other, their files, and their checks."""
    steps = [
        Ended(ProbeStep("node", srun, "several", job.nodes, 1, 60), tuple(records), **ended)
        for srun, records in zip(probe.sruns, of_steps, strict=False)
    ]
    return [line for line in probe.judge(steps, job) if isinstance(line, Gate)]


def summary(gates: list[Gate]) -> list[tuple[str, object, tuple[str, ...]]]:
    """Return code, subject and nodes of what is wrong."""
    return [(gate.code, gate.values.get("subject"), gate.nodes) for gate in gates if gate.verdict != "pass"]


def healthy(job: Expected) -> list[Record]:
    return [healthy_node(name) for name in job.nodes]


def found(change: tuple[str, ...], value: object, job: Expected) -> Gate | None:
    """Return what is found where one thing of the second node is so, if anything; every other node passes."""
    records = healthy(job)
    place = records[min(1, len(records) - 1)]
    for key in change[:-1]:
        place = place[key]
    if value is None:
        del place[change[-1]]
    else:
        place[change[-1]] = value
    *failed, passed = judged(job, records)
    if not failed:
        return None
    (bad,) = failed
    assert (passed.verdict, passed.nodes) == ("pass", tuple(name for name in job.nodes if name != "n2"))
    assert (bad.verdict, bad.nodes, bad.asked) == ("fail", ("n2",), job.nodes)
    return bad


def without(*points: str) -> list[str]:
    return [line for line in MOUNTS if not any(f" {point} " in line for point in points)]


def resources(**changed: str) -> list[str]:
    """Return the resources of the second node with some changed; of an empty one only the name is left."""
    lines = [line.split(maxsplit=1) for line in healthy_node("n2")["resources"]]
    return [f"{name} {changed.get(name.rpartition('/')[2], numbers)}".strip() for name, numbers in lines]


INTERFACE, PATH, RESOURCES = ("interfaces", "hsn1"), ("paths",), ("resources",)


@pytest.mark.parametrize("job", [FOUR, TWO], ids=["four", "two"])
@pytest.mark.parametrize(
    ("change", "value", "code", "text"),
    [
        (INTERFACE, {"state": "", "addresses": None}, "node-interface", "hsn1: interface is missing"),
        ((*INTERFACE, "state"), "lowerlayerdown", "node-interface", "hsn1: interface is lowerlayerdown"),
        ((*INTERFACE, "addresses"), "", "node-interface", "hsn1: interface has no address"),
        ((*INTERFACE, "speed"), "100000", "node-interface", "speed is 100000 Mb/s, on the other nodes 200000 Mb/s"),
        ((*INTERFACE, "mtu"), "1500", "node-interface", "hsn1: MTU is 1500 bytes, on the other nodes 9000 bytes"),
        ((*PATH, "/flash"), GONE, "node-path", "missing (project space on flash storage)"),
        ((*PATH, "/flash"), {"is": "l", "leads": "/pfs/f", "shut": ""}, "node-path", "broken link to /pfs/f"),
        ((*PATH, "/opt/cray"), {"is": "", "leads": "", "shut": "/opt"}, "node-path", "users may not enter /opt"),
        ((*PATH, "/flash"), {"is": "ed", "leads": "/flash"}, "node-path", "/flash: users may not enter it"),
        ((*PATH, CXI), {"is": "efr", "leads": "/x"}, "node-path", f"{CXI}: empty"),
        ((*PATH, CXI), {"is": "efs", "leads": "/x"}, "node-path", f"{CXI}: users may not read it"),
        ((*PATH, "/usr/bin/singularity"), {"is": "efrs", "leads": "/x"}, "node-path", "users may not execute it"),
        ((*PATH, "/flash"), {"is": "h"}, "node-path", "/flash: no answer within ten seconds"),
        ((*PATH, LIBRARY), None, "node-file", f"{LIBRARIES}: libfabric.so.1: missing"),
        ((*PATH, LIBRARY), {"is": "efr"}, "node-file", f"{LIBRARIES}: libfabric.so.1: empty"),
        ((*PATH, LIBRARY), {"is": "efs"}, "node-file", f"{LIBRARIES}: libfabric.so.1: users may not read it"),
        ((*PATH, KFD), None, "node-file", "/dev: kfd: missing"),
        ((*PATH, KFD), {"is": "ew"}, "node-file", "/dev: kfd: users may not read it, as on the other nodes"),
        (("mounts",), without("/flash"), "node-mount", "is a folder on / (overlay), on the other nodes lustre /flash"),
        (("mounts",), [*without("/flash"), FLASH.replace(" rw,", " ro,")], "node-mount", "/flash: mounted read-only"),
        (("private",), "No space left", "node-full", "/tmp: cannot be written: No space left"),
        (("mounts",), [*MOUNTS, TMP.replace("nodev", "nodev,noexec")], "node-differs",
         "mount options of /tmp: noexec, nodev, on the other nodes nodev"),
        (("now",), 5000.0, "node-differs", "clock: +399"),
        (("now",), 100.0, "node-differs", "clock: -90"),
        (("facts", "cpu_allowed"), "50", "node-differs", "CPU quota: 50 % of one CPU, on the other nodes unlimited"),
        (("facts", "cpu_limit_khz"), "1500000", "node-differs", "1500000 kHz, on the other nodes 3500000 kHz"),
        (("facts", "cpus_given"), "1", "node-differs", "CPUs that Slurm gives the step: 1, on the other nodes 128"),
        (("facts", "cpus_allowed"), "0", "node-differs", "CPUs that the step may run on: 1, on the other nodes 2"),
        (RESOURCES, resources(memlock="65536 65536", nofile="1024 524288"), "node-differs",
         "locked memory: hard limit is 65536 B, on the other nodes unlimited; lower too: open files"),
        (RESOURCES, resources(nproc="4096 2062000"), "node-differs",
         "n2: processes: soft limit is 4096, on the other nodes 2062000"),
        # Too small for any job, whatever the other nodes have.
        (RESOURCES, resources(shm="131072 60000"), "node-full", "/dev/shm: 59 MiB free of 128 MiB"),
    ],
)  # fmt: skip
def test_one_bad_node_is_named_and_no_other(
    change: tuple[str, ...], value: object, code: str, text: str, job: Expected
) -> None:
    gate = found(change, value, job)
    assert gate is not None
    assert gate.code == code
    assert text in gate.text
    assert "drain the node until then" in gate.advice


@pytest.mark.parametrize(
    ("change", "value", "code", "text"),
    [
        (("facts", "kernel"), "6.3", "node-differs", "kernel: 6.3, on the other nodes 6.4"),
        (("facts", "cpus"), "0-126", "node-differs", "online CPUs: 0-126, on the other nodes 0-127"),
        (("facts", "governor"), "powersave ", "node-differs", "powersave, on the other nodes performance"),
        (("mounts",), [*without("/flash"), FLASH.replace(":/flash ", ":/scratch ")], "node-mount",
         "/scratch (lustre) is mounted, on the other nodes /flash (lustre)"),
        (RESOURCES, resources(shm="65536 65536"), "node-full", "/dev/shm: size 64 MiB, on the other nodes 257814 MiB"),
        (RESOURCES, resources(shm="264000000 66000000"), "node-full", "/dev/shm: free 64453 MiB, on the other nodes "),
        (RESOURCES, resources(tmp="52000000 51000000"), "node-full", "/tmp: size 50781 MiB, on the other nodes 878906 MiB"),
    ],
)  # fmt: skip
def test_what_differs_is_named_where_more_than_half_agree(
    change: tuple[str, ...], value: object, code: str, text: str
) -> None:
    gate = found(change, value, FOUR)
    assert gate is not None
    assert gate.code == code
    assert text in gate.text
    assert found(change, value, TWO) is None, "of two nodes neither can be said to be the wrong one"


# ---- what is no fault


def on_lumi(name: str) -> Record:
    """Five Lustre file systems below /pfs, a link for each project, and one of five copies of /appl on each node."""
    one = healthy_node(name)
    one["mounts"] = [line for line in one["mounts"] if " overlay " in line or " /users " in line]
    every = ("lustrep1", "lustrep2", "lustrep3", "lustrep4", "lustref1")
    one["mounts"] += [
        f"{at} 28 0:{at} / /pfs/{fs} rw - lustre 10.0.0.1@kfi:/{fs} rw" for at, fs in enumerate(every, 70)
    ]
    for path in ("/scratch", "/project", "/projappl"):
        one["paths"][path]["links"] = "/pfs/lustrep1 /pfs/lustrep3 "
    one["paths"]["/flash"]["links"] = "/pfs/lustref1 "
    one["paths"]["/appl"]["leads"] = f"/pfs/lustrep{1 if name == 'n4' else 3}/appl"
    return one


def automounted(name: str) -> Record:
    """What an automounter has mounted on some nodes only."""
    mounts = [*without("/users"), "80 28 0:80 / /users rw - autofs auto.users rw"]
    mounts += ["81 80 0:81 / /users/alice rw - nfs server:/alice rw"] * (name != "n2")
    return healthy_node(name) | {"mounts": mounts}


@pytest.mark.parametrize("job", [FOUR, TWO, ONE], ids=["four", "two", "one"])
@pytest.mark.parametrize("make", [healthy_node, on_lumi, automounted])
def test_healthy_nodes_pass(make: Callable[[str], Record], job: Expected) -> None:
    (gate,) = judged(job, [make(name) for name in job.nodes])
    assert (gate.verdict, gate.nodes) == ("pass", job.nodes)


@pytest.mark.parametrize("job", [FOUR, TWO, ONE], ids=["four", "two", "one"])
@pytest.mark.parametrize(
    "changed",
    [
        # Half the memory, and what systems derive from it.
        {"memory": "264000000", "shm": "132000000 131990000", "nproc": "1031000 1031000"},
        {"tmp": "900000000 90000000"},
        {"memlock": "", "shm": "", "memory": ""},
    ],
    ids=["half", "fuller", "unread"],
)
def test_resources_that_differ_as_those_of_healthy_nodes_do_pass(job: Expected, changed: dict[str, str]) -> None:
    assert found(RESOURCES, resources(**changed), job) is None


def test_two_clocks_that_differ_blame_nobody_where_the_controllers_time_is_not_known() -> None:
    records = [healthy_node("n1") | {"started": 0}, healthy_node("n2") | {"started": 0, "now": 5000.0}]
    assert summary(judged(TWO, records)) == []


# ---- several faults


def test_equal_findings_of_several_nodes_are_one_line_and_each_finding_has_its_own() -> None:
    records = healthy(FOUR)
    for number, name in ((0, "hsn0"), (2, "hsn0"), (1, "hsn0"), (1, "hsn2")):
        records[number]["interfaces"][name]["state"] = "down"
    records[3]["paths"] |= {"/appl": GONE, "/appl/images/torch.sif": GONE}
    assert summary(judged(FOUR, records)) == [
        ("node-interface", "hsn0", ("n1", "n3")),
        ("node-interface", "hsn0, hsn2", ("n2",)),
        ("node-path", "/appl", ("n4",)),
    ]


def test_what_is_wrong_with_all_nodes_drains_none() -> None:
    records = [record | {"mounts": without("/flash")} for record in healthy(FOUR)]
    records[2]["interfaces"]["hsn1"]["state"] = "down"
    every, third = sorted(judged(FOUR, records), key=lambda gate: gate.code, reverse=True)
    assert (every.code, every.nodes, every.asked) == ("node-mount", FOUR.nodes, ())
    assert "all 4 nodes have it" in every.advice
    assert summary([third]) == [("node-interface", "hsn1", ("n3",))]
    assert ("drain" in every.advice, "drain" in third.advice) == (False, True)


def test_a_library_with_other_content_is_named_and_of_two_nodes_both_are_in_doubt() -> None:
    gate = found(("checksums",), [f"78 900 {LIBRARY}"], FOUR)
    assert gate is not None
    assert f"{LIBRARIES}: libfabric.so.1: another file than on the other nodes" in gate.text
    records = [record | {"checksums": [f"{record['rank']} 900 {LIBRARY}"]} for record in healthy(TWO)]
    (doubt,) = judged(TWO, records)
    assert (doubt.code, doubt.verdict, doubt.nodes) == ("nodes-disagree", "inconclusive", ("n1", "n2"))


@pytest.mark.parametrize("job", [FOUR, TWO], ids=["four", "two"])
def test_a_mount_that_is_missing_behind_links_on_one_node_is_reported_once(job: Expected) -> None:
    for lost, why in (("lustref1", "project space on flash storage"), ("lustrep1", "project scratch space")):
        records = [on_lumi(name) for name in job.nodes]
        records[1]["mounts"] = [line for line in records[1]["mounts"] if lost not in line]
        for path in records[1]["paths"].values():
            path["links"] = path.get("links", "").replace(f"/pfs/{lost} ", "")
        gates = judged(job, records)
        assert summary(gates) == [("node-mount", f"/pfs/{lost}", ("n2",))]
        assert gates[0].text.endswith(f"not mounted ({why})")


@pytest.mark.parametrize("job", [FOUR, TWO], ids=["four", "two"])
def test_a_mount_below_a_path_that_one_node_lacks_is_named(job: Expected) -> None:
    records = healthy(job)
    for record in records:
        if record["host"] != "n2":
            record["mounts"].append("90 28 0:90 / /project/deep rw - lustre 10.0.0.1@o2ib:/deep rw")
    assert summary(judged(job, records)) == [("node-mount", "/project/deep", ("n2",))]


@pytest.mark.parametrize(
    ("counter", "before", "after", "on_another", "named"),
    [
        # Of before the job: nobody knows when.
        ("rx_errors", 100_000, 100_000, 0, False),
        ("rx_errors", 5, 125, 30, False),
        ("rx_errors", 5, 125, 0, True),
        ("carrier_changes", 40, 44, 0, True),
    ],
)
def test_only_errors_that_rise_during_the_step_and_stand_out_count(
    counter: str, before: int, after: int, on_another: int, named: bool
) -> None:
    records = healthy(FOUR)
    records[1]["interfaces"]["hsn1"]["counters"][counter] = before
    exchanged = []
    for record in records:
        counters = {name: dict(each["counters"]) for name, each in record["interfaces"].items()}
        exchanged.append({"host": record["host"], "local_rank": 0, "counters": counters})
    exchanged[1]["counters"]["hsn1"][counter] = after
    exchanged[0]["counters"]["hsn3"][counter] += on_another
    assert summary(judged(FOUR, records, exchanged)) == [("node-interface", "hsn1", ("n2",))] * named


# ---- what ranks may use


def test_files_in_a_tmp_of_memory_count_sooner_than_on_a_disk() -> None:
    records = healthy(FOUR)
    for record, free in zip(records, (890, 300, 891, 892), strict=True):
        record["resources"].append(f"/tmp 900000000 {free}000000")
    on_disk = site_text(("writable: yes, in_memory: yes,", "writable: yes,"))
    for text, expected in ((site_text(), [("node-full", "/tmp", ("n2",))]), (on_disk, [])):
        assert summary(judged(FOUR, records, probe=node(target_of(load_text(text).site)))) == expected


@pytest.mark.parametrize(("folder", "key"), [("/dev/shm", "shm"), ("/tmp", "private")])
def test_a_full_folder_that_cannot_be_written_is_named_once(folder: str, key: str) -> None:
    records = healthy(FOUR)
    records[1]["resources"].append(f"{folder} 65536 0")
    records[1][key] = "No space left on device"
    assert summary(judged(FOUR, records)) == [("node-full", folder, ("n2",))]


# ---- their files

RELEASE, IMAGE = "/appl/lumisite/current", "/appl/images/torch.sif"
PROLOG, OTHER, APPTAINER = (f"{RELEASE}/spank/{name}" for name in ("task_prolog", "bin/singularity", "bin/apptainer"))


def files_of(job: Expected, changed: dict[str, Any]) -> list[Record]:
    """Checksums of small files and of three blocks of an image of five; of the second node some are others."""
    small = {"size": 3, "blocks": "0:1000 "}
    image = {"size": 5 * BLOCK_BYTES - 7, "blocks": "4:1004 0:1000 2:1002"}
    files: dict[str, Any] = {PROLOG: small, OTHER: small, APPTAINER: small, IMAGE: image}
    records = [{"host": name, "rank": rank, "files": copy.deepcopy(files)} for rank, name in enumerate(job.nodes)]
    for path, values in changed.items():
        of_path = records[1]["files"].pop(path, {})  # type: ignore[attr-defined]
        if values is not None:
            records[1]["files"][path] = of_path | values  # type: ignore[index]
    return records


@pytest.mark.parametrize(
    ("changed", "subject", "text"),
    [
        ({}, "", ""),
        ({IMAGE: {"blocks": "4:1004 0:1000 2:1"}}, IMAGE,
         f": other content than on the other nodes from about byte {2 * BLOCK_BYTES} on (the image)"),
        ({IMAGE: {"blocks": f"4:{NOTHING} 0:1000 2:1002"}}, IMAGE, f": cannot be read at byte {4 * BLOCK_BYTES}, on the"),
        ({IMAGE: {"size": 9}}, IMAGE, ": has 9 bytes, on the other nodes 20971513 (the image)"),
        ({OTHER: {"size": 2}, APPTAINER: {"size": 2}}, RELEASE, "spank/bin/singularity, spank/bin/apptainer: has 2 bytes"),
        ({APPTAINER: None}, APPTAINER, ": missing, on the other nodes it is there (deployed release)"),
        # What only one node has harms nobody.
        ({f"{RELEASE}/more": {"size": 3, "blocks": "0:1000 "}}, "", ""),
    ],
)  # fmt: skip
def test_a_node_whose_files_differ_is_named_and_of_two_nodes_both_are_in_doubt(
    changed: dict[str, Any], subject: str, text: str
) -> None:
    gates = judged(FOUR, healthy(FOUR), (), files_of(FOUR, changed))
    assert summary(gates) == ([("node-file", subject, ("n2",))] if subject else [])
    assert text in gates[0].text
    of_two = summary(judged(TWO, healthy(TWO), (), files_of(TWO, changed)))
    doubts = [] if not subject or changed.get(APPTAINER, subject) is None else [*changed]
    assert of_two == [("nodes-disagree", path, TWO.nodes) for path in doubts]


def test_a_file_below_what_is_known_of_its_node_is_not_reported_again() -> None:
    files = files_of(FOUR, {IMAGE: {"size": 5}})
    for bad, expected in ((1, [("node-path", "/appl", ("n2",))]), (0, [("node-path", "/appl", ("n1",)), ("node-file", IMAGE, ("n2",))])):  # fmt: skip
        records = healthy(FOUR)
        records[bad]["paths"]["/appl"] = GONE
        assert summary(judged(FOUR, records, (), files)) == expected


# ---- nodes without a record

ERROR = "srun: error: n3: task 2: Exited with exit code 1"
LAUNCH = "srun: error: Task launch for StepId=7.0 failed on node n3: Communication connection failure"


@pytest.mark.parametrize(
    ("ended", "text"),
    [
        (
            {"exit_code": 1, "stderr": (ERROR, "lost\tn3\t/scratch/r\tPermission denied\t/scratch")},
            "n3: left no record: cannot write /scratch/r (Permission denied); missing: /scratch",
        ),
        (
            {"exit_code": 1, "stderr": (ERROR, "srun: error: n33: task 3: Killed")},
            f"n3: left no record: {ERROR}",
        ),
        ({"exit_code": 124, "seconds": 60.0}, "n3: left no record in 60 s"),
        ({"exit_code": 1, "stderr": (LAUNCH,)}, f"n3: left no record: {LAUNCH}"),
    ],
)
def test_a_node_without_a_record_has_the_reason_that_its_script_or_slurm_gave(ended: dict[str, Any], text: str) -> None:
    lost, fine = judged(FOUR, [record for record in healthy(FOUR) if record["host"] != "n3"], **ended)
    assert (lost.code, lost.verdict, lost.nodes, lost.text) == ("node-lost", "fail", ("n3",), text)
    assert (fine.verdict, fine.nodes) == ("pass", ("n1", "n2", "n4"))


def test_a_step_that_slurm_could_not_start_blames_no_node() -> None:
    error = "srun: error: Unable to create step"
    (nowhere,) = judged(FOUR, [], exit_code=1, stderr=(error,))
    assert (nowhere.code, nowhere.text) == ("step-failed", f"node-4n: ran on no node: {error}")
    # Where it could not start it on one node, it may not have started it on others either.
    gates = judged(FOUR, healthy(FOUR)[:1], exit_code=1, stderr=(LAUNCH,))
    assert [(gate.verdict, gate.nodes) for gate in gates] == [("fail", ("n3",)), ("pass", ("n1",))]
