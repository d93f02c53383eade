"""`env --runtime` for a runtime that reads CDI devices: what a container gets by its device, and what it does not."""

from __future__ import annotations

import argparse
import os
import shlex
from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase

from lumisite.cli.output import print_result
from lumisite.render.cdi import CdiDevice, cdi_devices
from lumisite.render.made_up_step import Step
from lumisite.site.cdi_names import SEVERAL, kind_of
from lumisite.site.entries import Setting
from lumisite.site.images import family_by_path
from lumisite.site.ledger import Verdict, default_family
from lumisite.site.model import Site
from lumisite.site.plans import LoadedPlan
from lumisite.site.selection import Selection
from lumisite.text import counted, printable


def print_device(
    arguments: argparse.Namespace, site: Site, selection: Selection, plans: Sequence[LoadedPlan], step: Step
) -> None:
    """Print the device for an image on the nodes of a step, without an image that for the default family."""
    kind = _kind_for(site, selection, plans, arguments.image)
    name = f"{step.kind}{SEVERAL if step.nodes > 1 else ''}"
    every = cdi_devices(site, selection, plans)
    device = next(device for device in every if device.kind == kind and device.name == name)
    variables = {
        **{name: _variable(value, "device", device.settings.get(name)) for name, value in device.environment.items()},
        **{name: _variable(None, "prolog", verdict) for name, verdict in device.passed.items()},
    }
    document = {
        "device": device.full_name,
        "options": device.options,
        "variables": variables,
        "binds": [
            {"source": mount.source, "target": mount.target, "by": "device", "entry": mount.entry, "why": mount.why}
            for mount in device.mounts
        ],
        "nodes": device.nodes,
        "lost": device.lost,
    }
    print_result(document, _lines(device, step, arguments), as_json=arguments.json)


def _kind_for(site: Site, selection: Selection, plans: Sequence[LoadedPlan], image: str | None) -> str:
    """Return the kind of the devices for an image: those of its plan, of its family, or of the default family."""
    names = [] if image is None else [image, os.path.abspath(image)]  # noqa: PTH100 - links stay as they are typed
    for loaded in plans:
        fits = any(fnmatchcase(name, pattern) for name in names for pattern in loaded.plan.paths)
        if fits and loaded.plan.platform == selection.platform:
            return kind_of(site, loaded.plan.family, loaded.file)
    family = family_by_path(site, *names) or default_family(site, selection.default.releases)
    return kind_of(site, family)


def _variable(value: str | None, by: str, verdict: Verdict[Setting] | None) -> dict[str, str | None]:
    entry, why = ("", "the name of the device") if verdict is None else (verdict.key, str(verdict.entry.why))
    return {"value": value, "by": by, "entry": entry, "why": why}


def _lines(device: CdiDevice, step: Step, arguments: argparse.Namespace) -> Iterator[str]:
    image = "any image" if arguments.image is None else printable(arguments.image)
    yield f"{image} on {counted(step.nodes, 'node')} of {step.partition}, with the CDI device {device.full_name}"
    yield "\nVariables"
    for name, value in device.environment.items():
        yield f"  {name}={printable(value)}"
        if verdict := device.settings.get(name):
            yield f"      {verdict.key}: {verdict.entry.why}"
    yield "\nFrom the task, whose prolog sets them"
    for name, verdict in device.passed.items():
        yield f"  {name}"
        yield f"      {verdict.key}: {verdict.entry.why}"
    yield "\nBinds"
    for mount in device.mounts:
        target = f":{mount.target}" if mount.target != mount.source else ""
        yield f"  {mount.source}{target}{' (ro)' if 'ro' in mount.options else ''}"
        yield f"      {mount.entry}: {mount.why}"
    yield "\nDevice nodes"
    yield from (f"  {path}" for path in device.nodes)
    yield "\nNot in the device"
    yield from (f"  {printable(loss)}" for loss in device.lost)
    yield f"\nOptions: {shlex.join(device.options)}"
