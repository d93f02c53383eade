"""Why one library of an image's plan is bound, skipped, refused or missing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from lumisite.binds.closure import Line
from lumisite.binds.plan import Plan, Request
from lumisite.errors import ResolveError
from lumisite.site.decode import suggestion


@dataclass(frozen=True)
class LibraryExplanation:
    """One line of a plan, and what it was made for."""

    name: str
    kind: Literal["library"]
    situation: str
    line: Line

    def __str__(self) -> str:
        line = self.line
        rows = [
            ("chain", " <- ".join(line.chain)),
            ("needed", "; ".join(line.needed_by)),
            ("wanted", line.wanted),
            ("found", line.found),
            ("bind", f"{line.source}:{line.target}" if line.decision == "bind" else ""),
            ("by", line.by or ""),
            ("without", line.without or ""),
            *(("warning", note) for note in line.notes),
        ]
        said = [f"{self.name} (library; {self.situation})", f"  {line.decision}: {line.reason}"]
        return "\n".join([*said, *(f"    {name:7} {value}" for name, value in rows if value)])


def explain_library(request: Request, plan: Plan, image: str, name: str) -> LibraryExplanation:
    """Explain one library; raises `ResolveError` for one that the plan does not speak of."""
    line = next((one for one in plan.lines if one.name == name), None)
    if line is None:
        known = [one.name for one in plan.lines]
        raise ResolveError(
            f"{name}: is in no chain from a root of the family {plan.family}, so {image} needs none "
            f"({suggestion(name, known)})"
        )
    situation = f"{image}, family {plan.family}, platform {request.platform}, cpe {request.cpe}, rocm {request.rocm}"
    return LibraryExplanation(name, "library", situation, line)
