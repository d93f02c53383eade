"""Error texts lead to their symptom: the lines are as the programs print them, and each symptom leads somewhere."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from lumisite.cli import main
from lumisite.findings.catalogue import catalogue, find_entry
from lumisite.site.load import load_site
from lumisite.vendors.symptom import MOST_TEXT, find_symptoms, load_symptoms

#: Lines as users paste them, with the symptoms that they lead to, the first one first.
TEXTS = {
    "nid006365:180142:180163 [0] net.cc:626 NCCL WARN Error: network AWS Libfabric not found.": [
        "nccl-network-not-found"
    ],
    "x1000c0s0b0n0:12:12 [0] NCCL INFO NET/Plugin: No plugin found (libnccl-net.so)": ["nccl-plugin-missing"],
    "[rank0]:[E321 02:07:08.408 ProcessGroupNCCL.cpp:607] [Rank 0] Watchdog caught collective operation timeout: "
    "WorkNCCL(SeqNum=1580, OpType=ALLREDUCE, Timeout(ms)=600000) ran for 600004 ms": ["nccl-watchdog-timeout"],
    "nid007:99:99 [2] bootstrap.cc:126 NCCL WARN Bootstrap : no socket interface found": ["nccl-no-interface"],
    "srun: error: nid001234: task 5: Out Of Memory": ["out-of-memory"],
    "slurmstepd: error: Detected 1 oom_kill event in StepId=1.0. Some of the step tasks have been OOM Killed.": [
        "out-of-memory"
    ],
    "RuntimeError: Connection reset by peer": ["peer-closed"],
    "[n2109:21202] OPAL ERROR: Not initialized in file pmix2x_client.c at line 112\nThe application appears to have been "
    'direct launched using "srun",': ["mpi-start"],
    "PMI2_Init failed to intialize.  Return code: 1": ["mpi-start"],
    "slurmstepd: error: mpi/pmi2: invalid PMI1 init command: `error'": ["mpi-start"],
    "nid001:9:9 [0] enqueue.cc:5 NCCL WARN HIP failure 'out of memory'": ["gpu-memory"],
    "nid001:9:9 [0] enqueue.cc:5 NCCL WARN Cuda failure 'out of memory'": ["gpu-memory"],
    # What follows from the killed task comes after it, though it was printed before.
    "[rank3]: Connection closed by remote peer\nsrun: error: nid000002: task 9: Killed": ["task-killed", "peer-closed"],
    # Whoever cancels a job that hangs has its tasks killed, and no memory was used up.
    "srun: forcing job termination\nslurmstepd-nid000001: error: *** STEP 25.0 ON nid000001 CANCELLED AT "
    "2026-11-26T21:52:40 ***\nsrun: error: nid000002: task 1: Killed": ["step-cancelled"],
    "slurmstepd: error: Detected 1 oom_kill event in StepId=1.0.\nsrun: forcing job termination": [
        "out-of-memory",
        "step-cancelled",
    ],
    "[W1126 21:56:53.145578020 socket.cpp:759] [c10d] The client socket has failed to connect to [nid000001-hsn0]:22929 "
    "(errno: 101 - Network is unreachable).": ["peer-unreachable"],
    "[W1126 21:52:46.168230840 socket.cpp:759] [c10d] The client socket has failed to connect to [nid000001-hsn0]:22626 "
    "(errno: 113 - No route to host).": ["peer-unreachable"],
    "[W1126 21:50:43.431877853 socket.cpp:759] [c10d] The IPv6 network addresses of (nid000001-hsn0, 22525) cannot be "
    "retrieved (gai error: -3 - Temporary failure in name resolution).": ["peer-unreachable"],
    "RuntimeError: [enforce fail at ./gloo/transport/tcp/device.cc:83] ifa != nullptr. Unable to find address for: ib0": [
        "nccl-no-interface"
    ],
    "FATAL:   container creation failed: mount hook function failure: mount /proc/self/fd/3->"
    "/var/lib/apptainer/mnt/session/rootfs error: while mounting image /proc/self/fd/3: kernel reported a bad superblock "
    "for squashfs image partition, possible causes are that your kernel doesn't support the compression algorithm or the "
    "image is corrupted": ["container-image-unreadable"],
    "FATAL:   container creation failed: mount hook function failure: mount /nonexistent->/nonexistent error: while "
    "mounting /nonexistent: mount source /nonexistent doesn't exist": ["bind-source-missing"],
    'FATAL:   "python": executable file not found in $PATH': ["program-not-in-container"],
    "/usr/bin/python3: can't open file '/scratch/train.py': [Errno 2] No such file or directory": [
        "file-not-in-container"
    ],
    "ERROR: ld.so: object '/scratch/libx.so' from LD_PRELOAD cannot be preloaded (cannot open shared object file): "
    "ignored.": ["preload-failed"],
    "Fatal Python error: Failed to import encodings module\nModuleNotFoundError: No module named 'encodings'": [
        "python-home"
    ],
    "ModuleNotFoundError: No module named 'numpy._core._multiarray_umath'": ["user-packages"],
    "Importing the numpy C-extensions failed. This error can happen for": ["user-packages"],
    "MIOpen Error: sqlite_db.hpp:252: Cannot open database file:/tmp/u/miopen/gfx90a.ukdb": ["miopen-cache"],
    "FATAL: container creation failed: mount /var/spool/slurmd->/var/spool/slurmd error: destination "
    "/var/spool/slurmd doesn't exist in container": ["mount-point-missing"],
    "FATAL:   image format not recognized": ["container-image-unreadable"],
    "python: error while loading shared libraries: libcxi.so.1: cannot open shared object file": ["library-not-loaded"],
    "ImportError: /lib64/libc.so.6: version `GLIBC_2.34' not found (required by /usr/lib64/libfabric.so.1)": [
        "symbol-version-missing"
    ],
    "srun: error: Unable to create step for job 12: Requested node configuration is not available": [
        "job-not-possible"
    ],
    "error: CPU binding outside of job step allocation, allocated CPUs are: 0x00FE": ["cpu-binding-outside"],
    "slurmstepd: error: *** STEP 7.0 ON nid1 CANCELLED AT 2026-01-30T10:00:00 DUE TO TIME LIMIT ***": ["time-limit"],
    "ERROR: Unexpected bus error encountered in worker. This might be caused by insufficient shared memory (shm).": [
        "shared-memory"
    ],
    "hipErrorNoBinaryForGpu: Unable to find code object for all current devices!": ["gpu-binary-missing"],
    "Memory access fault by GPU node-4 (Agent handle: 0x55) on address 0x7fc. Reason: Page not present": [
        "gpu-memory-fault"
    ],
    "torch.OutOfMemoryError: HIP out of memory. Tried to allocate 2.00 GiB.": ["gpu-memory"],
    "MPIDI_CRAY_init: GPU_SUPPORT_ENABLED is requested, but GTL library is not linked": ["mpich-gtl-missing"],
    "libfabric:507357:1741146011::cxi:fabric:cxip_nic_get_rgroup_vni():253<warn> : Failed to find valid default rgroup": [
        "slingshot-resources"
    ],
    "slow on two nodes": ["slow-between-nodes"],
    "my training hangs at init": ["hangs-at-start"],
}


def names(text: str) -> list[str]:
    return [match.name for match in find_symptoms(text)]


@pytest.mark.parametrize(("text", "expected"), TEXTS.items())
def test_a_text_leads_to_its_symptom(text: str, expected: list[str]) -> None:
    assert names(text) == expected


@pytest.mark.parametrize("text", ["epoch 3 loss 0.25", "loading the checkpoint shards", "NCCL INFO Init COMPLETE", ""])
def test_what_is_no_error_leads_nowhere(text: str) -> None:
    assert names(text) == []


def test_words_count_only_where_no_program_has_said_anything() -> None:
    assert names("it hangs\nRuntimeError: Address already in use") == ["port-in-use"]


@pytest.mark.parametrize("name", load_symptoms())
def test_a_symptom_leads_to_what_there_is(name: str) -> None:
    """Its codes and settings can be explained, and its name is found as it is printed."""
    known = {setting.name for setting in load_site("lumi").site.settings}
    symptom = load_symptoms()[name]
    assert symptom.source.startswith("https://")
    assert symptom.causes
    for cause in symptom.causes:
        assert cause.run
        assert [code for code in cause.codes if code not in catalogue()] == []
        assert [setting for setting in cause.settings if setting not in known] == []
        assert cause.codes
    assert all(re.compile(pattern) for pattern in symptom.patterns)
    assert find_entry(name) is None
    assert name in names(name)


def test_why_prints_the_causes_of_an_error_text_without_a_site(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["why", "FATAL: could not open image /scratch/a.sif", "--json"]) == 0
    printed = capsys.readouterr()
    assert printed.err == ""
    assert [(record["symptom"], record["line"]) for record in json.loads(printed.out)] == [
        ("container-image-unreadable", "FATAL: could not open image /scratch/a.sif")
    ]


def test_why_reads_all_that_a_job_printed(tmp_path: Path) -> None:
    """Of a log that is longer than what is searched, the end too: a training may run for days before its error."""
    log = tmp_path / "log"
    log.write_text(
        "epoch 1 loss 0.25\n" * (MOST_TEXT // 10) + 'FATAL:   "python": executable file not found in $PATH\n'
    )
    command = [sys.executable, "-m", "lumisite", "why", "-", "--json"]
    with log.open() as stream:
        done = subprocess.run(command, stdin=stream, capture_output=True, text=True, check=True)
    assert done.stderr == ""
    assert [record["symptom"] for record in json.loads(done.stdout)] == ["program-not-in-container"]


def test_why_of_an_unknown_text_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["why", "the frobnicator is out of beans"]) == 2
    assert "[symptom-unknown]" in capsys.readouterr().err


def test_why_explains_a_setting_and_a_code_together(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["why", "NCCL_SOCKET_IFNAME", "interface-down", "--site", "lumi", "--json"]) == 0
    first, second = json.loads(capsys.readouterr().out)
    assert (first["name"], second["code"]) == ("NCCL_SOCKET_IFNAME", "interface-down")


@pytest.mark.parametrize(
    ("word", "symptom"),
    [("HSA_STATUS_ERROR_OUT_OF_RESOURCES", "no-gpu"), ("miopenStatusInternalError", "miopen-cache")],
)
def test_an_error_of_one_word_is_found_like_a_text(word: str, symptom: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["why", word, "--site", "lumi"]) == 0
    assert capsys.readouterr().out.startswith(f"{symptom}: ")


def test_a_word_that_is_a_name_of_the_site_is_no_error_text(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["why", "MIOPEN_USER_DB_PATH", "--site", "lumi"]) == 0
    assert "settings[" in capsys.readouterr().out
    assert main(["why", "MIOPEN_USER_DB_PAHT", "--site", "lumi"]) == 2
    assert "MIOPEN_USER_DB_PATH" in capsys.readouterr().err
