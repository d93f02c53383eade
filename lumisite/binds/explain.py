"""Why one library of an image's plan is bound, skipped, refused or missing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from lumisite.binds.plan import Plan, Request
from lumisite.errors import ResolveError
from lumisite.site.decode import suggestion


@dataclass(frozen=True)
class LibraryExplanation:
    """One line of a plan, by what `why --json` calls its parts, and what it was made for."""

    name: str
    kind: Literal["library"]
    situation: str
    line: Mapping[str, Any]

    def __str__(self) -> str:
        line = self.line
        rows = [
            ("chain", " <- ".join(line["chain"])),
            ("needed", "; ".join(line["needed_by"])),
            ("wanted", line["wanted"]),
            ("found", line["found"]),
            ("bind", f"{line['source']}:{line['target']}" if line["decision"] == "bind" else ""),
            ("by", line["by"]),
            ("without", line["without"]),
            *(("warning", note) for note in line["notes"]),
        ]
        said = [f"{self.name} (library; {self.situation})", f"  {line['decision']}: {line['reason']}"]
        return "\n".join([*said, *(f"    {name:7} {value}" for name, value in rows if value)])


def explain_library(request: Request, plan: Plan, image: str, name: str) -> LibraryExplanation:
    """Explain one library; raises `ResolveError` for one that the plan does not speak of."""
    line = next((one for one in plan.lines if one.library == name), None)
    if line is None:
        known = [one.library for one in plan.lines]
        raise ResolveError(
            f"{name}: is in no chain from a root of the family {plan.family}, so {image} needs none "
            f"({suggestion(name, known)})"
        )
    situation = f"{image}, family {plan.family}, platform {request.platform}, cpe {request.cpe}, rocm {request.rocm}"
    shown = {
        "name": line.library,
        "decision": line.decision,
        "source": line.source or line.library,
        "target": line.target,
        "wanted": line.wanted or "-",
        "found": line.found or "-",
        "reason": line.reason,
        "chain": line.chain,
        "notes": line.warnings,
        "by": line.by,
        "without": line.without,
        "needed_by": line.needed_by,
        "soname": line.soname,
    }
    return LibraryExplanation(name, "library", situation, shown)
