"""Running code in a child that kills itself at its n-th change of the file system."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator
from itertools import count

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


def kills(start: Callable[[], object], call: Callable[[], object]) -> Iterator[str]:
    """Kill `call` before its first change, its second, and so on; each time `start` sets the scene first.

    Yields the name of the change after the child is dead, and stops when a child came to the end of `call`.
    """
    for number in count(1):
        start()
        name = _killed(call, number)
        if not name:
            assert number > 1, "nothing was changed, so nothing was tested"
            return
        yield f"{name} {number}"


def _killed(call: Callable[[], object], number: int) -> str:
    """Return the name of the change at which the child was killed, empty where it came to its end."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.close(reading)
            os.umask(0o007)
            _arm(number, writing)
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
    assert os.waitstatus_to_exitcode(status) == (-signal.SIGKILL if name else 0)
    return name.decode()


def _arm(number: int, report: int) -> None:
    left = number
    write = os.write

    def change(name: str) -> None:
        nonlocal left
        left -= 1
        if left == 0:
            write(report, name.encode())
            os.kill(os.getpid(), signal.SIGKILL)

    def audit(event: str, args: tuple[object, ...]) -> None:
        flags = args[2] if event == "open" else 0
        if event in _CHANGES or (isinstance(flags, int) and flags & _FOR_WRITING):
            change(event)

    def killing_write(descriptor: int, content: bytes | memoryview) -> int:
        change("os.write")
        return write(descriptor, content)

    # The kernel outlives this kill, so nothing needs to reach the disk, and the sweep stays quick.
    os.write = killing_write  # type: ignore[assignment]  # only in this child
    os.fsync = lambda descriptor: change("os.fsync")  # type: ignore[assignment]
    sys.addaudithook(audit)
