"""Read a report of `reframe --report-file`: data versions 1 and 2 (ReFrame 3), 3 (4.0 to 4.6) and 4 (from 4.7 on).

The keys are those of reframe/schemas/runreport.json of 3.12, 4.6 and 4.10, and of reports that these and others wrote.
A report may be large: only one case of it is in memory at a time, unless its `session_info` comes last.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime, timezone

from lumisite.validate.lines import shown
from lumisite.validate.reframe.cases import SOUND, Case, CaseError, Number, moment, plain_name
from lumisite.validate.reframe.json_stream import JsonError, JsonStream
from lumisite.validate.reframe.node_names import expand_nodes

#: The data versions that are known, by the part before the point.
KNOWN = ("1", "2", "3", "4")
#: Keys of a report, with which it may begin.
KEYS = ("session_info", "runs", "restored_cases")
#: Keys with which a case may begin that stands in a list of cases.
CASE_KEYS = ("build_jobid", "build_stderr")
#: What ReFrame writes for a job of which it does not know the nodes (seen with its squeue back-end, on short jobs).
NO_NODES = ("None", "")

_NEEDED = (
    *("check_vars", "display_name", "environ", "environment", "fail_phase", "fail_reason", "job_completion_time_unix"),
    *("job_nodelist", "jobid", "lumisite", "name", "nodelist", "partition", "perfvalues", "perfvars", "result"),
    *("system", "uuid"),
)


def read_report(blocks: Iterable[bytes], fault: Callable[[str], None]) -> Iterator[Case]:
    """Give the cases of all runs; `fault` takes what is wrong with one, each as `PLACE.KEY: what`.

    `reframe --describe-stored-sessions` prints a list of reports, `--describe-stored-testcases` a list of cases.
    """
    stream = JsonStream(blocks)
    try:
        if stream.is_next("["):
            for number in stream.elements():
                yield from _element(stream, fault, f"[{number}]")
        else:
            yield from _element(stream, fault, "")
        stream.end()
    except (JsonError, CaseError) as error:
        fault(str(error))


def _element(stream: JsonStream, fault: Callable[[str], None], place: str) -> Iterator[Case]:
    """Read a report; or, in a list, a case of its own, with the keys that are needed of it."""
    session: Mapping[str, object] | None = None
    waiting: list[tuple[str, Mapping[str, object]]] = []
    own: dict[str, object] = {}
    seen = False
    dot = f"{place}." if place else ""
    for key in stream.members():
        if key == "session_info":
            session = _session(stream.value())
            yield from _cases(waiting, session, fault)
            waiting = []
        elif key == "runs":
            seen = True
            for where, raw in _raw_cases(stream, fault):
                if session is None:
                    waiting.append((dot + where, raw))
                else:
                    yield from _cases([(dot + where, raw)], session, fault)
        elif key == "restored_cases" and stream.is_next("["):
            for _ in stream.elements():  # what an earlier session ran, which has a report of its own
                stream.value()
        else:
            value = stream.value()
            if place and key in _NEEDED:
                own[key] = value
    if own and session is None and not seen:
        yield from _cases([(place, own)], {}, fault)
        return
    missing = [key for key, there in (("session_info", session is not None), ("runs", seen)) if not there]
    if missing:
        fault(f"{dot}{', '.join(missing)} missing: not a whole report of ReFrame")


def _session(raw: object) -> Mapping[str, object]:
    if not isinstance(raw, dict):
        raise CaseError(f"session_info: {shown(raw)} is not an object")
    version = raw.get("data_version")
    if not isinstance(version, str) or version.partition(".")[0] not in KNOWN:
        raise CaseError(f"session_info.data_version: {shown(version)} is not known (1.x to 4.x are: ReFrame 3.1 to 4)")
    return raw


def _raw_cases(stream: JsonStream, fault: Callable[[str], None]) -> Iterator[tuple[str, Mapping[str, object]]]:
    """Walk through `runs`; of a case only what is needed is kept."""
    if not stream.is_next("["):
        raise CaseError(f"runs: {shown(stream.value())} is not a list")
    for run in stream.elements():
        if not stream.is_next("{"):
            raise CaseError(f"runs[{run}]: {shown(stream.value())} is not an object")
        for key in stream.members():
            if key != "testcases":
                stream.value()
                continue
            if not stream.is_next("["):
                raise CaseError(f"runs[{run}].testcases: {shown(stream.value())} is not a list")
            for number in stream.elements():
                place, raw = f"runs[{run}].testcases[{number}]", stream.value()
                if isinstance(raw, dict):
                    yield place, {key: raw[key] for key in _NEEDED if key in raw}
                else:
                    fault(f"{place}: {shown(raw)} is not an object")


def _cases(
    waiting: Iterable[tuple[str, Mapping[str, object]]], session: Mapping[str, object], fault: Callable[[str], None]
) -> Iterator[Case]:
    for place, raw in waiting:
        try:
            yield _case(raw, session)
        except CaseError as error:
            fault(f"{place}.{error}")


def _case(raw: Mapping[str, object], session: Mapping[str, object]) -> Case:
    result = _text(raw, "result")
    system, _, partition = _text(raw, "system").partition(":")
    partition = partition or _text(raw, "partition")
    environ = _text(raw, "environ" if "environ" in raw else "environment")
    numbers = tuple(_new_numbers(raw) if "perfvalues" in raw else _old_numbers(raw))
    variables = raw.get("check_vars")
    own = raw.get("lumisite", variables.get("lumisite") if isinstance(variables, dict) else None)
    return Case(
        test=plain_name(_text(raw, "name" if "name" in raw and "display_name" not in raw else "display_name")),
        system=system,
        where=f"{system}:{partition}+{environ}",
        job=_job(raw),
        time=_time(raw, session, needed=result in SOUND and bool(numbers)),
        nodes=_nodes(raw),
        result=result,
        phase=str(raw.get("fail_phase") or ""),
        reason=str(raw.get("fail_reason") or ""),
        numbers=numbers,
        own=own if isinstance(own, str) else "",
    )


def _text(raw: Mapping[str, object], key: str) -> str:
    value = raw.get(key)
    if not isinstance(value, str) or not value.strip():
        what = shown(value) if key in raw else "missing"
        raise CaseError(f"{key}: {what} (a text would be right)")
    return value


def _job(raw: Mapping[str, object]) -> str:
    """Give the job's number; a case that had no job has one of its own in the session."""
    value = raw.get("jobid")
    if isinstance(value, bool) or not isinstance(value, str | int | None):
        raise CaseError(f"jobid: {shown(value)} is not the number of a job")
    return str(raw.get("uuid", "nojob")) if value in (None, "None") else str(value)


def _nodes(raw: Mapping[str, object]) -> tuple[str, ...]:
    key = "job_nodelist" if "job_nodelist" in raw else "nodelist"
    value = raw.get(key)
    names = [value] if isinstance(value, str) else value
    if names is None:
        return ()
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise CaseError(f'{key}: {shown(value)} is not a list of nodes, such as ["nid000001", "nid000002"]')
    try:
        return expand_nodes(",".join(name for name in names if name not in NO_NODES))
    except ValueError as error:
        raise CaseError(f'{key}: {error} (a list would be right, such as ["nid000001", "nid000002"])') from None


def _time(raw: Mapping[str, object], session: Mapping[str, object], *, needed: bool) -> float:
    """Give when the job ended; reports up to 4.6 only know when the session did."""
    key = "job_completion_time_unix"
    value = raw.get(key)
    if isinstance(value, int | float) and not isinstance(value, bool):
        return moment(key, value)
    if value is not None:
        raise CaseError(f"{key}: {shown(value)} is not a number of seconds since 1970")
    end = session.get("time_end_unix")
    if isinstance(end, int | float) and not isinstance(end, bool):
        return moment("session_info.time_end_unix", end)
    text = session.get("time_end")
    for form in ("%Y-%m-%dT%H:%M:%S%z", "%Y%m%dT%H%M%S%z"):
        try:
            return datetime.strptime(str(text), form).astimezone(timezone.utc).timestamp()
        except ValueError:
            continue
    if needed:
        raise CaseError(f"{key}: missing, and session_info.time_end is {shown(text)} (one of them says when it ended)")
    return 0.0


def _new_numbers(raw: Mapping[str, object]) -> Iterator[Number]:
    """Read `perfvalues` of data version 4: value, reference, lower and upper threshold, unit, and maybe a result."""
    table = raw["perfvalues"]
    if table is None:
        return
    if not isinstance(table, dict):
        raise CaseError(f"perfvalues: {shown(table)} is not an object")
    for name, row in table.items():
        key = f"perfvalues[{shown(name)}]"
        if not isinstance(row, list) or len(row) not in (5, 6):
            raise CaseError(f"{key}: {shown(row)} is not [value, reference, lower, upper, unit, result]")
        parts = ("value", "reference", "lower", "upper")
        value, reference, lower, upper = (
            _number(f"{key}: {part}", each) for part, each in zip(parts, row[:4], strict=True)
        )
        plain = name.removeprefix(f"{raw.get('system')}:{raw.get('partition')}:")
        yield Number(
            key, plain if plain != name else name.rpartition(":")[2], value, reference, lower, upper, _unit(key, row[4])
        )


def _old_numbers(raw: Mapping[str, object]) -> Iterator[Number]:
    """Read `perfvars` of data versions 1 to 3."""
    rows = raw.get("perfvars")
    if rows is None:
        return
    if not isinstance(rows, list):
        raise CaseError(f"perfvars: {shown(rows)} is not a list")
    for number, row in enumerate(rows):
        key = f"perfvars[{number}]"
        if not isinstance(row, dict) or not isinstance(row.get("name"), str):
            raise CaseError(f"{key}: {shown(row)} is not an object with name, value, unit and thresholds")
        value, reference, lower, upper = (
            _number(f"{key}.{part}", row.get(part)) for part in ("value", "reference", "thres_lower", "thres_upper")
        )
        yield Number(key, row["name"], value, reference, lower, upper, _unit(key, row.get("unit")))


def _number(key: str, raw: object) -> float | None:
    if raw is None:
        return None
    if isinstance(raw, bool) or not isinstance(raw, int | float):
        raise CaseError(f"{key}: {shown(raw)} is not a number")
    try:
        return float(raw)
    except OverflowError:
        raise CaseError(f"{key}: {shown(raw)} is not a finite number") from None


def _unit(key: str, raw: object) -> str:
    if raw is None:
        return ""
    if not isinstance(raw, str):
        raise CaseError(f"{key}: unit {shown(raw)} is not a text")
    return raw
