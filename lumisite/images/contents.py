"""What an image says of itself and which versions it carries, read from its files without running it.

A version is given only where a file or a label states it. `of` says which one did, so that an admin can look.
"""

from __future__ import annotations

import json
import posixpath
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from lumisite.images.container import library_path
from lumisite.machine.ldcache import conf_directories, glob
from lumisite.machine.tree import Place, Tree, resolve, text_of

_LABELS = "/.singularity.d/labels.json"
_LARGEST_TEXT_BYTES = 1024 * 1024
_LARGEST_LIBRARY_BYTES = 8 * 1024 * 1024
_CHUNK_BYTES = 128 * 1024
_LONGEST_BANNER_BYTES = 512

#: Directories of libraries behind those that the image's own loader is told of.
_LIBRARY_FOLDERS = (
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/usr/lib64",
    "/usr/lib",
    "/lib/x86_64-linux-gnu",
    "/lib/aarch64-linux-gnu",
    "/lib64",
    "/lib",
    "/usr/local/lib64",
    "/usr/local/lib",
)
#: Where images put what they build themselves: the folder of each release, and the plugin beside the libraries.
_OWN_FOLDERS = (
    "/opt/rocm/lib",
    "/opt/cray/libfabric/*/lib64",
    "/opt/libfabric*/lib*",
    "/opt/aws-ofi-*",
    "/opt/aws-ofi-*/lib",
)
#: Where Python keeps packages: distributions, virtual environments, conda, and the environments of cotainr.
_PACKAGE_FOLDERS = (
    "/opt/venv/lib/python3*/site-packages",
    "/opt/cotainr/conda/envs/*/lib/python3*/site-packages",
    "/opt/*conda*/envs/*/lib/python3*/site-packages",
    "/opt/*conda*/lib/python3*/site-packages",
    "/LUMI_TYKKY/*/envs/*/lib/python3*/site-packages",
    "/usr/local/lib/python3*/site-packages",
    "/usr/local/lib/python3*/dist-packages",
    "/usr/lib/python3*/site-packages",
    "/usr/lib64/python3*/site-packages",
    "/usr/lib/python3/dist-packages",
)
#: Names under which NCCL and RCCL look for a network plugin (`src/plugin/net.cc` of both).
_PLUGINS = ("librccl-net.so", "libnccl-net.so", "librccl-net-ofi.so", "libnccl-net-ofi.so")

_ROCM = re.compile(r"\d+\.\d+(?:\.\d+)?")
_TORCH = re.compile(r"^__version__\s*(?::[^=]*)?=\s*['\"]([\w.+!-]{1,100})['\"]", re.M)
_PYTHON = re.compile(r"^version(?:_info)?\s*=\s*(\d+\.\d+(?:\.\d+)?)", re.M)
_PKG_CONFIG = re.compile(r"^Version:\s*(\d[\w.+-]{0,60})\s*$", re.M)
#: What glibc says of itself (`csu/version.c`), and the plugin (PACKAGE_STRING in its log lines).
_GLIBC = re.compile(rb"GNU C Library \([^)\0]{1,200}\) (?:stable|development) release version (\d+\.\d+)")
_PLUGIN = re.compile(rb"aws-ofi-(?:nccl|rccl) (\d+\.\d+[\w.+-]{0,40})")


@dataclass(frozen=True)
class Version:
    """A version as it is written, and the file or label that states it."""

    value: str
    of: str


@dataclass(frozen=True)
class Contents:
    """The labels of an image, and of each thing its version; what is not found is not there."""

    labels: Mapping[str, str]
    versions: Mapping[str, Version]


def read_contents(tree: Tree) -> Contents:
    """Read labels and versions; raises a `LumisiteError` for an image that is damaged where they stand."""
    labels = read_labels(tree)
    folders = _library_folders(tree)
    packages = [folder for pattern in _PACKAGE_FOLDERS for folder in glob(tree, pattern)]
    found = {
        "rocm": _rocm(tree),
        "torch": _torch(tree, packages),
        "libfabric": _libfabric(tree, folders),
        "ofi_plugin": _plugin(tree, folders),
        "libcxi": _file(tree, folders, "libcxi.so.1"),
        "glibc": _glibc(tree, folders),
        "python": _python(tree, packages),
    }
    versions = {name: one or _label(labels, name) for name, one in found.items()}
    return Contents(labels, {name: one for name, one in versions.items() if one is not None})


def read_holds(tree: Tree) -> tuple[str | None, bool]:
    """Read what settings depend on: the ROCm release, and whether the OFI plugin is there."""
    rocm = _rocm(tree) or _label(read_labels(tree), "rocm")
    return None if rocm is None else rocm.value, _find(tree, _library_folders(tree), _PLUGINS) is not None


def read_labels(tree: Tree) -> dict[str, str]:
    """Give the labels that a build wrote into the image; labels that are no JSON are none."""
    try:
        labels = json.loads(text_of(tree, _LABELS, _LARGEST_TEXT_BYTES) or "{}")
    except (ValueError, RecursionError):
        return {}
    return {str(key): str(value) for key, value in labels.items()} if isinstance(labels, dict) else {}


def _label(labels: Mapping[str, str], name: str) -> Version | None:
    """Take a label that is named for one thing only, such as `org.example.rocm.version`.

    >>> _label({"org.example.rocm.version": "6.2.4"}, "rocm")
    Version(value='6.2.4', of='label org.example.rocm.version')
    """
    words = {"torch": ("torch", "pytorch"), "ofi_plugin": ("aws-ofi-rccl", "aws-ofi-nccl")}.get(name, (name,))
    for key in sorted(labels):
        last = re.sub(r"[._-]version$", "", key.lower()).rpartition(".")[2]
        if last in words and re.fullmatch(r"v?\d[\w.+-]{0,60}", labels[key]):
            return Version(labels[key], f"label {key}")
    return None


def _rocm(tree: Tree) -> Version | None:
    """Read `.info/version`, which AMD's packages write (ROCm installation guide): `6.2.4-139`."""
    for folder in ("/opt/rocm", *reversed(glob(tree, "/opt/rocm-*"))):
        path = f"{folder}/.info/version"
        match = _ROCM.match((text_of(tree, path, 200) or "").strip())
        if match is not None:
            return Version(match[0], path)
    return _rocm_of_folder(tree) or _rocm_of_rccl(tree)


def _rocm_of_folder(tree: Tree) -> Version | None:
    """Take the release from the name of its folder, `/opt/rocm-6.2.4`, where AMD's own record is not there."""
    for folder in reversed(glob(tree, "/opt/rocm-[0-9]*")):
        match = _ROCM.fullmatch(folder.rpartition("-")[2])
        if match is not None:
            return Version(match[0], folder)
    return None


def _rocm_of_rccl(tree: Tree) -> Version | None:
    """Take the release from the name of RCCL's file: librccl.so.1.0.70002 is of ROCm 7.0.2."""
    for folder in _library_folders(tree):
        for path in glob(tree, f"{folder}/librccl.so.1.0.*"):
            match = re.fullmatch(r"(\d{1,2})(\d\d)(\d\d)", path.rpartition(".")[2])
            if match is not None:
                return Version(".".join(str(int(part)) for part in match.groups()), path)
    return None


def _torch(tree: Tree, packages: Iterable[str]) -> Version | None:
    return _all(
        (match[1], f"{folder}/torch/version.py")
        for folder in packages
        for match in _TORCH.finditer(text_of(tree, f"{folder}/torch/version.py", _LARGEST_TEXT_BYTES) or "")
    )


def _python(tree: Tree, packages: list[str]) -> Version | None:
    """Give the Python of each environment: its configuration, conda's record, or the name of its folder."""
    environments = (folder for folder in packages if "/python3." in folder)
    own = (folder for folder in environments if resolve(tree, f"{_prefix(folder)}/bin/python3").entry is not None)
    system = resolve(tree, "/usr/bin/python3")
    named = re.search(r"/python(3\.\d+)$", system.path) if system.entry is not None else None
    return _all(_python_of(tree, folder) for folder in own) or (Version(named[1], system.path) if named else None)


def _prefix(folder: str) -> str:
    """Give the top of the environment that a folder of packages belongs to."""
    return folder.rpartition("/lib")[0]


def _python_of(tree: Tree, folder: str) -> tuple[str, str]:
    prefix = _prefix(folder)
    series = re.search(r"python(3\.\d+)", folder)
    settings = f"{prefix}/pyvenv.cfg"
    match = _PYTHON.search(text_of(tree, settings, 4096) or "")
    if match is not None:
        return match[1], settings
    name = series[1] if series is not None else "3"
    for record in glob(tree, f"{prefix}/conda-meta/python-{name}.*.json"):
        return posixpath.basename(record).split("-")[1], record
    return name, posixpath.dirname(folder)


def _all(found: Iterable[tuple[str, str]]) -> Version | None:
    """Join what several environments say; one that says the same adds nothing."""
    seen: dict[str, str] = {}
    for value, where in found:
        seen.setdefault(value, where)
    return Version(", ".join(seen), ", ".join(seen.values())) if seen else None


def _library_folders(tree: Tree) -> tuple[str, ...]:
    own = [folder for pattern in _OWN_FOLDERS for folder in glob(tree, pattern)]
    return tuple(dict.fromkeys((*library_path(tree)[0], *conf_directories(tree), *_LIBRARY_FOLDERS, *own)))


def _find(tree: Tree, folders: Iterable[str], names: Iterable[str]) -> Place | None:
    for name in names:
        for folder in folders:
            place = resolve(tree, f"{folder}/{name}")
            if place.entry is not None and place.entry.kind == "file":
                return place
    return None


def _file(tree: Tree, folders: Iterable[str], name: str) -> Version | None:
    """Give the real name of a library, for one that states no release: `libcxi.so.1.5.0`."""
    place = _find(tree, folders, [name])
    return None if place is None else Version(posixpath.basename(place.path), place.path)


def _libfabric(tree: Tree, folders: Iterable[str]) -> Version | None:
    """Give the release of libfabric where its own files state it; the number of its file is another one."""
    place = _find(tree, folders, ["libfabric.so.1"])
    if place is None:
        return None
    folder = posixpath.dirname(place.path)
    settings = f"{folder}/pkgconfig/libfabric.pc"
    match = _PKG_CONFIG.search(text_of(tree, settings, 16_384) or "")
    if match is not None:
        return Version(match[1], settings)
    release = re.search(r"/libfabric[/-](\d+\.\d+[\w.]*)/", place.path)
    return Version(release[1] if release is not None else posixpath.basename(place.path), place.path)


def _plugin(tree: Tree, folders: Iterable[str]) -> Version | None:
    """Give the OFI plugin: the release that it would log, else the name of its file."""
    place = _find(tree, folders, _PLUGINS)
    if place is None:
        return None
    match = _backwards(tree, place.path, _PLUGIN)
    return Version(posixpath.basename(place.path) if match is None else match, place.path)


def _glibc(tree: Tree, folders: Iterable[str]) -> Version | None:
    place = _find(tree, folders, ["libc.so.6"])
    match = None if place is None else _backwards(tree, place.path, _GLIBC)
    return None if place is None or match is None else Version(match, place.path)


def _backwards(tree: Tree, path: str, pattern: re.Pattern[bytes]) -> str | None:
    """Find a text in a library from its end, since constants stand behind the code; read only so far."""
    source = tree.source(path)
    if source is None or source.size > _LARGEST_LIBRARY_BYTES:
        return None
    behind = b""
    for start in reversed(range(0, source.size, _CHUNK_BYTES)):
        chunk = source.read(start, _CHUNK_BYTES)
        match = pattern.search(chunk + behind)
        if match is not None:
            return match[1].decode("ascii", "replace")
        behind = chunk[:_LONGEST_BANNER_BYTES]
    return None


def version_lines(versions: Mapping[str, Version]) -> Iterator[str]:
    """Write versions for people, as `ROCm 6.2.4`."""
    for name, one in versions.items():
        yield f"{TITLES.get(name, name)} {one.value}"


TITLES = {"rocm": "ROCm", "ofi_plugin": "OFI plugin", "python": "Python"}
