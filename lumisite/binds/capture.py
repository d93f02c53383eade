"""Capture a node: put together what files say of it. Reading only: no program is run, no root is needed.

What a file does not tell is absent. Only the version of the container runtime would need the program itself, where no
package list that can be read as text (dpkg's) has it.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from lumisite.binds.capture_libraries import capture_libraries
from lumisite.binds.capture_software import (
    LEADS_NOWHERE,
    capture_deployed,
    capture_image_directory,
    capture_products,
    capture_program,
    capture_rocm,
    default_of,
    slurm_version,
)
from lumisite.binds.capture_system import (
    capture_cpus,
    capture_drivers,
    capture_interfaces,
    capture_kernel,
    capture_nics,
    capture_system,
    host_name,
)
from lumisite.binds.tree import Tree, resolve
from lumisite.node.facts import Facts, ImageFile, Named, Releases
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
    cpus, cpu_notes = capture_cpus(tree)
    libraries = capture_libraries(tree, site)
    products = capture_products(tree, site)
    directories = tuple(dict.fromkeys((*image_directories_of(site), *image_directories)))
    named = (path for key, path in stated_paths(site) if key != _RUNTIME)  # the runtime has facts of its own
    facts = Facts(
        site=site.name,
        host=host_name(tree),
        os=capture_system(tree),
        kernel=capture_kernel(tree),
        glibc=libraries.glibc,
        slurm=slurm_version(tree, libraries.directories),
        runtime=capture_program(tree, site.runtime.executable),
        drivers=capture_drivers(tree),
        rocm=capture_rocm(tree),
        cpe=products.get(_CPE, Releases()),
        products=products,
        paths={path: _named(tree, path) for path in sorted({*named, *directories})},
        libraries=libraries.libraries,
        loads=libraries.loads,
        missing=libraries.missing,
        dangling={**libraries.dangling, **_dangling_defaults(tree, products)},
        interfaces=capture_interfaces(tree, (*site.network.interfaces, *site.network.management)),
        nics=capture_nics(tree),
        gpus=cpus.gpus,
        cpus=cpus.groups,
        threads_per_core=cpus.threads_per_core,
        images=_images(tree, directories),
        deployed=capture_deployed(tree, site.root),
    )
    return Captured(facts, (*cpu_notes, *libraries.notes, *_unknown(facts)))


def image_directories_of(site: Site) -> tuple[str, ...]:
    """Give the site's folders of images, and those of its families' patterns: what stands before the first sign."""
    folders = [str(folder.path) for folder in site.images.folders] if site.images is not None else []
    patterns = [pattern for family in site.families.values() for pattern in family.paths]
    fixed = [posixpath.dirname(_before_signs(pattern)) for pattern in patterns if pattern.startswith("/")]
    return tuple(dict.fromkeys(path for path in (*folders, *fixed) if path != "/"))


def _before_signs(pattern: str) -> str:
    signs = [pattern.index(sign) for sign in "*?[" if sign in pattern]
    return pattern[: min(signs)] if signs else pattern


def stated_paths(site: Site) -> Iterator[tuple[str, str]]:
    """Give every host path that the site description states, with its key there."""
    for name, platform in site.platforms.items():
        yield from ((f"platforms.{name}.libraries.{what}", path) for what, path in platform.libraries.items())
    for name, cpe in site.cpe.items():
        yield from ((f"cpe.{name}.libraries.{what}", path) for what, path in cpe.libraries.items())
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


def _images(tree: Tree, directories: Iterable[str]) -> dict[str, Mapping[str, ImageFile]]:
    found = {path: capture_image_directory(tree, path) for path in directories}
    return {path: images for path, images in found.items() if images}


def _dangling_defaults(tree: Tree, products: Mapping[str, Releases]) -> dict[str, str]:
    links = ((f"{path}/default", default_of(tree, path)) for path in products)
    return {link: LEADS_NOWHERE for link, default in links if default == LEADS_NOWHERE}


def _unknown(facts: Facts) -> Iterator[str]:
    if facts.runtime.real is not None and facts.runtime.package is None:
        yield f"no file tells the version of {facts.runtime.real}; its own --version would"
