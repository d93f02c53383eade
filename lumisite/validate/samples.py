"""Read what runs wrote: samples and gates, one JSON line each, in any order; `lines` has their form.

All faults of the files are told together, each as `file:line: what is wrong (what would be right)`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from lumisite.validate import InputError
from lumisite.validate.blocks import whole_lines
from lumisite.validate.lines import LARGEST, LEAST, Better, Gate, LineError, Nodes, Sample, parse_line, parse_time

#: Faults that are told before they are only counted.
FAULTS_SHOWN = 50
#: A sample with 100,000 nodes fits in a line of this length.
LINE_LIMIT = 1 << 21
#: Texts of jobs whose meaning is remembered while a file is read.
TEXTS_KEPT = 100_000

#: A sample as `json.dumps` writes it, or any other line. A sample needs a JSON parser only where one of its texts is
#: met first: this pattern says where each begins and ends. What it takes for one and is none, the parser then refuses.
_PLAIN = re.compile(
    rb'^(?:\{"metric": ?"([^"]+)", ?"value": ?((?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?), ?'
    rb'("better": ?"[^"]+", ?"run": ?"[^"]+"), ?"nodes": ?\[([^]]+)\], ?'
    rb'"time": ?("[^"]*"|(?:0|[1-9][0-9]{0,17})(?:\.[0-9]+)?)((?:, ?.+)?)\}\r?|(.*))$',
    re.MULTILINE,
)


@dataclass(frozen=True)
class Job:
    """What one job measured of one metric: the worst value for each set of nodes that it gave values for.

    `image` and `spec` are empty where the samples do not say them.
    """

    run: str
    time: float
    values: Mapping[Nodes, float]
    image: str = ""
    spec: str = ""

    @property
    def nodes(self) -> frozenset[str]:
        """All nodes of the job."""
        return frozenset(node for nodes in self.values for node in nodes)


@dataclass(frozen=True)
class Series:
    """All jobs of one metric, by time."""

    metric: str
    better: Better
    jobs: tuple[Job, ...]
    unit: str = ""


@dataclass(frozen=True)
class Recorded:
    """What files hold: a series for each metric, by the metric's name, and every gate once, by its fields."""

    series: Mapping[str, Series]
    gates: tuple[Gate, ...] = ()


class SamplesError(InputError):
    """Samples that cannot be used: the first faults, and how many there are in all."""

    def __init__(self, faults: Sequence[str], count: int) -> None:
        self.faults = tuple(faults)
        self.count = count
        tail = [f"… and {count - len(faults)} more"] if count > len(faults) else []
        super().__init__("\n".join([*faults, *tail]))


def read_lines(sources: Iterable[tuple[str, Iterable[bytes]]]) -> Recorded:
    """Read files, each a name and its blocks of bytes. The order of lines and files does not matter.

    Raises `SamplesError` with all faults.
    """
    reader = _Reader()
    for name, blocks in sources:
        reader.file = name
        reader.line = 1
        for block in whole_lines(blocks, _short_enough):
            reader.read(block)
    return reader.recorded()


@dataclass
class _Group:
    """The values of one metric in one run while a file is read; `values` by the text of the nodes as it stood there."""

    higher: bool
    time: float
    place: str
    image: str
    spec: str
    values: dict[Nodes, float] = field(default_factory=dict)
    again: str = ""
    when: bytes = b""
    """The text of the time that was read last."""


class _Reader:
    """The state of reading; what it keeps grows with runs and nodes, not with lines."""

    def __init__(self) -> None:
        self.file = ""
        self.line = 1
        self._groups: dict[tuple[str, str], _Group] = {}
        self._plain: dict[tuple[bytes, bytes, bytes], _Group] = {}
        self._gates: set[Gate] = set()
        self._nodes: dict[bytes, Nodes] = {}
        self._better: dict[str, tuple[Better, str]] = {}
        self._units: dict[str, tuple[str, str]] = {}
        self._faults: list[str] = []
        self._fault_count = 0

    def read(self, block: bytes) -> None:
        """Take whole lines; what was seen before is known by its bytes."""
        rows = _PLAIN.findall(block, 0, len(block) - 1)
        # Fewer where a text is open at a line's end and goes on in the next one.
        if len(rows) == block.count(b"\n"):
            self._read_plain(rows)
            return
        for line in block.split(b"\n")[:-1]:
            self._read_line(line)
            self.line += 1

    def _read_plain(self, rows: Sequence[tuple[bytes, ...]]) -> None:
        """Take lines most of which need no JSON parser."""
        first, groups, node_lists = self.line, self._plain, self._nodes
        group, of_metric, of_job, of_rest = None, b"", b"", b""
        for line, (metric, value, job, nodes, when, rest, other) in enumerate(rows, start=first):
            if not metric:
                self.line = line
                self._read_line(other)
                continue
            # Neighbours are mostly of one group, and to compare is quicker than to look up.
            if group is None or rest != of_rest or metric != of_metric or job != of_job:
                group, of_metric, of_job, of_rest = groups.get((metric, job, rest)), metric, job, rest
            names = node_lists.get(nodes)
            number = float(value)
            if group is None or names is None or not LEAST <= number <= LARGEST:
                self.line = line
                self._read_first(metric, value, job, nodes, when, rest)
                continue
            if when != group.when:
                time = _time(when)
                if time is None:
                    self.line = line
                    self._read_first(metric, value, job, nodes, when, rest)
                    continue
                group.when = when
                if time < group.time:
                    group.time = time
            values = group.values
            known = values.get(names)
            if known is None:
                values[names] = number
            else:
                group.again = group.again or f"{self.file}:{line}"
                if (number < known) == group.higher:
                    values[names] = number
        self.line = first + len(rows)

    def _read_first(self, metric: bytes, value: bytes, job: bytes, nodes: bytes, when: bytes, rest: bytes) -> None:
        """Read a plain line as any other one, and remember its texts."""
        words = (metric, value, job, nodes, when, rest)
        sample = self._read_line(b'{"metric":"%b","value":%b,%b,"nodes":[%b],"time":%b%b}' % words)
        if sample is not None:
            if len(self._plain) > TEXTS_KEPT:
                self._plain.clear()
            self._plain[metric, job, rest] = self._groups[sample.metric, sample.run]
            self._nodes[nodes] = sample.nodes

    def _read_line(self, line: bytes) -> Sample | None:
        text = line.removeprefix(b"\xef\xbb\xbf") if self.line == 1 else line
        if not text.strip():
            return None
        try:
            read = parse_line(text)
            if isinstance(read, Gate):
                self._gates.add(read)
                return None
            self._add(read)
        except LineError as fault:
            self._fault(str(fault))
            return None
        return read

    def _fault(self, text: str, place: str = "") -> None:
        self._fault_count += 1
        if len(self._faults) < FAULTS_SHOWN:
            self._faults.append(f"{place or f'{self.file}:{self.line}'}: {text}")

    def _add(self, sample: Sample) -> None:
        place = f"{self.file}:{self.line}"
        better, first = self._better.setdefault(sample.metric, (sample.better, place))
        if sample.better != better:
            raise LineError(f"better: {sample.better} for {sample.metric}, which is {better} at {first}")
        unit, first = self._units.setdefault(sample.metric, (sample.unit, place)) if sample.unit else ("", "")
        if sample.unit != unit:
            raise LineError(f"unit: {sample.unit} for {sample.metric}, which is in {unit} at {first}")
        key = (sample.metric, sample.run)
        group = self._groups.get(key)
        if group is None:
            group = _Group(better == "higher", sample.time, place, sample.image, sample.spec)
            self._groups[key] = group
        for what, old, new in (("image", group.image, sample.image), ("spec", group.spec, sample.spec)):
            if old != new:
                was = f"which has {old or 'none'} at {group.place}"
                raise LineError(f"{what}: {new or 'none'} in run {sample.run}, {was}")
        group.time = min(group.time, sample.time)
        known = group.values.get(sample.nodes)
        if known is not None:
            group.again = group.again or place
        worse = min if sample.better == "higher" else max
        group.values[sample.nodes] = sample.value if known is None else worse(known, sample.value)

    def recorded(self) -> Recorded:
        """Give what was read, or raise all faults."""
        jobs: dict[str, list[Job]] = {}
        parted = {metric for (metric, _), group in self._groups.items() if len(group.values) > 1}
        for (metric, run), group in self._groups.items():
            if group.again and metric not in parted:
                self._fault(f"{metric} of run {run} stands at {group.place} too (a job has one value)", group.again)
            jobs.setdefault(metric, []).append(Job(run, group.time, group.values, group.image, group.spec))
        if self._faults:
            raise SamplesError(self._faults, self._fault_count)
        series = {
            metric: Series(
                metric,
                self._better[metric][0],
                tuple(sorted(own, key=lambda job: (job.time, job.run))),
                self._units.get(metric, ("", ""))[0],
            )
            for metric, own in sorted(jobs.items())
        }
        return Recorded(series, tuple(sorted(self._gates, key=_gate_order)))


def _time(text: bytes) -> float | None:
    """Give a time as it stands in JSON; what is none is for the parser, which says why."""
    try:
        return parse_time(text[1:-1].decode()) if text.startswith(b'"') else float(text)
    except (LineError, UnicodeDecodeError):
        return None


def _gate_order(gate: Gate) -> tuple[object, ...]:
    rank = -1 if gate.rank is None else gate.rank
    return (gate.gate, gate.time, gate.run, gate.nodes, rank, gate.verdict, gate.cause, gate.advice)


def _short_enough(line: bytes) -> bytes:
    if len(line) > LINE_LIMIT:
        raise SamplesError([f"a line is longer than {LINE_LIMIT} bytes: these are no samples"], 1)
    return line
