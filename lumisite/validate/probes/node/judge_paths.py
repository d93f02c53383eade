"""Judge the paths that each node needs, and the libraries and devices that are looked for by pattern."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from lumisite.findings.finding import Finding, Severity
from lumisite.text import some
from lumisite.validate.probes.outcome import DRAIN, Located
from lumisite.validate.probes.probe import NAMED_FILES, Record
from lumisite.validate.probes.records import more_than_half, table, text, texts

MISSING = "missing"
RESTORE = "restore the file, from another node or its package"


@dataclass(frozen=True)
class Needed:
    """A path that the node must have: why, the letters of the script's that must hold, and whether nodes share it."""

    why: str
    letters: str
    shared: bool = False


class _Files:
    """The libraries and devices that nodes found by pattern: letters and checksum of each."""

    def __init__(self, records: Mapping[str, Record], needed: Mapping[str, Needed]) -> None:
        paths = dict.fromkeys(path for record in records.values() for path in table(record, "paths"))
        self.paths = [path for path in paths if path not in needed]
        self.letters = {
            path: Counter(text(record, "paths", path, "is") for record in records.values()) for path in self.paths
        }
        #: Checksum and size (cksum(1)) by node and path, and those that more than half of the nodes have with the file.
        self.checksums = {node: _checksums(record) for node, record in records.items()}
        counts: dict[str, Counter[str]] = {}
        for of_node in self.checksums.values():
            for path, checksum in of_node.items():
                counts.setdefault(path, Counter())[checksum] += 1
        self.usual = {path: more_than_half(count) for path, count in counts.items()}


def _checksums(record: Record) -> dict[str, str]:
    words = (line.split(" ", 2) for line in texts(record, "checksums"))
    return {word[2]: f"{word[0]} {word[1]}" for word in words if len(word) == 3}


def judge_paths(
    records: Mapping[str, Record], needed: Mapping[str, Needed], mounts: Mapping[str, Mapping[str, Finding]]
) -> Iterator[Located]:
    """Yield what is wrong with paths of nodes; `mounts` are findings about what is mounted there, by path and node."""
    files = _Files(records, needed)
    for name, record in records.items():
        bad: dict[str, Finding] = {}
        for path, need in needed.items():
            found = _of_path(record, path, need) or mounts.get(path, {}).get(name)
            # One mount may be missing that several paths lead to.
            if found and found not in bad.values() and not _is_below(path, bad):
                bad[path] = found
                yield Located(replace(found, message=f"{found.message} ({need.why})"), name)
        yield from (Located(found, name) for found in _of_files(files, name, record, bad))
    yield from _disagreeing(files, records)


def _is_below(path: str, folders: Iterable[str]) -> bool:
    return any(path.startswith(f"{above}/") for above in folders)


def _of_path(record: Record, path: str, needed: Needed) -> Finding | None:
    letters, leads = text(record, "paths", path, "is"), text(record, "paths", path, "leads")

    def bad(message: str, advice: str) -> Finding:
        return Finding("node-path", Severity.NODE, message, f"{advice}{DRAIN}", subject=path)

    if letters == "h":
        return bad("no answer within ten seconds", "look at its server and mount it again")
    if "e" not in letters:
        if shut := text(record, "paths", path, "shut"):
            return bad(f"cannot be reached: users may not enter {shut}", f"`chmod o+x {shut}` on the node")
        return bad(f"broken link to {leads}" if "l" in letters and leads else "missing", "mount or restore it")
    access = ""
    if "x" in needed.letters and "x" not in letters:
        access = "enter" if "d" in letters else "execute"
    elif "r" in needed.letters and "r" not in letters and not ("d" in letters and "x" in letters):
        access = "read"
    if access:
        return bad(f"users may not {access} it", "correct the permissions")
    return bad("empty", "restore the file") if "f" in letters and "s" not in letters else None


def _of_files(files: _Files, node: str, record: Record, bad: Iterable[str]) -> Iterator[Finding]:
    """Yield what is wrong with files that are looked for by pattern, those of one folder together."""
    shut_folders = dict.fromkeys(bad)
    names: dict[tuple[str, str, str], list[str]] = {}
    for path in files.paths:
        folder, _, name = path.rpartition("/")
        fault = _of_file(files, node, text(record, "paths", path, "is"), path)
        if fault is None:
            continue
        if fault[0] == MISSING and (shut := _shut(record, folder, path)):
            if shut not in shut_folders:
                shut_folders[shut] = None
                message = f"users may not enter it, and {folder} is behind it"
                yield Finding("node-path", Severity.NODE, message, f"`chmod o+x {shut}`{DRAIN}", subject=shut)
        elif not _is_below(path, shut_folders):
            names.setdefault((folder, *fault), []).append(name)
    for (folder, wrong, advice), found in names.items():
        message = f"{some(found, NAMED_FILES, ', ')}: {wrong}"
        yield Finding("node-file", Severity.NODE, message, f"{advice}{DRAIN}", subject=folder)


def _shut(record: Record, folder: str, path: str) -> str:
    """Return the folder that users may not enter on the way to a file, or to all that a pattern finds beside it."""
    places = (path, *(each for each in table(record, "paths") if each.startswith(f"{folder}/*")))
    return next(filter(None, (text(record, "paths", each, "shut") for each in places)), "")


def _of_file(files: _Files, node: str, letters: str, path: str) -> tuple[str, str] | None:
    """Return what is wrong with a file that is looked for by pattern, and what to do."""
    counts = files.letters[path]
    having = sum(count for found, count in counts.items() if "e" in found)
    if "e" not in letters:
        most = 2 * having > counts.total() - 1
        return (MISSING, "restore the library, or look at the device and its driver") if most else None
    if "f" not in letters:
        # What devices users may use is right where most nodes have it; of two that differ, the one with more.
        for letter, access in (("r", "read"), ("w", "write")):
            allowed = sum(count for found, count in counts.items() if letter in found)
            if letter not in letters and 2 * allowed >= having and allowed:
                return f"users may not {access} it, as on the other nodes", "correct the udev rule or mode"
        return None
    if "r" not in letters:
        return "users may not read it", "correct the permissions"
    if "s" not in letters:
        return "empty", RESTORE
    if files.usual.get(path) not in (None, files.checksums[node].get(path)) and path in files.checksums[node]:
        return "another file than on the other nodes", RESTORE
    return None


def _disagreeing(files: _Files, nodes: Iterable[str]) -> Iterator[Located]:
    """Yield the libraries that differ between nodes of which no content is that of more than half."""
    folders: dict[str, list[str]] = {}
    for folder, _, name in (path.rpartition("/") for path, usual in files.usual.items() if usual is None):
        folders.setdefault(folder, []).append(name)
    for folder, names in folders.items():
        message = f"{some(names, NAMED_FILES, ', ')}: not the same file on these nodes"
        advice = "compare with the package (`rpm -V` or `cksum` on each node), and restore it"
        finding = Finding("nodes-disagree", Severity.DOUBT, message, advice, subject=folder)
        yield from (Located(finding, name) for name in nodes)
