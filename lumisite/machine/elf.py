"""Read of an ELF file what the dynamic loader reads: NEEDED, SONAME, search paths and symbol versions.

Written here and not taken from pyelftools, which finds symbol versions only through section headers (the loader needs
none, and a library may have none), takes 2.4 ms for a library where this takes 0.14, and answers damage with a dozen
types of exception.

Sources: elf(5); System V ABI, "Dynamic Linking"; Linux Standard Base 5.0 Core, "Symbol Versioning".
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Literal

from lumisite.errors import LumisiteError
from lumisite.findings.finding import Finding, Severity
from lumisite.machine.tree import ByteSource, Tree

#: Limits that no linker's output comes near; beyond them the file is damaged.
_MOST_TAGS = 16_384
_LONGEST_NAME_BYTES = 4_096
_LONGEST_PATH_BYTES = 65_536

_PAGE_BYTES = 4096
_PAGES_KEPT = 64

#: Of objects of 64 bits in little-endian order: the header behind the identification, a program header, a dynamic tag.
_HEADER = "<HHIQQQIHHH"
_SEGMENT = "<IIQQQQQQ"
_TAG = "<qQ"

_ET_EXEC, _ET_DYN = 2, 3
_PT_LOAD, _PT_DYNAMIC = 1, 2
_DT_NULL, _DT_NEEDED, _DT_STRTAB, _DT_STRSZ, _DT_SONAME, _DT_RPATH, _DT_RUNPATH = 0, 1, 5, 10, 14, 15, 29
_DT_FLAGS_1, _DT_VERDEF, _DT_VERNEED = 0x6FFFFFFB, 0x6FFFFFFC, 0x6FFFFFFE
_DF_1_NODEFLIB = 0x800
_VER_FLG_BASE, _VER_FLG_WEAK = 1, 2
_RPATH, _RUNPATH = "DT_RPATH", "DT_RUNPATH"


class ElfError(LumisiteError):
    """A file that is no ELF file, or a damaged one: `library-damaged`."""


@dataclass(frozen=True)
class ElfInfo:
    """What the loader knows of an object before it maps it.

    `machine` is `e_machine` (62 is x86-64). Of an object of 32 bits or in big-endian order, which is never loaded, no
    more is read. `verneed` maps the SONAME of a library to the versions that it must have; weak ones, which the loader
    can do without, are left out. `verdef` are the versions that the object itself has, without the base one, which is
    its name. `nodeflib` means that the default directories are not for it.
    """

    machine: int
    bits: Literal[32, 64]
    endianness: Literal["little", "big"]
    soname: str | None = None
    needed: tuple[str, ...] = ()
    rpath: str | None = None
    runpath: str | None = None
    verneed: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    verdef: tuple[str, ...] = ()
    nodeflib: bool = False


@dataclass
class _ElfReader:
    """An ELF file; `segments` have kind, file offset, address and size, `strings` is the offset and size of the table.

    `tags` has all values of each, in order. It is read in about 50 small parts close to each other, and each part of a
    file on disk costs three calls of the system: whole pages are fetched, and the last ones kept.
    """

    source: ByteSource
    segments: tuple[tuple[int, int, int, int], ...] = ()
    strings: tuple[int, int] = (0, 0)
    tags: dict[int, list[int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._page = lru_cache(_PAGES_KEPT)(lambda number: self.source.read(number * _PAGE_BYTES, _PAGE_BYTES))

    def read(self, offset: int, length: int) -> bytes:
        first, last = offset // _PAGE_BYTES, (offset + length - 1) // _PAGE_BYTES
        if last - first > 1:
            return self.source.read(offset, length)
        start = offset - first * _PAGE_BYTES
        content = self._page(first) if last <= first else self._page(first) + self._page(last)
        return content[start : start + length]

    def damaged(self, offset: int, part: str) -> ElfError:
        """Return the error that names the byte and the part of the file, as elf(5) calls it."""
        message = f"cannot be loaded: {part} at byte {offset} is damaged, or this is no ELF file"
        advice = "restore the file, or install its package again"
        return ElfError(Finding("library-damaged", Severity.FAULT, message, advice, self.source.name))

    def unpack(self, layout: str, offset: int, part: str) -> tuple[int, ...]:
        length = struct.calcsize(layout)
        content = self.read(offset, length)
        if len(content) < length:
            raise self.damaged(offset, part)
        return struct.unpack(layout, content)

    def offset_of(self, address: int, part: str) -> int:
        """Translate an address of the loaded object into an offset of the file."""
        for kind, offset, start, size in self.segments:
            if kind == _PT_LOAD and 0 <= address - start < size:
                return offset + address - start
        raise self.damaged(0, part)

    def string(self, index: int, part: str, most: int = _LONGEST_NAME_BYTES) -> str:
        """Read text up to its NUL, which must come within `most` bytes and in the table; only a path may be empty."""
        start, size = self.strings
        offset, most = start + index, min(most, size - index)
        if most <= 0:
            raise self.damaged(start, part)
        content, end, _ = self.read(offset, min(most, 128)).partition(b"\0")
        if not end:  # nearly every name is short, and an image unpacks what is read
            content, end, _ = self.read(offset, most).partition(b"\0")
        try:
            text = content.decode()
        except UnicodeDecodeError:
            text = "\0"
        if not end or not text.isprintable() or not (text or part in (_RPATH, _RUNPATH)):
            raise self.damaged(offset, part)
        return text

    def needed(self) -> tuple[str, ...]:
        return tuple(self.string(index, "DT_NEEDED") for index in self.tags.get(_DT_NEEDED, ()))

    def last(self, tag: int, part: str, most: int = _LONGEST_NAME_BYTES) -> str | None:
        """Return the text of a tag; of several the loader takes the last."""
        return self.string(self.tags[tag][-1], part, most) if tag in self.tags else None


def read_needed(tree: Tree, path: str) -> tuple[str, ...]:
    """Return the libraries that a file of a tree needs; none for a file that is damaged or no ELF file."""
    source = tree.source(path)
    try:
        return () if source is None else _open(source)[0].needed()
    except ElfError:
        return ()


def read_elf(source: ByteSource) -> ElfInfo:
    """Read an executable or a shared library; raises `ElfError`."""
    elf, info = _open(source)
    return replace(
        info,
        soname=elf.last(_DT_SONAME, "DT_SONAME"),
        needed=elf.needed(),
        rpath=elf.last(_DT_RPATH, _RPATH, _LONGEST_PATH_BYTES),
        runpath=elf.last(_DT_RUNPATH, _RUNPATH, _LONGEST_PATH_BYTES),
        verneed=_versions_needed(elf),
        verdef=tuple(_versions_defined(elf)),
        nodeflib=bool(elf.tags.get(_DT_FLAGS_1, [0])[-1] & _DF_1_NODEFLIB),
    )


def _open(source: ByteSource) -> tuple[_ElfReader, ElfInfo]:
    """Find the string table and the dynamic tags of an object, and what it is built for."""
    elf = _ElfReader(source)
    ident = elf.read(0, 20)
    if len(ident) < 16 or ident[:4] != b"\x7fELF" or ident[4] not in (1, 2) or ident[5] not in (1, 2):
        raise elf.damaged(0, "e_ident")
    endianness: Literal["little", "big"] = "little" if ident[5] == 1 else "big"
    info = ElfInfo(int.from_bytes(ident[18:20], endianness), 32 if ident[4] == 1 else 64, endianness)
    if (info.bits, info.endianness) != (64, "little"):
        return elf, info
    kind, _, _, _, table, _, _, _, entry_size, count = elf.unpack(_HEADER, 16, "header")
    if kind not in (_ET_EXEC, _ET_DYN):
        raise elf.damaged(16, "e_type")
    if count and entry_size != struct.calcsize(_SEGMENT):
        raise elf.damaged(54, "e_phentsize")
    content = elf.read(table, entry_size * count)
    if len(content) < entry_size * count:
        raise elf.damaged(table, "program headers")
    elf.segments = tuple(
        (kind, offset, address, size)
        for kind, _, offset, address, _, size, _, _ in struct.iter_unpack(_SEGMENT, content)
    )
    elf.tags = _dynamic_tags(elf)
    if _DT_STRTAB in elf.tags:
        start = elf.offset_of(elf.tags[_DT_STRTAB][0], "DT_STRTAB")
        elf.strings = (start, elf.tags.get(_DT_STRSZ, [0])[0])
    return elf, info


def _dynamic_tags(elf: _ElfReader) -> dict[int, list[int]]:
    """Return all values of each tag, in order; none for a static program."""
    found: dict[int, list[int]] = {}
    dynamic = next(((address, size) for kind, _, address, size in elf.segments if kind == _PT_DYNAMIC), None)
    if dynamic is None:
        return found
    start, step = elf.offset_of(dynamic[0], "PT_DYNAMIC"), struct.calcsize(_TAG)
    content = elf.read(start, min(dynamic[1] // step, _MOST_TAGS) * step)
    for tag, value in struct.iter_unpack(_TAG, content[: len(content) // step * step]):
        if tag == _DT_NULL:
            return found
        found.setdefault(tag, []).append(value)
    raise elf.damaged(start, "PT_DYNAMIC")


def _versions_needed(elf: _ElfReader) -> dict[str, tuple[str, ...]]:
    needed: dict[str, list[str]] = {}
    for offset, (_, _, file, first, _) in _table(elf, _DT_VERNEED, "<HHIII", "DT_VERNEED"):
        versions = needed.setdefault(elf.string(file, "DT_VERNEED"), [])
        for _, (_, flags, _, name, _) in _chain(elf, "<IHHII", offset + first, "DT_VERNEED"):
            if not flags & _VER_FLG_WEAK:
                versions.append(elf.string(name, "DT_VERNEED"))
    return {library: tuple(versions) for library, versions in needed.items()}


def _versions_defined(elf: _ElfReader) -> Iterator[str]:
    for offset, (_, flags, _, _, _, first, _) in _table(elf, _DT_VERDEF, "<HHHHIII", "DT_VERDEF"):
        if not flags & _VER_FLG_BASE:
            yield elf.string(elf.unpack("<II", offset + first, "DT_VERDEF")[0], "DT_VERDEF")


def _table(elf: _ElfReader, tag: int, layout: str, part: str) -> Iterator[tuple[int, tuple[int, ...]]]:
    """Yield the records of a table of versions with their offsets; the first field of each is its format, always 1."""
    if tag not in elf.tags:
        return
    for offset, record in _chain(elf, layout, elf.offset_of(elf.tags[tag][0], part), part):
        if record[0] != 1:
            raise elf.damaged(offset, part)
        yield offset, record


def _chain(elf: _ElfReader, layout: str, offset: int, part: str) -> Iterator[tuple[int, tuple[int, ...]]]:
    """Yield the records of a chain with their offsets; the last field of each is the step to the next, 0 at the end."""
    step = -1
    while step:
        record = elf.unpack(layout, offset, part)
        yield offset, record
        step = record[-1]
        offset += step
