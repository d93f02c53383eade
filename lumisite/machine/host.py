"""A directory on disk as a tree, and what the system says of the node that lumisite runs on."""

from __future__ import annotations

import errno
import fcntl
import os
import posixpath
import shlex
import stat
import struct
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from threading import Thread

from lumisite.errors import ToolError, refused
from lumisite.machine.tree import ByteSource, DirEntry
from lumisite.site.read import open_regular, read_file, regular_size

#: No reader asks for more at once, so that a file of any size takes little memory.
LARGEST_READ_BYTES = 64 * 1024 * 1024
#: No file has more; the kernel's own files (/proc) give their size as 0.
MOST_BYTES = 2**63
_SIOCGIFADDR = 0x8915


@dataclass(frozen=True)
class HostFile:
    """A regular file on disk, opened when it is read and closed at once; `name` is its real path."""

    name: str
    size: int

    def read(self, offset: int, length: int) -> bytes:
        """Return a part of it; raises `ToolError` when the system refuses."""
        if offset >= MOST_BYTES:
            return b""
        try:
            descriptor = open_regular(self.name)
            try:
                most, content = min(length, LARGEST_READ_BYTES), b""
                while part := os.pread(descriptor, most - len(content), offset + len(content)):
                    content += part
                    if self.size or len(content) == most:  # the kernel gives a page or so of its files at a time
                        break
                return content
            finally:
                os.close(descriptor)
        except OSError as error:
            error.filename = self.name  # a call on a descriptor does not know it
            raise refused_with_command("read", error) from None


@dataclass(frozen=True)
class DiskTree:
    """The tree below the directory `name`.

    `unreadable` is what was met that this process may not read or enter, `private` what only root may, where this is
    root: by path, with the command that lets everybody.
    """

    name: str
    unreadable: dict[str, str] = field(default_factory=dict, compare=False)
    private: dict[str, str] = field(default_factory=dict, compare=False)

    def look(self, path: str) -> DirEntry | None:
        """Return what is at a path."""
        real = self.on_disk(path)
        try:
            mode = os.lstat(real).st_mode
            if stat.S_ISLNK(mode):
                return DirEntry("link", str(Path(real).readlink()))
        except PermissionError:
            folder = _shut_folder(path, self.name.rstrip("/")) or posixpath.dirname(path)
            self.unreadable[folder] = _opened(self.on_disk(folder), "rx")
            return None
        except (OSError, ValueError):
            return None
        if stat.S_ISDIR(mode):
            self._compare_users(posixpath.normpath(path), mode, "x")
            return DirEntry("directory")
        return DirEntry("file" if stat.S_ISREG(mode) else "other")

    def names(self, path: str) -> tuple[str, ...]:
        """Return the names in a directory."""
        try:
            with os.scandir(self.on_disk(path)) as entries:
                self._compare_users(path, self.mode(path), "rx")
                return tuple(entry.name for entry in entries)
        except PermissionError:
            self.unreadable[path] = _opened(self.on_disk(path), "rx")
            return ()
        except OSError:
            return ()

    def source(self, path: str) -> ByteSource | None:
        """Open a file."""
        real = self.on_disk(path)
        if not os.access(real, os.R_OK, effective_ids=True):
            self.unreadable[path] = _opened(real, "r")
            return None
        self._compare_users(path, self.mode(path), "r")
        return open_file(real)

    def mode(self, path: str) -> int | None:
        """Return the permission bits of what stands at a path, which is not a link."""
        try:
            return stat.S_IMODE(os.lstat(self.on_disk(path)).st_mode)
        except (OSError, ValueError):
            return None

    def owner(self, path: str) -> int | None:
        """Return the user number of who owns what stands at a path, which is not a link."""
        try:
            return os.lstat(self.on_disk(path)).st_uid
        except (OSError, ValueError):
            return None

    def _compare_users(self, path: str, mode: int | None, rights: str) -> None:
        """Note what root may read, and users may not."""
        needed = sum({"r": stat.S_IROTH, "x": stat.S_IXOTH}[letter] for letter in rights)
        if mode is not None and mode & needed != needed and os.geteuid() == 0:
            self.private[path] = _opened(self.on_disk(path), "rx" if "x" in rights else "r")

    def on_disk(self, path: str) -> str:
        """Return where a path of the tree is for this process."""
        return self.name.rstrip("/") + path


def _opened(path: str, rights: str) -> str:
    return f"chmod o+{rights} {shlex.quote(path)}"


def _shut_folder(path: str, top: str = "") -> str | None:
    """Return the first folder on the way to a path below `top` that this process may not enter."""
    folders = (path[:at] or "/" for at, sign in enumerate(path) if sign == "/")
    return next((folder for folder in folders if not os.access(top + folder, os.X_OK, effective_ids=True)), None)


def refused_with_command(action: str, error: OSError) -> ToolError:
    """Return the error for what the system refused, with the command that lets everybody where rights are missing."""
    if not isinstance(error, PermissionError) or not isinstance(error.filename, str):
        return refused(action, error)
    shut = _shut_folder(error.filename)
    command = _opened(error.filename, "rx" if action == "list" else "r") if shut is None else _opened(shut, "rx")
    return refused(action, error, command)


def open_file(path: str) -> HostFile:
    """Open a regular file; raises `ToolError` where the system refuses, or there is something else."""
    try:
        return HostFile(path, regular_size(path))
    except OSError as error:
        raise refused_with_command("read", error) from None


def list_directory(path: str) -> tuple[str, ...]:
    """Return the names in a directory, sorted; raises `ToolError` where `DiskTree.names` would give none."""
    try:
        return tuple(sorted(os.listdir(path)))  # noqa: PTH208 - the names alone, not a path object for each
    except OSError as error:
        raise refused_with_command("list", error) from None
    except ValueError as error:  # a NUL in the name
        raise refused("list", OSError(errno.EINVAL, str(error), ascii(path))) from None


def names_of_this_node() -> tuple[str, str]:
    """Return the name of this node in Slurm, which only a job step knows, else nothing; and its host name."""
    return os.environ.get("SLURMD_NODENAME", ""), os.uname().nodename.partition(".")[0]


def partition_of_this_job() -> str:
    """Return the partition that this job runs in; nothing outside of jobs."""
    return os.environ.get("SLURM_JOB_PARTITION", "")


def silent_paths(paths: Sequence[str], within_s: float) -> list[str]:
    """Return those paths of this node that do not answer in time: whoever looks there waits for ever."""
    threads = {path: Thread(target=os.path.exists, args=(f"{path}/.",), daemon=True) for path in paths}
    until = time.monotonic() + within_s
    for thread in threads.values():
        thread.start()
    for thread in threads.values():
        thread.join(max(0.0, until - time.monotonic()))
    return [path for path, thread in threads.items() if thread.is_alive()]


def has_address(interface: str) -> bool:
    """Return whether an interface of this node has an address by which others reach it, of IPv4 or IPv6.

    Sources: netdevice(7) for SIOCGIFADDR; proc(5) for if_inet6, where scope 20 is that of the link alone.
    """
    import socket  # late, as only `check --host` asks

    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        try:
            fcntl.ioctl(any_socket, _SIOCGIFADDR, struct.pack("256s", interface.encode()[:15]))
        except OSError:
            try:
                lines = map(str.split, read_file("/proc/net/if_inet6", 1 << 20).decode("ascii").splitlines())
            except OSError:  # a kernel without IPv6
                return False
            return any(len(words) == 6 and words[5] == interface and words[3] != "20" for words in lines)
    return True
