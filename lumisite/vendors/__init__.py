"""What a vendor's products are called and where they stand: data. Adding a vendor is adding a file.

Each module of this room but `vendor` has one `VENDOR`. A site chooses (`stacks.*.gpu`, `fabric.carrier`); where no site
is known all are tried. Facts come from the sources that each file names.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from importlib import import_module
from pathlib import Path

from lumisite.vendors.vendor import Fabric, Software, Vendor

_FOLDER = Path(__file__).parent
_WITHOUT = ("__init__", "vendor")


@cache
def names() -> tuple[str, ...]:
    """The names of all vendors, as their files are called; no file is read."""
    return tuple(sorted(path.stem for path in _FOLDER.glob("*.py") if path.stem not in _WITHOUT))


@cache
def vendor(name: str) -> Vendor:
    """Give the vendor of a name, such as `stacks.*.gpu` has it; raises `KeyError` for one that has no file."""
    if name not in names():
        raise KeyError(name)
    found: Vendor = import_module(f"{__name__}.{name}").VENDOR
    return found


@cache
def all_vendors() -> tuple[Vendor, ...]:
    """All vendors, those of GPUs first."""
    return tuple(sorted(map(vendor, names()), key=lambda one: one.gpu is None))


def gpu_vendors() -> tuple[Vendor, ...]:
    """All vendors of GPUs."""
    return tuple(one for one in all_vendors() if one.gpu is not None)


def all_software() -> Iterator[tuple[Vendor, Software]]:
    """All software whose releases are told apart, with its vendor."""
    yield from ((one, software) for one in all_vendors() for software in one.software)


def all_fabrics() -> Iterator[Fabric]:
    """All kinds of adapters."""
    yield from (fabric for one in all_vendors() for fabric in one.fabrics)


def fabrics_of(carrier: str) -> tuple[Fabric, ...]:
    """Give the kinds of adapters that `fabric.carrier` of a site may mean; none for a carrier without adapters."""
    return tuple(one for one in all_fabrics() if carrier in one.carriers)
