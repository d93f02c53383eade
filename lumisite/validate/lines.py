"""The two kinds of line that a run writes: a sample is one number of one job, a gate is one yes or no.

A sample is `{"metric", "value", "better": "higher|lower", "run", "nodes", "time"}`, and may say its `unit`, the digest
of the `image`, and `spec`, a short hash of what was measured. A gate is `{"gate", "verdict": "pass|fail|inconclusive",
"cause", "advice", "run", "nodes", "time"}`, and may have the `location` of the cause (ranks and nodes), its `rank`, in
`asked` all nodes that it is about, of which `nodes` are those at fault, and the `code` of its finding with `values` for
machines. `value` is a finite number above 0; `run` names the job; `nodes` lists the nodes that it ran on; `time` is
seconds since 1970 or an ISO 8601 date and time (without a zone: UTC). Other keys are allowed and not read, so that a
tool may note more.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields
from datetime import datetime, timezone
from typing import Any, Literal, TypeAlias

from lumisite.errors import LumisiteError
from lumisite.findings.finding import Finding, Severity
from lumisite.findings.writers import advice, message
from lumisite.site.cpu_list import format_cpu_list
from lumisite.site.json_file import short
from lumisite.text import first_repeated, printable

Better: TypeAlias = Literal["higher", "lower"]
GateOutcome: TypeAlias = Literal["pass", "fail", "inconclusive"]
#: What a verdict on gates, on a metric (those alone are unconfirmed) or on the system may be.
State: TypeAlias = Literal["pass", "warn", "fail", "unconfirmed", "inconclusive", "bad-nodes", "shown"]
Nodes: TypeAlias = tuple[str, ...]
#: What a gate's line notes for machines.
Value: TypeAlias = "str | int | float | bool | tuple[Value, ...] | None"

#: What a gate answers, by how bad its finding is.
VERDICTS: Mapping[Severity, GateOutcome] = {
    Severity.INFO: "pass",
    Severity.DOUBT: "inconclusive",
    Severity.NODE: "fail",
    Severity.FAULT: "fail",
}
#: No measured value is smaller or larger, in whatever unit.
LEAST, LARGEST = 1e-100, 1e100
#: What is not written where a key may be left out.
_NOTHING: tuple[object, ...] = (None, "", [], (), {})
_NODE = re.compile(r"[A-Za-z0-9][\w.-]*", re.ASCII)


class LineError(LumisiteError):
    """What is wrong with one line."""


@dataclass(frozen=True)
class Sample:
    """One number that one job measured; `time` is in seconds since 1970, what is not known is empty."""

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

    `asked` are all nodes that it is about, empty where that is not known: `nodes` may be only those at fault.
    `location` are the ranks and nodes of the cause. `code` is that of a finding, whose `subject` and `cause` are among
    the `values`, with the `ranks`.
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
    location: str = ""
    code: str = ""
    values: Mapping[str, Value] = field(default_factory=dict, hash=False)

    @property
    def text(self) -> str:
        """Where and what: `rank 3 on nid000001: hung`."""
        return f"{self.location}: {self.cause}" if self.location else self.cause

    @property
    def kind(self) -> tuple[str, str]:
        """What it is about, by which gates of one cause are alike on whatever nodes and with whatever numbers."""
        return (self.code, str(self.values.get("subject", ""))) if self.code else ("", self.text)


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
    """Return the gate line for a finding about some nodes, and about these ranks of them."""
    values = {"subject": finding.subject, "ranks": format_cpu_list(ranks), "cause": finding.cause}
    return Gate(
        gate,
        VERDICTS[finding.severity],
        f"{finding.subject}: {message(finding)}" if finding.subject else message(finding),
        advice(finding),
        run,
        nodes,
        time,
        rank=ranks[0] if len(ranks) == 1 else None,
        asked=asked,
        location=location,
        code=finding.code,
        values={name: value for name, value in values.items() if value},
    )


_NEEDED = {
    kind: [entry.name for entry in fields(kind) if entry.default is MISSING and entry.default_factory is MISSING]
    for kind in (Sample, Gate)
}


def line_json(line: Sample | Gate) -> str:
    """Return a line without its end; keys without a value are left out."""
    needed = _NEEDED[type(line)]
    return json.dumps({key: value for key, value in vars(line).items() if key in needed or value not in _NOTHING})


def parse_line(line: bytes) -> Sample | Gate:
    """Parse one line of either kind; raises `LineError`."""
    raw = parse_object(line)
    kind = Gate if "gate" in raw and "metric" not in raw else Sample
    needed = _NEEDED[kind]
    if missing := [key for key in needed if key not in raw]:
        found = ", ".join(map(printable, raw)) or "none"
        text, todo = f"{', '.join(missing)} missing (found {found})", "add them, or remove the line if it is damaged"
        raise LineError(Finding("key-missing", Severity.FAULT, text, todo))
    given = [key for key in kind.__match_args__ if key in needed or raw.get(key) not in _NOTHING]
    parsed = kind(**{key: _READERS[key](key, raw[key]) for key in given})
    if isinstance(parsed, Gate) and parsed.verdict != "pass" and not parsed.cause:
        raise wrong_line("cause", "empty, and the gate did not pass", "write why it did not pass")
    return parsed


def parse_object(line: bytes) -> dict[str, Any]:
    """Parse an object of JSON; raises `LineError`."""
    try:
        raw = json.loads(line)
    except (ValueError, RecursionError) as error:
        todo = "write one object on each line; remove a line that is damaged"
        raise LineError(Finding("file-unreadable", Severity.FAULT, f"not JSON: {error}", todo)) from None
    if not isinstance(raw, dict):
        raise wrong_line("", f"{short(raw)} is not an object", "remove the line if it is damaged")
    return raw


def wrong_line(key: str, message: str, advice: str) -> LineError:
    """Return the error of a line with a value that cannot be meant."""
    return LineError(Finding("value-wrong", Severity.FAULT, message, advice, key))


# ---- the value of each key


def _name(key: str, raw: object) -> str:
    if not isinstance(raw, str) or not raw.strip() or not raw.isprintable():
        raise wrong_line(key, f"{short(raw)} is not a name", "write text that prints on one line")
    return raw


def _run(key: str, raw: object) -> str:
    """Parse the name of a job, which may be Slurm's number."""
    return _name(key, str(raw) if type(raw) is int else raw)


def _sentence(key: str, raw: object) -> str:
    """Parse any text, on one line."""
    if not isinstance(raw, str | None):
        raise wrong_line(key, f"{short(raw)} is not text", "write text")
    return " ".join("".join(letter if letter.isprintable() else " " for letter in raw or "").split())


def _one_of(*words: str) -> Callable[[str, object], str]:
    def choice(key: str, raw: object) -> str:
        if raw not in words:
            raise wrong_line(key, f"{short(raw)} is none of {', '.join(words)}", "write one of these words")
        return str(raw)

    return choice


def _rank(key: str, raw: object) -> int:
    if type(raw) is not int or raw < 0:
        todo = "write the number of the rank in its step"
        raise wrong_line(key, f"{short(raw)} is not a whole number from 0 up", todo)
    return raw


def _value(key: str, raw: object) -> float:
    if type(raw) not in (int, float) or not LEAST <= raw <= LARGEST:  # type: ignore[operator]
        raise wrong_line(key, f"{short(raw)} is not a finite number above 0", "leave out a job that measured nothing")
    return float(raw)  # type: ignore[arg-type]


def _nodes(key: str, raw: object) -> Nodes:
    names = raw if isinstance(raw, list) and raw else [raw]
    for name in names:
        if not isinstance(name, str) or not isinstance(raw, list) or not _NODE.fullmatch(name):
            todo = 'write a list such as ["nid005001", "nid005002"]'
            raise wrong_line(key, f"{short(name)} is not a list of node names", todo)
    if (name := first_repeated(names)) is not None:
        raise wrong_line(key, f"{name} is given twice", "write each node once")
    return tuple(sorted(names))


def _values(key: str, raw: object) -> dict[str, Value]:
    if not isinstance(raw, dict):
        raise wrong_line(key, f"{short(raw)} is not an object", "write an object")
    return {name: tuple(value) if isinstance(value, list) else value for name, value in raw.items()}


def _time(key: str, raw: object) -> float:
    if type(raw) in (int, float) and abs(raw) <= LARGEST:  # type: ignore[arg-type]
        return float(raw)  # type: ignore[arg-type]
    if isinstance(raw, str):
        try:
            # Python 3.10 knows neither Z nor fractions of other than 3 or 6 digits.
            text = re.sub(r"[.,](\d+)", lambda found: "." + (found[1] + "000000")[:6], raw.strip())
            when = datetime.fromisoformat(text.replace("Z", "+00:00"))
            return (when if when.tzinfo else when.replace(tzinfo=timezone.utc)).timestamp()
        except (ValueError, OverflowError):
            pass
    todo = "write it as 2026-01-22T10:15:00+02:00"
    raise wrong_line(key, f"{short(raw)} is neither seconds since 1970 nor ISO 8601", todo)


#: How the value of each key is read.
_READERS: Mapping[str, Callable[[str, object], Any]] = {
    **dict.fromkeys(("metric", "gate", "unit", "image", "spec", "code"), _name),
    **dict.fromkeys(("cause", "advice", "location"), _sentence),
    **dict.fromkeys(("nodes", "asked"), _nodes),
    "better": _one_of("higher", "lower"),
    "rank": _rank,
    "run": _run,
    "time": _time,
    "value": _value,
    "values": _values,
    "verdict": _one_of("pass", "fail", "inconclusive"),
}
