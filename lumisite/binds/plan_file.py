"""A bind plan as a file that a person reviews, and one line of it as `why` explains it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import yaml

from lumisite.binds.closure import PlannedLibrary
from lumisite.binds.plan import BindPlan, PlanRequest
from lumisite.errors import ResolveError
from lumisite.findings.finding import Finding, Severity
from lumisite.findings.writers import sentence
from lumisite.site.library_path import library_path
from lumisite.site.plans import UNMET, ImagePlan, PlannedImage
from lumisite.site.versions import Version
from lumisite.text import printable, some

#: What a plan file begins with.
_HEADER = """\
# What one image needs from the host: found by `lumisite binds --write`, to be reviewed by a person, and compiled by
# `lumisite render` into the wrapper. Of a line, only `bind` and `without` do something. Yours to edit are `paths` and
# `accepted`; they stay when the file is written again.
"""


def reason_of(planned: PlannedLibrary) -> str:
    """Return why a library was bound, skipped or refused, in words."""
    return printable("; ".join(planned.why))


def format_plan(
    plan: BindPlan, request: PlanRequest, paths: tuple[str, ...], image: PlannedImage | None, old: ImagePlan | None
) -> str:
    """Return the text of a plan file: the same plan always has the same bytes.

    `paths` recognise the image, and `image` is the file that was read. What `old`, the plan that the file held before,
    accepts stays accepted where the decision and its reason are as before.
    """
    earlier = () if old is None else old.lines
    accepted = {(line.library, line.decision, line.reason): line.accepted for line in earlier}
    document = {
        "plan": "2",
        "site": request.site.name,
        "platform": request.platform,
        "stacks": dict(request.releases),
        "family": plan.family,
        "paths": paths,
        "image": None if image is None else vars(image),
        "holds": {
            "stacks": dict(plan.holds.stacks),
            "plugin": plan.holds.plugin,
            "libfabric": plan.holds.libfabric,
            "sets": dict(plan.holds.sets),
        },
        "library_path": library_path(request.site, request.platform, plan.family),
        "notes": tuple(map(sentence, plan.notes)),
        "lines": tuple(_line(planned, accepted) for planned in plan.lines),
    }
    return _HEADER + yaml.safe_dump(_plain(document), sort_keys=False, allow_unicode=True, width=1_000_000)


def _line(planned: PlannedLibrary, accepted: Mapping[Any, str | None]) -> dict[str, object]:
    reason = reason_of(planned)
    return {
        "library": planned.library,
        "decision": planned.decision,
        "soname": planned.soname if planned.soname != planned.library else None,
        "source": planned.source,
        "target": planned.target,
        "by": planned.by,
        "without": planned.without,
        "reason": reason,
        "chain": " <- ".join(planned.chain),
        "warnings": tuple(map(printable, planned.warnings)),
        "accepted": accepted.get((planned.library, planned.decision, reason)),
    }


def _plain(value: Any) -> Any:
    """Return a value as YAML's types; what is unknown or empty is left out of a table."""
    if isinstance(value, dict):
        table = {name: _plain(item) for name, item in value.items()}
        return {name: item for name, item in table.items() if item not in (None, "", [], {})}
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    return str(value) if isinstance(value, Version) else value


@dataclass(frozen=True)
class LibraryExplanation:
    """One line of a plan, by the keys of a plan file, and the `situation` that it was made for."""

    name: str
    kind: Literal["library"]
    situation: str
    line: Mapping[str, Any]

    def __str__(self) -> str:
        line = self.line
        bind = f"{line['source']}:{line['target']}" if line["decision"] == "bind" else ""
        rows = [("chain", line["chain"]), ("bind", bind), ("by", line.get("by")), ("without", line.get("without"))]
        rows += [("warning", warning) for warning in line.get("warnings", ())]
        head = [f"{self.name} (library; {self.situation})", f"  {line['decision']}: {line['reason']}"]
        return "\n".join([*head, *(f"    {name:7} {value}" for name, value in rows if value)])


def explain_library(request: PlanRequest, plan: BindPlan, image: str, name: str) -> LibraryExplanation:
    """Explain one library; raises `ResolveError` for one that is not in the plan."""
    lines = [line for line in plan.lines if line.library == name]
    if not lines:
        known = [line.library for line in plan.lines]
        advice = f"planned: {some(known, between=', ')}" if known else "add it with `--library`"
        message = f"is in no chain from a root of the image family {plan.family}, so {printable(image)} needs none"
        raise ResolveError(Finding("name-unknown", Severity.FAULT, message, advice, name))
    # Of several copies, what a container cannot have matters most.
    line = next((line for line in lines if line.decision in UNMET), lines[0])
    versions = "".join(f", {stack} {version}" for stack, version in request.releases.items())
    situation = f"{image}, family {plan.family}, platform {request.platform}{versions}"
    return LibraryExplanation(name, "library", situation, _plain(_line(line, {})))
