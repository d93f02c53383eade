"""ReFrame's reports and perflogs, real ones and made ones, and what is read of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from lumisite.validate.lines import Gate, Sample, parse_line
from lumisite.validate.reframe.read import with_reframe
from lumisite.validate.samples import SamplesError

DATA = Path(__file__).parent.parent / "data/reframe"
WHERE = "@lumi:standard-g+builtin"
Output = pytest.CaptureFixture[str]


def lines(*files: Path, after: bool = False, said: list[str] | None = None) -> list[Sample | Gate]:
    found = [] if said is None else said
    sources = with_reframe(((path.name, [path.read_bytes()]) for path in files), found.append, after=after)
    return [parse_line(line) for _, blocks in sources for block in blocks for line in block.splitlines()]


def samples(*files: Path, **options: Any) -> dict[tuple[str, str], Sample]:
    return {(line.metric, line.run): line for line in lines(*files, **options) if isinstance(line, Sample)}


def report(**changes: object) -> dict[str, Any]:
    """A small report with one case."""
    case = {
        "name": "Bw %size=1",
        "system": "lumi",
        "partition": "standard-g",
        "environ": "builtin",
        "result": "pass",
        "fail_phase": None,
        "fail_reason": None,
        "jobid": "123",
        "job_nodelist": ["nid000001", "nid000002"],
        "job_completion_time_unix": 1795274963.4,
        "perfvalues": {"lumi:standard-g:bw": [10.0, 10, -0.1, None, "GB/s", "pass"]},
    }
    session = {"data_version": "4.2", "uuid": "8cd35b0f", "time_end_unix": 1795274970.0}
    return {"session_info": session, "runs": [{"testcases": [case | changes]}], "restored_cases": []}


def written(folder: Path, raw: object, name: str = "report.json") -> Path:
    path = folder / name
    path.write_text(raw if isinstance(raw, str) else json.dumps(raw))
    return path


def faults(path: Path, **options: Any) -> str:
    with pytest.raises(SamplesError) as caught:
        lines(path, **options)
    return str(caught.value)


def case_of(raw: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = raw["runs"][0]["testcases"][0]
    return found
