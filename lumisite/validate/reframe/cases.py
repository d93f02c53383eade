"""What one test of ReFrame gives: its numbers as samples and, after a change, a gate that says whether it ran.

A number becomes a sample `TEST @SYSTEM:PARTITION+ENVIRONMENT/NAME`, as ReFrame itself writes cases. A test of the
module that `lumisite reframe` writes carries the very lines that lumisite recorded, and these are taken.

ReFrame does not record whether more of a number is better. It follows from thresholds on one side only (a lower one:
more is better), or from the unit (rates: more; times: less). Where both speak they must agree, and where neither does,
or they disagree, the number is left out: nothing is guessed.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timezone

from lumisite.site.decode import short
from lumisite.validate.lines import LARGEST, LEAST, Better, Gate, LineError, Sample, line_of

#: How tests of the module are called that `lumisite reframe` writes; their numbers have lumisite's own names.
OWN_TEST = "Lumisite"
#: How ReFrame calls what went well, or failed as its author expected, and what failed.
SOUND, FAILED = ("pass", "xfail", "xpass"), "fail"
#: The key of the end of a case's job, in seconds since 1970.
ENDED = "job_completion_time_unix"
#: The year 10000, in seconds since 1970.
LAST_MOMENT = 253_402_300_800
NO_DIRECTION = "not known whether more is better (a threshold on one side in the test's reference would tell)"

_TIME = r"(?:[num\u00b5\u03bc]?s|[num]?secs?|(?:milli|micro|nano)?sec(?:ond)?s?|mins?|minutes?|h|hrs?|hours?|days?)"
_PER_TIME = r"(?:s|secs?|seconds?|mins?|minutes?|h|hrs?|hours?|d|days?)"
#: What a rate or a time may be of, after it: a node, a GPU, a step.
_OF = r"(?:/| per )"
_LOWER = re.compile(rf"{_TIME}(?:{_OF}(?!{_PER_TIME}$)[\w. -]+)?")
_RATE = rf".+?(?:/\s*{_PER_TIME}| per {_PER_TIME})(?![a-z])"
_HIGHER = re.compile(
    rf"(?:{_RATE}|[kmgtpe]?flops|[kmgtpe]?i?(?:b|bit|byte)ps|[kmgt]?(?:iops|teps|[lcm]?ups)|fps|ips|tps|sypd)"
    rf"(?:{_OF}[\w. -]+)?"
)
#: What nobody wants more of, or what is not clear: a rate of it tells nothing.
_UNWANTED = re.compile(
    r"(?:[kmgt]?(?:j|wh?)|joules?|watts?|usd|eur|\$|\u20ac|(?:\w+[ -])*"
    r"(?:err(?:or)?s?|faults?|miss(?:es)?|drops?|retr(?:y|ies)|retransmits?|failures?|fails?|stalls?|interrupts?"
    r"|collisions?|discards?|loss(?:es)?|restarts?|timeouts?|evictions?|switches))(?:/| per )"
)
#: What options such as `--repeat` and `--distribute` add to a test's name: it is the same test, on whichever nodes.
_ADDED = re.compile(r" %[.$](?:repeat_no|part|nid)=.*?(?= [%~]|$)")


@dataclass(frozen=True)
class Number:
    """One performance variable of a case; `value` is none where it was not measured."""

    name: str
    value: float | None
    lower: float | None
    upper: float | None
    unit: str


@dataclass(frozen=True)
class Case:
    """One test on one partition in one environment, run once; `time` is the end of its job, seconds since 1970.

    `own` is what the module of `lumisite reframe` recorded: lumisite's lines.
    """

    test: str
    system: str
    where: str
    job: str
    time: float
    nodes: tuple[str, ...]
    result: str
    phase: str
    reason: str
    numbers: tuple[Number, ...]
    own: str

    @property
    def name(self) -> str:
        """The case as ReFrame writes it."""
        return f"{self.test} @{self.where}"

    @property
    def run(self) -> str:
        """A name for the job: Slurm uses its numbers again after a while, so the time is part of it."""
        stamp = datetime.fromtimestamp(int(self.time), timezone.utc).strftime("%Y%m%dT%H%M%SZ")
        return f"{self.system}-{self.job}-{stamp}"

    @property
    def slow_only(self) -> bool:
        """Whether it did all that it should, and only a number was not as ReFrame's reference wants it."""
        measured = any(number.value is not None for number in self.numbers)
        return self.result == FAILED and self.phase in ("performance", "") and measured


def parse_case(raw: object) -> Case:
    """Read a case as reports have it (reframe/schemas/runreport.json of 4.10). Raises `LineError`."""
    raw = mapping("testcase", raw)
    test, result = _text(raw, "display_name" if "display_name" in raw else "name"), _text(raw, "result")
    system, partition, environ = (_text(raw, key) for key in ("system", "partition", "environ"))
    numbers = tuple(_numbers(raw, f"{system}:{partition}:"))
    job, nodes = raw.get("jobid"), raw.get("job_nodelist") or []
    if isinstance(job, bool) or not isinstance(job, str | int | None):
        raise LineError(f"jobid: {short(job)} is not the number of a job")
    if not isinstance(nodes, list):
        raise LineError(f'job_nodelist: {short(nodes)} is not a list of nodes, such as ["nid000001", "nid000002"]')
    return Case(
        test=_ADDED.sub("", test),
        system=system,
        where=f"{system}:{partition}+{environ}",
        # A case that had no job has a number of its own in the session.
        job=str(raw.get("uuid", "nojob")) if job in (None, "None") else str(job),
        time=_time(raw.get(ENDED), needed=result in SOUND and bool(numbers)),
        # Of short jobs ReFrame's squeue back-end knows no nodes, and writes "None".
        nodes=tuple(node for node in nodes if node not in ("None", "")),
        result=result,
        phase=str(raw.get("fail_phase") or ""),
        reason=" ".join(str(raw.get("fail_reason") or "").split()),
        numbers=numbers,
        own=str(raw.get("lumisite") or ""),
    )


def mapping(key: str, raw: object) -> Mapping[str, object]:
    """Check a JSON object; raises `LineError`."""
    if not isinstance(raw, dict):
        raise LineError(f"{key}: {short(raw)} is not an object")
    return raw


def _text(raw: Mapping[str, object], key: str) -> str:
    value = raw.get(key)
    if not isinstance(value, str) or not value.strip():
        raise LineError(f"{key}: {short(value) if key in raw else 'missing'} (a text would be right)")
    return " ".join(value.splitlines())


def _time(raw: object, *, needed: bool) -> float:
    if raw is None and not needed:
        return 0.0
    if isinstance(raw, int | float) and not isinstance(raw, bool) and 0 <= raw < LAST_MOMENT:
        return float(raw)
    raise LineError(f"{ENDED}: {short(raw)} is not a number of seconds since 1970")


def _numbers(raw: Mapping[str, object], before: str) -> Iterator[Number]:
    """Read `perfvalues`: value, reference, lower and upper threshold, unit, and in newer reports a result."""
    for name, row in mapping("perfvalues", raw.get("perfvalues") or {}).items():
        key = f"perfvalues[{short(name)}]"
        if not isinstance(row, list) or len(row) not in (5, 6) or not isinstance(row[4] or "", str):
            raise LineError(f"{key}: {short(row)} is not [value, reference, lower, upper, unit, result]")
        value, lower, upper = (_number(f"{key}[{at}]", row[at]) for at in (0, 2, 3))
        yield Number(name.removeprefix(before), value, lower, upper, row[4] or "")


def _number(key: str, raw: object) -> float | None:
    if raw is None:
        return None
    if isinstance(raw, bool) or not isinstance(raw, int | float):
        raise LineError(f"{key}: {short(raw)} is not a number")
    try:
        return float(raw)
    except OverflowError:
        raise LineError(f"{key}: {short(raw)} is not a finite number") from None


def case_lines(case: Case, leave_out: Callable[[str, str], None], *, after: bool) -> Iterator[Sample | Gate]:
    """Give the lines of a case; `leave_out` takes why and what gives none. Raises `LineError`.

    A baseline is made of cases that passed. `after` a change, one that only missed its reference has numbers all the
    same, for these are what is judged, and every other failure is a failed gate.
    """
    sound, reason = case.result in SOUND, f": {case.reason[:200]}" if case.reason else ""
    measured = sound or case.slow_only
    why = "" if sound or (after and case.result == FAILED) else case.result.replace(FAILED, "failed")
    if not why and measured and case.numbers and not case.nodes and not case.own:
        why = "without nodes"
    if why:
        leave_out(why, case.name + (f" in {case.phase}" if case.phase else "") + reason)
        return
    if case.own:
        yield from _own_lines(case.own)
        return
    if after:
        yield _gate(case)
    if measured:
        yield from _samples(case, leave_out)


def _own_lines(text: str) -> list[Sample | Gate]:
    try:
        return [line_of(raw) for raw in json.loads(text)]
    except LineError as error:
        raise LineError(f"lumisite: {error}") from None
    except (ValueError, TypeError, RecursionError):
        raise LineError(f"lumisite: {short(text)} is not a JSON list of lumisite's lines") from None


def _samples(case: Case, leave_out: Callable[[str, str], None]) -> Iterator[Sample | Gate]:
    own = case.test.startswith(OWN_TEST)
    for number in case.numbers:
        better = better_of(number)
        if number.value is None:
            continue
        if not LEAST <= number.value <= LARGEST:
            leave_out("not above 0 and finite", f"{case.name}/{number.name} is {number.value:g}")
        elif better is None:
            leave_out(NO_DIRECTION, f"{case.name}/{number.name} in {short(number.unit)}")
        else:
            metric = number.name if own else f"{case.name}/{number.name}"
            raw = {"metric": metric, "value": number.value, "better": better, "unit": number.unit}
            yield line_of(raw | {"run": case.run, "nodes": list(case.nodes), "time": case.time})


def _gate(case: Case) -> Sample | Gate:
    """Say whether a case ran as it should, whatever its numbers."""
    nodes = list(case.nodes) or [re.sub(r"[^\w.-]", "-", case.system)]
    raw = {"gate": case.name, "verdict": "pass", "cause": "", "advice": "", "run": case.run, "nodes": nodes}
    if case.result == FAILED and not case.slow_only:
        where, why = (f" in {case.phase}" if case.phase else ""), (f": {case.reason}" if case.reason else "")
        advice = "read the test's output in its stage directory"
        raw |= {"verdict": "fail", "cause": f"the test failed{where}{why}", "advice": advice}
    return line_of(raw | {"time": case.time})


def better_of(number: Number) -> Better | None:
    """Tell whether more of a number is better; none where neither thresholds nor unit tell, or they disagree."""
    lower, upper = (bound is not None and math.isfinite(bound) for bound in (number.lower, number.upper))
    by_bounds: Better | None = None if lower == upper else "higher" if lower else "lower"
    unit = number.unit.strip().lower()
    by_unit: Better | None = None
    if _LOWER.fullmatch(unit):
        by_unit = "lower"
    elif _HIGHER.fullmatch(unit) and not _UNWANTED.match(unit):
        by_unit = "higher"
    return None if by_bounds and by_unit and by_bounds != by_unit else by_bounds or by_unit
