"""The probes, in the order in which a job runs them."""

from __future__ import annotations

from collections.abc import Sequence

from lumisite.errors import ResolveError
from lumisite.site.decode import suggestion
from lumisite.validate.judge_ddp import DDP
from lumisite.validate.probe import Probe

PROBES: tuple[Probe, ...] = (DDP,)


def chosen(names: Sequence[str]) -> tuple[Probe, ...]:
    """Give the probes of these names, all without any; raises `ResolveError` for one that does not exist."""
    known = [probe.name for probe in PROBES]
    for name in names:
        if name not in known:
            raise ResolveError(f"--probe: there is no probe {name!r} ({suggestion(name, known)})")
    return tuple(probe for probe in PROBES if not names or probe.name in names)
