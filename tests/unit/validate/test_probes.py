"""What the probes of a site are, derived from its description; and steps that did not start, or left no record."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

import lumisite
from lumisite.findings.finding import Finding, Severity
from lumisite.site.load import EMBEDDED, load_site
from lumisite.validate.lines import Gate
from lumisite.validate.probes.failed_ranks import trouble
from lumisite.validate.probes.outcome import Located, gates, missing
from lumisite.validate.probes.probe import OUT, PROBES, Ended, ProbeStep, Record, Srun
from lumisite.validate.probes.start_errors import START_ERRORS, start_failure
from lumisite.validate.probes.suite import choose_probes, groups
from tests.support.ranks import ended, expected, rank
from tests.support.records import a_job, judged, only, target_of
from tests.support.sites import load_text, site_text

PACKAGE = Path(lumisite.__file__).parent
NAMES = ["node", "environment", "transport", "communicators", "collectives", "ddp", "pairs"]


def test_each_folder_is_a_probe_in_its_order_and_what_each_node_is_comes_first() -> None:
    assert [probe.name for probe in choose_probes(target_of("twin"))] == NAMES
    assert [probe.name for probe in choose_probes(target_of("twin"), ["pairs"])] == ["node", "pairs"]
    assert {path.parent.name for path in (PACKAGE / "validate/probes").glob("*/judge.py")} == {*NAMES}


def test_commands_are_what_a_user_would_type() -> None:
    target = target_of("twin")
    probes = choose_probes(target)

    def words(number: int, part: int) -> str:
        return " ".join(probes[number].sruns[part].words).replace(PROBES, "/p").replace(OUT, "/o")

    assert words(1, 0).startswith("bash /p/environment_node.sh /o /opt/cray /usr/lib64/libcxi.so.1 /scratch ")
    start = "singularity exec --bind /p,/o /appl/images/torch.sif python3 /p/environment.py /o --path /opt/cray "
    assert words(1, 1).startswith(start)
    assert (
        "--variable MIOPEN_USER_DB_PATH --variable MIOPEN_CUSTOM_CACHE_DIR --private /tmp/lumisite --import torch"
        in words(1, 1)
    )


# ---- what they are told of the vendors of a site: the scripts know none by themselves

DESCRIPTIONS = {
    "lumi": load_site("lumi").site,
    "nvidia": load_text((EMBEDDED / "university.yaml").read_text()).site,
    "twin": load_site("twin").site,
    # GPUs that no node kind describes.
    "undescribed": load_text(site_text(("  backend: gloo\n", "  backend: nccl\n"))).site,
}
AMD = ["--backend nccl", "--device cuda", "--settings RCCL_", "--settings MIOPEN_", "--settings HSA_"]


def options(site: str, probe: str, number: int, *names: str) -> list[str]:
    """Return these options of a part of a probe, with their values."""
    (*_, found) = choose_probes(target_of(DESCRIPTIONS[site]), [probe])
    pairs = pairwise(found.sruns[number].arguments)
    return [f"{name} {value}" for name, value in pairs if name.removeprefix("--") in names]


@pytest.mark.parametrize(
    ("site", "expected", "gpus"),
    [
        ("lumi", AMD, ["--runtime libamdhip64.so:hipGetDeviceCount:hipDeviceGetPCIBusId", "--device /dev/kfd"]),
        (
            "nvidia",
            ["--backend nccl", "--device cuda", "--settings NCCL_", "--settings CUDA_"],
            ["--runtime libcudart.so:cudaGetDeviceCount:cudaDeviceGetPCIBusId", "--device /dev/nvidiactl"],
        ),
        ("twin", ["--backend gloo"], []),
        ("undescribed", AMD, None),
    ],
)
def test_ranks_get_their_device_the_names_of_settings_and_how_gpus_are_found(
    site: str, expected: list[str], gpus: list[str] | None
) -> None:
    for probe in ("transport", "communicators", "collectives", "ddp", "pairs"):
        assert options(site, probe, 0, "backend", "device", "settings", "carrier") == expected
    if gpus is not None:
        assert options(site, "environment", 1, "runtime", "device") == gpus


def test_no_code_of_a_probe_knows_lumi() -> None:
    files = [path for path in (PACKAGE / "validate/probes").rglob("*") if path.suffix in (".py", ".sh")]
    assert len(files) > 30
    for file in files:
        code = re.sub(r'""".*?"""|#.*', "", file.read_text(), flags=re.DOTALL)
        assert not re.search(r"\blumi\b|/appl|/pfs|\bhsn|cray|\bcxi\b", code, re.IGNORECASE), file


# ---- lines


def test_equal_findings_are_one_line() -> None:
    job = a_job(tuple(f"nid{number:06}" for number in range(1, 9)), 2)
    bad = Finding("bind-missing", Severity.NODE, "not on the node", "drain it")
    located = [Located(bad, node, rank) for rank, node in enumerate(job.nodes)]
    line = only(gates(located, job))
    assert line.text.startswith("ranks 0-7 on nid000001, nid000002, nid000003, nid000004 and 4 more: ")
    assert (line.values["ranks"], line.asked) == ("0-7", ())
    assert line.advice.startswith("all 8 nodes have it")
    assert gates([], job) == []
    assert only(gates(located[1:2], job)).nodes == ("nid000002",)


NODE_SRUN = Srun("", (), each="node")


def test_a_task_without_a_record_is_named() -> None:
    step = ProbeStep("p", Srun("", ()), "several", ("a", "b"), 2, 60)
    records = [{"host": "a", "rank": 0}, {"host": "a", "rank": 1}, {"host": "b", "rank": 3}]
    (found,) = missing(Ended(step, ()), records)
    assert (found.node, found.rank, found.finding.code) == ("b", 2, "record-missing")
    # Busy nodes stand last in a set, and have the first ranks all the same.
    assert missing(Ended(replace(step, nodes=("b", "a")), ()), records) == [found]
    of_nodes = missing(Ended(replace(step, srun=NODE_SRUN), ()), records[:2])
    assert [found.node for found in of_nodes] == ["b"]


def test_every_judge_reports_it_when_there_is_no_record_at_all() -> None:
    for probe in choose_probes(target_of("twin")):
        lines = judged(probe, [], a_job(("a", "b"), 2))
        assert lines, probe.name
        assert all(isinstance(line, Gate) and line.verdict == "fail" for line in lines), probe.name


# ---- steps that ended otherwise

WORDS = "FATAL: could not open image /appl/images/none.sif: no such file or directory"


@pytest.mark.parametrize(
    ("exit_codes", "records", "code", "text"),
    [
        ((1, 1), 0, "step-failed", f"environment-2n-node: ran on no node: {WORDS}"),
        ((0, 1), 2, "record-missing", f"ranks 0-1 on n1, n2: container: no record is left: {WORDS}"),
        ((124, 0), 1, "step-hung", "environment-2n-node: not done after 60 s"),
    ],
)
def test_a_step_that_ended_otherwise_is_reported_in_its_words(
    exit_codes: tuple[int, ...], records: int, code: str, text: str
) -> None:
    """The first step has a record of each of so many nodes."""
    job, target = a_job(("n1", "n2"), 1, "environment"), target_of("twin")
    (group,) = groups(choose_probes(target, ["environment"]), target.plan, 60, job.nodes)
    left = [
        {"part": "node", "host": f"n{rank + 1}", "rank": rank, "local_rank": 0, "has_lmod": False} for rank in (0, 1)
    ]
    steps = [
        Ended(step, () if number else tuple(left[:records]), code, (WORDS,) if code else ())
        for number, (step, code) in enumerate(zip(group.steps, exit_codes, strict=True))
    ]
    gate = only(group.judge(steps, job))
    assert (gate.gate, gate.code, gate.text) == ("environment", code, text)


# ---- what kept a task or a container from starting, by its own line

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


def test_a_port_that_is_in_use_is_a_fault_of_that_node() -> None:
    error = {"error": "DistNetworkError: failed to listen", "error_at": "joining", "error_time": 3.0}
    records: list[Record] = [{**rank(0), **error, "port_in_use": 20101, "port_users": ["alice"]}, {**rank(1), **error}]
    found = trouble(replace(ended(records, 1), stderr=(EXITED,)), expected("ddp"))
    assert found is not None
    assert (found.gate, found.code, found.verdict, found.nodes) == ("node", "port-in-use", "fail", ("nid000001",))
    assert found.text == "nid000001: port 20101 (MASTER_PORT) is in use by a process of alice"
