"""What the site description states of a node: paths, libraries, interfaces and adapters, with their keys there."""

from __future__ import annotations

from collections.abc import Iterator

from lumisite.site.model import Site

#: The key of the runtime, which has facts of its own.
RUNTIME = "runtime.executable"


def stated_paths(site: Site) -> Iterator[tuple[str, str]]:
    """Yield every host path that the site description states, with its key there."""
    yield from stated_libraries(site)
    yield from ((f"{key}.path", entry.path) for key, entry in site.host_paths.items())
    if site.runtime.executable is not None:
        yield RUNTIME, site.runtime.executable
    if site.validation is not None:
        yield "validation.image", site.validation.image
    yield "root", site.root


def stated_libraries(site: Site) -> Iterator[tuple[str, str]]:
    """Yield the folders of libraries that the site description states, with their keys there."""
    for name, platform in site.platforms.items():
        yield from ((f"platforms.{name}.libraries.{what}", path) for what, path in platform.libraries.items())
    for stack, described in site.stacks.items():
        for name, release in described.releases.items():
            key = f"stacks.{stack}.releases.{name}.libraries"
            yield from ((f"{key}.{what}", path) for what, path in release.libraries.items())


def stated_devices(site: Site) -> Iterator[tuple[str, str | None]]:
    """Yield every interface and adapter that the site description states, with its key there."""
    fabric = {"interfaces": site.fabric.interfaces, "management": site.fabric.management}
    for key, names in {**fabric, "adapters": site.fabric.adapters}.items():
        yield from ((f"fabric.{key}", str(name)) for name in names)
    for kind, node in site.node_kinds.items():
        yield from ((f"node_kinds.{kind}.nics", nic.interface) for nic in node.nics)
        yield from ((f"node_kinds.{kind}.adapters", name) for name in node.adapters or ())
        yield from ((f"node_kinds.{kind}.gpus", gpu.adapter) for gpu in node.gpus)
