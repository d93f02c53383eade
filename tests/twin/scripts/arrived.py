"""Say what of the host has arrived inside a container: libraries, binds, settings. Runs inside, in each task."""

import os
import socket
from pathlib import Path

PLATFORMS = {"1.15.2.0": "2024-08", "1.22.0": "2026-01"}
SETTINGS = ("SINGULARITY_BINDPATH", "SINGULARITY_BIND", "NCCL_", "GLOO_", "MIOPEN_", "MASTER_", "PYTHONNOUSERSITE")


def main() -> None:
    lines = [f"{socket.gethostname()}, task {os.environ.get('SLURM_PROCID', '-')}"]
    fabrics = sorted(path.name for path in Path("/opt/cray/libfabric").glob("[0-9]*"))
    for fabric in fabrics:
        lines.append(f"  libfabric {fabric}, as on platform {PLATFORMS.get(fabric, 'unknown')}")
    if not fabrics:
        lines.append("  no libfabric of the host")
    cxi = Path("/usr/lib64/libcxi.so.1")
    lines.append(f"  libcxi of the host: {'yes' if cxi.exists() else 'no'}")
    lines += [f"  {name}={value}" for name, value in sorted(os.environ.items()) if name.startswith(SETTINGS)]
    # One write, so that the lines of several tasks are not mixed.
    print("\n".join(lines), flush=True)


if __name__ == "__main__":
    main()
