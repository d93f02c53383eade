"""Read what runs wrote: samples and gates, one JSON line each, in any order; `lines` has their form.

All that is wrong with the files is raised together, each with its place.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial

from lumisite.findings.catalogue import make_finding
from lumisite.findings.finding import Finding, Place
from lumisite.findings.writers import line as line_of
from lumisite.text import whole_lines
from lumisite.validate import InputError
from lumisite.validate.lines import Better, Gate, LineError, Nodes, Sample, parse_line

#: Findings that are listed before they are only counted.
FAULTS_LISTED = 50
#: A sample with 100,000 nodes fits in a line of this length.
LINE_LIMIT = 1 << 21


@dataclass(frozen=True)
class JobValues:
    """What one job measured of one metric: the worst value for each set of nodes that it gave values for.

    `image` and `spec` are empty where the samples do not say them.
    """

    run: str
    time: float
    values: Mapping[Nodes, float]
    image: str = ""
    spec: str = ""

    @cached_property
    def nodes(self) -> frozenset[str]:
        """All nodes of the job."""
        return frozenset(node for nodes in self.values for node in nodes)


@dataclass(frozen=True)
class Series:
    """All jobs of one metric, by time."""

    metric: str
    better: Better
    jobs: tuple[JobValues, ...]
    unit: str = ""


@dataclass(frozen=True)
class Recorded:
    """What files hold: a series for each metric, by the metric's name, and every gate once, by its fields."""

    series: Mapping[str, Series]
    gates: tuple[Gate, ...] = ()


class SamplesError(InputError):
    """Samples that cannot be used: the first findings, and how many there are in all."""

    def __init__(self, findings: Sequence[Finding], count: int = 1) -> None:
        self.findings = tuple(findings)
        more = count - len(findings)
        super().__init__("\n".join([*map(line_of, findings), *([f"… and {more} more"] if more > 0 else [])]))


def read_lines(sources: Iterable[tuple[str, Iterable[bytes]]]) -> Recorded:
    """Read files, each a name and its blocks of bytes. The order of lines and files does not matter.

    Raises `SamplesError` with all faults.
    """
    reader = _SampleReader()
    for name, blocks in sources:
        reader.file, reader.line = name, 0
        for block in whole_lines(blocks, partial(_short_enough, name)):
            reader.read(block)
    return reader.recorded()


@dataclass
class _Group:
    """The values of one metric in one run while a file is read: the worst for each set of nodes.

    `again` is the first location of a second value for a set of nodes.
    """

    better: Better
    time: float
    location: Place
    image: str
    spec: str
    values: dict[Nodes, float] = field(default_factory=dict)
    again: Place | None = None


class _SampleReader:
    """The state of reading; what it keeps grows with runs and nodes, not with lines."""

    def __init__(self) -> None:
        self.file = ""
        self.line = 0
        self._groups: dict[tuple[str, str], _Group] = {}
        self._gates: set[Gate] = set()
        self._better: dict[str, tuple[Better, Place]] = {}
        self._units: dict[str, tuple[str, Place]] = {}
        self._findings: list[Finding] = []
        self._wrong = 0

    def read(self, block: bytes) -> None:
        """Read whole lines."""
        for line in block[:-1].split(b"\n"):
            self.line += 1
            text = line.removeprefix(b"\xef\xbb\xbf") if self.line == 1 else line
            if not text.strip():
                continue
            try:
                read = parse_line(text)
                if isinstance(read, Gate):
                    self._gates.add(read)
                else:
                    self._add(read)
            except LineError as error:
                self._add_finding(replace(error.finding, place=Place(self.file, self.line)))

    def _add_finding(self, finding: Finding) -> None:
        self._wrong += 1
        if self._wrong <= FAULTS_LISTED:
            self._findings.append(finding)

    def _add(self, sample: Sample) -> None:
        location = Place(self.file, self.line)
        better, first = self._better.setdefault(sample.metric, (sample.better, location))
        if sample.better != better:
            raise _differs("better", sample, sample.better, better, first)
        unit, first = self._units.setdefault(sample.metric, (sample.unit, location)) if sample.unit else ("", location)
        if sample.unit != unit:
            raise _differs("unit", sample, sample.unit, unit, first)
        key = (sample.metric, sample.run)
        group = self._groups.get(key)
        if group is None:
            group = self._groups[key] = _Group(better, sample.time, location, sample.image, sample.spec)
        for name, old, new in (("image", group.image, sample.image), ("spec", group.spec, sample.spec)):
            if old != new:
                raise _differs(name, sample, new, old, group.location)
        group.time = min(group.time, sample.time)
        known = group.values.get(sample.nodes)
        if known is None or (sample.value < known) == (group.better == "higher"):
            group.values[sample.nodes] = sample.value
        if known is not None and not group.again:
            group.again = location

    def recorded(self) -> Recorded:
        """Return what was read; raises `SamplesError` with all that is wrong."""
        jobs: dict[str, list[JobValues]] = {}
        parted = {metric for (metric, _), group in self._groups.items() if len(group.values) > 1}
        for (metric, run), group in self._groups.items():
            if group.again and metric not in parted:
                repeated = make_finding("value-repeated", metric, place=group.again, run=run, first=str(group.location))
                self._add_finding(repeated)
            jobs.setdefault(metric, []).append(JobValues(run, group.time, group.values, group.image, group.spec))
        if self._findings:
            raise SamplesError(self._findings, self._wrong)
        series = {
            metric: Series(
                metric,
                self._better[metric][0],
                tuple(sorted(values, key=lambda job: (job.time, job.run))),
                self._units[metric][0] if metric in self._units else "",
            )
            for metric, values in sorted(jobs.items())
        }
        return Recorded(series, tuple(sorted(self._gates, key=_gate_order)))


def _differs(key: str, sample: Sample, found: str, expected: str, first: Place) -> LineError:
    return LineError(
        make_finding(
            "samples-disagree",
            sample.metric,
            key=key,
            found=found or None,
            expected=expected or None,
            run=sample.run,
            first=str(first),
        )
    )


def _gate_order(gate: Gate) -> tuple[object, ...]:
    rank = -1 if gate.rank is None else gate.rank
    return (gate.gate, gate.time, gate.run, gate.nodes, rank, gate.verdict, gate.cause, gate.advice)


def _short_enough(name: str, text: bytes) -> bytes:
    if len(text) > LINE_LIMIT:
        raise SamplesError([make_finding("line-too-long", name, limit=LINE_LIMIT)])
    return text
