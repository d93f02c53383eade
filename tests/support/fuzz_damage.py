"""All that may have become of a file: what it holds, what stands in its place, and who may read it."""

from __future__ import annotations

import contextlib
import functools
import gzip
import json
import lzma
import os
import random
import re
import shutil
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

#: A name that stands beside the damaged file.
NEIGHBOUR = "x\x1b[2J\n\u202e.json"
_WRONG = [
    *json.loads(r'[null, true, false, -1, 0, 1.5, 1e308, -1e308, "", "\ud800", [], {}, [[]], [null], {"": 1}]'),
    *(
        "\u00b2",
        "\u0663",
        "\0",
        "a\x1b[2J",
        "a\nb",
        "\u202eevil",
        "a\u200bb",
        "\u0430",
        "..",
        "../../x",
        "/",
        "/x" * 3000,
        "$(id)`id`",
    ),
    *(float("nan"), float("inf"), 10**400, 2**63, 2**64, -(2**63), "9" * 5000, "x" * 5000, "NaN", "1e999"),
]
_NUMBERS = [b"9" * 5000, b"9" * 400, b"-1", b"1e999", b"NaN", b"0" * 50, b"1.5", b"4294967296", b"18446744073709551615"]
_LETTERS = [
    "\u202e",
    "\u200b",
    "\u2028",
    "\x85",
    "\x9b2J",
    "\x1b[2J",
    "\r",
    "\x07",
    "\x08",
    "\0",
    "\ufeff",
    "\u0430",
    "\u00b2",
    "\U000e0041",
]

Damage = Callable[[bytes, random.Random], bytes]


def _type(content: bytes, choose: random.Random) -> bytes:
    """Put something of another type at one place of a JSON file, or of one line of a file of them; or take it out."""
    lines = content.split(b"\n") if content.count(b"\n{") > 1 else [content]
    at = choose.randrange(len(lines))
    with contextlib.suppress(ValueError):
        whole: Any = {"": json.loads(lines[at])}
        place, key = whole, ""
        while isinstance(place[key], dict | list) and place[key] and choose.random() < 0.8:
            place = place[key]
            key = choose.choice(list(place) if isinstance(place, dict) else range(len(place)))
        if choose.random() < 0.2 and isinstance(place, dict) and key:
            place["x\x1b[2J\u202e"] = place.pop(key)
        else:
            place[key] = choose.choice(_WRONG)
        lines[at] = json.dumps(whole[""]).encode()
    return b"\n".join(lines)


def _number(content: bytes, choose: random.Random) -> bytes:
    found = list(re.finditer(rb"[0-9]+", content[:1_000_000]))
    digits = choose.choice([*_NUMBERS, "\u00b2".encode(), "\u0663".encode()])
    if not found:
        return content + digits
    one = choose.choice(found)
    return content[: one.start()] + digits + content[one.end() :]


def _bits(content: bytes, choose: random.Random) -> bytes:
    """Flip bits, most of them at the start, where the formats have their headers."""
    data = bytearray(content or b"\0")
    for _ in range(choose.choice([1, 1, 3, 50])):
        at = choose.randrange(min(len(data), choose.choice([200, 5000, len(data)])))
        data[at] ^= 1 << choose.randrange(8)
    return bytes(data)


def _field(content: bytes, choose: random.Random) -> bytes:
    """Put the largest and the smallest number into fields of 2, 4 or 8 bytes."""
    data = bytearray(content.ljust(8, b"\0"))
    for _ in range(choose.choice([1, 2, 5])):
        size = choose.choice([2, 4, 8])
        at = choose.randrange(min(len(data), choose.choice([256, 30_000, len(data)]))) // size * size
        value = choose.choice([0, 1, (1 << 8 * size) - 1, 1 << (8 * size - 1), (1 << (8 * size - 1)) - 1, len(data)])
        data[at : at + size] = value.to_bytes(size, choose.choice(["little", "little", "big"]))
    return bytes(data)


def _lines(content: bytes, choose: random.Random) -> bytes:
    """Take lines out, have them twice or many times, or in another order."""
    lines = content.splitlines(keepends=True) or [b""]
    at = choose.randrange(len(lines))
    kind = choose.randrange(4)
    if kind == 0:
        del lines[at]
    elif kind == 1:
        lines.insert(at, choose.choice(lines))
    elif kind == 2:
        lines[at:at] = [lines[at]] * choose.choice([100, min(20_000, 4_000_000 // (len(lines[at]) + 1))])
    else:
        choose.shuffle(lines)
    return b"".join(lines)


def _letter(content: bytes, choose: random.Random) -> bytes:
    return _put(content, choose, choose.choice(_LETTERS).encode())


def _put(content: bytes, choose: random.Random, what: bytes) -> bytes:
    at = choose.randrange(len(content) + 1)
    return content[:at] + what + content[at + choose.choice([0, 1, len(what)]) :]


def _deep(content: bytes, choose: random.Random) -> bytes:
    start, end = choose.choice([(b"[", b"]"), (b'{"a":', b"}"), (b"- ", b""), (b"<a>", b"</a>"), (b"{", b"}")])
    times = choose.choice([40, 900, 5000, 100_000])
    nest = start * times + choose.choice([b"", b"1" + end * times])
    return nest if choose.random() < 0.5 else _put(content, choose, nest)


def _encoded(content: bytes, choose: random.Random) -> bytes:
    name = choose.choice(["utf-16", "utf-32", "utf-16-le", "latin-1", "cp037", "utf-7"])
    return content.decode(errors="replace").encode(name, "replace")


def _twice(content: bytes, _: random.Random) -> bytes:
    return re.sub(rb'("[^"]+": *[^,{}\[\]]+),', rb"\1, \1,", content, count=1)


@functools.cache
def _bomb(kind: str) -> bytes:
    """Give some hundred kilobytes that unpack to 500 MB, or that unpack to what unpacks."""
    if sys.version_info >= (3, 14):
        from compression import zstd
    else:
        from backports import zstd
    zeros, block = bytes(1 << 20), b""
    if kind == "gzip":
        return gzip.compress(zeros * 64, 1) * 8
    if kind == "zstd":
        packer = zstd.ZstdCompressor()
        block = b"".join(packer.compress(zeros) for _ in range(500)) + packer.flush()
    elif kind == "xz":
        return lzma.compress(zeros * 16, preset=0) * 30
    elif kind == "lines":
        return gzip.compress(b"x\n" * 10_000_000, 1) * 5
    return block


def _bombs(content: bytes, choose: random.Random) -> bytes:
    kind = choose.choice(["gzip", "zstd", "xz", "lines", "entities", "anchors"])
    if kind == "entities":
        words = "".join(f'<!ENTITY a{n} "{f"&a{n - 1};" * 10 if n else "ha"}">' for n in range(12))
        return f'<?xml version="1.0"?><!DOCTYPE topology [{words}]><topology>&a11;</topology>'.encode()
    if kind == "anchors":
        return "".join(
            f"a{n}: &a{n} [{','.join([f'*a{n - 1}'] * 10) if n else 'ha'}]\n" for n in range(12)
        ).encode() + choose.choice([b"", content])
    return choose.choice([_bomb(kind), content + _bomb(kind)])


#: Damage to what a file holds.
CONTENTS: dict[str, Damage] = {
    "empty": lambda content, choose: b"",
    "cut short": lambda content, choose: content[: choose.randrange(len(content) + 1)],
    "end twice": lambda content, choose: content + content[choose.randrange(len(content) + 1) :],
    "random": lambda content, choose: choose.randbytes(choose.choice([1, 100, 100_000])),
    "not UTF-8": lambda content, choose: _put(content, choose, b"\xff\xfe"),
    "BOM": lambda content, choose: b"\xef\xbb\xbf" + content,
    "encoding": _encoded,
    "CRLF": lambda content, choose: content.replace(b"\n", choose.choice([b"\r\n", b"\r", b"\n\n"])),
    "number": _number,
    "bits": _bits,
    "field": _field,
    "lines": _lines,
    "letter": _letter,
    "deep": _deep,
    "long line": lambda content, choose: (
        content + choose.choice([b"x", b"9", b"\\", b"'", b"("]) * choose.choice([10**5, 10**6, 9 * 10**6])
    ),
    "many lines": lambda content, choose: (
        content + choose.choice([b"\n", b"a\n", b"{}\n", b"- a\n"]) * choose.choice([10**4, 10**5, 2 * 10**6])
    ),
    "lists": lambda content, choose: b"[" + b"[]," * choose.choice([10**4, 10**5, 10**5, 2 * 10**6]) + b"[]]",
    "packed": lambda content, choose: gzip.compress(content)[: choose.choice([20, 10**9])],
    "gzip head": lambda content, choose: b"\x1f\x8b" + choose.randbytes(50),
    "bomb": _bombs,
    "type": _type,
    "key twice": _twice,
}


def _socket(path: Path) -> None:
    here = Path.cwd()
    os.chdir(path.parent)  # the name of a socket is short
    try:
        with socket.socket(socket.AF_UNIX) as one:
            one.bind(path.name[:90])
    finally:
        os.chdir(here)


def _sparse(path: Path) -> None:
    with path.open("ab") as stream:
        stream.truncate(5 << 30)


#: What may stand in a file's place.
PLACES: dict[str, Callable[[Path], object]] = {
    "missing": lambda path: None,
    "pipe": os.mkfifo,
    "directory": Path.mkdir,
    "zeros without end": lambda path: path.symlink_to("/dev/zero"),
    "terminal": lambda path: path.symlink_to("/dev/tty"),
    "memory of a process": lambda path: path.symlink_to("/proc/self/mem"),
    "socket": _socket,
    "loop": lambda path: path.symlink_to(path.name),
    "link to its folder": lambda path: path.symlink_to("."),
    "dangling": lambda path: path.symlink_to("nowhere\x1b[2J"),
    "sparse": _sparse,
}
#: What leaves the file itself as it is.
AROUND = ("grown", "neighbour", "unreadable", "closed folder")
#: These are read as somebody who is not root.
AS_NOBODY = ("unreadable", "closed folder")


def damage(path: Path, choose: random.Random) -> str:
    """Damage a file, and say how."""
    name = choose.choice([*CONTENTS, "type", "type", "number", "field", *PLACES, *AROUND])
    if name in PLACES:
        content_of(path, remove=True)
        PLACES[name](path)
    elif name == "neighbour":
        (path.parent / NEIGHBOUR).write_bytes(content_of(path)[: choose.choice([0, 10**9])])
    elif name == "closed folder":
        (path.parent if path.parent.name else path).chmod(0)
    elif name == "unreadable" and not path.is_symlink():
        path.chmod(0)
    elif name == "grown" and path.is_file() and not path.is_symlink():
        _sparse(path)
    elif name in CONTENTS:
        path.write_bytes(CONTENTS[name](content_of(path, remove=True), choose))
    return name


def content_of(path: Path, *, remove: bool = False) -> bytes:
    """Give what a file holds, nothing for what is none."""
    content = path.read_bytes() if path.is_file() and not path.is_symlink() else b""
    if remove:
        take_away(path)
    return content


def take_away(path: Path) -> None:
    """Remove what stands at a path, whatever it is."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
