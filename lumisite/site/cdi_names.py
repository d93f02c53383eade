"""Names of CDI devices: `VENDOR/CLASS=NAME`, made of a site's vendor, a family or a plan, and a node kind.

Source: SPEC.md of cncf-tags/container-device-interface (05ae4b5), "Kind" and "CDI Devices"; what podman 4.3 takes is
less (pkg/cdi/qualified-device.go there at v0.5.0): no dot in the class, and no name of one letter.
"""

from __future__ import annotations

import re
from pathlib import PurePosixPath

from lumisite.findings.catalogue import make_finding
from lumisite.site.decode import Faults, wrong_type
from lumisite.site.model import Site

#: How the name of a device for steps on several nodes ends.
SEVERAL = "-several"
_LABEL = "[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?"
_VENDOR = re.compile(rf"(?=[a-z].{{1,252}}$){_LABEL}([.]{_LABEL})*")
_CLASS = re.compile("[A-Za-z][A-Za-z0-9_-]{0,61}[A-Za-z0-9]")
_NAME = re.compile("[A-Za-z0-9]([A-Za-z0-9_.-]*[A-Za-z0-9])?")


def kind_of(site: Site, family: str, plan: str | None = None) -> str:
    """Return the kind (`VENDOR/CLASS`) of the devices for a family, or for a plan by the name of its file."""
    stem = re.sub("[^A-Za-z0-9_]+", "-", PurePosixPath(plan or "").stem)
    name = family if plan is None else f"plan-{stem[:58]}".rstrip("-_")
    return f"{site.cdi_vendor or site.name}/{name}"


def cdi_names_fit(site: Site) -> Faults:
    """What names of CDI devices are made of is what runtimes take there, and no two of them are one."""
    if "cdi" not in site.emitters:
        if site.cdi_vendor is not None:
            yield make_finding("key-without-effect", "cdi_vendor", needs="`emit: cdi` of a runtime")
        return
    vendor = site.cdi_vendor or site.name
    if not _VENDOR.fullmatch(vendor):
        key = "name" if site.cdi_vendor is None else "cdi_vendor"
        yield wrong_type(vendor, "CDI vendor (`cdi_vendor`)", "hpc.example.org").finding(key)
    for name in site.families:
        if not _CLASS.fullmatch(name):
            yield wrong_type(name, "CDI class", "torch-gpu").finding(f"families.{name}")
    for name in site.node_kinds:
        if name.endswith(SEVERAL):
            yield make_finding("name-reserved", f"node_kinds.{name}", name=f"*{SEVERAL}")
        elif not _NAME.fullmatch(name):
            yield wrong_type(name, "CDI device name", "gpu-node").finding(f"node_kinds.{name}")
