from __future__ import annotations

import json
import re
import sys
from dataclasses import replace
from pathlib import Path

import pytest

import lumisite
from lumisite.cli import main
from lumisite.facts.facts import Releases
from lumisite.site.load import load_site
from lumisite.validate.report.advice import changes
from lumisite.validate.samples import metric_order, parse_name, size_text
from tests.support.example_runs import Maintenance, capture_of, write_runs

SLOW_NODE = "nid005017 is 14 % slower than the others"
Output = pytest.CaptureFixture[str]
ONE_SIZE = "only some message sizes are slower: an algorithm or protocol may be chosen that was not before"
#: What `changes` says of the captures of both runs.
RENAMED = changes(capture_of("1.15.2.0"), capture_of("1.22.0"), None)[0]["what"]


def report(came: Maintenance, *options: str, code: int) -> None:
    if not Path("runs").exists():
        write_runs(Path("runs"), came)
    assert main(["report", "runs/after", "--before", "runs/before", *options]) == code


def text(came: Maintenance, capsys: Output, *options: str, code: int) -> str:
    report(came, *options, code=code)
    return capsys.readouterr().out


# ---------------------------------------------------------------- what it says


def test_a_good_maintenance_is_one_line_and_the_tables(capsys: Output) -> None:
    out = text(Maintenance(), capsys, code=0)
    assert out.startswith(
        "PASS: every gate passed and nothing is slower than before\nlumi, platform 2026-01; proved on a twin, "
    )
    assert "what to do" not in out
    assert f"\n  {RENAMED}\n    site platforms.2024-08.libraries.libfabric\n" in out
    assert "\n    module singularity-CPEbits, singularity-AI-bindings\n" in out


def test_a_slower_network_is_told_from_slower_nodes(capsys: Output) -> None:
    out = text(Maintenance(network=0.85), capsys, code=1)
    network = "look at the network (libfabric, the plugin, interfaces, routing); changed there: "
    assert (
        f"\n  1. only metrics between nodes are slower, a node alone is as fast as before: {network}{RENAMED}\n" in out
    )
    assert re.search(
        r"\n  \S+/128MiB/2n +GB/s +[\d.]+ +[\d.]+ +-1[56]\.\d % \(-1[67]\.\d to -1[34]\.\d\)  10, 10  fail\n", out
    )
    assert re.search(r"\n  \S+/128MiB/2n: slower by 1\d\.\d %, p = 0\.00033; confirmed by 5 more jobs: ", out)
    assert ONE_SIZE not in out
    # It fits a terminal, but for sentences.
    table = out[out.index("metrics that decide") : out.index("what changed")].splitlines()
    assert max(len(line) for line in table if "  " in line[2:]) <= 120


def test_one_slow_size_is_said(capsys: Output) -> None:
    write_runs(Path("runs"), Maintenance())
    file = Path("runs/after/samples.jsonl")
    raw = [json.loads(line) for line in file.read_text().splitlines()]
    for one in raw:
        if "/128MiB/2n" in one.get("metric", ""):
            one["value"] *= 0.7
    file.write_text("\n".join(map(json.dumps, raw)))
    assert ONE_SIZE in text(Maintenance(), capsys, code=1)


@pytest.mark.parametrize(("ending", "part"), [("", "GPU"), ("n", "node")])
def test_all_shapes_slower_is_the_node(ending: str, part: str, capsys: Output) -> None:
    write_runs(Path("runs"), Maintenance())
    file = Path("runs/after/samples.jsonl")
    raw = [json.loads(line) for line in file.read_text().splitlines()]
    for one in raw:
        if (name := one.get("metric", "")).startswith("ddp/") and name.endswith(ending):
            one["value"] *= 0.8
    file.write_text("\n".join(map(json.dumps, raw)))
    assert f"one {part} alone is slower: look at the GPU driver, clocks and power limits, " in text(
        Maintenance(), capsys, code=1
    )


def test_a_broken_gate_comes_first_and_explains_the_numbers(capsys: Output) -> None:
    out = text(Maintenance(network=0.5, failed_gate="transport"), capsys, code=1)
    first, second = (line for line in out.splitlines() if re.match(r"  [12]\. ", line))
    nodes = ",".join(f"nid00500{number}" for number in range(1, 7))
    cause = f"rank 3 used sockets: no <plugin> & no 'cxi' ({nodes})"
    assert first == f"  1. transport: {cause}: bind the host's libfabric"
    assert second == "  2. the numbers are lower too: fix transport first, then measure again"


def test_files_of_samples_do_and_what_is_missing_is_left_out(capsys: Output) -> None:
    write_runs(Path("runs"), Maintenance())
    for name in ("facts.json", "run.json"):
        Path("runs/after", name).unlink()
    assert main(["report", "runs/after/samples.jsonl", "--before", "runs/before/samples.jsonl"]) == 0
    assert main(["report", "runs/after", "--before", "runs/before"]) == 0
    assert "what changed" not in capsys.readouterr().out


# ---------------------------------------------------------------- its forms


@pytest.mark.parametrize("name", ["r.json", "r.txt"])
def test_the_ending_says_the_form_and_the_same_runs_give_the_same_bytes(name: str, capsys: Output) -> None:
    report(Maintenance(network=0.85), "-o", name, code=1)
    written = Path(name).read_text()
    assert capsys.readouterr().out == ""
    assert text(Maintenance(), capsys, *(["--json"] if name == "r.json" else []), code=1) == written


def test_json_has_the_verdict_and_the_numbers_of_the_plots(capsys: Output) -> None:
    found = json.loads(text(Maintenance(network=0.85, slow_node="nid005017"), capsys, "--json", code=1))
    assert found["verdict"]["exit_code"] == 1
    assert [curve["name"] for curve in found["curves"]] == [
        "collectives/all_reduce_busbw/1n",
        "collectives/all_reduce_busbw/2n",
        "ddp/samples_per_s/comm",
        "ddp/samples_per_s/compute",
    ]
    assert [point["label"] for point in found["curves"][1]["points"]][:2] == ["1MiB", "8MiB"]
    (change,) = found["changes"]
    assert (change["code"], change["subject"], change["what"]) == ("product", "/opt/cray/libfabric", RENAMED)
    assert change["before"] == "1.15.2.0"
    assert "module singularity-CPEbits, singularity-AI-bindings" in change["touches"]
    assert [point["label"] for point in found["curves"][2]["points"]] == ["1g", "1n", "2n"]


def without_matplotlib(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.delitem(sys.modules, "lumisite.validate.report.plots", raising=False)  # of an earlier test


def test_html_without_matplotlib_lacks_its_plots_only(monkeypatch: pytest.MonkeyPatch) -> None:
    report(Maintenance(network=0.85), "-o", "with.html", code=1)
    without_matplotlib(monkeypatch)
    report(Maintenance(), "-o", "without.html", code=1)
    drawn, plain = Path("with.html").read_text(), Path("without.html").read_text()
    assert "<figure" in drawn
    assert "<figure" not in plain
    assert "pip install 'lumisite[report]'" in plain
    plots = re.compile(r"<figure.*?</figure>|<section><h2>Plots</h2>.*?</section>|<footer>.*?</footer>", re.DOTALL)
    assert "".join(plots.sub("", drawn).split()) == "".join(plots.sub("", plain).split())


def test_html_is_the_same_bytes_and_names_nothing_elsewhere() -> None:
    report(Maintenance(network=0.85, slow_node="nid005017"), "-o", "a.html", code=1)
    report(Maintenance(), "-o", "b.html", code=1)
    page = Path("a.html").read_text()
    assert page == Path("b.html").read_text()
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


# ---------------------------------------------------------------- faults


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["gone"], "gone: cannot be read: No such file or directory"),
        (["runs"], "runs/samples.jsonl: cannot be read"),
        (["runs/after", "--before", "gone"], "gone: cannot be read"),
        (["runs/after", "--site", "nowhere"], "nowhere"),
    ],
)
def test_bad_usage_is_one_line(arguments: list[str], said: str, capsys: Output) -> None:
    write_runs(Path("runs"), Maintenance())
    assert main(["report", *arguments]) == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        ("{", "runs/after/run.json:1:2: not JSON"),
        ("[]", "runs/after/run.json: is not a JSON object"),
        ("[" * 100_000, "runs/after/run.json: not JSON"),
    ],
)
def test_a_broken_file_of_a_run_is_named(content: str, fault: str, capsys: Output) -> None:
    write_runs(Path("runs"), Maintenance())
    Path("runs/after/run.json").write_text(content)
    report(Maintenance(), code=2)
    assert fault in capsys.readouterr().err


# ---------------------------------------------------------------- parts


def test_names_are_taken_apart() -> None:
    name = parse_name("collectives/all_reduce_busbw/128MiB/16n")
    assert (name.probe, name.quantity, name.size, name.shape) == (
        "collectives",
        "collectives/all_reduce_busbw",
        1 << 27,
        "16n",
    )
    assert parse_name("m").quantity == "m"
    long = f"m/{'9' * 5000}MiB/{'9' * 5000}n"
    assert parse_name(long).quantity == long  # no number that Python would refuse to read
    assert parse_name("2n").quantity == "2n"
    assert parse_name("a/0n").shape == ""
    assert [size_text(1 << power) for power in (0, 9, 10, 29, 40)] == ["1B", "512B", "1KiB", "512MiB", "1TiB"]
    assert sorted(["q/1GiB/1n", "q/64MiB/1n", "q/1MiB/2n"], key=metric_order) == [
        "q/64MiB/1n",
        "q/1GiB/1n",
        "q/1MiB/2n",
    ]


def test_captures_are_compared_and_a_site_that_is_not_known_is_not_guessed() -> None:
    old, new = capture_of("1.15.2.0"), capture_of("1.22.0")
    lumi = load_site("lumi")
    what = changes(old, new, None)[0]["what"]
    assert "/opt/cray/libfabric: 1.15.2.0 -> 1.22.0" in what
    assert changes(old, new, load_site("twin")) == changes(old, new, None)
    assert changes(old, new, lumi)[0]["touches"]
    assert changes(old, old, lumi) == changes(None, new, lumi) == ()
    odd = replace(new, products={"/opt/\x1b[2J": Releases(("1",))})
    found = changes(old, odd, None)
    assert found
    assert all(change["what"].isprintable() for change in found)


def test_a_run_is_judged_by_its_own_sites_expectations(capsys: Output) -> None:
    write_runs(Path("runs"), Maintenance())
    about = Path("runs/after/run.json")
    told = {}
    rule = "- {metric: 'pairs/gemm/*', "
    twin = (Path(lumisite.__file__).parent / "sites/twin.yaml").read_text()
    strict = twin.replace(rule, f"- {{metric: 'ddp/samples_per_s/*', spec: 20000, source: x}}\n    {rule}")
    for site in ("lumi", f"{Path.cwd()}/strict.yaml", f"{Path.cwd()}/gone.yaml"):
        Path("strict.yaml").write_text(strict)
        about.write_text(json.dumps(json.loads(about.read_text()) | {"site_file": site}))
        told[site.rpartition("/")[2]] = main(["report", "runs/after", "--before", "runs/before"])
        said = f"the site of the run, '{site}', was not found: its expectations are left out\n"
        assert (said in capsys.readouterr().err) == site.endswith("gone.yaml")
    assert told == {"lumi": 0, "strict.yaml": 1, "gone.yaml": 0}
