"""Which subdirectories for better processors the dynamic loader looks into.

Sources: ld.so(8) of man-pages 6.03; of glibc 2.36 `elf/dl-hwcaps.c` and `elf/dl-hwcaps_split.c` (the order),
`sysdeps/x86/cpu-features.c` (a platform of its own only for Intel) and `sysdeps/x86_64/dl-hwcap.h` (the bits). The NEWS
of glibc 2.37 says that the legacy subdirectories are gone.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import product

from lumisite.machine.tree import Tree, text_of

_LARGEST_CPUINFO_BYTES = 64 * 1024
#: What the flags of /proc/cpuinfo must hold for each level of the x86-64 psABI, on top of the one before.
_LEVELS = {
    "x86-64-v2": "cx16 lahf_lm popcnt pni sse4_1 sse4_2 ssse3",
    "x86-64-v3": "abm avx avx2 bmi1 bmi2 f16c fma movbe xsave",
    "x86-64-v4": "avx512bw avx512cd avx512dq avx512f avx512vl",
}
_HWCAP_X86_64, _HWCAP_AVX512, _HWCAP_TLS = 1 << 1, 1 << 2, 1 << 63
_PLATFORM_MASK, _PLATFORM_HASWELL = 0xF << 48, 1 << 50
_LAST_LEGACY = (2, 36)


@dataclass(frozen=True)
class Cpu:
    """A processor: its `levels` of the psABI, best first, what `$PLATFORM` stands for, and whether it has AVX-512."""

    levels: tuple[str, ...] = ()
    platform: str = "x86_64"
    avx512: bool = False

    @property
    def legacy(self) -> tuple[str, ...]:
        """The subdirectories that glibc had up to 2.36, in its order."""
        parts = ("tls", self.platform, *(["avx512_1"] if self.avx512 else []), "x86_64")
        chosen = (zip(parts, one, strict=True) for one in product((True, False), repeat=len(parts)))
        return tuple(filter(None, dict.fromkeys("/".join(part for part, has in one if has) for one in chosen)))

    def takes(self, hwcap: int) -> bool:
        """Tell whether a loader up to 2.36 takes an entry of its cache with these bits."""
        known = _HWCAP_X86_64 | _HWCAP_TLS | _PLATFORM_MASK | (_HWCAP_AVX512 if self.avx512 else 0)
        platform = _PLATFORM_HASWELL if self.platform == "haswell" else 0
        return not hwcap & ~known and hwcap & _PLATFORM_MASK in (0, platform)


def cpu_of(tree: Tree) -> Cpu | None:
    """Read the processor of a tree from its /proc/cpuinfo; `None` without one."""
    text = text_of(tree, "/proc/cpuinfo", _LARGEST_CPUINFO_BYTES) or ""
    flags = re.search(r"^flags\s*:(.*)$", text, re.M)
    if flags is None:
        return None
    has = set(flags[1].split())
    levels: list[str] = []
    for level, wanted in _LEVELS.items():
        if not has.issuperset(wanted.split()):
            break
        levels.insert(0, level)
    intel = re.search(r"^vendor_id\s*:\s*GenuineIntel$", text, re.M) is not None
    haswell = intel and has.issuperset(["avx2", "fma", "bmi1", "bmi2", "abm", "movbe", "popcnt"])
    avx512 = intel and has.issuperset(_LEVELS["x86-64-v4"].split())
    return Cpu(tuple(levels), "haswell" if haswell else "x86_64", avx512)


def has_levels(loader: bytes) -> bool:
    """Tell from the content of a loader whether it knows the glibc-hwcaps subdirectories."""
    return b"glibc-hwcaps" in loader


def has_legacy(loader: bytes) -> bool:
    """Tell from the content of a loader whether it knows the legacy subdirectories; before 2.33 it names no version."""
    if not loader:
        return False
    version = re.search(rb"release version (\d+)\.(\d+)", loader)
    return not has_levels(loader) if version is None else (int(version[1]), int(version[2])) <= _LAST_LEGACY
