"""Take what ReFrame recorded for samples: files are known by what they hold, and become lumisite's lines on the way.

Read are the reports of `reframe --report-file` from ReFrame 4.7 on (data version 4), and perflogs in its default
format. A perflog's line is turned into the case that a report would have. What is left out is told.
"""

from __future__ import annotations

import itertools
import json
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence

from lumisite.site.decode import short
from lumisite.validate.lines import LineError, line_json
from lumisite.validate.reframe.cases import ENDED, FAILED, case_lines, mapping, parse_case
from lumisite.validate.samples import Faults, SamplesError

#: A report or perflog is read as a whole, so it may not be larger than this; a case takes a few kilobytes of it.
LARGEST_BYTES = 1 << 25
#: Cases that are named before they are only counted.
NAMED = 3
#: How a report begins, and the header of a perflog.
_REPORT = re.compile(rb'\s*\{\s*"(?:session_info|runs|restored_cases)"\s*:')
_PERFLOG = b"result|job_completion_time|"
#: What each number has columns for, in the order of a report.
_NUMBER = ("value", "ref", "lower_thres", "upper_thres", "unit")
#: Columns that a case needs.
_NEEDED = ("name", "system", "partition", "environ", "jobid", "job_nodelist", ENDED)


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


def _lines(name: str, cases: Iterable[tuple[str, object]], say: Callable[[str], None], *, after: bool) -> list[bytes]:
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


def _report_cases(data: bytes) -> Iterator[tuple[str, object]]:
    """Give the cases of all runs, each with its place. What an earlier session ran has a report of its own."""
    try:
        raw = json.loads(data)
    except json.JSONDecodeError as error:
        raise LineError(f"line {error.lineno}: {error.msg}") from None
    except (ValueError, RecursionError):
        raise LineError("not UTF-8, a number with too many digits, or nested too deeply") from None
    session = mapping("session_info", mapping("report", raw).get("session_info"))
    version = session.get("data_version")
    if not isinstance(version, str) or version.partition(".")[0] != "4":
        raise LineError(f"session_info.data_version: {short(version)} is not known (4.x is: ReFrame from 4.7 on)")
    for number, run in enumerate(_list("runs", raw.get("runs"))):
        key = f"runs[{number}]"
        for at, case in enumerate(_list(f"{key}.testcases", mapping(key, run).get("testcases"))):
            place = f"{key}.testcases[{at}]"
            raw = mapping(place, case)
            ended = session.get("time_end_unix") if raw.get(ENDED) is None else raw[ENDED]
            yield f": {place}.", {**raw, ENDED: ended}


def _list(key: str, raw: object) -> list[object]:
    if not isinstance(raw, list):
        raise LineError(f"{key}: {short(raw)} is not a list")
    return raw


def _perflog_cases(data: bytes) -> Iterator[tuple[str, object]]:
    """Give the cases of a perflog, each with its line; none for a line that cannot be a whole one."""
    header, *lines = data.decode("utf-8", "replace").split("\n")
    columns = header.split("|")
    missing = [name for name in _NEEDED if name not in columns]
    if missing:
        why = "that is not ReFrame's default format; a report of `reframe --report-file` has all"
        raise LineError(f"line 1: the perflog has no column {', '.join(missing)} ({why})")
    for count, line in enumerate(lines, start=2):
        if line.strip():
            yield f":{count}: ", None if count > len(lines) else _case(columns, line.split("|"))


def _case(columns: Sequence[str], cells: Sequence[str]) -> dict[str, object] | None:
    """Give a line as the case of a report; none where it is not whole.

    ReFrame writes a header once, so a variant of a test that has other numbers has other columns, and one that failed
    may have none. Its other columns stand where they should, counted from both ends, and are enough where the numbers
    are not needed: it failed, or has lumisite's own lines.
    """
    numbers = {
        name.removesuffix("_value"): [f"{name.removesuffix('_value')}_{what}" for what in _NUMBER]
        for name in columns
        if name.endswith("_value")
    }
    cut = len(cells) != len(columns)
    if cut:
        # A column without a name: the numbers of a case that had none. Without either, all columns stand before them.
        own = {"", *itertools.chain(*numbers.values())}
        places = [at for at, name in enumerate(columns) if name in own] or [len(columns), len(columns) - 1]
        first, tail = places[0], len(columns) - places[-1] - 1
        if len(cells) < first + tail:
            return None
        columns, cells = ([*each[:first], *each[len(each) - tail :]] for each in (columns, cells))
        numbers = {}
    row = {name: None if cell in ("", "None", "null") else cell for name, cell in zip(columns, cells, strict=True)}
    if cut and row["result"] != FAILED and not (row.get("lumisite") or "").startswith("["):
        return None
    values = {
        name: [*(_number(row.get(key)) for key in keys[:-1]), row.get(keys[-1])] for name, keys in numbers.items()
    }
    nodes = (row.get("job_nodelist") or "").split(",")
    return {**row, "perfvalues": values, "job_nodelist": nodes, ENDED: _number(row.get(ENDED))}


def _number(text: str | None) -> object:
    """Give a number; text that is none as it is, for who checks the case."""
    try:
        return None if text is None else float(text)
    except ValueError:
        return text
