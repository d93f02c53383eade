"""Writes the log of a RCCL, where and as NCCL_DEBUG_FILE asks for it."""

import os
import socket
from pathlib import Path
from typing import Any

PLACE = Path(__file__).parent.parent.parent


def init_process_group(backend: str, rank: int, world_size: int, timeout: Any) -> None:
    name = os.environ["NCCL_DEBUG_FILE"].replace("%h", socket.gethostname()).replace("%p", str(os.getpid()))
    kind = "log-of-sockets" if os.environ.get("NCCL_NET") == "Socket" else "log"
    Path(name).write_text((PLACE / f"{kind}.{rank}").read_text())


def get_world_size() -> int:
    return int(os.environ["SLURM_NTASKS"])


def all_reduce(tensor: Any) -> None:
    pass


def barrier() -> None:
    pass


def destroy_process_group() -> None:
    pass
