"""Records of gate probes, as real steps left them, and changes to them."""

from __future__ import annotations

import copy
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from lumisite.site.load import load_site
from lumisite.site.model import Site
from lumisite.site.selection import resolve_selection
from lumisite.validate.lines import Gate
from lumisite.validate.probes.probe import Ended, Expected, Line, Probe, ProbeStep, Record, Srun, Target

DATA = Path(__file__).parent.parent / "data/gates"


def a_job(nodes: tuple[str, ...], tasks: int, probe: str = "gate") -> Expected:
    """Return what a judge knows of a job."""
    return Expected(probe, Srun("", ()), "several", nodes, tasks, 60, run="r", time=1.0)


TWO_NODES = a_job(("nid000001", "nid000002"), 1)


def target_of(site: Site | str, image: str | None = None, rocm: str = "6.2", **options: str) -> Target:
    """Return what is probed of a site, with the image that it validates or another."""
    loaded = load_site(site).site if isinstance(site, str) else site
    assert loaded.validation is not None
    selection = resolve_selection(loaded, rocm=[rocm] if "rocm" in loaded.stacks else [])
    return Target(loaded, selection, loaded.validation, image or loaded.validation.image, **options)


def recorded(name: str) -> list[dict[str, Any]]:
    """Return the records of a probe; tests/data/gates/make.py says where they come from."""
    records: list[dict[str, Any]] = json.loads((DATA / f"{name}.json").read_text())
    return records


def changed(
    records: Sequence[dict[str, Any]], *keys: str, value: object, rank: int = 0, part: str = "container"
) -> list[Any]:
    """Return records with one value replaced in the record of one rank of a part."""
    found = copy.deepcopy(list(records))
    for record in found:
        if record["rank"] == rank and record.get("part", "") == part:
            place: Any = record
            for key in keys[:-1]:
                place = place[key]
            place[keys[-1]] = value
    return found


def judged(probe: Probe | None, records: Sequence[Record], job: Expected = TWO_NODES) -> list[Line]:
    """Judge the records of all parts of a probe together; one that names no part is of all of them."""
    assert probe is not None
    steps = []
    for part in probe.sruns:
        tasks = 1 if part.each == "node" else job.tasks
        step = ProbeStep(probe.name, part, "several", job.nodes, tasks, 60)
        of_part = tuple(record for record in records if record.get("part", part.name) == part.name)
        steps.append(Ended(step, of_part))
    return list(probe.judge(steps, replace(job, srun=probe.sruns[0], probe=probe.name)))


def failed(lines: Sequence[Line]) -> list[Gate]:
    """Return the gates that did not pass."""
    return [line for line in lines if isinstance(line, Gate) and line.verdict != "pass"]


def codes(lines: Sequence[Line]) -> list[str]:
    """Return the gates that did not pass, by their names and codes."""
    return [f"{line.gate}: {line.code}" for line in failed(lines)]


def only(lines: Sequence[Line]) -> Gate:
    """Return the one gate that did not pass."""
    (line,) = failed(lines)
    return line
