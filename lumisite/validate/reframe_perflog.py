"""Read ReFrame's perflogs: a header that names the columns, and a line for each case.

The header is what ReFrame makes of `format` and `format_perfvars` of a `filelog` handler (reframe/core/logging.py of
4.6 and 4.10): `check_` is left out of names, `check_perf_value` becomes `NAME_value`. So a format of a site's own is
read as well, if it says what a sample needs. With `perflog_multiline` each number has a line of its own.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone

from lumisite.validate.lines import shown
from lumisite.validate.node_names import expand_nodes
from lumisite.validate.reframe_cases import FAILED, SOUND, Case, CaseError, Number
from lumisite.validate.reframe_report import NO_NODES

DELIMITERS = "|,;\t "
#: Columns that a sample needs, each with those that may stand for it, and how a format asks for it.
NEEDED: Sequence[tuple[tuple[str, ...], str]] = (
    (("name", "display_name", "short_name", "unique_name"), "%(check_name)s"),
    (("jobid",), "%(check_jobid)s"),
    (("job_nodelist",), "%(check_job_nodelist)s"),
    (("job_completion_time_unix", "job_completion_time", "asctime"), "%(check_job_completion_time)s"),
    (("result",), "%(check_result)s"),
)
#: What else is read, where it is there.
_OTHER = ("system", "partition", "environ", "fail_phase", "fail_reason", "lumisite", "version")
_ONE = ("perf_var", "perf_value")
_PARTS = {"ref": "reference", "lower_thres": "lower", "upper_thres": "upper", "lower": "lower", "upper": "upper"}


@dataclass(frozen=True)
class Header:
    """The columns of a perflog: names without what stands before them, which `before` has."""

    columns: tuple[str, ...]
    before: tuple[str, ...]
    delimiter: str

    @property
    def numbers(self) -> tuple[str, ...]:
        """The names of performance variables, each with columns of its own."""
        if set(_ONE) <= set(self.columns):
            return ()
        return tuple(column[: -len("_value")] for column in self.columns if column.endswith("_value"))


def header_of(line: str) -> Header | None:
    """Read a header; none if the line is not one."""
    known = {name for names, _ in NEEDED for name in names} | {*_OTHER, *_ONE}
    best: Header | None = None
    for delimiter in DELIMITERS:
        read = [_column(text, known) for text in line.rstrip("\r\n").split(delimiter)]
        found = Header(tuple(name for name, _ in read), tuple(before for _, before in read), delimiter)
        met = known.intersection(found.columns)
        if len(met) >= 3 and (best is None or len(met) > len(known.intersection(best.columns))):
            best = found
    return best


def _column(text: str, known: set[str]) -> tuple[str, str]:
    """Take a column's name apart where a format has words before it, as in `jobid=%(check_jobid)s`."""
    if text in known:
        return text, ""
    for name in sorted(known, key=len, reverse=True):
        before = text[: -len(name)]
        if text.endswith(name) and before and not (before[-1].isalnum() or before[-1] == "_"):
            return name, before
    return text, ""


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
    count = 0
    for line in _lines(blocks):
        count += 1
        if not line.strip():
            continue
        other = header_of(line)
        if other is not None or header is None:
            header = other
            missing = _missing(other, nodes_known) if other is not None else "no header of a perflog"
            if missing:
                fault(f"{count}: {missing}")
                return
            continue
        cells = line.split(header.delimiter)
        row = _row(header, cells)
        if row is None:
            torn(f"{count} has {len(cells)} columns, the header {len(header.columns)}")
            continue
        try:
            yield _case(header, row)
        except CaseError as error:
            fault(f"{count}: {error}")


def _lines(blocks: Iterable[bytes]) -> Iterator[str]:
    rest = b""
    for block in blocks:
        *whole, rest = (rest + block).split(b"\n")
        for line in whole:
            yield line.decode("utf-8", "replace").rstrip("\r").removeprefix("\ufeff")
    if rest:
        yield rest.decode("utf-8", "replace")


def _missing(header: Header, nodes_known: bool) -> str:
    """Say which columns a format lacks that a sample needs."""
    for names, words in NEEDED:
        if set(names).intersection(header.columns) or (nodes_known and "job_nodelist" in names):
            continue
        hint = ", or with `lumisite reframe --import FILE --on NODES`" if "job_nodelist" in names else ""
        return (
            f"the perflog has no column {' or '.join(names)} (with {words} in `format` of ReFrame's filelog handler it"
            f" would{hint}; a report of `reframe --report-file` has all)"
        )
    return ""


def _row(header: Header, cells: Sequence[str]) -> dict[str, str] | None:
    """Give a line's cells by column; none for a line that is not whole, or whose numbers have no names.

    ReFrame writes a header once, so a variant of a test that has other numbers has other columns, and one that failed
    may have none. Its other columns stand where they should, counted from both ends, and are enough where the numbers
    are not needed.
    """
    columns, before = header.columns, header.before
    if len(cells) != len(columns):
        numbers = [at for at, column in enumerate(columns) if not column or _of_number(column, header)]
        first, last = (numbers[0], numbers[-1] + 1) if numbers else (len(columns), len(columns))
        tail = len(columns) - last
        if len(cells) < first + tail:
            return None
        columns = (*columns[:first], *columns[last:])
        before = (*before[:first], *before[last:])
        cells = [*cells[:first], *cells[len(cells) - tail :]]
    row: dict[str, str] = {}
    for column, words, cell in zip(columns, before, cells, strict=True):
        row.setdefault(column, cell.removeprefix(words))
    whole = len(row) >= len(set(header.columns))
    return row if whole or row.get("lumisite", "").startswith("[") or row.get("result") in FAILED else None


def _of_number(column: str, header: Header) -> bool:
    return any(column.startswith(f"{name}_") for name in header.numbers)


def _case(header: Header, row: Mapping[str, str]) -> Case:
    system, partition, environ = (row.get(key, "") for key in ("system", "partition", "environ"))
    numbers = tuple(_numbers(header, row))
    case = Case(
        test=next(row[name] for name in NEEDED[0][0] if row.get(name)),
        system=system or "reframe",
        where=system + (f":{partition}" if partition else "") + (f"+{environ}" if environ else ""),
        job=row["jobid"],
        time=0.0,
        nodes=_nodes(row.get("job_nodelist", "")),
        result=row["result"],
        phase=row.get("fail_phase", "").replace("null", ""),
        reason=row.get("fail_reason", ""),
        numbers=numbers,
        own=row.get("lumisite", ""),
    )
    return replace(case, time=_time(row, needed=case.result in SOUND))


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
                return float(text)
            when = datetime.fromisoformat(text)
            return (when if when.tzinfo else when.replace(tzinfo=timezone.utc)).timestamp()
        except ValueError:
            raise CaseError(f"{key}: {shown(text)} is no time (2026-01-22T10:15:00+02:00 would be right)") from None
    if needed:
        raise CaseError("job_completion_time: empty (2026-01-22T10:15:00+02:00 would be right)")
    return 0.0


def _numbers(header: Header, row: Mapping[str, str]) -> Iterator[Number]:
    if set(_ONE) <= set(header.columns):
        if row["perf_var"] not in ("", "None", "null"):
            yield _number(row["perf_var"], "perf", row)
        return
    for name in header.numbers:
        if f"{name}_value" in row:
            yield _number(name, name, row)


def _number(name: str, prefix: str, row: Mapping[str, str]) -> Number:
    """Read the columns of one number."""
    bounds: dict[str, float | None] = {"reference": None, "lower": None, "upper": None}
    for ending, part in _PARTS.items():
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
        value = float(text)
    except ValueError:
        raise CaseError(f"{key}: {shown(text)} is not a number") from None
    if math.isnan(value):
        raise CaseError(f"{key}: {shown(text)} is not a number above 0")
    return value
