"""Running code in a child that kills itself at its n-th change of the file system."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator

# What Python reports before it asks the system for a change: audit events, the last being the look-up of
# renameat2 just before its call. Writes and fsyncs are not reported, so those two are replaced.
_CHANGES = {
    "os.chmod",
    "os.chown",
    "os.link",
    "os.mkdir",
    "os.remove",
    "os.rename",
    "os.rmdir",
    "os.symlink",
    "os.truncate",
    "os.utime",
    "fcntl.flock",
    "shutil.copyfile",
    "ctypes.dlsym",
}
_FOR_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC


def kills(start: Callable[[], object], call: Callable[[], object], *, umask: int = 0o007) -> Iterator[str]:
    """Kill `call` before its first change, its second, ..., and after half of the bytes of each write.

    Each time, `start` sets the scene first. Yields the name of the change after the child is dead, and stops
    when a child came to the end of `call`.
    """
    for half in (False, True):
        number = 1
        while True:
            start()
            name = _killed(call, number, half=half, umask=umask)
            if not name:
                break
            yield f"{name} {number}{' (half)' if half else ''}"
            number += 1
        assert number > 1, "nothing was changed, so nothing was tested"


def _killed(call: Callable[[], object], number: int, *, half: bool, umask: int) -> str:
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.close(reading)
            os.umask(umask)
            _arm(number, writing, half=half)
            call()
        except BaseException as error:
            os.write(2, f"{error!r}\n".encode())
            os._exit(99)
        os._exit(0)
    os.close(writing)
    name = b""
    while part := os.read(reading, 100):
        name += part
    os.close(reading)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        assert os.WTERMSIG(status) == signal.SIGKILL
        return name.decode()
    assert os.waitstatus_to_exitcode(status) == 0
    return ""


def _arm(number: int, report: int, *, half: bool) -> None:
    left = number
    write = os.write

    def die(name: str) -> None:
        write(report, name.encode())
        os.kill(os.getpid(), signal.SIGKILL)

    def count(name: str) -> bool:
        nonlocal left
        left -= 1
        return left == 0

    def audit(event: str, args: tuple[object, ...]) -> None:
        flags = args[2] if event == "open" else 0
        changes = event in _CHANGES or (isinstance(flags, int) and bool(flags & _FOR_WRITING))
        if not half and changes and count(event):
            die(event)

    def killing_write(descriptor: int, content: bytes | memoryview) -> int:
        if count("os.write"):
            if half:
                write(descriptor, content[: len(content) // 2])
            die("os.write")
        return write(descriptor, content)

    def killing_fsync(descriptor: int) -> None:
        # The kernel outlives this kill, so nothing needs to reach the disk, and the sweep stays quick.
        if not half and count("os.fsync"):
            die("os.fsync")

    os.write = killing_write  # type: ignore[assignment]  # only in this child
    os.fsync = killing_fsync  # type: ignore[assignment]
    sys.addaudithook(audit)
