from __future__ import annotations

import json
import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lumisite.findings.finding import Finding
from lumisite.validate import InputError
from lumisite.validate.lines import Gate, LineError, Sample, line_json, parse_line
from lumisite.validate.samples import Recorded, read_lines

GATE = Gate("binds", "fail", "libcxi.so.1 is missing", "bind it", "7", ("n1", "n2"), 100.0)
SAMPLE = Sample("m/128MiB/2n", 1.5, "higher", "7", ("n1", "n2"), 100.0, "GB/s", "sha256:0a", "1f")

names = st.text(st.characters(categories=["L", "N", "P", "S"]), min_size=1)
nodes = st.lists(st.from_regex(r"\Anid[0-9]{1,4}\Z"), min_size=1, max_size=4, unique=True).map(
    lambda own: tuple(sorted(own))
)
times = st.floats(0, 4e9)
samples = st.builds(
    Sample,
    names,
    st.floats(1e-99, 1e99),
    st.sampled_from(["higher", "lower"]),
    names,
    nodes,
    times,
    *[st.just("") | names] * 3,
)
gates = st.builds(
    Gate,
    names,
    st.sampled_from(["fail", "pass", "inconclusive"]),
    names,
    names,
    names,
    nodes,
    times,
    st.none() | st.integers(0, 99),
    st.just(()),
    st.just("") | names,
    st.just("") | st.just("bind-missing"),
    st.dictionaries(names, names | st.integers() | st.booleans() | st.lists(names).map(tuple)),
)


@given(samples | gates)
def test_what_is_written_is_read(line: Sample | Gate) -> None:
    text = line_json(line)
    assert "\n" not in text
    assert parse_line(text.encode()) == line


def test_a_gate_that_passed_needs_no_cause() -> None:
    raw = json.loads(line_json(GATE))
    passed = parse_line(json.dumps({**raw, "verdict": "pass", "cause": None, "advice": ""}).encode())
    assert passed == replace(GATE, verdict="pass", cause="", advice="")
    told = parse_line(json.dumps({**raw, "cause": "two\nlines \x07 of it"}).encode())
    assert told == replace(GATE, cause="two lines of it")


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"verdict": "ok"}, '"ok" is none of pass, fail, inconclusive'),
        ({"cause": ""}, "empty, and the gate did not pass"),
        ({"cause": 3}, "3 is not text"),
        ({"gate": ""}, '"" is not a name'),
        ({"rank": -1}, "-1 is not a whole number from 0 up"),
        ({"rank": True}, "true is not a whole number from 0 up"),
        ({"nodes": []}, "[] is not a list of node names"),
        ({"values": "x"}, '"x" is not an object'),
    ],
)
def test_what_is_wrong_with_a_gate_is_named(changed: dict[str, object], message: str) -> None:
    with pytest.raises(LineError) as caught:
        parse_line(json.dumps({**json.loads(line_json(GATE)), **changed}).encode())
    assert isinstance(caught.value.finding, Finding)
    assert (caught.value.finding.message, caught.value.finding.subject) == (message, next(iter(changed)))


def test_gates_are_alike_by_code_and_subject() -> None:
    one = replace(GATE, code="bind-missing", values={"subject": "/opt/cray", "size": 1})
    other = replace(one, cause="other words", values={"subject": "/opt/cray", "size": 2})
    assert one.kind == other.kind != replace(one, values={"subject": "/opt"}).kind
    assert GATE.kind != replace(GATE, cause="other words").kind


def test_a_gate_without_its_keys_is_no_gate() -> None:
    with pytest.raises(LineError) as caught:
        parse_line(b'{"gate": "x"}')
    assert str(caught.value).startswith("verdict, cause, advice, run, nodes, time missing (found gate) (")
    # A sample may note anything, even a key of that name.
    assert parse_line(line_json(SAMPLE).encode()[:-1] + b', "gate": 1}') == SAMPLE


def read(*lines: str) -> Recorded:
    return read_lines([("f.jsonl", ["\n".join(lines).encode()])])


def test_gates_stand_among_samples_in_any_order_and_once() -> None:
    later = Gate("affinity", "pass", "", "", "8", ("n1",), 101.0)
    lines = [line_json(SAMPLE), line_json(GATE), line_json(SAMPLE).replace('"7"', '"8"'), line_json(later)]
    whole = read(*lines)
    assert whole.gates == (later, GATE)
    assert [(job.run, job.image, job.spec) for job in whole.series["m/128MiB/2n"].jobs] == [
        ("7", "sha256:0a", "1f"),
        ("8", "sha256:0a", "1f"),
    ]
    assert whole.series["m/128MiB/2n"].unit == "GB/s"
    chance = random.Random(3)
    for _ in range(10):
        chance.shuffle(lines)
        assert read(*lines, line_json(GATE)) == whole


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            line_json(SAMPLE).replace("GB/s", "MB/s").replace('"7"', '"8"'),
            "unit is MB/s in run 8, and GB/s at f.jsonl:1",
        ),
        (line_json(SAMPLE).replace("0a", "0b"), "image is sha256:0b in run 7, and sha256:0a at f.jsonl:1"),
        (line_json(SAMPLE).replace(', "spec": "1f"', ""), "spec is unset in run 7, and 1f at f.jsonl:1"),
    ],
)
def test_units_images_and_specs_must_agree(text: str, words: str) -> None:
    with pytest.raises(InputError) as caught:
        read(line_json(SAMPLE), text)
    assert str(caught.value).startswith(f"f.jsonl:2: {SAMPLE.metric}: {words} (")


def test_a_unit_that_only_some_lines_have_is_that_of_all() -> None:
    bare = line_json(SAMPLE).replace(', "unit": "GB/s"', "").replace('"7"', '"8"')
    for lines in ((bare, line_json(SAMPLE)), (line_json(SAMPLE), bare)):
        assert read(*lines).series[SAMPLE.metric].unit == "GB/s"
    with pytest.raises(InputError, match=r"unit is MB/s in run 9, and GB/s at f.jsonl:2"):
        read(bare, line_json(SAMPLE), line_json(SAMPLE).replace("GB/s", "MB/s").replace('"7"', '"9"'))
