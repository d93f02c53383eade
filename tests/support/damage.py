"""Damaged libraries and images, planned from end to end: each must give an answer or one line that says what is wrong."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from lumisite.binds.plan import BindPlan, PlanRequest, make_plan
from lumisite.errors import LumisiteError
from lumisite.images.sif import OpenedImage, find_root
from lumisite.images.squashfs import read_squashfs
from lumisite.machine.tree import Memory, Tree
from lumisite.site.load import load_site
from lumisite.site.versions import parse_version
from tests.support.closures import FABRIC, host, stock
from tests.support.dict_trees import DictTree, Link, write_tree
from tests.support.images import PARTITION, PRIMARY, SQUASHFS, sif, squash
from tests.unit.images.test_image import damaged
from tests.unit.machine.test_elf import mutated

Files = dict[str, bytes | Link]


@dataclass(frozen=True)
class Outcome:
    """What became of one damaged file: a plan, an error, or neither; and how long it took."""

    what: str
    plan: BindPlan | None
    error: str
    crash: str
    seconds: float


@dataclass(frozen=True)
class _Sources:
    """What is damaged: the files of a host and of an image, and images that are packed in two ways."""

    host: Files
    image: Files
    packed: tuple[bytes, ...]


def outcomes(count: int, seed: int, work: Path) -> Iterator[Outcome]:
    """Damage one file after the other and plan with it; `work` is an empty folder. Needs mksquashfs."""
    choose = random.Random(seed)
    site = load_site("lumi").site
    releases = {"cpe": parse_version("25.03"), "rocm": parse_version("6.2")}
    request = PlanRequest(site, "2026-01", releases, ("/x.sif",), "lumi-mpi4py")
    sources = _sources(work)
    makers: tuple[Callable[[random.Random, _Sources], tuple[str, Tree, Tree]], ...] = (_library, _library, _packed)
    for _ in range(count):
        start = time.perf_counter()
        what, plan, error, crash = "?", None, "", ""
        try:
            what, image, root = choose.choice(makers)(choose, sources)
            plan = make_plan(request, OpenedImage(image), root)
        except LumisiteError as refusal:
            error = str(refusal)
        except Exception as fault:  # this is what is looked for
            crash = repr(fault)
        yield Outcome(what, plan, error, crash, time.perf_counter() - start)


def _sources(work: Path) -> _Sources:
    files: Files = dict(host("after"))
    mpich = "/opt/cray/pe/mpich/8.1.32"
    for name, folder in (("libmpi_gnu_123.so.12", "ofi/gnu/12.3/lib"), ("libmpi_gtl_hsa.so.0", "gtl/lib")):
        files[f"{mpich}/{folder}/{name}"] = files.pop(f"/usr/lib64/{name}")
    files["/etc/ld.so.conf"] = b"/opt/cray/pe/lib64\ninclude /etc/ld.so.conf.d/*.conf\n"
    image: Files = {
        **stock("ubuntu24", "/usr/lib/x86_64-linux-gnu"),
        "/lib64": Link("usr/lib64"),
        "/.singularity.d/env/10-x.sh": b"export LD_LIBRARY_PATH=/opt/x:$LD_LIBRARY_PATH\n",
        "/.singularity.d/labels.json": b'{"a": "b"}',
    }
    write_tree(work / "tree", image)
    ways = (("-noI", "-noD", "-noF", "-b", "4096"), ("-comp", "zstd", "-b", "4096"), ("-comp", "gzip", "-b", "4096"))
    squashed = [squash(work / "tree", work / f"{number}", *way).read_bytes() for number, way in enumerate(ways)]
    return _Sources(files, image, tuple(sif((PARTITION, one, SQUASHFS, PRIMARY)) for one in squashed))


def _library(choose: random.Random, sources: _Sources) -> tuple[str, Tree, Tree]:
    """Damage a library, a link or a text of the host or of the image."""
    on_host = choose.random() < 0.6
    files = dict(sources.host if on_host else sources.image)
    path = choose.choice(sorted(files))
    content = files[path]
    if isinstance(content, Link):
        files[path] = Link(choose.choice([path, "..", "/" * 5000, "usr/lib64/libcxi.so.1", "\udcff", "a/../../b", ""]))
    else:
        files[path] = mutated(content, choose)
    host_tree, image_tree = (files, sources.image) if on_host else (sources.host, files)
    return f"{'host' if on_host else 'image'} {path}", DictTree(image_tree, "image"), DictTree(host_tree, "host")


def _packed(choose: random.Random, sources: _Sources) -> tuple[str, Tree, Tree]:
    """Damage a SIF: its head, or its file system."""
    whole = choose.choice(sources.packed)
    content = mutated(whole[:2000], choose) + whole[2000:] if choose.random() < 0.3 else damaged(whole, choose)
    source = Memory("image.sif", content)
    part, _ = find_root(source)
    return "SIF", read_squashfs(source, part.start, part.size), DictTree({**sources.host, f"{FABRIC}/x": b""}, "host")
