"""What names mean on any Linux machine: types of file systems, folders. Data alone.

Sources: mount(8) and findmnt(8) for types.
"""

from __future__ import annotations

#: File systems that all nodes see.
SHARED = frozenset(
    {"lustre", "nfs", "nfs4", "gpfs", "beegfs", "ceph", "wekafs", "panfs", "pvfs2", "orangefs", "glusterfs", "afs"}
    | {"fuse.glusterfs", "fuse.ceph", "fuse.juicefs", "cifs", "smb3", "dvs", "daos", "fuse.daos", "quobyte", "ocfs2"}
)
#: File systems of one node that users work on.
LOCAL = frozenset({"ext3", "ext4", "xfs", "btrfs", "zfs", "tmpfs", "f2fs"})
#: What the kernel shows by itself, images of software, and what other programs show as files: no place of users' files.
SYSTEM_TYPES = frozenset(
    {"proc", "sysfs", "devtmpfs", "devpts", "cgroup", "cgroup2", "mqueue", "hugetlbfs", "debugfs", "tracefs"}
    | {"bpf", "securityfs", "selinuxfs", "pstore", "efivarfs", "configfs", "fusectl", "binfmt_misc", "nsfs", "ramfs"}
    | {"rpc_pipefs", "nfsd", "overlay", "squashfs", "erofs", "iso9660", "vfat"}
    | {"fuse.gvfsd-fuse", "fuse.portal", "fuse.lxcfs"}
)
#: What stands where file systems are mounted on demand.
AUTOMOUNT = "autofs"
#: Where the system keeps its own.
SYSTEM = ("/proc", "/sys", "/dev", "/run", "/boot", "/etc", "/usr", "/lib", "/bin", "/sbin", "/var", "/snap", "/root")
#: How the folder for software that all nodes see is called.
SOFTWARE = ("appl", "apps", "app", "sw", "software", "soft", "opt", "cm", "shared", "share")
#: Container runtimes, the one that is to be the default first.
RUNTIMES = ("apptainer", "singularity")
#: Folders for images below a shared file system, and on the host.
IMAGE_FOLDERS = ("images", "containers", "container", "singularity", "apptainer", "sif", "local/containers")
