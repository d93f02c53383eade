"""Take what ReFrame recorded for samples: files are known by what they hold, and become lumisite's lines on the way.

A baseline takes the cases that passed. After a change a case that only missed its reference keeps its numbers, which
are then judged as all others, and one that failed otherwise is a failed gate (`after`). What is left out is told.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Literal

from lumisite.validate.lines import Gate, Sample, gate_json, sample_json, shown
from lumisite.validate.probes.ranks import counted
from lumisite.validate.reframe.cases import (
    FAILED,
    NOTHING_SAID,
    SOUND,
    Answers,
    Case,
    CaseError,
    DirectionError,
    case_lines,
    is_speed,
)
from lumisite.validate.reframe.perflog import header_of, read_perflog
from lumisite.validate.reframe.report import KEYS, read_report
from lumisite.validate.samples import Faults, SamplesError

if TYPE_CHECKING:
    from typing import TypeAlias

Kind: TypeAlias = Literal["report", "perflog"]

#: How much of a file is looked at to know what it is: a perflog's header must fit.
HEAD_BYTES = 1 << 16
#: A report or perflog is read as a whole, so it may not be larger than this; a case takes a few kilobytes of it.
LARGEST_BYTES = 1 << 29
#: Cases that are named before they are only counted.
NAMED = 3
#: A job's number is not used again within this time, in seconds.
SAME_JOB = 86_400
_REPORT = re.compile(rb'(?:\xef\xbb\xbf)?\s*(?:\[\s*)?\{\s*"(?:%b)"\s*:' % "|".join(KEYS).encode())
_PERFLOG_OF_3 = re.compile(r"[^|]*\|reframe \d[^|]*\|")


def kind_of(head: bytes) -> Kind | None:
    """Tell what a file is by its beginning; none for all that ReFrame 4 did not write."""
    if _REPORT.match(head):
        return "report"
    if head.lstrip()[:1] == b"{":
        return None
    first = head.removeprefix(b"\xef\xbb\xbf").split(b"\n", 1)[0].decode("utf-8", "replace")
    return "perflog" if header_of(first) is not None else None


def with_reframe(
    sources: Iterable[tuple[str, Iterable[bytes]]],
    say: Callable[[str], None],
    *,
    after: bool = False,
    answers: Answers = NOTHING_SAID,
) -> Iterator[tuple[str, Iterable[bytes]]]:
    """Give files as `read_lines` takes them; those of ReFrame are read on the way, and `say` takes what is left out.

    A line that another of these files gave already, as a report and a perflog of one session do, is given once. Raises
    `SamplesError` with all faults of a file.
    """
    given = Given()
    for name, blocks in sources:
        head, rest = _head(blocks)
        kind = kind_of(head)
        whole = itertools.chain([head], rest) if head else rest
        if kind is not None:
            yield name, _Import(name, say, after, answers, given).lines(kind, _joined(name, whole))
        elif _may_be_lines(head):
            yield name, whole
        else:
            raise SamplesError(f"{name}: {_what_else(head)}")


def _joined(name: str, blocks: Iterable[bytes]) -> bytes:
    data = bytearray()
    for block in blocks:
        data += block
        if len(data) > LARGEST_BYTES:
            what = f"larger than {LARGEST_BYTES >> 20} MiB (the reports or perflogs of fewer runs would be right)"
            raise SamplesError(f"{name}: {what}")
    return bytes(data)


def _may_be_lines(head: bytes) -> bool:
    """Tell whether a file may hold samples: an empty one may, and one of which a line is damaged."""
    lines = (line.strip() for line in head.removeprefix(b"\xef\xbb\xbf").splitlines())
    return not head.strip() or any(len(line) > 1 and line.startswith(b"{") for line in lines)


def _what_else(head: bytes) -> str:
    first = head.lstrip().split(b"\n", 1)[0].decode("utf-8", "replace").strip()
    if _PERFLOG_OF_3.match(first):
        return "a perflog without a header, as ReFrame 3 wrote them (one of ReFrame 4 or a report of it would be right)"
    return (
        f"neither samples nor a report or perflog of ReFrame: it begins with {shown(first)} (JSON lines would be right,"
        " a report of `reframe --report-file`, or a perflog with its header)"
    )


def _head(blocks: Iterable[bytes]) -> tuple[bytes, Iterator[bytes]]:
    """Take enough to know what a file is; the first line at least, unless it is endless."""
    rest = iter(blocks)
    head = b""
    while len(head) < HEAD_BYTES and (b"\n" not in head or len(head) < 256):
        block = next(rest, None)
        if block is None:
            break
        head += block
    return head, rest


class Given:
    """What files before gave: lines, and of which job, by system, number and what was given, with file and time."""

    def __init__(self) -> None:
        self.lines: set[str] = set()
        self.jobs: dict[tuple[str | float, ...], tuple[str, float]] = {}


class _Import:
    """One file on its way."""

    def __init__(self, name: str, say: Callable[[str], None], after: bool, answers: Answers, given: Given) -> None:
        self.name = name
        self.say = say
        self.after = after
        self.answers = answers
        self.given = given
        self.faults: dict[str, set[str]] = {}
        """What is wrong, each once, with the tests of which it is."""
        self.unknown: dict[str, str] = {}
        """The first fault of each kind of number of which it is not known whether more is better."""
        self.out: dict[str, list[str]] = {}
        """What is left out, by the reason."""

    def lines(self, kind: Kind, data: bytes) -> list[bytes]:
        """Give the lines of all cases, and say what was left out."""
        if kind == "report":
            cases = read_report(data, lambda text: self._fault(f": {text}"))
        else:
            cases = read_perflog(
                data,
                lambda text: self._fault(f":{text}"),
                lambda text: self._leave_out("torn", f"line {text}"),
                nodes_known=bool(self.answers.nodes),
            )
        found = [line for case in cases for line in self._of_case(case)]
        faults = Faults()
        for text, names in self.faults.items():
            others = f"; so with {counted(len(names) - 1, 'other test')}" if len(names) > 1 else ""
            faults.add(f"{self.name}{text}{others}")
        faults.tell()
        for why, left in self.out.items():
            more = f"; and {len(left) - NAMED} more" if len(left) > NAMED else ""
            self.say(f"{self.name}: {why}, left out: {'; '.join(left[:NAMED])}{more}")
        return found

    def _fault(self, text: str) -> None:
        self.faults.setdefault(text, set())

    def _leave_out(self, why: str, what: str) -> None:
        self.out.setdefault(why, []).append(what)

    def _of_case(self, case: Case) -> Iterator[bytes]:
        case = case if case.nodes else replace(case, nodes=self.answers.nodes)
        reason = self._not_usable(case)
        if reason:
            self._leave_out(reason, _named(case))
            return
        try:
            lines = case_lines(self._measured(case), self.answers, after=self.after)
        except DirectionError as error:
            text = self.unknown.setdefault(error.about, f": {case.name}: {error}")
            self.faults.setdefault(text, set()).add(case.name)
            return
        except CaseError as error:
            self._fault(f": {case.name}: {error}")
            return
        for line in lines:
            text = gate_json(line) if isinstance(line, Gate) else sample_json(line)
            if text not in self.given.lines and not self._stood_elsewhere(case, line):
                self.given.lines.add(text)
                yield text.encode() + b"\n"

    def _stood_elsewhere(self, case: Case, line: Sample | Gate) -> bool:
        """Tell whether another file gave this of the same job.

        Their times may differ: reports up to 4.6 know only when the session ended, and perflogs may lack the zone.
        """
        if case.own:
            return False
        what = (line.gate, line.verdict) if isinstance(line, Gate) else (line.metric, line.value)
        name, when = self.given.jobs.setdefault((case.system, case.job, *what), (self.name, case.time))
        return name != self.name and abs(when - case.time) < SAME_JOB

    def _not_usable(self, case: Case) -> str:
        if case.result not in (*SOUND, *FAILED):
            return f"{case.result or 'no result'}"
        if case.result in FAILED and not self.after:
            return "failed"
        if not case.nodes and not case.own and (case.result in SOUND or case.slow_only) and case.numbers:
            return "without nodes"
        return ""

    def _measured(self, case: Case) -> Case:
        """Leave out numbers that cannot be compared, and tell them."""
        if case.own:
            return case
        wrong = [number for number in case.numbers if number.value is not None and not is_speed(number.value)]
        for number in wrong:
            self._leave_out("not above 0 and finite", f"{case.name}/{number.name} is {number.value:g}")
        return replace(case, numbers=tuple(number for number in case.numbers if number not in wrong))


def _named(case: Case) -> str:
    where = f" in {case.phase}" if case.phase else ""
    reason = " ".join(case.reason.split())
    return f"{case.name}{where}" + (f": {reason[:200]}" if reason else "")
