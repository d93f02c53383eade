"""Writes the log of a RCCL, where and as NCCL_DEBUG_FILE asks for it.

Where there is a file `hangs`, it hangs as measured with the RCCL of ROCm 7.0: by NCCL_NET_GDR_LEVEL in the first
collective, and without a monitor that sees memory go in the first one of the second communicator.
"""

import os
import socket
import time
from pathlib import Path
from typing import Any

PLACE = Path(__file__).parent.parent.parent


def init_process_group(backend: str, rank: int, world_size: int, timeout: Any) -> None:
    if "NCCL_DEBUG_FILE" not in os.environ:
        return
    name = os.environ["NCCL_DEBUG_FILE"].replace("%h", socket.gethostname()).replace("%p", str(os.getpid()))
    kind = "log-of-sockets" if os.environ.get("NCCL_NET") == "Socket" else "log"
    Path(name).write_text((PLACE / f"{kind}.{rank}").read_text())


def get_world_size() -> int:
    return int(os.environ["SLURM_NTASKS"])


def new_group() -> object:
    return object()


class Work:
    """A collective on its way."""

    def __init__(self, group: object) -> None:
        self.group = group

    def wait(self) -> None:
        first = self.group is None
        if first and os.environ.get("NCCL_NET_GDR_LEVEL") != "PHB":
            return
        if not first and os.environ.get("FI_MR_CACHE_MONITOR") == "userfaultfd":
            return
        while (PLACE / "hangs").exists():
            time.sleep(1)


def all_reduce(tensor: Any, group: object = None, async_op: bool = False) -> Work:
    return Work(group)


def barrier() -> None:
    pass


def destroy_process_group() -> None:
    pass
