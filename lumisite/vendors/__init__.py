"""What a vendor's products are called and where they are: data. Adding a vendor is adding a YAML file.

A file of this folder, or of `gpu` for a vendor of GPUs, has the keys of `model.Vendor`. A site chooses (`stacks.*.gpu`
and `fabric.carrier`); where no site is known all are tried. Facts come from the sources that each file names. A file is
read when it is asked for.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, replace
from functools import cache
from itertools import zip_longest
from pathlib import Path

from lumisite.site.decode import decode
from lumisite.site.document import MAX_BYTES
from lumisite.site.model import Site
from lumisite.site.read import read_file
from lumisite.site.scalars import SCALARS
from lumisite.site.software import GPU_FOLDER, GPU_VENDORS
from lumisite.vendors.model import Fabric, Gpu, LogWords, Software, Vendor

_FOLDER = Path(__file__).parent


def gpu_names() -> tuple[str, ...]:
    """Return the vendors of GPUs, by the words that `stacks.*.gpu` of a site may have."""
    return GPU_VENDORS


@cache
def vendor(name: str) -> Vendor:
    """Return the vendor whose file has a name; raises `OSError` where there is none."""
    path = (GPU_FOLDER if name in GPU_VENDORS else _FOLDER) / f"{name}.yaml"
    return decode(read_file(path, MAX_BYTES), Vendor, file=str(path), scalars=SCALARS)


@cache
def all_vendors() -> tuple[Vendor, ...]:
    """Return all vendors, those of GPUs first."""
    others = sorted(path.stem for path in _FOLDER.glob("*.yaml"))
    return tuple(map(vendor, (*GPU_VENDORS, *others)))


def gpu_of(name: str) -> Gpu:
    """Return a vendor's GPUs, by the word that a site has for it."""
    found = vendor(name).gpu
    assert found is not None, "the files of `gpu` are of vendors of GPUs"
    return found


def drivers_of(site: Site) -> dict[str, tuple[str, ...]]:
    """Return the drivers of the GPUs that a site's nodes may have, by vendor."""
    return {gpu: gpu_of(gpu).drivers for stack in site.gpu_stacks if (gpu := site.stacks[stack].gpu)}


def all_gpus() -> tuple[Gpu, ...]:
    """Return the GPUs of all vendors."""
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
