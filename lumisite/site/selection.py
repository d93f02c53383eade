"""From what an admin asks for (`--rocm 6.2`) to exact releases, with the reason for each one that lost."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

from lumisite.errors import ResolveError
from lumisite.findings.catalogue import make_finding
from lumisite.site.decode import UnfitError, alternatives
from lumisite.site.model import Module, Platform, Site
from lumisite.site.versions import Version, nearest, parse_version

#: What an admin types for every supported release.
ALL = "all"
#: What the version of a module may be made of, beside stacks.
PLATFORM = "platform"
#: The stacks that have an option of their own.
SHORT_FORMS = ("rocm", "cpe")


@dataclass(frozen=True)
class Combination:
    """What the versions of modules stand for: a platform, and a release of each of its stacks.

    It says nothing about what is in an image: the image that runs decides that. `name` has all of its releases, as
    versions of modules name them: `25.03-rocm6.2`.
    """

    platform: str
    releases: Mapping[str, Version]
    name: str


@dataclass(frozen=True)
class Candidate:
    """One release that could have been chosen, of a stack or of the `platform`: why it was, or why it lost."""

    kind: str
    name: str
    chosen: bool
    reason: str


@dataclass(frozen=True)
class Selection:
    """The releases that one render is made of: by stack, the default version first, and every combination of them."""

    platform: str
    stacks: Mapping[str, tuple[Version, ...]]
    combinations: tuple[Combination, ...]
    candidates: tuple[Candidate, ...]
    text: str

    def __str__(self) -> str:
        return self.text

    @property
    def default(self) -> Combination:
        """The default of each stack."""
        return self.combinations[0]


def resolve_selection(site: Site, *, platform: str | None = None, **asked: Sequence[str]) -> Selection:
    """Choose releases by stack; nothing asked for means the platform's own default, `all` every one that it supports.

    A series (`6.2`) means its newest release. Raises `ResolveError`, which names what was asked for, why it will not
    do, and the nearest that would.
    """
    name = site.platform if platform is None else platform
    if name not in site.platforms:
        raise ResolveError(make_finding("unknown-name", "--platform", name=name, **alternatives(name, site.platforms)))
    described = site.platforms[name]
    for stack in (stack for stack, versions in asked.items() if versions):
        if stack not in described.stacks and (stack not in site.stacks or ALL not in asked[stack]):
            known = alternatives(stack, described.stacks)
            raise ResolveError(make_finding("unknown-name", option_of(stack), name=stack, **known))
    chosen: dict[str, tuple[Version, ...]] = {}
    for stack in (one for one in site.stacks if one in described.stacks):
        wanted = asked.get(stack, ())
        every = offered(site, described, stack) if ALL in wanted else []
        versions = every or [_resolve(site, name, stack, one) for one in wanted if one != ALL]
        # Drop repeats and bring the default to the front; nothing chosen means the default alone.
        default = described.stacks[stack].default
        chosen[stack] = tuple(sorted(dict.fromkeys(versions) or [default], key=lambda version: version != default))
    candidates = (
        *_platforms(site, name, asked=platform is not None),
        *(one for stack, versions in chosen.items() for one in _candidates(site, name, stack, versions)),
    )
    titles = (f"{site.stacks[stack].title} {', '.join(map(str, versions))}" for stack, versions in chosen.items())
    text = ", ".join([f"site {site.name}", f"{PLATFORM} {name}", *titles])
    return Selection(name, chosen, tuple(combinations(site, name, chosen)), candidates, text)


def combinations(site: Site, platform: str, chosen: Mapping[str, Iterable[Version]]) -> Iterator[Combination]:
    """Give every release of each stack with every one of the others, the default first."""
    for versions in product(*chosen.values()):
        releases = dict(zip(chosen, versions, strict=True))
        yield Combination(platform, releases, _named(site, tuple(chosen), releases) or platform)


def module_version(site: Site, module: Module, combination: Combination) -> str:
    """The version that a module has in a combination of releases."""
    if module.version == (PLATFORM,):
        return combination.platform
    return _named(site, module.version, combination.releases)


def _named(site: Site, stacks: Sequence[str], releases: Mapping[str, Version]) -> str:
    """Write releases: what the host has in full, what images bring by its series; without its name what comes first."""
    words: list[str] = []
    for stack in stacks:
        installed = site.stacks[stack].gpu is None
        number = str(releases[stack]) if installed else releases[stack].minor
        words.append(number if installed and not words else f"{stack}{number}")
    return "-".join(words)


def with_release(site: Site, combination: Combination, stack: str, version: Version) -> Combination:
    """Give a combination with another release of a stack."""
    releases = {**combination.releases, stack: version}
    return replace(combination, releases=releases, name=_named(site, tuple(releases), releases))


def usable(site: Site, platform: Platform, stack: str) -> list[Version]:
    """The releases of a stack that containers can have on a platform, the oldest first."""
    here = platform.stacks.get(stack)
    return [version for version in site.stacks[stack].versions if here is not None and here.has(version)]


def offered(site: Site, platform: Platform, stack: str) -> list[Version]:
    """What `all` means: of what is installed all that is supported, else the newest of each series that can run."""
    here = platform.stacks.get(stack)
    if here is not None and here.supported:
        return list(here.supported)
    # Module versions tell no more than the series.
    return list({version.minor: version for version in usable(site, platform, stack)}.values())


def option_of(stack: str) -> str:
    """Give the option by which a release of a stack is asked for."""
    return f"--{stack}" if stack in SHORT_FORMS else f"--use {stack}"


def _resolve(site: Site, name: str, stack: str, text: str) -> Version:
    """Give the newest release of a series that a platform has; else say what keeps it away, and what comes near."""
    option, platform, described = option_of(stack), site.platforms[name], site.stacks[stack]
    try:
        asked = parse_version(text)
    except UnfitError as error:
        raise ResolveError(error.finding(option)) from None
    series = [version for version in described.versions if version.within(asked)]
    if allowed := [version for version in series if platform.stacks[stack].has(version)]:
        return allowed[-1]
    has = platform.stacks[stack]
    nearest_release = nearest(asked, has.supported or usable(site, platform, stack))
    values: dict[str, Any] = {
        "release": f"{described.title} {text}",
        "platform": name,
        "nearest": str(nearest_release or ""),
    }
    if has.supported:
        values["installed"] = tuple(map(str, sorted(has.installed)))
    elif not series:
        values |= {"site": site.name, "known": tuple(map(str, described.versions))}
    else:
        others = (other for other, one in site.platforms.items() if set(usable(site, one, stack)).intersection(series))
        values |= {"range": str(has.runs), "driver": str(has.driver), "elsewhere": tuple(others)}
    raise ResolveError(make_finding("release-unavailable", option, **values))


def _platforms(site: Site, chosen: str, *, asked: bool) -> Iterable[Candidate]:
    for name, platform in site.platforms.items():
        period = f"in force since {platform.since}" if name == site.platform else f"was in force from {platform.since}"
        if name == chosen:
            yield Candidate(PLATFORM, name, True, f"asked for, {period}" if asked else f"{period}, the current one")
        else:
            yield Candidate(PLATFORM, name, False, f"{period}; another was asked for" if asked else period)


def _candidates(site: Site, name: str, stack: str, chosen: Sequence[Version]) -> Iterable[Candidate]:
    here = site.platforms[name].stacks[stack]
    for version in site.stacks[stack].versions:
        newer = next((other for other in chosen if other.minor == version.minor), None)
        beside = f"; {', '.join(map(str, chosen))} {'is' if len(chosen) == 1 else 'are'} chosen"
        found = site.releases(stack)[str(version)].found
        if here.supported:
            reason = _installed(site, name, stack, version)
            reason += beside if version not in chosen and here.has(version) else ""
        elif version in chosen:
            reason = f"{_running(site, name, stack, version)}, found in: {found}"
        elif not here.has(version):
            reason = f"outside the range {here.runs} that the driver of platform {name} supports"
        elif newer is not None:
            reason = f"{newer} is {'newer' if newer > version else 'asked for'} in the same series {version.minor}"
        else:
            reason = ("would do" if here.in_range(version) else _running(site, name, stack, version)) + beside
        yield Candidate(stack, str(version), version in chosen, reason)


def _installed(site: Site, name: str, stack: str, version: Version) -> str:
    here = site.platforms[name].stacks[stack]
    if version in here.leftover:
        return f"still installed on platform {name}, no longer supported (the default is {here.default})"
    if version not in here.supported:
        return f"not installed on platform {name}"
    return f"the default of platform {name}" if version == here.default else f"supported on platform {name}"


def _running(site: Site, name: str, stack: str, version: Version) -> str:
    here = site.platforms[name].stacks[stack]
    if here.runs is None:
        return "no driver decides"
    if version in here.runs:
        return f"in range {here.runs} of the driver"
    if version in here.in_use:
        return f"outside the range {here.runs} that is supported with the driver, and in use here"
    return f"in range {here.compat} of the packages for forward compatibility, which the image must bring"
