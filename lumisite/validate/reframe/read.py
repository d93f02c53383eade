"""Take what ReFrame recorded for samples: files are known by what they hold, and become lumisite's lines on the way.

Read are the reports of `reframe --report-file` from ReFrame 4.7 on (data version 4), and perflogs in its default
format. A perflog's line is turned into the case that a report would have. What is left out is told.

A number becomes a sample `TEST @SYSTEM:PARTITION+ENVIRONMENT/NAME`, as ReFrame itself writes cases. A test of the
module that `lumisite reframe` writes carries the very lines that lumisite recorded, and these are taken.

ReFrame does not record whether more of a number is better. It follows from thresholds on one side only (a lower one:
more is better), or from the unit (rates: more; times: less). Where both speak they must agree, and where neither does,
or they disagree, the number is left out: nothing is guessed.
"""

from __future__ import annotations

import itertools
import json
import math
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import TypeAlias, TypeVar

from lumisite.site.decode import short
from lumisite.validate.lines import LARGEST, LEAST, Better, Gate, LineError, Sample, as_float, line_json, line_of
from lumisite.validate.samples import Faults, SamplesError

T = TypeVar("T")
#: A case as reports have it.
Raw: TypeAlias = Mapping[str, object]

#: A report or perflog is read as a whole, so it may not be larger than this; a case takes a few kilobytes of it.
LARGEST_BYTES = 1 << 25
#: Cases that are named before they are only counted.
NAMED = 3
#: How a report begins, and the header of a perflog.
_REPORT = re.compile(rb'\s*\{\s*"(?:session_info|runs|restored_cases)"\s*:')
_PERFLOG = b"result|job_completion_time|"
#: How tests of the module are called that `lumisite reframe` writes; their numbers have lumisite's own names.
OWN_TEST = "Lumisite"
#: How ReFrame calls what went well, or failed as its author expected, and what failed.
SOUND, FAILED = ("pass", "xfail", "xpass"), "fail"
#: The key of the end of a case's job, in seconds since 1970.
ENDED = "job_completion_time_unix"
#: What each number has columns for, in the order of a report.
_NUMBER = ("value", "ref", "lower_thres", "upper_thres", "unit")
#: Columns that a case needs.
_NEEDED = ("name", "system", "partition", "environ", "jobid", "job_nodelist", ENDED)
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
#: A performance variable that was measured: its name, value, whether more of it is better, and its unit.
Number: TypeAlias = tuple[str, float, Better | None, str]


@dataclass(frozen=True)
class Case:
    """One test on one partition in one environment, run once; `time` is the end of its job, seconds since 1970.

    `name` is the case as ReFrame writes it, `run` names its job. `own` is what the module of `lumisite reframe`
    recorded: lumisite's lines.
    """

    name: str
    system: str
    run: str
    time: float
    nodes: tuple[str, ...]
    result: str
    phase: str
    reason: str
    numbers: tuple[Number, ...]
    own: str

    @property
    def slow_only(self) -> bool:
        """Whether it did all that it should, and only a number was not as ReFrame's reference wants it."""
        return self.result == FAILED and self.phase in ("performance", "") and bool(self.numbers)


def parse_case(raw: Raw) -> Case:
    """Read a case as reports have it (reframe/schemas/runreport.json of 4.10). Raises `LineError`."""
    test, result = _text(raw, "display_name" if "display_name" in raw else "name"), _text(raw, "result")
    system, partition, environ = (_text(raw, key) for key in ("system", "partition", "environ"))
    numbers = tuple(_numbers(raw, f"{system}:{partition}:"))
    job, wanted = raw.get("jobid"), 'a list of nodes, such as ["nid000001", "nid000002"]'
    nodes = typed("job_nodelist", raw.get("job_nodelist") or [], list, wanted)
    if isinstance(job, bool) or not isinstance(job, str | int | None):
        raise LineError(f"jobid: {short(job)} is not the number of a job")
    # A case that had no job has a number of its own in the session.
    job = raw.get("uuid", "nojob") if job in (None, "None") else job
    time = _time(raw.get(ENDED), needed=result in SOUND and bool(numbers))
    # Slurm uses the numbers of jobs again after a while.
    stamp = datetime.fromtimestamp(int(time), timezone.utc).strftime("%Y%m%dT%H%M%SZ")
    return Case(
        name=f"{_ADDED.sub('', test)} @{system}:{partition}+{environ}",
        system=system,
        run=f"{system}-{job}-{stamp}",
        time=time,
        # Of short jobs ReFrame's squeue back-end knows no nodes, and writes "None".
        nodes=tuple(node for node in nodes if node not in ("None", "")),
        result=result,
        phase=str(raw.get("fail_phase") or ""),
        reason=" ".join(str(raw.get("fail_reason") or "").split()),
        numbers=numbers,
        own=str(raw.get("lumisite") or ""),
    )


def with_reframe(
    sources: Iterable[tuple[str, Iterable[bytes]]], say: Callable[[str], None], *, after: bool = False
) -> Iterator[tuple[str, Iterable[bytes]]]:
    """Give files as `read_lines` takes them; those of ReFrame are read on the way, and `say` takes what is left out.

    `after`: they are from after a change. A line that another of these files gave already, as a report and a perflog of
    one session do, is given once. Raises `SamplesError` with all faults of a file.
    """
    given: set[bytes] = set()
    for name, blocks in sources:
        rest = iter(blocks)
        head = next(rest, b"")
        whole = itertools.chain([head], rest)
        if _REPORT.match(head):
            lines = _lines(name, _report_cases(_joined(name, whole)), say, after=after)
        elif head.startswith(_PERFLOG):
            lines = _lines(name, _perflog_cases(_joined(name, whole)), say, after=after)
        elif _may_be_lines(head):
            yield name, whole
            continue
        else:
            begins = short(head.lstrip().split(b"\n", 1)[0].decode("utf-8", "replace").strip())
            right = "JSON lines would be right, a report of `reframe --report-file`, or a perflog in its default format"
            raise SamplesError(f"{name}: neither samples nor of ReFrame: it begins with {begins} ({right})")
        yield name, [line for line in lines if line not in given]
        given.update(lines)


def _may_be_lines(head: bytes) -> bool:
    """Tell whether a file may hold samples: an empty one may, and one of which a line is damaged."""
    lines = (line.strip() for line in head.removeprefix(b"\xef\xbb\xbf").splitlines())
    return not head.strip() or any(len(line) > 1 and line.startswith(b"{") for line in lines)


def _joined(name: str, blocks: Iterable[bytes]) -> bytes:
    data = bytearray()
    for block in blocks:
        data += block
        if len(data) > LARGEST_BYTES:
            what = f"larger than {LARGEST_BYTES >> 20} MiB (the reports or perflogs of fewer runs would be right)"
            raise SamplesError(f"{name}: {what}")
    return bytes(data)


def _lines(
    name: str, cases: Iterable[tuple[str, Raw | None]], say: Callable[[str], None], *, after: bool
) -> list[bytes]:
    """Give the lines of all cases, and say what was left out; a case is none where its line in the file is torn."""
    found: dict[bytes, None] = {}
    faults = Faults()
    out: dict[str, list[str]] = defaultdict(list)
    try:
        for place, raw in cases:
            if raw is None:
                out["torn"].append(f"line {place.strip(': ')}")
                continue
            try:
                for line in case_lines(parse_case(raw), lambda why, what: out[why].append(what), after=after):
                    found[line_json(line).encode() + b"\n"] = None
            except LineError as error:
                faults.add(f"{name}{place}{error}")
    except LineError as error:
        faults.add(f"{name}: {error}")
    faults.tell()
    for why, left in out.items():
        more = f"; and {len(left) - NAMED} more" if len(left) > NAMED else ""
        say(f"{name}: {why}, left out: {'; '.join(left[:NAMED])}{more}")
    return [*found]


def _report_cases(data: bytes) -> Iterator[tuple[str, Raw | None]]:
    """Give the cases of all runs, each with its place. What an earlier session ran has a report of its own."""
    try:
        raw = json.loads(data)
    except json.JSONDecodeError as error:
        raise LineError(f"line {error.lineno}: {error.msg}") from None
    except (ValueError, RecursionError):
        raise LineError("not UTF-8, a number with too many digits, or nested too deeply") from None
    session = typed("session_info", typed("report", raw, dict, "an object").get("session_info"), dict, "an object")
    version = session.get("data_version")
    if not isinstance(version, str) or version.partition(".")[0] != "4":
        raise LineError(f"session_info.data_version: {short(version)} is not known (4.x is: ReFrame from 4.7 on)")
    for number, run in enumerate(typed("runs", raw.get("runs"), list, "a list")):
        key = f"runs[{number}]"
        cases = typed(key, run, dict, "an object").get("testcases")
        for at, case in enumerate(typed(f"{key}.testcases", cases, list, "a list")):
            place = f"{key}.testcases[{at}]"
            raw = typed(place, case, dict, "an object")
            ended = session.get("time_end_unix") if raw.get(ENDED) is None else raw[ENDED]
            yield f": {place}.", {**raw, ENDED: ended}


def _perflog_cases(data: bytes) -> Iterator[tuple[str, Raw | None]]:
    """Give the cases of a perflog, each with its line; none for a line that cannot be a whole one."""
    first, *lines = data.decode("utf-8", "replace").split("\n")
    header = _header(first.split("|"))
    missing = [name for name in _NEEDED if name not in header.columns]
    if missing:
        why = "that is not ReFrame's default format; a report of `reframe --report-file` has all"
        raise LineError(f"line 1: the perflog has no column {', '.join(missing)} ({why})")
    for count, line in enumerate(lines, start=2):
        if line.strip():
            yield f":{count}: ", None if count > len(lines) else _case(header, line.split("|"))


@dataclass(frozen=True)
class _Header:
    """The columns of a perflog, those of each number by its name, and how many stand before and behind all numbers."""

    columns: Sequence[str]
    numbers: Mapping[str, Sequence[str]]
    first: int
    tail: int


def _header(columns: Sequence[str]) -> _Header:
    names = [name.removesuffix("_value") for name in columns if name.endswith("_value")]
    numbers = {name: [f"{name}_{what}" for what in _NUMBER] for name in names}
    # A column without a name: the numbers of a case that had none. Without either, all columns stand before them.
    own = {"", *itertools.chain(*numbers.values())}
    places = [at for at, name in enumerate(columns) if name in own] or [len(columns), len(columns) - 1]
    return _Header(columns, numbers, places[0], len(columns) - places[-1] - 1)


def _case(header: _Header, cells: Sequence[str]) -> dict[str, object] | None:
    """Give a line as the case of a report; none where it is not whole.

    ReFrame writes a header once, so a variant of a test that has other numbers has other columns, and one that failed
    may have none. Its other columns stand where they should, counted from both ends, and are enough where the numbers
    are not needed: it failed, or has lumisite's own lines.
    """
    columns, numbers = header.columns, header.numbers
    cut = len(cells) != len(columns)
    if cut:
        if len(cells) < header.first + header.tail:
            return None
        columns, cells = ([*each[: header.first], *each[len(each) - header.tail :]] for each in (columns, cells))
        numbers = {}
    row = {name: None if cell in ("", "None", "null") else cell for name, cell in zip(columns, cells, strict=True)}
    if cut and row["result"] != FAILED and not (row.get("lumisite") or "").startswith("["):
        return None
    values = {name: [*(_cell(row.get(key)) for key in keys[:-1]), row.get(keys[-1])] for name, keys in numbers.items()}
    nodes = (row.get("job_nodelist") or "").split(",")
    return {**row, "perfvalues": values, "job_nodelist": nodes, ENDED: _cell(row.get(ENDED))}


def _cell(text: str | None) -> object:
    """Give a number; text that is none as it is, for who checks the case."""
    try:
        return None if text is None else float(text)
    except ValueError:
        return text


def typed(key: str, raw: object, kind: type[T], what: str) -> T:
    """Check the type of a value of JSON; raises `LineError`."""
    if not isinstance(raw, kind):
        raise LineError(f"{key}: {short(raw)} is not {what}")
    return raw


def _text(raw: Raw, key: str) -> str:
    value = raw.get(key)
    if not isinstance(value, str) or not value.strip():
        raise LineError(f"{key}: {short(value) if key in raw else 'missing'} (a text would be right)")
    return " ".join(value.splitlines())


def _time(raw: object, *, needed: bool) -> float:
    value = 0.0 if raw is None and not needed else as_float(raw)
    if value is not None and 0 <= value < LAST_MOMENT:
        return value
    raise LineError(f"{ENDED}: {short(raw)} is not a number of seconds since 1970")


def _numbers(raw: Raw, before: str) -> Iterator[Number]:
    """Read `perfvalues`: value, reference, lower and upper threshold, unit, and in newer reports a result."""
    for name, row in typed("perfvalues", raw.get("perfvalues") or {}, dict, "an object").items():
        key = f"perfvalues[{short(name)}]"
        if not isinstance(row, list) or len(row) not in (5, 6) or not isinstance(row[4] or "", str):
            raise LineError(f"{key}: {short(row)} is not [value, reference, lower, upper, unit, result]")
        value, lower, upper = (_number(f"{key}[{at}]", row[at]) for at in (0, 2, 3))
        if value is not None:
            yield name.removeprefix(before), value, better_of(lower, upper, row[4] or ""), row[4] or ""


def _number(key: str, raw: object) -> float | None:
    value = as_float(raw)
    if value is None and raw is not None:
        raise LineError(f"{key}: {short(raw)} is not a number")
    return value


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
    elif case.own:
        yield from _own_lines(case.own)
    else:
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
    for name, value, better, unit in case.numbers:
        full = f"{case.name}/{name}"
        if not LEAST <= value <= LARGEST:
            leave_out("not above 0 and finite", f"{full} is {value:g}")
        elif better is None:
            leave_out(NO_DIRECTION, f"{full} in {short(unit)}")
        else:
            metric = name if case.name.startswith(OWN_TEST) else full
            raw = {"metric": metric, "value": value, "better": better, "unit": unit}
            yield line_of(raw | {"run": case.run, "nodes": list(case.nodes), "time": case.time})


def _gate(case: Case) -> Sample | Gate:
    """Say whether a case ran as it should, whatever its numbers."""
    verdict = cause = advice = ""
    if case.result == FAILED and not case.slow_only:
        where, why = (f" in {case.phase}" if case.phase else ""), (f": {case.reason}" if case.reason else "")
        verdict, cause = "fail", f"the test failed{where}{why}"
        advice = "read the test's output in its stage directory"
    nodes = list(case.nodes) or [re.sub(r"[^\w.-]", "-", case.system)]
    raw = {"gate": case.name, "verdict": verdict or "pass", "cause": cause, "advice": advice}
    return line_of(raw | {"run": case.run, "nodes": nodes, "time": case.time})


def better_of(lower: float | None, upper: float | None, unit: str) -> Better | None:
    """Tell whether more of a number is better; none where neither thresholds nor unit tell, or they disagree."""
    below, above = (bound is not None and math.isfinite(bound) for bound in (lower, upper))
    by_bounds: Better | None = None if below == above else "higher" if below else "lower"
    unit = unit.strip().lower()
    by_unit: Better | None = None
    if _LOWER.fullmatch(unit):
        by_unit = "lower"
    elif _HIGHER.fullmatch(unit) and not _UNWANTED.match(unit):
        by_unit = "higher"
    return None if by_bounds and by_unit and by_bounds != by_unit else by_bounds or by_unit
