"""Variables that lumisite knows nothing of: PLANTED_HANG hangs a rank at its second group, PLANTED_SLOW makes an
all-reduce of so many bytes slow, and no other, and PLANTED_EXIT hangs all ranks when they end, or one has a `segfault`.
"""

import atexit
import builtins
import os
import signal
import sys
import time
from typing import Any

HANG, SLOW = os.environ.get("PLANTED_HANG"), int(os.environ.get("PLANTED_SLOW", "0"))
EXIT = os.environ.get("PLANTED_EXIT")
usual_import = builtins.__import__


def importing(name: str, *rest: Any, **more: Any) -> Any:
    """Import, and change torch.distributed as soon as it is whole."""
    module = usual_import(name, *rest, **more)
    dist = sys.modules.get("torch.distributed")
    if name == "torch.distributed" and hasattr(dist, "new_group"):
        builtins.__import__ = usual_import
        plant(dist)
    return module


def plant(dist: Any) -> None:
    """Change the all-reduce, and what happens at the end."""
    if EXIT == "hang":
        atexit.register(time.sleep, 4242)
    elif EXIT and os.environ.get("SLURM_PROCID") == "1":
        atexit.register(os.kill, os.getpid(), signal.SIGSEGV)
    usual = dist.all_reduce
    groups = []

    def all_reduce(tensor: Any, *, group: Any = None, **more: Any) -> Any:
        if group not in groups:
            groups.append(group)
            if len(groups) == 2 and HANG:
                signal.signal(signal.SIGTERM, signal.SIG_IGN)
                time.sleep(4242)
        if tensor.numel() * tensor.element_size() == SLOW:
            time.sleep(0.05)
        return usual(tensor, group=group, **more)

    dist.all_reduce = all_reduce


if HANG or SLOW or EXIT:
    builtins.__import__ = importing
