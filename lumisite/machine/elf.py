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
from lumisite.machine.tree import Source, Tree

#: Limits that no linker's output comes near; beyond them the file is damaged, or made to tire its reader.
MOST_TAGS = 16_384
MOST_RECORDS = 16_384
LONGEST_NAME_BYTES = 4_096
LONGEST_PATH_BYTES = 65_536

_PAGE_BYTES = 4096
_PAGES_KEPT = 64

#: Of objects of 64 bits in little-endian order: the header behind the identification, a program header, a dynamic tag.
_HEADER = "<HHIQQQIHHH"
_SEGMENT = "<IIQQQQQQ"
_TAG = "<qQ"
_SECTION = "<IIQQQQIIQQ"

_ET_EXEC, _ET_DYN = 2, 3
_PT_LOAD, _PT_DYNAMIC = 1, 2
_DT_NULL, _DT_NEEDED, _DT_STRTAB, _DT_STRSZ, _DT_SONAME, _DT_RPATH, _DT_RUNPATH = 0, 1, 5, 10, 14, 15, 29
_DT_FLAGS_1, _DT_VERDEF, _DT_VERNEED = 0x6FFFFFFB, 0x6FFFFFFC, 0x6FFFFFFE
_DF_1_NODEFLIB = 0x800
_VER_FLG_BASE, _VER_FLG_WEAK = 1, 2


class ElfError(LumisiteError):
    """A file that is no ELF file, or a damaged one."""


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
class _Reader:
    """An ELF file; `segments` have kind, file offset, address and size, `strings` is the offset and size of the table.

    `tags` has all values of each, in order. It is read in about 50 small parts close to each other, and each part of a
    file on disk costs three calls of the system: whole pages are fetched, and the last ones kept.
    """

    source: Source
    segments: tuple[tuple[int, int, int, int], ...] = ()
    strings: tuple[int, int] = (0, 0)
    tags: dict[int, list[int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        source = self.source
        self._page = lru_cache(_PAGES_KEPT)(lambda number: source.read(number * _PAGE_BYTES, _PAGE_BYTES))

    def read(self, offset: int, length: int) -> bytes:
        first, last = offset // _PAGE_BYTES, (offset + length - 1) // _PAGE_BYTES
        if last - first > 1:
            return self.source.read(offset, length)
        start = offset - first * _PAGE_BYTES
        content = self._page(first) if last <= first else self._page(first) + self._page(last)
        return content[start : start + length]

    def fault(self, offset: int, what: str) -> ElfError:
        return ElfError(f"{self.source.name}: byte {offset}: {what}")

    def unpack(self, layout: str, offset: int, what: str) -> tuple[int, ...]:
        length = struct.calcsize(layout)
        content = self.read(offset, length)
        if len(content) < length:
            raise self.fault(offset, f"the file ends in its {what} (it has {self.source.size} bytes)")
        return struct.unpack(layout, content)

    def offset_of(self, address: int, what: str) -> int:
        """Translate an address of the loaded object into an offset of the file."""
        for kind, offset, start, size in self.segments:
            if kind == _PT_LOAD and 0 <= address - start < size:
                return offset + address - start
        raise self.fault(0, f"no segment holds its {what} (address {address:#x})")

    def string(self, index: int, what: str, most: int = LONGEST_NAME_BYTES) -> str:
        """Read text up to its NUL, which must come within `most` bytes and in the table."""
        start, size = self.strings
        if index >= size:
            raise self.fault(start, f"its {what} begins at {index} of a string table of {size} bytes")
        offset, most, content = start + index, min(most, size - index), b""
        for length in (min(most, 128), most):  # nearly every name is short, and an image unpacks what is read
            content, end, _ = self.read(offset, length).partition(b"\0")
            if end:
                break
        else:
            raise self.fault(offset, f"its {what} does not end within {most} bytes")
        try:
            text = content.decode()
        except UnicodeDecodeError:
            text = "\0"
        if not text.isprintable():
            raise self.fault(offset, f"its {what} is no text: {content[:40]!r}")
        if not text and what != "search path":
            raise self.fault(offset, f"its {what} is empty")
        return text

    def needed(self) -> tuple[str, ...]:
        return tuple(self.string(index, "NEEDED") for index in self.tags.get(_DT_NEEDED, ()))

    def last(self, tag: int, what: str, most: int = LONGEST_NAME_BYTES) -> str | None:
        """Give the text of a tag that stands once; of several the loader takes the last."""
        return self.string(self.tags[tag][-1], what, most) if tag in self.tags else None


def read_needed(tree: Tree, path: str) -> tuple[str, ...]:
    """Give the libraries that a file of a tree needs, and look at no more of it; none of what is damaged or no ELF."""
    source = tree.source(path)
    try:
        return () if source is None else _open(source)[0].needed()
    except ElfError:
        return ()


def read_only_data(source: Source) -> tuple[int, int]:
    """Return where the constants of an object begin in its file, and their size in bytes; (0, 0) where none are found.

    The loader needs no section headers, so that a library may have none.
    """
    head = source.read(0, 64)
    if len(head) < 64 or head[:6] != b"\x7fELF\x02\x01":
        return 0, 0
    (table,) = struct.unpack_from("<Q", head, 40)
    size, count, names = struct.unpack_from("<HHH", head, 58)
    if size != struct.calcsize(_SECTION) or names >= count:
        return 0, 0
    content = source.read(table, size * count)
    sections = list(struct.iter_unpack(_SECTION, content[: len(content) // size * size]))
    if len(sections) < count:
        return 0, 0
    start = sections[names][4]
    for name, _, _, _, offset, length, *_ in sections:
        if source.read(start + name, 8) == b".rodata\0":
            return offset, min(length, max(0, source.size - offset))
    return 0, 0


def read_elf(source: Source) -> ElfInfo:
    """Read an executable or a shared library; raises `ElfError` that names the file and the byte."""
    elf, info = _open(source)
    return replace(
        info,
        soname=elf.last(_DT_SONAME, "SONAME"),
        needed=elf.needed(),
        rpath=elf.last(_DT_RPATH, "search path", LONGEST_PATH_BYTES),
        runpath=elf.last(_DT_RUNPATH, "search path", LONGEST_PATH_BYTES),
        verneed=_versions_needed(elf),
        verdef=tuple(_versions_defined(elf)),
        nodeflib=bool(elf.tags.get(_DT_FLAGS_1, [0])[-1] & _DF_1_NODEFLIB),
    )


def _open(source: Source) -> tuple[_Reader, ElfInfo]:
    """Find the string table and the dynamic tags of an object, and tell what it is built for."""
    elf = _Reader(source)
    ident = elf.read(0, 20)
    if not ident:
        raise ElfError(f"{source.name}: is empty, where an ELF file would be right")
    if len(ident) < 16 or ident[:4] != b"\x7fELF":
        raise elf.fault(0, f"is no ELF file, it begins with {ident[:8]!r}")
    if ident[4] not in (1, 2) or ident[5] not in (1, 2):
        raise elf.fault(4, f"has class {ident[4]} and byte order {ident[5]} (1 or 2 would be right)")
    endianness: Literal["little", "big"] = "little" if ident[5] == 1 else "big"
    info = ElfInfo(int.from_bytes(ident[18:20], endianness), 32 if ident[4] == 1 else 64, endianness)
    if (info.bits, info.endianness) != (64, "little"):
        return elf, info
    kind, _, _, _, table, _, _, _, entry_size, count = elf.unpack(_HEADER, 16, "header")
    if kind not in (_ET_EXEC, _ET_DYN):
        raise elf.fault(16, f"is of type {kind}; only programs (2) and shared libraries (3) can be loaded")
    wanted = struct.calcsize(_SEGMENT)
    if count and entry_size != wanted:
        raise elf.fault(16, f"its program headers have {entry_size} bytes each ({wanted} would be right)")
    content = elf.read(table, wanted * count)
    if len(content) < wanted * count:
        raise elf.fault(table, f"the file ends in its {count} program headers (it has {source.size} bytes)")
    elf.segments = tuple(
        (kind, offset, address, size)
        for kind, _, offset, address, _, size, _, _ in struct.iter_unpack(_SEGMENT, content)
    )
    elf.tags = _dynamic_tags(elf)
    if _DT_STRTAB in elf.tags:
        start = elf.offset_of(elf.tags[_DT_STRTAB][0], "string table")
        elf.strings = (start, elf.tags.get(_DT_STRSZ, [0])[0])
    return elf, info


def _dynamic_tags(elf: _Reader) -> dict[int, list[int]]:
    """Give all values of each tag, in order; none for a static program."""
    found: dict[int, list[int]] = {}
    dynamic = next(((address, size) for kind, _, address, size in elf.segments if kind == _PT_DYNAMIC), None)
    if dynamic is None:
        return found
    start, step = elf.offset_of(dynamic[0], "dynamic section"), struct.calcsize(_TAG)
    content = elf.read(start, min(dynamic[1] // step, MOST_TAGS) * step)
    for tag, value in struct.iter_unpack(_TAG, content[: len(content) // step * step]):
        if tag == _DT_NULL:
            return found
        found.setdefault(tag, []).append(value)
    raise elf.fault(start, f"its dynamic section has no end within {len(content) // step} entries")


def _versions_needed(elf: _Reader) -> dict[str, tuple[str, ...]]:
    if _DT_VERNEED not in elf.tags:
        return {}
    needed: dict[str, list[str]] = {}
    start = elf.offset_of(elf.tags[_DT_VERNEED][0], "table of needed versions")
    left = MOST_RECORDS
    for offset, (form, _, file, first, _) in _chain(elf, "<HHIII", start, left):
        if form != 1:
            raise elf.fault(offset, f"its table of needed versions has form {form} (1 would be right)")
        versions = needed.setdefault(elf.string(file, "NEEDED"), [])
        for _, (_, flags, _, name, _) in _chain(elf, "<IHHII", offset + first, left):
            left -= 1
            if not flags & _VER_FLG_WEAK:
                versions.append(elf.string(name, "version"))
        left -= 1
    return {library: tuple(versions) for library, versions in needed.items()}


def _versions_defined(elf: _Reader) -> Iterator[str]:
    if _DT_VERDEF not in elf.tags:
        return
    start = elf.offset_of(elf.tags[_DT_VERDEF][0], "table of versions")
    for offset, (form, flags, _, _, _, first, _) in _chain(elf, "<HHHHIII", start, MOST_RECORDS):
        if form != 1:
            raise elf.fault(offset, f"its table of versions has form {form} (1 would be right)")
        if not flags & _VER_FLG_BASE:
            yield elf.string(elf.unpack("<II", offset + first, "table of versions")[0], "version")


def _chain(elf: _Reader, layout: str, offset: int, most: int) -> Iterator[tuple[int, tuple[int, ...]]]:
    """Give the records of a chain with their offsets; the last field of each is the step to the next, 0 at the end."""
    for _ in range(most):
        record = elf.unpack(layout, offset, "symbol versions")
        yield offset, record
        if not record[-1]:
            return
        offset += record[-1]
    raise elf.fault(offset, f"its symbol versions are more than {MOST_RECORDS}")
