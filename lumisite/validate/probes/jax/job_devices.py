"""Record which devices JAX finds and whether they add up, in each rank.

`jax_devices.py OUTDIR [--one-gpu yes] [--selecting VARIABLE]…`, with the variables that choose GPUs. With several
ranks it meets the others by jax.distributed, as a program would. Named so because a file `jax.py` would stand before
the real one.
"""

# mypy: disable-error-code="import-not-found"
# lumisite_record stands beside this file in the job, and JAX is in the image.

import os
from typing import Any

import lumisite_record as record

MEETING_S = 60


def main() -> None:
    """Write the record."""
    facts = record.identity()
    ranks = record.number("SLURM_NTASKS", 1)
    facts["environment"] = record.environment(("MASTER_", "JAX_", "XLA_", "LUMISITE", *record.options("selecting")))
    try:
        facts.update(found(ranks))
    except Exception as error:
        facts["error"] = record.words(error)
    record.leave(facts)


def found(ranks: int) -> "dict[str, object]":
    """Give version, devices and the sum over all devices of 1, 2, 3, …."""
    import jax

    if ranks > 1:
        meet(jax, ranks)
    local, everywhere = jax.local_device_count(), jax.device_count()
    first = jax.process_index() * local
    numbers = jax.numpy.arange(first + 1, first + local + 1, dtype="float32")
    total = jax.pmap(lambda x: jax.lax.psum(x, "all"), axis_name="all")(numbers)
    return {
        "jax": jax.__version__,
        "platform": jax.default_backend(),
        "processes": jax.process_count(),
        "local_devices": local,
        "devices": everywhere,
        "sum": float(total[0]),
    }


def meet(jax: "Any", ranks: int) -> None:
    """Join the other ranks at MASTER_ADDR, which the helper sets; on CPUs gloo carries the collective."""
    own = None
    if record.option("one-gpu") and not selected():
        own = [record.number("SLURM_LOCALID")]
    if not record.option("one-gpu"):
        jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize(
        coordinator_address="{}:{}".format(os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"]),
        num_processes=ranks,
        process_id=record.number("SLURM_PROCID"),
        local_device_ids=own,
        initialization_timeout=MEETING_S,
    )


def selected() -> bool:
    """Tell whether this rank sees one GPU only already."""
    return any(os.environ.get(name) and "," not in os.environ[name] for name in record.options("selecting"))


if __name__ == "__main__":
    main()
