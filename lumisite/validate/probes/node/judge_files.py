"""Judge which files of one image or release differ between the nodes of a job, by checksums of blocks (job_files.sh).

A node is wrong that differs from more than half of those that have the file; where no value is that of more than half,
all of them are in doubt.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from lumisite.findings.finding import Finding, Severity
from lumisite.machine.tree import is_under
from lumisite.text import some
from lumisite.validate.probes.outcome import DRAIN, Located
from lumisite.validate.probes.probe import NAMED_FILES, Record
from lumisite.validate.probes.records import table, usual

#: What the step is called.
FILES = "files"
#: Bytes of a block, as in job_files.sh.
BLOCK_BYTES = 1 << 22
#: The checksum of nothing: the block could not be read.
NOTHING = "4294967295"
#: Why files are needed that no other part of the site description names.
RELEASE, IMAGE = "deployed release", "another image"


def compare_files(
    files: Mapping[str, Record], release: str, why: Mapping[str, str], known: Sequence[Located]
) -> Iterator[Located]:
    """Yield what differs on which node; several files of a `release` together, and nothing that is `known` already."""
    of_release: dict[str, list[Finding]] = {}
    bad = {(entry.node, entry.finding.subject) for entry in known if entry.finding.subject.startswith("/")}
    for path in dict.fromkeys(path for record in files.values() for path in record["files"]):
        for name, found in _of_path(path, files):
            if any(name == node and is_under(path, above) for node, above in bad):
                continue
            if found.severity is Severity.NODE and is_under(path, release):
                of_release.setdefault(name, []).append(found)
            else:
                yield Located(_with_why(found, why.get(path, IMAGE)), name)
    for name, group in of_release.items():
        if len(group) == 1:
            yield Located(_with_why(group[0], RELEASE), name)
            continue
        messages = {found.message for found in group}
        what = messages.pop() if len(messages) == 1 else "not as on the other nodes"
        names = some([posixpath.relpath(found.subject, release) for found in group], NAMED_FILES, ", ")
        yield Located(replace(group[0], subject=release, message=f"{names}: {what}"), name)


def _with_why(finding: Finding, why: str) -> Finding:
    return replace(finding, message=f"{finding.message} ({why})")


def _wrong(path: str, message: str) -> Finding:
    advice = f"restore the file (`cksum {path}` on this node and on another one shows it){DRAIN}"
    return Finding("node-file", Severity.NODE, message, advice, subject=path)


def _disagree(path: str, nodes: Mapping[str, object]) -> Iterator[tuple[str, Finding]]:
    advice = f"compare the file with its original (`cksum {path}` on each node), and restore it"
    found = Finding("nodes-disagree", Severity.DOUBT, "differs between these nodes", advice, subject=path)
    yield from ((name, found) for name in nodes)


def _of_path(path: str, files: Mapping[str, Record]) -> Iterator[tuple[str, Finding]]:
    having = {name: entry for name, record in files.items() if (entry := table(record, "files", path))}
    if 2 * len(having) > len(files):
        for name in files.keys() - having.keys():
            if files[name]["files"]:
                yield name, _wrong(path, "missing, on the other nodes it is there")
    size = usual([entry["size"] for entry in having.values()])
    if size is None:
        yield from _disagree(path, having)
        return
    for name, entry in having.items():
        if entry["size"] != size:
            yield name, _wrong(path, f"has {entry['size']} bytes, on the other nodes {size}")
    yield from _of_blocks(path, {name: _blocks(entry) for name, entry in having.items() if entry["size"] == size})


def _blocks(entry: Record) -> dict[int, str]:
    """Return the checksums of a file's blocks by their numbers."""
    return {int(number): checksum for number, checksum in (word.split(":") for word in entry["blocks"].split())}


def _of_blocks(path: str, blocks: Mapping[str, Mapping[int, str]]) -> Iterator[tuple[str, Finding]]:
    """Yield the first block of each node that is another one than on more than half of those that looked at it."""
    first: dict[str, int] = {}
    undecided = False
    for number in sorted({number for of_node in blocks.values() for number in of_node}):
        checksums = {name: of_node[number] for name, of_node in blocks.items() if number in of_node}
        expected = usual(checksums.values())
        undecided = undecided or expected is None
        for name, found in checksums.items():
            if expected not in (None, found):
                first.setdefault(name, number)
    for name, number in first.items():
        what = "other content than on the other nodes from about byte {} on"
        if blocks[name][number] == NOTHING:
            what = "cannot be read at byte {}, on the other nodes it can"
        yield name, _wrong(path, what.format(number * BLOCK_BYTES))
    if undecided and not first:
        yield from _disagree(path, blocks)
