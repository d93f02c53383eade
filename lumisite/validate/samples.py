"""Read what runs wrote: samples and gates, one JSON line each, in any order; `lines` has their form.

A metric is named `<probe>/<quantity>[/<size>]/<shape>`, as `collectives/all_reduce_busbw/128MiB/2n`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache

from lumisite.findings.finding import Finding, Place, Severity
from lumisite.text import whole_lines
from lumisite.validate import InputError
from lumisite.validate.lines import Better, Gate, LineError, Nodes, Sample, parse_line

#: A sample with 100,000 nodes fits in a line of this length.
LINE_LIMIT = 1 << 21
_SIZE = re.compile(r"([0-9]{1,15})(B|KiB|MiB|GiB|TiB)", re.ASCII)
_SHAPE = re.compile(r"[1-9][0-9]{0,8}[gn]", re.ASCII)
_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


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


def read_lines(sources: Iterable[tuple[str, Iterable[bytes]]]) -> Recorded:
    """Read files, each a name and its blocks of bytes. The order of lines and files does not matter.

    Raises `InputError` with the first line that cannot be used.
    """
    read = _Read()
    for file, blocks in sources:
        number = 0

        def short_enough(text: bytes, file: str = file) -> bytes:
            if len(text) <= LINE_LIMIT:
                return text
            message = f"a line is longer than {LINE_LIMIT} bytes"
            raise InputError(
                Finding("file-unreadable", Severity.FAULT, message, "see whether this is a file of samples", file)
            )

        for block in whole_lines(blocks, short_enough):
            for line in block[:-1].split(b"\n"):
                number += 1
                if not line.strip():
                    continue
                try:
                    read.add(parse_line(line), file, number)
                except LineError as error:
                    raise InputError(replace(error.finding, place=Place(file, number))) from None
    return read.recorded()


@dataclass
class _RunOfMetric:
    """One job of one metric while lines are read; `again` is the first line with a second value for a set of nodes."""

    first: Sample
    place: Place
    time: float
    values: dict[Nodes, float] = field(default_factory=dict)
    again: Place | None = None


class _Read:
    """What was read so far; it grows with runs and nodes, not with lines."""

    def __init__(self) -> None:
        self._jobs: dict[tuple[str, str], _RunOfMetric] = {}
        self._gates: set[Gate] = set()
        self._metrics: dict[str, tuple[Sample, Place]] = {}

    def add(self, line: Sample | Gate, file: str, number: int) -> None:
        """Add a line; raises `LineError` where it contradicts earlier ones."""
        if isinstance(line, Gate):
            self._gates.add(line)
            return
        job = self._jobs.get((line.metric, line.run))
        if job is None:
            job = self._jobs[line.metric, line.run] = _RunOfMetric(line, Place(file, number), line.time)
        first, place = self._metrics.setdefault(line.metric, (line, job.place))
        if line.unit and not first.unit:
            first, place = self._metrics[line.metric] = (line, Place(file, number))
        _require_alike(line, first, place, "better", *(("unit",) if line.unit else ()))
        _require_alike(line, job.first, job.place, "image", "spec")
        job.time = min(job.time, line.time)
        known = job.values.get(line.nodes)
        if known is None or (line.value < known) == (line.better == "higher"):
            job.values[line.nodes] = line.value
        if known is not None and not job.again:
            job.again = Place(file, number)

    def recorded(self) -> Recorded:
        """Return what was read; raises `InputError` where a job has two values of one number."""
        jobs: dict[str, list[JobValues]] = {}
        per_node = {metric for (metric, _), job in self._jobs.items() if len(job.values) > 1}
        for (metric, run), job in self._jobs.items():
            if job.again and metric not in per_node:
                message = f"run {run} has a value at {job.place} too"
                advice = "write one value for each job, or name the nodes that each value is of"
                raise InputError(Finding("samples-disagree", Severity.FAULT, message, advice, metric, place=job.again))
            values = JobValues(run, job.time, job.values, job.first.image, job.first.spec)
            jobs.setdefault(metric, []).append(values)
        series = {}
        for metric, (sample, _) in sorted(self._metrics.items()):
            by_time = sorted(jobs[metric], key=lambda job: (job.time, job.run))
            series[metric] = Series(metric, sample.better, tuple(by_time), sample.unit)
        return Recorded(series, tuple(sorted(self._gates, key=_gate_order)))


def _require_alike(sample: Sample, first: Sample, place: Place, *keys: str) -> None:
    """Raise `LineError` where a sample differs in a key from the first of its kind."""
    for key in keys:
        found, expected = getattr(sample, key), getattr(first, key)
        if found != expected:
            message = f"{key} is {found or 'unset'} in run {sample.run}, and {expected or 'unset'} at {place}"
            advice = "write samples of different kinds under different names"
            raise LineError(Finding("samples-disagree", Severity.FAULT, message, advice, sample.metric))


def _gate_order(gate: Gate) -> tuple[object, ...]:
    rank = -1 if gate.rank is None else gate.rank
    return (gate.gate, gate.time, gate.run, gate.nodes, rank, gate.verdict, gate.cause, gate.advice)


# ---- names of metrics


@dataclass(frozen=True)
class Name:
    """The parts of a metric's name; `quantity` is all that is neither size (in bytes) nor shape (`1g`, `1n`, `2n`)."""

    quantity: str
    size: int | None
    shape: str

    @property
    def probe(self) -> str:
        """The first part of the name."""
        return self.quantity.partition("/")[0]


@lru_cache(maxsize=4096)
def parse_name(metric: str) -> Name:
    """Parse a name. A name of another form is all quantity.

    >>> parse_name("collectives/all_reduce_busbw/128MiB/2n")
    Name(quantity='collectives/all_reduce_busbw', size=134217728, shape='2n')
    """
    parts = metric.split("/")
    shape = parts.pop() if len(parts) > 1 and _SHAPE.fullmatch(parts[-1]) else ""
    found = _SIZE.fullmatch(parts[-1]) if len(parts) > 1 else None
    if found is None:
        return Name("/".join(parts), None, shape)
    return Name("/".join(parts[:-1]), int(found[1]) << (10 * _UNITS.index(found[2])), shape)


def metric_order(metric: str) -> tuple[str, str, int, str]:
    """Return the key that orders metrics for people: those of one quantity and shape together, by size."""
    name = parse_name(metric)
    return name.quantity, name.shape, name.size or 0, metric


def size_text(size: int) -> str:
    """Return a size as names have it.

    >>> size_text(134217728)
    '128MiB'
    """
    for power in range(len(_UNITS) - 1, 0, -1):
        if size and not size % (1 << (10 * power)):
            return f"{size >> (10 * power)}{_UNITS[power]}"
    return f"{size}B"


def shape_order(shape: str) -> tuple[bool, int]:
    """Return the key that orders shapes by size: GPUs, then nodes."""
    return shape.endswith("n"), int(shape[:-1])
