from __future__ import annotations

import json
import random
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lumisite.validate.lines import LineError, Sample, parse_line
from lumisite.validate.samples import FAULTS_LISTED, SamplesError, Series, read_lines

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


def faults(*lines: bytes) -> list[tuple[int, str]]:
    """What is wrong, by line and code."""
    with pytest.raises(SamplesError) as caught:
        read(*lines)
    return [(found.place.line if found.place else 0, found.code) for found in caught.value.findings]


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


@pytest.mark.parametrize(
    ("text", "code", "subject"),
    [
        (b"{", "line-not-json", ""),
        (b"\xff", "line-not-json", ""),
        (b"[" * 100_000, "line-not-json", ""),
        (b"1" * 5000, "line-not-json", ""),
        (b"[]", "line-not-object", ""),
        (b'{"metric": "m", "value": 1}', "line-key-missing", ""),
        (line(metric=""), "name-invalid", "metric"),
        (line(metric="a\nb"), "name-invalid", "metric"),
        (line(value="1"), "number-invalid", "value"),
        (line(value=True), "number-invalid", "value"),
        (line(value=None), "number-invalid", "value"),
        (line(value=0), "number-invalid", "value"),
        (line(value=-3), "number-invalid", "value"),
        (line(value=float("nan")), "number-invalid", "value"),
        (line(value=float("inf")), "number-invalid", "value"),
        (line().replace(b"1.5", b"1e999"), "number-invalid", "value"),
        (line().replace(b"1.5", b"1" + b"0" * 400), "number-invalid", "value"),
        (line().replace(b"1.5", b"01.5"), "line-not-json", ""),
        (line(better="up"), "word-invalid", "better"),
        (line(run=""), "name-invalid", "run"),
        (line(nodes=2), "nodes-invalid", "nodes"),
        (line(nodes=[]), "nodes-invalid", "nodes"),
        (line(nodes=["a;rm -rf /"]), "nodes-invalid", "nodes"),
        (line(nodes=["n1", "n1"]), "nodes-repeated", "nodes"),
        (line(time="soon"), "time-invalid", "time"),
        (line(time=True), "time-invalid", "time"),
        (line()[:-1] + b', "value": 2}', "line-not-json", ""),
    ],
)
def test_what_is_wrong_with_a_line_is_named(text: bytes, code: str, subject: str) -> None:
    with pytest.raises(LineError) as caught:
        parse_sample(text)
    assert (caught.value.finding.code, caught.value.finding.subject) == (code, subject)
    assert faults(line(metric="x"), text)[0] == (2, code)
    # The same when the line before has made all of its texts known.
    assert faults(line(), line(run="8"), text)[0] == (3, code)


def test_all_findings_are_raised_and_many_are_counted() -> None:
    assert faults(line(value=0), line(), line(better="x"), b"{") == [
        (1, "number-invalid"),
        (3, "word-invalid"),
        (4, "line-not-json"),
    ]
    with pytest.raises(SamplesError) as caught:
        read(*[b"x"] * (FAULTS_LISTED + 7))
    assert len(caught.value.findings) == FAULTS_LISTED
    assert len(str(caught.value).split("\n")) == FAULTS_LISTED + 1


def test_a_job_has_one_value_of_a_metric() -> None:
    assert faults(line(), line(metric="other"), line(value=2)) == [(3, "value-repeated")]


def test_better_must_not_change() -> None:
    assert faults(line(), line(run="8", better="lower")) == [(2, "samples-disagree")]
    known = [line(nodes=["n1"]), line(nodes=["n2"]), line(nodes=["n2"], run="8")]
    assert faults(*known, line(nodes=["n2"], better="lower")) == [(4, "samples-disagree")]


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
        with suppress(SamplesError):
            read_lines([("f", [text])])


def test_a_line_without_end_is_refused() -> None:
    with pytest.raises(SamplesError) as caught:
        read_lines([("f", (b"x" * (1 << 20) for _ in range(10)))])
    assert caught.value.findings[0].code == "line-too-long"
