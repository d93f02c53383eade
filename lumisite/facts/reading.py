"""Read texts of a node by name: values of files, digests, and settings of configuration files."""

from __future__ import annotations

import hashlib
import posixpath
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import TypeAlias

from lumisite.machine.ldcache import config_lines, glob
from lumisite.machine.tree import Tree, digest_of, first_line, is_under, resolve, small_text

#: What a reader returns: lists of words by name, a single value as a list of one; what is not there has an empty one.
Texts: TypeAlias = dict[str, list[str]]
LARGEST_FILE_BYTES = 256 * 1024 * 1024


def values_of(tree: Tree, patterns: Mapping[str, str]) -> Texts:
    """Return the first lines of files by name; of several files that differ each value with their number."""
    found = {}
    for name, pattern in patterns.items():
        counts = Counter(filter(None, (first_line(tree, path) for path in glob(tree, pattern))))
        found[name] = [value if len(counts) == 1 else f"{value} ({count})" for value, count in sorted(counts.items())]
    return found


def mode_of(tree: Tree, path: str) -> int | None:
    """Return permission bits; `None` in a tree that has none."""
    mode: int | None = getattr(tree, "mode", lambda _: None)(resolve(tree, path).path)
    return mode


def owner_of(tree: Tree, path: str) -> int | None:
    """Return the uid of a file's owner, `None` where the tree has none, or where it is root or owns the whole tree."""
    owner, top = (getattr(tree, "owner", lambda _: None)(at) for at in (path, "/"))
    return None if owner in (0, top) else owner


def text_mark(tree: Tree, path: str) -> str:
    """Return the begin of the SHA-256 of a configuration file without its comments, empty where there is no line."""
    return _mark("\n".join(config_lines(tree, [path])))


def script_mark(tree: Tree, path: str, comment: str = "#") -> str:
    """Return the begin of the SHA-256 of a script without its comments, or of a program.

    What may be in quotes counts as code: what runs must not be taken for a comment.
    """
    text = small_text(tree, path)
    if text is None or "\0" in text:
        return file_mark(tree, path)
    if comment == "--":
        text = re.sub(r"--\[\[.*?\]\]", "", text, flags=re.DOTALL)
    code = re.sub(rf"^\s*{comment}(?!!).*|\s{comment}\s[^\"'`\n]*$", "", text, flags=re.MULTILINE)
    return _mark("\n".join(filter(None, map(str.rstrip, code.splitlines()))))


def file_mark(tree: Tree, path: str) -> str:
    """Return the begin of the SHA-256 of a file, empty where there is none."""
    digest = digest_of(tree, path, LARGEST_FILE_BYTES)
    return f"sha256 {digest[:12]}" if digest else ""


def _mark(text: str) -> str:
    return f"sha256 {hashlib.sha256(text.encode()).hexdigest()[:12]}" if text else ""


def folders_of(path: str) -> Iterator[str]:
    """Yield an absolute path and the folders above it."""
    while path.strip("/"):
        yield path
        path = posixpath.dirname(path)
    yield "/"


def is_below(path: str, folders: Iterable[str]) -> bool:
    """Return whether a path is one of some folders, or in one."""
    return any(is_under(path, folder) for folder in folders)
