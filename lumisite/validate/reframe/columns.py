"""Take the lines of ReFrame's perflogs apart, column by column.

The header is what ReFrame makes of `format` and `format_perfvars` of a `filelog` handler (reframe/core/logging.py of
4.0 to 4.10): `check_` is left out of names, `check_perf_value` becomes `NAME_value`. What a format has around and
between names stands in each line too, as in `bw_var=bw_value` and `ref=perf_ref (l=perf_lower_thres, …)`.
ReFrame 3 writes no header, but lines that name what they say (its own format, `settings.py` of 3.0 to 3.12).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

DELIMITERS = "|,;\t "
#: Columns that a sample needs, each with those that may stand for it, and how a format asks for it.
NEEDED: Sequence[tuple[tuple[str, ...], str]] = (
    (("display_name", "name", "unique_name", "short_name", "info"), "%(check_name)s"),
    (("jobid",), "%(check_jobid)s"),
    (("job_nodelist",), "%(check_job_nodelist)s"),
    (("job_completion_time_unix", "job_completion_time", "asctime"), "%(check_job_completion_time)s"),
    (("result",), "%(check_result)s"),
)
#: Columns of a number, after its name; those of `perflog_multiline` are called after a number `perf`.
PARTS = {"ref": "reference", "lower_thres": "lower", "upper_thres": "upper", "lower": "lower", "upper": "upper"}
_ENDINGS = ("var", "value", "unit", "result", *PARTS)
#: What else is read, where it is there.
_OTHER = ("system", "partition", "environ", "fail_phase", "fail_reason", "lumisite", "version")
_FIXED = frozenset(
    {name for names, _ in NEEDED for name in names} | {*_OTHER} | {f"perf_{ending}" for ending in _ENDINGS}
)
_ANY_FIXED = re.compile("|".join(sorted(_FIXED, key=len, reverse=True)))
#: Columns that may hold several words with commas between them, besides the nodes.
_LISTS = frozenset({"modules", "tags", "maintainers", "executable_opts", "prerun_cmds", "postrun_cmds", "env_vars"})
#: A word before what a cell says, and columns whose texts may begin like that themselves.
_LABEL = re.compile(r"^\w+=", re.ASCII)
_FREE = frozenset({"fail_reason", "lumisite", "perf_var"})
#: What a line of a case has, and no header.
_DATE = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:")
_NODE = re.compile(r"[A-Za-z][\w.-]*", re.ASCII)

#: A line of ReFrame 3, and what its parts are.
_OLD = re.compile(r"(?:\d{4}-\d\d-\d\dT[^|]*|null|None)\|reframe \d[^|]*\|")
_OLD_REFERENCE = re.compile(r"ref=(?P<ref>[^ |]+) \(l=(?P<lower_thres>[^,]+), u=(?P<upper_thres>[^)]+)\)")
_OLD_WORDS = {
    "jobid": "jobid", "job_nodelist": "job_nodelist", "nodelist": "job_nodelist", "ref": "perf_ref",
    "lower": "perf_lower_thres", "l": "perf_lower_thres", "upper": "perf_upper_thres", "u": "perf_upper_thres",
    "unit": "perf_unit", "units": "perf_unit",
}  # fmt: skip
_OLD_VALUE = re.compile(r"(?P<var>.+)=(?P<value>[-+]?[\d.]+(?:[eE][-+]?\d+)?|[-+]?inf|nan|null|None)")
_INFO = re.compile(
    r"(?P<name>.+?)(?: /[0-9a-f]{6,})? (?:@|on )(?P<system>[^\s:@]+):(?P<partition>[^\s+]+)"
    r"(?:\+| using )(?P<environ>\S+)"
)


@dataclass(frozen=True)
class Column:
    """What one cell of each line holds, in order; `pattern` has a group for each where something stands around them."""

    names: tuple[str, ...]
    pattern: re.Pattern[str] | None = None

    def values(self, cell: str) -> tuple[str, ...] | None:
        """Take a cell apart; none where it is not of this form."""
        if self.pattern is None:
            # Up to 4.2 the header lacks the words that a format has before names, and the lines have them.
            return tuple(cell if name in _FREE else _LABEL.sub("", cell) for name in self.names)
        found = self.pattern.fullmatch(cell)
        if found is not None:
            return found.groups()
        return (cell,) if len(self.names) == 1 else None


@dataclass(frozen=True)
class Header:
    """The columns of a perflog, and the names of its numbers, which have columns of their own.

    `has_lists`: other columns than the nodes may hold the delimiter.
    """

    cells: tuple[Column, ...]
    delimiter: str
    numbers: tuple[str, ...]
    has_lists: bool = False

    @property
    def columns(self) -> tuple[str, ...]:
        """All names that are read, in the order of the line."""
        return tuple(name for cell in self.cells for name in cell.names)

    @property
    def one_each(self) -> bool:
        """Whether each number has a line of its own."""
        return {"perf_var", "perf_value"} <= set(self.columns)


#: What is read of a line of ReFrame 3.
OLD = Header(
    tuple(
        Column((name,))
        for name in (
            "job_completion_time",
            "info",
            "jobid",
            *(f"perf_{ending}" for ending in _ENDINGS if ending != "result"),
        )
    ),
    "|",
    (),
)


def header_of(line: str) -> Header | None:
    """Read a header; none if the line is not one."""
    if _DATE.search(line) or len(_ANY_FIXED.findall(line)) < 3:
        return None
    best, most = None, 2
    for delimiter in DELIMITERS:
        texts = line.rstrip("\r\n").split(delimiter)
        numbers = _numbers(texts)
        cells = tuple(_column(text, numbers) for text in texts)
        found = Header(cells, delimiter, numbers, not _LISTS.isdisjoint(texts))
        met = len(_FIXED.intersection(found.columns))
        if met > most:
            best, most = found, met
    return best


def _numbers(texts: Sequence[str]) -> tuple[str, ...]:
    """Give the names of performance variables; words that a format has before a column are none of the name."""
    found: dict[str, None] = {}
    for text in texts:
        pair = re.match(r"(?P<name>.+?)_var\W+?(?P=name)_value(?!\w)", text)
        one = re.match(r"(?P<label>\w+=)?(?P<name>.+?)_value(?!\w)", text)
        if pair is not None:
            found[pair["name"]] = None
        elif one is not None:
            whole = (one["label"] or "") + one["name"]
            found[whole if any(f"{whole}_unit" in other for other in texts) else one["name"]] = None
    found.pop("perf", None)
    return tuple(found)


def _column(text: str, numbers: Iterable[str]) -> Column:
    """Read one cell of a header: a name, or several with signs and `word=` between them, or a name after words."""
    own = {f"{name}_{ending}" for name in numbers if f"{name}_" in text for ending in _ENDINGS}
    if text in own or text in _FIXED:
        return Column((text,))
    marks = "|".join(re.escape(mark) for mark in sorted(own | _FIXED, key=len, reverse=True))
    found = [
        mark
        for mark in re.finditer(rf"(?<!\w)(?:{marks})(?!\w)", text)
        if mark[0] in own or mark[0].startswith("perf_") or text[mark.end() : mark.end() + 1] != "="
    ]
    if not found:
        return Column(())
    ends = [0, *(at for mark in found for at in mark.span()), len(text)]
    words = [text[start:end] for start, end in zip(ends[::2], ends[1::2], strict=True)]
    if re.search(r"\w", re.sub(r"\w+=", "", " ".join(words))):
        if found[-1].end() < len(text):
            return Column(())
        words, found = [text[: found[-1].start()], ""], found[-1:]
    return Column(tuple(mark[0] for mark in found), re.compile("(.*)".join(re.escape(word) for word in words)))


def row_of(header: Header, line: str) -> dict[str, str] | None:
    """Give a line's texts by name; none for a line that is not whole, or whose numbers have no names.

    ReFrame writes a header once, so a variant of a test that has other numbers has other columns, and one that failed
    may have none. Its other columns stand where they should, counted from both ends, and are enough where the numbers
    are not needed.
    """
    texts = line.split(header.delimiter)
    columns = header.cells
    if len(texts) > len(columns):
        texts = _nodes_joined(header, texts)
    if len(texts) != len(columns):
        if header.one_each:
            return None
        numbers = [at for at, column in enumerate(columns) if _of_number(column, header)]
        first, last = (numbers[0], numbers[-1] + 1) if numbers else (len(columns), len(columns))
        tail = len(columns) - last
        if len(texts) < first + tail:
            return None
        columns = (*columns[:first], *columns[last:])
        texts = [*texts[:first], *texts[len(texts) - tail :]]
    row: dict[str, str] = {}
    for column, text in zip(columns, texts, strict=True):
        for name, value in zip(column.names, column.values(text) or (), strict=False):
            row.setdefault(name, value)
    return with_info(row)


def is_whole(header: Header, row: dict[str, str]) -> bool:
    """Tell whether a line had all columns of its header."""
    return set(header.columns) <= set(row)


def _nodes_joined(header: Header, texts: list[str]) -> list[str]:
    """Put the nodes of a job together again, where the format has the same commas between its columns."""
    at = next((number for number, column in enumerate(header.cells) if column.names == ("job_nodelist",)), None)
    if header.delimiter != "," or at is None or header.has_lists:
        return texts
    end = at + 1 + len(texts) - len(header.cells)
    nodes = texts[at:end]
    return [*texts[:at], ",".join(nodes), *texts[end:]] if all(map(_NODE.fullmatch, nodes)) else texts


def _of_number(column: Column, header: Header) -> bool:
    return any(name.startswith(f"{number}_") for name in column.names for number in header.numbers)


def with_info(row: dict[str, str]) -> dict[str, str]:
    """Add what `%(check_info)s` says where no other column does: `TEST /HASH @SYSTEM:PARTITION+ENVIRONMENT`."""
    found = _INFO.fullmatch(row.get("info", ""))
    return {**found.groupdict(), **row} if found is not None else row


def old_row(line: str) -> dict[str, str] | None:
    """Read a line of ReFrame 3, which has one number and no header: `TIME|reframe 3.x|INFO|jobid=1|bw=2|ref=…|GB/s`.

    None for all other lines, and for those where it is not clear which number is meant.
    """
    if not _OLD.match(line):
        return None
    when, _, info, *rest = line.split("|")
    row = {"job_completion_time": when, "info": info}
    measured: list[re.Match[str]] = []
    for text in rest:
        reference, value = _OLD_REFERENCE.fullmatch(text.strip()), _OLD_VALUE.fullmatch(text)
        key, sign, said = text.partition("=")
        if reference is not None:
            row |= {f"perf_{name}": found for name, found in reference.groupdict().items()}
        elif key in _OLD_WORDS and sign:
            row[_OLD_WORDS[key]] = said
        elif value is not None and not text.startswith("num_"):
            measured.append(value)
        elif not sign and measured:
            row.setdefault("perf_unit", text)
    if len(measured) != 1 or _INFO.fullmatch(info) is None:
        return None
    row |= {"perf_var": measured[0]["var"], "perf_value": measured[0]["value"]}
    return with_info(row)
