"""Judge the folders that ranks write into: each can be written, and shared memory is not too small for any job."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from lumisite.findings.finding import Finding, Severity
from lumisite.validate.probes.node.readings import SHARED_MEMORY
from lumisite.validate.probes.outcome import DRAIN, Located
from lumisite.validate.probes.probe import Record
from lumisite.validate.probes.records import count_in, text, texts

#: Collectives and loaders of data share more than this between the ranks of a node, in KiB.
LEAST_SHARED_KIB = 64 * 1024


def judge_folders(records: Mapping[str, Record], local: str) -> Iterator[Located]:
    """Yield the folders that cannot be written, and shared memory too small for any job."""
    for node, record in records.items():
        refused = {local: text(record, "private"), SHARED_MEMORY: text(record, "shm")}
        for folder, reason in refused.items():
            if reason:
                advice = (
                    f"look at `df {folder}`, `df -i {folder}` and `findmnt -T {folder}`: make room or mount it again"
                )
                yield Located(_full(folder, f"cannot be written: {reason}", advice), node)
        sizes = [line.split()[1:] for line in texts(record, "resources") if line.startswith(f"{SHARED_MEMORY} ")]
        size, free = (count_in(word) for word in sizes[-1]) if sizes and len(sizes[-1]) == 2 else (None, None)
        if not refused[SHARED_MEMORY] and size is not None and free is not None and free < LEAST_SHARED_KIB:
            advice = "remove what earlier jobs left in it (`ls -l /dev/shm`), or mount it larger "
            advice += "(`mount -o remount,size=50% /dev/shm`, /etc/fstab)"
            message = f"{free / 1024:.0f} MiB free of {size / 1024:.0f} MiB"
            yield Located(_full(SHARED_MEMORY, message, advice), node)


def _full(folder: str, message: str, advice: str) -> Finding:
    return Finding("node-full", Severity.NODE, message, f"{advice}{DRAIN}", subject=folder)
