"""Record what a container sees of the host, and which libraries a program really gets.

`binds.py OUTDIR [--path PATH]… [--library SONAME]… [--plugin NAME]… [--import MODULE]… [--carrier NAME]…`, one task on
each node, in the container. Libraries are looked for as a program would: by importing the framework, then by dlopen,
then in /proc/self/maps.
"""

# mypy: disable-error-code="import-not-found"
# lumisite_record stands beside this file in the job, and torch is in the image.

import ctypes
import importlib
import os
from pathlib import Path

import lumisite_record as record

#: What matters of all that is mapped, beside the carriers that are given: who carries the traffic.
NAMED = ("libnccl", "libfabric", "libmpi", "libtorch")


def main() -> None:
    """Write the record."""
    mounted = record.mounts()
    facts = record.identity()
    facts.update(
        part="container",
        in_container=Path("/.singularity.d").is_dir(),
        paths={path: seen(path) for path in record.options("path")},
        imports={name: imported(name) for name in record.options("import")},
    )
    asked = os.environ.get("NCCL_NET_PLUGIN", "")
    facts["plugins"] = {name: opened(plugin_name(asked, name)) for name in record.options("plugin")}
    facts["libraries"] = {name: opened(name) for name in record.options("library")}
    named = record.mapped((*NAMED, *record.options("carrier")))
    facts["mapped"] = [dict(record.mount_of(path, mounted), path=path) for path in named]
    facts["environment"] = record.environment(("LD_LIBRARY_PATH", "LD_PRELOAD", "NCCL_NET_PLUGIN", "LUMISITE", "FI_"))
    record.leave(facts)


def seen(path: str) -> "dict[str, object]":
    """Tell whether a path is there, and which file or folder it is."""
    try:
        status = Path(path).stat()
    except OSError as error:
        return {"exists": False, "error": error.strerror or ""}
    return {"exists": True, "file": f"{status.st_dev}:{status.st_ino}"}


def imported(name: str) -> str:
    """Import a module; give its version, or the error in one line."""
    try:
        module = importlib.import_module(name)
    except Exception as error:
        return f"error: {record.words(error)}"
    return str(getattr(module, "__version__", "unknown"))


def opened(name: str) -> str:
    """Open a library as the loader finds it; give the loader's words where it refuses, else nothing."""
    try:
        ctypes.CDLL(name)
    except OSError as error:
        return str(record.shown(str(error).splitlines()[0]))
    return ""


def plugin_name(asked: str, usual: str) -> str:
    """Give the library that NCCL_NET_PLUGIN asks for: a path, a file name, or a suffix (NCCL's user guide)."""
    if not asked or asked == "none":
        return usual
    if "/" in asked or ".so" in asked:
        return asked
    return usual.replace(".so", f"-{asked}.so")


if __name__ == "__main__":
    main()
    # What was loaded is not taken down: the record is there, and a library that crashes at its end is no finding.
    os._exit(0)
