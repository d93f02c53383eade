"""A report of a maintenance: the finding first, what to do, and numbers that are the same wherever they stand."""

from __future__ import annotations

import json
import re
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import lumisite
from lumisite.cli import main
from lumisite.findings.finding import Finding, Severity
from lumisite.text import figure
from lumisite.validate.lines import State
from lumisite.validate.report.advice import advice, changes
from lumisite.validate.report.headline import headline
from lumisite.validate.samples import metric_order, parse_name, size_text
from lumisite.validate.verdict.gates import Cause, GateVerdict
from lumisite.validate.verdict.metric import MetricVerdict
from lumisite.validate.verdict.slow_nodes import SlowNode
from lumisite.validate.verdict.system import SystemVerdict
from tests.support.example_runs import Maintenance, capture_of, write_runs

Output = pytest.CaptureFixture[str]
SLOW_NODE = "nid005017 is 14 % slower than the others"
#: What `changes` says of the captures of both runs.
RENAMED = changes(capture_of("1.15.2.0"), capture_of("1.22.0"), None)[0]["what"]
AFTER = Path("runs/after/samples.jsonl")


def report(came: Maintenance, *options: str, code: int) -> None:
    if not Path("runs").exists():
        write_runs(Path("runs"), came)
    assert main(["report", "runs/after", "--before", "runs/before", *options]) == code


def text(came: Maintenance, capsys: Output, *options: str, code: int) -> str:
    report(came, *options, code=code)
    return capsys.readouterr().out


# ---- what it says


def test_a_good_maintenance_is_one_line_and_the_tables(capsys: Output) -> None:
    out = text(Maintenance(), capsys, code=0)
    assert out.startswith(
        "PASS: every gate passed and nothing is slower than before\nlumi, platform 2026-01; proved on a twin, "
    )
    assert "what to do" not in out
    assert f"\n  {RENAMED}\n    site platforms.2024-08.libraries.libfabric\n" in out
    assert "\n    module singularity-CPEbits, singularity-AI-bindings\n" in out


def test_a_slower_network_and_a_slow_node_are_told_apart_with_what_changed(capsys: Output) -> None:
    came = Maintenance(network=0.85, slow_node="nid005017")
    out = text(came, capsys, code=1)
    first, second = out.splitlines()[:2]
    assert first == f"FAIL: 15 % slower between nodes; libfabric changed; {SLOW_NODE}"
    summary = [
        "lumi, platform 2026-01",
        "proved on a twin, not yet run on LUMI or on a GPU machine",
        "measured 13 jobs on 40 nodes, 29 January 2026 to 1 February 2026",
        "compared with 13 jobs on 40 nodes, 9 January 2026 to 12 January 2026",
        f"lumisite {lumisite.__version__}",
    ]
    assert second == "; ".join(summary)
    assert text(came, capsys, "--json", code=1).startswith(f'{{\n  "headline": "{first}"')
    network = "look at the network (libfabric, the plugin, interfaces, routing); changed there: "
    assert (
        f"\n  1. only metrics between nodes are slower, a node alone is as fast as before: {network}{RENAMED}\n" in out
    )
    assert re.search(
        r"\n  \S+/128MiB/2n +GB/s +[\d.]+ +[\d.]+ +-1[56]\.\d % \(-1[67]\.\d to -1[34]\.\d\)  10, 10  fail\n", out
    )
    assert re.search(r"\n  \S+/128MiB/2n: slower by 1\d\.\d %, p = 0\.00033; confirmed by 5 more jobs: ", out)
    assert "only some message sizes" not in out
    # It fits a terminal, but for sentences.
    table = out[out.index("metrics that decide") : out.index("slow nodes")].splitlines()
    assert max(len(line) for line in table if "  " in line[2:]) <= 120


@pytest.mark.parametrize(
    ("metrics", "words"),
    [
        (
            ".*/128MiB/2n",
            "only some message sizes are slower: an algorithm or protocol may be chosen that was not before",
        ),
        ("ddp/.*", "one GPU alone is slower: look at the GPU driver, clocks and power limits, "),
        ("ddp/.*n", "one node alone is slower: look at the GPU driver, clocks and power limits, "),
    ],
)
def test_what_slower_metrics_have_in_common_is_where_to_look(metrics: str, words: str, capsys: Output) -> None:
    write_runs(Path("runs"), Maintenance())
    rows = [json.loads(line) for line in AFTER.read_text().splitlines()]
    rows = [
        row | {"value": row["value"] * 0.7} if re.fullmatch(metrics, row.get("metric", "")) else row for row in rows
    ]
    AFTER.write_text("\n".join(map(json.dumps, rows)))
    assert words in text(Maintenance(), capsys, code=1)


def test_a_broken_gate_comes_first_and_explains_the_numbers(capsys: Output) -> None:
    out = text(Maintenance(network=0.5, failed_gate="transport"), capsys, code=1)
    first, second = (line for line in out.splitlines() if re.match(r"  [12]\. ", line))
    nodes = ",".join(f"nid00500{number}" for number in range(1, 7))
    cause = f"rank 3 used sockets: no <plugin> & no 'cxi' ({nodes})"
    assert first == f"  1. transport: {cause}: bind the host's libfabric"
    assert second == "  2. the numbers are lower too: fix transport first, then measure again"
    # A long cause is no part of the headline.
    AFTER.write_text(AFTER.read_text().replace("rank 3 used", f"rank 3 {'of many ' * 20}used"))
    out = text(Maintenance(), capsys, code=1)
    assert out.startswith("FAIL: transport failed; 50 % slower between nodes; libfabric changed\n")
    assert f"rank 3 {'of many ' * 20}used sockets" in out


def test_without_a_baseline_nothing_is_said_of_what_nobody_judged(capsys: Output) -> None:
    write_runs(Path("runs"), Maintenance(slow_node="nid005017"))
    assert main(["report", "runs/after"]) == 5
    out = capsys.readouterr().out
    assert out.startswith(f"BAD-NODES: {SLOW_NODE}; the others pass every gate\n")
    assert out.index("\nslow nodes\n") < out.index("\ngates\n") < out.index("\nother metrics")
    # No column that has nothing, and none in which all cells are alike.
    assert re.search(r"\n  metric +unit +after +jobs\n", out)
    assert "metrics that decide" not in out
    AFTER.write_text("")
    assert main(["report", "runs/after"]) == 4


def test_files_of_samples_do_and_what_is_missing_is_left_out(capsys: Output) -> None:
    write_runs(Path("runs"), Maintenance())
    for name in ("facts.json", "run.json"):
        Path("runs/after", name).unlink()
    assert main(["report", "runs/after/samples.jsonl", "--before", "runs/before/samples.jsonl"]) == 0
    assert main(["report", "runs/after", "--before", "runs/before"]) == 0
    assert "what changed" not in capsys.readouterr().out


def test_a_number_is_the_same_wherever_it_stands(capsys: Output) -> None:
    report(Maintenance(network=0.85), "--json", code=1)
    found = json.loads(capsys.readouterr().out)
    judged = {one["metric"]: one for one in found["verdict"]["metrics"]}
    for curve in found["curves"]:
        quantity, _, shape = curve["name"].rpartition("/")
        for point in curve["points"]:
            size = f"{quantity}/{point['label']}/{shape}"
            metric = judged[size] if curve["by"] == "message size" else judged[f"{curve['name']}/{point['label']}"]
            for side in ("before", "after"):
                low, middle, high = point[side]
                assert middle == metric[side]
                assert low < middle < high
    shown = figure(judged["ddp/samples_per_s/comm/2n"]["after"])
    for form, least in (("text", 1), ("html", 2)):
        report(Maintenance(), "-o", f"report.{form}", code=1)
        out = Path(f"report.{form}").read_text()
        own = set(re.findall(r"\b6[45]\d\d(?:\.\d+)?\b", re.sub("<svg.*?</svg>", "", out, flags=re.DOTALL)))
        assert own == {shown}, form
        assert out.count(shown) >= least, form


def test_a_run_is_judged_by_its_own_sites_expectations(capsys: Output) -> None:
    write_runs(Path("runs"), Maintenance())
    about = Path("runs/after/run.json")
    rule = "- {metric: 'pairs/gemm/*', "
    twin = (Path(lumisite.__file__).parent / "sites/twin.yaml").read_text()
    Path("strict.yaml").write_text(
        twin.replace(rule, f"- {{metric: 'ddp/samples_per_s/*', spec: 20000, source: x}}\n    {rule}")
    )
    for site, code in (("lumi", 0), (f"{Path.cwd()}/strict.yaml", 1), (f"{Path.cwd()}/gone.yaml", 0)):
        about.write_text(json.dumps(json.loads(about.read_text()) | {"site_file": site}))
        assert main(["report", "runs/after", "--before", "runs/before"]) == code
        said = f"the site of the run, '{site}', was not found: its expectations are left out\n"
        assert (said in capsys.readouterr().err) == site.endswith("gone.yaml")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["runs"], "runs/samples.jsonl: cannot be read"),
        (["runs/after", "--before", "gone"], "gone: cannot be read: No such file or directory"),
        (["runs/before"], "runs/before/run.json:1:2: not JSON"),
    ],
)
def test_a_file_that_cannot_be_read_is_named(arguments: list[str], said: str, capsys: Output) -> None:
    write_runs(Path("runs"), Maintenance())
    Path("runs/before/run.json").write_text("{")
    assert main(["report", *arguments]) == 2
    assert said in capsys.readouterr().err


# ---- its forms


@pytest.mark.parametrize("form", ["txt", "json", "html"])
def test_the_ending_says_the_form_and_the_same_runs_give_the_same_bytes(form: str, capsys: Output) -> None:
    came = Maintenance(network=0.85, slow_node="nid005017")
    for name in "ab":
        assert text(came, capsys, "-o", f"{name}.{form}", code=1) == ""
    page = Path(f"a.{form}").read_text()
    assert page == Path(f"b.{form}").read_text()
    if form != "html":
        assert text(came, capsys, *(["--json"] if form == "json" else []), code=1) == page
        return
    # It fetches nothing and runs nothing, and no two plots have one name for a part.
    assert set(re.findall(r"https?://[^\"' )<]+", page)) <= {
        "http://www.w3.org/2000/svg",
        "http://www.w3.org/1999/xlink",
    }
    assert "<script" not in page
    ids = re.findall(r'\bid="([^"]+)"', page)
    assert len(set(ids)) == len(ids)
    used = set(re.findall(r'(?:url\(#|xlink:href="#)([^")]+)', page))
    assert used
    assert used <= set(ids)
    assert page.count('role="img"') == page.count("<figure") == 4


def test_html_without_matplotlib_lacks_its_plots_only(monkeypatch: pytest.MonkeyPatch) -> None:
    report(Maintenance(network=0.85), "-o", "with.html", code=1)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.delitem(sys.modules, "lumisite.validate.report.plots", raising=False)  # of an earlier test
    report(Maintenance(), "-o", "without.html", code=1)
    drawn, plain = Path("with.html").read_text(), Path("without.html").read_text()
    assert "<figure" in drawn
    assert "<figure" not in plain
    assert "pip install 'lumisite[report]'" in plain
    plots = re.compile(r"<figure.*?</figure>|<section><h2>Plots</h2>.*?</section>|<footer>.*?</footer>", re.DOTALL)
    assert "".join(plots.sub("", drawn).split()) == "".join(plots.sub("", plain).split())


# ---- parts


def test_names_are_taken_apart_and_put_in_order() -> None:
    name = parse_name("collectives/all_reduce_busbw/128MiB/16n")
    assert (name.probe, name.quantity) == ("collectives", "collectives/all_reduce_busbw")
    assert (name.size, name.shape) == (1 << 27, "16n")
    long = f"m/{'9' * 5000}MiB/{'9' * 5000}n"  # no number that Python would refuse to read
    assert [parse_name(text).quantity for text in ("m", "2n", long)] == ["m", "2n", long]
    assert parse_name("a/0n").shape == ""
    assert [size_text(1 << power) for power in (0, 9, 10, 29, 40)] == ["1B", "512B", "1KiB", "512MiB", "1TiB"]
    ordered = ["q/64MiB/1n", "q/1GiB/1n", "q/1MiB/2n"]
    assert sorted({*ordered}, key=metric_order) == ordered


# ---- each finding of a headline


UNMEASURED = Finding("metric-unmeasured", Severity.DOUBT, "not measured before")


def metric(name: str, state: State = "fail", **values: Any) -> MetricVerdict:
    return MetricVerdict(name, "higher", state, (UNMEASURED,), **values)


def verdict(state: State, *metrics: MetricVerdict, gates: tuple[GateVerdict, ...] = ()) -> SystemVerdict:
    return SystemVerdict(state, gates, metrics, (), ())


SLOWER: dict[str, Any] = {"change": -0.2, "limit": 0.05}
BELOW: dict[str, Any] = {"below_spec": True, "after": 2.0, "spec": 4.0, "unit": "s"}
WORTH_A_LOOK = "nothing failed, but m was slower in the first jobs, and is worth a look"


@pytest.mark.parametrize(
    ("state", "metrics", "words"),
    [
        ("fail", [metric("m/1n", **SLOWER)], "20 % slower inside a node"),
        ("fail", [metric("m/1g", change=-0.1), metric("m/1g", **SLOWER)], "10 to 20 % slower on one GPU"),
        ("fail", [metric("m", **SLOWER)], "20 % slower"),
        ("fail", [metric("m", **BELOW)], "m is 2, the site expects 4"),
        ("warn", [metric("m", "warn")], WORTH_A_LOOK),
        ("fail", [], "the system does not work as it did before"),
        ("inconclusive", [metric("m", "unconfirmed", **SLOWER)], "20 % slower; not confirmed yet"),
        ("inconclusive", [metric("m", "inconclusive")], "m: not measured before"),
        ("inconclusive", [], "the measurements do not decide"),
    ],
)
def test_the_headline_has_the_finding(state: State, metrics: list[MetricVerdict], words: str) -> None:
    assert headline(verdict(state, *metrics)) == f"{state.upper()}: {words}"


@pytest.mark.parametrize(
    ("name", "suspects"), [("m/2n", "nic"), ("m/1n", "driver"), ("m/1g", "driver"), ("m", "driver, nic")]
)
def test_the_headline_names_the_changes_that_are_suspected(name: str, suspects: str) -> None:
    changed = [{"code": code, "subject": f"/sys/{code}"} for code in ("driver", "nic", "module")]
    found = verdict("fail", metric(name, **SLOWER))
    assert headline(found, changed).endswith(f"; {suspects} changed")
    broken = (GateVerdict("binds", "fail", (), 1, 1),)
    assert headline(replace(found, gates=broken), changed).endswith("; driver, nic changed")


def test_the_headline_of_a_run_alone() -> None:
    assert headline(verdict("pass"), with_baseline=False) == "PASS: no gate was measured; no baseline"


def test_headline_and_advice_agree_about_how_bad_a_node_is() -> None:
    cause = Cause("hsn0: interface is down", "n2", "look at the cable", ("n2",))
    slow = (SlowNode("n3", "gemm", 0.31, -9.0), SlowNode("n3", "copy", 0.12, -6.0), SlowNode("n2", "gemm", 0.5, -9.0))
    alone = verdict("bad-nodes", gates=(GateVerdict("node", "bad-nodes", (), 1, 1, (cause,), cause.nodes),))
    both = replace(alone, slow_nodes=slow)
    told = "n3 is 31 % slower than the others"
    assert headline(both) == f"BAD-NODES: n2 failed (hsn0: interface is down); {told}; the system is fine"
    again = "measure once more among other nodes; if it is as slow again, drain it with the command below"
    assert list(advice(both, ())) == ["node: n2: hsn0: interface is down (n2): look at the cable", f"{told}: {again}"]
    assert list(advice(alone, ()))[1:] == ["n2: drain and repair, then measure once more among other nodes"]
    # What only one value says is no reason to drain.
    once = replace(verdict("bad-nodes"), slow_nodes=(SlowNode("n3", "gemm", 0.31, -9.0, 1),))
    assert list(advice(once, ())) == [f"{told}: measure once more among other nodes"]


def test_advice_where_no_part_of_the_machine_is_suspected() -> None:
    look = "compare what changed (`lumisite changes`), undo it, or measure again"
    assert list(advice(verdict("fail", metric("m", **SLOWER)), ())) == [f"slower: m: {look}"]
    better = Finding("metric-faster", Severity.INFO, "faster by 9 %")
    faster = verdict("pass", replace(metric("m", "pass"), findings=(better,)))
    assert list(advice(faster, ())) == ["faster than before: m: make sure that the benchmark still does its work"]
