"""Read samples: one JSON line for each number that a job measured.

A sample is `{"metric", "value", "better": "higher|lower", "run", "nodes", "time"}`. `value` is a finite number above 0;
`run` names the job; `nodes` lists the nodes that it ran on; `time` is seconds since 1970 or an ISO 8601 date and time
(without a zone: UTC). Other keys are allowed and not read, so that a tool may note more. All faults of the files are
told together, each as `file:line: what is wrong (what would be right)`.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Literal

from lumisite.validate import InputError

if TYPE_CHECKING:
    from typing import TypeAlias

Better: TypeAlias = Literal["higher", "lower"]
Nodes: TypeAlias = tuple[str, ...]

KEYS = ("metric", "value", "better", "run", "nodes", "time")
#: Faults that are told before they are only counted.
FAULTS_SHOWN = 50
#: A sample with 100,000 nodes fits in a line of this length.
LINE_LIMIT = 1 << 21
#: Texts of times whose meaning is remembered while a file is read.
TIMES_KEPT = 100_000

#: No measured value is smaller or larger, in whatever unit.
LEAST, LARGEST = 1e-100, 1e100

_NODE = re.compile(r"[A-Za-z0-9][\w.-]*", re.ASCII)
#: A line as `json.dumps` writes it, which needs no JSON parser; any other line gets one.
_PLAIN = re.compile(
    rb'^\{"metric": ?"([\w./:@%+-]+)", ?"value": ?((?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?), ?'
    rb'"better": ?"(higher|lower)", ?"run": ?"([\w./:-]+)", ?'
    rb'"nodes": ?\[("[A-Za-z0-9][\w.-]*"(?:, ?"[A-Za-z0-9][\w.-]*")*)\], ?'
    rb'"time": ?("[0-9T:.Z+-]+"|(?:0|[1-9][0-9]*)(?:\.[0-9]+)?)\}\r?$',
    re.MULTILINE,
)


@dataclass(frozen=True)
class Sample:
    """One number that one job measured; `time` is in seconds since 1970."""

    metric: str
    value: float
    better: Better
    run: str
    nodes: Nodes
    time: float


@dataclass(frozen=True)
class Job:
    """What one job measured of one metric: the worst value for each set of nodes that it gave values for."""

    run: str
    time: float
    values: Mapping[Nodes, float]

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


class SamplesError(InputError):
    """Samples that cannot be used: the first faults, and how many there are in all."""

    def __init__(self, faults: Sequence[str], count: int) -> None:
        self.faults = tuple(faults)
        self.count = count
        tail = [f"… and {count - len(faults)} more"] if count > len(faults) else []
        super().__init__("\n".join([*faults, *tail]))


class SampleError(ValueError):
    """What is wrong with one line."""


def read_samples(sources: Iterable[tuple[str, Iterable[bytes]]]) -> dict[str, Series]:
    """Read files, each a name and its blocks of bytes, into a series for each metric, by the metric's name.

    The order of lines and files does not matter. Raises `SamplesError` with all faults.
    """
    reader = _Reader()
    for name, blocks in sources:
        reader.file = name
        reader.line = 1
        for block in _whole_lines(blocks):
            reader.read(block)
    return reader.series()


def parse_sample(line: bytes) -> Sample:
    """Read one line; raises `SampleError`."""
    try:
        raw = json.loads(line, parse_constant=_no_number, object_pairs_hook=_once)
    except SampleError:
        raise
    except json.JSONDecodeError as error:
        raise SampleError(f"not JSON: {error.msg} (one object on a line would be right)") from None
    except UnicodeDecodeError:
        raise SampleError("not JSON: not UTF-8") from None
    except (ValueError, RecursionError):
        raise SampleError("not JSON: a number with too many digits, or nested too deeply") from None
    if not isinstance(raw, dict):
        raise SampleError(f"{_shown(raw)} is not an object with {', '.join(KEYS)}")
    missing = [key for key in KEYS if key not in raw]
    if missing:
        raise SampleError(f"{', '.join(missing)} missing (have {', '.join(map(str, raw)) or 'nothing'})")
    return Sample(
        metric=_name("metric", raw["metric"]),
        value=_value(raw["value"]),
        better=_better(raw["better"]),
        run=_name("run", str(raw["run"]) if type(raw["run"]) is int else raw["run"]),
        nodes=_nodes(raw["nodes"]),
        time=_time(raw["time"]),
    )


def _no_number(name: str) -> float:
    raise SampleError(f"value: {name} is not a number above 0")


def _once(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        raise SampleError(f"{next(name for name in names if names.count(name) > 1)} stands twice on the line")
    return found


def _shown(raw: object) -> str:
    text = json.dumps(raw, ensure_ascii=True, default=str)
    return text if len(text) <= 60 else text[:57] + "…"


def _name(key: str, raw: object) -> str:
    if not isinstance(raw, str) or not raw.strip() or not raw.isprintable():
        raise SampleError(f"{key}: {_shown(raw)} is not a name")
    return raw


def _value(raw: object) -> float:
    if isinstance(raw, bool) or not isinstance(raw, int | float):
        raise SampleError(f"value: {_shown(raw)} is not a number")
    try:
        value = float(raw)
    except OverflowError:
        value = math.inf
    if not LEAST <= value <= LARGEST:
        raise SampleError(f"value: {_shown(raw)} is not above 0 and finite (leave a job out that measured nothing)")
    return value


def _better(raw: object) -> Better:
    if raw == "higher":
        return "higher"
    if raw == "lower":
        return "lower"
    raise SampleError(f"better: {_shown(raw)} is neither higher nor lower")


def _nodes(raw: object) -> Nodes:
    if not isinstance(raw, list) or not raw:
        raise SampleError(f'nodes: {_shown(raw)} is not a list of node names, such as ["nid005001", "nid005002"]')
    for name in raw:
        if not isinstance(name, str) or not _NODE.fullmatch(name):
            raise SampleError(f"nodes: {_shown(name)} is not the name of a node (letters, digits, . _ and -)")
    if len(set(raw)) < len(raw):
        raise SampleError(f"nodes: {next(name for name in raw if raw.count(name) > 1)} stands twice")
    return tuple(sorted(raw))


def _time(raw: object) -> float:
    if isinstance(raw, int | float) and not isinstance(raw, bool):
        try:
            seconds = float(raw)
        except OverflowError:
            seconds = math.inf
        if math.isfinite(seconds):
            return seconds
    elif isinstance(raw, str):
        try:
            # Python 3.10 knows neither Z nor fractions of other than 3 or 6 digits.
            text = re.sub(r"[.,](\d+)", lambda found: "." + (found[1] + "000000")[:6], raw.strip()).replace(
                "Z", "+00:00"
            )
            when = datetime.fromisoformat(text)
            return (when if when.tzinfo else when.replace(tzinfo=timezone.utc)).timestamp()
        except (ValueError, OverflowError):
            pass
    raise SampleError(
        f"time: {_shown(raw)} is neither seconds since 1970 nor ISO 8601, such as 2026-01-22T10:15:00+02:00"
    )


@dataclass
class _Group:
    """The values of one metric in one run while a file is read; `values` by the text of the nodes as it stood there."""

    better: Better
    time: float
    place: str
    values: dict[Nodes, float] = field(default_factory=dict)
    again: str = ""


class _Reader:
    """The state of reading; what it keeps grows with runs and nodes, not with lines."""

    def __init__(self) -> None:
        self.file = ""
        self.line = 1
        self._groups: dict[tuple[str, str], _Group] = {}
        self._plain: dict[tuple[bytes, bytes], _Group] = {}
        self._nodes: dict[bytes, Nodes] = {}
        self._times: dict[bytes, float] = {}
        self._better: dict[str, tuple[Better, str]] = {}
        self._faults: list[str] = []
        self._fault_count = 0

    def read(self, block: bytes) -> None:
        """Take whole lines."""
        count = block.count(b"\n")
        rows = _PLAIN.findall(block)
        if len(rows) == count:
            for metric, value, better, run, nodes, time in rows:
                self._add_plain(metric, value, better, run, nodes, time)
                self.line += 1
            return
        for line in block.split(b"\n")[:-1]:
            self._read_line(line)
            self.line += 1

    def _read_line(self, line: bytes) -> Sample | None:
        text = line.removeprefix(b"\xef\xbb\xbf") if self.line == 1 else line
        if not text.strip():
            return None
        try:
            sample = parse_sample(text)
            self._add(sample)
        except SampleError as fault:
            self._fault(str(fault))
            return None
        return sample

    def _fault(self, text: str, place: str = "") -> None:
        self._fault_count += 1
        if len(self._faults) < FAULTS_SHOWN:
            self._faults.append(f"{place or f'{self.file}:{self.line}'}: {text}")

    def _add_plain(self, metric: bytes, value: bytes, better: bytes, run: bytes, nodes: bytes, time: bytes) -> None:
        """Add a line that needs no JSON parser; what was seen before is looked up by its bytes."""
        group = self._plain.get((metric, run))
        names = self._nodes.get(nodes)
        when = self._times.get(time)
        number = float(value)
        if (
            group is None
            or names is None
            or when is None
            or not LEAST <= number <= LARGEST
            or group.better != better.decode()
        ):
            line = b'{"metric":"%b","value":%b,"better":"%b","run":"%b","nodes":[%b],"time":%b}'
            sample = self._read_line(line % (metric, value, better, run, nodes, time))
            if sample is not None:
                self._plain[metric, run] = self._groups[sample.metric, sample.run]
                self._nodes[nodes] = sample.nodes
                if len(self._times) > TIMES_KEPT:
                    self._times.clear()
                self._times[time] = sample.time
            return
        if when < group.time:
            group.time = when
        known = group.values.get(names)
        if known is not None and not group.again:
            group.again = f"{self.file}:{self.line}"
        if known is None or (number < known) == (group.better == "higher"):
            group.values[names] = number

    def _add(self, sample: Sample) -> None:
        place = f"{self.file}:{self.line}"
        better, first = self._better.setdefault(sample.metric, (sample.better, place))
        if sample.better != better:
            raise SampleError(f"better: {sample.better} for {sample.metric}, which is {better} at {first}")
        key = (sample.metric, sample.run)
        group = self._groups.get(key)
        if group is None:
            group = self._groups[key] = _Group(sample.better, sample.time, place)
        group.time = min(group.time, sample.time)
        known = group.values.get(sample.nodes)
        if known is not None:
            group.again = group.again or place
        worse = min if sample.better == "higher" else max
        group.values[sample.nodes] = sample.value if known is None else worse(known, sample.value)

    def series(self) -> dict[str, Series]:
        """Give what was read, or raise all faults."""
        jobs: dict[str, list[Job]] = {}
        parted = {metric for (metric, _), group in self._groups.items() if len(group.values) > 1}
        for (metric, run), group in self._groups.items():
            if group.again and metric not in parted:
                self._fault(f"{metric} of run {run} stands at {group.place} too (a job has one value)", group.again)
            jobs.setdefault(metric, []).append(Job(run, group.time, group.values))
        if self._faults:
            raise SamplesError(self._faults, self._fault_count)
        return {
            metric: Series(metric, self._better[metric][0], tuple(sorted(own, key=lambda job: (job.time, job.run))))
            for metric, own in sorted(jobs.items())
        }


def _whole_lines(blocks: Iterable[bytes]) -> Iterator[bytes]:
    """Cut blocks after a newline; the last one gets a newline if it has none."""
    rest = b""
    for block in blocks:
        end = block.rfind(b"\n") + 1
        if end:
            yield rest + block[:end]
            rest = block[end:]
        elif len(rest) <= LINE_LIMIT:
            rest += block
        else:
            raise SamplesError([f"a line is longer than {LINE_LIMIT} bytes: these are no samples"], 1)
    if rest:
        yield rest + b"\n"
