"""The edge that finds and reads a site description."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

from lumisite.errors import ResolveError, SiteError, shown, unreadable
from lumisite.findings.finding import Finding, Place, Severity
from lumisite.paths import SITE_FILE, package_folder
from lumisite.site.decode import Tables, decode
from lumisite.site.harmful_values import HERE
from lumisite.site.model import Site
from lumisite.site.plans import ImagePlan, LoadedPlan, names_of, plan_rules
from lumisite.site.read import UnfitFileError, read_file
from lumisite.site.rules import RULES
from lumisite.site.scalars import TASK
from lumisite.site.selection import PLATFORM
from lumisite.site.yaml import MAX_BYTES
from lumisite.text import suggestion

EMBEDDED = Path(__file__).parent.parent / "sites"


@dataclass(frozen=True)
class LoadedSite:
    """A site with the text that it was read from; `file` is the name that output may show, without its `directory`."""

    site: Site
    file: str
    data: bytes
    directory: Path = Path()


def load_site(name: str) -> LoadedSite:
    """Load an embedded site by name, or a file: whatever contains `/` or ends in `.yaml` or `.yml` is a file.

    Raises `ResolveError` for an unknown name, `SiteError` for a file that cannot be read or has faults.
    """
    require_site(name, "--site")
    path = Path(name) if is_file(name) else EMBEDDED / f"{name}.yaml"
    return site_of(read_input(path), path)


def description_name(site: Site) -> str:
    """Return what rendered files call the description of a site: renaming its file changes nothing of them."""
    return f"{site.name}.yaml"


def is_file(name: str) -> bool:
    """Return whether a site is named by its file, not by the name of an embedded one."""
    return "/" in name or name.endswith((".yaml", ".yml"))


def require_site(name: str, option: str) -> None:
    """Raise `ResolveError` for an unknown name of an embedded site; `option` is the one that has the name."""
    if not is_file(name) and name not in embedded_sites():
        message = f"there is no embedded site {name!r}"
        advice = f"{suggestion(name, embedded_sites())}; a file has / or .yaml in its name"
        if Path(f"{name}.yaml").is_file():
            advice = f"the file {name}.yaml is ./{name}.yaml"
        raise ResolveError(Finding("name-unknown", Severity.FAULT, message, advice, option))


def embedded_sites() -> list[str]:
    """Return the names of the sites that come with the package."""
    return sorted(path.stem for path in EMBEDDED.glob("*.yaml"))


@lru_cache(maxsize=8)  # a process that runs several commands, as what writes the docs, reads each description once
def site_of(data: bytes, path: Path) -> LoadedSite:
    """Read the text of a site description; `path` is where it is, or will be. Raises `SiteError` with every fault."""
    # Output names the file without its directory, so that a render does not depend on where the checkout is.
    return LoadedSite(parse_site(data, path), shown(path.name), data, path.parent)


def parse_site(data: bytes, path: Path) -> Site:
    """Parse the text of a site description; `path` is for messages. Raises `SiteError` with every fault."""
    return decode(data, Site, file=str(path), rules=RULES, prepare=lambda document: tables_of(document.value))


def tables_of(values: dict[str, Any]) -> Tables:
    """Return the names that keys of a site description may refer to, from its raw values.

    A table that is missing, or is none, is not there: what refers to it is no fault of its own.
    """
    tables: dict[str, Collection[str]] = {name: value for name, value in values.items() if isinstance(value, dict)}
    stacks = values.get("stacks")
    if (folder := package_folder("modulefiles_src")) is not None:  # without it, rendering says to install it again
        names = (path.name.removesuffix(".lua.j2") for path in sorted(folder.glob("*.lua.j2")))
        tables["templates"] = [name for name in names if not name.startswith((".", "_"))]
    if isinstance(values.get("modules"), dict):
        tables["places"] = [TASK, *tables["modules"]]
    if isinstance(stacks, dict):
        tables["version_parts"] = [PLATFORM, *stacks]
    if tables.get("sources"):  # an empty table is one that nobody wrote: sources may have any name
        tables["sources"] = [*tables["sources"], HERE]
    else:
        tables.pop("sources", None)
    return tables


def load_plans(loaded: LoadedSite) -> tuple[LoadedPlan, ...]:
    """Load the plans that a site names; raise `SiteError` with every fault that they have."""
    plans: list[LoadedPlan] = []
    findings: list[Finding] = []
    planned: dict[tuple[str, str], str] = {}
    names = {loaded.file, SITE_FILE}
    for name in map(str, loaded.site.plans):
        path = loaded.directory / name
        if name in names:
            message, advice = "another input has this name", "rename one of them"
            findings.append(Finding("value-wrong", Severity.FAULT, message, advice, place=Place(str(path))))
            continue
        names.add(name)
        try:
            data = read_input(path)
            plan = parse_plan(data, path, loaded.site, planned)
        except SiteError as error:
            findings += error.findings
            continue
        plans.append(LoadedPlan(plan, name, data))
        planned.update({(plan.platform, pattern): name for pattern in plan.paths})
    if findings:
        raise SiteError(findings)
    return tuple(plans)


def parse_plan(
    data: bytes, path: Path, site: Site | None = None, planned: Mapping[tuple[str, str], str] = MappingProxyType({})
) -> ImagePlan:
    """Parse the text of a plan; `path` is for messages. Raises `SiteError`.

    A plan of a `site` keeps to its rules, and is for none of the images that are `planned` by platform and path.
    """
    if site is None:
        return decode(data, ImagePlan, file=str(path))
    rules, names = plan_rules(site, planned), partial(names_of, site)
    return decode(data, ImagePlan, file=str(path), rules=rules, prepare=names)


def read_input(path: Path, most_bytes: int = MAX_BYTES, remedy: str = "expected: a YAML file") -> bytes:
    """Read a file of which nothing is known yet; raises `SiteError`, with the `remedy` for what is no regular file."""
    try:
        return read_file(path, most_bytes)
    except OSError as error:
        advice = remedy if isinstance(error, UnfitFileError) else "check the path and its permissions"
        raise unreadable(str(error.filename), f"cannot be read: {error.strerror}", advice) from None
