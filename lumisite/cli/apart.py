"""Two readings at once: big files before and after a change are read in two processes."""

from __future__ import annotations

import os
import stat
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from multiprocessing.connection import Connection
    from typing import TypeVar

    T = TypeVar("T")


#: Below this a second process costs more than it saves (0.1 s to start, and its result has to come over).
APART_BYTES = 32 << 20


def read_both(
    first: Callable[[], T], first_files: Sequence[str], second: Callable[[], T], second_files: Sequence[str]
) -> tuple[T, T]:
    """Do two readings of files, at once where both are big and there are two processors.

    Raises what either raises, the first one's before the second one's, as one after the other would.
    """
    if min(_size(first_files), _size(second_files)) < APART_BYTES or len(os.sched_getaffinity(0)) < 2:
        return first(), second()
    with _started(first) as result:
        try:
            after = second()
        except Exception:
            result()
            raise
        return result(), after


def _size(names: Sequence[str]) -> int:
    """Give the bytes of files; what is not a plain file counts nothing."""
    size = 0
    for name in names:
        with suppress(OSError, ValueError):
            about = Path(name).stat()
            size += about.st_size if stat.S_ISREG(about.st_mode) else 0
    return size


@contextmanager
def _started(work: Callable[[], T]) -> Iterator[Callable[[], T]]:
    """Start work in a process of its own, which ends with the block; give the call that waits for its result.

    Work that did not come to its end there is done again here, which also says why.
    """
    import multiprocessing

    # Not spawned: nothing has to be sent to it, and this process has one thread.
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)
    child = context.Process(target=_send, args=(work, sender), daemon=True)

    def result() -> T:
        try:
            found: T = receiver.recv()
        except EOFError:
            return work()
        return found

    try:
        child.start()
    except OSError:
        yield work
        return
    finally:
        sender.close()
    try:
        yield result
    finally:
        child.kill()
        child.join()
        receiver.close()


def _send(work: Callable[[], T], sender: Connection) -> None:
    import signal

    # Ctrl-C is for the process that started this one, which ends it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with suppress(Exception):
        sender.send(work())
