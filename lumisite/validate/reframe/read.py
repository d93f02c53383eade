"""Take what ReFrame recorded for samples: files are known by what they hold, and become lumisite's lines on the way.

A baseline takes the cases that passed. After a change a case that only missed its reference keeps its numbers, which
are then judged as all others, and one that failed otherwise is a failed gate (`after`). What is left out is told.
"""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Literal, NamedTuple

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
from lumisite.validate.reframe.columns import header_of, old_row
from lumisite.validate.reframe.perflog import read_perflog
from lumisite.validate.reframe.report import CASE_KEYS, KEYS, read_report
from lumisite.validate.samples import Faults, SamplesError

if TYPE_CHECKING:
    from typing import TypeAlias

Kind: TypeAlias = Literal["report", "perflog"]
#: Which file gave what of a job, and when that ended: by system, number and what was given.
Jobs: TypeAlias = dict[tuple[str | float, ...], tuple[str, float]]

#: How much of a file is looked at to know what it is: a perflog's header must fit.
HEAD_BYTES = 1 << 16
#: Cases that are named before they are only counted.
NAMED = 3
#: A job's number is not used again within this time, in seconds.
SAME_JOB = 86_400
_KEYS = rb'\{\s*"(?:%b)"\s*:'
_REPORT = re.compile(
    rb"(?:\xef\xbb\xbf)?\s*(?:(?:\[\s*)?"
    + _KEYS % "|".join(KEYS).encode()
    + rb"|\[\s*"
    + _KEYS % "|".join(CASE_KEYS).encode()
    + rb")"
)


def kind_of(head: bytes) -> Kind | None:
    """Tell what a file is by its beginning; none for all that ReFrame did not write."""
    if _REPORT.match(head):
        return "report"
    if head.lstrip()[:1] == b"{":
        return None
    first = head.removeprefix(b"\xef\xbb\xbf").split(b"\n", 1)[0].decode("utf-8", "replace")
    return "perflog" if header_of(first) is not None or old_row(first) is not None else None


def with_reframe(
    sources: Iterable[tuple[str, Iterable[bytes]]],
    say: Callable[[str], None],
    *,
    after: bool = False,
    answers: Answers = NOTHING_SAID,
) -> Iterator[tuple[str, Iterable[bytes]]]:
    """Give files as `read_lines` takes them; those of ReFrame are read on the way, and `say` takes what is left out.

    A line that another of these files gave already, as a report and a perflog of one session do, is given once. Raises
    `SamplesError` with all faults of a file, while that file's blocks are taken.
    """
    seen: set[str] = set()
    jobs: Jobs = {}
    for name, blocks in sources:
        head, rest = _head(blocks)
        kind = kind_of(head)
        whole = itertools.chain([head], rest) if head else rest
        if kind is None:
            if not _may_be_lines(head):
                raise SamplesError(f"{name}: {_what_else(head)}")
            yield name, whole
        else:
            yield name, _lines(name, kind, whole, _Import(name, say, after, answers, seen, jobs))


def _may_be_lines(head: bytes) -> bool:
    """Tell whether a file may hold samples: an empty one may, and one of which a line is damaged."""
    lines = (line.strip() for line in head.removeprefix(b"\xef\xbb\xbf").splitlines())
    return not head.strip() or any(len(line) > 1 and line.startswith(b"{") for line in lines)


def _what_else(head: bytes) -> str:
    first = head.lstrip().split(b"\n", 1)[0].decode("utf-8", "replace").strip()
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


def _lines(name: str, kind: Kind, blocks: Iterable[bytes], work: _Import) -> Iterator[bytes]:
    if kind == "report":
        yield from work.lines(read_report(blocks, lambda text: work.faults.add(f"{name}: {text}")))
    else:
        cases = read_perflog(
            blocks,
            lambda text: work.faults.add(f"{name}:{text}"),
            lambda text: work.leave_out("torn", f"line {text}"),
            nodes_known=bool(work.answers.nodes),
        )
        yield from work.lines(cases)


class Unknown(NamedTuple):
    """A number of which it is not known whether more is better: what is told, and the tests that have it."""

    text: str
    cases: set[str]


class _Import:
    """One file on its way."""

    def __init__(
        self, name: str, say: Callable[[str], None], after: bool, answers: Answers, seen: set[str], jobs: Jobs
    ) -> None:
        self.name = name
        self.say = say
        self.after = after
        self.answers = answers
        self.seen = seen
        self.jobs = jobs
        self.faults = Faults()
        self.told: set[str] = set()
        self.unknown: dict[str, Unknown] = {}
        self.out: dict[str, list[str]] = {}
        self.count: Counter[str] = Counter()

    def leave_out(self, why: str, what: str) -> None:
        """Take note of what is not used."""
        self.count[why] += 1
        self.out.setdefault(why, [])
        if len(self.out[why]) < NAMED:
            self.out[why].append(what)

    def lines(self, cases: Iterable[Case]) -> Iterator[bytes]:
        """Give the lines of all cases, and say what was left out."""
        for case in cases:
            yield from self._of_case(case)
        for unknown in self.unknown.values():
            others = len(unknown.cases) - 1
            self.faults.add(unknown.text + (f"; so with {counted(others, 'other test')}" if others else ""))
        self.faults.tell()
        for why, names in self.out.items():
            more = self.count[why] - len(names)
            self.say(f"{self.name}: {why}, left out: " + "; ".join(names) + (f"; and {more} more" if more else ""))

    def _of_case(self, case: Case) -> Iterator[bytes]:
        case = case if case.nodes else replace(case, nodes=self.answers.nodes)
        reason = self._not_usable(case)
        if reason:
            self.leave_out(reason, _named(case))
            return
        try:
            lines = case_lines(self._measured(case), self.answers, after=self.after)
        except DirectionError as error:
            known = self.unknown.setdefault(error.about, Unknown(f"{self.name}: {case.name}: {error}", set()))
            known.cases.add(case.name)
            return
        except CaseError as error:
            self._refuse(case, str(error))
            return
        for line in lines:
            if not case.own and self._stood_elsewhere(case, line):
                continue
            text = gate_json(line) if isinstance(line, Gate) else sample_json(line)
            if text not in self.seen:
                self.seen.add(text)
                yield text.encode() + b"\n"

    def _stood_elsewhere(self, case: Case, line: Sample | Gate) -> bool:
        """Tell whether another file gave this of the same job.

        Their times may differ: reports up to 4.6 know only when the session ended, and perflogs may lack the zone.
        """
        what = (line.gate, line.verdict) if isinstance(line, Gate) else (line.metric, line.value)
        name, when = self.jobs.setdefault((case.system, case.job, *what), (self.name, case.time))
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
            self.leave_out("not above 0 and finite", f"{case.name}/{number.name} is {number.value:g}")
        return replace(case, numbers=tuple(number for number in case.numbers if number not in wrong))

    def _refuse(self, case: Case, text: str) -> None:
        """Tell each fault of a test once, however often it ran."""
        key = f"{case.name}: {text}"
        if key not in self.told:
            self.told.add(key)
            self.faults.add(f"{self.name}: {key}")


def _named(case: Case) -> str:
    where = f" in {case.phase}" if case.phase else ""
    reason = " ".join(case.reason.split())
    return f"{case.name}{where}" + (f": {reason[:200]}" if reason else "")
