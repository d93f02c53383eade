"""The messages of NCCL, and of what is built on it, and what they show of a process; `log` finds them in files."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Literal, TypeAlias, cast

from lumisite.validate.transport.communicators import Alive, Communicators, parse_record
from lumisite.vendors import words_of_logs

#: Letters of a line of the log that a finding has.
QUOTE_LIMIT = 120

# One that was cut could have lost its /GDRDMA, so it must end where it should.
CHANNEL_LINE = re.compile(
    rb"(send|eive|\d)\] via NET/(.{1,200}?)/(\d{1,6})(?:\(\d+\))?(/GDRDMA(?:\(PCI\))?)?(?:/Shared)?(?:/flush=\w+)?"
    rb"(?=[\s\\]|$)"
)
_USED = re.compile(rb"(?:Using +network|Assigned NET plugin) +([A-Za-z][\w./+-]*(?: [A-Z][\w./+-]*)*)")
# What names the network that was opened, where no line says which one communicators use.
_OPENED = re.compile(
    rb"NET/([\w ]+?) *: GPU Direct RDMA .*for HCA|Initialized NET plugin ([A-Z]\w*)|"
    rb"NET/(Socket) *: *Using(?: *\[| +network\b| +\d+ threads\b)"
)
_PROVIDER = re.compile(rb"NET/.*?Selected +[Pp]rovider +is +([\w;:+.-]+)(?:.*?\( *found +(\d{1,6}) +nics?)?")
_SOCKETS = re.compile(rb"NET/Socket *: *Using *\[")
_SOCKET = re.compile(rb"\[\d+\]([\w.@-]+):")
_ADAPTERS = re.compile(rb"NET/IB *: *Using *\[")
# Ports of one card stand in braces in NCCL 2.21 to 2.24: `[0]={[0] nic_0:1/RoCE, [1] nic_1:1/RoCE}`.
_ADAPTER = re.compile(rb"\[\d+\] ?([^\s:={]+):\d+(?::\d+)?/")
_HCA = re.compile(rb"for HCA (?:\d+ )?'([^']+)'")
_GUID = re.compile(rb"GUID of (\S+?):")
#: Warnings that tell why a communicator does not come up, and none of those that good runs begin with.
TROUBLE = re.compile(
    rb"(?!.*(?:Missing |NUMA |any local path |performance|Could not read|symbol|libibverbs%b))"
    rb".*(?i:fail|error|closed|refused|time.?out|timed out|unable|invalid|could ?n[o']t|no such)"
    % b"".join(b"|" + words.encode() for words in words_of_logs().harmless)
)
#: The kinds of messages: the plugin was loaded, was given up for NCCL's own network, does not start, reports errors at
#: run time; why a communicator may not come up; GPU Direct RDMA off, or off (far) and on (near) for one pair of GPU and
#: adapter of many, or on by the summary of rings; the graph of a communicator is made.
Kind: TypeAlias = Literal[
    "loaded", "fell back", "failed", "broken", "warned", "gdr off", "gdr far", "gdr near", "gdr on", "graph"
]
#: What a line shows: the field of `ProcessLog` for it, and a name, number or kind. Of channels: `channel` and the
#: network's name, `gdr` and whether it is used.
Fact: TypeAlias = tuple[str, str]

_FAILED = b"|".join(words.encode() for words in ("network .* not found", *words_of_logs().failed))
#: The first pattern that fits the beginning of a message is its kind.
_KINDS: Mapping[Kind, re.Pattern[bytes]] = {
    "loaded": re.compile(rb"(?=NET/Plugin).*Loaded net plugin"),
    "fell back": re.compile(
        rb"(?=NET/Plugin).*(?:No plugin found|Using internal net|using internal implementation|"
        rb"NET/Plugin ?: Could not find:|Failed to find ncclNetPlugin symbol)"
    ),
    "failed": re.compile(
        rb"(?=NET/(?!Plugin)|Erro|Fail|Inva).*(?:Unable to find a protocol that worked|find any optimal provider|"
        rb"-ofi-\w+ initialization failed|Initializing plugin failed|Failed to initialize any NET plugin|"
        rb"Invalid type of PCI bus|Failed to initialize NET plugin (?!IB\b|Socket\b)|%b)" % _FAILED
    ),
    "broken": re.compile(
        rb"NET/(?!Plugin).*(?:completed with error|Got completion .*with (?:error|status)|RC: (?:107|-38)\b|NO_SPACE)"
    ),
    "gdr off": re.compile(
        rb"(?=NET/(?!Plugin)|GPU |GDRD).*(?:disabling GDR|GDR not supported|GDR disabled|without GPUDirect RDMA|"
        rb"GPU Direct RDMA Disabled for HCA|GDRDMA not enabled)"
    ),
    "gdr far": re.compile(rb"GPU Direct RDMA Disabled for GPU"),
    "gdr near": re.compile(rb"GPU Direct RDMA Enabled for GPU"),
    "gdr on": re.compile(rb"Conn.* GDR 1"),
    "graph": re.compile(rb"Trees \["),
}
_INIT_HEADS = (b"comm", b"nccl", b"[Ran")
#: First four bytes of the messages that say something, but for channels: no other one is looked at.
HEADS = frozenset(
    {b"NET/", b"GPU ", b"GDRD", b"Conn", b"Tree", b"Erro", b"Fail", b"Inva", b"Usin", b"Assi", b"Init", *_INIT_HEADS}
)


@dataclass(frozen=True)
class Channel:
    """What one kind of `Channel … via NET/…` line says; `sends` is None where it does not tell."""

    network: str
    device: int
    sends: bool | None
    gdr: bool


@dataclass(frozen=True)
class LogLine:
    """The line that shows something: its file, its number from 1, its text without what stands before `NCCL`."""

    file: str
    line: int
    text: str


@dataclass
class ProcessLog:
    """What the log has of one process: nothing here grows with the log.

    `ranks` count within its largest communicator, which has `world` ranks (0: not said); `counted` are the NICs that
    the plugin counts, `opened` the networks whose devices were opened, `messages` the first of each kind. The others
    count lines. `of_run` are the communicators of all processes.
    """

    host: str
    pid: str
    of_run: Alive
    communicators: Communicators = field(init=False)
    world: int = 0
    ranks: set[int] = field(default_factory=set)
    used: set[str] = field(default_factory=set)
    channels: set[Channel] = field(default_factory=set)
    providers: set[str] = field(default_factory=set)
    counted: set[int] = field(default_factory=set)
    devices: set[str] = field(default_factory=set)
    sockets: dict[str, None] = field(default_factory=dict)
    opened: set[str] = field(default_factory=set)
    adapters: set[str] = field(default_factory=set)
    messages: dict[Kind, str] = field(default_factory=dict)
    rings: int = 0
    trees: int = 0

    def __post_init__(self) -> None:
        self.communicators = Communicators(self.of_run, self.name)

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
        of = self.communicators
        began = of.pending or ("graph" in self.messages and not of.begun and not of.ended)
        if began and self.rings > self.trees and self.rings > of.completed:
            return "stuck"
        if of.pending:
            return "unfinished"
        if of.aborted:
            return "aborted"
        if of.completed or self.trees or of.ended:
            return "complete"
        return "unfinished" if of.begun or "graph" in self.messages or self.rings else "unknown"


def read_record(process: ProcessLog, text: bytes) -> tuple[Fact, ...]:
    """Add one record that is no channel to what is known of its process, and return what it shows."""
    head = text[:4]
    if head in _INIT_HEADS:
        _read_init(process, text)
        return ()
    if head == b"Conn":
        process.rings += text.startswith(b"Connected all rings")
        process.trees += text.startswith(b"Connected all trees")
    facts = _facts(text)
    for what, name in facts:
        if what == "message":
            process.messages.setdefault(cast("Kind", name), quote(text))
        elif what == "sockets":
            process.sockets[name] = None
        elif what == "nics":
            process.counted.add(int(name))
        else:
            getattr(process, what).add(name)
    return facts


@lru_cache(maxsize=4096)
def _facts(text: bytes) -> tuple[Fact, ...]:
    """Return what a message shows; processes mostly write the same, so that few are read."""
    return tuple(_read(text))


def _read(text: bytes) -> Iterator[Fact]:
    if found := _USED.match(text):
        yield "used", text_of(found[1])
    if found := _OPENED.match(text):
        yield "opened", text_of(next(filter(None, found.groups())))
    if text.startswith(b"NET/") and not text.startswith(b"NET/Plugin"):
        yield from _read_net(text)
    kind = next((kind for kind, pattern in _KINDS.items() if pattern.match(text)), None)
    if kind:
        yield "message", kind


def _read_net(text: bytes) -> Iterator[Fact]:
    """Yield the names of what a network uses."""
    if found := _PROVIDER.match(text):
        yield "providers", text_of(found[1])
        if found[2]:
            yield "nics", text_of(found[2])
    elif _SOCKETS.match(text):
        yield from (("sockets", text_of(name)) for name in _SOCKET.findall(text))
    elif _ADAPTERS.match(text):
        if cards := _ADAPTER.findall(text.partition(b"; OOB")[0]):
            yield "opened", "IB"
        yield from (("adapters", text_of(name)) for name in cards)
    else:
        kind = {b"NET/Socket": "sockets", b"NET/IB": "adapters"}.get(text.partition(b" ")[0].rstrip(b":"), "devices")
        yield from (("devices", text_of(name)) for name in _GUID.findall(text))
        yield from ((kind, text_of(name)) for name in _HCA.findall(text))


def _read_init(process: ProcessLog, text: bytes) -> None:
    if not (record := parse_record(text)):
        return
    if record.world > process.world:
        process.world, process.ranks = record.world, set()
    if record.world == process.world:
        process.ranks.add(record.rank)
    process.communicators.read(record)


def quote(raw: bytes, most: int = QUOTE_LIMIT) -> str:
    """Return a line of a log, or as much of it as a finding has room for."""
    text = text_of(raw)
    return text if len(text) <= most else f"{text[: most - 1]}…"


def text_of(raw: bytes) -> str:
    """Decode what was matched; bytes that are no UTF-8 become the replacement character."""
    return raw.decode("utf-8", "replace").strip()
