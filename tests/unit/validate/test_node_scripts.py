"""What the scripts of the probe `node` record, on this machine and whatever names and shells there are."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from lumisite.validate.probes.node.judge_files import BLOCK_BYTES, NOTHING
from lumisite.validate.probes.probe import scripts

SHELLS = pytest.mark.parametrize("shell", ["dash", "bash"])
NODE = scripts()["node.sh"].read_text()
STEP = {"SLURM_PROCID": "3", "SLURMD_NODENAME": "n9", "SLURM_JOB_ID": "7", "IFS": "o"}


def record_of(
    folder: Path, text: str, *words: str, command: tuple[str, ...] = ("sh",), **environment: str
) -> dict[str, Any]:
    """Run the text of a script as a task of a step would, and return its record."""
    done = subprocess.run([*command, "-c", text, "node.sh", f"{folder}/out", *words], env={**STEP, **environment},
                          capture_output=True, text=True, timeout=60)  # fmt: skip
    assert (done.returncode, done.stdout) == (0, "")
    # Of what the shell itself is to load, its loader speaks before the script begins.
    assert all("ld.so" in line for line in done.stderr.splitlines()), done.stderr
    record: dict[str, Any] = json.loads((folder / "out/3.json").read_text())
    (folder / "out/3.json").unlink()
    assert (record["host"], record["rank"]) == ("n9", 3)
    return record


@SHELLS
def test_a_node_records_what_is_there_whatever_names_there_are(tmp_path: Path, shell: str) -> None:
    odd = tmp_path / 'a "b" \xe9'
    (odd / "lib64").mkdir(parents=True)
    (odd / "lib64/libempty.so.1").touch()
    (odd / "lib64/libdangling.so").symlink_to("nowhere")
    (tmp_path / "dangling").symlink_to(tmp_path / "gone")
    words = [str(tmp_path), "lo", "none0", "--", str(tmp_path / "dangling"), f"{odd}/lib64/*.so*", "/proc/self"]
    odd_step = {"HOME": "/none", "SLURM_JOB_START_TIME": "x", "LD_PRELOAD": "/none.so"}
    record = record_of(tmp_path, NODE, *words, command=(shell,), **odd_step)
    assert (record["started"], record["private"], record["shm"]) == (0, "", "")
    assert record["interfaces"]["lo"]["state"] == "unknown"
    assert record["interfaces"]["none0"]["state"] == ""
    assert record["paths"][str(tmp_path / "dangling")] == {"is": "l", "leads": str(tmp_path / "gone"), "shut": ""}
    library = next(found for path, found in record["paths"].items() if path.endswith("/libempty.so.1"))
    assert library["is"].replace("x", "").replace("w", "") == "efr"
    assert any(" /proc " in line for line in record["mounts"])
    resources = dict(line.split(None, 1) for line in record["resources"])
    assert resources.keys() >= {"memory", "/dev/shm", str(tmp_path), "memlock", "nofile", "nproc", "stack", "tasks"}
    assert all(len(resources[name].split()) == 2 for name in ("/dev/shm", "memlock", "nofile"))
    assert not list(tmp_path.glob(".lumisite*"))


@pytest.mark.skipif(os.geteuid() == 0 and not shutil.which("setpriv"), reason="root enters every folder")
def test_a_node_follows_a_link_to_the_folder_that_users_may_not_enter(tmp_path: Path) -> None:
    shut, link = tmp_path / "shut", tmp_path / "lib.so.1"
    (shut / "lib64").mkdir(parents=True)
    (shut / "lib64/lib.so.1").write_text("x")
    link.symlink_to("shut/lib64/lib.so.1")
    shut.chmod(0o600)
    for path in (tmp_path, *tmp_path.parents):
        if not path.stat().st_mode & 0o001:
            path.chmod(0o755)
    (tmp_path / "out").mkdir()
    (tmp_path / "out").chmod(0o777)
    user = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups") if os.geteuid() == 0 else ()
    record = record_of(tmp_path, NODE, "", "--", str(link), f"{shut}/lib64/*.so*", command=(*user, "sh"))
    shut.chmod(0o755)
    assert {entry["shut"] for entry in record["paths"].values()} == {str(shut)}


@SHELLS
def test_a_node_records_which_mounts_the_links_in_a_folder_lead_to(tmp_path: Path, shell: str) -> None:
    """By the text of the links: what they lead to need not be there, and is not looked at."""
    for number, to in enumerate(("/proc/none/x", "/proc", "/none", "../../../../../../../../proc/y", "/dev/../proc/z")):
        (tmp_path / f"link{number}").symlink_to(to)
    text = NODE[: NODE.index("\npaths() {")].replace("exec 3>&2 2>/dev/null", "").replace("shift 2\n", "", 1)
    same = text.replace("stat -c %d /)", f"stat -c %d {tmp_path})")  # as if the folder were on the root file system
    # A file system that is mounted itself is not listed.
    for script, printed in ((f"{same}\nlinked {tmp_path}", "/proc "), (f"{text}\nlinked /proc", "")):
        done = subprocess.run([shell, "-c", script], capture_output=True, text=True, timeout=60)
        assert (done.stdout, done.stderr) == (printed, "")


def test_a_node_that_cannot_record_reports_that_and_what_is_away(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    command = ["sh", "-c", NODE, "node.sh", f"{tmp_path}/file/out", "/tmp", "--", "/gone-1", "/usr"]
    done = subprocess.run(command, env={"SLURMD_NODENAME": "n9"}, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert done.stderr == f"lost\tn9\t{tmp_path}/file/out\tNot a directory\t/gone-1\n"


# ---- files


def files_of(folder: Path, *words: str, shell: str = "dash", job: str = "7", **changes: str) -> dict[str, Any]:
    text = "".join(scripts()[name].read_text() for name in ("node_common.sh", "node_files.sh"))
    for name, value in changes.items():
        assert f"{name}=" in text
        text = text.replace(f"{name}=", f"{name}={value} was_{name}=", 1)
    record = record_of(folder, text, *words, command=(shell,), SLURM_JOB_ID=job)
    assert record["part"] == "files"
    files: dict[str, Any] = record["files"]
    return files


def checksum(data: bytes) -> str:
    return subprocess.run(["cksum"], input=data, capture_output=True, check=True).stdout.split()[0].decode()


@SHELLS
def test_a_checksum_of_each_block_is_made(tmp_path: Path, shell: str) -> None:
    release, image = tmp_path / 'a "b" o', tmp_path / "image"
    release.mkdir()
    (release / "small o").write_text("x")
    (release / "empty").touch()
    image.write_bytes(b"".join(bytes([number]) * BLOCK_BYTES for number in range(3)) + b"end")
    files = files_of(tmp_path, str(release), "/gone", str(image), shell=shell)
    assert list(files) == [f"{release}/empty", f"{release}/small o", str(image)]
    for path, entry in files.items():
        data = Path(path).read_bytes()
        assert entry["size"] == len(data)
        blocks = {int(number): found for number, _, found in (word.partition(":") for word in entry["blocks"].split())}
        assert blocks == {
            number: checksum(data[number * BLOCK_BYTES : (number + 1) * BLOCK_BYTES])
            for number in range(-(-len(data) // BLOCK_BYTES))
        }
    assert checksum(b"") == NOTHING


def test_jobs_one_after_the_other_look_at_all_of_a_file_and_always_at_its_end(tmp_path: Path) -> None:
    image = tmp_path / "image"
    image.write_bytes(bytes(97 * 4096))
    seen: set[int] = set()
    for job in range(40, 49):
        files = files_of(tmp_path, f"{tmp_path}/none", str(image), job=str(job), block="4096", most_blocks="13")
        blocks = [int(word.partition(":")[0]) for word in files[str(image)]["blocks"].split()]
        assert (blocks[0], len(set(blocks))) == (96, 13)
        seen |= set(blocks)
        assert max(after - before for before, after in pairwise([0, *sorted(blocks)])) <= 25, "spread over the file"
    assert seen == set(range(97))


# ---- its check


@pytest.mark.parametrize(
    ("python", "path", "faults", "code", "words"),
    [
        ("""echo '[{"path": "/x"}]'; echo note >&2; exit 5""", "", [{"path": "/x"}], 5, "note"),
        # Neither does it run with the node's own Python, which knows no lumisite at this place.
        ("exit 127", "/none", None, 1, "/usr/bin/python3: No module named lumisite"),
        ("echo '['; exec sleep 30", "", None, 124, ""),
    ],
    ids=["found", "not-run", "too-long"],
)
def test_a_check_leaves_what_it_prints_or_why_it_did_not_run(
    tmp_path: Path, python: str, path: str, faults: object, code: int, words: str
) -> None:
    (tmp_path / "python").write_text(f"#!/bin/sh\n{python}\n")
    (tmp_path / "python").chmod(0o755)
    text = "".join(scripts()[name].read_text() for name in ("node_common.sh", "node_check.sh"))
    assert "budget_s=40 patience_s=45" in text
    text = text.replace("budget_s=40 patience_s=45", "budget_s=1 patience_s=3")
    record = record_of(tmp_path, text, f"{tmp_path}/python", path, "-m", "lumisite")
    assert (record["part"], record["faults"], record["code"], record["words"]) == ("check", faults, code, words)


# ---- what nodes send each other


def test_a_node_sends_to_all_and_records_where_one_does_not_answer(tmp_path: Path) -> None:
    """Three nodes on this machine's own loopback, of which the third leaves the address of a port that is closed."""
    for name in ("node_exchange.py", "lumisite_record.py"):
        (tmp_path / name).write_bytes(scripts()[name].read_bytes())
    out = tmp_path / "out"
    out.mkdir()
    (out / "2.address").write_text(json.dumps({"host": "n3", "addresses": {"lo": ["127.0.0.1", 9]}}))
    (out / "2.json").write_text("{}")
    started = []
    for rank in (0, 1):
        command = [sys.executable, "-EsB", str(tmp_path / "node_exchange.py"), str(out), "lo", "none0"]
        environment = {"SLURM_PROCID": str(rank), "SLURM_NTASKS": "3", "SLURMD_NODENAME": f"n{rank + 1}"}
        started.append(subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True))
    assert [process.communicate(timeout=60)[1] for process in started] == ["", ""]
    record = json.loads((out / "0.json").read_text())
    assert (record["host"], record["part"], record["counters"]["none0"]) == ("n1", "exchange", {})
    rows = {row["to"]: row for row in record["sent"]}
    assert (rows["n2"]["at"], rows["n2"]["error"], rows["n2"]["again"]) == ("", "", 0)
    assert rows["n2"]["segments"] > 200
    assert (rows["n3"]["at"], rows["n3"]["error"]) == ("connect", "Connection refused")
    assert sorted(path.name for path in out.iterdir()) == ["0.json", "1.json", "2.address", "2.json"]
