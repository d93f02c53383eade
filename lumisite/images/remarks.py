"""What an admin should know of an image: what its name says and its contents do not, and what it cannot use."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from lumisite.images.collectives import Collection, describe_collectives, read_collectives
from lumisite.images.contents import gpu_vendors, is_for_gpus_of
from lumisite.images.versions import read_releases
from lumisite.machine.tree import Tree
from lumisite.site.images import told_releases
from lumisite.site.model import Site
from lumisite.vendors import vendor


def remarks(
    site: Site, paths: Sequence[str], tree: Tree, held: Mapping[str, Collection] | None = None
) -> tuple[str, ...]:
    """Return a line for each thing to know of an image; `paths` are its names, where they lead first."""
    held = read_collectives(site, tree) if held is None else held
    copies = (line for name, one in held.items() for line in describe_collectives(one, site.stacks[name].title))
    return (*_for_other_gpus(site, tree), *_misnamed(site, paths, tree, held), *copies)


def other_gpus(site: Site, tree: Tree) -> tuple[str, ...]:
    """Return the vendors for whose GPUs an image is, where it is for none that the site has."""
    here = {stack.gpu for stack in site.stacks.values() if stack.gpu is not None}
    # Most images are for the site's own: then nobody looks for the others.
    return () if not here or any(is_for_gpus_of(name, tree) for name in here) else gpu_vendors(tree)


def _for_other_gpus(site: Site, tree: Tree) -> Iterator[str]:
    if others := other_gpus(site, tree):
        theirs = " and ".join(vendor(name).title for name in others)
        here = " and ".join(dict.fromkeys(vendor(one.gpu).title for one in site.stacks.values() if one.gpu))
        yield f"the image is built for GPUs of {theirs}; {site.name} has GPUs of {here} (use an image for these)"


def _misnamed(site: Site, paths: Sequence[str], tree: Tree, copies: Mapping[str, Collection]) -> Iterator[str]:
    """Yield a line for each release that the name states and the contents do not, by its first two numbers."""
    stated = told_releases(site, *paths)
    releases = read_releases(site, tree, copies) if stated else {}
    for stack, named in stated.items():
        held = releases.get(stack)
        series = [] if held is None else re.findall(r"(?:^|, )(\d+\.\d+)", held.value)
        if held is not None and series and not any(f"{named}.".startswith(f"{one}.") for one in series):
            title = site.stacks[stack].title
            yield (
                f"the name says {title} {named}, the image holds {title} {held.value} ({held.of}); the contents count "
                "(rename it; jobs know more than the name by `lumisite images --lock` and `lumisite render --lock`)"
            )
