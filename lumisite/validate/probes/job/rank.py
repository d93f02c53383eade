"""What every measuring script does for its rank: meet the others, and write one record whatever happens.

A record is OUTDIR/RANK.json. While a rank works, OUTDIR/RANK.at says once a second where it is: of a rank that hangs,
this is all that is left.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import socket
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

# mypy: disable-error-code="import-not-found"
# PyTorch is in the image that this runs in, not where this is checked.

#: How long a rank that failed waits before it ends, so that the others can say what they met, in seconds.
GRACE_S = 1.0


class Rank:
    """Who this rank is, what it was asked, and the record that it fills."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.rank = int(os.environ.get("SLURM_PROCID", "0"))
        self.ranks = int(os.environ.get("SLURM_NTASKS", "1"))
        self.local_rank = int(os.environ.get("SLURM_LOCALID", "0"))
        self.out = Path(options.outdir)
        self.phase = "starting"
        self.record: dict[str, Any] = {"host": socket.gethostname(), "rank": self.rank, "local_rank": self.local_rank}
        self.record["tasks"] = self.ranks
        self.told: dict[str, Any] = {}
        self.at = (self.out / f"{self.rank}.at").open("w")
        self.said = ""
        self.lock = threading.Lock()
        self.device: Any = None
        self.began = time.time()

    def beat(self) -> None:
        """Say where this rank is, for as long as it lives."""
        while True:
            self.say()
            time.sleep(1)

    def say(self) -> None:
        """Write down where this rank is, with what is `told` of that."""
        with self.lock:
            now = {"host": self.record["host"], "rank": self.rank, "phase": self.phase, "time": time.time()}
            # Never shorter than it was: the rest of a longer one would stay behind it.
            self.said = json.dumps({**now, **self.told}).ljust(len(self.said))
            self.at.seek(0)
            self.at.write(self.said)
            self.at.flush()

    def meet(self) -> tuple[Any, Any]:
        """Join the others, as a user's program does; give torch and torch.distributed."""
        torch, dist = self.load()
        self.phase = "joining the other ranks"
        self.join(dist)
        # The first collective makes the connections.
        dist.all_reduce(torch.ones(1, device=self.device))
        self.wait(torch)
        self.record["joined_s"] = time.time() - self.began
        return torch, dist

    def load(self) -> tuple[Any, Any]:
        """Load PyTorch and choose the device; give torch and torch.distributed."""
        self.phase = "loading PyTorch"
        import torch
        import torch.distributed as dist

        missing = [name for name in ("MASTER_ADDR", "MASTER_PORT") if not os.environ.get(name)]
        if missing:
            raise RuntimeError("{} not set in the task, which the module does".format(" and ".join(missing)))
        self.record["torch"] = torch.__version__
        if self.options.backend == "nccl":
            count = torch.cuda.device_count()
            self.record["visible_devices"] = count
            if count == 0:
                raise RuntimeError("PyTorch sees no GPU")
            self.device = torch.device("cuda", self.local_rank % count)
            torch.cuda.set_device(self.device)
            self.record["device"] = _device_name(torch, self.device)
        else:
            self.device = torch.device("cpu")
            torch.set_num_threads(1)
        return torch, dist

    def join(self, dist: Any) -> None:
        """Make the group that every program begins with."""
        limit = datetime.timedelta(seconds=self.options.limit)
        dist.init_process_group(self.options.backend, rank=self.rank, world_size=self.ranks, timeout=limit)
        self.record["world_size"] = dist.get_world_size()

    def wait(self, torch: Any) -> None:
        """Wait until the device has done what it was given."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)

    def write(self) -> None:
        """Write the record; a reader sees all of it or nothing."""
        path = self.out / f"{self.rank}.json"
        partial = path.with_suffix(".partial")
        partial.write_text(json.dumps(self.record))
        partial.rename(path)


def _device_name(torch: Any, device: Any) -> str:
    """Give what tells this GPU from the others of its node, as far as this PyTorch says it."""
    properties = torch.cuda.get_device_properties(device)
    names = [str(getattr(properties, name)) for name in ("uuid", "pci_bus_id") if hasattr(properties, name)]
    if not names:
        visible = [os.environ.get(name, "") for name in ("ROCR_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES")]
        names = [*visible, str(device.index)]
    return "/".join([properties.name, *names])


def run(measure: Callable[[Rank], None], add_options: Callable[[argparse.ArgumentParser], None] | None = None) -> None:
    """Run `measure` for this rank and record what came of it."""
    parser = argparse.ArgumentParser()
    parser.add_argument("outdir")
    parser.add_argument("--backend", choices=("nccl", "gloo"), default="gloo")
    parser.add_argument("--limit", type=float, default=30, help="longest wait for the other ranks, in seconds")
    if add_options:
        add_options(parser)
    rank = Rank(parser.parse_args())
    threading.Thread(target=rank.beat, daemon=True).start()
    try:
        measure(rank)
        rank.phase = "done"
    except BaseException as error:  # whatever it was, the record says so, and the others hear of it
        first = (str(error).strip().splitlines() or [""])[0]
        rank.record["error"] = f"{type(error).__name__}: {first[:500]}"
        rank.record["error_at"] = rank.phase
        rank.record["error_time"] = time.time()
    rank.write()
    sys.stdout.flush()
    failed = "error" in rank.record
    if failed:
        time.sleep(GRACE_S)
    # Threads of a communicator that has failed may never end.
    os._exit(1 if failed else 0)
