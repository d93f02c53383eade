"""What a container of an image sees: the image, and the host paths that are bound over it."""

from __future__ import annotations

import posixpath
from collections.abc import Sequence
from dataclasses import dataclass

from lumisite.machine.tree import ByteSource, DirEntry, Tree, is_under, resolve


@dataclass(frozen=True)
class Bound:
    """A host path that a module binds: `real` is where `source` leads there, `target` the path in the container."""

    source: str
    real: str
    target: str
    by: str


@dataclass(frozen=True)
class ContainerTree:
    """An image with host paths bound over it; the last bind of a path wins, as for the runtime."""

    image: Tree
    host: Tree
    bound: tuple[Bound, ...] = ()

    @property
    def name(self) -> str:
        """The image."""
        return self.image.name

    def look(self, path: str) -> DirEntry | None:
        """Return what is at a path; a folder that only leads to a bind is there too."""
        host_path = self.host_path(path)
        if host_path is not None:
            return self.host.look(host_path)
        entry = self.image.look(path)
        if entry is None and any(bound.target.startswith(path + "/") for bound in self.bound):
            return DirEntry("directory")
        return entry

    def names(self, path: str) -> tuple[str, ...]:
        """Return the names in a directory; of a bind into a folder of the image, not its name."""
        host_path = self.host_path(path)
        return self.image.names(path) if host_path is None else self.host.names(host_path)

    def source(self, path: str) -> ByteSource | None:
        """Return a reader of a file."""
        host_path = self.host_path(path)
        return self.image.source(path) if host_path is None else self.host.source(host_path)

    def host_path(self, path: str) -> str | None:
        """Return the host path behind a path of the container, `None` where it is the image's own."""
        bound = self.bound_at(path)
        return None if bound is None else bound.real.rstrip("/") + path[len(bound.target) :] or "/"

    def bound_at(self, path: str) -> Bound | None:
        """Return the bind that covers a path of the container."""
        return next((bound for bound in reversed(self.bound) if is_under(path, bound.target)), None)


def container_of(image: Tree, host: Tree, binds: Sequence[tuple[str, str, str]]) -> ContainerTree:
    """Return an image with binds: source on the host, target, and module. A source that the host lacks is left out."""
    bound = []
    for source, target, by in binds:
        on_host = resolve(host, source)
        if on_host.entry is not None:
            folder = resolve(image, posixpath.dirname(target))
            top = folder.path if folder.entry is not None else posixpath.dirname(target)
            bound.append(Bound(source, on_host.path, posixpath.join(top, posixpath.basename(target)), by))
    return ContainerTree(image, host, tuple(bound))
