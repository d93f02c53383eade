"""The name spaces around a whole cluster, and around each node in it.

A cluster runs below one process, the first of a process name space of its own that also has its own mounts
and network. When that process is killed, the kernel ends every process below it, and with them go their
mounts, interfaces and bridges: nothing has to be found and removed one by one, and the machine's own name
spaces are never written to.
"""

from __future__ import annotations

import os
import select
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from lumisite.errors import ToolError

SCRIPTS = Path(__file__).parent / "scripts"


@dataclass(frozen=True)
class ProcessId:
    """A process, not to be taken for another one: its number and its start (clock ticks since boot)."""

    pid: int
    started: int


def process_id(pid: int) -> ProcessId | None:
    """Identify a live process; none if it has ended (field 22 of /proc/PID/stat, proc(5))."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    fields = stat.rpartition(")")[2].split()
    return None if fields[0] in "ZX" else ProcessId(pid, int(fields[19]))


def is_alive(process: ProcessId) -> bool:
    """Say whether exactly this process still runs."""
    return process_id(process.pid) == process


@dataclass(frozen=True)
class Fence:
    """What holds a cluster: the maker of its name spaces, and the first process in them, once it runs."""

    maker: ProcessId
    first: ProcessId | None = None


@contextmanager
def raised(mark: str, tied: bool) -> Iterator[tuple[Fence, Callable[[], Fence]]]:
    """Start the process that will hold a cluster; give it, and the call that lets it go on.

    It ends by itself if the call does not come. `mark` is shown in the process list. A `tied` fence also ends
    with the process that raised it, however that ends.
    """
    command = ["setpriv", "--pdeathsig", "KILL", "--"] if tied else []
    command += ["unshare", "--pid", "--fork", "--kill-child", "--mount", "--propagation", "private"]
    command += ["--net", "--ipc", "--mount-proc", "sh", str(SCRIPTS / "fence.sh"), mark]
    reader, writer = os.pipe()
    try:
        maker = os.posix_spawnp(
            command[0],
            command,
            os.environ,
            file_actions=[
                (os.POSIX_SPAWN_DUP2, reader, 0),
                (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0),
                (os.POSIX_SPAWN_OPEN, 2, os.devnull, os.O_WRONLY, 0),
            ],
            # Ctrl-C reaches the process that started it, and that one decides.
            setsid=True,
        )
        fence = Fence(_identify(maker))

        def release() -> Fence:
            os.write(writer, b"go\n")
            return Fence(fence.maker, find_first("fence.sh", mark, within_s=300))

        yield fence, release
    finally:
        os.close(reader)
        os.close(writer)


def take_down(fence: Fence, mark: str) -> None:
    """End everything below the fence with that mark and wait until it has gone; if it has ended, that is fine."""
    if fence.first is not None:
        fell(fence.first)
    # The maker ends with what it made.
    fell(fence.maker)
    # Interrupted before the first process was known: it may have been told to go on.
    for process in _ending_with("fence.sh", mark):
        fell(process)
    # Bury the maker, if this is the process that started it.
    with suppress(ChildProcessError):
        os.waitpid(fence.maker.pid, 0)


def find_first(*last_arguments: str, within_s: float) -> ProcessId:
    """Find the name space's first process whose command line ends so. Raises `ToolError` if none appears."""
    deadline = os.times().elapsed + within_s
    while os.times().elapsed < deadline:
        for process in _ending_with(*last_arguments):
            if _is_first(process):
                return process
        select.select([], [], [], 0.01)
    raise ToolError(f"no name space of {' '.join(last_arguments)} after {within_s:g} s")


def enter(process: ProcessId, argv: Sequence[str]) -> list[str]:
    """Give the command that runs `argv` where a live process is. Raises `ToolError` if it ended."""
    if not is_alive(process):
        raise ToolError(f"process {process.pid} has ended: start the cluster again")
    spaces = ["--mount", "--uts", "--ipc", "--net", "--pid"]
    return ["nsenter", "--target", str(process.pid), *spaces, "--", *argv]


def fell(process: ProcessId, within_s: float = 300) -> None:
    """Kill the first process of a name space and wait until all of it has gone. Gone already is fine.

    The kernel reports its end only after every process below it has ended. Raises `ToolError` if it does
    not end.
    """
    try:
        handle = os.pidfd_open(process.pid)
    except OSError:
        # No such process, or the number is a thread's by now (EINVAL; ENOENT since Linux 6.15).
        if is_alive(process):
            raise
        return
    try:
        # Compared after opening: the handle cannot come to mean another process.
        if not is_alive(process):
            return
        _kill(handle)
        ready, _, _ = select.select([handle], [], [], within_s)
        if not ready:
            raise ToolError(f"process {process.pid} still runs {within_s:g} s after it was killed")
    finally:
        os.close(handle)


def _kill(handle: int) -> None:
    """Kill the process that a pid file descriptor stands for; it may have ended."""
    try:
        signal.pidfd_send_signal(handle, signal.SIGKILL)
    except ProcessLookupError:
        return


def _identify(pid: int) -> ProcessId:
    process = process_id(pid)
    if process is None:
        raise ToolError("unshare ended at once: name spaces cannot be made here (run as root)")
    return process


def _ending_with(*last_arguments: str) -> Iterator[ProcessId]:
    """Find the live processes whose command line ends so; of the first of these words, only its end counts."""
    script, *others = last_arguments
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        with suppress(FileNotFoundError, ProcessLookupError):
            arguments = (folder / "cmdline").read_text(errors="replace").rstrip("\0").split("\0")
            tail = arguments[-len(last_arguments) :]
            if tail[0].endswith(script) and tail[1:] == others:
                process = process_id(int(folder.name))
                if process is not None:
                    yield process


def _is_first(process: ProcessId) -> bool:
    try:
        status = Path(f"/proc/{process.pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    numbers = next(line for line in status.splitlines() if line.startswith("NSpid:")).split()
    return numbers[-1] == "1" and len(numbers) > 2
