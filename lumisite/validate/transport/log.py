"""Read what NCCL logs (`NCCL_DEBUG=INFO`) into facts about each process, in one pass and in little memory.

Forms of the lines: NCCL 2.10 to 2.30 and what is built on its source, with the OFI plugin from 1.3 to 1.21, checked
against the messages in their sources. Launchers put things before a line (`srun -l`, mpirun, PALS, Ray, times), so a
record is found by the `NCCL INFO` or `NCCL WARN` in it, and belongs to the `host:pid:tid [gpu]` directly before that,
wherever on the line this is. A record into which another process wrote is not read.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import pairwise

from lumisite.text import natural, whole_lines
from lumisite.validate.transport.communicators import PROCESS_ITEMS, Kept
from lumisite.validate.transport.lines import (
    CHANNEL_LINE,
    HEADS,
    PEERS,
    TROUBLE,
    Channel,
    Fact,
    LogLine,
    ProcessLog,
    add,
    quote,
    read_record,
    text_of,
)

#: A line may be as long as this before its beginning is given up (a log that lost its line ends has one; a core dump).
LINE_LIMIT = 1 << 18
#: Prefixes of lines whose process is remembered, and channel lines that were seen: what is over this is found anew.
PREFIXES_KEPT = 100_000
CHANNELS_KEPT = 200_000
#: Ranks at the ends of channels that are remembered: more than any run has.
RANKS_KEPT = 1_000_000
#: Ways of a channel that stays in its node; the last one is that of NCCL up to 2.11.
WITHIN_NODES = (b" via P2P/", b" via SHM/", b" via direct shared memory")
#: What of a line is looked at before its record.
BEFORE_BYTES = 400
#: A block that is shorter is an excerpt, in which messages may have lost what stood before them.
EXCERPT_BYTES = 1 << 12
#: Facts whose first line is remembered, and characters of that line.
EVIDENCE_KEPT, TEXT_LIMIT = 1_000, 200
#: What a record can matter by: the rest is never looked at in Python, and a log is mostly channels within nodes and
#: lines of collectives.
_MATTERS = re.compile(
    rb"NCCL (?!INFO Chan)(?:INFO[ \t]+(?=((?:%b)[^\n]{0,4000}))|WARN (?=([^\n]{0,4000})))"
    % b"|".join(map(re.escape, sorted(HEADS)))
)

#: Some people take the thread out of what they publish, or write a name in brackets for the host.
_PREFIX = re.compile(rb"([\w.-]+)[\]>]?:(\d+)(?::(\d+))? \[(\d+)\] ?[^\[\]]*$")
#: Messages of excerpts that somebody has cut down to them, and what may stand before those of a log.
_BARE = re.compile(
    rb"(?:NET/(?:OFI|Plugin|Socket|IB)\b|Using +network |Connected all |Channel \d[^\n]* via NET/|via NET/)[^\n]*"
)
_LEAD = re.compile(rb"[\s>|]*(?:\[\d+\] )?")
#: What looks like host, process and thread where those are gone and a time of day stands before `[gpu]`.
_TIME = re.compile(rb"(?:\d{4}-\d\d-\d\dT)?\d\d:\d\d:\d\d ")
_TAG = re.compile(rb"\[\d+,(\d+)\]<\w+>|^ *(\d+): |^\S+ (\d+): |\(\w+ pid=(\d+)|\[rank(\d+)\]")


@dataclass
class Log:
    """All processes of a run.

    `within_nodes`: channels within a node were seen; `dropped`: Ray left lines out; `lines`: there are lines of NCCL;
    `bare`: there are its messages without anything before them; `loose`: what messages in the midst of other text say;
    `evidence`: the first line that shows each fact; `ends`: the ranks at the ends of channels between nodes, by whether
    a line of their own process names them, while no line says how many ranks there are; `kept`: the communicators, and
    how much more may be kept; `refused`: the first line of which something was not.
    """

    processes: list[ProcessLog] = field(default_factory=list)
    within_nodes: bool = False
    dropped: bool = False
    lines: bool = False
    bare: bool = False
    loose: ProcessLog = field(default_factory=lambda: ProcessLog("", ""))
    evidence: dict[Fact, LogLine] = field(default_factory=dict)
    ends: dict[int, bool] = field(default_factory=dict)
    kept: Kept = field(default_factory=Kept)
    refused: LogLine | None = None


def scan(sources: Iterable[tuple[str, Iterable[bytes]]]) -> Log:
    """Read every source, a name and its blocks of bytes of any size, in order."""
    scanner = _Scanner()
    for name, blocks in sources:
        scanner.start(name)
        for block in whole_lines(blocks, lambda line: line[-LINE_LIMIT:]):
            scanner.read(block)
    return scanner.log()


class _Scanner:
    """The state of one pass."""

    def __init__(self) -> None:
        self._processes: dict[tuple[str, str], ProcessLog] = {}
        self._by_prefix: dict[bytes, ProcessLog] = {}
        self._channels: set[bytes] = set()
        self._source = ""
        self._line = 0
        self._ray = False
        self._named: set[str] = set()
        self._log = Log()

    def start(self, name: str) -> None:
        """Go on to another file: lines without a process belong to the file."""
        self._source, self._line = name, 0
        self._log.loose.host = self._log.loose.host or name
        self._by_prefix.clear()
        self._channels.clear()

    def read(self, block: bytes) -> None:
        """Read whole lines."""
        if not self._log.within_nodes:
            self._log.within_nodes = any(way in block for way in WITHIN_NODES)
        is_log = b"NCCL " in block
        if is_log:
            self._log.lines = True
            self._read_records(block)
            self._read_channels(block)
        if not is_log or len(block) < EXCERPT_BYTES:
            self._read_bare(block, whole=not is_log)
        if self._ray and not self._log.dropped:
            self._log.dropped = b"x across cluster]" in block
        self._line += block.count(b"\n")

    def _read_records(self, block: bytes) -> None:
        for found in _MATTERS.finditer(block):
            text, at = found[1] or found[2], found.start()
            if b"NCCL INFO " in text or b"NCCL WARN " in text:  # another process wrote into it
                if text.startswith((b"comm", b"nccl")):
                    self._process(block[max(0, at - BEFORE_BYTES) : at]).torn = True
                continue
            trouble = found[1] is None and TROUBLE.match(text)
            if found[1] is None and not trouble and text[:4] not in HEADS:
                continue
            # Mostly a few processes speak, and what stands before their records was seen before.
            prefix = block[block.rfind(b" ", 0, at - 6 if at > 6 else 0) + 1 : at]
            process = self._by_prefix.get(prefix) or self._process(block[max(0, at - BEFORE_BYTES) : at])
            if trouble:
                process.messages.setdefault("warned", quote(text))
            if facts := read_record(process, text):
                self._note(facts, block, at)
            if self._log.kept.refused is not None and self._log.refused is None:
                self._log.refused = self._line_at(block, at)

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
        if not any(process.world for process in self._processes.values()):
            self._read_ends(heads[:-1])
        facts: set[Fact] = set()
        for channel in found - self._channels:
            text, _, before = channel.partition(b"\n")
            # What another record was written into does not end there.
            text = text.partition(b"NCCL ")[0] + (b"NCCL" if b"NCCL " in text else b"")
            if before and (match := CHANNEL_LINE.search(text)):
                facts.update(self._channel(self._process(before[:-1]), match))
        if len(self._channels) > CHANNELS_KEPT:
            self._channels.clear()
        self._channels |= found
        if not self._log.evidence.keys() >= facts:
            for match in CHANNEL_LINE.finditer(block):
                self._note(facts.intersection(_facts_of(match)), block, match.start())

    def _read_ends(self, heads: Iterable[bytes]) -> None:
        for found in filter(None, (PEERS.search(head[-80:]) for head in heads)):
            rank, peer = map(int, found.group(1, 2) if found[3] == b"send" else found.group(2, 1))
            if len(self._log.ends) < RANKS_KEPT:
                self._log.ends.setdefault(peer, False)
                self._log.ends[rank] = True

    def _read_bare(self, block: bytes, *, whole: bool) -> None:
        """Read messages without anything before them, of which only the file tells whose they are.

        In the midst of a line, or among records (not `whole`), they are an excerpt's: evidence, and nothing is judged
        by them.
        """
        if b"NET/" not in block and b"Using network" not in block:
            return
        for found in _BARE.finditer(block):
            lead = block[block.rfind(b"\n", 0, found.start()) + 1 : found.start()]
            if b"NCCL " in lead:
                continue
            judged = whole and _LEAD.fullmatch(lead) is not None and not found[0].startswith(b"via")
            self._log.bare |= judged
            process = self._process(b"") if judged else self._log.loose
            channel = CHANNEL_LINE.search(found[0])
            facts = self._channel(process, channel) if channel else read_record(process, found[0])
            self._note(facts, block, found.start())

    def _channel(self, process: ProcessLog, found: re.Match[bytes]) -> tuple[Fact, ...]:
        gdr = None if found[5] is None else found[4] is not None
        sends = {b"send": True, b"eive": False}.get(found[1])
        # Without its direction it is somebody's note: evidence, and no proof.
        process = process if sends is not None else self._log.loose
        add(process.kept, process.channels, Channel(text_of(found[2]), int(found[3]), sends, gdr))
        return _facts_of(found)

    def _note(self, facts: Iterable[Fact], block: bytes, at: int) -> None:
        """Remember the first line that shows each fact."""
        known = self._log.evidence
        if (new := [fact for fact in facts if fact not in known]) and len(known) < EVIDENCE_KEPT:
            known.update(dict.fromkeys(new, self._line_at(block, at)))

    def _line_at(self, block: bytes, at: int) -> LogLine:
        start = block.rfind(b"\n", 0, at) + 1
        record = block.rfind(b"NCCL ", start, at)
        text = block[record if record >= 0 else at : block.find(b"\n", at)][: 4 * TEXT_LIMIT]
        words = quote(text.removeprefix(b"NCCL ").removeprefix(b"INFO").removeprefix(b"WARN"), TEXT_LIMIT)
        return LogLine(self._source, self._line + block.count(b"\n", 0, at) + 1, words)

    def _process(self, before: bytes) -> ProcessLog:
        """Return the process whose record comes after `before`, the end of some lines."""
        line = before[before.rfind(b"\n") + 1 :]
        prefix = line[line.rfind(b" ", 0, max(0, len(line) - 6)) + 1 :]
        if process := self._by_prefix.get(prefix):
            return process
        found = _PREFIX.search(line[-BEFORE_BYTES:])
        self._ray = self._ray or b" pid=" in line
        if found and (_TIME.match(found[0]) or (found[1].isdigit() and found[3] is None)):
            found = None  # a time of day, or a line that has lost its host
        if found:
            name = (text_of(found[1]), text_of(found[2]))
            self._named.add(self._source)
        else:
            tag = _TAG.search(line)
            name = (self._source, f"[{text_of(next(filter(None, tag.groups())))}]" if tag else "")
        process = self._processes.get(name)
        if process is None:
            process = ProcessLog(*name, self._log.kept)
            if self._log.kept.charge(PROCESS_ITEMS):
                self._processes[name] = process
        if len(self._by_prefix) > PREFIXES_KEPT:
            self._by_prefix.clear()
        if found and _PREFIX.fullmatch(prefix.rpartition(b">:")[2]):
            self._by_prefix[prefix] = process
        return process

    def log(self) -> Log:
        """Return what was read."""
        for host, pid in list(self._processes):
            if not pid.isdigit() and host in self._named:
                del self._processes[host, pid]  # lines without a process, in a file that has processes
        loose = self._log.loose
        if not self._processes and (loose.channels or loose.used or loose.opened or loose.providers or loose.messages):
            self._processes[loose.host, ""], self._log.bare = loose, True
            self._log.loose = ProcessLog(loose.host, "")
        by_name = sorted(self._processes.values(), key=lambda process: natural(process.name))
        self._log.processes = sorted(by_name, key=lambda process: 1 << 30 if process.rank is None else process.rank)
        return self._log


def _facts_of(channel: re.Match[bytes]) -> tuple[Fact, ...]:
    gdr = () if channel[5] is None else (("gdr", str(channel[4] is not None)),)
    return ("channel", text_of(channel[2])), *gdr
