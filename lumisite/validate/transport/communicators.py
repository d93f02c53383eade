"""The communicators of a run: which began, were set up and ended, and on which ranks.

NCCL 2.12 to 2.30, and what is made from it, ends a communicator with `comm … - Destroy COMPLETE` or `Abort COMPLETE`
(from 2.28 `Revoke COMPLETE` too). That line has the address in its process only, so the line of the setup says which
communicator of the run it was: by `commId`, for those made by split or shrink by their parent, count and color.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TypeAlias

_RECORD = re.compile(
    rb"comm (0x[0-9a-fA-F]+) rank (\d{1,9}) n[Rr]anks (\d{1,9}) (.*?)"
    rb"- ?(?:Init (START|COMPLETE)|(Destroy|Abort|Revoke) COMPLETE)"
)
_ID = re.compile(rb"\bcommId (0x[0-9a-f]+)")
_PARENT = re.compile(rb"\bparent (0x[0-9a-fA-F]+)( (?:split|child)Count \d+)? color (-?\d+)")

#: What is the same in all processes of a communicator, as far as lines say it; first the name that it is found by.
Key: TypeAlias = tuple[object, ...]
#: A rank, the name of its process and the address there.
Member: TypeAlias = tuple[int, str, bytes]
#: The communicators of a run that have not ended on all their ranks.
Alive: TypeAlias = "dict[Key, Communicator]"


@dataclass
class Record:
    """A line about a communicator: `event` is START, COMPLETE, Destroy, Abort or Revoke."""

    address: bytes
    rank: int
    world: int
    about: bytes
    event: bytes


@dataclass
class Communicator:
    """A communicator of a run. `members`: whether it has ended on each of its ranks."""

    label: str
    world: int
    members: dict[Member, bool] = field(default_factory=dict)

    @property
    def left(self) -> list[Member]:
        """Members on which it has not ended while it has on others; none where lines do not tell members apart."""
        if len({rank for rank, _, _ in self.members}) < len(self.members) or not any(self.members.values()):
            return []
        return [member for member, ended in self.members.items() if not ended]


@dataclass(slots=True)
class Membership:
    """A communicator at an address of a process: its key, the process's place in it, and whether it was set up."""

    key: Key
    rank: int
    world: int
    complete: bool = False


@dataclass
class Communicators:
    """The communicators of one process: those that have not ended by address and rank, and counts of the others.

    `of_run` are those of all processes.
    """

    of_run: Alive
    name: str
    alive: dict[tuple[bytes, int], Membership] = field(default_factory=dict)
    begun: int = 0
    completed: int = 0
    ended: int = 0
    aborted: int = 0
    _keys: dict[bytes, Key] = field(default_factory=dict)
    _ordinals: dict[Key, int] = field(default_factory=dict)

    @property
    def pending(self) -> bool:
        """Whether one began and neither was set up nor has ended."""
        return any(not one.complete for one in self.alive.values())

    def read(self, record: Record) -> None:
        """Add what a line says."""
        one = self.alive.get((record.address, record.rank))
        if record.event in (b"START", b"COMPLETE"):
            if one and one.world != record.world:
                self._end(record.address, one)
                one = None
            self._set_up(record, one)
            return
        if one:
            self._end(record.address, one)
        self.ended += 1
        # Destroying waits for the setup; an abort does not.
        if not (one and one.complete):
            self.completed += record.event == b"Destroy"
            self.aborted += record.event != b"Destroy" and one is not None

    def _set_up(self, record: Record, one: Membership | None) -> None:
        starts = record.event == b"START"
        if one and starts and one.complete:
            self._end(record.address, one)  # its address was free again
            one = None
        self.begun += starts
        self.completed += not starts
        if one is None:
            one = self._begin(record)
        one.complete = one.complete or not starts

    def _begin(self, record: Record) -> Membership:
        key = self._key(record)
        one = self.alive[record.address, record.rank] = Membership(key, record.rank, record.world)
        self._keys[record.address] = key
        found = self.of_run.setdefault(key, Communicator(_label(key), record.world))
        found.members[record.rank, self.name, record.address] = False
        return one

    def _key(self, record: Record) -> Key:
        """Return what tells a communicator from others; where lines do not, the how manieth of its kind it is."""
        ident, parent = _ID.search(record.about), _PARENT.search(record.about)
        name = ident[1] if ident else b""
        if parent is None and ident:
            return (name, record.world)
        above = self._keys.get(parent[1]) if parent else None
        label = name or (above[0] if above else parent[2] if parent else None) or b""
        # Of the parent only a number: keys within keys would grow with the log.
        key = (label, name, above and hash(above), parent and parent.group(2, 3), record.world)
        if parent and parent[2]:
            return key
        mine = (*key, record.rank)
        self._ordinals[mine] = self._ordinals.get(mine, 0) + 1
        return (*key, self._ordinals[mine])

    def _end(self, address: bytes, one: Membership) -> None:
        """Take a communicator out of those that have not ended; one that has ended on all ranks is forgotten."""
        del self.alive[address, one.rank]
        self._keys.pop(address, None)
        if found := self.of_run.get(one.key):
            found.members[one.rank, self.name, address] = True
            if len(found.members) >= found.world and all(found.members.values()):
                del self.of_run[one.key]


def parse_record(text: bytes) -> Record | None:
    """Parse a line about a communicator; one that cannot be right is none."""
    if not (found := _RECORD.search(text)):
        return None
    rank, world = int(found[2]), int(found[3])
    if rank >= world:
        return None
    return Record(found[1], rank, world, found[4], found[5] or found[6])


def left_behind(communicators: Alive) -> Iterator[tuple[Communicator, list[Member]]]:
    """Yield the communicators that have ended on some of their ranks, with the others."""
    for communicator in communicators.values():
        if members := communicator.left:
            yield communicator, members


def _label(key: Key) -> str:
    """Return the name by which a communicator is found in the log, its own or that of the one it was made from."""
    return key[0].decode() if isinstance(key[0], bytes) else ""
