"""What an admin should know of an image: what its name or its family's description states otherwise, and what it lacks.

What was read in the image counts. Names and descriptions are the site's to correct, so nothing is guessed here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from lumisite.findings.catalogue import make_finding
from lumisite.findings.finding import Finding, Severity
from lumisite.images.collectives import Collection
from lumisite.images.container import variables_of
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
    situation = Situation(site.platform, holds.stacks, family, holds.plugin, libfabric=holds.libfabric)
    yield from harmful_values(site, situation, holds.sets, of_image=True)


def compare_recipe(image: ReadImage, family: str) -> Iterator[Finding]:
    """Yield each thing in which an image of a family differs from the site's description of the family."""
    described, plugin = image.site.families[family], image.has_plugin
    subject = f"families.{family}"
    if plugin is not None and described.plugin is not None and plugin != has_plugin(image.site, family):
        code = "family-with-plugin" if plugin else "family-without-plugin"
        yield make_finding(code, f"{subject}.plugin", stated=described.plugin)
    no_runscript = _NO_RUNSCRIPT in (small_text(image.tree, _RUNSCRIPT) or _NO_RUNSCRIPT)
    if described.activation == "runscript" and no_runscript:
        yield make_finding("family-without-runscript", f"{subject}.activation", stated=described.activation)
    if described.activation == "with-conda" and _CONDA not in variables_of(image.tree):
        yield make_finding("family-without-conda", f"{subject}.activation", stated=described.activation)
    for folder in described.prepend_path:
        if resolve(image.tree, folder).entry is None:
            yield make_finding("family-without-folder", f"{subject}.prepend_path", stated=folder)


def _for_other_gpus(image: ReadImage) -> Iterator[Finding]:
    if others := image.other_gpus:
        used = dict.fromkeys(vendor(stack.gpu).title for stack in image.site.stacks.values() if stack.gpu)
        built = tuple(vendor(name).title for name in others)
        yield make_finding("image-built-for-others", vendors=built, site=image.site.name, expected=tuple(used))


def _misnamed(image: ReadImage, paths: Sequence[str]) -> Iterator[Finding]:
    """Yield each release that the name states and the contents do not, by its first two numbers."""
    for stack, named in releases_by_name(image.site, *paths).items():
        actual = image.releases.get(stack)
        series = [] if actual is None else re.findall(r"(?:^|, )(\d+\.\d+)", actual.value)
        if actual is not None and series and not any(f"{named}.".startswith(f"{release}.") for release in series):
            title = image.site.stacks[stack].title
            stated = str(named)
            yield make_finding("image-misnamed", component=title, named=stated, actual=actual.value, file=actual.of)


def _copies(image: ReadImage, collection: Collection) -> Iterator[Finding]:
    """Yield each copy where an image has several, and what follows where their releases differ."""
    if len(collection.copies) < 2:
        return
    component = image.site.stacks[collection.stack].title
    for copy in collection.copies:
        library = f"{collection.title} {copy.version.value}" if copy.version else collection.title
        release = copy.release.value if copy.release else None
        yield make_finding("collectives-copy", copy.path, library=library, component=component, release=release)
    if not collection.settled:
        yield make_finding("collectives-releases-differ", collection.title, component=component)
