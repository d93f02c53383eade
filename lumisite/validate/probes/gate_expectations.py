"""What the gate probes expect of a site, worked out from its description alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from lumisite.errors import ResolveError
from lumisite.node.topology import topology_of
from lumisite.release.modules import module_version
from lumisite.site.images import family_by_path, has_plugin, holds_by_name
from lumisite.site.model import Family, Site, Validation
from lumisite.site.scalars import TASK
from lumisite.site.selection import Selection
from lumisite.site.settings import Situation, decide, decide_stacks, default_family, judge_settings
from lumisite.validate.probes.gate_affinity import ExpectedAffinity
from lumisite.validate.probes.gate_binds import ExpectedBind, ExpectedBinds
from lumisite.validate.probes.gate_caches import ExpectedCaches
from lumisite.validate.probes.gate_modules import ExpectedModule, ExpectedModules
from lumisite.validate.probes.gate_python import ExpectedPython, ExpectedUserSite
from lumisite.validate.probes.gate_training import ExpectedJax

#: File names under which RCCL and NCCL look for a network plugin (src/plugin/net.cc of both, 2.18 to 2.27).
PLUGINS = ("librccl-net.so", "libnccl-net.so")
FABRIC = "libfabric.so.1"


@dataclass(frozen=True)
class Question:
    """What everything else follows from: the site's validation, the releases, and the image with its family."""

    site: Site
    selection: Selection
    plan: Validation
    image: str
    family_name: str

    @property
    def family(self) -> Family:
        """The image's family."""
        return self.site.families[self.family_name]

    @property
    def situation(self) -> Situation:
        """The situation in which settings and binds are decided; the step's nodes are left open."""
        chosen, inside = self.selection, holds_by_name(self.site, self.image)
        return Situation(
            chosen.platform,
            chosen.cpe[0],
            self.family_name,
            inside.rocm,
            has_plugin(self.site, self.family_name),
            gpus=bool(self.site.kind_of(self.plan.partition).gpus),
            partition=self.plan.partition,
        )


def question(site: Site, selection: Selection, image: str | None) -> Question:
    """Put a question together; without an image it is the one that the site validates. Raises `ResolveError`."""
    if site.validation is None:
        raise ResolveError(f"{site.name} does not say what is validated (a key `validation` would be right)")
    chosen = image or site.validation.image
    family = family_by_path(site, chosen) or default_family(site, selection.rocm[0])
    return Question(site, selection, site.validation, chosen, family)


def expected_modules(asked: Question) -> ExpectedModules:
    """Every module in every version of the selection, with the binds that it brings by itself."""
    site, chosen = asked.site, asked.selection
    found: dict[str, ExpectedModule] = {}
    decisions = decide_stacks(site, chosen)
    for name, module in site.modules.items():
        for stack in chosen.stacks:
            full_name = f"{name}/{module_version(module, stack)}"
            binds = tuple(bind.spec for bind in decisions[stack.name].bound_by(name))
            found.setdefault(full_name, ExpectedModule(full_name, binds))
    return ExpectedModules(tuple(found.values()), f"{site.runtime.prefix}_BINDPATH")


def expected_binds(asked: Question) -> ExpectedBinds:
    """What the family's modules and the helper bind, and where its network libraries come from.

    Which library is used is only judged where it carries traffic: gloo needs none of them.
    """
    family, decision = asked.family, decide(asked.site, asked.situation)
    binds = [
        ExpectedBind(bind.path, bind.target or bind.path, place, bind.required, bind.why)
        for place in (*family.modules, TASK)
        for bind in decision.bound_by(place)
    ]
    uses_plugin = asked.plan.backend == "nccl" and family.plugin != "none"
    return ExpectedBinds(
        binds=tuple(binds),
        family=asked.family_name,
        imports=("torch",),
        plugins=PLUGINS if uses_plugin else (),
        plugin_from="image" if family.plugin == "in-image" else "host",
        library_from=_library_from(family) if uses_plugin else {},
    )


def _library_from(family: Family) -> Mapping[str, Literal["image", "host"]]:
    found: dict[str, Literal["image", "host"]] = {FABRIC: "image"} if family.plugin == "in-image" else {}
    for name in family.libraries:
        if name not in PLUGINS:
            found[name] = "host"
    return found


def expected_affinity(asked: Question) -> ExpectedAffinity:
    """The topology of the partition's node kind, with the bus ids of the platform."""
    name = asked.site.partitions[asked.plan.partition].node_kind
    buses = asked.site.platforms[asked.selection.platform].gpu_bus_ids.get(name, ())
    return ExpectedAffinity(topology_of(name, asked.site.node_kinds[name], buses))


def expected_caches(asked: Question) -> ExpectedCaches:
    """The variables that the ledger sets to private directories."""
    systems = asked.site.file_systems
    return ExpectedCaches(
        variables=tuple(
            dict.fromkeys(
                str(verdict.setting.name)
                for verdict in judge_settings(asked.site, asked.situation)
                if verdict.outcome in ("wins", "may win") and verdict.setting.directory
            )
        ),
        shared=tuple(system.path for system in systems if system.kind == "shared"),
        node_local=tuple(system.path for system in systems if system.kind == "node-local"),
    )


def expected_user_site(asked: Question) -> ExpectedUserSite:
    """Whether the ledger shuts the user site out."""
    verdicts = judge_settings(asked.site, asked.situation, ["PYTHONNOUSERSITE"])
    return ExpectedUserSite(any(verdict.outcome == "wins" and verdict.setting.value for verdict in verdicts))


def expected_python(asked: Question) -> ExpectedPython:
    """Which Python the family's activation gives."""
    family = asked.family
    return ExpectedPython(asked.family_name, family.activation, tuple(family.prepend_path), ("torch",))


def expected_jax(asked: Question) -> ExpectedJax:
    """The platform that JAX should find on the partition's nodes, one device for each rank."""
    return ExpectedJax("gpu" if asked.site.kind_of(asked.plan.partition).gpus else "cpu")
