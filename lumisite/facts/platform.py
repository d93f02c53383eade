"""A platform as text of the site description, for a draft and for a site that nobody has described yet."""

from __future__ import annotations

from collections.abc import Mapping

from lumisite.text import Block

#: What may stand as a value: with comments (`Noted`), or `None` where the key is left out.
Value = object


def platform_block(
    *,
    since: Value,
    os: Value,
    slurm: Value,
    kernel: Value,
    stacks: Mapping[str, Block],
    libraries: Value = None,
    gpu_bus_ids: Value,
    source: str,
) -> Block:
    """Give a platform's keys in their order; since a node does not tell all of them, nothing of it is confirmed."""
    keys = {"since": since, "os": os, "slurm": slurm, "kernel": kernel, "stacks": Block(stacks), "libraries": libraries}
    return Block({**keys, "gpu_bus_ids": gpu_bus_ids, "source": source, "confirmed": "no"})


def driven(default: Value, driver: Value, runs: Value, **more: Value) -> Block:
    """Give what a platform says of a stack of which a driver decides what runs."""
    return Block({"driver": driver, "runs": runs, "default": default, **more})


def installed(default: Value, supported: Value) -> Block:
    """Give what a platform says of a stack that the host has."""
    return Block({"default": default, "supported": supported})


def release_of(found: str, source: str) -> dict[str, str]:
    """Give a release that images bring."""
    return {"found": found, "source": source}
