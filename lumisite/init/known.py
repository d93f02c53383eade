"""What names mean on any Linux machine: types of file systems, drivers, trees of software. Data alone.

Sources: mount(8) and findmnt(8) for types; the vendors' installation guides for the trees; NVIDIA's "CUDA
compatibility" for what a driver of CUDA runs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

#: File systems that all nodes see.
SHARED = frozenset(
    {"lustre", "nfs", "nfs4", "gpfs", "beegfs", "ceph", "wekafs", "panfs", "pvfs2", "orangefs", "glusterfs", "afs"}
    | {"fuse.glusterfs", "fuse.ceph", "fuse.juicefs", "cifs", "smb3", "dvs", "daos", "fuse.daos", "quobyte", "ocfs2"}
)
#: File systems of one node that users work on.
LOCAL = frozenset({"ext3", "ext4", "xfs", "btrfs", "zfs", "tmpfs", "f2fs"})
#: Where the system keeps its own.
SYSTEM = ("/proc", "/sys", "/dev", "/run", "/boot", "/etc", "/usr", "/lib", "/bin", "/sbin", "/var", "/snap", "/root")
#: How the folder for software that all nodes see is called.
SOFTWARE = ("appl", "apps", "app", "sw", "software", "soft", "opt", "cm", "shared", "share")
#: Container runtimes, the one that is to be the default first.
RUNTIMES = ("apptainer", "singularity")
#: Folders for images below a shared file system, and on the host.
IMAGE_FOLDERS = ("images", "containers", "container", "singularity", "apptainer", "sif", "local/containers")


_CUDA_DRIVERS = {13: 580, 12: 525, 11: 450}


@dataclass(frozen=True)
class KnownStack:
    """Software whose versions matter: its folders by what stands before the version, and the link to its default.

    `gpu` and `driver` are of those that a GPU driver decides on; `flag` is how a runtime brings the GPUs in.
    """

    title: str
    folders: tuple[str, ...]
    default: str
    gpu: str = ""
    driver: str = ""
    flag: str = ""
    drivers: Mapping[int, int] = field(default_factory=dict)
    """By major version the first major version of the driver that runs all of its minor ones."""


STACKS = {
    "rocm": KnownStack("ROCm", ("/opt/rocm-",), "/opt/rocm", "amd", "amdgpu", "rocm"),
    "cuda": KnownStack("CUDA", ("/usr/local/cuda-",), "/usr/local/cuda", "nvidia", "nvidia", "nv", _CUDA_DRIVERS),
    "oneapi": KnownStack(
        "oneAPI", ("/opt/intel/oneapi/compiler/",), "/opt/intel/oneapi/compiler/latest", "intel", "i915"
    ),
    "cpe": KnownStack("CPE", ("/opt/cray/pe/cpe/",), "/opt/cray/pe/cpe/default"),
}
#: Settings that hold wherever there are GPUs of a vendor: variable, directory, reason.
CACHES = {
    "amd": (
        ("MIOPEN_USER_DB_PATH", "miopen/db", "MIOpen's databases lock each other on a shared file system"),
        ("MIOPEN_CUSTOM_CACHE_DIR", "miopen/cache", "MIOpen's kernels are compiled by many ranks at once"),
    )
}
