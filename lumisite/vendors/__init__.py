"""What a vendor's products are called and where they stand: data. Adding a vendor is adding a file.

A file of this room, or of `gpus` for a vendor of GPUs, has one `VENDOR`. A site chooses (`stacks.*.gpu`,
`fabric.carrier`); where no site is known all are tried. Facts come from the sources that each file names. Files are
loaded when they are asked for: to render needs none.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, replace
from functools import cache
from importlib import import_module
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lumisite.vendors.model import Fabric, Gpu, LogWords, Software, Vendor

_FOLDER = Path(__file__).parent
_NO_VENDORS = ("__init__", "model")


@cache
def _names(folder: Path) -> tuple[str, ...]:
    """The names of files with a vendor; no file is read."""
    files = (path for path in folder.iterdir() if path.suffix == ".py")
    return tuple(sorted(path.stem for path in files if path.stem not in _NO_VENDORS))


def gpu_names() -> tuple[str, ...]:
    """The vendors of GPUs, by the words that `stacks.*.gpu` of a site may have."""
    return _names(_FOLDER / "gpus")


@cache
def vendor(name: str) -> Vendor:
    """Give the vendor whose file has a name; raises `ModuleNotFoundError` for one that has none."""
    package = f"{__name__}.gpus" if name in gpu_names() else __name__
    found: Vendor = import_module(f"{package}.{name}").VENDOR
    return found


@cache
def all_vendors() -> tuple[Vendor, ...]:
    """All vendors, those of GPUs first."""
    return tuple(map(vendor, (*gpu_names(), *_names(_FOLDER))))


def gpu_of(name: str) -> Gpu:
    """Give a vendor's GPUs, by the word that a site has for it."""
    found = vendor(name).gpu
    assert found is not None, "the files of `gpus` are of vendors of GPUs"
    return found


def all_gpus() -> tuple[Gpu, ...]:
    """The GPUs of all vendors."""
    return tuple(map(gpu_of, gpu_names()))


@cache
def plugins() -> tuple[str, ...]:
    """The names under which libraries for collectives look for a network plugin, the first name of each first."""
    names = zip_longest(*(one.collectives.plugins for one in all_gpus()))
    return tuple(name for group in names for name in group if name)


def software_of(stack: str, gpu: str | None) -> Software | None:
    """Give the software that a stack of a site is: its vendor's of GPUs, else what has its name."""
    if gpu is not None:
        mine = vendor(gpu).software
        return next((one for one in mine if one.name == stack), mine[0])
    return next((one for maker, one in all_software() if one.name == stack and maker.gpu is None), None)


def all_software() -> Iterator[tuple[Vendor, Software]]:
    """All software whose releases are told apart, with its vendor."""
    yield from ((one, software) for one in all_vendors() for software in one.software)


def all_fabrics() -> Iterator[Fabric]:
    """All kinds of adapters."""
    yield from (fabric for one in all_vendors() for fabric in one.fabrics)


def fabrics_of(carrier: str) -> tuple[Fabric, ...]:
    """Give the kinds of adapters that `fabric.carrier` of a site may mean; none for a carrier without adapters."""
    return tuple(one for one in all_fabrics() if carrier in one.carriers)


def is_own(carrier: str) -> bool:
    """Tell whether a carrier is NCCL's own network `IB`, in upper or lower case, which carries traffic by itself."""
    return any(carrier.casefold() == one.casefold() for fabric in all_fabrics() for one in fabric.own)


@cache
def words_of_logs() -> LogWords:
    """Join what logs call the products of all vendors."""
    logs = [maker.log for maker in all_vendors()]
    names = [field.name for field in fields(logs[0])]
    return replace(logs[0], **{name: tuple(word for log in logs for word in getattr(log, name)) for name in names})
