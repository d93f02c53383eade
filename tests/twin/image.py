"""The container images of the twin, from Debian's packages.

Observed on trixie: PyTorch 2.6 for the CPU (gloo and MPI), 1.1 GB. The others are small, and differ in what they bring
of the libraries that a host may lend them. `jax` has wheels beside the packages, since Debian has no JAX.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from lumisite.errors import ResolveError
from tests.twin.cache import build_tool, cached, remove_tree
from tests.twin.host_tree import build_libraries, network_libraries
from tests.twin.process import run_or_refuse
from tests.twin.roots import bootstrap, node_root

RECIPE_VERSION = 2
"""Counts the changes of the steps below, which the key of an image cannot see."""

# Debian's torch has no libuv, and its TCPStore asks for it unless told otherwise.
ENVIRONMENT = "export USE_LIBUV=0\n"
STORE, NO_LIBUV = "multi_tenant=True,", "use_libuv=False,"
META = "from torch import _meta_registrations"
# What is changed in PyTorch 2.6: file, old words, new words.
EDITS = (
    # torchrun does not look at that variable: its stores are told so where they are made.
    ("distributed/elastic/rendezvous/c10d_rendezvous_backend.py", STORE, f"{STORE} {NO_LIBUV}"),
    ("distributed/elastic/rendezvous/dynamic_rendezvous.py", STORE, f"{STORE} {NO_LIBUV}"),
    ("distributed/elastic/rendezvous/static_tcp_rendezvous.py", STORE, f"{STORE} {NO_LIBUV}"),
    ("distributed/rendezvous.py", "is_master=False,", f"is_master=False, {NO_LIBUV}"),
    # What only a compiler of models asks for, it imports by itself: half of what a rank's start takes of a CPU.
    ("__init__.py", f"    {META}", "    pass"),
    ("_dynamo/__init__.py", "from . import convert_frame", f"{META}\nfrom . import convert_frame"),
    ("_compile.py", "    if fn is not None:\n", "    if fn is not None:\n        return fn\n"),
    ("nn/parallel/distributed.py", "torch._dynamo.config._get_optimize_ddp_mode()", '"ddp_optimizer"'),
)
# What `conda activate` mostly does.
ACTIVATE = "export CONDA_DEFAULT_ENV=$1 CONDA_PREFIX=/opt/miniconda3/envs/$1 PATH=/opt/miniconda3/envs/$1/bin:$PATH\n"
LIBRARY_FOLDER = "usr/lib/x86_64-linux-gnu"
PACKAGES = "usr/lib/python3/dist-packages"
# What packages bring that nothing here loads: tests, and a compiler for GPUs. Each run looks at all bytes of its image.
LEFT_OUT = (
    "usr/lib/libtorch-test",
    f"{PACKAGES}/torch/bin/test_*",
    f"{LIBRARY_FOLDER}/libLLVM*",
    f"{LIBRARY_FOLDER}/libamd_comgr*",
)
# How mksquashfs packs.
ZSTD = "-comp zstd -Xcompression-level 1"


@dataclass(frozen=True)
class ImageRecipe:
    """What goes into an image; `libfabric`: the version of its own network libraries, if it has any, in `folder`.

    `wheels` are installed by the pip of the Python that runs this, without what they say they depend on. `conda`: an
    environment of this name is there, which `$WITH_CONDA` activates, as in LUMI's images.
    """

    packages: tuple[str, ...]
    suite: str = "trixie"
    libfabric: str | None = None
    wheels: tuple[str, ...] = ()
    folder: str = LIBRARY_FOLDER
    conda: str | None = None
    left_out: tuple[str, ...] = ()


# All that `import jax` and a sum over devices need: SciPy, a third more, is imported by neither.
JAX_WHEELS = ("jax==0.10.2", "jaxlib==0.10.2", "ml_dtypes==0.6.0", "numpy==2.4.6", "opt_einsum==3.4.0")

#: What the wheel says it depends on, from Debian.
RAY_PACKAGES = (
    *("python3", "python3-click", "python3-filelock", "python3-jsonschema", "python3-msgpack", "python3-packaging"),
    *("python3-protobuf", "python3-yaml", "python3-requests", "procps", "iproute2"),
)

IMAGES: Mapping[str, ImageRecipe] = {
    "torch": ImageRecipe(
        ("python3-torch", "python3-numpy", "python3-venv", "iproute2"), conda="pytorch", left_out=LEFT_OUT
    ),
    "jax": ImageRecipe(("python3-minimal", "libpython3-stdlib"), wheels=JAX_WHEELS),
    "ray": ImageRecipe(RAY_PACKAGES, wheels=("ray==2.60.0",)),
    # Lacks every library of the host tree.
    "small": ImageRecipe(("python3-minimal", "libpython3-stdlib")),
    # Brings its own, newer than the host's, as LUMI AI Factory's images do.
    "own-network": ImageRecipe(("python3-minimal", "libpython3-stdlib"), libfabric="2.1.0"),
    # Has them where LUMI's hosts have theirs, so that a bind of the host's libcxi hides its own.
    "lib64-network": ImageRecipe(("python3-minimal", "libpython3-stdlib"), libfabric="2.1.0", folder="usr/lib64"),
    # glibc 2.36: too old for the host libraries of 2026-01, which want 2.38.
    "older-libc": ImageRecipe(("python3-minimal", "libpython3-stdlib"), suite="bookworm"),
}


def image(name: str) -> Path:
    """Give the SIF of an image, built if need be (seconds to two minutes, needs root and the network).

    Raises `ResolveError` for an image that does not exist and `ToolError` if the build fails.
    """
    recipe = IMAGES.get(name)
    if recipe is None:
        raise ResolveError(f"image {name!r} does not exist (have {', '.join(IMAGES)})")
    inputs = {"version": RECIPE_VERSION, "environment": ENVIRONMENT, **asdict(recipe)}
    libraries = network_libraries(recipe.libfabric) if recipe.libfabric is not None else ()
    inputs["libraries"] = [asdict(library) for library in libraries]
    # So that an image without any keeps the key that it has.
    if recipe.wheels:
        inputs["compiled"] = True
    else:
        del inputs["wheels"]
    if recipe.folder == LIBRARY_FOLDER:
        del inputs["folder"]
    if not recipe.left_out:
        del inputs["left_out"]
    if recipe.conda is None:
        del inputs["conda"]
    else:
        inputs["steps"] = [EDITS, ACTIVATE]

    def build(work: Path) -> None:
        tree = work / "tree"
        bootstrap(recipe.suite, recipe.packages, tree)
        _add_environment(tree)
        if recipe.conda is not None:
            _add_conda(tree, recipe.conda)
            _edit(tree, f"{PACKAGES}/torch")
        if recipe.wheels:
            install_wheels(recipe.wheels, tree / PACKAGES)
            _compile(tree, f"/{PACKAGES}")
        if libraries:
            build_libraries(libraries, tree / recipe.folder)
            if recipe.folder != LIBRARY_FOLDER:
                (tree / "etc/ld.so.conf.d/network.conf").write_text(f"/{recipe.folder}\n")
            run_or_refuse(["chroot", str(tree), "ldconfig"])
        shutil.rmtree(tree / "var/lib/apt/lists", ignore_errors=True)
        for pattern in recipe.left_out:
            for path in tree.glob(pattern):
                shutil.rmtree(path) if path.is_dir() else path.unlink()
        _pack(tree, work / "image.sif")
        remove_tree(tree)

    return cached(f"image-{name}", inputs, build) / "image.sif"


def _pack(tree: Path, sif: Path) -> None:
    """Pack an unpacked image into a SIF with the node root's own Apptainer. Both lie in the same folder."""
    root = node_root("trixie")
    script = (
        f'mount --bind "{sif.parent}" "{root}/mnt" && mount -t proc proc "{root}/proc"'
        f' && mount --rbind /dev "{root}/dev" && mount -t tmpfs tmpfs "{root}/tmp"'
        f' && exec chroot "{root}" env HOME=/tmp APPTAINER_TMPDIR=/tmp apptainer --quiet build'
        f' --mksquashfs-args "{ZSTD}" "/mnt/{sif.name}" "/mnt/{tree.name}"'
    )
    build_tool(["sh", "-c", script])
    sif.chmod(0o644)


def install_wheels(wheels: tuple[str, ...], folder: Path) -> None:
    """Install wheels for trixie's Python, 3.13, into a folder, with the pip of this one."""
    argv = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
    argv += ["--no-compile", "--target", str(folder), "--python-version", "3.13", "--only-binary=:all:"]
    tags = ("2014", "_2_26", "_2_27", "_2_28")
    argv += [word for tag in tags for word in ("--platform", f"manylinux{tag}_x86_64")]
    run_or_refuse([*argv, *wheels])


def _add_environment(tree: Path) -> None:
    environment = tree / ".singularity.d/env/90-environment.sh"
    environment.parent.mkdir(parents=True)
    environment.write_text(f"#!/bin/sh\n{ENVIRONMENT}")
    environment.chmod(0o755)


def _add_conda(tree: Path, name: str) -> None:
    """Add an environment, outside of which nothing is called `python`."""
    (tree / "opt/miniconda3/bin").mkdir(parents=True)
    (tree / "opt/miniconda3/bin/activate").write_text(ACTIVATE)
    programs = tree / f"opt/miniconda3/envs/{name}/bin"
    programs.mkdir(parents=True)
    for program in ("python", "python3"):
        (programs / program).symlink_to("/usr/bin/python3")
    with (tree / ".singularity.d/env/90-environment.sh").open("a") as script:
        script.write(f"export WITH_CONDA='source /opt/miniconda3/bin/activate {name}'\n")


def _edit(tree: Path, folder: str) -> None:
    for name, old, new in EDITS:
        text = (tree / folder / name).read_text()
        assert old in text, name
        (tree / folder / name).write_text(text.replace(old, new, 1))
    _compile(tree, *(f"/{folder}/{edit[0]}" for edit in EDITS))


def _compile(tree: Path, *paths: str) -> None:
    """Compile modules, or all of a folder, as each start would else do again: an image keeps no bytecode."""
    run_or_refuse(["chroot", str(tree), "python3", "-m", "compileall", "-q", "-j0", *paths])
