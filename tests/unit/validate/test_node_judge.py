"""What each node is: the judge on records of healthy nodes with one thing changed, and the script on this machine."""

from __future__ import annotations

import copy
import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from lumisite.validate.lines import Gate
from lumisite.validate.probes.node.judge import node
from lumisite.validate.probes.probe import Ended, Expected, ProbeStep, scripts
from tests.support.records import a_job, target_of

PROBE = node(target_of("twin"))
FOUR = a_job(("n1", "n2", "n3", "n4"), 1, "node")
TWO = a_job(("n1", "n2"), 1, "node")
PATHS = PROBE.sruns[0].arguments[6:]
KFD = "/dev/kfd"
LIBRARY = "/opt/cray/libfabric/1.22.0/lib64/libfabric.so.1"
TMP = "55 28 0:55 / /tmp rw,nodev,relatime shared:8 - tmpfs tmpfs rw"
FLASH = "50 28 0:60 / /flash rw,relatime shared:7 - lustre 10.0.0.1@o2ib:/flash rw"


def healthy(name: str) -> dict[str, Any]:
    """A node as its script leaves it; servers, mounts of users and device numbers differ between nodes."""
    number = name[1:]
    counters = {"rx_errors": 2, "tx_errors": 0, "carrier_changes": 2}
    up = {"state": "up", "speed": "200000", "mtu": "9000", "addresses": f"10.1.0.{number}/16 ", "counters": counters}
    paths: dict[str, Any] = {path: {"is": "edrxs", "leads": path} for path in PATHS if "*" not in path}
    paths |= {
        path: {"is": "efrxs", "leads": path} for path in paths if ".s" in path or "/spank/" in path or "/bin/" in path
    }
    return {
        "host": name,
        "rank": int(number) - 1,
        "local_rank": 0,
        "now": 1000.0 + int(number),
        "started": 990,
        "interfaces": {f"hsn{each}": copy.deepcopy(up) for each in range(4)},
        "paths": {**paths, LIBRARY: {"is": "lefrxs"}, KFD: {"is": "erw"}},
        "mounts": [
            "28 1 0:26 / / rw - overlay overlay rw",
            *(f"4{at} 28 0:5{at} / {path} rw - lustre 10.0.0.{number}@o2ib:{path} rw"
              for at, path in enumerate(("/scratch", "/project", "/projappl", "/appl", "/users"))),
            FLASH,
            TMP,
            f"60 50 0:7{number} / /flash/mounted-by-a-user-{number} rw - fuse.squashfuse squashfuse rw",
        ],
        "private": "",
        "facts": {"kernel": "6.4", "cpus": "0-127", "cpu_limit_khz": "3500000", "cpu_allowed": "unlimited",
                  "governor": "performance ", "cpus_given": "128", "cpus_allowed": "3,67"},
    }  # fmt: skip


def lines(records: list[dict[str, Any]], job: Expected, **ended: Any) -> list[Gate]:
    step = ProbeStep("node", PROBE.sruns[0], "several", job.nodes, 1, 60)
    return [line for line in PROBE.judge([Ended(step, tuple(records), **ended)], job) if isinstance(line, Gate)]


def found(change: tuple[str, ...], value: object, job: Expected = FOUR) -> Gate | None:
    """What is found where one thing of the second node is so, if anything; every other node passes together."""
    records = [copy.deepcopy(healthy(name)) for name in job.nodes]
    place = records[1]
    for key in change[:-1]:
        place = place[key]
    if value is None:
        del place[change[-1]]
    else:
        place[change[-1]] = value
    *failed, passed = lines(records, job)
    if not failed:
        return None
    (bad,) = failed
    assert (passed.verdict, passed.nodes) == ("pass", tuple(name for name in job.nodes if name != "n2"))
    assert (bad.verdict, bad.nodes, bad.asked) == ("fail", ("n2",), job.nodes)
    return bad


@pytest.mark.parametrize("job", [FOUR, TWO, a_job(("n1",), 1, "node")], ids=["four", "two", "one"])
def test_healthy_nodes_pass(job: Expected) -> None:
    (gate,) = lines([healthy(name) for name in job.nodes], job)
    assert (gate.verdict, gate.nodes) == ("pass", job.nodes)


INTERFACE, PATH = ("interfaces", "hsn1"), ("paths",)
MOUNTS = healthy("n2")["mounts"]


def without(*points: str) -> list[str]:
    return [line for line in MOUNTS if not any(f" {point} " in line for point in points)]


CXI = "/usr/lib64/libcxi.so.1"
LIBRARIES = "/opt/cray/libfabric/1.22.0/lib64"


@pytest.mark.parametrize("job", [FOUR, TWO], ids=["four", "two"])
@pytest.mark.parametrize(
    ("change", "value", "code", "text"),
    [
        (INTERFACE, {"state": "", "addresses": None}, "node-interface", "hsn1: interface is missing"),
        ((*INTERFACE, "state"), "lowerlayerdown", "node-interface", "hsn1: interface is lowerlayerdown"),
        ((*INTERFACE, "addresses"), "", "node-interface", "hsn1: interface has no address"),
        ((*INTERFACE, "speed"), "100000", "node-interface", "speed is 100000 Mb/s, on the other nodes 200000 Mb/s"),
        ((*INTERFACE, "mtu"), "1500", "node-interface", "hsn1: MTU is 1500 bytes, on the other nodes 9000 bytes"),
        ((*PATH, "/flash"), {"is": "", "leads": "", "shut": ""}, "node-path", "missing (project space on flash storage)"),
        ((*PATH, "/flash"), {"is": "l", "leads": "/pfs/f", "shut": ""}, "node-path", "broken link to /pfs/f"),
        ((*PATH, "/opt/cray"), {"is": "", "leads": "", "shut": "/opt"}, "node-path", "users may not enter /opt"),
        ((*PATH, "/flash"), {"is": "ed", "leads": "/flash"}, "node-path", "/flash: users may not enter it"),
        ((*PATH, CXI), {"is": "efr", "leads": "/x"}, "node-path", f"{CXI}: empty"),
        ((*PATH, CXI), {"is": "efs", "leads": "/x"}, "node-path", f"{CXI}: users may not read it"),
        ((*PATH, "/usr/bin/singularity"), {"is": "efrs", "leads": "/x"}, "node-path", "users may not execute it"),
        ((*PATH, LIBRARY), None, "node-file", f"{LIBRARIES}: libfabric.so.1: missing"),
        ((*PATH, LIBRARY), {"is": "efr"}, "node-file", f"{LIBRARIES}: libfabric.so.1: empty"),
        ((*PATH, LIBRARY), {"is": "efs"}, "node-file", f"{LIBRARIES}: libfabric.so.1: users may not read it"),
        (("mounts",), without("/flash"), "node-mount", "is a folder on / (overlay), on the other nodes lustre /flash"),
        (("mounts",), [*without("/flash"), FLASH.replace(" rw,", " ro,")], "node-mount", "/flash: mounted read-only"),
        ((*PATH, "/flash"), {"is": "h"}, "node-path", "/flash: no answer within ten seconds"),
        ((*PATH, KFD), None, "node-file", "/dev: kfd: missing"),
        ((*PATH, KFD), {"is": "ew"}, "node-file", "/dev: kfd: users may not read it, as on the other nodes"),
        (("private",), "No space left", "node-full", "/tmp: cannot be written: No space left"),
        (("mounts",), [*MOUNTS, TMP.replace("nodev", "nodev,noexec")], "node-differs",
         "mount options of /tmp: noexec, nodev, on the other nodes nodev"),
        (("now",), 5000.0, "node-differs", "clock: +399"),
        (("now",), 100.0, "node-differs", "clock: -90"),
        (("facts", "cpu_allowed"), "50", "node-differs", "CPU quota: 50 % of one CPU, on the other nodes unlimited"),
        (("facts", "cpu_limit_khz"), "1500000", "node-differs", "1500000 kHz, on the other nodes 3500000 kHz"),
        (("facts", "cpus_given"), "1", "node-differs", "CPUs that Slurm gives the step: 1, on the other nodes 128"),
        (("facts", "cpus_allowed"), "0", "node-differs", "CPUs that the step may run on: 1, on the other nodes 2"),
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


@pytest.mark.parametrize("job", [FOUR, TWO], ids=["four", "two"])
def test_an_mtu_of_all_interfaces_of_a_node_is_one_finding(job: Expected) -> None:
    records = [healthy(name) for name in job.nodes]
    for interface in records[1]["interfaces"].values():
        interface["mtu"] = "1500"
    assert summary(lines(records, job)[:-1]) == [("node-interface", "hsn0, hsn1, hsn2, hsn3", ("n2",))]


def test_interfaces_with_each_others_addresses_are_named() -> None:
    records = [healthy(name) for name in FOUR.nodes]
    for at, record in enumerate(records, 1):
        for number, interface in enumerate(record["interfaces"].values()):
            interface["addresses"] = f"10.{number}.0.{at}/16 "
    first, second = (records[2]["interfaces"][name] for name in ("hsn0", "hsn1"))
    first["addresses"], second["addresses"] = second["addresses"], first["addresses"]
    *bad, fine = lines(records, FOUR)
    assert summary(bad) == [("node-interface", "hsn0", ("n3",)), ("node-interface", "hsn1", ("n3",))]
    assert "address is in 10.1.0.0/16, on the other nodes 10.0.0.0/16" in bad[0].text
    assert fine.nodes == ("n1", "n2", "n4")


def test_a_library_with_other_content_is_named_and_of_two_nodes_both_are_in_doubt() -> None:
    records = [healthy(name) for name in FOUR.nodes]
    for record in records:
        record["checksums"] = [f"77 900 {LIBRARY}"]
    records[1]["checksums"] = [f"78 900 {LIBRARY}"]
    (bad, _) = lines(records, FOUR)
    assert (bad.code, bad.nodes) == ("node-file", ("n2",))
    assert f"{LIBRARIES}: libfabric.so.1: another file than on the other nodes" in bad.text
    (doubt,) = lines(records[:2], TWO)
    assert (doubt.code, doubt.verdict, doubt.nodes) == ("nodes-disagree", "inconclusive", ("n1", "n2"))


@pytest.mark.parametrize(
    ("counter", "before", "after", "on_another", "found"),
    [
        # Of before the job: nobody knows when.
        ("rx_errors", 100_000, 100_000, 0, []),
        ("rx_errors", 5, 125, 30, []),
        ("rx_errors", 5, 125, 0, [("node-interface", "hsn1", ("n2",))]),
        ("carrier_changes", 40, 44, 0, [("node-interface", "hsn1", ("n2",))]),
    ],
)
def test_only_errors_that_rise_during_the_step_and_stand_out_count(
    counter: str, before: int, after: int, on_another: int, found: list[object]
) -> None:
    records = [healthy(name) for name in FOUR.nodes]
    records[1]["interfaces"]["hsn1"]["counters"][counter] = before
    exchanged = []
    for record in records:
        counters = {name: dict(each["counters"]) for name, each in record["interfaces"].items()}
        exchanged.append({"host": record["host"], "local_rank": 0, "counters": counters})
    exchanged[1]["counters"]["hsn1"][counter] = after
    exchanged[0]["counters"]["hsn3"][counter] += on_another
    first, second = (ProbeStep("node", srun, "several", FOUR.nodes, 1, 60) for srun in PROBE.sruns[:2])
    steps = [Ended(first, tuple(records)), Ended(second, tuple(exchanged))]
    bad = [line for line in PROBE.judge(steps, FOUR) if isinstance(line, Gate) and line.verdict != "pass"]
    assert summary(bad) == found


@pytest.mark.parametrize(
    ("change", "value", "code", "text"),
    [
        (("facts", "kernel"), "6.3", "node-differs", "kernel: 6.3, on the other nodes 6.4"),
        (("facts", "cpus"), "0-126", "node-differs", "online CPUs: 0-126, on the other nodes 0-127"),
        (("facts", "governor"), "powersave ", "node-differs", "powersave, on the other nodes performance"),
        (
            ("mounts",),
            [*without("/flash"), FLASH.replace(":/flash ", ":/scratch ")],
            "node-mount",
            "/scratch (lustre) is mounted, on the other nodes /flash (lustre)",
        ),
    ],
)
def test_what_differs_is_named_where_more_than_half_agree(
    change: tuple[str, ...], value: object, code: str, text: str
) -> None:
    gate = found(change, value)
    assert gate is not None
    assert gate.code == code
    assert text in gate.text
    assert found(change, value, TWO) is None, "of two nodes neither can be said to be the wrong one"


def summary(gates: list[Gate]) -> list[tuple[str, object, tuple[str, ...]]]:
    return [(gate.code, gate.values.get("subject"), gate.nodes) for gate in gates]


def test_equal_findings_of_several_nodes_are_one_line_and_each_finding_has_its_own() -> None:
    records = [healthy(name) for name in FOUR.nodes]
    for number, name in ((0, "hsn0"), (2, "hsn0"), (1, "hsn0"), (1, "hsn2")):
        records[number]["interfaces"][name]["state"] = "down"
    records[3]["paths"]["/appl"] = {"is": "", "leads": "", "shut": ""}
    records[3]["paths"]["/appl/images/torch.sif"] = {"is": "", "leads": "", "shut": ""}
    assert summary(lines(records, FOUR)) == [
        ("node-interface", "hsn0", ("n1", "n3")),
        ("node-interface", "hsn0, hsn2", ("n2",)),
        ("node-path", "/appl", ("n4",)),
    ]


def test_what_is_wrong_with_all_nodes_drains_none() -> None:
    records = [healthy(name) | {"mounts": without("/flash")} for name in FOUR.nodes]
    records[2]["interfaces"]["hsn1"]["state"] = "down"
    every, third = sorted(lines(records, FOUR), key=lambda gate: gate.code, reverse=True)
    assert (every.code, every.nodes, every.asked) == ("node-mount", FOUR.nodes, ())
    assert "all 4 nodes have it" in every.advice
    assert summary([third]) == [("node-interface", "hsn1", ("n3",))]
    assert ("drain" in every.advice, "drain" in third.advice) == (False, True)


def on_lumi(name: str) -> dict[str, Any]:
    """Five Lustre file systems below /pfs, a link for each project, and one of five copies of /appl on each node."""
    one = healthy(name)
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


@pytest.mark.parametrize("job", [FOUR, TWO, a_job(("n1",), 1, "node")], ids=["four", "two", "one"])
def test_nodes_as_on_lumi_pass(job: Expected) -> None:
    assert [gate.verdict for gate in lines([on_lumi(name) for name in job.nodes], job)] == ["pass"]


@pytest.mark.parametrize("job", [FOUR, TWO], ids=["four", "two"])
def test_a_mount_that_is_missing_behind_links_on_one_node_is_told_once(job: Expected) -> None:
    for lost, why in (("lustref1", "project space on flash storage"), ("lustrep1", "project scratch space")):
        records = [on_lumi(name) for name in job.nodes]
        records[1]["mounts"] = [line for line in records[1]["mounts"] if lost not in line]
        for path in records[1]["paths"].values():
            path["links"] = path.get("links", "").replace(f"/pfs/{lost} ", "")
        bad, rest = lines(records, job)
        assert summary([bad]) == [("node-mount", f"/pfs/{lost}", ("n2",))]
        assert bad.text.endswith(f"not mounted ({why})")
        assert rest.verdict == "pass"


def test_what_an_automounter_has_mounted_on_some_nodes_is_no_difference() -> None:
    records = []
    for name in FOUR.nodes:
        one = healthy(name)
        one["mounts"] = [*without("/users"), "80 28 0:80 / /users rw - autofs auto.users rw"]
        if name != "n2":
            one["mounts"].append("81 80 0:81 / /users/alice rw - nfs server:/alice rw")
        records.append(one)
    assert [gate.verdict for gate in lines(records, FOUR)] == ["pass"]


def test_two_clocks_that_differ_blame_nobody_where_the_controllers_time_is_not_known() -> None:
    records = [healthy("n1") | {"started": 0}, healthy("n2") | {"started": 0, "now": 5000.0}]
    assert [gate.verdict for gate in lines(records, TWO)] == ["pass"]


def test_a_node_without_a_record_has_the_reason_that_its_script_or_slurm_gave() -> None:
    rest = [healthy(name) for name in ("n1", "n2", "n4")]
    error = "srun: error: n3: task 2: Exited with exit code 1"
    report = "lost\tn3\t/scratch/r\tPermission denied\t/scratch"
    lost, fine = lines(rest, FOUR, exit_code=1, stderr=(error, report))
    assert (lost.code, lost.verdict, lost.nodes) == ("node-lost", "fail", ("n3",))
    assert lost.text == "n3: left no record: cannot write /scratch/r (Permission denied); missing: /scratch"
    assert (fine.verdict, fine.nodes) == ("pass", ("n1", "n2", "n4"))
    killed = lines(rest, FOUR, exit_code=1, stderr=(error, "srun: error: n33: task 3: Killed"))
    assert killed[0].text == f"n3: left no record: {error}"
    late = lines(rest, FOUR, exit_code=124, seconds=60.0)
    assert late[0].text == "n3: left no record in 60 s"


def test_a_step_that_slurm_could_not_start_on_one_node_blames_that_one() -> None:
    error = "srun: error: Task launch for StepId=7.0 failed on node n2: Communication connection failure"
    gates = lines([healthy("n1")], FOUR, exit_code=1, stderr=(error,))
    assert [(gate.verdict, gate.nodes) for gate in gates] == [("fail", ("n2",)), ("pass", ("n1",))]
    error = "srun: error: Unable to create step"
    (nowhere,) = lines([], FOUR, exit_code=1, stderr=(error,))
    assert (nowhere.code, nowhere.text) == ("step-failed", f"node-4n: ran on no node: {error}")


@pytest.mark.parametrize("key", [LIBRARY, LIBRARY.replace("libfabric.so.1", "*.so*")])
def test_a_library_behind_a_folder_that_users_may_not_enter_has_its_folder_named(key: str) -> None:
    records = [healthy(name) for name in FOUR.nodes]
    del records[1]["paths"][LIBRARY]
    records[1]["paths"][key] = {"is": "", "leads": "", "shut": "/opt/cray/libfabric"}
    bad, _ = lines(records, FOUR)
    assert (bad.code, bad.nodes, bad.values["subject"]) == ("node-path", ("n2",), "/opt/cray/libfabric")
    # A folder that is named already is not named again.
    records[1]["paths"]["/opt/cray"] = {"is": "ed"}
    records[1]["paths"][key]["shut"] = "/opt/cray"
    bad, _ = lines(records, FOUR)
    assert (bad.values["subject"], "users may not read it" in bad.text) == ("/opt/cray", True)


# ---- the script


@pytest.mark.parametrize("shell", ["dash", "bash"])
def test_the_script_records_what_is_there_whatever_names_there_are(tmp_path: Path, shell: str) -> None:
    odd = tmp_path / 'a "b" \xe9'
    (odd / "lib64").mkdir(parents=True)
    (odd / "lib64/libempty.so.1").touch()
    (odd / "lib64/libdangling.so").symlink_to("nowhere")
    (tmp_path / "dangling").symlink_to(tmp_path / "gone")
    words = [str(tmp_path), "lo", "none0", "--", str(tmp_path / "dangling"), f"{odd}/lib64/*.so*", "/proc/self"]
    command = [shell, "-c", scripts()["node.sh"].read_text(), "node.sh", str(tmp_path / "out"), *words]
    environment = {
        "SLURM_PROCID": "3",
        "SLURMD_NODENAME": "n9",
        "HOME": "/none",
        "IFS": "o",
        "SLURM_JOB_START_TIME": "x",
    }
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    record = json.loads((tmp_path / "out/3.json").read_text())
    assert (record["host"], record["rank"], record["started"], record["private"]) == ("n9", 3, 0, "")
    assert record["interfaces"]["lo"]["state"] == "unknown"
    assert record["interfaces"]["none0"]["state"] == ""
    assert record["paths"][str(tmp_path / "dangling")] == {"is": "l", "leads": str(tmp_path / "gone"), "shut": ""}
    library = next(found for path, found in record["paths"].items() if path.endswith("/libempty.so.1"))
    assert library["is"].replace("x", "").replace("w", "") == "efr"
    assert any(" /proc " in line for line in record["mounts"])
    assert not list(tmp_path.glob(".lumisite*"))


@pytest.mark.skipif(os.geteuid() == 0 and not shutil.which("setpriv"), reason="root enters every folder")
def test_the_script_follows_a_link_to_the_folder_that_users_may_not_enter(tmp_path: Path) -> None:
    shut, link = tmp_path / "shut", tmp_path / "lib.so.1"
    (shut / "lib64").mkdir(parents=True)
    (shut / "lib64/lib.so.1").write_text("x")
    link.symlink_to("shut/lib64/lib.so.1")
    shut.chmod(0o600)
    for path in (tmp_path, *tmp_path.parents):
        if not path.stat().st_mode & 0o001:
            path.chmod(0o755)
    out = tmp_path / "out"
    out.mkdir(mode=0o777)
    out.chmod(0o777)
    text = scripts()["node.sh"].read_text()
    user = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"] if os.geteuid() == 0 else []
    command = [*user, "sh", "-c", text, "node.sh", str(out), "", "--", str(link), f"{shut}/lib64/*.so*"]
    subprocess.run(command, env={"SLURMD_NODENAME": "n9"}, check=True, timeout=60)
    shut.chmod(0o755)
    record = json.loads((out / "0.json").read_text())
    assert {entry["shut"] for entry in record["paths"].values()} == {str(shut)}


@pytest.mark.parametrize("shell", ["dash", "bash"])
def test_the_script_tells_which_mounts_the_links_in_a_folder_lead_to(tmp_path: Path, shell: str) -> None:
    """By the text of the links: what they lead to need not be there, and is not looked at."""
    for number, to in enumerate(("/proc/none/x", "/proc", "/none", "../../../../../../../../proc/y", "/dev/../proc/z")):
        (tmp_path / f"link{number}").symlink_to(to)
    text = scripts()["node.sh"].read_text()
    text = text[: text.index("\npaths() {")].replace("exec 3>&2 2>/dev/null", "").replace("shift 2\n", "", 1)
    same = text.replace("stat -c %d /)", f"stat -c %d {tmp_path})")  # as if the folder were on the root file system
    done = subprocess.run([shell, "-c", f"{same}\nlinked {tmp_path}"], capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.stderr) == ("/proc ", "")
    done = subprocess.run([shell, "-c", f"{text}\nlinked /proc"], capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.stderr) == ("", ""), "a file system that is mounted itself is not listed"


def test_a_script_that_cannot_record_says_so_and_what_is_away(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.touch()
    text = scripts()["node.sh"].read_text()
    command = ["sh", "-c", text, "node.sh", f"{blocked}/out", "/tmp", "--", "/gone-1", "/usr"]
    done = subprocess.run(command, env={"SLURMD_NODENAME": "n9"}, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert done.stderr == f"lost\tn9\t{blocked}/out\tNot a directory\t/gone-1\n"
