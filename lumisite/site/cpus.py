"""CPU lists as the kernel and Slurm write them."""

from __future__ import annotations

from collections.abc import Iterable


def expand_cpu_list(text: str) -> tuple[int, ...]:
    """Give the numbers of a list that `read_cpu_list` has accepted, in its order.

    >>> expand_cpu_list("1-3,64")
    (1, 2, 3, 64)
    """
    numbers: list[int] = []
    for part in text.split(","):
        first, _, last = part.partition("-")
        numbers.extend(range(int(first), int(last or first) + 1))
    return tuple(numbers)


def format_cpu_list(cpus: Iterable[int]) -> str:
    """Write CPU numbers as the shortest ascending list.

    >>> format_cpu_list([64, 1, 2, 3])
    '1-3,64'
    """
    runs: list[list[int]] = []
    for cpu in sorted(set(cpus)):
        if runs and cpu == runs[-1][1] + 1:
            runs[-1][1] = cpu
        else:
            runs.append([cpu, cpu])
    return ",".join(f"{first}-{last}" if last > first else str(first) for first, last in runs)
