"""What single lines of NCCL and RCCL say, by version; `transport_log` finds them in a log and knows whose they are."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

#: First four bytes of the messages that say something, but for channels.
HEADS = frozenset(b"Usin|Assi|Conn|comm|nccl|[Ran|Tree|GPU |GDRD|NET/|Erro|Fail|Inva".split(b"|"))
#: Networks by names that are also the beginnings of others.
NETWORKS = {"Socket", "IB", "OFI", "UCX", "Libfabric", "AWS Libfabric"}

#: Some people take the thread out of what they publish, or write a name in brackets for the host.
PREFIX = re.compile(rb"([\w.-]+)[\]>]?:(\d+)(?::(\d+))? \[(\d+)\] ?[^\[\]]*$")
#: Where one record ends and the next one begins when a log has lost its line ends on the way, pasted or in a string.
NEXT = re.compile(rb"(?:(?<=\s)|(?<=\\n))(?=[\w.-]+:\d+:\d+ \[\d+\] NCCL )")
#: Records of an excerpt that somebody has cut down to the messages.
BARE = re.compile(
    rb"^[\s>|]*(?:\[\d+\] )?(NET/(?:OFI|Plugin|Socket|IB).*|Using network .*|Connected all .*|"
    rb"Channel \d.* via NET/.*)",
    re.MULTILINE,
)
#: What looks like host, process and thread where those are gone and a time of day stands before `[gpu]`.
TIME = re.compile(rb"(?:\d{4}-\d\d-\d\dT)?\d\d:\d\d:\d\d ")
#: Colours, as Ray writes them.
COLOUR = re.compile(rb"\x1b\[[\d;?]*[A-Za-z]")
TAG = re.compile(rb"\[\d+,(\d+)\]<\w+>|^ *(\d+): |^\S+ (\d+): |\(\w+ pid=(\d+)|\[rank(\d+)\]")
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
# Ports of one card stand in braces in NCCL 2.21 to 2.24: `[0]={[0] mlx5_0:1/RoCE, [1] mlx5_1:1/RoCE}`.
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
# Warnings that tell why a communicator does not come up, and those that every good run of RCCL begins with.
_TROUBLE = re.compile(rb"(?i)fail|error|closed|refused|time.?out|timed out|unable|invalid|could ?n[o']t|no such")
_NAG = re.compile(
    rb"Missing |NUMA |any local path |rocprofiler|performance|Could not read|symbol|libibverbs|CUDA library"
)
_OFF = re.compile(
    rb"disabling GDR|GDR not supported|GDR disabled|without GPUDirect RDMA|GPU Direct RDMA Disabled for HCA|"
    rb"GDRDMA not enabled"
)


@dataclass(frozen=True, order=True)
class Channel:
    """What one kind of `Channel … via NET/…` line says; `gdr` is None where the line is torn before it can tell."""

    network: str
    device: int
    sends: bool
    gdr: bool | None


@dataclass
class Seen:
    """A process while its lines are still coming: nothing here grows with the log."""

    host: str
    pid: str
    records: int = 0
    tids: set[bytes] = field(default_factory=set)
    largest: int = 0
    ranks: set[int] = field(default_factory=set)
    used: set[str] = field(default_factory=set)
    channels: set[Channel] = field(default_factory=set)
    providers: set[str] = field(default_factory=set)
    nics: set[int] = field(default_factory=set)
    devices: set[str] = field(default_factory=set)
    sockets: list[str] = field(default_factory=list)
    adapters: set[str] = field(default_factory=set)
    loaded: bool = False
    fell_back: str = ""
    failed: str = ""
    broken: str = ""
    warned: str = ""
    off: str = ""
    near: bool = False
    far: bool = False
    pxn_gdr: bool = False
    begun: int = 0
    completed: int = 0
    pending: set[bytes] = field(default_factory=set)
    rings: int = 0
    trees: int = 0
    graph: bool = False


def note(seen: Seen, text: bytes) -> None:
    """Take one record that is no channel."""
    head = text[:4]
    if head == b"NET/":
        _note_net(seen, text)
    elif head in (b"Usin", b"Assi"):
        found = _NETWORK.match(text)
        if found:
            seen.used.add(_whole_name(text_of(found[1])))
    elif head in (b"comm", b"nccl", b"[Ran"):
        _note_init(seen, text)
    elif head == b"Conn":
        seen.rings += text.startswith(b"Connected all rings")
        seen.trees += text.startswith(b"Connected all trees")
        seen.pxn_gdr |= b" GDR 1" in text
    elif head == b"Tree":
        seen.graph |= text.startswith(b"Trees [")
    elif head in (b"GPU ", b"GDRD"):
        _note_gdr(seen, text)
    elif _FAILED.search(text):
        seen.failed = seen.failed or text_of(text)


def tells_trouble(text: bytes) -> bool:
    """Whether a warning may be the reason that a communicator did not come up."""
    return _TROUBLE.search(text) is not None and _NAG.search(text) is None


def _note_init(seen: Seen, text: bytes) -> None:
    found = _INIT.search(text)
    if not found:
        return
    communicator, rank, world = found[1], int(found[2]), int(found[3])
    if world > seen.largest:
        seen.largest = world
        seen.ranks.clear()
    if world == seen.largest:
        seen.ranks.add(rank)
    if found[4] == b"Init START":
        seen.begun += 1
        seen.pending.add(communicator)
    else:
        seen.pending.discard(communicator)
        seen.completed += found[4] == b"Init COMPLETE"


def _note_net(seen: Seen, text: bytes) -> None:
    found = _PROVIDER.search(text)
    if found:
        seen.providers.add(text_of(found[1]))
        if found[2]:
            seen.nics.add(int(found[2]))
    elif _SOCKETS.match(text):
        seen.sockets += [name for name in map(text_of, _SOCKET.findall(text)) if name not in seen.sockets]
    elif _ADAPTERS.match(text):
        seen.adapters.update(map(text_of, _ADAPTER.findall(text.partition(b"; OOB")[0])))
    elif text.startswith(b"NET/Plugin"):
        if b"Loaded net plugin" in text:
            seen.loaded = True
        elif _NO_PLUGIN.search(text):
            seen.fell_back = seen.fell_back or text_of(text)
    elif _FAILED.search(text):
        seen.failed = seen.failed or text_of(text)
    elif _BROKEN.search(text):
        seen.broken = seen.broken or text_of(text)
    else:
        seen.devices.update(map(text_of, _GUID.findall(text)))
        if text.startswith(b"NET/IB"):
            seen.adapters.update(map(text_of, _HCA.findall(text)))
        else:
            seen.devices.update(map(text_of, _HCA.findall(text)))
        _note_gdr(seen, text)


def _note_gdr(seen: Seen, text: bytes) -> None:
    """`Disabled for GPU … / HCA …` is one pair of many: it counts only where no pair is near enough."""
    if _OFF.search(text):
        seen.off = seen.off or text_of(text)
    elif text.startswith(b"GPU Direct RDMA Disabled for GPU"):
        seen.far = True
    elif text.startswith(b"GPU Direct RDMA Enabled for GPU"):
        seen.near = True


def _whole_name(name: str) -> str:
    """Cut off what another process has written into the line: `SocketNCCL` is Socket."""
    return next((known for known in ("Socket", "AWS Libfabric") if name.startswith(known)), name)


def text_of(raw: bytes) -> str:
    """Decode what was matched; bytes that are no UTF-8 become the replacement character."""
    return raw.decode("utf-8", "replace").strip()
