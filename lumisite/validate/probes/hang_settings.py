"""Settings that are known to hang communicators, each with who measured it. What else hangs has no setting to blame."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from lumisite.validate.probes.probe import Backend, Record
from lumisite.validate.probes.ranks import number, part

STUDY = "aniskhan25/lumi-ai-assistant-demo, repro/rccl_startup_gfx90a"
RECIPES = "lumi-ai-factory/laifs-container-recipes"
#: The levels that let the adapter reach GPUs across a PCIe host bridge, by their names and old numbers (NCCL paths.cc).
FAR_LEVELS = ("PHB", "SYS", "3", "4", "5")


@dataclass(frozen=True)
class Suspect:
    """A setting that hangs: `holds` takes its value, the group, and what was done with it; all on several nodes."""

    name: str
    holds: Callable[[str, int, str], bool]
    advice: str


SUSPECTS = (
    Suspect(
        "FI_MR_CACHE_MONITOR",
        lambda value, group, _: group > 1 and value != "userfaultfd",
        "set FI_MR_CACHE_MONITOR=userfaultfd: without it the second communicator hung in 21 of 23 attempts, with it in "
        f"0 of 18 ({STUDY}; {RECIPES} issue 44)",
    ),
    Suspect(
        "NCCL_NET_GDR_LEVEL",
        lambda value, group, doing: group == 1 and doing != "making" and value in FAR_LEVELS,
        "unset NCCL_NET_GDR_LEVEL: with ROCm 7.0 and PHB (once named 3) the first collective between nodes hung on all "
        f"ranks of each run ({STUDY}); {RECIPES} issue 30 warns of SYS too",
    ),
)
#: What a cause shows where no setting is to blame.
SHOWN = {"nccl": tuple(one.name for one in SUSPECTS), "gloo": ("GLOO_SOCKET_IFNAME",)}
#: What to do then.
OTHERWISE = "the step's records have every rank's settings; the probe `transport` keeps the log of NCCL or RCCL"


def suspicion(record: Record, backend: Backend, nodes: int) -> tuple[str, str]:
    """Say which setting of a rank that hangs is to blame, with its value in the container, and what to do."""
    settings = part(record, "settings")
    group, doing = int(number(record, "group") or 0), str(record.get("part"))
    for one in SUSPECTS if backend == "nccl" and nodes > 1 else ():
        if one.holds(str(settings.get(one.name, "")), group, doing):
            return f"suspect {_shown(one.name, settings)}", one.advice
    values = ", ".join(_shown(name, settings) for name in SHOWN[backend])
    return f"no setting that is known to hang ({values})", OTHERWISE


def _shown(name: str, settings: Record) -> str:
    return f"{name}={settings[name]}" if name in settings else f"{name} (not set)"
