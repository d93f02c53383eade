"""Record which devices JAX finds and whether they add up.

`environment_jax.py OUTDIR [--one-gpu yes] [--selecting NAME]…`, one task for each rank; `selecting` are the variables
that choose GPUs. With several ranks it joins the others by jax.distributed, as a program would.
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
    facts["part"] = "jax"
    facts["environment"] = record.environment(("MASTER_", "JAX_", "XLA_", "LUMISITE", *record.options("selecting")))
    try:
        facts.update(found(record.number("SLURM_NTASKS", 1)))
    except Exception as error:
        facts["error"] = record.words(error)
    record.leave(facts)


def found(ranks: int) -> "dict[str, object]":
    """Return version, devices and the sum over all devices of 1, 2, 3, …."""
    import jax

    if ranks > 1:
        join(jax, ranks)
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


def join(jax: "Any", ranks: int) -> None:
    """Join the other ranks at MASTER_ADDR, which the task prolog sets; on CPUs gloo carries the collective."""
    local_devices = None
    if not record.option("one-gpu"):
        jax.config.update("jax_cpu_collectives_implementation", "gloo")
    elif not any(os.environ.get(name) and "," not in os.environ[name] for name in record.options("selecting")):
        # This rank sees several GPUs.
        local_devices = [record.number("SLURM_LOCALID")]
    jax.distributed.initialize(
        coordinator_address="{}:{}".format(os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"]),
        num_processes=ranks,
        process_id=record.number("SLURM_PROCID"),
        local_device_ids=local_devices,
        initialization_timeout=MEETING_S,
    )


if __name__ == "__main__":
    main()
