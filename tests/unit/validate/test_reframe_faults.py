"""What is wrong with a report or a perflog of ReFrame is told in one line."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from lumisite.cli import main
from lumisite.validate.reframe import read
from lumisite.validate.reframe.cases import Answers
from lumisite.validate.reframe.read import with_reframe
from lumisite.validate.samples import SamplesError
from tests.support.reframe_files import DATA, WHERE, Output, case_of, damaged, faults, lines, report, written

# ---- what is wrong with a file


BAD = [
    (lambda raw: raw.pop("session_info"), "r.json: session_info missing: not a whole report of ReFrame"),
    (lambda raw: raw["session_info"].update(data_version="5.0"), 'r.json: session_info.data_version: "5.0" is not known (3.x and 4.x are: ReFrame 4)'),
    (lambda raw: raw["session_info"].update(data_version="2.2"), 'r.json: session_info.data_version: "2.2" is not known (3.x and 4.x are: ReFrame 4)'),
    (lambda raw: raw.update(runs={}), "r.json: runs: {} is not a list"),
    (lambda raw: raw.update(runs=[3]), "r.json: runs[0]: 3 is not an object"),
    (lambda raw: raw["runs"][0].update(testcases="x"), 'r.json: runs[0].testcases: "x" is not a list'),
    (lambda raw: raw["runs"][0].update(testcases=[None]), "r.json: runs[0].testcases[0]: null is not an object"),
    (lambda raw: case_of(raw).pop("name"), "r.json: runs[0].testcases[0].display_name: missing (a text would be right)"),
    (lambda raw: case_of(raw).update(result=1), "r.json: runs[0].testcases[0].result: 1 (a text would be right)"),
    (lambda raw: case_of(raw).update(jobid=[1]), "r.json: runs[0].testcases[0].jobid: [1] is not the number of a job"),
    (lambda raw: case_of(raw).update(job_nodelist=5), 'r.json: runs[0].testcases[0].job_nodelist: 5 is not a list of nodes, such as ["nid000001", "nid000002"]'),
    (lambda raw: case_of(raw).update(job_nodelist=["nid[1-"]), "r.json: runs[0].testcases[0].job_nodelist: 'nid[1-' is not the name of a node (a list would be right, such as [\"nid000001\", \"nid000002\"])"),
    (lambda raw: case_of(raw).update(job_completion_time_unix="noon"), 'r.json: runs[0].testcases[0].job_completion_time_unix: "noon" is not a number of seconds since 1970'),
    (lambda raw: case_of(raw).update(perfvalues=[1]), "r.json: runs[0].testcases[0].perfvalues: [1] is not an object"),
    (lambda raw: case_of(raw).update(perfvalues={"a:b:c": [1]}), 'r.json: runs[0].testcases[0].perfvalues["a:b:c"]: [1] is not [value, reference, lower, upper, unit, result]'),
    (lambda raw: case_of(raw)["perfvalues"]["lumi:standard-g:bw"].__setitem__(0, "fast"), 'r.json: runs[0].testcases[0].perfvalues["lumi:standard-g:bw"]: value: "fast" is not a number'),
    (lambda raw: case_of(raw).update(lumisite="[{}]"), f"r.json: Bw %size=1 {WHERE}: lumisite: metric, value, better, run, nodes, time missing (have nothing)"),
]  # fmt: skip


@pytest.mark.parametrize(("change", "message"), BAD, ids=[message[8:60] for _, message in BAD])
def test_each_fault_is_one_line_that_says_what_is_right(
    tmp_path: Path, change: Callable[[dict[str, Any]], object], message: str
) -> None:
    assert faults(written(tmp_path, damaged(change), "r.json")) == message


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"session_info": {"data_version": "4.2"},\n"runs": [', "r.json: line 2: Expecting value"),
        ('{"session_info": {"data_version": "4.2"}\n"runs": []}', "r.json: line 2: Expecting ',' delimiter"),
        ('{"session_info": {"data_version": "4.2"}, "runs": []} x', "r.json: line 1: Extra data"),
    ],
)
def test_a_report_that_is_cut_says_where(tmp_path: Path, text: str, message: str) -> None:
    assert faults(written(tmp_path, text, "r.json")) == message


def test_a_test_that_ran_often_is_faulted_once(tmp_path: Path) -> None:
    raw = report(perfvalues={"lumi:standard-g:odd": [1.0, 0, None, None, "w", "pass"]})
    raw["runs"][0]["testcases"] *= 50
    assert faults(written(tmp_path, raw)).count("odd") == 2  # in one line: the key and what to type


def test_cases_of_which_no_nodes_are_known_are_told(tmp_path: Path) -> None:
    said: list[str] = []
    assert lines(written(tmp_path, report(job_nodelist=["None"])), said=said) == []  # as the squeue back-end says
    assert said == [f"report.json: without nodes, left out: Bw %size=1 {WHERE}"]


def test_nodes_that_are_not_known_may_be_said(tmp_path: Path, capsys: Output) -> None:
    log = "job_completion_time,version,display_name,system,partition,environ,jobid,result,bw_value,bw_unit\n"
    log += "2026-01-20T09:12:40,4.0.5,Bw,lumi,standard-g,builtin,7,pass,10.0,GB/s\n"  # the default format of 4.0
    for name, text in (("p.log", log), ("r.json", json.dumps(report(job_nodelist=None)))):
        path = written(tmp_path, text, name)
        (only,) = lines(path, answers=Answers(nodes=("n1", "n2")))
        assert only.nodes == ("n1", "n2")
    known = lines(written(tmp_path, report()), answers=Answers(nodes=("n1",)))
    assert known[0].nodes == ("nid000001", "nid000002")
    assert main(["verdict", "--before", str(tmp_path / "p.log"), "--after", str(tmp_path / "p.log")]) == 2
    assert "p.log:1: the perflog has no column job_nodelist" in (err := capsys.readouterr().err)
    assert "`lumisite reframe --import FILE --on NODES`" in err


def test_nodes_may_stand_in_slurms_short_form(tmp_path: Path) -> None:
    (only,) = lines(written(tmp_path, report(job_nodelist="nid[000001-000002,000007]")))
    assert only.nodes == ("nid000001", "nid000002", "nid000007")


@pytest.mark.parametrize(
    ("column", "message"),
    [
        ("job_nodelist", "p.log:1: the perflog has no column job_nodelist (with %(check_job_nodelist)s in `format`"),
        ("jobid", "p.log:1: the perflog has no column jobid (with %(check_jobid)s"),
    ],
)
def test_a_perflog_that_lacks_what_a_sample_needs_says_how_to_add_it(tmp_path: Path, column: str, message: str) -> None:
    rows = [line.split("|") for line in (DATA / "Flaky.log").read_text().splitlines()]
    at = rows[0].index(column)
    text = "".join("|".join(row[:at] + row[at + 1 :]) + "\n" for row in rows)
    assert faults(written(tmp_path, text, "p.log")).startswith(message)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("|1.5|", "|fast|", 'p.log:3: t_value: "fast" is not a number'),
        ("|nid000001|", "|nid 1|", "p.log:2: job_nodelist: 'nid 1' is not the name of a node"),
    ],
)
def test_a_bad_value_in_a_perflog_is_named_by_line_and_column(tmp_path: Path, old: str, new: str, message: str) -> None:
    text = (DATA / "Flaky.log").read_text().replace(old, new)
    assert message in faults(written(tmp_path, text, "p.log"))


# ---- size


def test_a_file_that_is_too_large_is_refused_before_it_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read, "LARGEST_BYTES", 2 << 20)
    taken: list[int] = []

    def blocks() -> Iterator[bytes]:
        yield b'{"session_info": {"data_version": "4.2"}, "runs": ['
        for number in range(100):
            taken.append(number)
            yield b" " * (1 << 20)

    with pytest.raises(SamplesError, match=r"^big: larger than 2 MiB \(the reports or perflogs of fewer runs"):
        list(with_reframe([("big", blocks())], print))
    assert len(taken) < 4
