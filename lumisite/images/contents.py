"""What an image says of itself and which versions it carries, read from its files without running it.

A version is given only where a file or a label states it. `of` says which one did, so that an admin can look.
"""

from __future__ import annotations

import json
import posixpath
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial

from lumisite.images.container import library_path
from lumisite.machine.ldcache import conf_directories, glob
from lumisite.machine.tree import Tree, resolve, text_of
from lumisite.site.images import Holds, told_release

_LABELS = "/.singularity.d/labels.json"
_LARGEST_TEXT_BYTES = 1024 * 1024
_LARGEST_RECORD_BYTES = 16 * 1024
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
PLUGINS = ("librccl-net.so", "libnccl-net.so", "librccl-net-ofi.so", "libnccl-net-ofi.so")

_ROCM = re.compile(r"\d+\.\d+(?:\.\d+)?")
_TORCH = re.compile(r"^__version__\s*(?::[^=]*)?=\s*['\"]([\w.+!-]{1,100})['\"]", re.M)
_PKG_CONFIG = re.compile(r"^Version:\s*(\d[\w.+-]{0,60})\s*$", re.M)
#: What glibc says of itself (`csu/version.c`), and the plugin (PACKAGE_STRING in its log lines).
_GLIBC = re.compile(rb"GNU C Library \([^)\0]{1,200}\) (?:stable|development) release version (\d+\.\d+)")
_PLUGIN = re.compile(rb"aws-ofi-(?:nccl|rccl) (\d+\.\d+[\w.+-]{0,40})")
#: How people call what has a version, where its key is not the word.
TITLES = {"rocm": "ROCm", "ofi_plugin": "OFI plugin"}


@dataclass(frozen=True)
class Version:
    """A version as it is written, and the file or label that states it."""

    value: str
    of: str


def read_versions(tree: Tree) -> dict[str, Version]:
    """Read the version of each thing that is found; raises a `LumisiteError` for an image that is damaged there."""
    labels = read_labels(tree)
    folders = _library_folders(tree)
    libc = _find(tree, folders, ["libc.so.6"])
    found = {
        "rocm": _rocm(tree, folders),
        "torch": _torch(tree),
        "libfabric": _library(tree, folders, ["libfabric.so.1"], _libfabric),
        "ofi_plugin": _library(tree, folders, PLUGINS, partial(_banner, _PLUGIN)),
        "libcxi": _library(tree, folders, ["libcxi.so.1"]),
        "glibc": None if libc is None else _banner(_GLIBC, tree, libc),
    }
    versions = {name: one or _label(labels, name) for name, one in found.items()}
    return {name: one for name, one in versions.items() if one is not None}


def read_holds(family: str | None, tree: Tree) -> Holds:
    """Read what settings depend on in an image of a family: the ROCm release, and whether the OFI plugin is there."""
    folders = _library_folders(tree)
    rocm = _rocm(tree, folders) or _label(read_labels(tree), "rocm")
    plugin = _find(tree, folders, PLUGINS) is not None
    release = None if rocm is None else told_release(rocm.value)
    return Holds(family, {} if release is None else {"rocm": release}, plugin)


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


def _rocm(tree: Tree, folders: Iterable[str]) -> Version | None:
    """Read `.info/version`, which AMD's packages write (ROCm installation guide): `6.2.4-139`.

    Where it is not there, the name of its folder says it, `/opt/rocm-6.2.4`, or that of RCCL's file:
    librccl.so.1.0.70002 is of ROCm 7.0.2.
    """
    releases = glob(tree, "/opt/rocm-*")[::-1]
    for folder in ("/opt/rocm", *releases):
        path = f"{folder}/.info/version"
        if match := _ROCM.match((text_of(tree, path, 200) or "").strip()):
            return Version(match[0], path)
    for folder in releases:
        if match := _ROCM.fullmatch(folder.rpartition("-")[2]):
            return Version(match[0], folder)
    for path in (path for folder in folders for path in glob(tree, f"{folder}/librccl.so.1.0.*")):
        if match := re.fullmatch(r"(\d{1,2})(\d\d)(\d\d)", path.rpartition(".")[2]):
            return Version(".".join(str(int(part)) for part in match.groups()), path)
    return None


def _torch(tree: Tree) -> Version | None:
    """Join what the environments of an image have; one that has the same adds nothing."""
    seen: dict[str, str] = {}
    for path in (f"{folder}/torch/version.py" for pattern in _PACKAGE_FOLDERS for folder in glob(tree, pattern)):
        if match := _TORCH.search(text_of(tree, path, _LARGEST_TEXT_BYTES) or ""):
            seen.setdefault(match[1], path)
    return Version(", ".join(seen), ", ".join(seen.values())) if seen else None


def _library_folders(tree: Tree) -> tuple[str, ...]:
    own = [folder for pattern in _OWN_FOLDERS for folder in glob(tree, pattern)]
    return tuple(dict.fromkeys((*library_path(tree)[0], *conf_directories(tree), *_LIBRARY_FOLDERS, *own)))


def plugins_in(tree: Tree) -> tuple[str, ...]:
    """Give the paths of all that an image has under the names of a network plugin."""
    paths = (f"{folder}/{name}" for folder in _library_folders(tree) for name in PLUGINS)
    return tuple(path for path in paths if resolve(tree, path).entry is not None)


def _find(tree: Tree, folders: Iterable[str], names: Iterable[str]) -> str | None:
    """Give the real path of the first of some names that is a file in a folder."""
    places = (resolve(tree, f"{folder}/{name}") for name in names for folder in folders)
    return next((place.path for place in places if place.entry is not None and place.entry.kind == "file"), None)


def _library(
    tree: Tree,
    folders: Iterable[str],
    names: Iterable[str],
    stated: Callable[[Tree, str], Version | None] = lambda tree, path: None,
) -> Version | None:
    """Give the release of a library as it is `stated`, else the real name of its file: `libcxi.so.1.5.0`."""
    path = _find(tree, folders, names)
    return None if path is None else stated(tree, path) or Version(posixpath.basename(path), path)


def _libfabric(tree: Tree, path: str) -> Version | None:
    """Give the release of libfabric where its own files state it; the number of its file is another one."""
    settings = f"{posixpath.dirname(path)}/pkgconfig/libfabric.pc"
    if match := _PKG_CONFIG.search(text_of(tree, settings, _LARGEST_RECORD_BYTES) or ""):
        return Version(match[1], settings)
    release = re.search(r"/libfabric[/-](\d+\.\d+[\w.]*)/", path)
    return None if release is None else Version(release[1], path)


def _banner(pattern: re.Pattern[bytes], tree: Tree, path: str) -> Version | None:
    """Find what a library says of itself, from its end, since constants stand behind the code; read only so far."""
    source = tree.source(path)
    if source is None or source.size > _LARGEST_LIBRARY_BYTES:
        return None
    behind = b""
    for start in reversed(range(0, source.size, _CHUNK_BYTES)):
        chunk = source.read(start, _CHUNK_BYTES)
        if match := pattern.search(chunk + behind):
            return Version(match[1].decode("ascii", "replace"), path)
        behind = chunk[:_LONGEST_BANNER_BYTES]
    return None


def version_lines(versions: Mapping[str, Version]) -> Iterator[str]:
    """Write versions for people, as `ROCm 6.2.4`."""
    for name, one in versions.items():
        yield f"{TITLES.get(name, name)} {one.value}"
