"""Read a perflog of ReFrame 4: a header that names the columns, and a line for each case.

The header is what ReFrame makes of `format` and `format_perfvars` of a `filelog` handler (reframe/core/logging.py of
4.0 to 4.10): `check_` is left out of names, `check_perf_value` becomes `NAME_value`. Read are the default formats, and
others whose columns are single names with one sign between them, in any order; a word may stand before a name, as in
`jobid=jobid`. With `perflog_multiline` each number has a line of its own.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from lumisite.validate.lines import parse_time, shown
from lumisite.validate.reframe.cases import FAILED, SOUND, Case, CaseError, Number, moment, plain_name
from lumisite.validate.reframe.node_names import expand_nodes
from lumisite.validate.reframe.report import NO_NODES

DELIMITERS = "|,;\t "
#: Columns that a sample needs, each with those that may stand for it, and how a format asks for it.
NEEDED: Sequence[tuple[tuple[str, ...], str]] = (
    (("display_name", "name"), "%(check_name)s"),
    (("jobid",), "%(check_jobid)s"),
    (("job_nodelist",), "%(check_job_nodelist)s"),
    (("job_completion_time_unix", "job_completion_time"), "%(check_job_completion_time)s"),
    (("result",), "%(check_result)s"),
)
#: Names of columns; those of a number of its own, with `perflog_multiline`, are called after a number `perf`.
_NAMES = frozenset(
    {name for names, _ in NEEDED for name in names}
    | {"system", "partition", "environ", "fail_phase", "fail_reason", "lumisite", "version"}
    | {f"perf_{ending}" for ending in ("var", "value", "unit", "lower_thres", "upper_thres")}
)
#: What ReFrame writes for nothing.
_NOTHING = ("", "None", "null")
#: A zone without a colon, as `%z` writes it; Python 3.10 does not read it.
_ZONE = re.compile(r"(?<=\d)([+-]\d\d)(\d\d)$")


@dataclass(frozen=True)
class Header:
    """The columns of a perflog, with the word that stands before each in every line, and the names of its numbers."""

    delimiter: str
    columns: tuple[str, ...]
    words: tuple[str, ...]
    numbers: tuple[str, ...]


def header_of(line: str) -> Header | None:
    """Read a header; none if the line is not one."""
    found = max((_header(line.rstrip("\r\n"), delimiter) for delimiter in DELIMITERS), key=_names_met)
    return found if _names_met(found) > 2 else None


def _header(line: str, delimiter: str) -> Header:
    cells = [re.fullmatch(r"(\w+=)?(.*)", cell) for cell in line.split(delimiter)]
    known = [
        (cell[1] or "", cell[2]) if cell and cell[2] in _NAMES else ("", cell[0] if cell else "") for cell in cells
    ]
    columns = tuple(name for _, name in known)
    numbers = tuple(name.removesuffix("_value") for name in columns if name.endswith("_value"))
    return Header(delimiter, columns, tuple(word for word, _ in known), numbers)


def _names_met(header: Header) -> int:
    return len(_NAMES.intersection(header.columns))


def read_perflog(
    data: bytes, fault: Callable[[str], None], torn: Callable[[str], None], *, nodes_known: bool = False
) -> Iterator[Case]:
    """Give the cases; `fault` takes what is wrong with a line, `torn` what cannot be a whole one, each with its number.

    Several perflogs in one file are read too, each with its header. `nodes_known`: the log need not tell nodes.
    """
    header: Header | None = None
    *lines, last = data.decode("utf-8-sig", "replace").split("\n")
    for count, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        found = header_of(line)
        if header is None or found is not None:
            missing = _missing(found, nodes_known)
            if found is None or missing:
                fault(f"{count}: {missing}")
                return
            header = found
            continue
        row = _row(header, line.rstrip("\r"))
        if row is None:
            torn(f"{count} has {len(line.split(header.delimiter))} columns, the header {len(header.columns)}")
            continue
        try:
            yield _case(header, row)
        except CaseError as error:
            fault(f"{count}: {error}")
    if last.strip():
        torn(f"{len(lines) + 1} has no end")


def _missing(header: Header | None, nodes_known: bool) -> str:
    """Say which columns a format lacks that a sample needs."""
    if header is None:
        return "no header of a perflog of ReFrame 4 with at least three of its own columns (a report has all)"
    for names, words in NEEDED:
        if set(names).isdisjoint(header.columns) and not (nodes_known and "job_nodelist" in names):
            hint = ", or with `lumisite reframe --import FILE --on NODES`" if "job_nodelist" in names else ""
            return (
                f"the perflog has no column {' or '.join(names)} (with {words} in `format` of ReFrame's filelog handler"
                f" it would{hint}; a report of `reframe --report-file` has all)"
            )
    return ""


def _row(header: Header, line: str) -> dict[str, str] | None:
    """Give a line's texts by name; none for a line that is not whole.

    ReFrame writes a header once, so a variant of a test that has other numbers has other columns, and one that failed
    may have none. Its other columns stand where they should, counted from both ends, and are enough where the numbers
    are not needed: it failed, or has lumisite's own lines.
    """
    texts, columns, words = line.split(header.delimiter), header.columns, header.words
    if len(texts) == len(columns):
        return _texts(columns, words, texts)
    # A cell without a name: the numbers of a case that had none.
    ours = [
        at for at, name in enumerate(columns) if not name or name.startswith(tuple(f"{n}_" for n in header.numbers))
    ]
    first, tail = (ours[0], len(columns) - ours[-1] - 1) if ours else (len(columns), 0)
    if "perf" in header.numbers or len(texts) < first + tail:
        return None
    at, end = len(texts) - tail, len(columns) - tail
    row = _texts(columns[:first] + columns[end:], words[:first] + words[end:], texts[:first] + texts[at:])
    return row if row.get("result") in FAILED or row.get("lumisite", "").startswith("[") else None


def _texts(columns: Sequence[str], words: Sequence[str], texts: Sequence[str]) -> dict[str, str]:
    return {name: text.removeprefix(word) for name, word, text in zip(columns, words, texts, strict=True)}


def _case(header: Header, row: Mapping[str, str]) -> Case:
    system, partition, environ = (row.get(key, "") for key in ("system", "partition", "environ"))
    test = next((row[name] for name in NEEDED[0][0] if row.get(name, "").strip()), "")
    if not test:
        raise CaseError("name: empty (the name of a test would be right)")
    if row["jobid"] in _NOTHING:
        raise CaseError("jobid: empty (the number of a job would be right)")
    case = Case(
        test=plain_name(test),
        system=system or "reframe",
        where=system + (f":{partition}" if partition else "") + (f"+{environ}" if environ else ""),
        job=row["jobid"],
        time=0.0,
        nodes=_nodes(row.get("job_nodelist", "")),
        result=row["result"],
        phase=row.get("fail_phase", "").replace("null", ""),
        reason=row.get("fail_reason", ""),
        numbers=tuple(_number(name, row) for name in header.numbers if row.get(f"{name}_value", "") not in _NOTHING),
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
        if text in _NOTHING:
            continue
        try:
            return moment(key, float(text) if key.endswith("_unix") else parse_time(_ZONE.sub(r"\1:\2", text)))
        except ValueError:
            raise CaseError(f"{key}: {shown(text)} is no time (2026-01-22T10:15:00+02:00 would be right)") from None
    if needed:
        raise CaseError("job_completion_time: empty (2026-01-22T10:15:00+02:00 would be right)")
    return 0.0


def _number(name: str, row: Mapping[str, str]) -> Number:
    """Read the columns of one number."""
    # Up to 4.1 thresholds are called lower and upper.
    lower, upper = (_value(row, f"{name}_{side}_thres", f"{name}_{side}") for side in ("lower", "upper"))
    unit = row.get(f"{name}_unit", "")
    plain = row["perf_var"] if name == "perf" and "perf_var" in row else name
    return Number(f"{name}_value", plain, _value(row, f"{name}_value"), lower, upper, "" if unit in _NOTHING else unit)


def _value(row: Mapping[str, str], *keys: str) -> float | None:
    key = next((key for key in keys if row.get(key, "") not in _NOTHING), "")
    try:
        return float(row[key]) if key else None
    except ValueError:
        raise CaseError(f"{key}: {shown(row[key])} is not a number") from None
