"""PyTorch as wheels and builds lay it out: what its interpreter opens, and the library for collectives that it needs."""

from __future__ import annotations

from types import MappingProxyType

from tests.support.dict_trees import Files, Link
from tests.support.elves import elf

VENV = "/opt/venv/lib/python3.12/site-packages"
CONDA = "/opt/miniconda3/envs/x/lib/python3.11/site-packages"


def torch(
    packages: str,
    more: Files = MappingProxyType({}),
    *,
    name: str = "librccl.so.1",
    rpath: str | None = None,
    runpath: str | None = None,
    built: str = "",
) -> dict[str, bytes | Link]:
    """Return the files of PyTorch, which needs a library by `name`, and `more` by their paths in the packages."""
    version = f"__version__ = '{built}'\n" if built else ""
    files: Files = {
        "torch/version.py": version.encode(),
        "torch/lib/libtorch_global_deps.so": elf("libtorch_global_deps.so", rpath=rpath, runpath=runpath),
        "torch/lib/libtorch_gpu.so": elf("libtorch_gpu.so", [name], rpath=rpath, runpath=runpath),
        "torch/lib/libtorch_python.so": elf("libtorch_python.so", ["libtorch_gpu.so"], rpath=rpath or "$ORIGIN"),
        "torch/_C.cpython-312-x86_64-linux-gnu.so": elf(None, ["libtorch_python.so"], rpath="$ORIGIN/lib"),
        **more,
    }
    return {f"{packages}/{path}": content for path, content in files.items()}
