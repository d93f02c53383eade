"""Sets of CPUs as tools write them: `0xfe000000000000`, and hwloc's comma-separated words. Lists are `site.cpus`'.

Every number here is the kernel's CPU number (hwloc `P#`, Slurm's and `taskset`'s numbering too).
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from lumisite.site.cpus import CPU_NUMBER_LIMIT, CpusetError, shown_cpus

_WORD = re.compile(r"(?:0x)?[0-9a-f]{1,8}", re.IGNORECASE)


def mask_of(pu_os: Iterable[int]) -> str:
    """Write CPUs as the mask that `--cpu-bind=mask_cpu` and `taskset` take: `0x`, lower case, no padding.

    >>> mask_of(range(49, 56))
    '0xfe000000000000'
    """
    return hex(sum(1 << number for number in set(pu_os)))


def parse_hwloc_bitmap(text: str) -> frozenset[int] | None:
    """Read hwloc's bitmap: 32-bit words, the highest first, an empty word for zero.

    `None` for a bitmap without an end (`0xf...f`), which hwloc writes for "all there is". Raises `CpusetError`.
    Source: hwloc_bitmap_snprintf in hwloc 2.9's reference manual.

    >>> sorted(parse_hwloc_bitmap("0x00000001,,0x00000003"))
    [0, 1, 64]
    """
    words = text.strip().split(",")
    if words[0] == "0xf...f":
        return None
    if not text.strip() or not all(word == "" or _WORD.fullmatch(word) for word in words):
        raise CpusetError(f"{shown_cpus(text)} is not an hwloc bitmap (such as 0x0000ffff,0xffffffff)")
    if len(words) * 32 > CPU_NUMBER_LIMIT:
        raise CpusetError(f"{shown_cpus(text)} has {len(words)} words (at most {CPU_NUMBER_LIMIT // 32} are read)")
    value = 0
    for word in words:
        value = value << 32 | (int(word, 16) if word else 0)
    return frozenset(_bits(value))


def _bits(value: int) -> tuple[int, ...]:
    return tuple(index for index, bit in enumerate(reversed(bin(value)[2:])) if bit == "1")
