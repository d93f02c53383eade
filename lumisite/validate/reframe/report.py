"""Read a report of `reframe --report-file` of ReFrame 4: data versions 3 (4.0 to 4.6) and 4 (from 4.7 on).

The keys are those of reframe/schemas/runreport.json of 4.6 and 4.10, and of reports that these and others wrote.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime, timezone

from lumisite.validate.lines import shown
from lumisite.validate.reframe.cases import SOUND, Case, CaseError, Number, moment, plain_name
from lumisite.validate.reframe.node_names import expand_nodes

#: The data versions that are read, by the part before the point.
KNOWN = ("3", "4")
#: Keys of a report, with which it may begin.
KEYS = ("session_info", "runs", "restored_cases")
#: What ReFrame writes for a job of which it does not know the nodes (seen with its squeue back-end, on short jobs).
NO_NODES = ("None", "")


def read_report(data: bytes, fault: Callable[[str], None]) -> Iterator[Case]:
    """Give the cases of all runs; `fault` takes what is wrong with one, each as `PLACE.KEY: what`.

    `reframe --describe-stored-sessions` prints a list of reports. What an earlier session ran (`restored_cases`) has a
    report of its own.
    """
    try:
        raw = json.loads(data)
    except json.JSONDecodeError as error:
        fault(f"line {error.lineno}: {error.msg}")
        return
    except (ValueError, RecursionError):
        fault("not UTF-8, a number with too many digits, or nested too deeply")
        return
    reports = [(f"[{number}].", each) for number, each in enumerate(raw)] if isinstance(raw, list) else [("", raw)]
    for place, each in reports:
        try:
            yield from _cases(each, place, fault)
        except CaseError as error:
            fault(f"{place}{error}")


def _cases(raw: object, place: str, fault: Callable[[str], None]) -> Iterator[Case]:
    report = raw if isinstance(raw, dict) else {}
    missing = [key for key in ("session_info", "runs") if key not in report]
    if missing:
        raise CaseError(f"{', '.join(missing)} missing: not a whole report of ReFrame")
    session = _object("session_info", report["session_info"])
    version = session.get("data_version")
    if not isinstance(version, str) or version.partition(".")[0] not in KNOWN:
        raise CaseError(f"session_info.data_version: {shown(version)} is not known (3.x and 4.x are: ReFrame 4)")
    for number, run in enumerate(_list("runs", report["runs"])):
        key = f"runs[{number}]"
        for at, case in enumerate(_list(f"{key}.testcases", _object(key, run).get("testcases", []))):
            where = f"{place}{key}.testcases[{at}]"
            if not isinstance(case, dict):
                fault(f"{where}: {shown(case)} is not an object")
                continue
            try:
                yield _case(case, session)
            except CaseError as error:
                fault(f"{where}.{error}")


def _object(key: str, raw: object) -> Mapping[str, object]:
    if not isinstance(raw, dict):
        raise CaseError(f"{key}: {shown(raw)} is not an object")
    return raw


def _list(key: str, raw: object) -> list[object]:
    if not isinstance(raw, list):
        raise CaseError(f"{key}: {shown(raw)} is not a list")
    return raw


def _case(raw: Mapping[str, object], session: Mapping[str, object]) -> Case:
    result = _text(raw, "result")
    # Up to 4.6 the system has its partition, and other keys have other names.
    system, _, partition = _text(raw, "system").partition(":")
    environ = _text(raw, "environ" if "environ" in raw else "environment")
    numbers = tuple(_new_numbers(raw) if "perfvalues" in raw else _old_numbers(raw))
    variables = raw.get("check_vars")
    own = raw.get("lumisite", variables.get("lumisite") if isinstance(variables, dict) else None)
    return Case(
        test=plain_name(_text(raw, "name" if "name" in raw and "display_name" not in raw else "display_name")),
        system=system,
        where=f"{system}:{partition or _text(raw, 'partition')}+{environ}",
        job=_job(raw),
        time=_time(raw, session, needed=result in SOUND and bool(numbers)),
        nodes=_nodes("job_nodelist" if "job_nodelist" in raw else "nodelist", raw),
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
    return " ".join(value.splitlines())


def _job(raw: Mapping[str, object]) -> str:
    """Give the job's number; a case that had no job has one of its own in the session."""
    value = raw.get("jobid")
    if isinstance(value, bool) or not isinstance(value, str | int | None):
        raise CaseError(f"jobid: {shown(value)} is not the number of a job")
    return str(raw.get("uuid", "nojob")) if value in (None, "None") else str(value)


def _nodes(key: str, raw: Mapping[str, object]) -> tuple[str, ...]:
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
    """Give when the job ended; reports up to 4.6 only know when the session did, and as a text."""
    key = "job_completion_time_unix"
    for where, value in ((key, raw.get(key)), ("session_info.time_end_unix", session.get("time_end_unix"))):
        if value is not None:
            return moment(where, value)
    text = session.get("time_end")
    try:
        return datetime.strptime(str(text), "%Y-%m-%dT%H:%M:%S%z").astimezone(timezone.utc).timestamp()
    except ValueError:
        if not needed:
            return 0.0
    raise CaseError(f"{key}: missing, and session_info.time_end is {shown(text)} (one of them says when it ended)")


def _new_numbers(raw: Mapping[str, object]) -> Iterator[Number]:
    """Read `perfvalues` of data version 4: value, reference, lower and upper threshold, unit, and maybe a result."""
    before = f"{raw.get('system')}:{raw.get('partition')}:"
    for name, row in _object("perfvalues", raw["perfvalues"] or {}).items():
        key = f"perfvalues[{shown(name)}]"
        if not isinstance(row, list) or len(row) not in (5, 6):
            raise CaseError(f"{key}: {shown(row)} is not [value, reference, lower, upper, unit, result]")
        value, _, lower, upper = (
            _number(f"{key}: {part}", each)
            for part, each in zip(("value", "reference", "lower", "upper"), row[:4], strict=True)
        )
        plain = name.removeprefix(before) if name.startswith(before) else name.rpartition(":")[2]
        yield Number(key, plain, value, lower, upper, _unit(key, row[4]))


def _old_numbers(raw: Mapping[str, object]) -> Iterator[Number]:
    """Read `perfvars` of data version 3."""
    for number, row in enumerate(_list("perfvars", raw.get("perfvars") or [])):
        key = f"perfvars[{number}]"
        if not isinstance(row, dict) or not isinstance(row.get("name"), str):
            raise CaseError(f"{key}: {shown(row)} is not an object with name, value, unit and thresholds")
        value, lower, upper = (
            _number(f"{key}.{part}", row.get(part)) for part in ("value", "thres_lower", "thres_upper")
        )
        yield Number(key, row["name"], value, lower, upper, _unit(key, row.get("unit")))


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
    if raw is not None and not isinstance(raw, str):
        raise CaseError(f"{key}: unit {shown(raw)} is not a text")
    return raw or ""
