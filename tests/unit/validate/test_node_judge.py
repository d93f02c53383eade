"""What each node is: the judge on records of healthy nodes with one thing changed, and the script on this machine."""

from __future__ import annotations

import copy
import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from lumisite.validate.lines import Gate
from lumisite.validate.probes.node.judge import node
from lumisite.validate.probes.probe import Ended, Expected, Step, scripts
from tests.support.records import a_job, causes, target_of
from tests.support.sites import load_text, site_text

PROBE = node(target_of("twin"))
FOUR = a_job(("n1", "n2", "n3", "n4"), 1, "node")
TWO = a_job(("n1", "n2"), 1, "node")
PATHS = PROBE.parts[0].arguments[6:]
KFD, IMAGE = "/dev/kfd", "/appl/images/torch.sif"
LIBRARY = "/opt/cray/libfabric/1.22.0/lib64/libfabric.so.1"
FLASH = "50 28 0:60 / /flash rw,relatime shared:7 - lustre 10.0.0.1@o2ib:/flash rw"


def healthy(name: str) -> dict[str, Any]:
    """A node as its script leaves it; servers, mounts of users and device numbers differ between nodes."""
    number = name[1:]
    up = {"state": "up", "speed": "200000", "mtu": "9000", "addresses": f"10.1.0.{number}/16 "}
    paths: dict[str, Any] = {path: {"is": "edrxs", "leads": path} for path in PATHS if "*" not in path}
    paths |= {
        path: {"is": "efrxs", "leads": path, "seen": "9 8 9"}
        for path in paths
        if ".s" in path or "/spank/" in path or "/bin/" in path
    }
    return {
        "host": name,
        "rank": int(number) - 1,
        "local_rank": 0,
        "now": 1000.0 + int(number),
        "started": 990,
        "interfaces": {f"hsn{each}": dict(up) for each in range(4)},
        "paths": {**paths, LIBRARY: {"is": "lefrxs"}, KFD: {"is": "er"}},
        "mounts": [
            "28 1 0:26 / / rw - overlay overlay rw",
            *(f"4{at} 28 0:5{at} / {path} rw - lustre 10.0.0.{number}@o2ib:{path} rw"
              for at, path in enumerate(("/scratch", "/project", "/projappl", "/appl", "/users"))),
            FLASH,
            f"60 50 0:7{number} / /flash/mounted-by-a-user-{number} rw - fuse.squashfuse squashfuse rw",
        ],
        "private": "",
        "facts": {"kernel": "6.4", "cpus": "0-127", "cpu_limit_khz": "3500000", "cpu_allowed": "unlimited",
                  "governor": "performance "},
    }  # fmt: skip


def lines(records: list[dict[str, Any]], job: Expected, **ended: Any) -> list[Gate]:
    step = Step("node", PROBE.parts[0], "several", job.nodes, 1, 60)
    return [line for line in PROBE.judge([Ended(step, tuple(records), **ended)], job) if isinstance(line, Gate)]


def found(change: tuple[str, ...], value: object, job: Expected = FOUR) -> list[str]:
    """What is said where one thing of the second node is so; every other node passes together."""
    records = [copy.deepcopy(healthy(name)) for name in job.nodes]
    place = records[1]
    for key in change[:-1]:
        place = place[key]
    if value is None:
        del place[change[-1]]
    else:
        place[change[-1]] = value
    told = lines(records, job)
    assert [gate.nodes for gate in told if gate.verdict == "pass"] == [tuple(n for n in job.nodes if n != "n2")]
    assert [gate.nodes for gate in told if gate.verdict != "pass"] == [("n2",)]
    return [gate.cause for gate in told if gate.verdict == "fail"]


@pytest.mark.parametrize("job", [FOUR, TWO, a_job(("n1",), 1, "node")], ids=["four", "two", "one"])
def test_healthy_nodes_pass(job: Expected) -> None:
    (gate,) = lines([healthy(name) for name in job.nodes], job)
    assert (gate.verdict, gate.nodes) == ("pass", job.nodes)


INTERFACE, PATH = ("interfaces", "hsn1"), ("paths",)
MOUNTS = healthy("n2")["mounts"]


def without(*points: str) -> list[str]:
    return [line for line in MOUNTS if not any(f" {point} " in line for point in points)]


@pytest.mark.parametrize("job", [FOUR, TWO], ids=["four", "two"])
@pytest.mark.parametrize(
    ("change", "value", "said"),
    [
        (INTERFACE, {"state": "", "addresses": None}, "hsn1 is not there"),
        ((*INTERFACE, "state"), "lowerlayerdown", "hsn1 is lowerlayerdown"),
        ((*INTERFACE, "addresses"), "", "hsn1 has no address"),
        ((*INTERFACE, "speed"), "100000", "hsn1 has speed 100000 Mb/s, not 200000"),
        ((*INTERFACE, "mtu"), "1500", "hsn1 has MTU 1500, not 9000"),
        ((*PATH, "/flash"), {"is": "", "leads": "", "shut": ""}, "/flash is not there (project space on flash storage)"),
        ((*PATH, "/flash"), {"is": "l", "leads": "/pfs/f", "shut": ""}, "/flash is a link to /pfs/f, which is not there"),
        ((*PATH, "/opt/cray"), {"is": "", "leads": "", "shut": "/opt"}, "/opt/cray is behind /opt, which users may"),
        ((*PATH, "/flash"), {"is": "ed", "leads": "/flash"}, "/flash may not be entered by users"),
        ((*PATH, "/usr/lib64/libcxi.so.1"), {"is": "efr", "leads": "/x"}, "/usr/lib64/libcxi.so.1 is empty"),
        ((*PATH, "/usr/lib64/libcxi.so.1"), {"is": "efs", "leads": "/x"}, "/usr/lib64/libcxi.so.1 may not be read"),
        ((*PATH, "/usr/bin/singularity"), {"is": "efrs", "leads": "/x"}, "/usr/bin/singularity may not be run by users"),
        ((*PATH, LIBRARY), None, "libfabric.so.1 in /opt/cray/libfabric/1.22.0/lib64 is not there"),
        ((*PATH, LIBRARY), {"is": "efr"}, "libfabric.so.1 in /opt/cray/libfabric/1.22.0/lib64 is empty"),
        ((*PATH, LIBRARY), {"is": "efs"}, "libfabric.so.1 in /opt/cray/libfabric/1.22.0/lib64 cannot be read"),
        (("mounts",), without("/flash"), "/flash is not mounted: it is a folder on / (overlay), and lustre on /flash on"),
        (("mounts",), [*without("/flash"), FLASH.replace(" rw,", " ro,")], "/flash is mounted read-only (project space"),
        ((*PATH, "/flash"), {"is": "h"}, "/flash does not answer (project space"),
        ((*PATH, KFD), None, "kfd in /dev is not there"),
        (("private",), "No space left on device", "/tmp cannot be written: No space left on device"),
        (("now",), 5000.0, "the clock is 399"),
        (("now",), 100.0, "the clock is "),
        (("facts", "cpu_allowed"), "50", "the CPU time that cgroups allow is 50 % of one CPU, not unlimited"),
        (("facts", "cpu_limit_khz"), "1500000", "the limit of the CPU frequency is 1500000 kHz, not 3500000 kHz"),
    ],
)  # fmt: skip
def test_one_bad_node_is_told_and_no_other(change: tuple[str, ...], value: object, said: str, job: Expected) -> None:
    (cause,) = found(change, value, job)
    assert cause.startswith(f"n2: {said}")
    assert ";" not in cause
    assert not {"n1", "n3", "n4"} & set(cause.replace(",", " ").split())


@pytest.mark.parametrize(
    ("change", "value", "said"),
    [
        (("facts", "kernel"), "6.3", "the kernel is 6.3, not 6.4"),
        (("facts", "cpus"), "0-126", "the list of CPUs that are online is 0-126, not 0-127"),
        ((*PATH, IMAGE), {"is": "efrxs", "seen": "9 1 9"}, f"{IMAGE} is another file than on the other nodes"),
        (("facts", "governor"), "powersave ", "the CPU frequency governor is powersave, not performance"),
        (
            ("mounts",),
            [*without("/flash"), FLASH.replace(":/flash ", ":/scratch ")],
            "/flash is another file system: /scratch (lustre), and /flash (lustre) elsewhere",
        ),
    ],
)
def test_what_differs_is_told_where_more_than_half_agree(change: tuple[str, ...], value: object, said: str) -> None:
    (cause,) = found(change, value)
    assert cause.startswith(f"n2: {said}")
    # Of two nodes neither can be said to be the wrong one.
    records = [healthy("n1"), healthy("n2")]
    place: Any = records[1]
    for key in change[:-1]:
        place = place[key]
    place[change[-1]] = value
    assert [gate.verdict for gate in lines(records, TWO)] == ["pass"]


def test_all_that_is_wrong_with_a_node_is_one_line() -> None:
    records = [healthy(name) for name in FOUR.nodes]
    for name in ("hsn0", "hsn2"):
        records[1]["interfaces"][name]["state"] = "down"
    records[1]["private"] = "Read-only file system"
    records[3]["paths"]["/appl"] = {"is": "", "leads": "", "shut": ""}
    records[3]["paths"]["/appl/images/torch.sif"] = {"is": "", "leads": "", "shut": ""}
    second, fourth, rest = lines(records, FOUR)
    assert second.cause == "n2: hsn0 is down; hsn2 is down; /tmp cannot be written: Read-only file system"
    assert second.advice.endswith("; drain n2 until then")
    assert fourth.cause == "n4: /appl is not there (central software, the container images among it)"
    assert (second.nodes, fourth.nodes, rest.nodes) == (("n2",), ("n4",), ("n1", "n3"))


def test_what_is_wrong_with_all_nodes_is_told_once_and_drains_none() -> None:
    records = [healthy(name) | {"mounts": without("/flash")} for name in FOUR.nodes]
    records[2]["interfaces"]["hsn1"]["state"] = "down"
    every, third = lines(records, FOUR)
    assert every.cause.startswith("all nodes: /flash is not mounted: it is a folder on / (overlay) (project space")
    assert every.advice.endswith("all nodes are alike: look at what they share, and at the site's description")
    assert (every.verdict, every.nodes) == ("fail", FOUR.nodes)
    assert (third.cause, third.nodes) == ("n3: hsn1 is down", ("n3",))
    assert ("drain" in every.advice, "drain n3" in third.advice) == (False, True)


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
        assert (bad.cause, bad.nodes) == (f"n2: /pfs/{lost} is not mounted ({why})", ("n2",))
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


def test_where_links_lead_the_mounts_below_count() -> None:
    """As on LUMI: /pfs is a folder with mounts in it, and the paths that users type are links there."""
    records = []
    for name in FOUR.nodes:
        one = healthy(name)
        one["paths"]["/flash"]["leads"] = "/pfs/lustref1/flash"
        one["paths"]["/project"]["leads"] = "/pfs"
        mounts = [line for line in one["mounts"] if " /flash " not in line and " /project " not in line]
        one["mounts"] = [*mounts, FLASH.replace(" /flash ", " /pfs/lustref1 "), FLASH.replace(" /flash ", " /pfs/p1 ")]
        records.append(one)
    assert [gate.verdict for gate in lines(records, FOUR)] == ["pass"]
    records[1]["mounts"].pop()
    assert lines(records, FOUR)[0].cause.startswith("n2: /pfs/p1 is not mounted")


def test_interfaces_that_have_no_addresses_anywhere_need_none() -> None:
    records = [healthy(name) for name in FOUR.nodes]
    for record in records:
        for one in record["interfaces"].values():
            one["addresses"] = ""
    assert [gate.verdict for gate in lines(records, FOUR)] == ["pass"]


def test_two_clocks_that_differ_blame_nobody_where_the_controllers_time_is_not_known() -> None:
    records = [healthy("n1") | {"started": 0}, healthy("n2") | {"started": 0, "now": 5000.0}]
    assert [gate.verdict for gate in lines(records, TWO)] == ["pass"]


def test_a_node_without_a_record_is_told_in_its_own_words() -> None:
    words = "/scratch is not there; it cannot write /scratch/r (Permission denied)"
    rest = [healthy(name) for name in ("n1", "n2", "n4")]
    told = lines(rest, FOUR, exit_code=1, words=f"srun: error: n3: task 2: Exited with exit code 1 | n3: {words}")
    assert [(gate.verdict, gate.nodes) for gate in told] == [("fail", ("n3",)), ("pass", ("n1", "n2", "n4"))]
    assert told[0].cause == f"n3: {words}"
    killed = lines(rest, FOUR, exit_code=1, words="srun: error: n3: task 2: Killed")
    assert killed[0].cause == "n3: left no record: srun: error: n3: task 2: Killed"
    late = lines(rest, FOUR, exit_code=124, seconds=60.0)
    assert late[0].cause == "n3: left no record: not done after 60 s"


def test_a_step_that_slurm_could_not_start_on_one_node_blames_that_one() -> None:
    words = "srun: error: Task launch for StepId=7.0 failed on node n2: Communication connection failure"
    told = lines([healthy("n1")], FOUR, exit_code=1, words=words)
    assert [(gate.verdict, gate.nodes) for gate in told] == [("fail", ("n2",)), ("pass", ("n1",))]
    assert causes(lines([], FOUR, exit_code=1, words="srun: error: Unable to create step")) == [
        "fail node-4n ran on no node: srun: error: Unable to create step"
    ]


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
    assert library["is"].replace("x", "") == "efr"
    assert any(" /proc " in line for line in record["mounts"])
    assert not list(tmp_path.glob(".lumisite*"))


def test_only_what_users_can_write_is_tried() -> None:
    writable = "{path: /tmp, kind: node-local, writable: yes,"
    site = load_text(site_text((writable, "{path: /tmp, kind: node-local, job_folder: $TMPDIR,"))).site
    assert [node(target).parts[0].arguments[0] for target in (target_of("twin"), target_of(site))] == ["/tmp", ""]


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
    command = [
        "sh",
        "-c",
        scripts()["node.sh"].read_text(),
        "node.sh",
        f"{blocked}/out",
        "/tmp",
        "--",
        "/gone-1",
        "/usr",
    ]
    done = subprocess.run(command, env={"SLURMD_NODENAME": "n9"}, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert done.stderr == f"n9: /gone-1 is not there; it cannot write {blocked}/out (Not a directory)\n"
