"""Read ReFrame's perflogs: lines of cases, below a header that names the columns, or as ReFrame 3 wrote them.

A format of a site's own is read as well, if it says what a sample needs. With `perflog_multiline`, and in ReFrame 3,
each number has a line of its own. A format without `%(check_result)s` tells it all the same if it has the references:
ReFrame logs numbers only of tests that did what they should, and the rest is arithmetic.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace

from lumisite.validate.lines import parse_time, shown
from lumisite.validate.reframe.cases import FAILED, SOUND, Case, CaseError, Number, moment, plain_name
from lumisite.validate.reframe.columns import NEEDED, OLD, PARTS, Header, header_of, is_whole, old_row, row_of
from lumisite.validate.reframe.node_names import expand_nodes
from lumisite.validate.reframe.report import NO_NODES

#: A zone without a colon, as `%z` writes it; Python 3.10 does not read it.
_ZONE = re.compile(r"(?<=\d)([+-]\d\d)(\d\d)$")


def read_perflog(
    blocks: Iterable[bytes],
    fault: Callable[[str], None],
    torn: Callable[[str], None],
    *,
    nodes_known: bool = False,
) -> Iterator[Case]:
    """Give the cases; `fault` takes what is wrong with a line, `torn` what cannot be a whole one, each with its number.

    Several perflogs in one file are read too, each with its header. `nodes_known`: the log need not tell nodes.
    """
    header: Header | None = None
    units: set[str] = set()
    for count, (line, ended) in enumerate(_lines(blocks), start=1):
        if not line.strip():
            continue
        old = old_row(line) if header is None or header is OLD else None
        found = OLD if old is not None else header_of(line)
        if header is None or found is not None:
            missing = _missing(found, nodes_known or "job_nodelist" in (old or {}))
            if found is None or missing:
                fault(f"{count}: {missing}")
                return
            header = found
            if old is None:
                continue
        row, columns = (old, OLD) if old is not None else _row(header, line)
        if row is None:
            torn(f"{count} {_why_torn(header, line)}")
            continue
        try:
            case = _case(columns, row)
        except CaseError as error:
            (fault if ended else torn)(f"{count}: {error}")
            continue
        if ended or _is_certain(columns, case, units):
            yield case
        else:
            torn(f"{count} has no end, and its last word may lack letters")
        units |= {number.unit for number in case.numbers}


def _row(header: Header, line: str) -> tuple[dict[str, str] | None, Header]:
    """Give a line's texts by name, if they are enough, and the header that they fit.

    Up to 4.2 ReFrame writes headers that do not fit lines in the format of 3; those lines speak for themselves.
    """
    row = None if header is OLD else row_of(header, line)
    if row is None:
        return old_row(line), OLD
    whole = is_whole(header, row) or row.get("lumisite", "").startswith("[") or row.get("result") in FAILED
    return row if whole else None, header


def _is_certain(header: Header, case: Case, units: set[str]) -> bool:
    """Tell whether a line that has no end is whole all the same: no number, and no unit that was not met before."""
    last = header.cells[-1].names[-1:] if header is not OLD else ("perf_unit",)
    if not any(name.endswith(("_value", "_unit")) for name in last):
        return True
    return last[0].endswith("_unit") and {number.unit for number in case.numbers} <= units


def _why_torn(header: Header, line: str) -> str:
    if header is OLD:
        return "is no line of ReFrame 3"
    return f"has {len(line.split(header.delimiter))} columns, the header {len(header.cells)}"


def _lines(blocks: Iterable[bytes]) -> Iterator[tuple[str, bool]]:
    """Give lines, each with whether it has an end."""
    rest = b""
    for block in blocks:
        *whole, rest = (rest + block).split(b"\n")
        for line in whole:
            yield line.decode("utf-8", "replace").rstrip("\r").removeprefix("\ufeff"), True
    if rest:
        yield rest.decode("utf-8", "replace"), False


def _missing(header: Header | None, nodes_known: bool) -> str:
    """Say which columns a format lacks that a sample needs."""
    if header is None:
        return "no header of a perflog"
    if header is OLD and not nodes_known:
        return (
            "ReFrame 3 does not write a job's nodes into perflogs (`lumisite reframe --import FILE --on NODES` gives"
            " them; a report of `reframe --report-file` has them)"
        )
    for names, words in NEEDED:
        if set(names).intersection(header.columns) or (nodes_known and "job_nodelist" in names):
            continue
        if "result" in names and _has_references(header):
            continue
        hint = ", or with `lumisite reframe --import FILE --on NODES`" if "job_nodelist" in names else ""
        return (
            f"the perflog has no column {' or '.join(names)} (with {words} in `format` of ReFrame's filelog handler it"
            f" would{hint}; a report of `reframe --report-file` has all)"
        )
    return ""


def _has_references(header: Header) -> bool:
    """Tell whether each number has its reference and thresholds."""
    numbers = ("perf",) if header.one_each else header.numbers
    return bool(numbers) and all(
        {f"{name}_ref", f"{name}_{side}_thres"} <= set(header.columns)
        or {f"{name}_ref", f"{name}_{side}"} <= set(header.columns)
        for name in numbers
        for side in ("lower", "upper")
    )


def _case(header: Header, row: Mapping[str, str]) -> Case:
    system, partition, environ = (row.get(key, "") for key in ("system", "partition", "environ"))
    numbers = tuple(_numbers(header, row))
    result = row["result"] if "result" in row else _result(numbers)
    if not row.get("jobid"):
        raise CaseError("jobid: missing (jobid=%(check_jobid)s in `format` of ReFrame's filelog handler says it)")
    case = Case(
        test=plain_name(_name(row)),
        system=system or "reframe",
        where=system + (f":{partition}" if partition else "") + (f"+{environ}" if environ else ""),
        job=row["jobid"],
        time=0.0,
        nodes=_nodes(row.get("job_nodelist", "")),
        result=result,
        phase=row.get("fail_phase", "").replace("null", ""),
        reason=row.get("fail_reason", ""),
        numbers=numbers,
        own=row.get("lumisite", ""),
    )
    return replace(case, time=_time(row, needed=case.result in SOUND))


def _name(row: Mapping[str, str]) -> str:
    for name in NEEDED[0][0]:
        if row.get(name, "").strip():
            return row[name]
    raise CaseError("name: empty (the name of a test would be right)")


def _result(numbers: tuple[Number, ...]) -> str:
    """Tell whether a test passed by its numbers, as ReFrame does: one that failed before has none."""
    measured = [number for number in numbers if number.value is not None]
    return "pass" if measured and all(map(_as_expected, measured)) else "fail"


def _as_expected(number: Number) -> bool:
    """Compare as `assert_reference` of reframe/utility/sanity.py does: thresholds are parts of the reference."""
    value, reference = number.value, number.reference
    if value is None or not reference:
        return True
    part = (value - reference) / abs(reference)
    low = -math.inf if number.lower is None else number.lower
    return low - 1e-12 <= part <= (math.inf if number.upper is None else number.upper) + 1e-12


def _nodes(text: str) -> tuple[str, ...]:
    try:
        return () if text in (*NO_NODES, "null") else expand_nodes(text)
    except ValueError as error:
        raise CaseError(f"job_nodelist: {error} (nid000001,nid000002 would be right)") from None


def _time(row: Mapping[str, str], *, needed: bool) -> float:
    """Read when the job ended. A text without a zone is UTC, as in all files of lumisite."""
    for key in NEEDED[3][0]:
        text = row.get(key, "")
        if text in ("", "None", "null"):
            continue
        try:
            if key == "job_completion_time_unix":
                return moment(key, float(text))
            return moment(key, parse_time(_ZONE.sub(r"\1:\2", text)))
        except ValueError:
            raise CaseError(f"{key}: {shown(text)} is no time (2026-01-22T10:15:00+02:00 would be right)") from None
    if needed:
        raise CaseError("job_completion_time: empty (2026-01-22T10:15:00+02:00 would be right)")
    return 0.0


def _numbers(header: Header, row: Mapping[str, str]) -> Iterator[Number]:
    if header.one_each:
        if row["perf_var"] not in ("", "None", "null"):
            yield _number(row["perf_var"], "perf", row)
        return
    for name in header.numbers:
        if f"{name}_value" in row:
            yield _number(name, name, row)


def _number(name: str, prefix: str, row: Mapping[str, str]) -> Number:
    """Read the columns of one number."""
    bounds: dict[str, float | None] = {"reference": None, "lower": None, "upper": None}
    for ending, part in PARTS.items():
        if f"{prefix}_{ending}" in row:
            bounds[part] = _value(f"{prefix}_{ending}", row[f"{prefix}_{ending}"])
    unit = row.get(f"{prefix}_unit", "")
    value = _value(f"{prefix}_value", row[f"{prefix}_value"])
    return Number(
        f"{prefix}_value",
        name,
        value,
        bounds["reference"],
        bounds["lower"],
        bounds["upper"],
        "" if unit in ("None", "null") else unit,
    )


def _value(key: str, text: str) -> float | None:
    if text in ("", "None", "null"):
        return None
    try:
        return float(text)
    except ValueError:
        raise CaseError(f"{key}: {shown(text)} is not a number") from None
