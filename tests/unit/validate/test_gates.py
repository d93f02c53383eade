"""What the probes of a site are: derived from its description, and nothing of LUMI in the code."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import lumisite
from lumisite.findings.finding import Finding, Severity
from lumisite.validate.lines import Gate
from lumisite.validate.probes.outcome import Located, gates, missing
from lumisite.validate.probes.probe import OUT, PROBES, Ended, Probe, ProbeStep, Srun
from lumisite.validate.probes.suite import choose_probes, groups
from tests.support.records import a_job, codes, failed, judged, only, target_of

PACKAGE = Path(lumisite.__file__).parent
NAMES = ["node", "environment", "transport", "communicators", "collectives", "ddp", "pairs"]
FOLDERS = ["node", "environment", "ddp", "job"]


def probes_of_site(site: str, **options: str) -> dict[str, Probe]:
    return {probe.name: probe for probe in choose_probes(target_of(site, **options))[: len(NAMES)]}


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


def test_no_code_of_a_gate_knows_lumi() -> None:
    asking = [PACKAGE / "validate/probes" / name for name in FOLDERS]
    files = [file for folder in (*asking, PACKAGE / "validate/probes") for file in folder.iterdir() if file.is_file()]
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
    assert missing(Ended(dataclasses.replace(step, nodes=("b", "a")), ()), records) == [found]
    of_nodes = missing(Ended(dataclasses.replace(step, srun=NODE_SRUN), ()), records[:2])
    assert [found.node for found in of_nodes] == ["b"]


def test_every_judge_says_so_when_there_is_no_record_at_all() -> None:
    for probe in choose_probes(target_of("twin")):
        lines = judged(probe, [], a_job(("a", "b"), 2))
        assert lines, probe.name
        assert all(isinstance(line, Gate) and line.verdict == "fail" for line in lines), probe.name


# ---- steps that ended otherwise

WORDS = "FATAL: could not open image /appl/images/none.sif: no such file or directory"


def told(*exit_codes: int, records: int = 0) -> list[Gate]:
    """Judge the environment where its steps ended so; the first has a record of each of so many nodes."""
    job = a_job(("n1", "n2"), 1, "environment")
    target = target_of("twin")
    (group,) = groups(choose_probes(target, ["environment"]), target.plan, 60, job.nodes)
    left = tuple(
        {"part": "node", "host": job.nodes[rank], "rank": rank, "local_rank": 0, "has_lmod": False}
        for rank in range(records)
    )
    steps = [
        Ended(step, () if number else left, code, (WORDS,) if code else ())
        for number, (step, code) in enumerate(zip(group.steps, exit_codes, strict=True))
    ]
    return failed(group.judge(steps, job))


def test_a_step_that_ran_nowhere_is_told_in_the_runtimes_words() -> None:
    (gate,) = told(1, 1)
    assert (gate.code, gate.text) == ("step-failed", f"environment-2n-node: ran on no node: {WORDS}")


def test_a_task_that_left_no_record_is_told_in_the_last_words_of_its_step() -> None:
    found = {gate.gate: gate for gate in told(0, 1, records=2)}
    assert codes([*found.values()]) == ["environment: record-missing"]
    assert found["environment"].cause.endswith(f"container: no record is left: {WORDS}")


def test_a_step_whose_time_was_over_is_told_with_what_it_left() -> None:
    assert codes(told(124, 0, records=1)) == ["environment: step-hung"]
