"""Write small ELF files of any class, byte order and content: what a compiler of one machine cannot give."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field


@dataclass
class _Strings:
    content: bytearray = field(default_factory=lambda: bytearray(b"\0"))

    def add(self, text: str | bytes) -> int:
        place = len(self.content)
        self.content += (text.encode() if isinstance(text, str) else text) + b"\0"
        return place


def elf(
    soname: str | bytes | None = None,
    needed: Sequence[str | bytes] = (),
    *,
    rpath: str | None = None,
    runpath: str | None = None,
    verneed: Mapping[str, Sequence[str]] | None = None,
    verdef: Sequence[str] = (),
    weak: Sequence[str] = (),
    interpreter: str | None = None,
    nodeflib: bool = False,
    machine: int = 62,
    bits: int = 64,
    order: str = "<",
    kind: int = 3,
) -> bytes:
    """Give the bytes of a library whose file offsets are its addresses; glibc's loader takes those of this machine."""
    strings = _Strings()
    tags = [(1, strings.add(name)) for name in needed]
    tags += [(14, strings.add(soname))] if soname is not None else []
    tags += [(15, strings.add(rpath))] if rpath is not None else []
    tags += [(29, strings.add(runpath))] if runpath is not None else []
    tags += [(0x6FFFFFFB, 0x800)] if nodeflib else []
    needs = _verneed(strings, verneed or {}, set(weak), order)
    defines = _verdef(strings, verdef, order)
    interp = (interpreter or "").encode() + b"\0"
    phnum = 3 if interpreter else 2
    start = (64 if bits == 64 else 52) + phnum * (56 if bits == 64 else 32)
    at = {}
    body = b""
    table = struct.pack(order + "IIII", 1, 1, 0, 0)  # a hash table of one symbol, which is none
    parts = {"s": bytes(strings.content), "n": needs, "d": defines, "i": interp, "hash": table, "symbols": bytes(24)}
    for name, part in parts.items():
        at[name] = start + len(body)
        body += part + bytes(-len(part) % 8)
    tags += [(5, at["s"]), (10, len(strings.content)), (4, at["hash"]), (6, at["symbols"])]
    tags += [(11, 24 if bits == 64 else 16)]
    tags += [(0x6FFFFFF0, at["symbols"])] if needs or defines else []  # the version of the one symbol: none
    tags += [(0x6FFFFFFE, at["n"]), (0x6FFFFFFF, len(verneed or {}))] if needs else []
    tags += [(0x6FFFFFFC, at["d"]), (0x6FFFFFFD, len(verdef) + 1)] if defines else []
    layout = order + ("qQ" if bits == 64 else "iI")
    dynamic = b"".join(struct.pack(layout, tag, value) for tag, value in [*tags, (0, 0)])
    at["dyn"] = start + len(body)
    body += dynamic
    segments = [(1, 0, start + len(body)), (2, at["dyn"], len(dynamic))]
    segments += [(3, at["i"], len(interp))] if interpreter else []
    return _header(machine, bits, order, kind, phnum) + b"".join(_segment(bits, order, *one) for one in segments) + body


def _header(machine: int, bits: int, order: str, kind: int, phnum: int) -> bytes:
    ident = b"\x7fELF" + bytes([bits // 32, 1 if order == "<" else 2, 1]) + bytes(9)
    if bits == 64:
        return ident + struct.pack(order + "HHIQQQIHHHHHH", kind, machine, 1, 0, 64, 0, 0, 64, 56, phnum, 0, 0, 0)
    return ident + struct.pack(order + "HHIIIIIHHHHHH", kind, machine, 1, 0, 52, 0, 0, 52, 32, phnum, 0, 0, 0)


def _segment(bits: int, order: str, kind: int, offset: int, size: int) -> bytes:
    if bits == 64:
        return struct.pack(order + "IIQQQQQQ", kind, 7, offset, offset, offset, size, size, 4096)
    return struct.pack(order + "IIIIIIII", kind, offset, offset, offset, size, size, 7, 4096)


def _verneed(strings: _Strings, needs: Mapping[str, Sequence[str]], weak: set[str], order: str) -> bytes:
    content = b""
    for index, (library, versions) in enumerate(needs.items()):
        step = 16 + 16 * len(versions)
        last = index == len(needs) - 1
        content += struct.pack(order + "HHIII", 1, len(versions), strings.add(library), 16, 0 if last else step)
        for number, version in enumerate(versions):
            following = 0 if number == len(versions) - 1 else 16
            flags = 2 if version in weak else 0
            content += struct.pack(order + "IHHII", 0, flags, 2, strings.add(version), following)
    return content


def _verdef(strings: _Strings, versions: Sequence[str], order: str) -> bytes:
    if not versions:
        return b""
    content = b""
    for index, version in enumerate(["base", *versions]):
        flags = 1 if index == 0 else 0
        following = 0 if index == len(versions) else 28
        content += struct.pack(order + "HHHHIII", 1, flags, index + 1, 1, 0, 20, following)
        content += struct.pack(order + "II", strings.add(version), 0)
    return content


def loader_cache(paths: Mapping[str, str]) -> bytes:
    """Give the bytes of an ld.so.cache for x86-64 as glibc 2.32 and later write it, without an extension."""
    strings, header = _Strings(), struct.Struct("<20sII4xI12x")
    first = header.size + 24 * len(paths)
    entries = [(0x0303, first + strings.add(name), first + strings.add(path), 0, 0) for name, path in paths.items()]
    content = bytes(strings.content)
    table = b"".join(struct.pack("<iIIIQ", *entry) for entry in entries)
    return header.pack(b"glibc-ld.so.cache1.1", len(paths), len(content), 0) + table + content
