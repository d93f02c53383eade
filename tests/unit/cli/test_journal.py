"""`journal`: the helper's lines in logs of all kinds, summed up."""

from __future__ import annotations

import gzip
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from lumisite.cli import main
from lumisite.release import journal

Output = pytest.CaptureFixture[str]


def line(
    job: int = 1, node: str = "n1", *, mode: str = "observe", part: str = "prolog", us: str = "900", **more: str
) -> str:
    """Give a line of the helper; of `more`, several values are parted by commas, and `_` stands for `-`."""
    words = [f"part={part} release=r mode={mode} rule=3 job={job} step=0 rank=0 node={node} in=s/one/gpu/dev-g/lumi-g"]
    words += [f"{key.replace('_', '-')}={value}" for key, values in more.items() for value in values.split(",")]
    return " ".join([*words, f"us={us}"])


def as_journald(text: str) -> str:
    return json.dumps({"MESSAGE": text, "SYSLOG_IDENTIFIER": "lumisite", "_HOSTNAME": "n1"})


def summary(capsys: Output, tmp_path: Path, lines: Sequence[str], *options: str) -> tuple[int, dict[str, Any]]:
    (tmp_path / "log").write_text("".join(f"{text}\n" for text in lines))
    code = main(["journal", str(tmp_path / "log"), "--json", *options])
    return code, json.loads(capsys.readouterr().out)


@pytest.mark.parametrize(
    "begin",
    ["", "Nov 27 02:00:00 n1 lumisite[77]: ", "<14>1 2026-11-27T02:00:00Z n1 lumisite - - - ", "lumisite: journal "],
)
def test_lines_of_each_kind_of_log_are_read(capsys: Output, tmp_path: Path, begin: str) -> None:
    lines = [f"{begin}{line(job, set='A/1,B/2', bind='/x')}" for job in (1, 2)]
    code, found = summary(capsys, tmp_path, ["something else", *lines, "part=one of a story"])
    assert (code, found["records"], found["damaged"], found["lines"]) == (0, 2, 0, 4)
    assert found["steps"] == {"observe": 2}
    assert found["decided"] == {"observe": {"set": {"A/1": 2, "B/2": 2}, "bind": {"/x": 2}}}


def test_journald_is_read_with_bytes_that_are_no_text(capsys: Output, tmp_path: Path) -> None:
    binary = json.dumps({"MESSAGE": list(line(2, set="A/1").encode())})
    lines = [as_journald(line(1, set="A/1")), binary, json.dumps({"MESSAGE": None}), json.dumps({"MESSAGE": ["x", -1]})]
    code, found = summary(capsys, tmp_path, [*lines, "{", "[]"])
    assert (code, found["records"], found["decided"]["observe"]["set"]) == (0, 2, {"A/1": 2})


@pytest.mark.parametrize(
    "torn",
    [
        line(set="A/1")[:-6],
        line(set="A/1") + " more",
        line().replace("job=1", "job=1;rm"),
        line().replace("job=1", "job=1 job=2"),
        line().replace("mode=observe", "mode=\x1b[31mred"),
        line().replace("node=n1", "node="),
        line(set="A/1 part=prolog release=r"),
        as_journald(line(set="A/1"))[:-60],
    ],
)
def test_a_torn_line_is_counted_and_passed_over(capsys: Output, tmp_path: Path, torn: str) -> None:
    code, found = summary(capsys, tmp_path, [line(5, set="A/1"), torn])
    assert (code, found["records"], found["damaged"]) == (0, 1, 1)
    assert [(finding["code"], finding["line"]) for finding in found["findings"]] == [("journal-damaged", 2)]


def test_what_several_nodes_of_a_step_decide_counts_once(capsys: Output, tmp_path: Path) -> None:
    lines = [line(1, f"n{node}", set="A/1", cpus=f"{node}-7") for node in range(1, 5)]
    lines += [line(1, "n1", part="wrapper", image="name/f/6.2/yes", set="B/2"), line(2, mode="act", set="A/1")]
    _, found = summary(capsys, tmp_path, lines)
    assert found["steps"] == {"act": 1, "observe": 1}
    assert found["decided"]["observe"] == {"set": {"A/1": 1, "B/2": 1}, "cpus": {"any": 1}}
    assert found["decided"]["act"] == {"set": {"A/1": 1}}
    assert found["nodes"] == 4


def test_the_overhead_is_that_of_all_parts_on_a_node(capsys: Output, tmp_path: Path) -> None:
    lines = [line(job, us="1000") for job in range(1, 100)] + [line(100, us="9000"), line(101, us="?")]
    lines += [line(job, part="wrapper", us="500") for job in range(1, 101)]
    _, found = summary(capsys, tmp_path, lines)
    assert found["overhead_ms"] == {"p50": 1.5, "p99": 9.5}
    assert main(["journal", str(tmp_path / "log")]) == 0
    assert "overhead of a step on a node: p50 1.5 ms, p99 9.5 ms" in capsys.readouterr().out


def test_a_node_that_differs_from_its_kind_is_named(capsys: Output, tmp_path: Path) -> None:
    lines = [line(job, f"n{job % 4}") for job in range(1, 41)]
    lines += [
        line(50, "n4", missing="/scratch"),
        line(51, "n5", no_cpus="unknown-node"),
        line(52, "n6", no_place="/tmp"),
    ]
    code, found = summary(capsys, tmp_path, lines)
    assert code == 5
    named = {finding["code"]: (finding["nodes"], finding["subject"]) for finding in found["findings"]}
    assert named == {
        "journal-missing": (["n4"], "/scratch"),
        "journal-unknown-node": (["n5"], "unknown-node"),
        "journal-no-place": (["n6"], "/tmp"),
    }


@pytest.mark.parametrize("more", [{"missing": "/scratch"}, {"no_cpus": "unknown-node"}])
def test_what_all_nodes_lack_names_none(capsys: Output, tmp_path: Path, more: dict[str, str]) -> None:
    code, found = summary(capsys, tmp_path, [line(job, f"n{job}", **more) for job in range(1, 9)])
    assert (code, found["findings"]) == (0, [])
    assert sum(map(sum, (table.values() for table in found["refused"].values()))) == 8


def test_what_a_user_does_on_one_node_names_no_node(capsys: Output, tmp_path: Path) -> None:
    lines = [line(job, f"n{job}") for job in range(1, 9)] + [
        line(9, "n9", left="A/1", harm="B", no_cpus="users-binding")
    ]
    assert summary(capsys, tmp_path, lines)[0] == 0


def test_jobs_of_the_canary_are_compared_with_the_rest(capsys: Output, tmp_path: Path) -> None:
    lines = [line(job, mode="act" if job <= 20 else "observe") for job in range(1, 101)]
    states = [f"{job}|FAILED" if job in (1, 2, 3) else f"{job}|COMPLETED" for job in range(1, 98)]
    states += ["98|RUNNING", "99|CANCELLED by 0", "100|TIMEOUT", "777|FAILED", "torn", "1.batch|FAILED"]
    (tmp_path / "states").write_text("\n".join(states))
    _, found = summary(capsys, tmp_path, lines, "--states", str(tmp_path / "states"))
    assert found["jobs"] == {"act": {"failed": 3, "ended": 20}, "observe": {"failed": 1, "ended": 78}}
    main(["journal", str(tmp_path / "log"), "--states", str(tmp_path / "states")])
    out = capsys.readouterr().out
    assert "jobs, act: 3 of 20 failed (3.2% to 37.9% with 95 % confidence)" in out
    assert "by chance: 0.026" in out


def test_a_node_of_two_partitions_is_one_node(capsys: Output, tmp_path: Path) -> None:
    lines = [line(1), line(2).replace("/dev-g/", "/standard-g/")]
    assert summary(capsys, tmp_path, lines)[1]["nodes"] == 1


def test_an_empty_journal_is_none_and_no_fault(capsys: Output, tmp_path: Path) -> None:
    code, found = summary(capsys, tmp_path, [])
    assert (code, found["steps"], found["overhead_ms"]) == (0, {}, {"p50": None, "p99": None})
    assert main(["journal", str(tmp_path / "log")]) == 0
    assert capsys.readouterr().out == "steps: none, on 0 nodes\n"


def test_a_packed_journal_is_read_too(capsys: Output, tmp_path: Path) -> None:
    (tmp_path / "log.gz").write_bytes(gzip.compress(f"{line(set='A/1')}\n".encode()))
    assert main(["journal", str(tmp_path / "log.gz"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["records"] == 1


def test_a_line_without_an_end_takes_no_memory(capsys: Output, tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes(
        b"part=prolog release=" + b"x" * (journal.MOST_LINE_BYTES * 40) + b"\n" + line().encode()
    )
    assert main(["journal", str(tmp_path / "log"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["records"] == 1


def test_too_many_lines_are_refused_with_the_limit(
    capsys: Output, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal, "MOST_RECORDS", 3)
    (tmp_path / "log").write_text("".join(f"{line(job)}\n" for job in range(1, 6)))
    assert main(["journal", str(tmp_path / "log")]) == 2
    err = capsys.readouterr().err
    assert "log:4: more than 3 lines" in err
    assert "[journal-too-large]" in err


def test_nothing_of_a_value_is_printed_raw(capsys: Output, tmp_path: Path) -> None:
    _, found = summary(capsys, tmp_path, [line(set="\x1b]0;owned\x07")])
    assert found["damaged"] == 1
    main(["journal", str(tmp_path / "log")])
    assert "owned" not in "".join(capsys.readouterr())


def test_a_file_that_is_not_there_is_an_error(capsys: Output) -> None:
    assert main(["journal", "/no/such/file"]) == 2
    assert "/no/such/file" in capsys.readouterr().err
