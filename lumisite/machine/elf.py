"""Read of an ELF file what the dynamic loader reads: NEEDED, SONAME, search paths and symbol versions.

Written here and not taken from pyelftools, which finds symbol versions only through section headers (the loader needs
none, and a library may have none), takes 2.4 ms for a library where this takes 0.14, and answers damage with a dozen
types of exception.

Sources: elf(5); System V ABI, "Dynamic Linking"; Linux Standard Base 5.0 Core, "Symbol Versioning".
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

from lumisite.errors import LumisiteError
from lumisite.machine.tree import Paged, Source

#: Limits that no linker's output comes near; beyond them the file is damaged, or made to tire its reader.
MOST_TAGS = 16_384
MOST_RECORDS = 16_384
LONGEST_NAME_BYTES = 4_096
LONGEST_PATH_BYTES = 65_536

_HEADERS = {32: "HHIIIIIHHH", 64: "HHIQQQIHHH"}
_SEGMENTS = {32: "IIIIIIII", 64: "IIQQQQQQ"}
_TAGS = {32: "iI", 64: "qQ"}

_ET_EXEC, _ET_DYN = 2, 3
_PT_LOAD, _PT_DYNAMIC, _PT_INTERP = 1, 2, 3
_DT_NULL, _DT_NEEDED, _DT_STRTAB, _DT_STRSZ, _DT_SONAME, _DT_RPATH, _DT_RUNPATH = 0, 1, 5, 10, 14, 15, 29
_DT_FLAGS_1, _DT_VERDEF, _DT_VERNEED = 0x6FFFFFFB, 0x6FFFFFFC, 0x6FFFFFFE
_DF_1_NODEFLIB = 0x800
_VER_FLG_BASE, _VER_FLG_WEAK = 1, 2


class ElfError(LumisiteError):
    """A file that is no ELF file, or a damaged one."""


@dataclass(frozen=True)
class ElfInfo:
    """What the loader knows of an object before it maps it.

    `machine` is `e_machine` (62 is x86-64). `verneed` maps the SONAME of a library to the versions that it must have;
    weak ones, which the loader can do without, are left out. `verdef` are the versions that the object itself has,
    without the base one, which is its name. `nodeflib` means that the default directories are not for it.
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
    interpreter: str | None = None
    nodeflib: bool = False


@dataclass(frozen=True)
class _Segment:
    kind: int
    offset: int
    address: int
    size: int


@dataclass(frozen=True)
class _Reader:
    """An ELF file whose class and byte order are known; `strings` is the file offset and size of the string table."""

    source: Source
    bits: Literal[32, 64]
    order: Literal["<", ">"]
    segments: tuple[_Segment, ...] = ()
    strings: tuple[int, int] = (0, 0)

    def fault(self, offset: int, what: str) -> ElfError:
        return ElfError(f"{self.source.name}: byte {offset}: {what}")

    def unpack(self, layout: str, offset: int, what: str) -> tuple[int, ...]:
        layout = self.order + layout
        length = struct.calcsize(layout)
        content = self.source.read(offset, length)
        if len(content) < length:
            raise self.fault(offset, f"the file ends in its {what} (it has {self.source.size} bytes)")
        return struct.unpack(layout, content)

    def offset_of(self, address: int, what: str) -> int:
        """Translate an address of the loaded object into an offset of the file."""
        for segment in self.segments:
            if segment.kind == _PT_LOAD and 0 <= address - segment.address < segment.size:
                return segment.offset + address - segment.address
        raise self.fault(0, f"no segment holds its {what} (address {address:#x})")

    def string(self, index: int, what: str, most: int = LONGEST_NAME_BYTES) -> str:
        start, size = self.strings
        if index >= size:
            raise self.fault(start, f"its {what} begins at {index} of a string table of {size} bytes")
        text = self.text(start + index, min(most, size - index), what)
        if not text and what != "search path":
            raise self.fault(start + index, f"its {what} is empty")
        return text

    def text(self, offset: int, most: int, what: str) -> str:
        """Read text up to its NUL, which must come within `most` bytes."""
        content = b""
        for length in (min(most, 128), most):  # nearly every name is short, and an image unpacks what is read
            content, end, _ = self.source.read(offset, length).partition(b"\0")
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
        return text


def read_needed(source: Source) -> tuple[str, ...]:
    """Give the libraries that an object needs, and look at no more of it; raises `ElfError` as `read_elf` does."""
    elf, tags, _ = _open(source)
    return _needed(elf, tags)


def read_elf(source: Source) -> ElfInfo:
    """Read an executable or a shared library; raises `ElfError` that names the file and the byte."""
    elf, tags, machine = _open(source)
    return ElfInfo(
        machine=machine,
        bits=elf.bits,
        endianness="little" if elf.order == "<" else "big",
        soname=_last(elf, tags, _DT_SONAME, "SONAME"),
        needed=_needed(elf, tags),
        rpath=_last(elf, tags, _DT_RPATH, "search path", LONGEST_PATH_BYTES),
        runpath=_last(elf, tags, _DT_RUNPATH, "search path", LONGEST_PATH_BYTES),
        verneed=_versions_needed(elf, tags),
        verdef=tuple(_versions_defined(elf, tags)),
        interpreter=_interpreter(elf),
        nodeflib=bool(tags.get(_DT_FLAGS_1, [0])[-1] & _DF_1_NODEFLIB),
    )


def _open(source: Source) -> tuple[_Reader, dict[int, list[int]], int]:
    """Find the string table and the dynamic tags of an object, and tell its machine."""
    source = Paged(source)
    ident = source.read(0, 16)
    if not ident:
        raise ElfError(f"{source.name}: is empty, where an ELF file would be right")
    if len(ident) < 16 or ident[:4] != b"\x7fELF":
        raise ElfError(f"{source.name}: byte 0: is no ELF file, it begins with {ident[:8]!r}")
    if ident[4] not in (1, 2) or ident[5] not in (1, 2):
        raise ElfError(f"{source.name}: byte 4: has class {ident[4]} and byte order {ident[5]} (1 or 2 would be right)")
    head = _Reader(source, 32 if ident[4] == 1 else 64, "<" if ident[5] == 1 else ">")
    kind, machine, _, _, table, _, _, _, entry_size, count = head.unpack(_HEADERS[head.bits], 16, "header")
    if kind not in (_ET_EXEC, _ET_DYN):
        raise head.fault(16, f"is of type {kind}; only programs (2) and shared libraries (3) can be loaded")
    wanted = struct.calcsize(head.order + _SEGMENTS[head.bits])
    if count and entry_size != wanted:
        raise head.fault(16, f"its program headers have {entry_size} bytes each ({wanted} would be right)")
    elf = _Reader(source, head.bits, head.order, tuple(_segments(head, table, count)))
    tags = _dynamic_tags(elf)
    if _DT_STRTAB in tags:
        start = elf.offset_of(tags[_DT_STRTAB][0], "string table")
        elf = _Reader(source, elf.bits, elf.order, elf.segments, (start, tags.get(_DT_STRSZ, [0])[0]))
    return elf, tags, machine


def _needed(elf: _Reader, tags: Mapping[int, list[int]]) -> tuple[str, ...]:
    return tuple(elf.string(index, "NEEDED") for index in tags.get(_DT_NEEDED, ()))


def _segments(elf: _Reader, table: int, count: int) -> Iterator[_Segment]:
    layout = elf.order + _SEGMENTS[elf.bits]
    length = struct.calcsize(layout) * count
    content = elf.source.read(table, length)
    if len(content) < length:
        raise elf.fault(table, f"the file ends in its {count} program headers (it has {elf.source.size} bytes)")
    for values in struct.iter_unpack(layout, content):
        if elf.bits == 64:
            kind, _, offset, address, _, size, _, _ = values
        else:
            kind, offset, address, _, size, _, _, _ = values
        yield _Segment(kind, offset, address, size)


def _dynamic_tags(elf: _Reader) -> dict[int, list[int]]:
    """Give all values of each tag, in order; none for a static program."""
    found: dict[int, list[int]] = {}
    for segment in elf.segments:
        if segment.kind == _PT_DYNAMIC:
            start = elf.offset_of(segment.address, "dynamic section")
            break
    else:
        return found
    layout = elf.order + _TAGS[elf.bits]
    step = struct.calcsize(layout)
    most = min(segment.size // step, MOST_TAGS)
    content = elf.source.read(start, most * step)
    for tag, value in struct.iter_unpack(layout, content[: len(content) // step * step]):
        if tag == _DT_NULL:
            return found
        found.setdefault(tag, []).append(value)
    raise elf.fault(start, f"its dynamic section has no end within {len(content) // step} entries")


def _last(
    elf: _Reader, tags: Mapping[int, list[int]], tag: int, what: str, most: int = LONGEST_NAME_BYTES
) -> str | None:
    """Give the text of a tag that stands once; of several the loader takes the last."""
    return elf.string(tags[tag][-1], what, most) if tag in tags else None


def _versions_needed(elf: _Reader, tags: Mapping[int, list[int]]) -> dict[str, tuple[str, ...]]:
    if _DT_VERNEED not in tags:
        return {}
    needed: dict[str, list[str]] = {}
    start = elf.offset_of(tags[_DT_VERNEED][0], "table of needed versions")
    left = MOST_RECORDS
    for offset, (form, _, file, first, _) in _chain(elf, "HHIII", start, left):
        if form != 1:
            raise elf.fault(offset, f"its table of needed versions has form {form} (1 would be right)")
        versions = needed.setdefault(elf.string(file, "NEEDED"), [])
        for _, (_, flags, _, name, _) in _chain(elf, "IHHII", offset + first, left):
            left -= 1
            if not flags & _VER_FLG_WEAK:
                versions.append(elf.string(name, "version"))
        left -= 1
    return {library: tuple(versions) for library, versions in needed.items()}


def _versions_defined(elf: _Reader, tags: Mapping[int, list[int]]) -> Iterator[str]:
    if _DT_VERDEF not in tags:
        return
    start = elf.offset_of(tags[_DT_VERDEF][0], "table of versions")
    for offset, (form, flags, _, _, _, first, _) in _chain(elf, "HHHHIII", start, MOST_RECORDS):
        if form != 1:
            raise elf.fault(offset, f"its table of versions has form {form} (1 would be right)")
        if not flags & _VER_FLG_BASE:
            yield elf.string(elf.unpack("II", offset + first, "table of versions")[0], "version")


def _chain(elf: _Reader, layout: str, offset: int, most: int) -> Iterator[tuple[int, tuple[int, ...]]]:
    """Give the records of a chain with their offsets; the last field of each is the step to the next, 0 at the end."""
    for _ in range(most):
        record = elf.unpack(layout, offset, "symbol versions")
        yield offset, record
        if not record[-1]:
            return
        offset += record[-1]
    raise elf.fault(offset, f"its symbol versions are more than {MOST_RECORDS}")


def _interpreter(elf: _Reader) -> str | None:
    for segment in elf.segments:
        if segment.kind == _PT_INTERP:
            return elf.text(segment.offset, LONGEST_NAME_BYTES, "interpreter")
    return None
