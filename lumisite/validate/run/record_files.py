"""Read what the ranks of a step left (probes/job/): records, and reports of where those were that left none.

A rank that is alone on its node leaves RANK.json, and reports in RANK.at. Ranks that share a node share two files:
HOST.jsonl has a line for each record, HOST.at a place for each rank, with zeros behind each report.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from lumisite.findings.catalogue import make_finding
from lumisite.site.json_file import short
from lumisite.site.read import read_file
from lumisite.validate.lines import LineError, parse_value
from lumisite.validate.probes.probe import Record

#: No node leaves more in a file: the logs of its ranks, most of all.
MOST_BYTES = 64 << 20


def read_records(folder: Path) -> list[Record]:
    """Read the records in a folder, and then the reports; of several lines of one rank the last counts."""
    found = [record for path in sorted(folder.glob("*.json")) for record in _parts(path, b"")]
    for path in sorted(folder.glob("*.jsonl")):
        found += {str(record.get("rank")): record for record in _parts(path, b"\n")}.values()
    return found + [report for path in sorted(folder.glob("*.at")) for report in _parts(path, b"\0")]


def parse_object(line: bytes) -> dict[str, object]:
    """Parse an object of JSON; raises `LineError`."""
    raw = parse_value(line)
    if not isinstance(raw, dict):
        raise LineError(make_finding("line-not-object", found=short(raw)))
    return raw


def _parts(path: Path, end: bytes) -> Iterator[Record]:
    """Yield the objects in a file; what is none was torn as its writer was killed."""
    data = b""
    with suppress(OSError):
        data = read_file(path, MOST_BYTES)
    for part in data.split(end) if end else (data,):
        with suppress(LineError):
            yield parse_object(part)
