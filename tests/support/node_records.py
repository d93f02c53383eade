"""What the script of the probe `node` leaves of a healthy node of the twin."""

from __future__ import annotations

import copy
from typing import Any

from lumisite.validate.probes.node.judge import node
from tests.support.records import target_of

PROBE = node(target_of("twin"))
PATHS = [path for path in PROBE.sruns[0].arguments[6:] if "*" not in path]
#: What is found by patterns: a library, and the device of GPUs.
LIBRARY, KFD = "/opt/cray/libfabric/1.22.0/lib64/libfabric.so.1", "/dev/kfd"
TMP = "55 28 0:55 / /tmp rw,nodev,relatime shared:8 - tmpfs tmpfs rw"
FLASH = "50 28 0:60 / /flash rw,relatime shared:7 - lustre 10.0.0.1@o2ib:/flash rw"


def healthy_node(name: str) -> dict[str, Any]:
    """Return its record; servers, mounts of users, memory and files on local disks differ between nodes."""
    number = int(name[1:])
    counters = {"rx_errors": 2, "tx_errors": 0, "carrier_changes": 2}
    up = {"state": "up", "speed": "200000", "mtu": "9000", "addresses": f"10.1.0.{number}/16 ", "counters": counters}
    files = {path for path in PATHS if ".s" in path or "/spank/" in path or "/bin/" in path}
    paths: dict[str, Any] = {path: {"is": "efrxs" if path in files else "edrxs", "leads": path} for path in PATHS}
    shared = ("/scratch", "/project", "/projappl", "/appl", "/users")
    return {
        "host": name,
        "rank": number - 1,
        "local_rank": 0,
        "now": 1000.0 + number,
        "started": 990,
        "interfaces": {f"hsn{each}": copy.deepcopy(up) for each in range(4)},
        "paths": {**paths, LIBRARY: {"is": "lefrxs"}, KFD: {"is": "erw"}},
        "checksums": [f"77 900 {LIBRARY}"],
        "mounts": [
            "28 1 0:26 / / rw - overlay overlay rw",
            *(
                f"4{at} 28 0:5{at} / {path} rw - lustre 10.0.0.{number}@o2ib:{path} rw"
                for at, path in enumerate(shared)
            ),
            FLASH,
            TMP,
            f"60 50 0:7{number} / /flash/mounted-by-a-user-{number} rw - fuse.squashfuse squashfuse rw",
        ],
        "private": "",
        "facts": {
            "kernel": "6.4",
            "cpus": "0-127",
            "cpu_limit_khz": "3500000",
            "cpu_allowed": "unlimited",
            "governor": "performance ",
            "cpus_given": "128",
            "cpus_allowed": "3,67",
        },
        "resources": [
            f"memory {528000000 + 1000 * number}",
            f"/dev/shm {264000000 + 500 * number} {263990000 - number}",
            f"/tmp 900000000 {(500, 870, 100, 640)[number % 4]}000000",
            "memlock unlimited unlimited",
            "nofile 131072 524288",
            "nproc 2062000 2062000",
            "stack 8388608 unlimited",
        ],
    }
