"""What every measuring script does for its rank: join the others, and write one record whatever happens.

A record is OUTDIR/RANK.json. While a rank works, OUTDIR/RANK.at says once a second where it is: of a rank that hangs,
this is all that is left. Where a node has several ranks, they share one file of each kind: OUTDIR/HOST.jsonl with a
line for each record, and OUTDIR/HOST.at with a place for each rank.
"""

from __future__ import annotations

import datetime
import json
import os
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lumisite_record

# mypy: disable-error-code="import-not-found"
# PyTorch is in the image that this runs in, not where this is checked.

#: How long a rank that failed waits before it ends, so that the others can record their own errors, in seconds.
GRACE_S = 1.0
#: A rank reports once a second; one that did not for longer than this was stopped meanwhile, in seconds.
FROZEN_S = 5.0
#: The place of a rank in the reports of its node, in bytes; a report that is longer has no details.
REPORT_BYTES = 1 << 15
#: Variables that tell how the libraries were set, as they are in the container; those of the site's vendors are given.
SETTINGS = ("NCCL_", "FI_", "GLOO_")


class Rank:
    """Who this rank is, and the record that it fills; PyTorch and the device are there once it is loaded."""

    torch: Any
    dist: Any
    device: Any

    def __init__(self) -> None:
        self.record: dict[str, Any] = lumisite_record.identity()
        self.rank, self.local_rank = self.record["rank"], self.record["local_rank"]
        self.ranks = self.record["tasks"] = lumisite_record.number("SLURM_NTASKS", 1)
        settings = (*SETTINGS, *lumisite_record.options("settings"))
        self.settings = self.record["environment"] = lumisite_record.environment(settings)
        self.backend = lumisite_record.option("backend", "gloo")
        #: What PyTorch calls the GPUs of its build, or `cpu`.
        self.kind = lumisite_record.option("device", "cpu")
        self.phase = "starting"
        self.details: dict[str, Any] = {}
        self.out = Path(sys.argv[1])
        shared = lumisite_record.shares_node()
        name = self.record["host"] if shared else lumisite_record.file_name(self.record)
        flags = os.O_WRONLY | os.O_CREAT | (0 if shared else os.O_TRUNC)
        self.at = os.open(str(self.out / f"{name}.at"), flags, 0o666)
        self.at_offset = self.local_rank * REPORT_BYTES if shared else 0
        self.written = ""
        self.lock = threading.Lock()
        self.last_report = time.monotonic()
        self.froze = False

    def number(self, name: str) -> int:
        """Return an option that is a whole number."""
        return int(lumisite_record.option(name))

    def beat(self) -> None:
        """Report where this rank is, for as long as it lives."""
        while True:
            self.report()
            time.sleep(1)

    def report(self) -> None:
        """Write where this rank is, with `details` of that, and whether it was stopped since the last report.

        Slurm wakes what it is about to end: a rank that was stopped may write once more before it is killed.
        """
        with self.lock:
            now = {"host": self.record["host"], "rank": self.rank, "phase": self.phase, "time": time.time()}
            # The time was read before: what stops here has an old one.
            began = time.monotonic()
            self.froze = self.froze or began - self.last_report > FROZEN_S
            self.last_report = began
            now |= {"froze": True} if self.froze else {}
            text = json.dumps({**now, **self.details})
            if len(text) >= REPORT_BYTES and lumisite_record.shares_node():
                text = json.dumps(now)
            # Never shorter than it was: the rest of a longer one would stay behind it.
            self.written = text.ljust(len(self.written))
            os.pwrite(self.at, self.written.encode(), self.at_offset)

    def connect(self) -> None:
        """Join the others, as a user's program does."""
        self.load()
        self.phase = "joining the group"
        self.join()
        # The first collective makes the connections.
        self.dist.all_reduce(self.torch.ones(1, device=self.device))
        self.wait()

    def load(self) -> None:
        """Load PyTorch and choose the device."""
        self.phase = "loading PyTorch"
        import torch
        import torch.distributed as dist

        missing = [name for name in ("MASTER_ADDR", "MASTER_PORT") if not os.environ.get(name)]
        if missing:
            raise RuntimeError("{} not set in the task, which the module does".format(" and ".join(missing)))
        self.torch, self.dist = torch, dist
        self.record["torch"] = torch.__version__
        if self.kind == "cpu":
            self.device = torch.device("cpu")
            torch.set_num_threads(1)
            return
        gpus = getattr(torch, self.kind)
        count = gpus.device_count()
        if count == 0:
            raise RuntimeError("PyTorch: no GPU")
        self.device = torch.device(self.kind, self.local_rank % count)
        gpus.set_device(self.device)

    def join(self) -> None:
        """Make the group that every program begins with."""
        limit = datetime.timedelta(seconds=self.number("limit"))
        self.dist.init_process_group(self.backend, rank=self.rank, world_size=self.ranks, timeout=limit)
        self.record["world_size"] = self.dist.get_world_size()

    def wait(self) -> None:
        """Wait until the device has done what it was given."""
        if self.kind != "cpu":
            getattr(self.torch, self.kind).synchronize(self.device)

    def leave(self) -> None:
        """Leave the others, when all are done."""
        self.phase = "leaving the group"
        self.dist.barrier()
        # gloo's group stays: taking it down may wait, with Python's lock, for a thread that needs that lock (PyTorch's
        # issue 56297, cured by its pull request 154976 in 2025), and the process ends at once anyhow.
        if self.backend != "gloo":
            self.dist.destroy_process_group()


def run(measure: Callable[[Rank], None]) -> None:
    """Run `measure` for this rank and record what came of it."""
    rank = Rank()
    threading.Thread(target=rank.beat, daemon=True).start()
    try:
        measure(rank)
        rank.leave()
    except BaseException as error:  # whatever it was, the record says so, and the others hear of it
        rank.record.update(error=lumisite_record.words(error), error_at=rank.phase, error_time=time.time())
        if "EADDRINUSE" in str(error) or "address already in use" in str(error).lower():
            port = lumisite_record.number("MASTER_PORT")
            rank.record.update(port_in_use=port, port_users=lumisite_record.users_of_port(port))
    failed = "error" in rank.record
    lumisite_record.leave(rank.record)
    sys.stdout.flush()
    if failed:
        time.sleep(GRACE_S)
    # Threads of a communicator that has failed may never end.
    os._exit(1 if failed else 0)
