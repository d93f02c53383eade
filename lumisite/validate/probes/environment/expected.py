"""What the site description says that nodes and ranks have."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Literal, TypeAlias

from lumisite.machine.topology import Topology, topology_of
from lumisite.site.entries import HostPath
from lumisite.site.ledger import decide
from lumisite.site.scalars import TASK
from lumisite.validate.probes.probe import Target

Origin: TypeAlias = Literal["image", "host"]

#: The file name under which NCCL looks for a network plugin, and what has its interface after a name of its own
#: (src/plugin/net.cc of NCCL, 2.18 to 2.27).
PLUGIN = "libnccl-net.so"
FABRIC = "libfabric.so.1"
#: The framework by which libraries come into use, as in a user's program.
FRAMEWORK = "torch"


@dataclass(frozen=True)
class Setup:
    """What follows from the target for its binds, libraries, masks, settings and devices."""

    target: Target

    @cached_property
    def binds(self) -> list[HostPath]:
        """What the family's modules and the task prolog bind."""
        decision = decide(self.target.site, self.target.situation)
        return [bind for module in (*self.target.family.modules, TASK) for bind in decision.bound_by(module)]

    @property
    def plugin_names(self) -> list[str]:
        """The names under which a network plugin may be found, as the vendor's library looks for them."""
        vendor = [f"{self.target.gpu.collectives.library}-net.so"] if self.target.gpu else []
        return list(dict.fromkeys([*vendor, PLUGIN]))

    @cached_property
    def origins(self) -> dict[str, Origin]:
        """Whether each network library must come from the image or the host; of the plugin's names one must open.

        It is only judged where libraries carry traffic: gloo needs none of them.
        """
        family = self.target.family
        if self.target.plan.backend != "nccl" or family.plugin in (None, "none"):
            return {}
        plugin: Origin = "image" if family.plugin == "in-image" else "host"
        fabric = (FABRIC,) if plugin == "image" else ()
        host: dict[str, Origin] = {name: "host" for name in family.libraries if name not in self.plugin_names}
        return {**dict.fromkeys((*self.plugin_names, *fabric), plugin), **host}

    @cached_property
    def topology(self) -> Topology:
        """The topology of the partition's node kind, with the bus ids of the platform."""
        target = self.target
        buses = target.site.platforms[target.selection.platform].gpu_bus_ids.get(target.kind, ())
        return topology_of(target.kind, target.site.node_kinds[target.kind], buses)

    @cached_property
    def directories(self) -> list[str]:
        """The variables that settings lead to private directories."""
        settings = decide(self.target.site, self.target.situation).settings
        applying = [verdict.entry for verdict in settings if verdict.applies]
        return list(dict.fromkeys(str(setting.name) for setting in applying if setting.directory))

    @property
    def private_beginnings(self) -> list[str]:
        """How the paths of the private directories begin that the task prolog makes."""
        return [f"{system.path}/lumisite" for system in self.target.site.private_places]

    @cached_property
    def shuts_user_site_out(self) -> bool:
        """Whether a setting keeps packages of ~/.local out."""
        settings = decide(self.target.site, self.target.situation).settings
        winners = (verdict.entry for verdict in settings if verdict.outcome == "wins")
        return any(setting.name == "PYTHONNOUSERSITE" and setting.value for setting in winners)
