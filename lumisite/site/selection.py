"""From requested releases (`--rocm 6.2`) to exact ones, with the reason for each one that lost."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product

from lumisite.errors import ResolveError, UnfitError
from lumisite.findings.finding import Finding, Severity
from lumisite.site.decode import unknown
from lumisite.site.model import Module, Platform, Site
from lumisite.site.software import PlatformStack
from lumisite.site.versions import Version, nearest, parse_version
from lumisite.text import some

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


def resolve_selection(site: Site, *, platform: str | None = None, **requests: Sequence[str]) -> Selection:
    """Select releases by stack; no request means the platform's default, `all` every one that it supports.

    A series (`6.2`) means its newest release. Raises `ResolveError` with the request, why it is refused, and the
    nearest release that is available.
    """
    name = site.platform if platform is None else platform
    if name not in site.platforms:
        raise ResolveError(next(unknown("--platform", [name], site.platforms)))
    described = site.platforms[name]
    for stack in (stack for stack, versions in requests.items() if versions):
        if stack not in described.stacks and (stack not in site.stacks or ALL not in requests[stack]):
            raise ResolveError(next(unknown(option_of(stack), [stack], described.stacks)))
    chosen: dict[str, tuple[Version, ...]] = {}
    for stack in filter(described.stacks.__contains__, site.stacks):
        texts = requests.get(stack, ())
        every = offered(site, described, stack) if ALL in texts else []
        versions = every or [_resolve(site, name, stack, text) for text in texts if text != ALL]
        # Drop repeats and bring the default to the front; nothing chosen means the default alone.
        default = described.stacks[stack].default
        chosen[stack] = tuple(sorted(dict.fromkeys(versions) or [default], key=lambda version: version != default))
    candidates = (
        *_platforms(site, name, requested=platform is not None),
        *(found for stack, versions in chosen.items() for found in _candidates(site, name, stack, versions)),
    )
    titles = (f"{site.stacks[stack].title} {', '.join(map(str, versions))}" for stack, versions in chosen.items())
    text = ", ".join([f"site {site.name}", f"{PLATFORM} {name}", *titles])
    return Selection(name, chosen, tuple(combinations(site, name, chosen)), candidates, text)


def combinations(site: Site, platform: str, chosen: Mapping[str, Iterable[Version]]) -> Iterator[Combination]:
    """Yield every release of each stack with every one of the others, the default first."""
    for versions in product(*chosen.values()):
        releases = dict(zip(chosen, versions, strict=True))
        yield Combination(platform, releases, _named(site, tuple(chosen), releases) or platform)


def module_version(site: Site, module: Module, combination: Combination) -> str:
    """Return the version that a module has in a combination of releases."""
    if module.version == (PLATFORM,):
        return combination.platform
    return _named(site, module.version, combination.releases)


def _named(site: Site, stacks: Sequence[str], releases: Mapping[str, Version]) -> str:
    """Format releases: those of the host in full, the first of them without its name; those of images by series."""
    words: list[str] = []
    for stack in stacks:
        installed = site.stacks[stack].gpu is None
        number = str(releases[stack]) if installed else releases[stack].minor
        words.append(number if installed and not words else f"{stack}{number}")
    return "-".join(words)


def with_release(site: Site, combination: Combination, stack: str, version: Version) -> Combination:
    """Return a combination with another release of a stack."""
    releases = {**combination.releases, stack: version}
    return replace(combination, releases=releases, name=_named(site, tuple(releases), releases))


def usable(site: Site, platform: Platform, stack: str) -> list[Version]:
    """Return the releases of a stack that containers can have on a platform, the oldest first."""
    available = platform.stacks.get(stack)
    return [version for version in site.stacks[stack].versions if available is not None and available.has(version)]


def offered(site: Site, platform: Platform, stack: str) -> list[Version]:
    """Return what `all` means: all that is installed and supported, else the newest of each series that can run."""
    available = platform.stacks.get(stack)
    if available is not None and available.supported:
        return list(available.supported)
    # Module versions have no more than the series.
    return list({version.minor: version for version in usable(site, platform, stack)}.values())


def option_of(stack: str) -> str:
    """Return the option that selects a release of a stack."""
    return f"--{stack}" if stack in SHORT_FORMS else f"--use {stack}"


def _resolve(site: Site, name: str, stack: str, text: str) -> Version:
    """Return the newest release of a series that a platform has; raises `ResolveError` with the nearest one."""
    option, platform, described = option_of(stack), site.platforms[name], site.stacks[stack]
    try:
        requested = parse_version(text)
    except UnfitError as error:
        raise ResolveError(error.finding(option)) from None
    series = [version for version in described.versions if version.within(requested)]
    available = platform.stacks[stack]
    if allowed := [version for version in series if available.has(version)]:
        return allowed[-1]
    better = nearest(requested, available.supported or usable(site, platform, stack))
    release, elsewhere = f"{described.title} {text}", ""
    if available.supported:
        has = ", ".join(map(str, sorted(available.installed)))
        message = f"{release} is not installed on platform {name} (installed: {has})"
    elif not series:
        message = f"{site.name} has no {release} (has {', '.join(map(str, described.versions))})"
    else:
        driver = f"driver {available.driver} of platform {name}"
        message = f"{release} is outside the range {available.runs} that {driver} supports"
        others = (other for other in site.platforms if {*usable(site, site.platforms[other], stack)} & {*series})
        elsewhere = "".join(f", or platform {other}" for other in others)
    advice = f"use {better}{elsewhere}" if better else "no release of the site will do"
    raise ResolveError(Finding("release-unavailable", Severity.FAULT, message, advice, option))


def _platforms(site: Site, chosen: str, *, requested: bool) -> Iterable[Candidate]:
    for name, platform in site.platforms.items():
        if name == chosen:
            reason = f"in force since {platform.since}, the current one"
            if requested:
                reason = f"requested with --platform {name}; in force from {platform.since}"
        else:
            reason = f"in force from {platform.since}" + (f"; {chosen} was requested" if requested else "")
        yield Candidate(PLATFORM, name, name == chosen, reason)


def _candidates(site: Site, platform: str, stack: str, chosen: Sequence[Version]) -> Iterable[Candidate]:
    available = site.platforms[platform].stacks[stack]
    for version in site.stacks[stack].versions:
        reason = _availability(platform, available, version)
        newest = next((other for other in chosen if other.minor == version.minor), None)
        if version in chosen:
            if not available.supported:
                found = site.releases(stack)[str(version)].found
                reason += f", found in: {'image and host' if found == 'both' else found}"
            elif version in available.leftover:
                reason += f" (the default is {available.default})"
        elif available.has(version):
            if newest is not None and not available.supported:
                reason = f"{newest} is chosen in the same series {version.minor}"
            else:
                reason += f"; {some([str(other) for other in chosen], between=', ')} chosen"
        yield Candidate(stack, str(version), version in chosen, reason)


def _availability(platform: str, available: PlatformStack, version: Version) -> str:
    """Return what a platform has of a release, in words."""
    if available.supported:
        if version == available.default:
            return f"the default of platform {platform}"
        if version in available.supported:
            return f"supported on platform {platform}"
        if version in available.leftover:
            return f"still installed on platform {platform}, no longer supported"
        return f"not installed on platform {platform}"
    if available.runs is None:
        return "no driver decides"
    if version in available.runs:
        return f"in range {available.runs} of the driver"
    if version in available.in_use:
        return f"outside the range {available.runs} that is supported with the driver, and in use here"
    if available.has(version):
        return f"in range {available.compat} of the packages for forward compatibility, which the image must bring"
    return f"outside the range {available.runs} that the driver of platform {platform} supports"
