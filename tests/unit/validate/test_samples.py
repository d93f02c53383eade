from __future__ import annotations

import json
import random
import re

import pytest

from lumisite.validate import samples as reading
from lumisite.validate.lines import LineError, Sample, parse_line
from lumisite.validate.samples import FAULTS_SHOWN, SamplesError, Series, read_lines

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


def faults(*lines: bytes) -> list[str]:
    with pytest.raises(SamplesError) as caught:
        read(*lines)
    return str(caught.value).split("\n")


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
    ("text", "message"),
    [
        (b"{", "not JSON: Expecting property name"),
        (b"\xff", "byte 0xff is not UTF-8"),
        (b"[" * 100_000, "not JSON"),
        (b"1" * 5000, "not"),
        (b"[]", "[] is not an object with metric, value, better, run, nodes, time"),
        (b'{"metric": "m", "value": 1}', "better, run, nodes, time missing (have metric, value)"),
        (line(metric=""), 'metric: "" is not a name'),
        (line(metric="a\nb"), "metric: "),
        (line(value="1"), 'value: "1" is not a number'),
        (line(value=True), "value: true is not a number"),
        (line(value=None), "value: null is not a number"),
        (line(value=0), "value: 0 is not above 0"),
        (line(value=-3), "value: -3 is not above 0"),
        (line(value=float("nan")), "value: NaN is not"),
        (line(value=float("inf")), "value: Infinity is not"),
        (line().replace(b"1.5", b"1e999"), "value: Infinity is not above 0 and finite"),
        (line().replace(b"1.5", b"1" + b"0" * 400), "value: 1"),
        (line().replace(b"1.5", b"01.5"), "not JSON"),
        (line(better="up"), 'better: "up" is neither higher nor lower'),
        (line(run=""), 'run: "" is not a name'),
        (line(nodes=2), "nodes: 2 is not a list of node names"),
        (line(nodes=[]), "nodes: [] is not a list"),
        (line(nodes=["a;rm -rf /"]), 'nodes: "a;rm -rf /" is not the name of a node'),
        (line(nodes=["n1", "n1"]), "nodes: n1 stands twice"),
        (line(time="soon"), 'time: "soon" is neither seconds since 1970 nor ISO 8601'),
        (line(time=True), "time: true is neither"),
        (line()[:-1] + b', "value": 2}', "the key value stands twice"),
    ],
)
def test_what_is_wrong_with_a_line_is_said(text: bytes, message: str) -> None:
    with pytest.raises(LineError) as caught:
        parse_sample(text)
    assert message in str(caught.value)
    assert faults(line(metric="x"), text)[0].startswith("f.jsonl:2: ")
    # The same when the line before has made all of its texts known.
    assert faults(line(), line(run="8"), text)[0].startswith("f.jsonl:3: ")


def test_all_faults_are_told_and_many_are_counted() -> None:
    assert faults(line(value=0), line(), line(better="x"), b"{") == [
        "f.jsonl:1: value: 0 is not above 0 and finite (leave a job out that measured nothing)",
        'f.jsonl:3: better: "x" is neither higher nor lower',
        "f.jsonl:4: is not JSON: Expecting property name enclosed in double quotes (one object on a line would be right)",
    ]
    told = faults(*[b"x"] * (FAULTS_SHOWN + 7))
    assert len(told) == FAULTS_SHOWN + 1
    assert told[-1] == "… and 7 more"


def test_a_job_has_one_value_of_a_metric() -> None:
    assert faults(line(), line(metric="other"), line(value=2)) == [
        "f.jsonl:3: m of run 7 stands at f.jsonl:1 too (a job has one value)"
    ]


def test_better_must_not_change() -> None:
    assert faults(line(), line(run="8", better="lower")) == [
        "f.jsonl:2: better: lower for m, which is higher at f.jsonl:1"
    ]
    known = [line(nodes=["n1"]), line(nodes=["n2"]), line(nodes=["n2"], run="8")]
    assert faults(*known, line(nodes=["n2"], better="lower")) == [
        "f.jsonl:4: better: lower for m, which is higher at f.jsonl:1"
    ]


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


#: What tells a pattern from a parser, put into lines at random.
SPLICES = [
    *(
        b'"',
        b"\\",
        b'\\"',
        b"{",
        b"}",
        b"[",
        b"]",
        b",",
        b":",
        b" ",
        b"\r",
        b"\n",
        b"\xff",
        b"\x00",
        b"\xc3\xa4",
        b"0",
        b".",
    ),
    *(b', "value": 3', b', "run": "9"', b', "x": {"y": [1]}', b', "unit": "s"', b'"}\n{"', b"\\u0041", b"1e400", b"-"),
    *(b', "image": "i"', b', "spec": "\\n"', b'{"gate": "g"', b'"nodes": []', b'"n1", "n2"', b'"n1", "n1"'),
]


def test_lines_that_need_no_parser_are_read_as_the_parser_reads_them(monkeypatch: pytest.MonkeyPatch) -> None:
    chance = random.Random(11)
    texts = []
    for _ in range(1500):
        lines = [line(run=str(chance.randrange(2)), nodes=[f"n{node % 3}"], time=node + 0.5) for node in range(9)]
        text = bytearray(b"\n".join(lines) + b"\n")
        for _ in range(chance.randrange(3)):
            at = chance.randrange(len(text))
            # Half of them where a value or a text begins.
            at = max(at, text.find(chance.choice([b"1.5", b'n1"', b'm"']), at)) if chance.random() < 0.5 else at
            text[at : at + chance.choice([0, 0, 1, 2])] = chance.choice(SPLICES)
        texts.append(bytes(text))
    quick = [outcome(text) for text in texts]
    monkeypatch.setattr(reading, "_PLAIN", re.compile(b"(?!)"))
    assert quick == [outcome(text) for text in texts]
    assert sum(isinstance(one, str) for one in quick) in range(300, 1400)


def outcome(text: bytes) -> object:
    """What comes of a file: what was read, or its faults."""
    try:
        return read_lines([("f", [text])])
    except SamplesError as error:
        return str(error)


def test_a_time_that_is_none_is_told_although_all_else_was_met_before() -> None:
    good = [line(run="7", nodes=[f"n{node}"], time=100 + node) for node in range(3)]
    again = [line(run="7", nodes=["n1"]).replace(b"100", text) for text in (b"1.2.3", b"007", b'"soon"', b"1.", b".5")]
    told = faults(*good, *again, line(nodes=["n1"])[: -len("100}")])
    assert [one.split(":")[1] for one in told] == ["4", "5", "6", "7", "8", "9"]


def test_a_line_without_end_is_refused() -> None:
    with pytest.raises(SamplesError, match="longer than"):
        read_lines([("f", (b"x" * (1 << 20) for _ in range(10)))])
