"""What a node's kernel says of its CPUs, domains and GPUs: the files that tell a node's kind, for any node."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path

from lumisite.site.model import Site
from lumisite.site.node_recognition import NO_GPUS, fingerprint_of
from lumisite.vendors import gpu_names, gpu_of

CPU, DOMAIN, DRIVER = "/sys/devices/system/cpu", "/sys/devices/system/node", "/sys/bus/pci/drivers"
#: How the paths begin that scripts have.
BEGINNINGS = ("/sys/devices/", "/sys/bus/")


def kernel_files(site: Site, kind: str) -> dict[str, str]:
    """Give the files of a node of a kind, by path; GPUs of which no address is described have some.

    Of its CPUs, the domain is there for those that are looked at.
    """
    known = fingerprint_of(site, kind)
    files = {f"{CPU}/present": known.cpus or "0-255", f"{CPU}/online": known.cpus or "0-255"}
    files |= {f"{DOMAIN}/has_cpu": known.domains or "0-7"}
    files |= {f"{DOMAIN}/node{numa}/cpu{cpu}": "" for cpu, numa in known.places}
    files |= {f"{DRIVER}/{name}/bind": "" for gpu in gpu_names() for name in gpu_of(gpu).drivers}
    if known.gpus not in ("", NO_GPUS):
        count, vendor = known.gpus.split()
        buses = known.buses[-1] if known.buses else [f"0000:{4 * number:02x}:00.0" for number in range(int(count))]
        files |= {f"{DRIVER}/{gpu_of(vendor).drivers[0]}/{bus}": "" for bus in buses}
    return {path: f"{text}\n" if text else "" for path, text in files.items()}


def be_node(folder: Path, files: Mapping[str, str]) -> None:
    """Be a node with these files, below a folder, for scripts that were changed by `seen_in`."""
    shutil.rmtree(folder / "sys", ignore_errors=True)
    for path, text in files.items():
        file = folder / path[1:]
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)


def seen_in(folder: Path | str, script: str) -> str:
    """Give a script that looks below a folder for what the kernel says of the node."""
    for beginning in BEGINNINGS:
        script = script.replace(beginning, f"{folder}{beginning}")
    return script
