"""Read what NCCL and its like log (`NCCL_DEBUG=INFO`) into facts about each process, in one pass and in little memory.

Forms of the lines: NCCL 2.10 to 2.30, what was made of 2.16 to 2.30, and the plugins for libfabric 1.3 to 1.21,
checked against the messages in their sources. Launchers put things before a line (`srun -l`, mpirun, PALS, Ray, time
stamps), and several processes that write to one pipe tear each other's lines; so a record is found by the `NCCL INFO`
or `NCCL WARN` in it, and belongs to the `host:pid:tid [gpu]` directly before that, wherever on the line this is.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from lumisite.validate.samples import whole_lines
from lumisite.validate.transport.lines import CHANNEL_LINE, HEADS, TROUBLE, Channel, Process, note, text_of

#: A line may be as long as this before its beginning is given up (a log that lost its line ends has one; a core dump).
LINE_LIMIT = 1 << 18
#: Prefixes of lines whose process is remembered, and channel lines that were seen: what is over this is found anew.
PREFIXES_KEPT = 100_000
CHANNELS_KEPT = 200_000
#: No more records than this are on one line because processes tear one another's.
TORN_TOGETHER = 4
#: Ways of a channel that stays in its node; the last one is that of NCCL up to 2.11.
WITHIN_NODES = (b" via P2P/", b" via SHM/", b" via direct shared memory")
#: Threads of a process that are remembered, to know its torn lines by.
THREADS_KEPT = 64

#: Some people take the thread out of what they publish, or write a name in brackets for the host.
_PREFIX = re.compile(rb"([\w.-]+)[\]>]?:(\d+)(?::(\d+))? \[(\d+)\] ?[^\[\]]*$")
#: Where one record ends and the next one begins when a log has lost its line ends on the way, pasted or in a string.
_NEXT = re.compile(rb"(?:(?<=\s)|(?<=\\n))(?=[\w.-]+:\d+:\d+ \[\d+\] NCCL )")
#: Records of an excerpt that somebody has cut down to the messages.
_BARE = re.compile(
    rb"^[\s>|]*(?:\[\d+\] )?(NET/(?:OFI|Plugin|Socket|IB).*|Using network .*|Connected all .*|"
    rb"Channel \d.* via NET/.*)",
    re.MULTILINE,
)
#: What looks like host, process and thread where those are gone and a time of day stands before `[gpu]`.
_TIME = re.compile(rb"(?:\d{4}-\d\d-\d\dT)?\d\d:\d\d:\d\d ")
#: Colours, as Ray writes them.
_COLOUR = re.compile(rb"\x1b\[[\d;?]*[A-Za-z]")
_TAG = re.compile(rb"\[\d+,(\d+)\]<\w+>|^ *(\d+): |^\S+ (\d+): |\(\w+ pid=(\d+)|\[rank(\d+)\]")


@dataclass
class Log:
    """All processes of a run.

    `within_nodes`: channels within a node were seen; `dropped`: Ray left lines out; `lines`: there are lines of NCCL;
    `bare`: there are its messages without anything before them.
    """

    processes: list[Process] = field(default_factory=list)
    within_nodes: bool = False
    dropped: bool = False
    lines: bool = False
    bare: bool = False


def scan(sources: Iterable[tuple[str, Iterable[bytes]]]) -> Log:
    """Read every source, a name and its blocks of bytes of any size, in order."""
    scanner = _Scanner()
    for name, blocks in sources:
        scanner.source(name)
        for block in whole_lines(blocks, lambda line: line[-LINE_LIMIT:]):
            scanner.read(block)
    return scanner.log()


def _channel(found: re.Match[bytes]) -> Channel:
    gdr = None if found[5] is None else found[4] is not None
    return Channel(text_of(found[2]), int(found[3]), found[1] == b"send", gdr)


class _Scanner:
    """The state of one pass."""

    def __init__(self) -> None:
        self._processes: dict[tuple[str, str], Process] = {}
        self._by_prefix: dict[bytes, Process] = {}
        self._told: set[tuple[bytes, bytes]] = set()
        self._source = ""
        self._named: set[str] = set()
        self._log = Log()

    def source(self, name: str) -> None:
        """Go on to another file: lines without a process of their own belong to it."""
        self._source = name
        self._by_prefix.clear()
        self._told.clear()

    def read(self, block: bytes) -> None:
        """Take whole lines."""
        if b"\x1b" in block:
            block = _COLOUR.sub(b"", block)
        if not self._log.within_nodes:
            self._log.within_nodes = any(way in block for way in WITHIN_NODES)
        if not self._log.dropped:
            self._log.dropped = b"x across cluster]" in block
        records = [line for line in block.split(b"\n") if b"NCCL " in line]
        if not records:
            self._read_bare(block)
            return
        self._log.lines = True
        glued = block.count(b"NCCL ") > len(records)
        if glued:
            # A line with more records than processes tear into one another is cut.
            torn = [[line] if line.count(b"NCCL ") <= TORN_TOGETHER else _NEXT.split(line) for line in records]
            records = [part for parts in torn for part in parts]
        if b"] via NET/" in block:
            self._read_channels(records)
        for line in [line for line in records if b" via " not in line or (glued and line.count(b"NCCL INFO ") > 1)]:
            # A record that stands before another one on a line is torn: its last word may be half a word.
            at = line.rfind(b"NCCL INFO ") if glued else line.find(b"NCCL INFO ")
            warns = at < 0
            if warns and (at := line.rfind(b"NCCL WARN ")) < 0:
                continue
            text = line[at + 10 :]
            trouble = warns and TROUBLE.match(text)
            if trouble or text[:4] in HEADS:
                process = self._process(line[:at])
                note(process, text)
                if trouble:
                    process.told.setdefault("warned", text_of(text))

    def _read_bare(self, block: bytes) -> None:
        """Take messages without anything before them, of which only the file tells whose they are."""
        if b"NET/" in block or b"Using network" in block:
            for found in _BARE.finditer(block):
                self._log.bare = True
                if channel := CHANNEL_LINE.search(found[1]):
                    self._process(b"").channels.add(_channel(channel))
                else:
                    note(self._process(b""), found[1])

    def _read_channels(self, records: Iterable[bytes]) -> None:
        """Take channels between nodes, which are most of a log and say few different things.

        Only the end of the prefix and what follows the direction are kept, without the numbers of channel and peers, so
        that nearly all lines of a process are equal and never looked at twice.
        """
        told = {
            (line[line.rfind(b" ", 0, max(0, (at := line.rfind(b"NCCL ", 0, via)) - 6)) + 1 : at], line[via - 4 :])
            for line in records
            if (via := line.find(b"] via NET/")) >= 0
        }
        for prefix, text in told - self._told:
            if found := CHANNEL_LINE.match(text):
                self._process(prefix).channels.add(_channel(found))
        if len(self._told) > CHANNELS_KEPT:
            self._told.clear()
        self._told |= told

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
    for name in ("used", "channels", "providers", "counted", "devices", "adapters"):
        getattr(whole, name).update(getattr(part, name))
    for name in ("begun", "completed", "rings", "trees"):
        setattr(whole, name, getattr(whole, name) + getattr(part, name))
    whole.told = part.told | whole.told
    # A communicator that began under one name may have completed under the other.
    if part.completed:
        whole.pending.clear()
    whole.pending |= part.pending if not whole.completed else set()


def natural(name: str) -> list[int | str]:
    """Sort nic10 after nic9: text and numbers by turns."""
    return [int(part) if at % 2 else part for at, part in enumerate(re.split(r"(\d{1,9})", name))]
