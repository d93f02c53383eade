"""Random images with a plugin: what `binds` says of it is what the real loader does, in a root that has the plan.

In each, a program opens a library for collectives which opens a plugin, and this needs a libfabric: with search paths
of every kind, copies in many folders, links, SONAMEs, hwcaps, a cache, and binds.
"""

from __future__ import annotations

import os
import random
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TypedDict

import pytest

from lumisite.binds.closure import PlannedLibrary, Sides, closure
from lumisite.binds.container import container_of
from lumisite.binds.plugin import Opened, carry_out, plugin_lines
from lumisite.images.environment import library_path
from lumisite.machine.host import DiskTree
from lumisite.machine.loader import Loader, cpu_levels, read_rules
from lumisite.machine.tree import resolve
from lumisite.site.load import load_site
from tests.support.dict_trees import Link, write_tree
from tests.support.elves import elf
from tests.support.torch import VENV
from tests.twin.fixtures import require_twin
from tests.twin.process import run_or_refuse

pytestmark = [pytest.mark.root]

SCRIPTS = Path(__file__).parent / "scripts"
LUMI = load_site("lumi").site
DEBIAN = "/lib/x86_64-linux-gnu"
LOADER = "/lib64/ld-linux-x86-64.so.2"
LIBC = f"{DEBIAN}/libc.so.6"
CRAY = "/opt/cray/libfabric/1.22.0/lib64"
TORCH = f"{VENV}/torch/lib"
FOLDERS = (TORCH, "/opt/ofi/lib", "/opt/other/lib", "/usr/lib/x86_64-linux-gnu", "/opt/rocm-6.1.3/lib")
FABRIC, CXI, PLUGIN, RCCL = "libfabric.so.1", "libcxi.so.1", "librccl-net.so", "librccl.so.1"
LINKED = "/usr/bin/linked"
IMAGES = 60


class SearchPaths(TypedDict):
    rpath: str | None
    runpath: str | None


@dataclass
class Scene:
    """Files of an image and its host, binds of modules, and what gcc has to build: path, SONAME, search path."""

    choose: random.Random
    image: dict[str, bytes | Link] = field(default_factory=dict)
    host: dict[str, bytes | Link] = field(default_factory=dict)
    binds: list[tuple[str, str, str]] = field(default_factory=list)
    built: dict[str, tuple[str | None, list[str]]] = field(default_factory=dict)

    def search_path(self, often: float = 0.6) -> str | None:
        forms = ["$ORIGIN", "${ORIGIN}/../../opt/../ofi/lib", "/opt/ofi/lib", "/opt/other/lib/", "/opt/link", CRAY]
        forms += ["$ORIGIN/../lib", "/opt/rocm/$LIB", "/opt/other//lib", "/nowhere", "/opt/$PLATFORM", TORCH]
        return (
            ":".join(self.choose.sample(forms, self.choose.randrange(1, 3))) if self.choose.random() < often else None
        )

    def paths(self, often: float = 0.6) -> SearchPaths:
        return SearchPaths(rpath=self.search_path(often), runpath=self.search_path(often / 2))

    def put(self, folder: str, name: str, content: bytes, files: dict[str, bytes | Link] | None = None) -> None:
        """Put a library into a folder: as a file, behind a link, or below glibc-hwcaps."""
        files = self.image if files is None else files
        level = self.choose.choice(["", "", "", "/glibc-hwcaps/x86-64-v2", "/glibc-hwcaps/x86-64-v3"])
        if self.choose.random() < 0.4:
            files[f"{folder}{level}/{name}"] = Link(f"{name}.9.9")
            name = f"{name}.9.9"
        files[f"{folder}{level}/{name}"] = content


def fabric(scene: Scene, *, cxi: bool, often: float = 0.4) -> bytes:
    had = ["FABRIC_1.6", "FABRIC_1.7", "FABRIC_1.8"][: scene.choose.choice([2, 2, 3])]
    return elf(FABRIC, [CXI] if cxi else [], verdef=had, **scene.paths(often))


def random_scene(choose: random.Random) -> Scene:
    scene = Scene(choose)
    image = scene.image
    for folder in choose.sample(FOLDERS, choose.randrange(0, 4)):
        scene.put(folder, FABRIC, fabric(scene, cxi=choose.random() < 0.4))
    for folder in choose.sample(FOLDERS, choose.randrange(0, 3)):
        scene.put(folder, CXI, elf(CXI, verdef=["LIBCXI_1.0"][: choose.randrange(2)]))
    for folder in choose.sample(FOLDERS, choose.randrange(1, 4)):
        needed = {FABRIC: [choose.choice(["FABRIC_1.6", "FABRIC_1.7", "FABRIC_1.7", "FABRIC_1.8"])]}
        name = choose.choice([FABRIC, FABRIC, FABRIC, "/opt/ofi/lib/libfabric.so.1"])
        verneed = needed if name == FABRIC else {}
        soname = choose.choice([PLUGIN, "librccl-net-ofi.so.0", None])
        scene.put(folder, PLUGIN, elf(soname, [name], verneed=verneed, **scene.paths(0.7)))
    image["/opt/link"] = Link(choose.choice(["ofi/lib", "/opt/other/lib", "nowhere"]))
    image["/opt/rocm"] = Link("rocm-6.1.3")
    image["/etc/ld.so.conf"] = choose.choice([b"/opt/other/lib\n", b"/opt/rocm/lib\n/opt/ofi/lib\n", b""])
    path = choose.choice(["", "", "/opt/other/lib", "/opt/rocm/lib:/opt/ofi/lib", f"$LD_LIBRARY_PATH:{CRAY}"])
    image["/.singularity.d/env/10-x.sh"] = f'export LD_LIBRARY_PATH="{path}"\n'.encode()
    flags = ["-Wl,--enable-new-dtags", "-Wl,--disable-new-dtags"]
    scene.built[LINKED] = (None, [])
    copies = choose.sample(
        [f"{TORCH}/{RCCL}", f"/opt/rocm-6.1.3/lib/{RCCL}", f"/opt/other/lib/{RCCL}"], choose.randrange(1, 4)
    )
    for number, one in enumerate(copies):
        scene.built[one] = (
            RCCL if number else choose.choice([RCCL, RCCL, None]),
            [choose.choice(flags), *rpath_of(scene, 0.6)],
        )
    put_host(scene)
    return scene


def rpath_of(scene: Scene, often: float) -> list[str]:
    path = scene.search_path(often)
    return [] if path is None else [f"-Wl,-rpath,{path}"]


def put_host(scene: Scene) -> None:
    choose, host = scene.choose, scene.host
    host[f"{CRAY}/{FABRIC}"] = Link(f"{FABRIC}.22")
    host[f"{CRAY}/{FABRIC}.22"] = elf(FABRIC, [CXI], verdef=["FABRIC_1.6", "FABRIC_1.7"], **scene.paths(0.1))
    host[f"/usr/lib64/{CXI}"] = elf(CXI, verdef=["LIBCXI_1.0", "LIBCXI_1.5"])
    if choose.random() < 0.6:
        scene.binds.append(("/opt/cray", "/opt/cray", "the module"))
    if choose.random() < 0.5:
        target = choose.choice([f"/usr/lib64/{CXI}", f"/opt/other/lib/{CXI}"])
        scene.binds.append((f"/usr/lib64/{CXI}", target, "the module"))
    if choose.random() < 0.2:
        scene.binds.append((CRAY, "/opt/ofi/lib", "the module"))


@cache
def compiled(work: Path) -> tuple[Path, Path]:
    """Compile the two sources once; each image links them with other search paths."""
    for name in ("opener", "caller"):
        run_or_refuse(["gcc", "-O0", "-fPIC", "-c", str(SCRIPTS / f"{name}.c"), "-o", str(work / f"{name}.o")])
    return work / "opener.o", work / "caller.o"


def write_scene(scene: Scene, top: Path, work: Path) -> tuple[Path, Path]:
    """Write image and host; what gcc builds, the loader and libc are in the image."""
    program, library = compiled(work)
    image, host = write_tree(top / "image", scene.image), write_tree(top / "host", scene.host)
    for path in (LOADER, LIBC):
        write_tree(image, {path: Path(path).read_bytes()})
        (image / path[1:]).chmod(0o755)
    for path, (soname, flags) in scene.built.items():
        target = image / path[1:]
        target.parent.mkdir(parents=True, exist_ok=True)
        own = ["-shared", str(library)] if path.endswith(".so.1") else [str(program)]
        named = [f"-Wl,-soname,{soname}"] if soname else []
        run_or_refuse(["gcc", *own, *named, *flags, "-o", str(target)])
    if scene.choose.random() < 0.7:
        run_or_refuse(["ldconfig", "-X", "-r", str(image)])
    return image, host


def carried_out(top: Path, image: Path, host: Path, binds: Sequence[tuple[str, str]]) -> Path:
    """Copy an image, and what is bound over it, into a root: as a runtime mounts it, one behind the other."""
    root = top / "root"
    run_or_refuse(["cp", "-a", str(image), str(root)])
    for source, target in binds:
        folder, _, name = target.rpartition("/")
        real_folder = resolve(DiskTree(str(root)), folder)
        place = Path(f"{root}{folder if real_folder.entry is None else real_folder.path}", name)
        run_or_refuse(["mkdir", "-p", str(place.parent)])
        run_or_refuse(["rm", "-rf", str(place)])
        real = resolve(DiskTree(str(host)), source).path
        run_or_refuse(["cp", "-a", f"{host}{real}", str(place)])
    return root


def happened(root: Path, words: Sequence[str], path: str) -> tuple[set[str], bool]:
    """Run the program in a root; give the libraries in its process, and whether all could be opened."""
    done = subprocess.run(
        words,
        capture_output=True,
        text=True,
        check=True,
        env={"LD_LIBRARY_PATH": path} if path else {},
        preexec_fn=lambda: os.chroot(root),
    )
    lines = [line.partition(" ")[::2] for line in done.stdout.splitlines()]
    loaded = {path for what, path in lines if what == "loaded" and path.startswith("/")}
    return loaded - {LOADER, LIBC}, "failed" not in dict(lines)


def objects(opened: Opened) -> set[str]:
    """Return the paths of what is in a process, as the loader knows them, without the program."""
    return {one.found.path for one in opened.process.by_name.values()} - {LOADER, LIBC}


def sound(opened: Opened) -> bool:
    """Tell whether the loader would refuse nothing of a process: all is there, and has the versions that are needed."""
    for need in opened.process.needs:
        if need.loaded is None:
            return False
        versions = need.requester.found.info.verneed.get(need.name, ()) if need.requester else ()
        had = need.loaded.found.info.verdef
        if had and not set(versions) <= set(had):
            return False
    return True


@dataclass
class Seen:
    """How often each thing came about: a test in which nothing does shows nothing."""

    agreed: int = 0
    decisions: dict[str, int] = field(default_factory=dict)


def planned(
    image: Path, host: Path, scene: Scene
) -> tuple[Sides, tuple[PlannedLibrary, ...], tuple[PlannedLibrary, ...]]:
    trees = DiskTree(str(image)), DiskTree(str(host))
    cpu = cpu_levels(DiskTree("/"))
    view = container_of(*trees, scene.binds)
    rules = read_rules(trees[0], cpu, library_path(trees[0])[0])
    hosts = Loader(trees[1], read_rules(trees[1], cpu, (CRAY, "/usr/lib64"), captured=True))
    both = Sides(hosts, Loader(trees[0], rules), Loader(view, rules), view)
    lines = closure([CXI, FABRIC] if scene.choose.random() < 0.6 else [], both)
    return both, lines, plugin_lines(LUMI, both, lines)[0]


def compare(scene: Scene, top: Path, work: Path, seen: Seen) -> None:
    image, host = write_scene(scene, top, work)
    both, lines, more = planned(image, host, scene)
    every = (*lines, *more)
    gone = {line.without for line in every}
    binds = [(source, target) for source, target, _ in scene.binds if source not in gone]
    binds += [(str(one.source), str(one.target)) for one in every if one.decision == "bind" and one.by is None]
    root = carried_out(top, image, host, binds)
    path = ":".join(library_path(both.image.tree)[0])
    for opened in carry_out(both, every).opened(LUMI):
        if opened.opener == "root":
            continue
        words = [LINKED, opened.opener, f"@{opened.opener}", PLUGIN]
        real, is_open = happened(root, words, path)
        assert is_open == sound(opened), f"{top}: the plugin of {opened.opener}"
        assert not is_open or real == objects(opened), f"{top}: with the plugin of {opened.opener}"
        check_lines(every, opened.opener, real if is_open else set(), root)
        seen.agreed += 1
    for line in more:
        seen.decisions[line.decision] = seen.decisions.get(line.decision, 0) + 1


def check_lines(every: Sequence[PlannedLibrary], program: str, real: set[str], root: Path) -> None:
    """What the lines of one program say of libfabric came true."""
    tree = DiskTree(str(root))
    loaded = {resolve(tree, path).path for path in real}
    fabrics = [path for path in loaded if path.rpartition("/")[2].startswith("libfabric.so")]
    mine = [line for line in every if line.chain[-1] == program and line.library in (FABRIC, CXI)]
    for line in mine:
        if line.decision == "skip" and fabrics:
            assert line.target in loaded, line
        if line.library == FABRIC and line.decision == "refuse" and fabrics:
            assert not any("libcxi" in path for path in loaded) or line.target not in loaded, line
        if line.decision == "missing":
            assert not fabrics, line
        if line.decision == "bind" and fabrics:
            assert line.target in loaded, line
    if fabrics and not any("libcxi" in path for path in loaded):
        said = [line.decision for line in every if line.library == FABRIC]
        assert "refuse" in said, f"{root}: nothing says that {fabrics} has no network"


def scenes() -> Iterator[random.Random]:
    yield from (random.Random(seed) for seed in range(IMAGES))


def test_the_real_loader_does_what_the_lines_say(tmp_path: Path) -> None:
    require_twin("ldconfig")
    seen = Seen()
    for number, choose in enumerate(scenes()):
        compare(random_scene(choose), tmp_path / str(number), tmp_path, seen)
    assert seen.agreed > IMAGES // 3
    assert min(seen.decisions.get(one, 0) for one in ("bind", "skip", "refuse", "missing")) > 3, seen.decisions
