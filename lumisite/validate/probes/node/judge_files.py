"""Judge which files of one image or release differ between the nodes of a job, by checksums of blocks (job_files.sh).

A node is wrong that differs from more than half. Where there is no such number, as of two nodes, one is wrong that
differs from the file as it is where lumisite runs.
"""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeAlias, TypeVar

from lumisite.findings.finding import Finding, Severity
from lumisite.images.digest import block_checksum, file_size
from lumisite.machine.tree import is_under
from lumisite.text import some
from lumisite.validate.probes.outcome import DRAIN, Located
from lumisite.validate.probes.probe import Record
from lumisite.validate.probes.records import count_in, table, text, usual, value_at, whole

#: What the step is called.
FILES = "files"
#: Bytes of a block, as in job_files.sh.
BLOCK_BYTES = 1 << 22
#: Blocks of one file that are read where lumisite runs, at most: they are read only where nodes do not agree.
MOST_READ = 4
#: The checksum of nothing: the block could not be read.
NOTHING = "4294967295"
#: Why files are needed that no other part of the site description names.
RELEASE, IMAGE = "deployed release", "another image"
#: Files that a finding names.
NAMED_FILES = 8

#: The size of a file, or the checksum of one of its blocks, as it is here; None where there is none.
SizeOf: TypeAlias = Callable[[str], "int | None"]
ChecksumOf: TypeAlias = Callable[[str, int, int], "str | None"]
_Value = TypeVar("_Value", int, str)


@dataclass(frozen=True)
class Here:
    """How files are looked at where lumisite runs."""

    size: SizeOf = file_size
    checksum: ChecksumOf = block_checksum


def looked_at(files: Mapping[str, Record], nodes: Sequence[str]) -> str:
    """Return how many files of some nodes were compared, and how much of them: of the node that did least."""
    if len(files) < 2 or not any(name in files for name in nodes):
        return ""
    done = []
    for record in (files[name] for name in nodes if name in files):
        entries = table(record, "files").values()
        seen = sum(min(whole(entry, "size"), len(_blocks(entry)) * BLOCK_BYTES) for entry in entries)
        done.append((seen, len(entries), sum(whole(entry, "size") for entry in entries)))
    seen, count, size = min(done)
    return f"; {count} files compared with the other nodes ({_part(seen, size)})"


def _part(seen: int, size: int) -> str:
    return f"{round(seen / 1e6, 1):g} of {round(size / 1e6, 1):g} MB"


def compare_files(
    files: Mapping[str, Record], release: str, why: Mapping[str, str], known: Sequence[Located], here: Here
) -> Iterator[Located]:
    """Yield what differs on which node; several files of a `release` together, and nothing that is `known` already."""
    of_release: dict[tuple[str, str], list[Finding]] = {}
    bad: dict[str, set[str]] = {}
    for entry in known:
        if entry.finding.subject.startswith("/"):
            bad.setdefault(entry.node, set()).add(entry.finding.subject)
    for path in dict.fromkeys(path for record in files.values() for path in table(record, "files")):
        for name, found in _of_path(path, files, here):
            if any(is_under(path, above) for above in bad.get(name, ())):
                continue
            if is_under(path, release):
                of_release.setdefault((name, found.code), []).append(found)
            else:
                yield Located(_with_why(found, why.get(path, IMAGE)), name)
    for (name, _code), group in of_release.items():
        names = [posixpath.relpath(found.subject, release) for found in group]
        if len(group) == 1:
            yield Located(_with_why(group[0], RELEASE), name)
        else:
            messages = {found.message for found in group}
            what = messages.pop() if len(messages) == 1 else "not as on the other nodes"
            message = f"{some(names, NAMED_FILES, ', ')}: {what}"
            yield Located(replace(group[0], subject=release, message=message), name)


def _with_why(finding: Finding, why: str) -> Finding:
    return replace(finding, message=f"{finding.message} ({why})")


def _wrong(path: str, message: str) -> Finding:
    advice = f"restore the file (`cksum {path}` on this node and on another one shows it){DRAIN}"
    return Finding("node-file", Severity.NODE, message, advice, subject=path)


def _disagree(path: str) -> Finding:
    advice = f"compare the file with its original (`cksum {path}` on each node), and restore it"
    return Finding("nodes-disagree", Severity.DOUBT, "differs between these nodes", advice, subject=path)


def _of_path(path: str, files: Mapping[str, Record], here: Here) -> Iterator[tuple[str, Finding]]:
    having = {name: entry for name, record in files.items() if (entry := value_at(record, "files", path)) is not None}
    lacking = [name for name, record in files.items() if name not in having and table(record, "files")]
    if 2 * len(having) > len(files) or (having and here.size(path) is not None):
        yield from ((name, _wrong(path, "missing, on the other nodes it is there")) for name in lacking)
    sizes = {name: whole(entry, "size") for name, entry in having.items()}
    wrong = _odd(sizes, partial(here.size, path))
    if wrong is None:
        yield from ((name, _disagree(path)) for name in having)
        return
    for name in wrong:
        expected = next(size for other, size in sizes.items() if other not in wrong)
        yield name, _wrong(path, f"has {sizes[name]} bytes, on the other nodes {expected}")
    same = {name: entry for name, entry in having.items() if name not in wrong}
    yield from _of_rights(path, same)
    yield from _of_blocks(path, same, here)


def _of_rights(path: str, having: Mapping[str, object]) -> Iterator[tuple[str, Finding]]:
    """Yield the nodes on which users may not read or execute what they may elsewhere."""
    rights = {name: text(entry, "may") for name, entry in having.items()}
    most = usual(rights.values()) or max(rights.values(), key=len, default="")
    for name, may in rights.items():
        if lacking := [letter for letter in most if letter not in may]:
            access = "read" if "r" in lacking else "execute"
            advice = f"correct the permissions{DRAIN}"
            yield name, Finding("node-path", Severity.NODE, f"users may not {access} it", advice, subject=path)


def _of_blocks(path: str, having: Mapping[str, object], here: Here) -> Iterator[tuple[str, Finding]]:
    blocks = {name: _blocks(entry) for name, entry in having.items()}
    first: dict[str, int] = {}
    undecided, read = False, 0
    for number in sorted({number for of_node in blocks.values() for number in of_node}):
        checksums = {name: of_node[number] for name, of_node in blocks.items() if number in of_node}
        if len(set(checksums.values())) < 2:
            continue
        read += usual(checksums.values()) is None
        wrong = _odd(checksums, partial(here.checksum, path, number, BLOCK_BYTES)) if read <= MOST_READ else None
        undecided = undecided or wrong is None
        for name in wrong or ():
            first.setdefault(name, number)
    for name, number in first.items():
        offset, size = number * BLOCK_BYTES, whole(having[name], "size")
        seen = f"{_part(min(size, len(blocks[name]) * BLOCK_BYTES), size)} compared"
        if blocks[name][number] == NOTHING:
            yield name, _wrong(path, f"cannot be read at byte {offset}, on the other nodes it can; {seen}")
        else:
            yield name, _wrong(path, f"other content than on the other nodes from about byte {offset} on; {seen}")
    if undecided and not first:
        yield from ((name, _disagree(path)) for name in having)


def _blocks(entry: object) -> dict[int, str]:
    """Return the checksums of a file's blocks by their numbers."""
    pairs = (word.partition(":") for word in text(entry, "blocks").split())
    return {number: checksum for word, _, checksum in pairs if (number := count_in(word)) is not None}


def _odd(values: Mapping[str, _Value], here: Callable[[], _Value | None]) -> list[str] | None:
    """Return the nodes with another value than more than half, or than is here; None where neither tells."""
    expected = usual(values.values())
    if expected is None and values:
        expected = here()
        if expected not in values.values():
            return None
    return [name for name, value in values.items() if value != expected]
