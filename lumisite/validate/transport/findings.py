"""What is found about processes, and how it is told: each thing once, with the processes that it is about."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from typing import TypeAlias

Verdict: TypeAlias = Literal["pass", "fail", "inconclusive"]

#: What differs between lines that say the same.
_ADDRESS = re.compile("0x[0-9a-f]+")
#: Names shown in a reason before it only counts.
NAMES_SHOWN = 4


@dataclass(frozen=True)
class Finding:
    """Something about one process (or, without one, the run) that counts as `verdict`."""

    verdict: Verdict
    text: str
    process: str = ""


def reasons_of(findings: Sequence[Finding]) -> Iterator[str]:
    """Say each thing once, the worst first, with the processes that it is about."""
    alike: dict[tuple[Verdict, str], list[Finding]] = {}
    for finding in findings:
        alike.setdefault((finding.verdict, _ADDRESS.sub("", finding.text)), []).append(finding)
    for same in sorted(alike.values(), key=lambda same: same[0].verdict != "fail"):
        text, names = same[0].text, [finding.process for finding in same if finding.process]
        more = f" and {len(names) - NAMES_SHOWN} more" if len(names) > NAMES_SHOWN else ""
        yield f"{text}: {', '.join(names[:NAMES_SHOWN])}{more}" if names else text


def named(name: str, rank: int | None) -> str:
    """Name a process, by its rank if that is known."""
    return name if rank is None else f"rank {rank} ({name})"


def shortened(text: str) -> str:
    """Give a line of the log, or as much of it as a reason has room for."""
    return text if len(text) <= 120 else text[:117] + "…"
