"""A reviewed plan: what one image needs from the host of a site, kept as a file that belongs to the site.

`lumisite binds --write` writes it, a person reviews it, `lumisite render` compiles it into the wrapper.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Literal

from lumisite.site.checks import names_are_described
from lumisite.site.decode import Faults, Rule, key, suggestion, unknown
from lumisite.site.model import Site
from lumisite.site.scalars import AbsolutePath, Chain, Line, Name
from lumisite.site.versions import Version, parse_version

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
        "A file that a module binds and that this image must not have: the wrapper takes it away.", default=None
    )
    wanted: Line | None = key("How new a copy is wanted.", default=None)
    found: Line | None = key("How new the image's copy is.", default=None)
    reason: Line = key("Why this was decided.")
    because: tuple[Line, ...] = key(
        "The codes of the reason, with their values; what is accepted stays so while they are the same.", default=()
    )
    chain: Chain = key("What leads from the library to a root.")
    warnings: tuple[Line, ...] = key("What a reviewer should know.", default=())
    accepted: Line | None = key(
        "For `refuse` and `missing` only: why jobs may run without it, as the wrapper tells users.", default=None
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
    plugin: bool | None = key("Whether the OFI plugin for NCCL is in it.", default=None)


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
        "Shell patterns that recognise the image by the path that users type; `*` also matches `/`."
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
    """Give the one path that a pattern fits; `None` where it may fit several.

    >>> literal_path("/images/a [[]1].sif"), literal_path("/images/*.sif")
    ('/images/a [1].sif', None)
    """
    parts = re.split(r"\[([*?[])\]", pattern)
    return None if any(sign in part for part in parts[::2] for sign in "*?[") else "".join(parts)


def plan_stages(site: Site, taken: Mapping[tuple[str, str], str]) -> tuple[tuple[Rule, ...], ...]:
    """Give the rules for a plan of a site; `taken` maps platform and path to the plan file that has it already."""
    return (
        (partial(_names_what_exists, site), partial(_recognises_its_image, taken), _knows_its_links),
        (partial(_lines_can_be_done, site),),
    )


def _names_what_exists(site: Site, plan: ImagePlan) -> Faults:
    """A plan belongs to the site, and names a platform, releases, a family and modules of it."""
    if plan.site != site.name:
        yield "site", f"{plan.site} is another site (this is {site.name})"
    yield from names_are_described(site, plan)
    for stack, version in plan.stacks.items():
        releases = site.releases(stack)
        if stack in site.stacks and version not in map(parse_version, releases):
            yield from unknown(f"stacks.{stack}", [str(version)], releases)


def _knows_its_links(plan: ImagePlan) -> Faults:
    """The names that led to the image are among its paths, each for one file."""
    if plan.image is None:
        return
    if not re.fullmatch("header:[0-9a-f]{64}", plan.image.digest):
        yield "image.digest", f"{plan.image.digest!r} is no digest (header: and 64 hexadecimal digits would be right)"
    if (plan.image.file is None) != (not plan.image.names):
        yield "image", "has one of file and names (both would be right, or none)"
    for index, name in enumerate(plan.image.names):
        if name not in plan.paths or literal_path(name) is None:
            yield f"image.names[{index}]", f"{name!r} is not among paths, as one file (leave it out)"


def _recognises_its_image(taken: Mapping[tuple[str, str], str], plan: ImagePlan) -> Faults:
    """Its patterns fit some images and not all; on one platform, a path has one plan."""
    if not plan.paths:
        yield "paths", "is empty, so that no image has this plan (the path that users type would be right)"
    for index, path in enumerate(plan.paths):
        here = f"paths[{index}]"
        if not path.startswith(("/", "*")):
            yield here, f"{path!r} fits no absolute path (it must start with / or *)"
        if not path.strip("*/"):
            yield here, f"{path!r} fits every image (name one)"
        if (plan.platform, path) in taken:
            yield here, f"{path} has a plan for {plan.platform} already, {taken[plan.platform, path]}"
        if path in plan.paths[:index]:
            yield here, f"{path} stands there twice"


def _lines_can_be_done(site: Site, plan: ImagePlan) -> Faults:
    """Binds have a source and a target of their own; what is to be taken away, some module binds.

    What an image cannot have, an admin accepts in words.
    """
    bound = {bind.path for bind in site.binds if bind.where in site.modules}
    targets: dict[str, int] = {}
    for index, line in enumerate(plan.lines):
        here = f"lines[{index}]"
        if line.decision == "bind" and (line.source is None or line.target is None):
            yield here, f"{line.library} is to be bound (source and target would be right)"
        if line.without is not None and line.without not in bound:
            near = suggestion(line.without, bound)
            yield f"{here}.without", f"no module of {site.name} binds {line.without} ({near})"
        if line.without is not None and line.decision == "bind":
            yield f"{here}.without", f"{line.library} is to be bound (without is for the other decisions)"
        if line.decision == "bind" and line.target is not None:
            first = targets.setdefault(line.target, index)
            if first != index:
                yield f"{here}.target", f"{line.target} is the target of lines[{first}] already"
        if line.decision not in UNMET and line.accepted is not None:
            yield f"{here}.accepted", f"{line.library} is not refused or missing (leave the key out)"
        if line.decision in UNMET and line.accepted is None:
            said = f"{line.library} is {'refused' if line.decision == 'refuse' else 'missing'}: {line.reason}"
            right = "another image would be right, or `accepted:` with the reason why jobs may run without it"
            yield f"{here}.decision", f"{said} ({right})"
