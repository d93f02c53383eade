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
from lumisite.validate.probes.probe import Ended, Expected, Line, Part, Probe, Record, Step, Target

DATA = Path(__file__).parent.parent / "data/gates"


def a_job(nodes: tuple[str, ...], tasks: int, probe: str = "gate") -> Expected:
    """Give what a judge knows of a job."""
    return Expected(probe, Part("", ()), "several", nodes, tasks, 60, run="r", time=1.0)


TWO_NODES = a_job(("nid000001", "nid000002"), 1)


def target_of(site: Site | str, image: str | None = None, rocm: str = "6.2", **options: str) -> Target:
    """Give what is probed of a site, with the image that it validates or another."""
    loaded = load_site(site).site if isinstance(site, str) else site
    assert loaded.validation is not None
    selection = resolve_selection(loaded, rocm=[rocm] if "rocm" in loaded.stacks else [])
    return Target(loaded, selection, loaded.validation, image or loaded.validation.image, **options)


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


def judged(probe: Probe | None, records: Sequence[Record], job: Expected = TWO_NODES) -> list[Line]:
    """Judge the records of all parts of a probe together."""
    assert probe is not None
    step = Step(probe.name, probe.parts[0], "several", job.nodes, job.tasks, 60)
    return list(probe.judge([Ended(step, tuple(records))], replace(job, part=probe.parts[0])))


def causes(lines: Sequence[Line]) -> list[str]:
    """Give what was found, with its verdict in front."""
    return [f"{line.verdict} {line.cause}" for line in lines if isinstance(line, Gate)]


def only(lines: Sequence[Line]) -> Gate:
    """Give the one line that there is, which is a gate's."""
    (line,) = lines
    assert isinstance(line, Gate)
    return line
