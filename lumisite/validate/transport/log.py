"""Read what NCCL logs (`NCCL_DEBUG=INFO`) into facts about each process, in one pass and in little memory.

Forms of the lines: NCCL 2.10 to 2.30 and what is built on its source, with the OFI plugin from 1.3 to 1.21, checked
against the messages in their sources. Launchers put things before a line (`srun -l`, mpirun, PALS, Ray, times), and
several processes that write to one pipe tear each other's lines; so a record is found by the `NCCL INFO` or `NCCL WARN`
in it, and belongs to the `host:pid:tid [gpu]` directly before that, wherever on the line this is.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import pairwise

from lumisite.text import natural, whole_lines
from lumisite.validate.transport.lines import (
    CHANNEL_LINE,
    HEADS,
    PEERS,
    TROUBLE,
    Channel,
    Evidence,
    Fact,
    Process,
    note,
    text_of,
)

#: A line may be as long as this before its beginning is given up (a log that lost its line ends has one; a core dump).
LINE_LIMIT = 1 << 18
#: Prefixes of lines whose process is remembered, and channel lines that were seen: what is over this is found anew.
PREFIXES_KEPT = 100_000
CHANNELS_KEPT = 200_000
#: Ranks at the ends of channels that are remembered: more than any run has.
RANKS_KEPT = 1_000_000
#: No more records than this are on one line because processes tear one another's.
TORN_TOGETHER = 4
#: Ways of a channel that stays in its node; the last one is that of NCCL up to 2.11.
WITHIN_NODES = (b" via P2P/", b" via SHM/", b" via direct shared memory")
#: What of a line is looked at before its record.
BEFORE_BYTES = 2000
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
_RECORD = re.compile(rb"NCCL (?:INFO|WARN) ")
#: Threads of a process that are remembered, to know its torn lines by.
THREADS_KEPT = 64

#: Some people take the thread out of what they publish, or write a name in brackets for the host.
_PREFIX = re.compile(rb"([\w.-]+)[\]>]?:(\d+)(?::(\d+))? \[(\d+)\] ?[^\[\]]*$")
#: Where one record ends and the next one begins when a log has lost its line ends on the way, pasted or in a string.
_NEXT = re.compile(rb"(?:\s|\\n)([\w.-]+:\d+:\d+ \[\d+\] )\Z")
#: Messages of excerpts that somebody has cut down to them, and what may stand before those of a log.
_BARE = re.compile(
    rb"(?:NET/(?:OFI|Plugin|Socket|IB)\b|Using +network |Connected all |Channel \d[^\n]* via NET/|via NET/)[^\n]*"
)
_LEAD = re.compile(rb"[\s>|]*(?:\[\d+\] )?")
#: What looks like host, process and thread where those are gone and a time of day stands before `[gpu]`.
_TIME = re.compile(rb"(?:\d{4}-\d\d-\d\dT)?\d\d:\d\d:\d\d ")
#: Colours, as Ray writes them.
_COLOUR = re.compile(rb"\x1b\[[\d;?]*[A-Za-z]")
_TAG = re.compile(rb"\[\d+,(\d+)\]<\w+>|^ *(\d+): |^\S+ (\d+): |\(\w+ pid=(\d+)|\[rank(\d+)\]")


@dataclass
class Log:
    """All processes of a run.

    `within_nodes`: channels within a node were seen; `dropped`: Ray left lines out; `lines`: there are lines of NCCL;
    `bare`: there are its messages without anything before them; `loose`: what messages in the midst of other text say;
    `evidence`: the first line that shows each fact; `ends`: the ranks at the ends of channels between nodes, by whether
    a line of their own process names them, while no line says how many ranks there are.
    """

    processes: list[Process] = field(default_factory=list)
    within_nodes: bool = False
    dropped: bool = False
    lines: bool = False
    bare: bool = False
    loose: Process = field(default_factory=lambda: Process("", ""))
    evidence: dict[Fact, Evidence] = field(default_factory=dict)
    ends: dict[int, bool] = field(default_factory=dict)


def scan(sources: Iterable[tuple[str, Iterable[bytes]]]) -> Log:
    """Read every source, a name and its blocks of bytes of any size, in order."""
    scanner = _Scanner()
    for name, blocks in sources:
        scanner.source(name)
        for block in whole_lines(blocks, lambda line: line[-LINE_LIMIT:]):
            scanner.read(block)
    return scanner.log()


def _shown_by(channel: re.Match[bytes]) -> tuple[Fact, ...]:
    gdr = () if channel[5] is None else (("gdr", str(channel[4] is not None)),)
    return ("channel", text_of(channel[2])), *gdr


class _Scanner:
    """The state of one pass."""

    def __init__(self) -> None:
        self._processes: dict[tuple[str, str], Process] = {}
        self._by_prefix: dict[bytes, Process] = {}
        self._told: set[bytes] = set()
        self._source = ""
        self._before = 0
        self._ray = False
        self._named: set[str] = set()
        self._log = Log()

    def source(self, name: str) -> None:
        """Go on to another file: lines without a process of their own belong to it."""
        self._source, self._before = name, 0
        self._log.loose.host = self._log.loose.host or name
        self._by_prefix.clear()
        self._told.clear()

    def read(self, block: bytes) -> None:
        """Take whole lines."""
        lines = block.count(b"\n")
        if b"\x1b" in block:
            block = _COLOUR.sub(b"", block)
        if not self._log.within_nodes:
            self._log.within_nodes = any(way in block for way in WITHIN_NODES)
        alone = b"NCCL " not in block
        if not alone:
            self._log.lines = True
            for found in _MATTERS.finditer(block):
                text, at = found[1] or found[2], found.start()
                # Mostly a few processes speak, and what stands before their records was seen before.
                process = self._by_prefix.get(block[block.rfind(b" ", 0, at - 6 if at > 6 else 0) + 1 : at])
                if process is None or found[1] is None or b"NCCL " in text:
                    self._read_odd(block, found)
                else:
                    process.records += 1
                    if facts := note(process, text):
                        self._show(facts, block, at)
            self._read_channels(block)
        if alone or len(block) < EXCERPT_BYTES:
            self._read_bare(block, alone=alone)
        if self._ray and not self._log.dropped:
            self._log.dropped = b"x across cluster]" in block
        self._before += lines

    def _read_odd(self, block: bytes, found: re.Match[bytes]) -> None:
        """Take a record whose process has to be found out, that may be torn, or that warns."""
        at, text = found.start(), found[1] or found[2]
        start, end = max(block.rfind(b"\n", 0, at) + 1, at - BEFORE_BYTES), block.find(b"\n", at)
        before = block[start:at]
        if another := _RECORD.search(block, at + 5, end):
            # A record that stands before another one on a line is torn, and its last word may be half a word, unless
            # so many are on one line that its line ends were lost.
            own = _NEXT.search(block, at, another.start())
            if own is None or block.count(b"NCCL ", start, min(end, at + BEFORE_BYTES)) <= TORN_TOGETHER:
                return
            text = block[found.start(1 if found[1] else 2) : own.start()]
        alone = b"NCCL " not in before
        if not alone and (own := _NEXT.search(before)):
            before = own[1]
        trouble = found[1] is None and TROUBLE.match(text)
        if not trouble and text[:4] not in HEADS:
            return
        process = self._process(before)
        if alone and before[before.rfind(b" ", 0, max(0, len(before) - 6)) + 1 :] in self._by_prefix:
            self._by_prefix[block[block.rfind(b" ", 0, max(0, at - 6)) + 1 : at]] = process
        if trouble:
            process.told.setdefault("warned", text_of(text))
        self._show(note(process, text), block, at)

    def _read_channels(self, block: bytes) -> None:
        """Take channels between nodes, which are most of a log and say few different things.

        Only the end of the prefix and what follows the direction are kept, without the numbers of channel and peers, so
        that nearly all lines of a process are equal and never looked at twice.
        """
        heads = block.split(b"] via NET/")
        told = {
            behind.partition(b"\n")[0] + b"\n" + head[-4:] + head.rpartition(b"\n")[2].rsplit(b"NCCL ", 1)[0]
            for head, behind in pairwise(heads)
        }
        if not any(process.world for process in self._processes.values()):
            self._read_ends(heads[:-1])
        facts: set[Fact] = set()
        told -= self._told
        for one in told:
            tail, _, before = one.partition(b"\n")
            text, before = b"%b] via NET/%b" % (before[:4], tail), before[4:]
            # What another record was written into does not end there; and a line without `NCCL` is no record.
            found = CHANNEL_LINE.search(text.partition(b"NCCL ")[0] + (b"NCCL" if b"NCCL " in text else b""))
            if found and not before.endswith(text[:4]):
                process = self._process(before[before.rfind(b" ", 0, max(0, len(before) - 6)) + 1 :])
                facts.update(self._channel(process, found))
        if len(self._told) > CHANNELS_KEPT:
            self._told.clear()
        self._told |= told
        if not self._log.evidence.keys() >= facts:
            for found in CHANNEL_LINE.finditer(block):
                self._show(facts.intersection(_shown_by(found)), block, found.start())

    def _read_ends(self, heads: Iterable[bytes]) -> None:
        for found in filter(None, (PEERS.search(head[-80:]) for head in heads)):
            own, other = map(int, found.group(1, 2) if found[3] == b"send" else found.group(2, 1))
            if len(self._log.ends) < RANKS_KEPT:
                self._log.ends.setdefault(other, False)
                self._log.ends[own] = True

    def _read_bare(self, block: bytes, *, alone: bool) -> None:
        """Take messages without anything before them, of which only the file tells whose they are.

        In the midst of a line, or among records (not `alone`), they are an excerpt's: shown, and nothing is judged by
        them.
        """
        if b"NET/" not in block and b"Using network" not in block:
            return
        for found in _BARE.finditer(block):
            start = block.rfind(b"\n", 0, found.start()) + 1
            lead = block[start : found.start()]
            if b"NCCL " in lead:
                continue
            whole = alone and _LEAD.fullmatch(lead) is not None and not found[0].startswith(b"via")
            self._log.bare |= whole
            process = self._process(b"") if whole else self._log.loose
            channel = CHANNEL_LINE.search(found[0])
            facts = self._channel(process, channel) if channel else note(process, found[0])
            self._show(facts, block, found.start())

    def _channel(self, process: Process, found: re.Match[bytes]) -> tuple[Fact, ...]:
        gdr = None if found[5] is None else found[4] is not None
        sends = {b"send": True, b"eive": False}.get(found[1])
        # Without its direction it is somebody's note, or torn: it is shown, and proves nothing.
        process = process if sends is not None else self._log.loose
        process.channels.add(Channel(text_of(found[2]), int(found[3]), sends, gdr))
        return _shown_by(found)

    def _show(self, facts: Iterable[Fact], block: bytes, at: int) -> None:
        """Remember the first line that shows each fact."""
        known = self._log.evidence
        if (new := [fact for fact in facts if fact not in known]) and len(known) < EVIDENCE_KEPT:
            start = block.rfind(b"\n", 0, at) + 1
            record = block.rfind(b"NCCL ", start, at)
            text = block[record if record >= 0 else at : block.find(b"\n", at)][: 4 * TEXT_LIMIT]
            words = text_of(text.removeprefix(b"NCCL ").removeprefix(b"INFO").removeprefix(b"WARN"))
            words = words if len(words) <= TEXT_LIMIT else words[: TEXT_LIMIT - 1] + "…"
            line = self._before + block.count(b"\n", 0, at) + 1
            known.update(dict.fromkeys(new, Evidence(self._source, line, words)))

    def _process(self, before: bytes) -> Process:
        """Find whose record comes after `before`."""
        prefix = before[before.rfind(b" ", 0, max(0, len(before) - 6)) + 1 :]
        process = self._by_prefix.get(prefix)
        if process is None:
            process = self._identify(before, prefix)
        process.records += 1
        return process

    def _identify(self, line: bytes, prefix: bytes) -> Process:
        found = _PREFIX.search(line[-400:])
        self._ray = self._ray or b" pid=" in line
        if found and (_TIME.match(found[0]) or (found[1].isdigit() and found[3] is None)):
            found = None  # a time of day, or a torn line that has lost its host
        if found:
            name = (text_of(found[1]), text_of(found[2]))
        else:
            tag = _TAG.search(line)
            name = (self._source, f"[{text_of(next(filter(None, tag.groups())))}]" if tag else "")
        process = self._processes.setdefault(name, Process(*name))
        if found:
            if found[3] and len(process.threads) < THREADS_KEPT:
                process.threads.add(found[3])
            self._named.add(self._source)
        if len(self._by_prefix) > PREFIXES_KEPT:
            self._by_prefix.clear()
        if found and _PREFIX.fullmatch(prefix.rpartition(b">:")[2]):
            self._by_prefix[prefix] = process
        return process

    def log(self) -> Log:
        """Give what was seen."""
        for host, pid in list(self._processes):
            if not pid.isdigit() and host in self._named:
                del self._processes[host, pid]  # torn lines that have lost their process
        loose = self._log.loose
        if not self._processes and (loose.channels or loose.used or loose.opened or loose.providers or loose.told):
            self._processes[loose.host, ""], self._log.bare = loose, True
            self._log.loose = Process(loose.host, "")
        _join_torn(self._processes)
        by_name = sorted(self._processes.values(), key=lambda process: natural(process.name))
        self._log.processes = sorted(by_name, key=lambda process: 1 << 30 if process.rank is None else process.rank)
        return self._log


def _join_torn(processes: dict[tuple[str, str], Process]) -> None:
    """Give back what was read under half a host name (`d001:77:78`), or one glued to another line (`0nid001:77:78`).

    Such a part has process and thread number of the whole, and little to say, or less and a name with the same end.
    """
    by_pid: dict[str, list[Process]] = {}
    for process in processes.values():
        by_pid.setdefault(process.pid, []).append(process)
    for group in (group for pid, group in by_pid.items() if pid.isdigit()):
        wholes: list[Process] = []
        for part in sorted(group, key=lambda process: (-process.records, process.host)):
            if whole := next((one for one in wholes if _is_part(part, one)), None):
                _add(whole, part)
                del processes[part.host, part.pid]
            else:
                wholes.append(part)


def _is_part(part: Process, whole: Process) -> bool:
    if not part.threads or not part.threads <= whole.threads:
        return False
    same_end = part.host.endswith(whole.host) or whole.host.endswith(part.host)
    return part.records * 4 <= whole.records or (same_end and part.records < whole.records)


def _add(whole: Process, part: Process) -> None:
    if part.world > whole.world:
        whole.world, whole.ranks = part.world, part.ranks
    elif part.world == whole.world:
        whole.ranks |= part.ranks
    for name in ("used", "channels", "providers", "counted", "devices", "adapters", "opened"):
        getattr(whole, name).update(getattr(part, name))
    for name in ("begun", "completed", "rings", "trees"):
        setattr(whole, name, getattr(whole, name) + getattr(part, name))
    whole.told = part.told | whole.told
    # A communicator that began under one name may have completed under the other.
    if part.completed:
        whole.pending.clear()
    whole.pending |= part.pending if not whole.completed else set()
