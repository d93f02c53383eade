"""One JAX task of several: it joins the others and says how many they are; it ends with a line `RAN` of JSON."""

# mypy: disable-error-code="import-not-found"
# JAX is in the image that this runs in, not where this is checked.

import json
import os

import jax

ranks, rank = int(os.environ["SLURM_NTASKS"]), int(os.environ["SLURM_PROCID"])
address = f"{os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}"
jax.distributed.initialize(address, ranks, rank)
print(
    "RAN " + json.dumps({"rank": rank, "ranks": jax.process_count(), "cpus": len(os.sched_getaffinity(0))}), flush=True
)
jax.distributed.shutdown()
