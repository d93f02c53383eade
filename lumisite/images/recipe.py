"""Where an image is not what the description says of its family: a recipe changed, or the name is another family's.

What was read in the image counts. The description is the site's to correct, so nothing is guessed here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from lumisite.images.collectives import Collection
from lumisite.images.container import variables_of
from lumisite.images.versions import read_holds
from lumisite.machine.tree import Tree, resolve, small_text
from lumisite.site.images import has_plugin
from lumisite.site.model import Site

_RUNSCRIPT = "/.singularity.d/runscript"
#: What the runtime puts there for an image that has none (`base_environment.go` of Apptainer and SingularityCE).
_NO_RUNSCRIPT = "There is no runscript defined for this container"
_CONDA = "WITH_CONDA"


@dataclass(frozen=True)
class Deviation:
    """One thing that an image has otherwise than its family's `key` states."""

    key: str
    stated: str
    actual: str


def compare_recipe(site: Site, name: str, tree: Tree, held: Mapping[str, Collection] | None = None) -> tuple[str, ...]:
    """Return a line on an image of a family that is not what the description says; else nothing."""
    found = [f"{one.actual} ({one.key}: {one.stated})" for one in deviations(site, name, tree, held)]
    remedy = "What was read counts. Correct the description, or describe images like this as another family"
    return (f"is not what families.{name} says: {'; '.join(found)}. {remedy}",) if found else ()


def deviations(site: Site, name: str, tree: Tree, held: Mapping[str, Collection] | None = None) -> Iterator[Deviation]:
    """Return each thing in which an image of a family differs from the description; `held` is read where not given."""
    family, plugin = site.families[name], read_holds(site, name, tree, held).plugin
    if plugin is not None and family.plugin is not None and plugin != has_plugin(site, name):
        yield Deviation("plugin", family.plugin, "has an OFI plugin" if plugin else "has no OFI plugin")
    if family.activation == "runscript" and _NO_RUNSCRIPT in (small_text(tree, _RUNSCRIPT) or _NO_RUNSCRIPT):
        yield Deviation("activation", family.activation, "has no runscript")
    if family.activation == "with-conda" and _CONDA not in variables_of(tree):
        yield Deviation("activation", family.activation, f"does not set ${_CONDA}")
    for folder in family.prepend_path:
        if resolve(tree, folder).entry is None:
            yield Deviation("prepend_path", folder, "has no such directory")
