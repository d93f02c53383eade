"""Record where a rank may run, and which GPU it has; one task for each rank, in the container.

`affinity.py OUTDIR [--selecting VARIABLE]… [--runtime LIBRARY:COUNT:BUS_ID]… [--device FILE]…`: the variables that
choose GPUs, the run-time libraries that can name a GPU's PCI address with their functions for it, and the devices of
which a node with GPUs has one.
"""

# mypy: disable-error-code="import-not-found"
# lumisite_record stands beside this file in the job, and torch is in the image.

import ctypes
from pathlib import Path

import lumisite_record as record


def main() -> None:
    """Write the record."""
    status = dict(line.split(":", 1) for line in record.text_of("/proc/self/status").splitlines() if ":" in line)
    facts = record.identity()
    facts.update(
        cpus=status.get("Cpus_allowed_list", "").strip(),
        granted=granted_cpus(),
        slurm=record.environment(("SLURM_CPU_BIND", "SLURM_CPUS_", "SLURM_TASKS_PER_NODE", "SLURM_GPU_BIND")),
        lumisite=record.environment(("LUMISITE",)),
        selecting=record.environment(tuple(record.options("selecting"))),
        gpus=bus_ids(),
    )
    record.leave(facts)


def granted_cpus() -> str:
    """Give the CPUs of the step's cgroup, version 2 or 1; nothing where Slurm made none."""
    place = record.text_of("/proc/self/cpuset").strip()
    while "/job_" in place and "/step_" in place:
        for name in (
            f"/sys/fs/cgroup{place}/cpuset.cpus.effective",
            f"/sys/fs/cgroup/cpuset{place}/cpuset.cpus",
        ):
            found = str(record.text_of(name)).strip()
            if found:
                return found
        place = place.rpartition("/")[0]
    return ""


def bus_ids() -> "list[str]":
    """Ask the run-time library of the image for the PCI address of each GPU.

    torch brings it where the image has none of its own; importing it makes its library known to the loader.
    """
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
    how_many = ctypes.c_int(0)
    if count(ctypes.byref(how_many)) != 0:
        return []
    found = []
    for index in range(how_many.value):
        text = ctypes.create_string_buffer(32)
        if bus_id(text, ctypes.c_int(32), ctypes.c_int(index)) == 0:
            found.append(text.value.decode("ascii", "replace").lower())
    return found


def loaded_as(name: str) -> str:
    """Give the path under which torch has loaded a library; it is not asked on a node without GPUs."""
    if not any(Path(device).exists() for device in record.options("device")):
        return name
    try:
        import torch  # noqa: F401  # it is imported for the libraries that it loads
    except Exception:
        return name
    return next(iter(record.mapped((name,))), name)


if __name__ == "__main__":
    main()
