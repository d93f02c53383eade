from __future__ import annotations

import json
import random
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lumisite.validate import InputError
from lumisite.validate.lines import Sample, parse_line
from lumisite.validate.samples import Series, read_lines

GOOD = {"metric": "m", "value": 1.5, "better": "higher", "run": "7", "nodes": ["n1", "n2"], "time": 100}


def line(**changed: object) -> bytes:
    return json.dumps({**GOOD, **changed}).encode()


def parse_sample(text: bytes) -> Sample:
    sample = parse_line(text)
    assert isinstance(sample, Sample)
    return sample


def read(*lines: bytes, block: int = 1 << 20) -> dict[str, Series]:
    data = b"\n".join(lines)
    return dict(read_lines([("f.jsonl", [data[at : at + block] for at in range(0, len(data), block)])]).series)


def fault(*lines: bytes) -> str:
    """What is wrong, in words."""
    with pytest.raises(InputError) as caught:
        read(*lines)
    return str(caught.value)


def test_a_sample_is_read() -> None:
    sample = parse_sample(line(nodes=["n2", "n1"], run=7, note="other keys are not read"))
    assert (sample.metric, sample.value, sample.better, sample.run) == ("m", 1.5, "higher", "7")
    assert (sample.nodes, sample.time) == (("n1", "n2"), 100.0)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        (1769076900.25, 1769076900.25),
        ("2026-01-22T10:15:00Z", 1769076900),
        ("2026-01-22T12:15:00+02:00", 1769076900),
        ("2026-01-22 10:15:00", 1769076900),
        ("2026-01-22T10:15:00.5Z", 1769076900.5),
        ("2026-01-22T10:15:00.123456789+00:00", 1769076900.123456),
        ("2026-01-22", 1769040000),
    ],
)
def test_times(text: object, seconds: float) -> None:
    assert parse_sample(line(time=text)).time == seconds


NUMBER = "value: {} is not a finite number above 0 (leave out a job that measured nothing) [value-wrong]"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (b"{", "not JSON: Expecting property name enclosed in double quotes"),
        (b"\xff", "not JSON: 'utf-8' codec can't decode byte 0xff"),
        (b"[" * 100_000, "not JSON: maximum recursion depth exceeded"),
        (b"1" * 5000, "not JSON: Exceeds the limit"),
        (b"[]", "[] is not an object (remove the line if it is damaged) [value-wrong]"),
        (b'{"metric": "m", "value": 1}', "better, run, nodes, time missing (found metric, value) ("),
        (line(metric=""), 'metric: "" is not a name (write text that prints on one line) [value-wrong]'),
        (line(metric="a\nb"), 'metric: "a\\nb" is not a name'),
        (line(value="1"), NUMBER.format('"1"')),
        (line(value=True), NUMBER.format("true")),
        (line(value=None), NUMBER.format("null")),
        (line(value=0), NUMBER.format("0")),
        (line(value=-3), NUMBER.format("-3")),
        (line(value=float("nan")), NUMBER.format("NaN")),
        (line(value=float("inf")), NUMBER.format("Infinity")),
        (line().replace(b"1.5", b"1e999"), NUMBER.format("Infinity")),
        (line().replace(b"1.5", b"1" + b"0" * 400), "value: 1000"),
        (line(better="up"), 'better: "up" is none of higher, lower (write one of these words) [value-wrong]'),
        (line(run=""), 'run: "" is not a name'),
        (line(nodes=2), "nodes: 2 is not a list of node names"),
        (line(nodes="n1"), 'nodes: "n1" is not a list of node names (write a list such as '),
        (line(nodes=[]), "nodes: [] is not a list of node names"),
        (line(nodes=["a;rm -rf /"]), 'nodes: "a;rm -rf /" is not a list of node names'),
        (line(nodes=["n1", "n1"]), "nodes: n1 is given twice (write each node once) [value-wrong]"),
        (line(time="soon"), 'time: "soon" is neither seconds since 1970 nor ISO 8601 (write it as 2026-'),
        (line(time=True), "time: true is neither seconds"),
    ],
)
def test_what_is_wrong_with_a_line_is_named_with_its_place(text: bytes, words: str) -> None:
    found = fault(line(metric="x"), text)
    assert found.startswith(f"f.jsonl:2: {words}")
    assert "\n" not in found


def test_a_job_has_one_value_of_a_metric() -> None:
    assert fault(line(), line(metric="other"), line(value=2)).startswith(
        "f.jsonl:3: m: run 7 has a value at f.jsonl:1 too (write one value for each job, or name the nodes"
    )


def test_better_must_not_change() -> None:
    words = (
        "m: better is lower in run 8, and higher at f.jsonl:1 (write samples of different kinds under different names)"
    )
    assert fault(line(), line(run="8", better="lower")) == f"f.jsonl:2: {words} [samples-disagree]"
    known = [line(nodes=["n1"]), line(nodes=["n2"]), line(nodes=["n2"], run="8")]
    assert fault(*known, line(nodes=["n2"], better="lower")).startswith("f.jsonl:4: m: better is lower in run 7")


def test_a_run_may_have_a_value_for_each_node_and_its_worst_counts() -> None:
    lines = [line(nodes=[f"n{node}"], value=10 + gpu + node) for node in range(3) for gpu in range(8)]
    for order in (lines, lines[::-1]):
        (job,) = read(*order)["m"].jobs
        assert job.values == {("n0",): 10, ("n1",): 11, ("n2",): 12}
    slower = [text.replace(b"higher", b"lower") for text in lines]
    assert read(*slower)["m"].jobs[0].values == {("n0",): 17, ("n1",): 18, ("n2",): 19}


def test_blank_lines_a_byte_order_mark_and_crlf_do_not_matter() -> None:
    plain = read(line(), line(run="8"))
    assert read(b"\xef\xbb\xbf" + line(), b"", line(run="8") + b"\r", b" ", b"") == plain
    assert read(line() + b"\r", line(run="8") + b"\r") == plain
    assert read() == {}


def test_lines_in_any_form_order_and_block_size_give_the_same() -> None:
    chance = random.Random(5)
    samples = [
        {
            **GOOD,
            "metric": metric,
            "run": f"r{run}",
            "value": chance.lognormvariate(3, 2),
            "nodes": [f"n{node}"],
            "time": time,
        }
        for metric in ("a", "b/c")
        for run in range(4)
        for node in range(5)
        for time in (run * 10 + node, f"2026-01-22T10:{run}{node}:00Z")
    ]
    forms = [
        lambda sample: json.dumps(sample),
        lambda sample: json.dumps(sample, separators=(",", ":")),
        lambda sample: json.dumps(dict(reversed(sample.items()))),
        lambda sample: json.dumps({**sample, "gpu": 3}),
    ]
    whole = read(*[json.dumps(sample).encode() for sample in samples])
    assert len(whole["a"].jobs) == 4
    assert [job.time for job in whole["a"].jobs] == [0, 10, 20, 30]
    for _ in range(20):
        chance.shuffle(samples)
        lines = [chance.choice(forms)(sample).encode() for sample in samples]
        assert read(*lines, block=chance.choice([50, 300, 1 << 20])) == whole
        assert read(*[forms[0](sample).encode() for sample in samples]) == whole


@given(
    st.binary()
    | st.lists(st.sampled_from([b"{", b"}", b'"metric": ', b'"m"', b", ", b"[", b"1e400", b"\n"])).map(b"".join)
)
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    for text in (data, line().replace(b"1.5", data), line().replace(b"n1", data)):
        with suppress(InputError):
            read_lines([("f", [text])])


def test_a_line_without_end_is_refused() -> None:
    with pytest.raises(InputError, match=r"^f: a line is longer than 2097152 bytes "):
        read_lines([("f", (b"x" * (1 << 20) for _ in range(10)))])
