"""Read what NCCL logs (`NCCL_DEBUG=INFO`) into facts about each process, in one pass and in little memory.

Forms of the lines: NCCL 2.10 to 2.30 and what is built on its source, with the OFI plugin from 1.3 to 1.21, checked
against the messages in their sources. Launchers put things before a line (`srun -l`, mpirun, PALS, Ray, times), so a
record is found by the `NCCL INFO` or `NCCL WARN` in it, and belongs to the `host:pid:tid [gpu]` directly before that,
wherever on the line this is. A line without it is no record, nor is one into which another process wrote.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import pairwise

from lumisite.findings.catalogue import make_finding
from lumisite.text import natural, whole_lines
from lumisite.validate import InputError
from lumisite.validate.transport.communicators import Alive
from lumisite.validate.transport.lines import (
    CHANNEL_LINE,
    HEADS,
    TROUBLE,
    Channel,
    Fact,
    LogLine,
    ProcessLog,
    quote,
    read_record,
    text_of,
)

#: A line may be as long as this before its beginning is given up (a log that lost its line ends has one; a core dump).
LINE_LIMIT = 1 << 18
#: The logs of a run are not larger than this together.
LOG_LIMIT_BYTES = 1 << 36
#: Ways of a channel that stays in its node; the last one is that of NCCL up to 2.11.
WITHIN_NODES = (b" via P2P/", b" via SHM/", b" via direct shared memory")
#: What of a line is looked at before its record.
BEFORE_BYTES = 400
#: Characters of the line that shows a fact.
TEXT_LIMIT = 200
#: What a record can matter by: the rest is never looked at in Python, and a log is mostly channels within nodes and
#: lines of collectives.
_MATTERS = re.compile(
    rb"NCCL (?!INFO Chan)(?:INFO[ \t]+(?=((?:%b)[^\n]{0,4000}))|WARN (?=([^\n]{0,4000})))"
    % b"|".join(map(re.escape, sorted(HEADS)))
)

_PREFIX = re.compile(rb"([\w.-]+):(\d+):\d+ \[\d+\] ?[^\[\]]*$")


@dataclass
class Log:
    """All processes of a run.

    `within_nodes`: channels within a node were seen; `dropped`: Ray left lines out; `lines`: there are lines of NCCL;
    `torn`: a line about a communicator has another one in it; `evidence`: the first line that shows each fact.
    """

    processes: list[ProcessLog] = field(default_factory=list)
    within_nodes: bool = False
    dropped: bool = False
    lines: bool = False
    torn: bool = False
    evidence: dict[Fact, LogLine] = field(default_factory=dict)
    communicators: Alive = field(default_factory=dict)


def scan(sources: Iterable[tuple[str, Iterable[bytes]]]) -> Log:
    """Read every source, a name and its blocks of bytes of any size, in order. Raises `InputError` for too many."""
    scanner = _Scanner()
    for name, blocks in sources:
        scanner.start(name)
        for block in whole_lines(blocks, lambda line: line[-LINE_LIMIT:]):
            scanner.read(block)
    return scanner.log()


class _Scanner:
    """The state of one pass."""

    def __init__(self) -> None:
        self._bytes = 0
        self._processes: dict[tuple[str, str], ProcessLog] = {}
        self._by_prefix: dict[bytes, ProcessLog] = {}
        self._channels: set[bytes] = set()
        self._source = ""
        self._line = 0
        self._ray = False
        self._log = Log()

    def start(self, name: str) -> None:
        """Go on to another file."""
        self._source, self._line = name, 0
        self._by_prefix.clear()
        self._channels.clear()

    def read(self, block: bytes) -> None:
        """Read whole lines."""
        self._bytes += len(block)
        if self._bytes > LOG_LIMIT_BYTES:
            raise InputError(make_finding("file-too-large", self._source, most_bytes=LOG_LIMIT_BYTES))
        if not self._log.within_nodes:
            self._log.within_nodes = any(way in block for way in WITHIN_NODES)
        if b"NCCL " in block:
            self._log.lines = True
            self._read_records(block)
            self._read_channels(block)
        if self._ray and not self._log.dropped:
            self._log.dropped = b"x across cluster]" in block
        self._line += block.count(b"\n")

    def _read_records(self, block: bytes) -> None:
        for found in _MATTERS.finditer(block):
            text, at = found[1] or found[2], found.start()
            if b"NCCL INFO " in text or b"NCCL WARN " in text:  # another process wrote into it
                self._log.torn = self._log.torn or text.startswith((b"comm", b"nccl"))
                continue
            trouble = found[1] is None and TROUBLE.match(text)
            if found[1] is None and not trouble and text[:4] not in HEADS:
                continue
            # Mostly a few processes speak, and what stands before their records was seen before.
            prefix = block[block.rfind(b" ", 0, at - 6 if at > 6 else 0) + 1 : at]
            process = self._by_prefix.get(prefix) or self._process(block[max(0, at - BEFORE_BYTES) : at])
            if process is None:
                continue
            if trouble:
                process.messages.setdefault("warned", quote(text))
            if facts := read_record(process, text):
                self._note(facts, block, at)

    def _read_channels(self, block: bytes) -> None:
        """Read channels between nodes, which are most of a log and say few different things.

        Only the end of the prefix and what follows the direction are kept, without the numbers of channel and peers, so
        that nearly all lines of a process are equal and never looked at twice.
        """
        heads = block.split(b"] via NET/")
        found = set()
        for head, tail in pairwise(heads):
            line = head[head.rfind(b"\n") + 1 :]
            # Up to the N of NCCL; empty where this is no record.
            before = line[: line.rfind(b"NCCL ") + 1]
            found.add(b"%b] via NET/%b\n%b" % (head[-4:], tail.partition(b"\n")[0], before))
        facts: set[Fact] = set()
        for channel in found - self._channels:
            text, _, before = channel.partition(b"\n")
            match = CHANNEL_LINE.search(text)
            process = self._process(before[:-1])
            if match and process and b"NCCL " not in text:
                process.channels.add(_channel_of(match))
                facts.update(_facts_of(match))
        self._channels |= found
        if not self._log.evidence.keys() >= facts:
            for match in CHANNEL_LINE.finditer(block):
                self._note(facts.intersection(_facts_of(match)), block, match.start())

    def _note(self, facts: Iterable[Fact], block: bytes, at: int) -> None:
        """Remember the first line that shows each fact."""
        known = self._log.evidence
        if new := [fact for fact in facts if fact not in known]:
            known.update(dict.fromkeys(new, self._line_at(block, at)))

    def _line_at(self, block: bytes, at: int) -> LogLine:
        start = block.rfind(b"\n", 0, at) + 1
        record = block.rfind(b"NCCL ", start, at)
        text = block[record if record >= 0 else at : block.find(b"\n", at)][: 4 * TEXT_LIMIT]
        words = quote(text.removeprefix(b"NCCL ").removeprefix(b"INFO").removeprefix(b"WARN"), TEXT_LIMIT)
        return LogLine(self._source, self._line + block.count(b"\n", 0, at) + 1, words)

    def _process(self, before: bytes) -> ProcessLog | None:
        """Return the process whose record comes after `before`, the end of some lines, if that names one."""
        line = before[before.rfind(b"\n") + 1 :]
        prefix = line[line.rfind(b" ", 0, max(0, len(line) - 6)) + 1 :]
        if process := self._by_prefix.get(prefix):
            return process
        found = _PREFIX.search(line[-BEFORE_BYTES:])
        self._ray = self._ray or b" pid=" in line
        if found is None:
            return None
        name = (text_of(found[1]), text_of(found[2]))
        process = self._processes.get(name)
        if process is None:
            process = self._processes[name] = ProcessLog(*name, self._log.communicators)
        if _PREFIX.fullmatch(prefix.rpartition(b">:")[2]):
            self._by_prefix[prefix] = process
        return process

    def log(self) -> Log:
        """Return what was read."""
        by_name = sorted(self._processes.values(), key=lambda process: natural(process.name))
        self._log.processes = sorted(by_name, key=lambda process: 1 << 30 if process.rank is None else process.rank)
        return self._log


def _facts_of(channel: re.Match[bytes]) -> tuple[Fact, ...]:
    return ("channel", text_of(channel[2])), ("gdr", str(channel[4] is not None))


def _channel_of(found: re.Match[bytes]) -> Channel:
    sends = {b"send": True, b"eive": False}.get(found[1])
    return Channel(text_of(found[2]), int(found[3]), sends, found[4] is not None)
