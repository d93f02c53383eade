"""Write a plan as the reviewed file that a site keeps, and keep what an admin has written into an earlier one."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import yaml

from lumisite.binds.plan import Plan, Request
from lumisite.images.digest import digest_of
from lumisite.machine.tree import Source
from lumisite.site.plans import ImagePlan, PlanLine

HEADER = """\
# What one image needs from the host: found by `lumisite binds --write`, to be reviewed by a person, and compiled by
# `lumisite render` into the wrapper. Of a line, only `bind` and `without` do something. Yours to edit are `paths` and
# `accepted`; they stay when the file is written again.
"""


def format_plan(
    plan: Plan,
    request: Request,
    paths: tuple[str, ...],
    image: Source | None,
    old: ImagePlan | None,
    names: tuple[str, ...] = (),
) -> str:
    """Give the text of a plan file: the same plan always gives the same bytes.

    `paths` recognise the image, `image` is the file that was read, and `names` are those of the paths that are links to
    it. What `old`, the plan that the file held before, accepts stays accepted where decision and reason are as before.
    """
    accepted: dict[tuple[str, str, str], str | None] = {}
    if old is not None:
        accepted = {(line.library, line.decision, line.reason): line.accepted for line in old.lines}
    document = {
        "plan": "1",
        "site": request.site.name,
        "platform": request.platform,
        "cpe": str(request.cpe),
        "rocm": str(request.rocm),
        "family": plan.family,
        "paths": list(paths),
        "image": None if image is None else _image(image, names),
        "holds": _without_empty(
            {"rocm": str(plan.holds.rocm) if plan.holds.rocm else None, "plugin": plan.holds.plugin}
        ),
        "library_path": list(request.site.library_path(request.platform, plan.family)),
        "notes": list(plan.notes),
        "lines": [_line(line, accepted.get((line.library, line.decision, line.reason))) for line in plan.lines],
    }
    return HEADER + yaml.safe_dump(_without_empty(document), sort_keys=False, allow_unicode=True, width=1_000_000)


def _image(image: Source, names: tuple[str, ...]) -> dict[str, Any]:
    known: dict[str, Any] = {"bytes": image.size, "digest": digest_of(image, "header")}
    return {**known, "file": image.name, "names": list(names)} if names else known


def _line(line: PlanLine, accepted: str | None) -> dict[str, Any]:
    keys = {item.name: getattr(line, item.name) for item in fields(PlanLine)}
    soname = line.soname if line.soname != line.library else None
    texts = {"soname": soname, "chain": " <- ".join(line.chain), "warnings": list(line.warnings), "accepted": accepted}
    return _without_empty({**keys, **texts})


def _without_empty(table: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in table.items() if value not in (None, "", [], {})}
