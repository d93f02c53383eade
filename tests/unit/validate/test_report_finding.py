"""What a report says first: the finding, with numbers that are the same wherever they stand."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

import lumisite
from lumisite.cli import main
from lumisite.text import figure
from lumisite.validate.metric_names import size_text
from tests.support.example_runs import Maintenance, write_runs
from tests.unit.validate.test_report import Output, report, text


def test_the_headline_is_the_finding_with_its_day_and_its_suspect(capsys: Output) -> None:
    out = text(Maintenance(network=0.85, slow_node="nid005017"), capsys, code=1).splitlines()
    assert out[0] == "FAIL: 15 % slower between nodes since 21 January 2026; libfabric changed; nid005017 is bad"
    assert out[1] == (
        "lumi, platform 2026-01; measured 13 jobs on 40 nodes, 29 January 2026 to 1 February 2026; "
        f"compared with 13 jobs on 40 nodes, 9 January 2026 to 12 January 2026; lumisite {lumisite.__version__}"
    )
    for form, start in (("markdown", "# {}\n"), ("json", '{{\n  "headline": "{}"')):
        assert text(Maintenance(), capsys, "--format", form, code=1).startswith(start.format(out[0]))


def test_a_day_that_no_platform_has_is_not_made_up(capsys: Output) -> None:
    write_runs(Path("runs"), Maintenance(network=0.85))
    about = Path("runs/after/run.json")
    about.write_text(about.read_text().replace("2026-01", "2024-08"))
    out = text(Maintenance(), capsys, code=1)
    assert out.startswith("FAIL: 15 % slower between nodes than on 12 January 2026; libfabric changed\n")


@pytest.mark.parametrize(
    ("came", "code", "said"),
    [
        (
            Maintenance(network=0.5, failed_gate="transport"),
            1,
            "transport failed (rank 3 used sockets: no <plugin> & no",
        ),
        (
            Maintenance(network=0.5, failed_gate="transport"),
            1,
            "; 50 % slower between nodes since 21 January 2026; lib",
        ),
        (Maintenance(failed_gate="binds"), 1, "FAIL: binds failed (rank 3"),
    ],
)
def test_what_failed_is_in_the_headline(came: Maintenance, code: int, said: str, capsys: Output) -> None:
    assert said in text(came, capsys, code=code).splitlines()[0]


def test_a_cause_has_its_nodes_as_slurm_takes_them_and_what_to_do(capsys: Output) -> None:
    out = text(Maintenance(failed_gate="binds"), capsys, code=1)
    nodes = ",".join(f"nid00500{number}" for number in range(1, 7))
    cause = "rank 3 used sockets: no <plugin> & no 'cxi'"
    assert f"\n  binds: {cause} ({nodes})\n    bind the host's libfabric\n" in out


def test_a_long_cause_is_no_headline(capsys: Output) -> None:
    write_runs(Path("runs"), Maintenance(failed_gate="binds"))
    file = Path("runs/after/samples.jsonl")
    file.write_text(file.read_text().replace("rank 3 used", f"rank 3 {'of many ' * 20}used"))
    out = text(Maintenance(), capsys, code=1)
    assert out.startswith("FAIL: binds failed; libfabric changed\n")
    assert f"rank 3 {'of many ' * 20}used sockets" in out


def test_without_a_baseline_nothing_is_said_of_what_nobody_judged(capsys: Output) -> None:
    write_runs(Path("runs"), Maintenance(slow_node="nid005017"))
    assert main(["report", "runs/after"]) == 5
    out = capsys.readouterr().out
    assert out.startswith("BAD-NODES: nid005017 is bad; the others pass every gate\n")
    assert out.index("slow nodes") < out.index("\ngate  ") < out.index("\nmetric  ")
    assert re.search(r"\nmetric +unit +after +verdict +why\n", out)
    Path("runs/after/samples.jsonl").write_text("")
    assert main(["report", "runs/after"]) == 4


def test_what_failed_comes_before_what_passed(capsys: Output) -> None:
    out = text(Maintenance(network=0.85), capsys, code=1)
    states = re.findall(r"  (fail|pass)  +(?:slower|no drop|the median)", out)
    assert states == sorted(states)
    assert out.index("\nmetric  ") < out.index("what changed on the machine") < out.index("\ngate  ")
    assert out.index("what to do") < out.index("\nmetric  ")


def test_a_number_is_the_same_wherever_it_stands(capsys: Output) -> None:
    report(Maintenance(network=0.85), "--json", code=1)
    found = json.loads(capsys.readouterr().out)
    judged = {one["metric"]: one for one in found["verdict"]["metrics"]}
    for scaling in found["scalings"]:
        for bar in scaling["bars"]:
            one = judged[f"{scaling['name']}/{bar['shape']}"]
            assert (bar["before"], bar["after"]) == (one["before"], one["after"])
    for curve in found["curves"]:
        quantity, _, shape = curve["name"].rpartition("/")
        for which in ("before", "after"):
            for point in curve[which]:
                assert point["middle"] == judged[f"{quantity}/{size_text(point['size'])}/{shape}"][which]
                assert point["low"] <= point["middle"] <= point["high"]
    shown = figure(judged["ddp/samples_per_s/2n"]["after"])
    for form, least in (("text", 2), ("markdown", 2), ("html", 3), ("junit", 1)):
        out = text(Maintenance(), capsys, "--format", form, code=1)
        own = set(re.findall(r"\b6[45]\d\d(?:\.\d+)?\b", re.sub("<svg.*?</svg>", "", out, flags=re.DOTALL)))
        assert own == {shown}, form
        assert out.count(shown) >= least, form


def test_the_sites_expectations_are_asked(capsys: Output) -> None:
    write_runs(Path("runs"), Maintenance())
    file = Path("runs/after/samples.jsonl")
    file.write_text(file.read_text().replace("all_reduce_busbw/512MiB/2n", "all_reduce_busbw/128MiB/1n"))
    assert main(["report", "runs/after", "--site", "lumi"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("PASS: every gate passed, and 1 metric is as the site expects\n")
    assert "is within what the site expects, 125" in out
    assert main(["report", "runs/after", "--site", "lumi", "--baseline", "runs/before"]) == 4  # one was not measured
    assert "not measured before" in capsys.readouterr().out
    raw = [json.loads(line) for line in file.read_text().splitlines()]
    for one in raw:
        if one.get("value"):
            one["value"] /= 4
    file.write_text("\n".join(map(json.dumps, raw)))
    assert main(["report", "runs/after", "--site", "lumi"]) == 1
    assert "is below 60 % of the 125 that the site expects" in capsys.readouterr().out
