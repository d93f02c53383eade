"""CPU lists as the kernel, Slurm and people write them: `49-55`, `0-3,8`. Numbers are the kernel's."""

from __future__ import annotations

from collections.abc import Iterable

from lumisite.errors import LumisiteError, UnfitError, wrong_type

CPU_NUMBER_LIMIT = 8192
"""The kernel's own limit, `CONFIG_NR_CPUS` for x86_64: a larger number is damage and would only cost memory."""


class CpusetError(LumisiteError):
    """Text that is no CPU set."""


def parse_number_list(text: str, *, limit: int = CPU_NUMBER_LIMIT) -> tuple[int, ...]:
    """Read `0-3,8` as the kernel, Slurm and `taskset -c` write it; the order of the text is kept.

    An empty text is the empty list. A number twice, a range that goes down, or a number that is not below
    `limit` raises `CpusetError`.

    >>> parse_number_list("4,5,0-2")
    (4, 5, 0, 1, 2)
    """
    numbers: dict[int, None] = {}
    for part in text.split(",") if text.strip() else ():
        first, dash, last = part.strip().partition("-")
        bounds = (first, last if dash else first)
        if not all(bound.isascii() and bound.isdecimal() and len(bound) < 9 for bound in bounds):
            raise CpusetError(wrong_type(part[:60], "list of numbers", "0-3,8").finding(""))
        low, high = map(int, bounds)
        if low > high:
            raise CpusetError(wrong_type(part, "range", f"{high}-{low}").finding(""))
        if high >= limit:
            raise CpusetError(UnfitError(f"{part} is more than {limit - 1}", "use another value").finding(""))
        for number in range(low, high + 1):
            if number in numbers:  # here, or ranges over and over would be a list without end
                raise CpusetError(UnfitError(f"{number} is listed twice", "remove one of the two").finding(""))
            numbers[number] = None
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
