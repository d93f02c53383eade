"""Capture a node: put together what files say of it. Reading only: no program is run, no root is needed.

What a file does not tell is absent. Only the version of the container runtime would need the program itself, where no
package list that can be read as text (dpkg's) has it.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from lumisite.facts.capture_libraries import with_libraries
from lumisite.facts.capture_software import (
    capture_deployed,
    capture_image_directory,
    capture_products,
    capture_program,
    capture_rocm,
    slurm_version,
    stated_libraries,
)
from lumisite.facts.capture_system import (
    capture_drivers,
    capture_interfaces,
    capture_kernel,
    capture_nics,
    capture_system,
    host_name,
    with_topology,
)
from lumisite.facts.facts import Facts, Named, Releases
from lumisite.machine.tree import Tree, resolve
from lumisite.site.model import Site

_CPE = "/opt/cray/pe/cpe"
_RUNTIME = "runtime.executable"


@dataclass(frozen=True)
class Captured:
    """The facts of a node, and `notes` on what could not be read."""

    facts: Facts
    notes: tuple[str, ...]


def capture(tree: Tree, site: Site, image_directories: Sequence[str] = ()) -> Captured:
    """Read a node from its files; `tree` is its root or a copy. Whatever is damaged is left out, with a note."""
    facts, cpu_notes = with_topology(Facts(site.name), tree)
    facts, searched, library_notes = with_libraries(facts, tree, site)
    products, dangling = capture_products(tree, site)
    directories = tuple(dict.fromkeys((*image_directories_of(site), *image_directories)))
    stated = (path for key, path in stated_paths(site) if key != _RUNTIME)  # the runtime has facts of its own
    images = {path: capture_image_directory(tree, path) for path in directories}
    facts = replace(
        facts,
        host=host_name(tree),
        os=capture_system(tree),
        kernel=capture_kernel(tree),
        slurm=slurm_version(tree, searched),
        runtime=capture_program(tree, site.runtime.executable),
        drivers=capture_drivers(tree),
        rocm=capture_rocm(tree),
        cpe=products.get(_CPE, Releases()),
        products=products,
        paths={path: _named(tree, path) for path in sorted({*stated, *directories})},
        dangling={**facts.dangling, **dangling},
        interfaces=capture_interfaces(tree, (*site.network.interfaces, *site.network.management)),
        nics=capture_nics(tree),
        images={path: found for path, found in images.items() if found},
        deployed=capture_deployed(tree, site.root),
    )
    return Captured(facts, (*cpu_notes, *library_notes, *_unknown(facts)))


def image_directories_of(site: Site) -> tuple[str, ...]:
    """Give the site's folders of images, and those of its families' patterns: what stands before the first sign."""
    folders = [str(folder.path) for folder in site.images.folders] if site.images is not None else []
    patterns = [pattern for family in site.families.values() for pattern in family.paths]
    fixed = [posixpath.dirname(re.split(r"[*?[]", pattern)[0]) for pattern in patterns if pattern.startswith("/")]
    return tuple(dict.fromkeys(path for path in (*folders, *fixed) if path != "/"))


def stated_paths(site: Site) -> Iterator[tuple[str, str]]:
    """Give every host path that the site description states, with its key there."""
    yield from stated_libraries(site)
    yield from ((f"binds[{index}].path", bind.path) for index, bind in enumerate(site.binds))
    yield from ((f"file_systems[{index}].path", system.path) for index, system in enumerate(site.file_systems))
    yield _RUNTIME, site.runtime.executable
    if site.validation is not None:
        yield "validation.image", site.validation.image
    yield "root", site.root


def _named(tree: Tree, path: str) -> Named:
    place = resolve(tree, path)
    if place.entry is None:
        return Named("none") if place.trouble == "is not there" else Named("dangling", place.trouble)
    kind = place.entry.kind if place.entry.kind in ("file", "directory") else "other"
    return Named(kind, place.path if place.path != path else None)


def _unknown(facts: Facts) -> Iterator[str]:
    if facts.runtime.real is not None and facts.runtime.package is None:
        yield f"no file tells the version of {facts.runtime.real}; its own --version would"
