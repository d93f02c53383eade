"""What stored plans need of a host, and whether the images behind them are still those that they were made for."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress

from lumisite.errors import LumisiteError
from lumisite.findings.finding import Finding, Severity
from lumisite.machine.host import DiskTree
from lumisite.machine.tree import file_of, resolve
from lumisite.render.manifest import ManifestLibrary, PlanSummary
from lumisite.site.library_path import host_path
from lumisite.site.model import Site
from lumisite.site.plans import LoadedPlan, literal_path


def plan_summaries(site: Site, plans: Iterable[LoadedPlan]) -> dict[str, PlanSummary]:
    """Return what plans need of a host, by the plan's file; what a module binds for them they need too."""
    return {
        loaded_plan.file: PlanSummary(
            images=loaded_plan.plan.paths,
            digest="" if loaded_plan.plan.image is None else loaded_plan.plan.image.digest,
            libraries=tuple(
                ManifestLibrary(line.source, line.target, line.soname or line.library)
                for line in loaded_plan.plan.lines
                if line.decision == "bind" and line.source is not None and line.target is not None
            ),
            folders=tuple(host_path(site, folder) for folder in loaded_plan.plan.library_path),
        )
        for loaded_plan in plans
    }


def other_images(plans: Mapping[str, PlanSummary], tree: DiskTree) -> Iterator[Finding]:
    """Compare the images of a tree with their plans, by at most some 5 MB of each file; unpacked images have no digest.

    Compared is every path that a pattern names in full, not where one may fit several.
    """
    digests: dict[str, str] = {}
    for file, plan in plans.items():
        for path in filter(None, map(literal_path, plan.images if plan.digest else ())):
            found = resolve(tree, path)
            if found.entry is None:
                command = f"`lumisite binds {path} --write {file}` writes it again"
                text = f"missing; {file} is its plan"
                yield Finding("plan-image-missing", Severity.INFO, text, command, subject=path)
                continue
            if found.path not in digests:
                digests[found.path] = _digest(tree, found.path)
            if digests[found.path] != plan.digest:
                wrong = "not the file that the plan was made for" if digests[found.path] else "not a readable file"
                advice = f"restore it, or `lumisite binds {path} --write {file}`, render and deploy"
                yield Finding(
                    "plan-image-changed", Severity.FAULT, f"{wrong}; {file} is its plan", advice, subject=path
                )


def _digest(tree: DiskTree, path: str) -> str:
    """Return the digest of an image file, empty where it cannot be read."""
    from lumisite.images.digest import digest_of  # which a plan of a file alone needs

    with suppress(LumisiteError):
        if source := file_of(tree, path):
            return digest_of(source)
    return ""
