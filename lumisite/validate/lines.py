"""The two kinds of line that a run writes: a sample is one number of one job, a gate is one yes or no.

A sample is `{"metric", "value", "better": "higher|lower", "run", "nodes", "time"}`, and may say its `unit`, the digest
of the `image`, and `spec`, a short hash of what was measured. A gate is `{"gate", "verdict": "pass|fail|inconclusive",
"cause", "advice", "run", "nodes", "time"}`, and may have its `rank`, and in `asked` all nodes that it is about, of
which `nodes` are those at fault. `code` is an entry of the catalogue of findings, from which `cause` and `advice` are
made with its `values`. `value` is a finite number above 0; `run` names the job; `nodes`
lists the nodes that it ran on; `time` is seconds since 1970 or an ISO 8601 date and time (without a zone: UTC). Other
keys are allowed and not read, so that a tool may note more.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields
from datetime import datetime, timezone
from functools import partial
from typing import Any, Literal, TypeAlias

from lumisite.errors import LumisiteError, SiteError
from lumisite.findings.catalogue import make_finding
from lumisite.findings.finding import Finding, Severity, Value
from lumisite.findings.writers import advice, message
from lumisite.site.cpus import format_cpu_list
from lumisite.site.json_file import parse_json, short
from lumisite.text import first_repeated

Better: TypeAlias = Literal["higher", "lower"]
GateOutcome: TypeAlias = Literal["pass", "fail", "inconclusive"]
#: What a verdict on gates, on a metric (those alone are unconfirmed) or on the system may be.
State: TypeAlias = Literal["pass", "warn", "fail", "unconfirmed", "inconclusive", "bad-nodes", "shown"]
Nodes: TypeAlias = tuple[str, ...]

BETTER: tuple[Better, ...] = ("higher", "lower")
GATE_STATES: tuple[GateOutcome, ...] = ("pass", "fail", "inconclusive")

#: What a gate answers, by how bad its finding is.
VERDICTS: Mapping[Severity, GateOutcome] = {
    Severity.INFO: "pass",
    Severity.DOUBT: "inconclusive",
    Severity.NODE: "fail",
    Severity.FAULT: "fail",
}

#: No measured value is smaller or larger, in whatever unit.
LEAST, LARGEST = 1e-100, 1e100

#: What a key may hold that need not be there, and then is not written.
_NOTHING: tuple[object, ...] = (None, "", [], (), {})

_NODE = re.compile(r"[A-Za-z0-9][\w.-]*", re.ASCII)


class LineError(LumisiteError):
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

    `asked` are all nodes that it is about, empty where that is not known: `nodes` may be only those at fault. `code`
    and `values` are those of a finding, with its `subject` and the `ranks` among the values.
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
    code: str = ""
    values: Mapping[str, Value] = field(default_factory=dict, hash=False)

    @property
    def kind(self) -> tuple[str, str]:
        """What it is about, by which gates of one cause are alike on whatever nodes and with whatever numbers."""
        return (self.code, str(self.values.get("subject", ""))) if self.code else ("", self.cause)


def gate_of(
    finding: Finding,
    gate: str,
    run: str,
    nodes: Nodes,
    time: float,
    *,
    ranks: Sequence[int] = (),
    location: str = "",
    asked: Nodes = (),
) -> Gate:
    """Return the gate line for a finding about some nodes; `location` names them and the ranks in its cause."""
    values = {"subject": finding.subject, "ranks": format_cpu_list(ranks), **finding.values}
    return Gate(
        gate,
        VERDICTS[finding.severity],
        ": ".join(filter(None, (location, finding.subject, message(finding)))),
        advice(finding),
        run,
        nodes,
        time,
        rank=ranks[0] if len(ranks) == 1 else None,
        asked=asked,
        code=finding.code,
        values={name: value for name, value in values.items() if value not in (None, "", ())},
    )


_KEYS = {kind: [entry.name for entry in fields(kind)] for kind in (Sample, Gate)}
_NEEDED = {
    kind: [entry.name for entry in fields(kind) if entry.default is MISSING and entry.default_factory is MISSING]
    for kind in (Sample, Gate)
}


def line_json(line: Sample | Gate) -> str:
    """Return a line without its end; keys without a value are left out."""
    known = {entry.name: getattr(line, entry.name) for entry in fields(line)}
    needed = _NEEDED[type(line)]
    return json.dumps({name: value for name, value in known.items() if name in needed or value not in _NOTHING})


def parse_line(line: bytes) -> Sample | Gate:
    """Parse one line of either kind; raises `LineError`."""
    return line_of(parse_value(line))


def parse_value(line: bytes) -> object:
    """Parse a line of JSON; raises `LineError`."""
    try:
        value: object = parse_json(line, "")
    except SiteError as error:
        raise LineError(make_finding("line-not-json", reason=message(error.finding))) from None
    return value


def line_of(raw: object) -> Sample | Gate:
    """Return what an object of JSON holds; raises `LineError`."""
    kind = Gate if isinstance(raw, dict) and "gate" in raw and "metric" not in raw else Sample
    needed = _NEEDED[kind]
    if not isinstance(raw, dict):
        raise LineError(make_finding("line-not-object", found=short(raw), keys=tuple(needed)))
    if missing := tuple(key for key in needed if key not in raw):
        raise LineError(make_finding("line-key-missing", missing=missing, found=tuple(map(str, raw))))
    known = [key for key in _KEYS[kind] if key in needed or raw.get(key) not in _NOTHING]
    line = kind(**{key: _READERS[key](key, raw[key]) for key in known})
    if isinstance(line, Gate) and line.verdict != "pass" and not line.cause:
        raise _unfit("gate-without-cause", "cause", "")
    return line


def _unfit(code: str, key: str, raw: object, expected: Sequence[str] = ()) -> LineError:
    return LineError(make_finding(code, key, found=short(raw), expected=tuple(expected)))


def _name(key: str, raw: object) -> str:
    if not isinstance(raw, str) or not raw.strip() or not raw.isprintable():
        raise _unfit("name-invalid", key, raw)
    return raw


def _sentence(key: str, raw: object) -> str:
    """Parse any text, on one line."""
    if raw is None:
        return ""
    if not isinstance(raw, str):
        raise _unfit("text-invalid", key, raw)
    return " ".join("".join(letter if letter.isprintable() else " " for letter in raw).split())


def _choice(words: Sequence[str], key: str, raw: object) -> str:
    """Parse one of a few words."""
    if isinstance(raw, str) and raw in words:
        return raw
    raise _unfit("word-invalid", key, raw, words)


def _rank(key: str, raw: object) -> int:
    if type(raw) is not int or raw < 0:
        raise _unfit("rank-invalid", key, raw)
    return raw


def _value(key: str, raw: object) -> float:
    value = as_float(raw)
    if value is None or not LEAST <= value <= LARGEST:
        raise _unfit("number-invalid", key, raw)
    return value


def as_float(raw: object) -> float | None:
    """Return a number of JSON, infinite where it is too large; None for anything else."""
    if isinstance(raw, bool) or not isinstance(raw, int | float):
        return None
    try:
        return float(raw)
    except OverflowError:
        return math.inf


def _nodes(key: str, raw: object) -> Nodes:
    if not isinstance(raw, list) or not raw:
        raise _unfit("nodes-invalid", key, raw)
    for name in raw:
        if not isinstance(name, str) or not _NODE.fullmatch(name):
            raise _unfit("nodes-invalid", key, name)
    if (name := first_repeated(raw)) is not None:
        raise _unfit("nodes-repeated", key, name)
    return tuple(sorted(raw))


def _values(key: str, raw: object) -> dict[str, Value]:
    if not isinstance(raw, dict):
        raise _unfit("text-invalid", key, raw)
    return {name: tuple(value) if isinstance(value, list) else value for name, value in raw.items()}


def parse_time(raw: object) -> float:
    """Return a time in seconds since 1970; raises `LineError`."""
    seconds = as_float(raw)
    if seconds is not None and math.isfinite(seconds):
        return seconds
    if isinstance(raw, str):
        try:
            # Python 3.10 knows neither Z nor fractions of other than 3 or 6 digits.
            text = re.sub(r"[.,](\d+)", lambda found: "." + (found[1] + "000000")[:6], raw.strip()).replace(
                "Z", "+00:00"
            )
            when = datetime.fromisoformat(text)
            return (when if when.tzinfo else when.replace(tzinfo=timezone.utc)).timestamp()
        except (ValueError, OverflowError):
            pass
    raise _unfit("time-invalid", "time", raw)


#: How the value of each key is read.
_READERS: Mapping[str, Callable[[str, object], Any]] = {
    **dict.fromkeys(("metric", "gate", "unit", "image", "spec", "code"), _name),
    **dict.fromkeys(("cause", "advice"), _sentence),
    **dict.fromkeys(("nodes", "asked"), _nodes),
    "better": partial(_choice, BETTER),
    "rank": _rank,
    "run": lambda key, raw: _name(key, str(raw) if type(raw) is int else raw),
    "time": lambda _, raw: parse_time(raw),
    "value": _value,
    "values": _values,
    "verdict": partial(_choice, GATE_STATES),
}
