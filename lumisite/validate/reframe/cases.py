"""What one case of a ReFrame run is, and the samples and gates that it gives; reports and perflogs both become cases.

A number of a case becomes a sample `TEST @SYSTEM:PARTITION+ENVIRONMENT/NAME`, as ReFrame itself writes cases. A case of
the module that `lumisite reframe` writes carries the very lines that lumisite recorded, and these are taken.

ReFrame does not record whether more of a number is better. It follows from thresholds on one side only (a lower one:
more is better), or from the unit (rates: more; times: less). Where both speak they must agree, and where neither does,
or they disagree, the number is refused: nothing is guessed.
"""

from __future__ import annotations

import json
import math
import re
import shlex
from dataclasses import dataclass
from datetime import datetime, timezone
from fnmatch import fnmatchcase
from glob import escape
from typing import TYPE_CHECKING, Literal

from lumisite.validate.lines import LARGEST, LEAST, Better, Gate, LineError, Sample, line_of, shown

if TYPE_CHECKING:
    from typing import TypeAlias

Choice: TypeAlias = Literal["higher", "lower", "none"]
CHOICES: tuple[Choice, ...] = ("higher", "lower", "none")

#: How tests of the module are called that `lumisite reframe` writes; their numbers have lumisite's own names.
OWN_TEST = "Lumisite"
#: How ReFrame calls what went well, or failed as its author expected; up to 4.6, and after.
SOUND = ("pass", "success", "xfail", "xpass")
FAILED = ("fail", "failure")

#: The year 10000, in seconds since 1970.
LAST_MOMENT = 253_402_300_800

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


class CaseError(ValueError):
    """What is wrong with one case: the key, what it has, and what would be right."""


#: What options such as `--repeat` and `--distribute` add to a test's name: it is the same test, on whichever nodes.
_ADDED = re.compile(r" %[.$](?:repeat_no|part|nid)=.*?(?= [%~]|$)")


def plain_name(text: str) -> str:
    """Give a test's name without what ReFrame's options added to it.

    >>> plain_name("Bw %size=1 %$repeat_no=0")
    'Bw %size=1'
    """
    return _ADDED.sub("", text)


def moment(key: str, value: object) -> float:
    """Check seconds since 1970; raises `CaseError` for what is no date before the year 10000."""
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < LAST_MOMENT:
        return float(value)
    raise CaseError(f"{key}: {shown(value)} is not a number of seconds since 1970")


class DirectionError(CaseError):
    """It is not known whether more of a number is better; `about` is the same for all cases of which that is so."""

    def __init__(self, text: str, about: str) -> None:
        super().__init__(text)
        self.about = about


@dataclass(frozen=True)
class Number:
    """One performance variable of a case, as ReFrame recorded it; `value` is none where it was not measured."""

    key: str
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
    own: str = ""

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
        return self.result in FAILED and self.phase in ("performance", "") and measured


@dataclass(frozen=True)
class Answers:
    """What a person says that ReFrame did not record.

    `better`: for patterns of metrics whether more is better, or that they are left out; `nodes`: those of jobs of which
    none are known.
    """

    better: tuple[tuple[str, Choice], ...] = ()
    nodes: tuple[str, ...] = ()

    def of(self, metric: str, number: Number) -> Choice:
        """Tell whether more is better; raises `DirectionError` where it cannot be told."""
        for pattern, choice in self.better:
            if fnmatchcase(metric, pattern):
                return choice
        by_bounds, by_unit = _by_bounds(number), _by_unit(number.unit)
        if by_bounds and by_unit and by_bounds != by_unit:
            why = f"unit {shown(number.unit)} says {by_unit} is better, but {_bounds(number)} says {by_bounds}"
        elif by_bounds or by_unit:
            return by_bounds or by_unit or "none"
        else:
            why = f"neither unit {shown(number.unit)} nor {_bounds(number)} tells whether more is better"
        pattern = ("" if metric == number.name else "*/") + escape(number.name)
        words = shlex.quote(f"{pattern}=higher")
        text = (
            f"{number.key}: {why} (`lumisite reframe --import FILE --better {words} -o samples.jsonl` says so; =lower"
            " and =none, to leave it out, are the other choices)"
        )
        raise DirectionError(text, pattern)


NOTHING_SAID = Answers()


def is_speed(value: float) -> bool:
    """Tell whether a number can be compared: 0, less, and what is no number cannot."""
    return LEAST <= value <= LARGEST


def case_lines(case: Case, answers: Answers, *, after: bool) -> list[Sample | Gate]:
    """Give the lines of a case that ran to its end; raises `CaseError`.

    A baseline is made of cases that passed. `after` a change, one that only missed its reference has numbers all the
    same, for these are what is judged, and every other failure is a failed gate.
    """
    if case.own and (after or case.result in SOUND):
        return _own_lines(case)
    lines: list[Sample | Gate] = [_gate(case)] if after else []
    if case.result in SOUND or (after and case.slow_only):
        for number in case.numbers:
            if number.value is not None:
                lines += _samples(case, number, answers)
    return lines


def _own_lines(case: Case) -> list[Sample | Gate]:
    try:
        return [line_of(raw) for raw in json.loads(case.own)]
    except LineError as error:
        raise CaseError(f"lumisite: {error}") from None
    except (ValueError, TypeError, RecursionError):
        raise CaseError(f"lumisite: {shown(case.own)} is not a JSON list of lumisite's lines") from None


def _samples(case: Case, number: Number, answers: Answers) -> list[Sample | Gate]:
    metric = number.name if case.test.startswith(OWN_TEST) else f"{case.name}/{number.name}"
    better = answers.of(metric, number)
    if better == "none":
        return []
    raw = {"metric": metric, "value": number.value, "better": better, "run": case.run, "nodes": list(case.nodes)}
    try:
        return [line_of(raw | {"time": case.time, "unit": number.unit})]
    except LineError as error:
        raise CaseError(f"{number.key}: {error}") from None


def _gate(case: Case) -> Gate:
    """Say whether a case ran as it should, whatever its numbers."""
    nodes = tuple(sorted(case.nodes)) or (re.sub(r"[^\w.-]", "-", case.system),)
    if case.result in SOUND or case.slow_only:
        return Gate(case.name, "pass", "", "", case.run, nodes, case.time)
    where = f" in {case.phase}" if case.phase else ""
    reason = " ".join(case.reason.split())
    cause = f"the test failed{where}" + (f": {reason}" if reason else "")
    return Gate(case.name, "fail", cause, "read the test's output in its stage directory", case.run, nodes, case.time)


def _by_bounds(number: Number) -> Better | None:
    lower, upper = (bound is not None and math.isfinite(bound) for bound in (number.lower, number.upper))
    if lower == upper:
        return None
    return "higher" if lower else "lower"


def _by_unit(unit: str) -> Better | None:
    text = unit.strip().lower()
    if _LOWER.fullmatch(text):
        return "lower"
    return "higher" if _HIGHER.fullmatch(text) and not _UNWANTED.match(text) else None


def _bounds(number: Number) -> str:
    lower, upper = ("none" if bound is None else f"{bound:g}" for bound in (number.lower, number.upper))
    return f"thresholds (lower {lower}, upper {upper})"
