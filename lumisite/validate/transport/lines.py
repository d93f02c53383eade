"""What single lines of NCCL and its like say, by version; what they make of a process; `log` finds them in a log."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

#: Networks by names that are also the beginnings of others.
NETWORKS = {"Socket", "IB", "OFI", "UCX", "Libfabric", "AWS Libfabric"}

# The last group is there when the line ends where it should: a torn one could have lost its /GDRDMA.
CHANNEL_LINE = re.compile(
    rb"(send|eive)\] via NET/(.+?)/(\d{1,6})(?:\(\d+\))?(/GDRDMA(?:\(PCI\))?)?(?:/Shared)?(?:/flush=\w+)?"
    rb"(\s|$)?"
)
_INIT = re.compile(
    rb"comm (0x[0-9a-fA-F]+) rank (\d{1,9}) nranks (\d{1,9}) .*?- ?(Init START|Init COMPLETE|Abort COMPLETE)"
)
_PROVIDER = re.compile(rb"Selected [Pp]rovider is ([^ ,\r\n]+)(?:.*?\(found (\d{1,6}) nics?\))?")
_NETWORK = re.compile(rb"(?:Using network|Assigned NET plugin) ([A-Za-z][\w./+-]*(?: [A-Z][\w./+-]*)*)")
_SOCKETS = re.compile(rb"NET/Socket ?: Using ?\[")
_SOCKET = re.compile(rb"\[\d+\]([\w.@-]+):")
_ADAPTERS = re.compile(rb"NET/IB ?: Using ?\[")
# Ports of one card stand in braces in NCCL 2.21 to 2.24: `[0]={[0] nic_0:1/RoCE, [1] nic_1:1/RoCE}`.
_ADAPTER = re.compile(rb"\[\d+\] ?([^\s:={]+):\d+(?::\d+)?/")
_HCA = re.compile(rb"for HCA \d+ '([^']+)'")
_GUID = re.compile(rb"GUID of (\S+?):")
_NO_PLUGIN = re.compile(
    rb"No plugin found|Using internal net|using internal implementation|NET/Plugin ?: Could not find:|"
    rb"Failed to find ncclNetPlugin symbol"
)
_FAILED = re.compile(
    rb"Unable to find a protocol that worked|aws-ofi-\w+ initialization failed|Initializing plugin failed|"
    rb"Failed to initialize any NET plugin|Failed to initialize NET plugin (?!IB\b|Socket\b)|Only EFA provider is|"
    rb"Invalid type of PCI bus|network .* not found"
)
_BROKEN = re.compile(rb"completed with error|Got completion .*with (?:error|status)|RC: (?:107|-38)\b|NO_SPACE")
#: Warnings that tell why a communicator does not come up, and none of those that good runs begin with.
TROUBLE = re.compile(
    rb"(?!.*(?:Missing |NUMA |any local path |rocprofiler|performance|Could not read|symbol|libibverbs|CUDA library))"
    rb".*(?i:fail|error|closed|refused|time.?out|timed out|unable|invalid|could ?n[o']t|no such)"
)
_OFF = re.compile(
    rb"disabling GDR|GDR not supported|GDR disabled|without GPUDirect RDMA|GPU Direct RDMA Disabled for HCA|"
    rb"GDRDMA not enabled"
)

#: What a line may tell: that the plugin was loaded, was given up for NCCL's own network, does not start, reports errors
#: at run time; why a communicator may not come up; GPU Direct RDMA off, or off (far) and on (near) for one pair of GPU
#: and adapter of many, or on by the library's summary; that the graph of a communicator is made.
Kind: TypeAlias = Literal[
    "loaded", "fell back", "failed", "broken", "warned", "gdr off", "gdr far", "gdr near", "gdr on", "graph"
]
Kinds: TypeAlias = tuple[tuple[Kind, re.Pattern[bytes]], ...]

_GDR: Kinds = (
    ("gdr off", _OFF),
    ("gdr far", re.compile(rb"^GPU Direct RDMA Disabled for GPU")),
    ("gdr near", re.compile(rb"^GPU Direct RDMA Enabled for GPU")),
)
_OF_PLUGIN: Kinds = (("loaded", re.compile(rb"Loaded net plugin")), ("fell back", _NO_PLUGIN))
#: Of messages that begin so (four bytes), the first pattern that is in one says what it tells.
_TELLS: Mapping[bytes, Kinds] = {
    b"NET/": (("failed", _FAILED), ("broken", _BROKEN), ("gdr off", _OFF)),
    b"GPU ": _GDR,
    b"GDRD": _GDR,
    b"Conn": (("gdr on", re.compile(rb" GDR 1")),),
    b"Tree": (("graph", re.compile(rb"^Trees \[")),),
    **dict.fromkeys((b"Erro", b"Fail", b"Inva"), (("failed", _FAILED),)),
}
_NETWORK_HEADS, _INIT_HEADS = (b"Usin", b"Assi"), (b"comm", b"nccl", b"[Ran")
#: First four bytes of the messages that say something, but for channels.
HEADS = frozenset({*_TELLS, *_NETWORK_HEADS, *_INIT_HEADS})


@dataclass(frozen=True)
class Channel:
    """What one kind of `Channel … via NET/…` line says; `gdr` is None where the line is torn before it can tell."""

    network: str
    device: int
    sends: bool
    gdr: bool | None


@dataclass
class Process:
    """What the log says about one process: nothing here grows with the log.

    `pid` is what stands in brackets for processes without one. `ranks` count within its largest communicator, which has
    `world` ranks (0: not said); `counted` are the NICs that the plugin says it found, `told` the first line of each
    kind, `pending` the communicators that have begun and not completed. The others count lines.
    """

    host: str
    pid: str
    records: int = 0
    threads: set[bytes] = field(default_factory=set)
    world: int = 0
    ranks: set[int] = field(default_factory=set)
    used: set[str] = field(default_factory=set)
    channels: set[Channel] = field(default_factory=set)
    providers: set[str] = field(default_factory=set)
    counted: set[int] = field(default_factory=set)
    devices: set[str] = field(default_factory=set)
    sockets: dict[str, None] = field(default_factory=dict)
    adapters: set[str] = field(default_factory=set)
    told: dict[Kind, str] = field(default_factory=dict)
    pending: set[bytes] = field(default_factory=set)
    begun: int = 0
    completed: int = 0
    rings: int = 0
    trees: int = 0

    @property
    def name(self) -> str:
        """What it is called in a result."""
        return f"{self.host}:{self.pid}" if self.pid.isdigit() else f"{self.host}{self.pid}"

    @property
    def rank(self) -> int | None:
        """Its first rank; None where the log does not say it."""
        return min(self.ranks, default=None)

    @property
    def networks(self) -> list[str]:
        """The networks in use, without torn beginnings of names: `Soc` must not pass for a plugin."""
        names = self.used | {channel.network for channel in self.channels}
        return whole_names(names, NETWORKS, names | NETWORKS)

    @property
    def init(self) -> str:
        """How far its communicators came: complete, stuck, unfinished or unknown.

        NCCL before 2.22, and its like, makes rings and trees before `Init COMPLETE`; later NCCL makes each at its first
        use, so that rings without trees are a fault only in a communicator that has not completed. Where nothing shows
        that one began, lines have been left out, and those of trees may be among them.
        """
        began = self.pending or ("graph" in self.told and not self.begun)
        if began and self.rings > self.trees and self.rings > self.completed:
            return "stuck"
        if self.pending:
            return "unfinished"
        if self.completed or self.trees:
            return "complete"
        return "unfinished" if self.begun or "graph" in self.told or self.rings else "unknown"


def note(process: Process, text: bytes) -> None:
    """Take one record that is no channel."""
    head = text[:4]
    kinds = _TELLS.get(head, ())
    if head == b"NET/":
        if text.startswith(b"NET/Plugin"):
            kinds = _OF_PLUGIN
        else:
            _note_net(process, text)
    elif head in _NETWORK_HEADS:
        if found := _NETWORK.match(text):
            # Another process may have written into the line: `SocketNCCL` is Socket.
            name = text_of(found[1])
            process.used.add(next((known for known in ("Socket", "AWS Libfabric") if name.startswith(known)), name))
    elif head in _INIT_HEADS:
        _note_init(process, text)
    elif head == b"Conn":
        process.rings += text.startswith(b"Connected all rings")
        process.trees += text.startswith(b"Connected all trees")
    for kind, pattern in kinds:
        if pattern.search(text):
            process.told.setdefault(kind, text_of(text))
            break


def _note_init(process: Process, text: bytes) -> None:
    if not (found := _INIT.search(text)):
        return
    world = int(found[3])
    if world > process.world:
        process.world, process.ranks = world, set()
    if world == process.world:
        process.ranks.add(int(found[2]))
    if found[4] == b"Init START":
        process.begun += 1
        process.pending.add(found[1])
    else:
        process.pending.discard(found[1])
        process.completed += found[4] == b"Init COMPLETE"


def _note_net(process: Process, text: bytes) -> None:
    """Take the names of what a network uses."""
    if found := _PROVIDER.search(text):
        process.providers.add(text_of(found[1]))
        if found[2]:
            process.counted.add(int(found[2]))
    elif _SOCKETS.match(text):
        process.sockets.update(dict.fromkeys(map(text_of, _SOCKET.findall(text))))
    elif _ADAPTERS.match(text):
        process.adapters.update(map(text_of, _ADAPTER.findall(text.partition(b"; OOB")[0])))
    else:
        process.devices.update(map(text_of, _GUID.findall(text)))
        cards = process.adapters if text.startswith(b"NET/IB") else process.devices
        cards.update(map(text_of, _HCA.findall(text)))


def whole_names(names: Iterable[str], known: Collection[str], others: Collection[str]) -> list[str]:
    """Leave out torn names: those that are not `known` and are the beginning of one of the others."""
    return sorted(
        name for name in names if name in known or not any(one != name and one.startswith(name) for one in others)
    )


def text_of(raw: bytes) -> str:
    """Decode what was matched; bytes that are no UTF-8 become the replacement character."""
    return raw.decode("utf-8", "replace").strip()
