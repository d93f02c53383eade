"""Samples and gates as they are written and read: every fault of a line is named with its place."""

from __future__ import annotations

import json
import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lumisite.validate import InputError
from lumisite.validate.lines import Gate, Sample, line_json, parse_line
from lumisite.validate.samples import Recorded, Series, read_lines

GATE = Gate("binds", "fail", "libcxi.so.1 is missing", "bind it", "7", ("n1", "n2"), 100.0)
SAMPLE = Sample("m/128MiB/2n", 1.5, "higher", "7", ("n1", "n2"), 100.0, "GB/s", "sha256:0a", "1f")
GOOD = {"metric": "m", "value": 1.5, "better": "higher", "run": "7", "nodes": ["n1", "n2"], "time": 100}

names = st.text(st.characters(categories=["L", "N", "P", "S"]), min_size=1)
optional = st.just("") | names
nodes = st.sets(st.from_regex(r"\Anid[0-9]{1,4}\Z"), min_size=1, max_size=4).map(lambda names: tuple(sorted(names)))
times = st.floats(0, 4e9)
better, outcomes = st.sampled_from(["higher", "lower"]), st.sampled_from(["fail", "pass", "inconclusive"])
samples = st.builds(Sample, names, st.floats(1e-99, 1e99), better, names, nodes, times, *[optional] * 3)
values = st.dictionaries(names, names | st.integers() | st.booleans() | st.lists(names).map(tuple))
ranks, found = st.none() | st.integers(0, 99), {"location": optional, "code": optional, "values": values}
gates = st.builds(Gate, names, outcomes, names, names, names, nodes, times, rank=ranks, **found)


def line(**changed: object) -> bytes:
    return json.dumps({**GOOD, **changed}).encode()


def gate_line(**changed: object) -> bytes:
    return json.dumps({**json.loads(line_json(GATE)), **changed}).encode()


def read(*lines: bytes, block: int = 1 << 20) -> Recorded:
    data = b"\n".join(lines)
    return read_lines([("f.jsonl", [data[at : at + block] for at in range(0, len(data), block)])])


def series(*lines: bytes) -> dict[str, Series]:
    return dict(read(*lines).series)


def fault(*lines: bytes) -> str:
    """What is wrong, in words."""
    with pytest.raises(InputError) as caught:
        read(*lines)
    return str(caught.value)


@settings(max_examples=40)
@given(samples | gates)
def test_what_is_written_is_read(line: Sample | Gate) -> None:
    text = line_json(line)
    assert "\n" not in text
    assert parse_line(text.encode()) == line


def test_what_others_write_is_read() -> None:
    sample = parse_line(line(nodes=["n2", "n1"], run=7, note="other keys are not read", gate=1))
    assert sample == Sample("m", 1.5, "higher", "7", ("n1", "n2"), 100.0)
    passed = parse_line(gate_line(verdict="pass", cause=None, advice=""))
    assert passed == replace(GATE, verdict="pass", cause="", advice="")
    assert parse_line(gate_line(cause="two\nlines \x07 of it")) == replace(GATE, cause="two lines of it")


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        (1769076900.25, 1769076900.25),
        ("2026-01-22T10:15:00Z", 1769076900),
        ("2026-01-22T12:15:00+02:00", 1769076900),
        ("2026-01-22 10:15:00", 1769076900),
        ("2026-01-22T10:15:00.123456789+00:00", 1769076900.123456),
        ("2026-01-22", 1769040000),
    ],
)
def test_times(text: object, seconds: float) -> None:
    assert parse_line(line(time=text)).time == seconds


NUMBER = "value: {} is not a finite number above 0 (leave out a job that measured nothing) [value-wrong]"
MISSING = "better, run, nodes, time missing (found metric, value) ("


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (b"{", "not JSON: Expecting property name enclosed in double quotes"),
        (b"\xff", "not JSON: 'utf-8' codec can't decode byte 0xff"),
        (b"[" * 100_000, "not JSON: maximum recursion depth exceeded"),
        (b"1" * 5000, "not JSON: Exceeds the limit"),
        (b"[]", "[] is not an object (remove the line if it is damaged) [value-wrong]"),
        (b'{"metric": "m", "value": 1}', MISSING),
        (b'{"gate": "x"}', "verdict, cause, advice, run, nodes, time missing (found gate) ("),
        (line(metric="a\nb"), 'metric: "a\\nb" is not a name (write text that prints on one line) [value-wrong]'),
        (line(run=""), 'run: "" is not a name'),
        (line(value="1"), NUMBER.format('"1"')),
        (line(value=True), NUMBER.format("true")),
        (line(value=0), NUMBER.format("0")),
        (line(value=float("nan")), NUMBER.format("NaN")),
        (line().replace(b"1.5", b"1e999"), NUMBER.format("Infinity")),
        (line().replace(b"1.5", b"1" + b"0" * 400), "value: 1000"),
        (line(better="up"), 'better: "up" is none of higher, lower (write one of these words) [value-wrong]'),
        (line(nodes="n1"), 'nodes: "n1" is not a list of node names (write a list such as '),
        (line(nodes=[]), "nodes: [] is not a list of node names"),
        (line(nodes=["a;rm -rf /"]), 'nodes: "a;rm -rf /" is not a list of node names'),
        (line(nodes=["n1", "n1"]), "nodes: n1 is given twice (write each node once) [value-wrong]"),
        (line(time="soon"), 'time: "soon" is neither seconds since 1970 nor ISO 8601 (write it as 2026-'),
        (line(time=10**400), "time: 1000"),
        (gate_line(verdict="ok"), 'verdict: "ok" is none of pass, fail, inconclusive'),
        (gate_line(cause=""), "cause: empty, and the gate did not pass"),
        (gate_line(cause=3), "cause: 3 is not text"),
        (gate_line(rank=-1), "rank: -1 is not a whole number from 0 up"),
        (gate_line(values="x"), 'values: "x" is not an object'),
    ],
)
def test_what_is_wrong_with_a_line_is_named_with_its_place(text: bytes, words: str) -> None:
    found = fault(line(metric="x"), text)
    assert found.startswith(f"f.jsonl:2: {words}")
    assert "\n" not in found


@pytest.mark.parametrize(
    ("other", "words"),
    [
        ({"value": 2}, "m: run 7 has a value at f.jsonl:1 too (write one value for each job, or name the nodes"),
        ({"run": "8", "better": "lower"}, "m: better is lower in run 8, and higher at f.jsonl:1 (write samples of"),
        ({"run": "8", "unit": "MB/s"}, "m: unit is MB/s in run 8, and GB/s at f.jsonl:1"),
        ({"image": "b"}, "m: image is b in run 7, and a at f.jsonl:1"),
        ({"spec": ""}, "m: spec is unset in run 7, and c at f.jsonl:1"),
    ],
)
def test_samples_of_a_metric_and_of_a_job_must_agree(other: dict[str, object], words: str) -> None:
    first = {"unit": "GB/s", "image": "a", "spec": "c"}
    assert fault(line(**first), line(**{**first, **other})).startswith(f"f.jsonl:2: {words}")


def test_a_unit_that_only_some_lines_have_is_that_of_all() -> None:
    bare, whole = line(run="8"), line(unit="GB/s")
    for lines in ((bare, whole), (whole, bare)):
        assert series(*lines)["m"].unit == "GB/s"
    assert "unit is MB/s in run 9, and GB/s at f.jsonl:2" in fault(bare, whole, line(unit="MB/s", run="9"))


def test_a_run_may_have_a_value_for_each_node_and_its_worst_counts() -> None:
    lines = [line(nodes=[f"n{node}"], value=10 + gpu + node) for node in range(3) for gpu in range(8)]
    for order in (lines, lines[::-1]):
        (job,) = series(*order)["m"].jobs
        assert job.values == {("n0",): 10, ("n1",): 11, ("n2",): 12}
    slower = [text.replace(b"higher", b"lower") for text in lines]
    assert series(*slower)["m"].jobs[0].values == {("n0",): 17, ("n1",): 18, ("n2",): 19}


def test_gates_stand_among_samples_in_any_order_block_and_once() -> None:
    later = Gate("affinity", "pass", "", "", "8", ("n1",), 101.0)
    lines = [line_json(one).encode() for one in (SAMPLE, GATE, replace(SAMPLE, run="8", time=90.0), later)]
    whole = read(*lines)
    assert whole.gates == (later, GATE)
    assert [(job.run, job.image, job.spec) for job in whole.series["m/128MiB/2n"].jobs] == [
        ("8", "sha256:0a", "1f"),
        ("7", "sha256:0a", "1f"),
    ]
    chance = random.Random(3)
    for _ in range(10):
        chance.shuffle(lines)
        assert read(*lines, line_json(GATE).encode(), block=chance.choice([50, 300, 1 << 20])) == whole


def test_blank_lines_a_byte_order_mark_and_crlf_do_not_matter() -> None:
    plain = series(line(), line(run="8"))
    assert series(b"\xef\xbb\xbf" + line(), b"", line(run="8") + b"\r", b" ", b"") == plain
    assert series() == {}


def test_a_line_without_end_is_refused() -> None:
    with pytest.raises(InputError, match=r"^f: a line is longer than 2097152 bytes "):
        read_lines([("f", (b"x" * (1 << 20) for _ in range(10)))])


def test_gates_are_alike_by_code_and_subject() -> None:
    one = replace(GATE, code="bind-missing", values={"subject": "/opt/cray", "size": 1})
    other = replace(one, cause="other words", values={"subject": "/opt/cray", "size": 2})
    assert one.kind == other.kind != replace(one, values={"subject": "/opt"}).kind
    assert GATE.kind != replace(GATE, cause="other words").kind
