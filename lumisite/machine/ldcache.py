"""Read what ldconfig wrote: the cache of library paths, and the list of directories that it was made from.

Sources: ldconfig(8); `sysdeps/generic/dl-cache.h` and `elf/dl-cache.c` of glibc 2.36 (layout, order, extension);
up to glibc 2.31 the same table stands behind one in an older layout, which is passed over.
"""

from __future__ import annotations

import fnmatch
import posixpath
import re
import struct
from collections.abc import Iterable, Iterator, Sequence

from lumisite.errors import LumisiteError
from lumisite.findings.finding import Finding, Severity
from lumisite.machine.tree import ByteSource, Tree, names_of, resolve, text_of

CACHE = "/etc/ld.so.cache"
CONF = "/etc/ld.so.conf"

#: The cache of a large distribution has 5 MB; a file of configuration a few lines.
LARGEST_CACHE_BYTES = 64 * 1024 * 1024

#: `FLAG_ELF_LIBC6` with the architecture, by `e_machine`: x86-64 and AArch64.
_FLAGS = {62: 0x0303, 183: 0x0A03}
_OLD = b"ld.so-1.7.0"
_NEW = b"glibc-ld.so.cache1.1"
#: Both machines are little-endian.
_HEADER = "<20sII4xI12x"
_ENTRY = "<iIIIQ"
_OLD_ENTRY_BYTES = 12
_EXTENSION_MAGIC = 0xEAA42174
_HWCAPS_TAG = 1
_MOST_SECTIONS = 64
_IS_HWCAPS = 1 << 62
_LONGEST_NAME_BYTES = 4096


def read_cache(source: ByteSource, machine: int, levels: Sequence[str] = ()) -> dict[str, str]:
    """Return the path of each library name for this machine; raises `LumisiteError` for a damaged one.

    Of several entries of one name the loader takes that of the best glibc-hwcaps subdirectory, `levels` from best to
    worst, and the first of equals.
    """
    content = source.read(0, LARGEST_CACHE_BYTES)
    base = _start(source.name, content)
    _, count, _, extension = struct.unpack_from(_HEADER, content, base)
    first = base + struct.calcsize(_HEADER)
    last = first + count * struct.calcsize(_ENTRY)
    if last > len(content):
        raise _damaged(source.name, base, "table of libraries")
    ranks = _ranks(source.name, content, (base, extension), levels) if extension else {}
    best: dict[str, tuple[int, str]] = {}
    for kind, key, value, _, hwcaps in struct.iter_unpack(_ENTRY, content[first:last]):
        if kind != _FLAGS.get(machine):
            continue
        # Other bits are of processors as glibc knew them before glibc-hwcaps.
        rank = len(levels) if not hwcaps else ranks.get(hwcaps & 0xFFFFFFFF) if hwcaps & _IS_HWCAPS else None
        name = _string(source.name, content, base + key)
        if rank is not None and (name not in best or rank < best[name][0]):
            best[name] = (rank, _string(source.name, content, base + value))
    return {name: path for name, (_, path) in best.items()}


def _start(name: str, content: bytes) -> int:
    """Return the offset of the table in glibc's own layout."""
    base = 0
    if content.startswith(_OLD) and len(content) >= 16:
        (count,) = struct.unpack_from("<I", content, 12)
        base = (16 + count * _OLD_ENTRY_BYTES + 7) // 8 * 8
    if content[base : base + len(_NEW)] != _NEW or base + struct.calcsize(_HEADER) > len(content):
        raise _damaged(name, base, "header")
    return base


def _ranks(name: str, content: bytes, starts: tuple[int, int], levels: Sequence[str]) -> dict[int, int]:
    """Return the rank of each glibc-hwcaps subdirectory that the cache numbers; one that this CPU lacks has none.

    `starts` are the offsets of the table, from which names are counted, and of its extension.
    """
    base, extension = starts
    fault = _damaged(name, extension, "extension")
    try:
        magic, count = struct.unpack_from("<II", content, extension)
        if magic != _EXTENSION_MAGIC or count > _MOST_SECTIONS:
            raise fault
        sections = [struct.unpack_from("<IIII", content, extension + 8 + 16 * at) for at in range(count)]
        numbered = [(at, size) for tag, _, at, size in sections if tag == _HWCAPS_TAG]
        offsets = [offset for at, size in numbered[:1] for offset in struct.unpack_from(f"<{size // 4}I", content, at)]
    except struct.error:
        raise fault from None
    names = (_string(name, content, base + offset) for offset in offsets)
    return {number: levels.index(text) for number, text in enumerate(names) if text in levels}


def _string(name: str, content: bytes, offset: int) -> str:
    end = content.find(b"\0", offset, offset + _LONGEST_NAME_BYTES)
    if end < 0:
        raise _damaged(name, offset, "name")
    return content[offset:end].decode("utf-8", "replace")


def _damaged(name: str, offset: int, part: str) -> LumisiteError:
    message = f"{part} at byte {offset} is damaged, or this is no cache of glibc's loader"
    advice = "run ldconfig as root, or copy the file again"
    return LumisiteError(Finding("file-unreadable", Severity.FAULT, message, advice, name))


def conf_directories(tree: Tree) -> tuple[str, ...]:
    """Return the directories of `ld.so.conf`, in order, with what it includes.

    A tree that has only the folder beside it is read as if the file included that, as it does in all distributions.
    """
    found: dict[str, None] = {}
    files = [CONF] if resolve(tree, CONF).entry is not None else glob(tree, f"{CONF}.d/*.conf")
    for line in config_lines(tree, files):
        # ldconfig(8): an old way to state a type stands behind `=`.
        directory = line.partition("=")[0].strip()
        if directory.startswith("/"):
            found[posixpath.normpath(directory)] = None
    return tuple(found)


def config_lines(tree: Tree, files: Iterable[str], seen: set[str] | None = None) -> Iterator[str]:
    """Yield the lines of configuration files, with what they include, without comments and doubled blanks."""
    seen = set() if seen is None else seen
    for path in files:
        if path in seen:
            continue
        seen.add(path)
        for raw in re.sub(r"\\\n", " ", text_of(tree, path) or "").splitlines():
            line = " ".join(raw.partition("#")[0].split())
            word, _, patterns = line.partition(" ")
            if word.lower() == "include":
                paths = (posixpath.join(posixpath.dirname(path), pattern) for pattern in patterns.split())
                yield from config_lines(tree, (file for path in paths for file in glob(tree, path)), seen)
            elif line:
                yield line


def glob(tree: Tree, pattern: str) -> tuple[str, ...]:
    """Return the paths of a tree that match a shell pattern, sorted."""
    paths = ["/"]
    for part in pattern.strip("/").split("/"):
        if any(sign in part for sign in "*?["):
            paths = [
                posixpath.join(path, name)
                for path in paths
                for name in names_of(tree, path, None)
                if fnmatch.fnmatchcase(name, part) and (part.startswith(".") or not name.startswith("."))
            ]
        else:
            paths = [posixpath.join(path, part) for path in paths]
    return tuple(path for path in paths if resolve(tree, path).entry is not None)
