"""What an admin should know of an image: what its name or its family's description states otherwise, and what it lacks.

What was read in the image counts. Names and descriptions are the site's to correct, so nothing is guessed here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from lumisite.findings.finding import Finding, Severity
from lumisite.images.collectives import Collection
from lumisite.images.environment import variables_of
from lumisite.images.fit import for_other_gpus
from lumisite.images.network import without_network
from lumisite.images.versions import ReadImage
from lumisite.machine.tree import resolve, small_text
from lumisite.site.images import has_plugin, releases_by_name
from lumisite.site.ledger import Situation, harmful_values
from lumisite.vendors import vendor

_RUNSCRIPT = "/.singularity.d/runscript"
#: What the runtime puts there for an image that has none (`base_environment.go` of Apptainer and SingularityCE).
_NO_RUNSCRIPT = "There is no runscript defined for this container"
_CONDA = "WITH_CONDA"


def remarks(image: ReadImage, paths: Sequence[str]) -> tuple[Finding, ...]:
    """Return what is to know of an image; `paths` are its names, where they lead first."""
    copies = [finding for collection in image.collections.values() for finding in _copies(image, collection)]
    return (*_for_other_gpus(image), *_misnamed(image, paths), *copies)


def remarks_on_site(image: ReadImage, family: str | None) -> Iterator[Finding]:
    """Yield what is to know of an image of a family on this site: no libfabric, values of its own that do harm."""
    holds, site = image.holds(family), image.site
    yield from without_network("", holds, Severity.INFO)
    yield from harmful_values(site, Situation(site.platform).with_image(holds), holds.sets, of_image=True)


def compare_recipe(image: ReadImage, family: str) -> Iterator[Finding]:
    """Yield each thing in which an image of a family differs from the site's description of the family."""
    described, plugin = image.site.families[family], image.has_plugin
    subject = f"families.{family}"
    if plugin is not None and described.plugin is not None and plugin != has_plugin(image.site, family):
        actual = f"the image has {'a' if plugin else 'no'} network plugin"
        yield _unlike(f"{subject}.plugin", actual, described.plugin)
    no_runscript = _NO_RUNSCRIPT in (small_text(image.tree, _RUNSCRIPT) or _NO_RUNSCRIPT)
    if described.activation == "runscript" and no_runscript:
        yield _unlike(f"{subject}.activation", "the image has no runscript", described.activation)
    if described.activation == "with-conda" and _CONDA not in variables_of(image.tree):
        yield _unlike(f"{subject}.activation", "the image does not set $WITH_CONDA", described.activation)
    for folder in described.prepend_path:
        if resolve(image.tree, folder).entry is None:
            yield _unlike(f"{subject}.prepend_path", "the image has no such directory", folder)


def _unlike(key: str, actual: str, described: str) -> Finding:
    """Return what an image is, where the description of its family has something else."""
    advice = "correct the description, or describe images like this as another family"
    return Finding("family-unlike", Severity.INFO, f"{actual} (described as: {described})", advice, key)


def _for_other_gpus(image: ReadImage) -> Iterator[Finding]:
    for reason, right in for_other_gpus(image.site, tuple(map(vendor, image.other_gpus))):
        yield Finding("image-unfit", Severity.INFO, reason, f"use {right}")


def _misnamed(image: ReadImage, paths: Sequence[str]) -> Iterator[Finding]:
    """Yield each release that the name states and the contents do not, by its first two numbers."""
    for stack, named in releases_by_name(image.site, *paths).items():
        actual = image.releases.get(stack)
        series = [] if actual is None else re.findall(r"(?:^|, )(\d+\.\d+)", actual.value)
        if actual is not None and series and not any(f"{named}.".startswith(f"{release}.") for release in series):
            title = image.site.stacks[stack].title
            message = f"the name states {title} {named}, the image has {title} {actual.value} ({actual.of})"
            advice = "rename the image; its contents count after `lumisite images --lock` and `lumisite render --lock`"
            yield Finding("image-misnamed", Severity.INFO, message, advice)


def _copies(image: ReadImage, collection: Collection) -> Iterator[Finding]:
    """Yield each copy where an image has several, and what follows where their releases differ."""
    if len(collection.copies) < 2:
        return
    component = image.site.stacks[collection.stack].title
    for copy in collection.copies:
        library = f"{collection.title} {copy.version.value}" if copy.version else collection.title
        release = f"{component} {copy.release.value}" if copy.release else f"an unknown release of {component}"
        yield Finding("collectives-copies", Severity.INFO, f"{library} of {release}", subject=copy.path)
    if not collection.settled:
        message = f"copies are of more than one release of {component}, or of an unknown release"
        advice = "settings that depend on the release are left out; use an image with one copy to get them"
        yield Finding("collectives-copies", Severity.INFO, message, advice, collection.title)
