"""What cannot be right in what a description says of container runtimes."""

from __future__ import annotations

from lumisite.site.decode import Faults, unknown
from lumisite.site.model import Site
from lumisite.site.software import prefix_of


def runtime_faults(site: Site) -> Faults:
    """A runtime says nothing to another kind of consumer than its own, and one of each kind is enough.

    Variables that only a runtime of another kind reads are not in the ledger.
    """
    seen: dict[str, str] = {}
    for name, runtime in site.runtimes.items():
        here = f"runtimes.{name}"
        if runtime.emit == "modulefile" and not runtime.prefix:
            yield f"{here}.prefix", "is missing (SINGULARITY or APPTAINER, by which a modulefile names the binds)"
        if runtime.emit != "modulefile" and seen.setdefault(runtime.emit, name) != name:
            yield f"{here}.emit", f"{seen[runtime.emit]} has {runtime.emit} already (one of each is written)"
        for what, said, reader in (
            ("gpu", runtime.gpu, "modulefile"),
            ("annotations", runtime.annotations, "edf"),
            ("arguments", runtime.arguments, "podman-hpc"),
            ("shared_run", runtime.shared_run, "podman-hpc"),
        ):
            if said and runtime.emit != reader:
                yield f"{here}.{what}", f"nothing reads it with `emit: {runtime.emit}` (only with {reader})"
        yield from unknown(f"{here}.gpu", runtime.gpu, {stack.gpu for stack in site.stacks.values() if stack.gpu})
        for one in runtime.annotations:
            if any(other.startswith(f"{one}.") for other in runtime.annotations):
                yield f"{here}.annotations.{one}", "others begin with it and a dot, which makes it a table"
    for index, setting in enumerate(() if "modulefile" in site.emitters else site.settings):
        if prefix_of(setting.name):
            yield f"settings[{index}].name", f"{setting.name} is read by no runtime of this site (leave it out)"
