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
from lumisite.site.model import Site
from lumisite.site.read import read_file
from lumisite.site.software import GPU_FOLDER, GPU_VENDORS
from lumisite.site.yaml import MAX_BYTES
from lumisite.vendors.model import AdapterKind, GpuVendor, LogWords, Software, Vendor

_FOLDER = Path(__file__).parent


def gpu_names() -> tuple[str, ...]:
    """Return the vendors of GPUs, by the words that `stacks.*.gpu` of a site may have."""
    return GPU_VENDORS


@cache
def vendor(name: str) -> Vendor:
    """Return the vendor whose file has a name; raises `OSError` where there is none."""
    path = (GPU_FOLDER if name in GPU_VENDORS else _FOLDER) / f"{name}.yaml"
    return decode(read_file(path, MAX_BYTES), Vendor, file=str(path))


@cache
def all_vendors() -> tuple[Vendor, ...]:
    """Return all vendors, those of GPUs first."""
    others = sorted(path.stem for path in _FOLDER.glob("*.yaml"))
    return tuple(map(vendor, (*GPU_VENDORS, *others)))


def gpu_of(name: str) -> GpuVendor:
    """Return a vendor's GPUs, by the word that a site has for it."""
    found = vendor(name).gpu
    assert found is not None, f"{name}: no key `gpu`"
    return found


def drivers_of(site: Site) -> dict[str, tuple[str, ...]]:
    """Return the drivers of the GPUs that a site's nodes may have, by vendor."""
    return {site.gpu_vendor: gpu_of(site.gpu_vendor).drivers} if site.gpu_vendor else {}


def all_gpus() -> tuple[GpuVendor, ...]:
    """Return the GPUs of all vendors."""
    return tuple(map(gpu_of, gpu_names()))


@cache
def plugins() -> tuple[str, ...]:
    """Return the names under which libraries for collectives look for a network plugin, the usual ones first."""
    names = zip_longest(*(gpu.collectives.plugins for gpu in all_gpus()))
    return tuple(name for group in names for name in group if name)


def software_of(stack: str, gpu: str | None) -> Software | None:
    """Return the software that a stack of a site is: of the vendor of its GPUs, else what has its name."""
    if gpu is not None:
        products = vendor(gpu).software
        return next((software for software in products if software.name == stack), products[0])
    others = (software for maker, software in all_software() if maker.gpu is None)
    return next((software for software in others if software.name == stack), None)


def all_software() -> Iterator[tuple[Vendor, Software]]:
    """Yield all software whose releases matter, with its vendor."""
    yield from ((maker, software) for maker in all_vendors() for software in maker.software)


def all_fabrics() -> Iterator[AdapterKind]:
    """Yield all kinds of adapters."""
    yield from (fabric for maker in all_vendors() for fabric in maker.fabrics)


def fabrics_of(carrier: str) -> tuple[AdapterKind, ...]:
    """Return the kinds of adapters that `fabric.carrier` of a site may mean; none for a carrier without adapters."""
    return tuple(fabric for fabric in all_fabrics() if carrier in fabric.carriers)


def is_built_in(carrier: str) -> bool:
    """Return whether a carrier is NCCL's built-in network `IB`, in upper or lower case, which needs no plugin."""
    return any(carrier.casefold() == name.casefold() for fabric in all_fabrics() for name in fabric.built_in)


@cache
def words_of_logs() -> LogWords:
    """Join what logs call the products of all vendors."""
    logs = [maker.log for maker in all_vendors()]
    names = [field.name for field in fields(logs[0])]
    return replace(logs[0], **{name: tuple(word for log in logs for word in getattr(log, name)) for name in names})
