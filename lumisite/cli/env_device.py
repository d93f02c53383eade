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
    document = {
        "device": device.full_name,
        "options": device.options,
        "variables": {
            **{
                name: _variable(value, "device", device.settings.get(name))
                for name, value in device.environment.items()
            },
            **{name: _variable(None, "prolog", verdict) for name, verdict in device.passed.items()},
        },
        "binds": [{**vars(mount), "by": "device"} for mount in device.mounts],
        "nodes": device.nodes,
        "lost": device.lost,
    }
    image = "any image" if arguments.image is None else printable(arguments.image)
    nodes = f"{counted(step.nodes, 'node')} of {step.partition}"
    title = f"{image} on {nodes}, with the CDI device {device.full_name}"
    print_result(document, [title, *_lines(device)], as_json=arguments.json)


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


def _lines(device: CdiDevice) -> Iterator[str]:
    """Yield what the device has and has not, in parts, and the options that use it."""
    variables = {f"{name}={printable(value)}": device.settings.get(name) for name, value in device.environment.items()}
    binds = {}
    for mount in device.mounts:
        target = f":{mount.target}" if mount.target != mount.source else ""
        binds[f"{mount.source}{target}{' (ro)' if 'ro' in mount.options else ''}"] = f"{mount.entry}: {mount.why}"
    for title, rows in (
        ("Variables", {text: _reason(verdict) for text, verdict in variables.items()}),
        ("From the task, whose prolog sets them", {name: _reason(verdict) for name, verdict in device.passed.items()}),
        ("Binds", binds),
        ("Device nodes", dict.fromkeys(device.nodes, "")),
        ("Not in the device", dict.fromkeys(map(printable, device.lost), "")),
    ):
        yield f"\n{title}"
        for text, reason in rows.items():
            yield f"  {text}"
            yield from [f"      {reason}"] if reason else []
    yield f"\nOptions: {shlex.join(device.options)}"


def _reason(verdict: Verdict[Setting] | None) -> str:
    return "" if verdict is None else f"{verdict.key}: {verdict.entry.why}"
