"""The flag by which a runtime brings the GPUs in, as entries of the settings ledger: a variable for each flag.

Source of the variables: cmd/internal/cli/action_flags.go of sylabs/singularity and apptainer/apptainer, where each flag
has one of its own name behind the runtime's prefix.
"""

from __future__ import annotations

from dataclasses import replace

from lumisite.site.entries import Setting, When
from lumisite.site.model import Site
from lumisite.site.scalars import Line, Value, VariableName


def with_flags(site: Site) -> Site:
    """Return a site whose ledger has the flags of its runtimes, but for variables that it has already."""
    kinds_by_vendor = _kinds_by_vendor(site)
    number = sum(map(len, kinds_by_vendor.values()))
    settings = list(site.settings)
    for name, runtime in site.runtimes.items():
        for flag in dict.fromkeys(runtime.gpu.values()):
            vendors = [vendor for vendor, brought_by in runtime.gpu.items() if brought_by == flag]
            kinds = [kind for vendor in vendors for kind in kinds_by_vendor.get(vendor, ())]
            variable = f"{runtime.prefix}_{flag}".upper().replace("-", "_")
            if not kinds or any(setting.name == variable for setting in settings):
                continue
            entry = Setting(
                name=VariableName(variable),
                value=Value("1"),
                when=When(gpus=True) if len(kinds) == number else When(kind=tuple(kinds)),
                why=Line(f"as --{flag}, which brings the GPUs into the container (`gpu` of {name})"),
                source=runtime.source,
                confirmed=runtime.confirmed,
            )
            settings.append(entry)
    return replace(site, settings=tuple(settings))


def _kinds_by_vendor(site: Site) -> dict[str, list[str]]:
    """Return the node kinds with GPUs of each vendor, as the stacks of all platforms have them."""
    found: dict[str, list[str]] = {}
    for platform in site.platforms.values():
        for stack in filter(platform.stacks.get, site.gpu_stacks):
            kinds = platform.stacks[stack].kinds
            known = found.setdefault(str(site.stacks[stack].gpu), [])
            for name, kind in site.node_kinds.items():
                if kind.gpus and name not in known and (kinds is None or name in kinds):
                    known.append(name)
    return found
