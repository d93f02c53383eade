"""Makes a rank of the probe `communicators` go wrong at its second group, as the file beside this one says.

The file `plan` has what to do and the rank that does it. In every other probe, ranks note here what is left of
the one before them on their node.
"""

import builtins
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

PLACE = Path(__file__).parent
DEED, WHO = (PLACE / "plan").read_text().split()
#: What a rank that hangs has started, by its command line.
CHILD = ("sleep", "4242")
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
    """Let the first collective of the second group go wrong."""
    usual = dist.all_reduce
    groups = []

    def all_reduce(tensor: Any, *, group: Any = None, **more: Any) -> Any:
        if group not in groups:
            groups.append(group)
            if len(groups) == 2 and os.environ["SLURM_PROCID"] == WHO:
                go_wrong()
        return usual(tensor, group=group, **more)

    dist.all_reduce = all_reduce


def go_wrong() -> None:
    """Do what is planned. A rank that hangs hears no signal but the one that nobody can ignore."""
    if DEED == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if DEED == "freeze":
        os.kill(os.getpid(), signal.SIGSTOP)
    if DEED == "hang":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        subprocess.Popen(CHILD, start_new_session=True)
        while True:
            time.sleep(1)


def left_behind() -> "list[str]":
    """List the processes of the probe that are still here."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().decode(errors="replace").split("\0")
        except OSError:
            continue
        if tuple(words[:2]) == CHILD or any(word.endswith("/communicators.py") for word in words):
            found.append(" ".join(words))
    return found


if any(word.endswith("/communicators.py") for word in sys.orig_argv):
    builtins.__import__ = importing
else:
    for process in left_behind():
        with (PLACE / "left").open("a") as stream:
            stream.write(f"{socket.gethostname()}: {process}\n")
