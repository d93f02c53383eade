"""The journal: what the helper decided, a line for each node, step and part of the helper.

The scripts write `part=prolog release=R mode=observe … us=1234` (spank_helpers/prolog.sh, wrapper.sh), which is read
here from what journald exports as JSON, from lines of a system log, and from a job's own log. No value in it is a
user's; what does not look like a line of ours, or lacks its end, is counted and passed over.
"""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from lumisite.errors import LumisiteError
from lumisite.findings.catalogue import make_finding
from lumisite.findings.finding import Finding, Place, Severity, place_severity

#: Longer lines are no lines of the helper.
MOST_LINE_BYTES = 64 * 1024
#: More lines of the helper than these are not summed up: each takes some 300 bytes.
MOST_RECORDS = 2_000_000
_BEGIN = re.compile(r"part=(?:prolog|wrapper) release=")
_WORD = re.compile(r"([a-z-]+)=([!-~]*)")
_NUMBERS = ("job", "step", "rank")
#: What was decided, and what was not done, by the keys of a line.
DECIDED = ("set", "unset", "bind", "no-bind", "cpus")
REFUSED = ("left", "missing", "no-cpus", "no-place", "unsure", "harm")
#: What the state of a node decides, whoever runs there: its key, and the finding where other nodes have it.
_OF_NODE = {"missing": "journal-missing", "no-place": "journal-no-place", "no-cpus": "journal-unknown-node"}


@dataclass(frozen=True)
class JournalLine:
    """One line; `values` has each key's values in their order, `microseconds` is `None` where it is not known."""

    part: str
    mode: str
    job: str
    step: str
    node: str
    partition: str
    microseconds: int | None
    values: Mapping[str, tuple[str, ...]]


@dataclass
class Journal:
    """What all lines say.

    `steps` has the steps by mode, `modes` the mode of each job. `decided` counts, by mode and then key, in how many
    steps each value was decided, `refused` the same for what was not done. `spent` has the milliseconds of a step on a
    node, prolog and wrapper together. `first_damaged` is the place of the first line that is damaged.
    """

    lines: int = 0
    records: int = 0
    damaged: int = 0
    first_damaged: Place | None = None
    steps: dict[str, set[tuple[str, str]]] = field(default_factory=lambda: defaultdict(set))
    modes: dict[str, str] = field(default_factory=dict)
    decided: dict[str, dict[str, Counter[str]]] = field(
        default_factory=lambda: defaultdict(lambda: defaultdict(Counter))
    )
    refused: dict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    spent: dict[tuple[str, str, str], float] = field(default_factory=dict)
    nodes: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    lacking: dict[tuple[str, str, str], set[str]] = field(default_factory=lambda: defaultdict(set))
    _counted: set[tuple[str, str, str]] = field(default_factory=set)

    def read(self, lines: Iterable[bytes], where: str) -> None:
        """Add the lines of one file; raises `LumisiteError` for more than `MOST_RECORDS`."""
        for number, line in enumerate(lines, start=1):
            self.lines += 1
            text = _message(line)
            begin = _BEGIN.search(text)
            if begin is None:
                continue
            record = parse_record(text[begin.start() :].rstrip())
            if record is None:
                self.damaged += 1
                self.first_damaged = self.first_damaged or Place(where, number)
                continue
            if self.records == MOST_RECORDS:
                raise LumisiteError(make_finding("journal-too-large", place=Place(where, number), most=MOST_RECORDS))
            self._add(record)

    def _add(self, record: JournalLine) -> None:
        self.records += 1
        self.steps[record.mode].add((record.job, record.step))
        self.modes[record.job] = record.mode
        if record.microseconds is not None:
            on_node = record.job, record.step, record.node
            self.spent[on_node] = self.spent.get(on_node, 0.0) + record.microseconds / 1000
        # Once a step, however many nodes it has: that all have it says nothing more.
        counted = record.job, record.step, record.part
        if counted not in self._counted:
            self._counted.add(counted)
            for key in DECIDED:
                values = record.values.get(key, ())
                self.decided[record.mode][key].update(["any"] if key == "cpus" and values else values)
            for key in REFUSED:
                self.refused[key].update(record.values.get(key, ()))
        if record.part == "prolog":
            self.nodes[record.partition].add(record.node)
            for key, code in _OF_NODE.items():
                for value in record.values.get(key, ()):
                    if key != "no-cpus" or value == "unknown-node":
                        self.lacking[record.partition, code, value].add(record.node)

    @property
    def node_count(self) -> int:
        """How many nodes there are, of which one may be in several partitions."""
        return len(set().union(*self.nodes.values()))

    def overheads(self) -> dict[str, float | None]:
        """Return the milliseconds below which half and 99 % of the steps stay, `None` where no line has a time."""
        spent = sorted(self.spent.values())
        parts = {"p50": 0.5, "p99": 0.99}
        return {name: spent[int(part * len(spent))] if spent else None for name, part in parts.items()}

    def findings(self) -> Iterator[Finding]:
        """Yield the damage, and what fewer than half of the nodes of a partition lack, with those nodes."""
        if self.damaged:
            yield make_finding("journal-damaged", place=self.first_damaged, count=self.damaged)
        for (partition, code, value), nodes in sorted(self.lacking.items()):
            every = len(self.nodes[partition])
            if place_severity(len(nodes), every) is Severity.NODE:
                others = every - len(nodes)
                yield make_finding(code, value, nodes=sorted(nodes), partition=partition, others=others)


def _message(line: bytes) -> str:
    """Return the text of a line, of journald's JSON what was logged."""
    if len(line) > MOST_LINE_BYTES:
        return ""
    if line.startswith(b"{"):
        try:
            message = json.loads(line).get("MESSAGE", "")
        except (ValueError, RecursionError):
            return line.decode(errors="replace")  # torn: it counts as damaged where it begins as a line of ours
        if isinstance(message, list):  # what is no UTF-8 is a list of bytes
            return bytes(byte for byte in message if isinstance(byte, int) and 0 <= byte < 256).decode(errors="replace")
        return message if isinstance(message, str) else ""
    return line.decode(errors="replace")


def parse_record(text: str) -> JournalLine | None:
    """Parse one line of the helper, `None` for one that is torn or mixed with another.

    >>> parse_record("part=prolog release=r mode=act job=1 step=0 rank=0 node=n1 in=s/one/gpu/p/k us=900").partition
    'p'
    """
    words = [_WORD.fullmatch(word) for word in text.split(" ")]
    pairs = [(word[1], word[2]) for word in words if word is not None]
    if len(pairs) != len(words) or pairs[-1][0] != "us":
        return None
    values: dict[str, tuple[str, ...]] = {}
    for key, value in pairs:
        values[key] = (*values.get(key, ()), value)
    first = {key: values.get(key, ("",))[0] for key in ("mode", *_NUMBERS, "node", "in", "us")}
    if any(len(values.get(key, ())) != 1 for key in ("part", "mode", *_NUMBERS, "node", "us")):
        return None  # two lines in one
    numbers = all(re.fullmatch(r"[0-9]{1,10}", first[key]) for key in _NUMBERS)
    if not numbers or first["mode"] not in ("observe", "act") or not first["node"]:
        return None
    partition = first["in"].rpartition("/")[0].rpartition("/")[2]
    microseconds = int(first["us"]) if re.fullmatch(r"[0-9]{1,12}", first["us"]) else None
    mode, job, step, node = (first[key] for key in ("mode", "job", "step", "node"))
    return JournalLine(pairs[0][1], mode, job, step, node, partition, microseconds, values)
