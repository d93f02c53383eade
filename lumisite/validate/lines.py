"""The two kinds of line that a run writes: a sample is one number of one job, a gate is one yes or no.

A sample is `{"metric", "value", "better": "higher|lower", "run", "nodes", "time"}`, and may say its `unit`, the digest
of the `image`, and `spec`, a short hash of what was measured. A gate is `{"gate", "verdict": "pass|fail|inconclusive",
"cause", "advice", "run", "nodes", "time"}`, and may say its `rank`, and in `asked` all nodes that it asked, of which
`nodes` are those at fault. `value` is a finite number above 0; `run` names the job; `nodes` lists the nodes that it ran
on; `time` is seconds since 1970 or an ISO 8601 date and time (without a zone: UTC). Other keys are allowed and not
read, so that a tool may note more.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Literal, TypeVar

from lumisite.errors import SiteError
from lumisite.site.decode import parse_json, short

if TYPE_CHECKING:
    from typing import TypeAlias

Better: TypeAlias = Literal["higher", "lower"]
GateOutcome: TypeAlias = Literal["pass", "fail", "inconclusive"]
Nodes: TypeAlias = tuple[str, ...]

BETTER: tuple[Better, ...] = ("higher", "lower")
GATE_STATES: tuple[GateOutcome, ...] = ("pass", "fail", "inconclusive")
SAMPLE_KEYS = ("metric", "value", "better", "run", "nodes", "time")
GATE_KEYS = ("gate", "verdict", "cause", "advice", "run", "nodes", "time")
_MAY_BE_LEFT_OUT = ("unit", "image", "spec", "rank", "asked")

#: No measured value is smaller or larger, in whatever unit.
LEAST, LARGEST = 1e-100, 1e100

_Word = TypeVar("_Word", bound=str)
_NODE = re.compile(r"[A-Za-z0-9][\w.-]*", re.ASCII)


class LineError(ValueError):
    """What is wrong with one line."""


@dataclass(frozen=True)
class Sample:
    """One number that one job measured; `time` is in seconds since 1970, what is not said is empty."""

    metric: str
    value: float
    better: Better
    run: str
    nodes: Nodes
    time: float
    unit: str = ""
    image: str = ""
    spec: str = ""


@dataclass(frozen=True)
class Gate:
    """One answer to one hard question in one job; a gate that passed needs no cause and no advice.

    `asked` are all nodes that were asked, empty where that is not said: `nodes` may be only those at fault.
    """

    gate: str
    verdict: GateOutcome
    cause: str
    advice: str
    run: str
    nodes: Nodes
    time: float
    rank: int | None = None
    asked: Nodes = ()


def line_json(line: Sample | Gate) -> str:
    """Write a line without its end, in the order of keys that is read fastest. What is not said is left out."""
    raw = vars(line).items()
    return json.dumps({key: value for key, value in raw if key not in _MAY_BE_LEFT_OUT or value not in ("", None, ())})


def parse_line(line: bytes) -> Sample | Gate:
    """Read one line of either kind; raises `LineError`."""
    try:
        raw = parse_json(line, "")
    except SiteError as error:
        raise LineError(f"{error.problems[0].message} (one object on a line would be right)") from None
    return line_of(raw)


def line_of(raw: object) -> Sample | Gate:
    """Read what a line holds; raises `LineError`."""
    if not isinstance(raw, dict):
        raise LineError(f"{short(raw)} is not an object with {', '.join(SAMPLE_KEYS)}")
    return _gate(raw) if "gate" in raw and "metric" not in raw else _sample(raw)


def _sample(raw: Mapping[str, object]) -> Sample:
    _need(raw, SAMPLE_KEYS)
    return Sample(
        metric=_name("metric", raw["metric"]),
        value=_value(raw["value"]),
        better=_one_of("better", raw["better"], BETTER),
        run=_run(raw["run"]),
        nodes=_nodes(raw["nodes"]),
        time=parse_time(raw["time"]),
        unit=_optional(raw, "unit"),
        image=_optional(raw, "image"),
        spec=_optional(raw, "spec"),
    )


def _gate(raw: Mapping[str, object]) -> Gate:
    _need(raw, GATE_KEYS)
    state = _one_of("verdict", raw["verdict"], GATE_STATES)
    rank = raw.get("rank")
    if rank is not None and (isinstance(rank, bool) or not isinstance(rank, int) or rank < 0):
        raise LineError(f"rank: {short(rank)} is not a number from 0 up")
    return Gate(
        gate=_name("gate", raw["gate"]),
        verdict=state,
        cause=_sentence("cause", raw["cause"], needed=state != "pass"),
        advice=_sentence("advice", raw["advice"], needed=False),
        run=_run(raw["run"]),
        nodes=_nodes(raw["nodes"]),
        time=parse_time(raw["time"]),
        rank=rank,
        asked=_nodes(raw["asked"], "asked") if raw.get("asked") else (),
    )


def _need(raw: Mapping[str, object], keys: Sequence[str]) -> None:
    missing = [key for key in keys if key not in raw]
    if missing:
        have = " ".join(", ".join(map(str, raw)).split()) or "nothing"
        raise LineError(f"{', '.join(missing)} missing (have {have})")


def _name(key: str, raw: object) -> str:
    if not isinstance(raw, str) or not raw.strip() or not raw.isprintable():
        raise LineError(f"{key}: {short(raw)} is not a name")
    return raw


def _run(raw: object) -> str:
    return _name("run", str(raw) if type(raw) is int else raw)


def _optional(raw: Mapping[str, object], key: str) -> str:
    value = raw.get(key)
    return "" if value is None or value == "" else _name(key, value)


def _sentence(key: str, raw: object, *, needed: bool) -> str:
    """Read what people are told: any text, on one line."""
    if raw is None or raw == "":
        if needed:
            raise LineError(f"{key}: empty (a gate that did not pass says why)")
        return ""
    if not isinstance(raw, str):
        raise LineError(f"{key}: {short(raw)} is not a text")
    return " ".join("".join(letter if letter.isprintable() else " " for letter in raw).split())


def _one_of(key: str, raw: object, words: Sequence[_Word]) -> _Word:
    """Read one of a few words. Raises `LineError`."""
    for word in words:
        if raw == word:
            return word
    raise LineError(f"{key}: {short(raw)} is neither {' nor '.join(words)}")


def _value(raw: object) -> float:
    if isinstance(raw, bool) or not isinstance(raw, int | float):
        raise LineError(f"value: {short(raw)} is not a number")
    try:
        value = float(raw)
    except OverflowError:
        value = math.inf
    if not LEAST <= value <= LARGEST:
        raise LineError(f"value: {short(raw)} is not above 0 and finite (leave a job out that measured nothing)")
    return value


def _nodes(raw: object, key: str = "nodes") -> Nodes:
    if not isinstance(raw, list) or not raw:
        raise LineError(f'{key}: {short(raw)} is not a list of node names, such as ["nid005001", "nid005002"]')
    for name in raw:
        if not isinstance(name, str) or not _NODE.fullmatch(name):
            raise LineError(f"{key}: {short(name)} is not the name of a node (letters, digits, . _ and -)")
    if len(set(raw)) < len(raw):
        raise LineError(f"{key}: {next(name for name in raw if raw.count(name) > 1)} stands twice")
    return tuple(sorted(raw))


def parse_time(raw: object) -> float:
    """Give a time in seconds since 1970. Raises `LineError`."""
    if isinstance(raw, int | float) and not isinstance(raw, bool):
        try:
            seconds = float(raw)
        except OverflowError:
            seconds = math.inf
        if math.isfinite(seconds):
            return seconds
    elif isinstance(raw, str):
        try:
            # Python 3.10 knows neither Z nor fractions of other than 3 or 6 digits.
            text = re.sub(r"[.,](\d+)", lambda found: "." + (found[1] + "000000")[:6], raw.strip()).replace(
                "Z", "+00:00"
            )
            when = datetime.fromisoformat(text)
            return (when if when.tzinfo else when.replace(tzinfo=timezone.utc)).timestamp()
        except (ValueError, OverflowError):
            pass
    raise LineError(f"time: {short(raw)} is neither seconds since 1970 nor ISO 8601, such as 2026-01-22T10:15:00+02:00")
