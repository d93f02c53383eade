"""Judge the paths that each node needs, and the libraries and devices that are looked for by pattern."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from lumisite.findings.finding import Finding, Severity
from lumisite.text import some
from lumisite.validate.probes.outcome import DRAIN, Located
from lumisite.validate.probes.probe import NAMED_FILES, Record
from lumisite.validate.probes.records import rows, text, usual

MISSING = "missing"
RESTORE = "restore the file, from another node or its package"


@dataclass(frozen=True)
class Needed:
    """A path that the node must have: why, the letters of the script's that must hold, and whether nodes share it."""

    why: str
    letters: str
    shared: bool = False


def judge_paths(
    records: Mapping[str, Record], needed: Mapping[str, Needed], mounts: Mapping[str, Mapping[str, Finding]]
) -> Iterator[Located]:
    """Yield what is wrong with paths of nodes; `mounts` are findings about what is mounted there, by path and node."""
    bad: dict[str, list[str]] = {name: [] for name in records}
    for name, record in records.items():
        reported: list[Finding] = []
        for path, need in needed.items():
            found = _of_path(record, path, need) or mounts.get(path, {}).get(name)
            # One mount may be missing that several paths lead to.
            if found and found not in reported and not _is_below(path, bad[name]):
                reported.append(found)
                bad[name].append(path)
                yield Located(replace(found, message=f"{found.message} ({need.why})"), name)
    yield from _of_files(records, needed, bad)


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
        return bad(f"broken link to {leads}" if "l" in letters and leads else MISSING, "mount or restore it")
    access = ""
    if "x" in needed.letters and "x" not in letters:
        access = "enter" if "d" in letters else "execute"
    elif "r" in needed.letters and "r" not in letters and not ("d" in letters and "x" in letters):
        access = "read"
    if access:
        return bad(f"users may not {access} it", "correct the permissions")
    return bad("empty", "restore the file") if "f" in letters and "s" not in letters else None


# ---- what is looked for by pattern


def _of_files(
    records: Mapping[str, Record], needed: Mapping[str, Needed], bad: Mapping[str, list[str]]
) -> Iterator[Located]:
    """Yield what is wrong with files of nodes, those of one folder together, and nothing below a path that is `bad`."""
    paths = [path for path in dict.fromkeys(path for record in records.values() for path in record["paths"])
             if path not in needed]  # fmt: skip
    sums = {name: _checksums(record) for name, record in records.items()}
    wrong: dict[tuple[str, str, str, str], list[str]] = {}
    shut_folders = {(name, path) for name, shut in bad.items() for path in shut}
    for path in paths:
        folder, _, file = path.rpartition("/")
        letters = Counter(text(record, "paths", path, "is") for record in records.values())
        having = [of_node[path] for of_node in sums.values() if path in of_node]
        expected = usual(having)
        for name, record in records.items():
            fault = _of_file(letters, text(record, "paths", path, "is"))
            if fault is None and expected is not None and sums[name].get(path, expected) != expected:
                fault = "another file than on the other nodes", RESTORE
            elif fault is None and having and expected is None:
                fault = "not the same file on these nodes", ""
            if fault is None:
                continue
            shut = _shut(record, folder, path) if fault[0] == MISSING else ""
            if shut and (name, shut) not in shut_folders:
                shut_folders.add((name, shut))
                message = f"users may not enter it, and {folder} is behind it"
                advice = f"`chmod o+x {shut}`{DRAIN}"
                yield Located(Finding("node-path", Severity.NODE, message, advice, subject=shut), name)
            elif not shut and not _is_below(path, [above for node, above in shut_folders if node == name]):
                wrong.setdefault((name, folder, *fault), []).append(file)
    for (name, folder, what, advice), files in wrong.items():
        message = f"{some(files, NAMED_FILES, ', ')}: {what}"
        found = Finding("node-file", Severity.NODE, message, f"{advice}{DRAIN}", subject=folder)
        if not advice:
            advice = "compare with the package (`rpm -V` or `cksum` on each node), and restore it"
            found = Finding("nodes-disagree", Severity.DOUBT, message, advice, subject=folder)
        yield Located(found, name)


def _checksums(record: Record) -> dict[str, str]:
    """Return checksum and size of each library (cksum(1)) by its path."""
    words = (line.split(" ", 2) for line in rows(record, "checksums"))
    return {path: f"{checksum} {size}" for checksum, size, path in words}


def _of_file(every: Counter[str], letters: str) -> tuple[str, str] | None:
    """Return what is wrong with a file by its letters and those of `every` node, and what to do."""

    def count(letter: str) -> int:
        return sum(number for found, number in every.items() if letter in found)

    if "e" not in letters:
        most = 2 * count("e") > every.total() - 1
        return (MISSING, "restore the library, or look at the device and its driver") if most else None
    if "f" not in letters:
        # What devices users may use is right where most nodes have it; of two that differ, the one with more.
        for letter, access in (("r", "read"), ("w", "write")):
            if letter not in letters and 2 * count(letter) >= count("e") and count(letter):
                return f"users may not {access} it, as on the other nodes", "correct the udev rule or mode"
        return None
    if "r" not in letters:
        return "users may not read it", "correct the permissions"
    return ("empty", RESTORE) if "s" not in letters else None


def _shut(record: Record, folder: str, path: str) -> str:
    """Return the folder that users may not enter on the way to a file, or to all that a pattern finds beside it."""
    places = (path, *(each for each in record["paths"] if each.startswith(f"{folder}/*")))
    return next(filter(None, (text(record, "paths", each, "shut") for each in places)), "")
