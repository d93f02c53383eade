"""The scripts that run inside jobs: they leave a record whatever they meet, and run where little else does."""

from __future__ import annotations

import ast
import ctypes
import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from lumisite.validate.probes.common import lumisite_record
from lumisite.validate.probes.probe import scripts
from lumisite.validate.run.folder import read_records

PYTHON = ("environment.py", "lumisite_record.py", "node_exchange.py")
WAITS = "GRACE_S = 1.0\n"

#: What no script expects: bytes that are no text, a line break, a home that is not there.
HOSTILE = {
    b"HOME": b"/nonexistent",
    b"PATH": os.fsencode(os.environ["PATH"]),
    b"PYTHONPATH": b"/gone/\xff:relative::",
    b"PYTHONSAFEPATH": b"",
    b"SLURM_PROCID": b"3",
    b"SLURM_LOCALID": b"x",
    b"SLURMD_NODENAME": b"nid000009",
    b"MIOPEN_USER_DB_PATH": b"/tmp/\xfe\n\"quoted\"",
    b"MIOPEN_CUSTOM_CACHE_DIR": b"",
    b"SLURM_CPU_BIND": b"\x01\"\\\xff",
}  # fmt: skip


def put_scripts(folder: Path, *names: str) -> None:
    """Put scripts into a folder, all where none is named; a rank that fails has nobody to wait for."""
    folder.mkdir(exist_ok=True)
    assert WAITS in scripts()["rank.py"].read_text()
    for name in names or scripts():
        (folder / name).write_text(scripts()[name].read_text().replace(WAITS, "GRACE_S = 0.0\n"))


def left_by(script: str, *arguments: str, launcher: str = sys.executable) -> dict[str, Any]:
    """Run a script as a task would, and give its record."""
    folder = Path("probes")
    put_scripts(folder)
    command = [launcher, str(folder / script), "out", *arguments]
    done = subprocess.run(command, env=HOSTILE, capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", ""), done.stderr
    assert sorted(path.name for path in Path("out").iterdir()) == ["3.json"]
    record: dict[str, Any] = json.loads(Path("out/3.json").read_text(errors="replace"))
    assert (record["host"], record["rank"]) == ("nid000009", 3)
    return record


@pytest.mark.parametrize("name", PYTHON)
def test_the_oldest_python_of_a_node_reads_them(name: str) -> None:
    """SLES has 3.6, and a probe must be able to say that it was the wrong one."""
    ast.parse(scripts()[name].read_text(), feature_version=(3, 6))


def test_no_annotation_needs_a_newer_python() -> None:
    for name in PYTHON:
        for node in ast.walk(ast.parse(scripts()[name].read_text())):
            annotations = [node.returns] if isinstance(node, ast.FunctionDef) else []
            annotations += [node.annotation] if isinstance(node, ast.arg | ast.AnnAssign) else []
            for annotation in filter(None, annotations):
                evaluated = any(isinstance(part, ast.Subscript | ast.BinOp) for part in ast.walk(annotation))
                assert not evaluated, f"{name}:{annotation.lineno}: quote it, Python 3.6 cannot evaluate it"


def test_a_rank_records_which_private_directories_the_prolog_could_not_use(tmp_path: Path) -> None:
    top = tmp_path / f"lumisite-{os.getuid()}"
    (top / "cache").mkdir(parents=True)
    record = left_by("environment.py", "--private", f"{tmp_path}/lumisite")
    assert [(entry["path"], entry["usable"]) for entry in record["private"]] == [(str(top), False)]
    top.chmod(0o1700)
    record = left_by("environment.py", "--private", f"{tmp_path}/lumisite", "--private", "$NONE/none")
    assert [(entry["path"], entry["usable"]) for entry in record["private"]] == [(str(top), True)]
    if os.geteuid() == 0:
        os.chown(top / "cache", 65534, -1)
        record = left_by("environment.py", "--private", f"{tmp_path}/lumisite")
        found = {entry["path"]: (entry["usable"], entry["owner"]) for entry in record["private"]}
        assert found == {str(top): (True, 0), str(top / "cache"): (False, 65534)}


def test_a_rank_records_what_it_has_whatever_the_variables_hold() -> None:
    words = ["--variable", "MIOPEN_USER_DB_PATH", "--variable", "MIOPEN_CUSTOM_CACHE_DIR", "--variable", "NONE"]
    words += ["--path", "/", "--path", "/gone", "--import", "json", "--import", "nothing_of_that_name"]
    words += ["--library", "libgone.so.1", "--library", "libc.so.6"]
    record = left_by("environment.py", *words)
    assert record["cpus"]
    assert record["local_rank"] == 0
    assert record["environment"]["SLURM_CPU_BIND"] == '\x01"\\\\udcff'
    assert record["user"] == os.getuid()
    assert record["directories"]["NONE"] == {"set": False}
    assert "directory" not in record["directories"]["MIOPEN_USER_DB_PATH"]
    assert record["paths"]["/"]["exists"] is True
    assert record["paths"]["/gone"]["exists"] is False
    assert record["directories"]["MIOPEN_CUSTOM_CACHE_DIR"]["mount"]["type"]
    assert record["imports"]["nothing_of_that_name"]["error"].startswith("ModuleNotFoundError: ")
    assert "libgone.so.1" in record["libraries"]["libgone.so.1"]
    assert record["libraries"]["libc.so.6"] == ""


def test_a_node_records_which_files_its_paths_are(tmp_path: Path) -> None:
    odd = tmp_path / 'odd "name\\'
    odd.mkdir()
    subprocess.run(
        ["bash", str(scripts()["environment_node.sh"]), "out", "/", "/gone", str(odd)], env=HOSTILE, check=True
    )
    record = json.loads(Path("out/3.json").read_text())
    status = Path("/").stat()
    assert record["paths"]["/"] == {"exists": True, "file": f"{status.st_dev}:{status.st_ino}"}
    assert record["paths"]["/gone"] == {"exists": False}
    assert record["paths"][str(odd)]["exists"] is True
    names = {"locked memory", "open files", "processes", "stack size", "shared memory"}
    assert record["granted"].keys() == names
    assert record["granted"]["open files"] == left_by("environment.py")["limits"]["open files"]
    assert names <= left_by("environment.py")["limits"].keys()


#: PyTorch as far as a rank asks it for its device, and a group that is made up; `waits` is how it is taken down.
TORCH = """
import types
__version__ = "0"
device = lambda kind, index=0: types.SimpleNamespace(type=kind, name=f"{kind}:{index}")
ones = lambda *_, device: print("made on", device.name)
set_num_threads = lambda *_: None
class Gpus:
    device_count = lambda: 3
    set_device = lambda device: print("set", device.name)
    synchronize = lambda device: print("waited for", device.name)
xpu = Gpus
"""
DISTRIBUTED = """
import time
init_process_group = lambda backend, **_: print("met by", backend)
all_reduce = barrier = lambda *_, **__: None
get_world_size = lambda: 1
destroy_process_group = lambda: time.sleep({})
"""


def meet(folder: Path, words: str, leaving_s: int = 0, **environment: str) -> tuple[list[str], dict[str, Any]]:
    """Have a rank join the others and leave them, and return what it did and its record."""
    put_scripts(folder, "rank.py", "lumisite_record.py")
    (folder / "torch").mkdir()
    (folder / "torch/__init__.py").write_text(TORCH)
    (folder / "torch/distributed.py").write_text(DISTRIBUTED.format(leaving_s))
    (folder / "meet.py").write_text("import rank\nrank.run(rank.Rank.connect)\n")
    (folder / "out").mkdir()
    own = {"MASTER_ADDR": "none", "MASTER_PORT": "1", "SLURM_PROCID": "0", **environment}
    command = [sys.executable, "meet.py", "out", "--limit", "9", *words.split()]
    done = subprocess.run(
        command, cwd=folder, env={**os.environ, **own}, timeout=60, check=True, capture_output=True, text=True
    )
    record: dict[str, Any] = json.loads((folder / "out/0.json").read_text())
    return done.stdout.splitlines(), record


def test_a_rank_ends_with_its_record_where_gloos_group_does_not_go(tmp_path: Path) -> None:
    _, record = meet(tmp_path, "--backend gloo", leaving_s=600)
    assert record["world_size"] == 1


def test_a_rank_takes_the_device_that_it_is_given(tmp_path: Path) -> None:
    words = "--backend xccl --device xpu --settings CCL_"
    done, record = meet(tmp_path, words, SLURM_LOCALID="4", CCL_X="1")
    assert done == ["set xpu:1", "met by xccl", "made on xpu:1", "waited for xpu:1"]
    assert record["environment"] == {"CCL_X": "1"}


class Runtime:
    """A run-time library with two GPUs, whose functions are called as it is told."""

    def __init__(self, name: str) -> None:
        if name != "libtwo.so":
            raise OSError(name)

    def count(self, number: ctypes._CArgObject) -> int:
        ctypes.cast(number, ctypes.POINTER(ctypes.c_int))[0] = 2
        return 0

    def address(self, text: ctypes.Array[ctypes.c_char], size: ctypes.c_int, index: ctypes.c_int) -> int:
        text.value = f"0000:C{index.value}:00.0".encode()[: size.value]
        return 0


def test_addresses_come_from_the_library_that_the_site_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(scripts()["lumisite_record.py"].parent))
    found: dict[str, Any] = {"__name__": "environment"}
    exec(compile(scripts()["environment.py"].read_text(), "environment.py", "exec"), found)
    monkeypatch.setattr(ctypes, "CDLL", Runtime)
    words = "environment.py out --runtime libgone.so:a:b --runtime libtwo.so:count:address"
    monkeypatch.setattr(sys, "argv", words.split())
    assert found["bus_ids"]() == ["0000:c0:00.0", "0000:c1:00.0"]


def test_ranks_of_a_node_leave_one_record_and_report_in_one_file(tmp_path: Path) -> None:
    put_scripts(tmp_path, "rank.py", "lumisite_record.py")
    text = "rank = rank.Rank()\nrank.details = {'where': 'x' * int(sys.argv[2])}\nrank.report()\n"
    (tmp_path / "one.py").write_text(f"import sys\nimport lumisite_record\nimport rank\n{text}")
    leave = "lumisite_record.leave(rank.record)\n"
    last = f"rank.record['again'] = 1\n{leave}"
    (tmp_path / "last.py").write_text((tmp_path / "one.py").read_text() + last)
    (tmp_path / "two.py").write_text((tmp_path / "one.py").read_text() + leave + last)
    (tmp_path / "out").mkdir()
    shape = {"SLURM_STEP_NUM_TASKS": "8", "SLURM_STEP_NUM_NODES": "2", "SLURM_NTASKS": "8", "SLURMD_NODENAME": "n2"}
    for local, (script, letters) in enumerate([("two.py", 5), ("one.py", 40_000), ("one.py", 90), ("last.py", 5)]):
        ids = {"SLURM_PROCID": str(local + 4), "SLURM_LOCALID": str(local)}
        command = [sys.executable, script, "out", str(letters)]
        subprocess.run(command, cwd=tmp_path, env={**os.environ, **shape, **ids}, timeout=30, check=True)
        if local == 0:
            # A rank that is killed in the middle of its record.
            with (tmp_path / "out/n2.jsonl").open("a") as stream:
                stream.write('{"rank": 5, "ho')
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["n2.at", "n2.jsonl"]
    records = read_records(tmp_path / "out")
    finished = [record for record in records if "local_rank" in record]
    assert [(record["rank"], record["again"], record["host"]) for record in finished] == [(4, 1, "n2"), (7, 1, "n2")]
    reports = {record["rank"]: record for record in records if "phase" in record}
    assert {rank: len(str(report.get("where", ""))) for rank, report in reports.items()} == {4: 5, 5: 0, 6: 90, 7: 5}
    assert not any("froze" in report for report in reports.values())


def test_whose_process_listens_on_a_port_is_recorded() -> None:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        port = held.getsockname()[1]
        assert lumisite_record.users_of_port(port) == []  # held, and nobody listens
        held.listen()
        assert lumisite_record.users_of_port(port) == [lumisite_record.user_name(os.getuid())]
