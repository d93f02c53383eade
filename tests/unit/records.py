"""Records of gate probes, as real steps left them, and changes to them."""

from __future__ import annotations

import copy
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lumisite.validate.probes.findings import Finding, Found, JobShape

DATA = Path(__file__).parent.parent / "data/gates"
TWO_NODES = JobShape(("nid000001", "nid000002"), 1)


def recorded(name: str) -> list[dict[str, Any]]:
    """Give the records of a probe; tests/data/gates/make.py says where they come from."""
    records: list[dict[str, Any]] = json.loads((DATA / f"{name}.json").read_text())
    return records


def changed(records: Sequence[dict[str, Any]], *keys: str, value: object, rank: int = 0, part: str = "") -> list[Any]:
    """Give records with one value replaced in the record of one rank (and part)."""
    found = copy.deepcopy(list(records))
    for record in found:
        if record["rank"] == rank and record.get("part", "") == part:
            place: Any = record
            for key in keys[:-1]:
                place = place[key]
            place[keys[-1]] = value
    return found


def causes(lines: Sequence[Found]) -> list[str]:
    """Give what was found, with its verdict in front."""
    return [f"{line.verdict} {line.cause}" for line in lines if isinstance(line, Finding)]
