"""Record what a rank has in the container: CPUs, GPUs, caches, packages, and once a node its binds and libraries.

`environment.py OUTDIR [--path PATH]… [--variable NAME]… [--private PATH]… [--import MODULE]… [--library SONAME]…
[--plugin NAME]… [--carrier NAME]… [--runtime LIBRARY:COUNT:BUS_ID]… [--device FILE]…`, one task for each rank.
`variable` are those that lead to private directories, `private` how the paths of those begin that the task prolog
makes, `runtime` the libraries that can name a GPU's PCI address with their functions for it, `device` the files of
which a node with GPUs has one.
"""

# mypy: disable-error-code="import-not-found"
# lumisite_record stands beside this file in the job, and torch is in the image.

import ctypes
import importlib
import os
import re
import site
import stat
import sys
from pathlib import Path

import lumisite_record as record

#: Of all that is mapped, what carries traffic; beside the carriers that are given.
NAMED = ("libnccl", "libfabric", "libmpi", "libtorch")
#: More entries of a folder than these are not looked at.
MOST_ENTRIES = 500
#: Variables that are recorded, by the beginnings of their names.
KEPT = ("SLURM_CPU_BIND", "PYTHONNOUSERSITE")


def main() -> None:
    """Write the record; what may crash the process comes last, when the rest is on disk."""
    mounted = record.mounts()
    facts = record.identity()
    facts.update(
        part="container",
        in_container=Path("/.singularity.d").is_dir(),
        user=os.getuid(),
        cpus=allowed_cpus(),
        granted=granted_cpus(),
        limits=limits(),
        private=[found for begin in record.options("private") for found in private_folders(begin)],
        directories={name: directory(os.environ.get(name), mounted) for name in record.options("variable")},
        environment=record.environment(KEPT),
    )
    facts.update(python())
    record.leave(facts)
    facts["gpus"] = bus_ids()
    if facts["local_rank"] == 0:
        facts["paths"] = {path: seen(path) for path in record.options("path")}
        facts.update(libraries(mounted))
    record.leave(facts)


def allowed_cpus() -> str:
    """Return the CPUs that the kernel lets this process run on."""
    status = dict(line.split(":", 1) for line in record.text_of("/proc/self/status").splitlines() if ":" in line)
    return str(status.get("Cpus_allowed_list", "").strip())


def granted_cpus() -> str:
    """Return the CPUs of the step's cgroup, version 2 or 1; nothing where Slurm made none."""
    group = record.text_of("/proc/self/cpuset").strip()
    while "/job_" in group and "/step_" in group:
        for name in (f"/sys/fs/cgroup{group}/cpuset.cpus.effective", f"/sys/fs/cgroup/cpuset{group}/cpuset.cpus"):
            found = str(record.text_of(name)).strip()
            if found:
                return found
        group = group.rpartition("/")[0]
    return ""


def limits() -> "dict[str, list[str]]":
    """Return the soft and the hard limit of what the kernel limits for a process, and the KiB of shared memory."""
    lines = [re.split(r"\s{2,}", line.strip()) for line in record.text_of("/proc/self/limits").splitlines()]
    found = {words[0].replace("Max ", ""): words[1:3] for words in lines if len(words) > 2}
    try:
        size = os.statvfs("/dev/shm")  # noqa: S108, where POSIX shared memory is
        found["shared memory"] = [str(size.f_blocks * size.f_frsize // 1024)]
    except OSError:
        pass
    return found


# ---- GPUs


def bus_ids() -> "list[str]":
    """Return the PCI address of each GPU, from the run-time library of the image, or from the one that torch brings."""
    for runtime in record.options("runtime"):
        name, count, bus_id = runtime.split(":")
        for library in (name, loaded_as(name)):
            try:
                functions = ctypes.CDLL(library)
                return list(_bus_ids(getattr(functions, count), getattr(functions, bus_id)))
            except (OSError, AttributeError, TypeError):
                continue
    return []


def _bus_ids(count: "ctypes._FuncPointer", bus_id: "ctypes._FuncPointer") -> "list[str]":
    gpus = ctypes.c_int(0)
    if count(ctypes.byref(gpus)) != 0:
        return []
    found = []
    for index in range(gpus.value):
        text = ctypes.create_string_buffer(32)
        if bus_id(text, ctypes.c_int(32), ctypes.c_int(index)) == 0:
            found.append(text.value.decode("ascii", "replace").lower())
    return found


def loaded_as(name: str) -> str:
    """Return the path under which torch has loaded a library; without GPUs torch is not imported for it."""
    if not any(Path(device).exists() for device in record.options("device")):
        return name
    try:
        import torch  # noqa: F401  # it is imported for the libraries that it loads
    except Exception:
        return name
    return next(iter(record.mapped((name,))), name)


# ---- directories and packages


def directory(path: "str | None", mounted: "list[dict[str, str]]") -> "dict[str, object]":
    """Return whose directory a variable leads to, on which mount, and why no file can be made there."""
    if path is None:
        return {"set": False}
    real = str(Path(path).resolve())
    found = {
        "set": True,
        "path": record.printable(path),
        "real": record.printable(real),
        "mount": record.mount_of(real, mounted),
    }
    try:
        status = Path(path).stat()
    except (OSError, ValueError):
        return found
    found.update(
        directory=stat.S_ISDIR(status.st_mode),
        owner=status.st_uid,
        mode=f"{stat.S_IMODE(status.st_mode):o}",
        writing=writing(path),
    )
    return found


def private_folders(begin: str) -> "list[dict[str, object]]":
    """List the directories that the task prolog may have made or found, and what in them is not the user's.

    It takes a directory with the sticky bit, in which nobody else can replace what the user has.
    """
    user, job = os.getuid(), os.environ.get("SLURM_JOB_ID", "0")
    begin = os.path.expandvars(begin)
    tops = [f"{begin}-{user}", f"{begin}-{user}-{job}"]
    # Hidden names are the prolog's own marks, and no directories of variables.
    inside = [str(path) for top in tops for path in entries(top) if not path.name.startswith(".")]
    found = []
    for path in [*tops, *inside]:
        try:
            status = os.lstat(path)
        except OSError:
            continue
        sticky = bool(status.st_mode & stat.S_ISVTX) or path in inside
        usable = status.st_uid == user and stat.S_ISDIR(status.st_mode) and sticky
        if not usable or path in tops:
            found.append({"path": record.printable(path), "owner": status.st_uid, "usable": usable})
    return found


def entries(folder: str) -> "list[Path]":
    """List what is in a folder; nothing where that is not known."""
    try:
        return sorted(Path(folder).iterdir())[:MOST_ENTRIES]
    except OSError:
        return []


def writing(folder: str) -> str:
    """Make a file and remove it; return the system's refusal, or nothing."""
    file = Path(folder) / ".lumisite-{}-{}".format(record.number("SLURM_PROCID"), os.getpid())
    try:
        file.write_text("x")
        file.unlink()
    except OSError as error:
        return error.strerror or str(error)
    return ""


def python() -> "dict[str, object]":
    """Return whether Python looks into ~/.local, and which packages there hide others; nothing is imported."""
    # The first entry is the folder of this file.
    path = [Path(entry).resolve() for entry in sys.path[1:] if entry]
    user_site = Path(site.getusersitepackages()).resolve()
    others = [entry for entry in path if entry != user_site]
    names = [entry.name.split(".")[0] for entry in entries(str(user_site)) if entry.suffix in ("", ".py", ".so")]
    hidden = [
        name for name in names if any((other / file).exists() for other in others for file in (name, f"{name}.py"))
    ]
    return {
        "user_site": record.printable(site.getusersitepackages()),
        "user_site_on_path": user_site in path,
        "hidden": [record.printable(name) for name in hidden if name != "__pycache__"],
    }


# ---- binds and libraries


def seen(path: str) -> "dict[str, object]":
    """Return whether a path is there, and which file or folder it is."""
    try:
        status = Path(path).stat()
    except OSError as error:
        return {"exists": False, "error": error.strerror or ""}
    return {"exists": True, "file": f"{status.st_dev}:{status.st_ino}"}


def libraries(mounted: "list[dict[str, str]]") -> "dict[str, object]":
    """Return which libraries a program gets: by importing the framework, then by dlopen, then in /proc/self/maps."""
    imports = {name: imported(name) for name in record.options("import")}
    request = os.environ.get("NCCL_NET_PLUGIN", "")
    plugins = {name: opened(plugin_name(request, name)) for name in record.options("plugin")}
    opened_ones = {name: opened(name) for name in record.options("library")}
    mapped = record.mapped((*NAMED, *record.options("carrier")))
    return {
        "imports": imports,
        "plugins": plugins,
        "libraries": opened_ones,
        "mapped": [dict(record.mount_of(path, mounted), path=path) for path in mapped],
    }


def imported(name: str) -> "dict[str, str]":
    """Import a module; return its version, or the error in one line."""
    try:
        module = importlib.import_module(name)
    except Exception as error:
        return {"error": record.words(error)}
    return {"version": str(getattr(module, "__version__", "unknown"))}


def opened(name: str) -> str:
    """Open a library as the loader finds it; return the loader's words where it refuses, else nothing."""
    try:
        ctypes.CDLL(name)
    except OSError as error:
        return str(record.printable(str(error).splitlines()[0]))
    return ""


def plugin_name(request: str, usual: str) -> str:
    """Return the library that NCCL_NET_PLUGIN names: a path, a file name, or a suffix (NCCL's user guide)."""
    if not request or request == "none":
        return usual
    if "/" in request or ".so" in request:
        return request
    return usual.replace(".so", f"-{request}.so")


if __name__ == "__main__":
    main()
    # What was loaded is not taken down: the record is there, and a library that crashes at its end is no finding.
    os._exit(0)
