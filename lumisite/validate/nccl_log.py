"""Scan what NCCL and the libraries built on it log (`NCCL_DEBUG=INFO`) for facts about each process of a run.

One pass in little memory. The forms of the lines are those in the sources of NCCL 2.18 to 2.30, of what is built on
them, and of the OFI plugin 1.4 to 1.21; older ones mostly fit. Launchers put things before a line, so a record begins
at its `NCCL INFO` or `NCCL WARN`, and belongs to the `host:pid:tid [gpu]` directly before that. A line without it is no
record, nor is one into which another process wrote.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import pairwise

from lumisite.text import natural, whole_lines
from lumisite.validate import InputError
from lumisite.vendors import words_of_logs

#: A line may be as long as this before its beginning is given up (a log that lost its line ends has one).
LINE_LIMIT = 1 << 18
#: The logs of a run are not larger than this together.
LOG_LIMIT_BYTES = 1 << 36
#: What of a line is looked at before its record, and kept of the record.
BEFORE_BYTES, RECORD_BYTES = 400, 4000
#: Characters of a line of the log that are kept to be quoted.
QUOTE_LIMIT = 120
#: Kinds of lines that are remembered before all are forgotten: they only save time.
MOST_SEEN = 1 << 16

#: Channels that stay in their node; most of a log.
WITHIN_NODES = (b" via P2P/", b" via SHM/")
_PREFIX = re.compile(rb"([\w.-]+):(\d+):\d+ \[\d+\] ?[^\[\]]*$")
# A channel that was cut could have lost its /GDRDMA, so the text must end where it should.
_CHANNEL = re.compile(
    rb"(send|eive|\d)\] via NET/(.{1,200}?)/(\d{1,6})(?:\(\d+\))?(/GDRDMA(?:\(PCI\))?)?(?:/Shared)?(?:/flush=\w+)?"
    rb"(?=[\s\\]|$)"
)
_TORN = re.compile(rb"NCCL (?:INFO|WARN) ")
_COMMUNICATOR = re.compile(
    rb"comm (0x[0-9a-fA-F]+) rank (\d{1,9}) n[Rr]anks (\d{1,9}) .*"
    rb"- ?(?:Init (START|COMPLETE)|(Destroy|Abort|Revoke) COMPLETE)"
)
_NODES = re.compile(rb"comm 0x[0-9a-fA-F]+ rank \d+ nRanks (\d{1,9}) nNodes (\d{1,9}) ")

_HARMLESS = b"|".join(word.encode() for word in words_of_logs().harmless)
#: Warnings that may tell why a communicator does not come up, and none of those that good runs begin with.
_TROUBLE = re.compile(
    rb"(?!.*(?:Missing |NUMA |any local path |performance|Could not read|symbol|libibverbs|%b))"
    rb".*(?i:fail|error|closed|refused|time.?out|timed out|unable|invalid|could ?n[o']t|no such|duplicate)" % _HARMLESS
)
#: What NCCL prints once in a process.
_ONCE = (b"Bootstrap", *(text.encode() for text in words_of_logs().once))

#: What a record shows, by field of `Process`: the group of a pattern that matches is a name to add there, or for
#: `connected` a number to count up.
_FACTS: dict[str, tuple[re.Pattern[bytes], ...]] = {
    "used": (re.compile(rb"(?:Using +network|Assigned NET plugin) +([A-Za-z][\w./+-]*(?: [A-Z][\w./+-]*)*)"),),
    # What names a network that was opened, where no line says which one communicators use.
    "opened": (
        re.compile(rb"NET/([\w ]+?) *: GPU Direct RDMA .*for HCA"),
        re.compile(rb"Initialized NET plugin ([A-Z]\w*)"),
        re.compile(rb"NET/(Socket) *: *Using(?: *\[| +network\b| +\d+ threads\b)"),
        re.compile(rb"NET/(IB) *: *Using *\[\d"),
    ),
    "providers": (re.compile(rb"NET/.*?Selected +[Pp]rovider +is +([\w;:+.-]+)"),),
    "connected": (re.compile(rb"Connected all (rings|trees)"),),
    "counted": (re.compile(rb"NET/.*?Selected +[Pp]rovider +is .*?\( *found +(\d{1,6}) +nics?"),),
}
_SOCKETS, _SOCKET = re.compile(rb"NET/Socket *: *Using *\["), re.compile(rb"\[\d+\]([\w.@-]+):")
# Ports of one card stand in braces in NCCL 2.21 to 2.24: `[0]={[0] nic_0:1/RoCE, [1] nic_1:1/RoCE}`.
_ADAPTERS, _ADAPTER = re.compile(rb"NET/IB *: *Using *\["), re.compile(rb"\[\d+\] ?([^\s:={]+):\d+(?::\d+)?/")
_DEVICE = re.compile(rb"for HCA (?:\d+ )?'([^']+)'|GUID of (\S+?):")

_FAILED = b"|".join(words.encode() for words in ("network .* not found", *words_of_logs().failed))
#: The kinds of messages; the first pattern that fits the beginning of a record is its kind.
_KINDS: dict[str, re.Pattern[bytes]] = {
    # A device that the process may not open: its own rights, or those of its container.
    "refused": re.compile(rb".*(?:Unable to open device|open_device failed|open a fabric)"),
    "loaded": re.compile(rb"NET/Plugin.*Loaded net plugin"),
    # The plugin is not there, does not start.
    "fell back": re.compile(
        rb"NET/Plugin(?: ?: Could not find:|.*(?:No plugin found|Using internal net|using internal implementation|"
        rb"Failed to find ncclNetPlugin symbol))"
    ),
    "failed": re.compile(
        rb"(?=NET/(?!Plugin)|Erro|Fail|Inva).*(?:Unable to find a protocol that worked|find any optimal provider|"
        rb"-ofi-\w+ initialization failed|Initializing plugin failed|Failed to initialize any NET plugin|"
        rb"Invalid type of PCI bus|Failed to initialize NET plugin (?!IB\b|Socket\b)|%b)" % _FAILED
    ),
    # Data that was not delivered.
    "broken": re.compile(
        rb"NET/(?!Plugin).*(?:completed with error|Got completion .*with (?:error|status)|RC: (?:107|-38)\b|NO_SPACE)"
    ),
    "gdr off": re.compile(
        rb"(?=NET/(?!Plugin)|GPU |GDRD).*(?:disabling GDR|GDR not supported|GDR disabled|without GPUDirect RDMA|"
        rb"GPU Direct RDMA Disabled for HCA|GDRDMA not enabled)"
    ),
    # For one pair of GPU and adapter of many.
    "gdr far": re.compile(rb"GPU Direct RDMA Disabled for GPU"),
    "gdr near": re.compile(rb"GPU Direct RDMA Enabled for GPU"),
    "gdr on": re.compile(rb"Conn.* GDR 1"),
    # The graph of a communicator is made.
    "graph": re.compile(rb"Trees \["),
}
_OF_COMMUNICATORS = (b"comm", b"nccl", b"[Ran")
#: First four bytes of the records that show something, but for channels: no other one is looked at.
HEADS = frozenset(
    {b"NET/", b"GPU ", b"GDRD", b"Conn", b"Tree", b"Erro", b"Fail", b"Inva", b"Usin", b"Assi", b"Init"}
    | {*_OF_COMMUNICATORS, *(text[:4] for text in _ONCE)}
)
_RECORD = re.compile(
    rb"NCCL (?!INFO Chan)(?:INFO +(?=((?:%b)[^\n]{0,%d}))|WARN (?=([^\n]{0,%d})))"
    % (b"|".join(map(re.escape, sorted(HEADS))), RECORD_BYTES, RECORD_BYTES)
)


@dataclass(frozen=True)
class Channel:
    """What one kind of `Channel … via NET/…` line says; `sends` is None where it does not tell."""

    network: str
    device: int
    sends: bool | None
    gdr: bool


@dataclass
class Process:
    """What the log has of one process: nothing here grows with the log.

    `ranks` count within its largest communicator, which has `world` ranks on `nodes` nodes (0: not said). `counted` are
    the NICs that the plugin counts, `opened` the networks whose devices were opened, `messages` the first of each kind.
    `shared`: several processes have the same host and pid, as in containers that each have a pid 1.
    """

    host: str
    pid: str
    source: int
    world: int = 0
    nodes: int = 0
    ranks: set[int] = field(default_factory=set)
    used: set[str] = field(default_factory=set)
    channels: set[Channel] = field(default_factory=set)
    providers: set[str] = field(default_factory=set)
    counted: set[str] = field(default_factory=set)
    devices: set[str] = field(default_factory=set)
    sockets: dict[str, None] = field(default_factory=dict)
    adapters: set[str] = field(default_factory=set)
    opened: set[str] = field(default_factory=set)
    messages: dict[str, str] = field(default_factory=dict)
    shared: bool = False
    rings: int = 0
    trees: int = 0
    #: The communicators that have not ended, by address, rank and size: whether each is set up; and counts.
    alive: dict[tuple[bytes, ...], bool] = field(default_factory=dict)
    begun: int = 0
    completed: int = 0
    ended: int = 0
    aborted: int = 0
    once: set[bytes] = field(default_factory=set)

    @property
    def name(self) -> str:
        """Its name in a result."""
        return f"{self.host}:{self.pid}"

    @property
    def rank(self) -> int | None:
        """Its first rank; None where the log does not say it."""
        return min(self.ranks, default=None)

    @property
    def networks(self) -> list[str]:
        """The networks in use."""
        return sorted(self.used | {channel.network for channel in self.channels})

    @property
    def init(self) -> str:
        """How far its communicators came: complete, stuck, aborted, unfinished or unknown.

        NCCL before 2.22 connects rings and trees before `Init COMPLETE`; later NCCL connects each at its first
        use, so that rings without trees are a fault only in a communicator that has not completed. Where nothing shows
        that one began, lines have been left out, and those of trees may be among them. What has ended does not hang.
        """
        pending = not all(self.alive.values())
        began = pending or ("graph" in self.messages and not self.begun and not self.ended)
        if began and self.rings > self.trees and self.rings > self.completed:
            return "stuck"
        if pending:
            return "unfinished"
        if self.aborted:
            return "aborted"
        if self.completed or self.trees or self.ended:
            return "complete"
        return "unfinished" if self.begun or "graph" in self.messages or self.rings else "unknown"


@dataclass
class Log:
    """All processes of a run, by rank.

    `within_nodes`: channels within a node were seen; `lines`: there are lines of NCCL.
    """

    processes: list[Process] = field(default_factory=list)
    within_nodes: bool = False
    lines: bool = False


def scan(sources: Iterable[tuple[str, Iterable[bytes]]]) -> Log:
    """Read every source, a name and its blocks of bytes of any size, in order. Raises `InputError` for too many."""
    scanner = _Scanner()
    size = 0
    for name, blocks in sources:
        scanner.start()
        for block in whole_lines(blocks, lambda line: line[-LINE_LIMIT:]):
            size += len(block)
            if size > LOG_LIMIT_BYTES:
                raise InputError(f"{name}: the logs have more than {LOG_LIMIT_BYTES} bytes: give those of one run")
            scanner.read(block)
    by_name = sorted(scanner.log.processes, key=lambda process: natural(process.name))
    scanner.log.processes = sorted(by_name, key=lambda process: 1 << 30 if process.rank is None else process.rank)
    return scanner.log


class _Scanner:
    """The state of one pass."""

    def __init__(self) -> None:
        self.log = Log()
        self._source = 0
        self._processes: dict[tuple[bytes, ...], Process] = {}
        self._by_prefix: dict[bytes, Process] = {}
        self._channels: set[tuple[bytes, ...]] = set()

    def start(self) -> None:
        """Go on to another file."""
        self._source += 1
        self._by_prefix.clear()
        self._channels.clear()

    def read(self, block: bytes) -> None:
        """Read whole lines."""
        log = self.log
        log.within_nodes = log.within_nodes or any(way in block for way in WITHIN_NODES)
        log.lines = log.lines or b"NCCL " in block
        self._read_records(block)
        self._read_channels(block)

    def _read_channels(self, block: bytes) -> None:
        """Read channels between nodes, which are much of a log.

        Nearly all channels of a process are equal but for the numbers of channel and peers, which do not matter.
        """
        seen = self._channels
        for head, tail in pairwise(block.split(b"] via NET/")):
            start = head.rfind(b"\n") + 1
            # What stands before the record, the end of the direction, and the way.
            key = (head[start : head.find(b"NCCL INFO ", start)], head[-4:], tail[: tail.find(b"\n")])
            if key not in seen:
                self._read_channel(b"%b] via NET/%b" % key[1:], key[0])
                if len(seen) > MOST_SEEN:
                    seen.clear()
                seen.add(key)

    def _read_channel(self, text: bytes, before: bytes) -> None:
        found = _CHANNEL.search(text)
        if found and b"NCCL " not in before + text and (process := self._process(before)):
            sends = {b"send": True, b"eive": False}.get(found[1])
            process.channels.add(Channel(_text(found[2]), int(found[3]), sends, found[4] is not None))

    def _read_records(self, block: bytes) -> None:
        """Read the records that are no channels."""
        for found in _RECORD.finditer(block):
            text, at = found[1] or found[2], found.start()
            if b"NCCL " in text and _TORN.search(text):  # another process wrote into it
                continue
            trouble = found[1] is None and _TROUBLE.match(text)
            if found[1] is None and not trouble and text[:4] not in HEADS:
                continue
            # Mostly a few processes speak, and what stands directly before their records was seen before.
            start = block.rfind(b"\n", 0, at) + 1
            prefix = block[max(start, block.rfind(b" ", start, max(start, at - 6)) + 1) : at]
            process = self._by_prefix.get(prefix) or self._process(block[start:at])
            if process and trouble:
                process.messages.setdefault("warned", _quote(text))
            if process:
                self._read_record(process, text)

    def _read_record(self, process: Process, text: bytes) -> None:
        if text[:4] in _OF_COMMUNICATORS:
            self._read_communicator(process, text)
            return
        if text.startswith(_ONCE):
            self._begin(process, text)
            return
        for kind, name in _facts(text):
            if kind == "connected":
                setattr(process, name, getattr(process, name) + 1)
            elif kind == "message":
                process.messages.setdefault(name, _quote(text))
            elif kind == "sockets":
                process.sockets[name] = None
            else:
                getattr(process, kind).add(name)

    def _begin(self, process: Process, text: bytes) -> None:
        """Read what is printed once in a process: seen again, it is another one with the same host and pid."""
        head = next(head for head in _ONCE if text.startswith(head))
        if head not in process.once:
            process.once.add(head)
        elif process.source == self._source:
            process.shared = True
        else:
            self._by_prefix.clear()
            self._add((process.host.encode(), process.pid.encode())).once.add(head)

    def _read_communicator(self, process: Process, text: bytes) -> None:
        if found := _NODES.match(text):
            if int(found[1]) >= process.world:
                process.nodes = int(found[2])
            return
        if not (found := _COMMUNICATOR.search(text)) or int(found[2]) >= int(found[3]):
            return
        rank, world, event = int(found[2]), int(found[3]), found[4] or found[5]
        if world > process.world:
            process.world, process.ranks = world, set()
        if world == process.world:
            process.ranks.add(rank)
        key, alive = found.group(1, 2, 3), process.alive
        if event == b"START":  # one that was complete has ended, although no line says so: its address was free
            process.begun += 1
            alive[key] = False
        elif event == b"COMPLETE":
            process.completed += 1
            alive[key] = True
        else:
            process.ended += 1
            complete = alive.pop(key, None)
            # Destroying waits for the setup; an abort does not.
            if not complete:
                process.completed += event == b"Destroy"
                process.aborted += event != b"Destroy" and complete is False

    def _process(self, before: bytes) -> Process | None:
        """Return the process whose record comes after `before`, the beginning of a line, if that names one."""
        found = _PREFIX.search(before[-BEFORE_BYTES:])
        if found is None:
            return None
        process = self._processes.get(found.group(1, 2))
        if process is None:
            if b"NCCL " in before:  # the host's name may have the end of another process's record before it
                return None
            process = self._add(found.group(1, 2))
        prefix = before[before.rfind(b" ", 0, max(0, len(before) - 6)) + 1 :]
        if prefix.endswith(found[0]):
            self._by_prefix[prefix] = process
        return process

    def _add(self, name: tuple[bytes, ...]) -> Process:
        process = self._processes[name] = Process(_text(name[0]), _text(name[1]), self._source)
        self.log.processes.append(process)
        return process


@lru_cache(maxsize=4096)
def _facts(text: bytes) -> tuple[tuple[str, str], ...]:
    """Return what a record shows, as field and name; processes mostly write the same, so that few are read."""
    return tuple(_find_facts(text))


def _find_facts(text: bytes) -> Iterator[tuple[str, str]]:
    for name, patterns in _FACTS.items():
        for pattern in patterns:
            if found := pattern.match(text):
                yield name, _text(found[1])
    if _SOCKETS.match(text):
        yield from (("sockets", _text(name)) for name in _SOCKET.findall(text))
    elif _ADAPTERS.match(text):
        yield from (("adapters", _text(name)) for name in _ADAPTER.findall(text.partition(b"; OOB")[0]))
    elif text.startswith(b"NET/") and (found := _DEVICE.search(text)):
        kinds = {b"NET/Socket": "sockets", b"NET/IB": "adapters"}
        kind = kinds.get(text.partition(b" ")[0].rstrip(b":"), "devices")
        yield kind, _text(found[1] or found[2])
    if kind := next((kind for kind, pattern in _KINDS.items() if pattern.match(text)), ""):
        yield "message", kind


def _quote(raw: bytes) -> str:
    """Return a line of a log, or as much of it as a finding has room for."""
    text = _text(raw)
    return text if len(text) <= QUOTE_LIMIT else f"{text[: QUOTE_LIMIT - 1]}…"


def _text(raw: bytes) -> str:
    """Decode what was matched; bytes that are no UTF-8 become the replacement character."""
    return raw.decode("utf-8", "replace").strip()
