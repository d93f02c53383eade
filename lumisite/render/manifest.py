"""A rendered tree's own description, `MANIFEST.json`: inputs, meaning, and the hash of every file.

The tree is a mapping of relative POSIX path to `RenderedFile`. The manifest is its last file and lists all
the others, so a tree on disk can be judged without rendering it again.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from lumisite.errors import DifferenceError, wrong_type
from lumisite.findings.finding import Finding
from lumisite.paths import PROLOG
from lumisite.site.json_file import JsonFile
from lumisite.site.load import LoadedSite, description_name
from lumisite.site.yaml import joined

MANIFEST = "MANIFEST.json"
LARGEST_MANIFEST_BYTES = 8 * 1024 * 1024

#: What a file may be: a mode, or a link to another file of its folder.
LINK = "link"
_MODES = ("0644", "0755", LINK)

_RELEASE_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,99}")
_SHA256 = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True)
class RenderedFile:
    """One file of a rendered tree, or a link: then `text` is the name of another file in its folder."""

    text: str
    executable: bool = False
    is_link: bool = False

    @property
    def mode(self) -> str:
        """The permission bits on disk, whatever the umask is, or `link`."""
        return LINK if self.is_link else "0755" if self.executable else "0644"


@dataclass(frozen=True)
class FileEntry:
    """What the manifest knows of one file: `mode` is `0644`, `0755` or `link`; a link has the hash of its target."""

    sha256: str
    mode: str


@dataclass(frozen=True)
class ModuleSummary:
    """What one module means to its users, for `diff`.

    `binds` are the paths that it hands to the runtime; `provides` are the host things of interest behind
    them, such as one library version inside a bound folder. `environment` holds the variables that the module
    itself sets.
    """

    binds: tuple[str, ...] = ()
    provides: tuple[str, ...] = ()
    loads: tuple[str, ...] = ()
    conflicts: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class ManifestLibrary:
    """A library that a plan counts on: the host's file, where containers have it, and its SONAME."""

    source: str
    target: str
    soname: str


@dataclass(frozen=True)
class PlanSummary:
    """What a stored plan needs of the host: shell patterns of its image, that file's header digest if known, and files.

    `folders` are those that the wrapper puts on the library path.
    """

    images: tuple[str, ...] = ()
    digest: str = ""
    libraries: tuple[ManifestLibrary, ...] = ()
    folders: tuple[str, ...] = ()


@dataclass(frozen=True)
class Manifest:
    """The content of `MANIFEST.json`.

    `stacks` maps the name of each stack to its releases, `inputs` maps the name of each input to its SHA-256,
    `modules` maps `name/version` to its meaning, `defaults` maps a name without a version to the module that it loads,
    `plans` maps the name of each stored plan that was compiled in to what it needs, `tasks` maps a group of what the
    helper does to names and values, and `files` lists every file of the tree but the manifest itself.
    """

    release: str
    lumisite: str
    site: str
    platform: str
    stacks: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    inputs: Mapping[str, str] = field(default_factory=dict)
    modules: Mapping[str, ModuleSummary] = field(default_factory=dict)
    tasks: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    plans: Mapping[str, PlanSummary] = field(default_factory=dict)
    defaults: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, FileEntry] = field(default_factory=dict)

    @property
    def leads(self) -> dict[str, str]:
        """Each name that users may type, and the module that they get."""
        return {**self.defaults, **{name: name for name in self.modules}}


#: What is said where there is no release.
NO_MANIFEST = Manifest(release="", lumisite="", site="", platform="")


def file_entries(files: Mapping[str, RenderedFile]) -> dict[str, FileEntry]:
    """Describe the files of a tree for its manifest."""
    return {path: FileEntry(sha256_of(file.text.encode()), file.mode) for path, file in files.items()}


def sha256_of(content: bytes) -> str:
    """Return the SHA-256 of some bytes as 64 lower-case hexadecimal digits."""
    return hashlib.sha256(content).hexdigest()


def format_manifest(manifest: Manifest) -> str:
    """Return the text of `MANIFEST.json`: the same manifest always gives the same bytes."""
    return _FILE.encode(manifest)


def parse_manifest(content: bytes, where: str) -> Manifest:
    """Read a manifest that may hold anything; `where` is the file that the error names.

    Raises `DifferenceError`, since a manifest that does not read is not what lumisite wrote.
    """
    return _FILE.decode(content, Manifest, where, (_faults,))


_FILE = JsonFile(
    name="manifest",
    key="format",
    written_by="lumisite render",
    error=DifferenceError,
    complete=True,
)


def _faults(manifest: Manifest) -> Iterator[Finding]:
    """Find what no manifest that lumisite wrote would say."""
    if not is_release_id(manifest.release):
        yield wrong_type(manifest.release, "release id", "letters, digits and ._+-, at most 100").finding("release")
    for path, entry in manifest.files.items():
        subject = joined("files", path)
        if path_fault(path) or path == MANIFEST:
            yield wrong_type(path, "path of a file of a rendered tree", PROLOG).finding(subject)
        if not _SHA256.fullmatch(entry.sha256):
            yield wrong_type(entry.sha256, "digest", "64 lower-case hexadecimal digits").finding(f"{subject}.sha256")
        if entry.mode not in _MODES:
            yield wrong_type(entry.mode, "mode of a file", "0644, 0755 or link").finding(f"{subject}.mode")


def is_rendered_from(manifest: Manifest, loaded: LoadedSite) -> bool:
    """Return whether a release is of the present text of a description."""
    return manifest.inputs.get(description_name(loaded.site), "") == sha256_of(loaded.data)


def path_fault(path: str) -> str:
    """Return what keeps `path` from being a file of a rendered tree; empty when nothing does."""
    if not path or path.startswith("/"):
        return "is not a relative path"
    if not path.isprintable():
        return "holds a character that does not print"
    if any(part in ("", ".", "..") for part in path.split("/")):
        return "has an empty, `.` or `..` part"
    return ""


def is_release_id(name: str) -> bool:
    """Return whether a folder of this name can be a release."""
    return _RELEASE_ID.fullmatch(name) is not None
