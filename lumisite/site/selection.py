"""From what an admin asks for (`--rocm 6.2`) to exact releases, with the reason for each one that lost."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from lumisite.errors import ResolveError
from lumisite.site.decode import UnfitError, suggestion
from lumisite.site.model import Platform, Site
from lumisite.site.versions import Version, nearest, parse_version

#: What an admin types for every supported release.
ALL = "all"


@dataclass(frozen=True)
class Stack:
    """What the version of a module stands for: a platform, a CPE release, and a ROCm release.

    It says nothing about the ROCm that is in an image: the image that runs decides that.
    """

    platform: str
    cpe: Version
    rocm: Version

    @property
    def name(self) -> str:
        """The CPE and the ROCm release, as AI-bindings' versions name them: `25.03-rocm6.2`."""
        return f"{self.cpe}-rocm{self.rocm.minor}"


@dataclass(frozen=True)
class Candidate:
    """One release that could have been chosen: `reason` says why it was, or why it lost."""

    kind: Literal["platform", "cpe", "rocm"]
    name: str
    chosen: bool
    reason: str


@dataclass(frozen=True)
class Selection:
    """The releases that one render is made of; the first of `cpe` and of `rocm` is the default version."""

    platform: str
    cpe: tuple[Version, ...]
    rocm: tuple[Version, ...]
    candidates: tuple[Candidate, ...]

    def __str__(self) -> str:
        return f"platform {self.platform}, CPE {', '.join(map(str, self.cpe))}, ROCm {', '.join(map(str, self.rocm))}"

    @property
    def stacks(self) -> tuple[Stack, ...]:
        """Every CPE release with every ROCm release, the default first."""
        return tuple(Stack(self.platform, cpe, rocm) for cpe in self.cpe for rocm in self.rocm)


def resolve_selection(
    site: Site, *, rocm: Sequence[str] = (), platform: str | None = None, cpe: Sequence[str] = ()
) -> Selection:
    """Choose releases; nothing asked for means the platform's own default, `all` every one that it supports.

    A ROCm series (`6.2`) means its newest release. Raises `ResolveError`, which names what was asked for, why it will
    not do, and the nearest that would.
    """
    name = site.platform if platform is None else platform
    if name not in site.platforms:
        raise ResolveError(f"--platform: {site.name} has no platform {name!r} ({suggestion(name, site.platforms)})")
    described = site.platforms[name]
    cpe_chosen = _default_first(
        described.cpe_supported if ALL in cpe else [_resolve_cpe(name, described, text) for text in cpe], described.cpe
    )
    # Of each minor series the newest, since module versions tell no more than that.
    series = {version.minor: version for version in supported_rocm(site, described)}
    rocm_chosen = _default_first(
        series.values() if ALL in rocm else [_resolve_rocm(site, name, described, text) for text in rocm],
        described.rocm,
    )
    candidates = (
        *_platform_candidates(site, name, asked=platform is not None),
        *_cpe_candidates(site, name, described, cpe_chosen),
        *_rocm_candidates(site, name, described, rocm_chosen),
    )
    return Selection(name, cpe_chosen, rocm_chosen, candidates)


def supported_rocm(site: Site, platform: Platform) -> list[Version]:
    """The ROCm releases of the site that the platform's driver supports, or that are in use on it; oldest first."""
    return sorted(version for version in map(parse_version, site.rocm) if runs_on(platform, version))


def runs_on(platform: Platform, rocm: Version) -> bool:
    """Tell whether images of a ROCm release run on a platform: its driver supports it, or it is in use all the same."""
    return rocm in platform.driver_rocm or rocm in platform.rocm_in_use


def _default_first(chosen: Iterable[Version], default: Version) -> tuple[Version, ...]:
    """Drop repeats and bring the platform's default to the front; nothing chosen means the default alone."""
    return tuple(sorted(dict.fromkeys(chosen) or [default], key=lambda version: version != default))


def _asked_version(option: str, text: str) -> Version:
    try:
        return parse_version(text)
    except UnfitError as error:
        raise ResolveError(f"{option}: {error}") from None


def _resolve_cpe(name: str, platform: Platform, text: str) -> Version:
    asked = _asked_version("--cpe", text)
    installed = sorted((*platform.cpe_supported, *platform.cpe_leftover))
    if asked in installed:
        return installed[installed.index(asked)]
    near = nearest(asked, platform.cpe_supported)
    raise ResolveError(
        f"--cpe: CPE {text} is not installed on platform {name} "
        f"(have {', '.join(map(str, installed))}; the nearest that is supported is {near})"
    )


def _resolve_rocm(site: Site, name: str, platform: Platform, text: str) -> Version:
    asked = _asked_version("--rocm", text)
    known = sorted(map(parse_version, site.rocm))
    series = [version for version in known if version.within(asked)]
    allowed = [version for version in series if runs_on(platform, version)]
    if allowed:
        return allowed[-1]
    near = nearest(asked, supported_rocm(site, platform))
    remedy = f"the nearest that would do is {near}" if near else "no release of the site would do"
    if series:
        others = " or ".join(
            other for other, one in site.platforms.items() if any(runs_on(one, version) for version in series)
        )
        raise ResolveError(
            f"--rocm: ROCm {text} is outside the range {platform.driver_rocm} that the driver of platform {name} "
            f"({platform.driver}) supports; {remedy}{f' (platform {others} supports it)' if others else ''}"
        )
    raise ResolveError(
        f"--rocm: {site.name} has no ROCm {text} (have {', '.join(map(str, known))}); {remedy} on platform {name}"
    )


def _platform_candidates(site: Site, chosen: str, *, asked: bool) -> Iterable[Candidate]:
    for name, platform in site.platforms.items():
        period = f"in force since {platform.since}" if name == site.platform else f"was in force from {platform.since}"
        if name == chosen:
            yield Candidate("platform", name, True, f"asked for, {period}" if asked else f"{period}, the current one")
        else:
            yield Candidate("platform", name, False, f"{period}; another was asked for" if asked else period)


def _cpe_candidates(site: Site, name: str, platform: Platform, chosen: Sequence[Version]) -> Iterable[Candidate]:
    for version in sorted(map(parse_version, site.cpe)):
        if version in platform.cpe_leftover:
            reason = f"still installed on platform {name}, no longer supported (the default is {platform.cpe})"
        elif version not in platform.cpe_supported:
            reason = f"not installed on platform {name}"
        elif version == platform.cpe:
            reason = f"the default of platform {name}"
        else:
            reason = f"supported on platform {name}"
        if version not in chosen and version in (*platform.cpe_supported, *platform.cpe_leftover):
            reason += f"; {_list(chosen)} chosen"
        yield Candidate("cpe", str(version), version in chosen, reason)


def _rocm_candidates(site: Site, name: str, platform: Platform, chosen: Sequence[Version]) -> Iterable[Candidate]:
    for version in sorted(map(parse_version, site.rocm)):
        found = site.rocm[str(version)].found
        newer = next((other for other in chosen if other.minor == version.minor), None)
        beyond = f"outside the range {platform.driver_rocm} that is supported with the driver, and in use here"
        if version in chosen and version not in platform.driver_rocm:
            reason = f"{beyond}, found in: {found}"
        elif version in chosen:
            reason = f"in range {platform.driver_rocm} of the driver, found in: {found}"
        elif not runs_on(platform, version):
            reason = f"outside the range {platform.driver_rocm} that the driver of platform {name} supports"
        elif newer is not None:
            reason = f"{newer} is {'newer' if newer > version else 'asked for'} in the same series {version.minor}"
        else:
            reason = f"{'would do' if version in platform.driver_rocm else beyond}; {_list(chosen)} chosen"
        yield Candidate("rocm", str(version), version in chosen, reason)


def _list(versions: Sequence[Version]) -> str:
    return f"{', '.join(map(str, versions))} {'is' if len(versions) == 1 else 'are'}"
