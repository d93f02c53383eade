"""Sides of a closure from dicts of files, and the committed libraries of images and hosts."""

from __future__ import annotations

from pathlib import Path

from lumisite.binds.closure import PlannedLibrary, Sides, closure
from lumisite.binds.container import container_of
from lumisite.images.environment import library_path
from lumisite.machine.loader import Loader, read_rules
from tests.support.dict_trees import DictTree, Files, Link

DATA = Path(__file__).parents[1] / "data" / "elf"
FABRIC = "/opt/cray/libfabric/1.22.0/lib64"
DEBIAN = "/usr/lib/x86_64-linux-gnu"


def sides(host: Files, image: Files, *, folders: tuple[str, ...] = (FABRIC,), binds: tuple[str, ...] = ()) -> Sides:
    host_tree, image_tree = DictTree(host, "host"), DictTree(image, "image")
    view = container_of(image_tree, host_tree, [(path, path, "the module") for path in binds])
    rules = read_rules(image_tree, library_path=library_path(image_tree)[0])
    host_loader = Loader(host_tree, read_rules(host_tree, library_path=folders, captured=True))
    return Sides(host_loader, Loader(image_tree, rules), Loader(view, rules), view)


def decided(roots: list[str], host: Files, image: Files, *, binds: tuple[str, ...] = ()) -> dict[str, PlannedLibrary]:
    return {line.library: line for line in closure(roots, sides(host, image, binds=binds))}


def stock(name: str, folder: str) -> dict[str, bytes | Link]:
    """The committed libraries of an image or a host, in one folder."""
    return {f"{folder}/{path.name}": path.read_bytes() for path in (DATA / name).iterdir()}


def host(name: str, fabric: str = FABRIC) -> dict[str, bytes | Link]:
    files = stock(name, "/usr/lib64")
    files[f"{fabric}/libfabric.so.1"] = files.pop("/usr/lib64/libfabric.so.1")
    return files


ROOTS = ["libcxi.so.1", "libfabric.so.1"]
