"""Whether an image fits the machine of a site: the GPUs that it is built for, and the releases that the driver runs."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping

from lumisite.site.model import Site
from lumisite.site.versions import Version
from lumisite.vendors import all_vendors, vendor
from lumisite.vendors.model import Vendor


def outside_range(
    site: Site, releases: Mapping[str, Version], platform: str | None = None
) -> Iterator[tuple[str, str]]:
    """Yield what is wrong with each release that the driver of a platform does not run, and what would be right.

    `releases` are those in an image, by stack; the default is the current platform.
    """
    of_platform = site.platforms[platform or site.platform].stacks
    for stack, release in releases.items():
        known = of_platform.get(stack)
        if known is not None and not known.has(release):
            title, runs = site.stacks[stack].title, known.runs
            reason = f"has {title} {release}, but the GPU driver of this system supports {runs}"
            yield reason, f"an image with {title} {runs}{_example(site)}"


def for_other_gpus(site: Site, built_for: Collection[Vendor]) -> Iterator[tuple[str, str]]:
    """Yield what is wrong with an image for GPUs that the site does not have, and what would be right."""
    of_site = dict.fromkeys(vendor(stack.gpu).title for stack in site.stacks.values() if stack.gpu is not None)
    titles = [maker.title for maker in built_for]
    if titles and of_site and of_site.keys().isdisjoint(titles):
        expected = " or ".join(of_site)
        reason = f"built for GPUs of {' and '.join(titles)}, but the job gets GPUs of {expected}"
        yield reason, f"an image for GPUs of {expected}{_example(site)}"


def vendors_by_words(image: str, versions: Mapping[str, str]) -> tuple[Vendor, ...]:
    """Return the vendors for whose GPUs an image is, by its name or address, or by versions read in it."""
    name = image.partition("://")[2].removeprefix("docker.io/") or image.rpartition("/")[2]
    texts = [text.lower() for text in (name, *(f"{what} {version}" for what, version in versions.items()))]
    return tuple(
        maker
        for maker in all_vendors()
        if maker.gpu is not None and any(re.search(word, text) for word in maker.gpu.image_words for text in texts)
    )


def _example(site: Site) -> str:
    return f", such as {site.validation.image}" if site.validation is not None else ""
