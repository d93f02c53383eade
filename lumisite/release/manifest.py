"""A rendered tree's own description, `MANIFEST.json`: inputs, meaning, and the hash of every file.

The tree is a mapping of relative POSIX path to `RenderedFile`. The manifest is its last file and lists all
the others, so a tree on disk can be judged without rendering it again.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from lumisite.errors import DifferenceError, LumisiteError, shown

MANIFEST = "MANIFEST.json"
FORMAT = 1
LARGEST_MANIFEST_BYTES = 64 * 1024 * 1024

_RELEASE_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,99}")
_SHA256 = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True)
class RenderedFile:
    """One file of a rendered tree."""

    text: str
    executable: bool = False

    @property
    def mode(self) -> int:
        """The permission bits on disk, whatever the umask is."""
        return 0o755 if self.executable else 0o644

    def encoded(self, path: str) -> bytes:
        """Give the bytes on disk; `path` is named when the text holds half of a surrogate pair."""
        try:
            return self.text.encode()
        except UnicodeEncodeError as error:
            bad = f"U+{ord(self.text[error.start]):04X}"
            raise LumisiteError(
                f"{path}: holds {bad}, which UTF-8 cannot write; take it out of the value that put it there"
            ) from None


@dataclass(frozen=True)
class FileEntry:
    """What the manifest knows of one file: `mode` is `0644` or `0755`."""

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
class PlannedLibrary:
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
    libraries: tuple[PlannedLibrary, ...] = ()
    folders: tuple[str, ...] = ()


@dataclass(frozen=True)
class Manifest:
    """The content of `MANIFEST.json`.

    `inputs` maps the name of each input to its SHA-256, `modules` maps `name/version` to its meaning, `plans` maps the
    name of each stored plan that was compiled in to what it needs (older manifests say nothing of that),
    `settings` maps a variable that is set in the task to one readable line for each of its entries, and
    `files` lists every file of the tree but the manifest itself.
    """

    release: str
    lumisite: str
    site: str
    platform: str
    cpe: tuple[str, ...] = ()
    rocm: tuple[str, ...] = ()
    inputs: Mapping[str, str] = field(default_factory=dict)
    modules: Mapping[str, ModuleSummary] = field(default_factory=dict)
    settings: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    plans: Mapping[str, PlanSummary] = field(default_factory=dict)
    files: Mapping[str, FileEntry] = field(default_factory=dict)


def file_entries(files: Mapping[str, RenderedFile]) -> dict[str, FileEntry]:
    """Describe the files of a tree for its manifest, leaving out the manifest itself."""
    return {
        path: FileEntry(sha256_of(file.encoded(path)), f"{file.mode:04o}")
        for path, file in files.items()
        if path != MANIFEST
    }


def sha256_of(content: bytes) -> str:
    """Give the SHA-256 of some bytes as 64 lower-case hexadecimal digits."""
    return hashlib.sha256(content).hexdigest()


def format_manifest(manifest: Manifest) -> str:
    """Give the text of `MANIFEST.json`: the same manifest always gives the same bytes."""
    document = {
        "format": FORMAT,
        "release": manifest.release,
        "lumisite": manifest.lumisite,
        "site": manifest.site,
        "platform": manifest.platform,
        "cpe": list(manifest.cpe),
        "rocm": list(manifest.rocm),
        "inputs": dict(manifest.inputs),
        "modules": {name: _module_document(module) for name, module in manifest.modules.items()},
        "settings": {name: list(lines) for name, lines in manifest.settings.items()},
        "plans": {name: asdict(plan) for name, plan in manifest.plans.items()},
        "files": {path: {"sha256": e.sha256, "mode": e.mode} for path, e in manifest.files.items()},
    }
    return json.dumps(document, sort_keys=True, indent=2, ensure_ascii=False) + "\n"


def _module_document(module: ModuleSummary) -> dict[str, Any]:
    return {
        "binds": list(module.binds),
        "provides": list(module.provides),
        "loads": list(module.loads),
        "conflicts": list(module.conflicts),
        "environment": dict(module.environment),
    }


def parse_manifest(content: bytes, where: str) -> Manifest:
    """Read a manifest that may hold anything; `where` is the file that the error names.

    Keys that this version does not know are ignored: what changes the meaning of the others gets a new
    `format`. Raises `DifferenceError`, since a manifest that does not read is not what lumisite wrote.
    """
    document = _document(content, where)
    if document.get("format") != FORMAT or isinstance(document.get("format"), bool):
        found = _value(document["format"]) if "format" in document else "missing"
        raise DifferenceError(f"{where}: format is {found}; this lumisite reads format {FORMAT}")
    return Manifest(
        release=_release_id(document, where),
        lumisite=_text(document, "lumisite", where),
        site=_text(document, "site", where),
        platform=_text(document, "platform", where),
        cpe=_texts(document, "cpe", where),
        rocm=_texts(document, "rocm", where),
        inputs=_text_map(document, "inputs", where),
        modules={
            name: _module(module, f"{where}: modules.{shown(name)}")
            for name, module in _mapping(document, "modules", where).items()
        },
        settings={
            name: _texts({name: lines}, name, f"{where}: settings")
            for name, lines in _mapping(document, "settings", where).items()
        },
        plans={
            name: _plan(plan, f"{where}: plans.{shown(name)}")
            for name, plan in _mapping({"plans": {}, **document}, "plans", where).items()
        },
        files={
            path: _file_entry(path, entry, f"{where}: files.{shown(path)}")
            for path, entry in _mapping(document, "files", where).items()
        },
    )


def path_fault(path: str) -> str:
    """Say what keeps `path` from being a file of a rendered tree; empty when nothing does."""
    if not path or path.startswith("/"):
        return "is not a relative path"
    if not path.isprintable():
        return "holds a character that does not print"
    if any(part in ("", ".", "..") for part in path.split("/")):
        return "has an empty, `.` or `..` part"
    return ""


def _document(content: bytes, where: str) -> dict[str, Any]:
    try:
        document = json.loads(content.decode("utf-8"))
        # Half of a surrogate pair can be written as an escape, and fails far from here when it is printed.
        json.dumps(document, ensure_ascii=False).encode()
    except RecursionError:
        raise DifferenceError(f"{where}: is nested too deep for a manifest") from None
    except ValueError as error:  # UTF-8, JSON, surrogates and numbers of too many digits alike
        raise DifferenceError(f"{where}: is not UTF-8 JSON: {error}") from None
    if not isinstance(document, dict):
        raise DifferenceError(f"{where}: {_value(document)} is not a JSON object")
    return document


def _value(value: object) -> str:
    text = json.dumps(value)
    return text if len(text) <= 60 else text[:57] + "..."


def _need(mapping: Mapping[str, Any], key: str, kind: type, what: str, where: str) -> Any:
    if key not in mapping:
        raise DifferenceError(f"{where}: {key} is missing")
    if not isinstance(mapping[key], kind):
        raise DifferenceError(f"{where}: {shown(key)}: {_value(mapping[key])} is not {what}")
    return mapping[key]


def _text(mapping: Mapping[str, Any], key: str, where: str) -> str:
    text: str = _need(mapping, key, str, "a text", where)
    return text


def _mapping(mapping: Mapping[str, Any], key: str, where: str) -> dict[str, Any]:
    found: dict[str, Any] = _need(mapping, key, dict, "an object", where)
    return found


def _texts(mapping: Mapping[str, Any], key: str, where: str) -> tuple[str, ...]:
    texts = _need(mapping, key, list, "a list of texts", where)
    if not all(isinstance(text, str) for text in texts):
        raise DifferenceError(f"{where}: {shown(key)}: {_value(texts)} is not a list of texts")
    return tuple(texts)


def _text_map(mapping: Mapping[str, Any], key: str, where: str) -> dict[str, str]:
    found = _mapping(mapping, key, where)
    return {name: _text(found, name, f"{where}: {key}") for name in found}


def _release_id(document: Mapping[str, Any], where: str) -> str:
    release = _text(document, "release", where)
    if not _RELEASE_ID.fullmatch(release):
        raise DifferenceError(
            f"{where}: release: {_value(release)} is not a release id (letters, digits and ._+-, at most 100)"
        )
    return release


def is_release_id(name: str) -> bool:
    """Tell whether a folder of this name can be a release."""
    return _RELEASE_ID.fullmatch(name) is not None


def _module(module: object, where: str) -> ModuleSummary:
    if not isinstance(module, dict):
        raise DifferenceError(f"{where}: {_value(module)} is not an object")
    return ModuleSummary(
        binds=_texts(module, "binds", where),
        provides=_texts(module, "provides", where),
        loads=_texts(module, "loads", where),
        conflicts=_texts(module, "conflicts", where),
        environment=_text_map(module, "environment", where),
    )


def _plan(plan: object, where: str) -> PlanSummary:
    if not isinstance(plan, dict):
        raise DifferenceError(f"{where}: {_value(plan)} is not an object")
    libraries = _need(plan, "libraries", list, "a list of objects", where)
    if not all(isinstance(one, dict) for one in libraries):
        raise DifferenceError(f"{where}: libraries: {_value(libraries)} is not a list of objects")
    here = f"{where}: libraries"
    return PlanSummary(
        images=_texts(plan, "images", where),
        digest=_text(plan, "digest", where),
        libraries=tuple(
            PlannedLibrary(*(_text(one, key, here) for key in ("source", "target", "soname"))) for one in libraries
        ),
        folders=_texts(plan, "folders", where),
    )


def _file_entry(path: str, entry: object, where: str) -> FileEntry:
    fault = path_fault(path)
    if fault or path == MANIFEST:
        raise DifferenceError(f"{where}: {fault or 'the manifest cannot list itself'}")
    if not isinstance(entry, dict):
        raise DifferenceError(f"{where}: {_value(entry)} is not an object")
    sha256, mode = _text(entry, "sha256", where), _text(entry, "mode", where)
    if not _SHA256.fullmatch(sha256):
        raise DifferenceError(f"{where}: sha256: {_value(sha256)} is not 64 lower-case hexadecimal digits")
    if mode not in ("0644", "0755"):
        raise DifferenceError(f"{where}: mode: {_value(mode)} is not 0644 or 0755")
    return FileEntry(sha256, mode)
