"""A reviewed plan: what one image needs from the host of a site, kept as a file that belongs to the site.

`lumisite binds --write` writes it, a person reviews it, `lumisite render` compiles it into the wrapper.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Literal

from lumisite.errors import UnfitError, wrong_type
from lumisite.findings.finding import Finding, Severity
from lumisite.site.decode import Faults, Rule, Tables, contradiction, key, missing_key, unknown
from lumisite.site.images import Holds
from lumisite.site.model import Site
from lumisite.site.scalars import AbsolutePath, Chain, Line, Name, VariableName
from lumisite.site.versions import Version
from lumisite.site.yaml import Document

#: Decisions that leave a container without what its family needs.
UNMET = ("refuse", "missing")


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class PlanLine:
    """What was decided for one library. Only `bind` and `without` do something; the rest is for the reviewer."""

    library: Line = key("The SONAME.")
    decision: Literal["bind", "skip", "refuse", "missing"] = key("What was decided.")
    soname: Line | None = key("The SONAME of the host's file, where it is another name.", default=None)
    source: AbsolutePath | None = key("The file on the host; none where the host lacks it.", default=None)
    target: AbsolutePath | None = key("The path in the container; for `skip`, of the image's own.", default=None)
    by: str | None = key("The module that binds it already: the wrapper adds nothing.", names="modules", default=None)
    without: AbsolutePath | None = key(
        "A file that a module binds and that this image must not have: the wrapper takes it away.",
        default=None,
    )
    reason: Line = key("Why this was decided; what is accepted stays so while it is the same.")
    chain: Chain = key("What leads from the library to a root.")
    warnings: tuple[Line, ...] = key("What a reviewer should know.", default=())
    accepted: Line | None = key(
        "For `refuse` and `missing` only: why jobs may run without it, as the wrapper tells users.",
        default=None,
    )

    @property
    def spec(self) -> str | None:
        """The bind as `--bind` takes it, where something is to be bound."""
        if self.decision != "bind" or self.source is None or self.target is None:
            return None
        return self.source if self.source == self.target else f"{self.source}:{self.target}"


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class PlannedImage:
    """The image file that the plan was made for."""

    bytes: int = key("Its size.")
    digest: Line = key("Its digest of kind `header`, as `lumisite images` gives it.")
    file: Name | None = key("Where `names` led when the plan was made.", default=None)
    names: tuple[Name, ...] = key(
        "Those of `paths` that are links to `file`: the wrapper looks whether they still are.", default=()
    )


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class PlannedContents:
    """What was read in the image that settings depend on."""

    stacks: Mapping[str, Version] = key("Releases in it, by stack.", default_factory=dict)
    plugin: bool | None = key("Whether the OFI plugin for NCCL is in it and finds a libfabric.", default=None)
    libfabric: Version | None = key("The release of the libfabric that it finds.", default=None)
    sets: Mapping[VariableName, Line] = key(
        "Variables of the ledger that the image sets itself, which the wrapper leaves alone.", default_factory=dict
    )


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class ImagePlan:
    """The plan of one image on one platform."""

    plan: Literal["2"] = key("Version of this format.")
    site: Name = key("Name of the site.")
    platform: str = key("The platform that it holds for. A render for another one leaves it out.", names="platforms")
    stacks: Mapping[str, Version] = key(
        "The releases that were asked about, by stack. It binds libraries of these, whatever a job has loaded.",
        names="stacks",
        default_factory=dict,
    )
    family: str = key("The image's family, whose modules and settings it gets.", names="families")
    paths: tuple[Name, ...] = key(
        "Shell patterns that recognise the image by the path that users type; `*` also matches `/`.",
        example="/images/image.sif",
    )
    image: PlannedImage | None = key("The file that was read; none for an unpacked image.", default=None)
    holds: PlannedContents = key("What was read in the image.", default=PlannedContents())
    library_path: tuple[AbsolutePath, ...] = key("Directories behind the user's on LD_LIBRARY_PATH inside.", default=())
    notes: tuple[Line, ...] = key("What a reviewer should know of the whole.", default=())
    lines: tuple[PlanLine, ...] = key("One entry for each library.", default=())


@dataclass(frozen=True)
class LoadedPlan:
    """A plan with the text that it was read from; `file` is the name that output may show."""

    plan: ImagePlan
    file: str
    data: bytes


def literal_path(pattern: str) -> str | None:
    """Return the only path that a pattern matches; `None` where it may match several.

    >>> literal_path("/images/a [[]1].sif"), literal_path("/images/*.sif")
    ('/images/a [1].sif', None)
    """
    parts = re.split(r"\[([*?[])\]", pattern)
    return None if any(sign in part for part in parts[::2] for sign in "*?[") else "".join(parts)


def holds_by_plan(plan: ImagePlan) -> Holds:
    """Return what a plan says that its image holds."""
    contents = plan.holds
    sets = {str(name): str(value) for name, value in contents.sets.items()}
    return Holds(plan.family, contents.stacks, contents.plugin, contents.libfabric, sets=sets)


def plan_rules(site: Site, planned: Mapping[tuple[str, str], str]) -> tuple[Rule, ...]:
    """Return the rules for a plan of a site; `planned` maps platform and path to the plan file that has it already."""
    return (
        partial(_has_described_releases, site),
        partial(_recognises_its_image, planned),
        _knows_its_links,
        partial(_lines_can_be_done, site),
    )


def names_of(site: Site, document: Document) -> Tables:
    """Return the tables of names that a plan may refer to; add a fault where it is of another site."""
    name = document.value.get("site")
    if isinstance(name, str) and name != site.name:  # what is no name is the decoder's to report
        advice = "plan the image for this site: `lumisite binds IMAGE --write FILE`"
        document.add(contradiction("site", f"is of site {name}, expected {site.name}", advice))
    return {name: getattr(site, name) for name in ("platforms", "families", "modules", "stacks")}


def _has_described_releases(site: Site, plan: ImagePlan) -> Faults:
    """A plan is for releases that the site describes."""
    for stack, version in plan.stacks.items():
        if version not in site.stacks[stack].versions:
            yield from unknown(f"stacks.{stack}", [str(version)], site.stacks[stack].releases)


def _knows_its_links(plan: ImagePlan) -> Faults:
    """The names that led to the image are among its paths, each for one file."""
    if plan.image is None:
        return
    if not re.fullmatch("header:[0-9a-f]{64}", plan.image.digest):
        example = "header: and 64 hexadecimal digits"
        yield wrong_type(plan.image.digest, "digest", example).finding("image.digest")
    if (plan.image.file is None) != (not plan.image.names):
        yield missing_key("image", "add it: both `file` and `names`")
    for index, name in enumerate(plan.image.names):
        if name not in plan.paths or literal_path(name) is None:
            message = f"{name!r} is not in `paths` as one file"
            yield contradiction(f"image.names[{index}]", message, "remove it, or add it to `paths`")


def _recognises_its_image(planned: Mapping[tuple[str, str], str], plan: ImagePlan) -> Faults:
    """Its patterns fit some images and not all; on one platform, a path has one plan."""
    first_of: dict[str, int] = {}
    for index, pattern in enumerate(plan.paths):
        key = f"paths[{index}]"
        if not pattern.startswith(("/", "*")):
            yield wrong_type(pattern, "absolute path pattern", "/images/*.sif").finding(key)
        if not pattern.strip("*/"):
            yield UnfitError(f"{pattern} fits everything", "use a pattern that fits one thing").finding(key)
        if (plan.platform, pattern) in planned:
            message = f"{pattern} is listed twice (first: {planned[plan.platform, pattern]})"
            yield contradiction(key, message, "remove one of the two")
        if first_of.setdefault(pattern, index) != index:
            yield contradiction(key, f"{pattern} is listed twice", "remove one of the two")


def _lines_can_be_done(site: Site, plan: ImagePlan) -> Faults:
    """Binds have a source and a target of their own; what is to be taken away, some module binds.

    What an image cannot have, an admin accepts in words.
    """
    bound = {bind.path for bind in site.binds if bind.where in site.modules}
    targets: dict[str, int] = {}
    for index, line in enumerate(plan.lines):
        key = f"lines[{index}]"
        if line.without is not None:
            yield from unknown(f"{key}.without", [line.without], bound)
        if line.decision == "bind":
            for name in ("source", "target"):
                if getattr(line, name) is None:
                    yield missing_key(f"{key}.{name}")
            if line.target is not None and targets.setdefault(line.target, index) != index:
                message = f"{line.target} is listed twice (first: lines[{targets[line.target]}])"
                yield contradiction(f"{key}.target", message, "remove one of the two")
        if line.decision in UNMET and line.accepted is None:
            refused = f"is refused: {line.reason}" if line.decision == "refuse" else "is missing"
            advice = "use another image, or say in `accepted` why jobs may run without it"
            message = f"{line.library} {refused}"
            yield Finding("library-unmet", Severity.FAULT, message, advice, f"{key}.decision")
