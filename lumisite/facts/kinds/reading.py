"""Read texts of a node by name: values of files, what files there are, digests, and settings of configuration files."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from lumisite.machine.ldcache import config_lines, glob
from lumisite.machine.tree import Tree, digest_of, first_line, resolve, small_text
from lumisite.text import counted

_LARGEST_DIGEST_BYTES = 64 * 1024 * 1024


def lines_of(tree: Tree, paths: Iterable[str]) -> Iterator[str]:
    """Yield the lines of configuration files, with what they include, without comments and doubled blanks."""
    yield from config_lines(tree, paths, small_text)


def settings_in(lines: Iterable[str]) -> dict[str, str]:
    """Return the settings of lines `key = value`; the last one counts."""
    pairs = (line.partition("=") for line in lines)
    return {key.strip(): value.strip() for key, equals, value in pairs if equals}


def pairs_of(tree: Tree, path: str) -> Iterator[dict[str, str]]:
    """Yield the pairs `Key=Value` of each line, as Slurm's files have several of them; keys in lower case."""
    for line in lines_of(tree, [path]):
        pairs = re.findall(r'(?<![\w.])([\w.]+)\s*[-*+/]?=\s*(?:"([^"]*)"|(\S+))', line)
        yield {key.lower(): quoted or plain for key, quoted, plain in pairs}


def values_of(tree: Tree, patterns: Mapping[str, str]) -> dict[str, str]:
    """Return the first lines of files by name; of several files that differ each value with their number."""
    found = {}
    for name, pattern in patterns.items():
        counts = Counter(filter(None, (first_line(tree, path) for path in glob(tree, pattern))))
        texts = [value if len(counts) == 1 else f"{value} ({count})" for value, count in sorted(counts.items())]
        if texts:
            found[name] = ", ".join(texts)
    return found


def files_of(tree: Tree, patterns: Mapping[str, Iterable[str]]) -> dict[str, str]:
    """Return how many files there are by name, with the rights of devices."""
    found = {}
    for name, alternatives in patterns.items():
        paths = [path for pattern in alternatives for path in glob(tree, pattern)]
        rights = {mode_of(tree, path) for path in paths if "/dev/" in path}
        modes = sorted(f"{mode:04o}" for mode in rights if mode is not None)
        if paths:
            found[name] = " ".join([counted(len(paths), "file"), *(["of mode", " and ".join(modes)] if modes else [])])
    return found


def mode_of(tree: Tree, path: str) -> int | None:
    """Return permission bits; `None` in a tree that has none."""
    mode: int | None = getattr(tree, "mode", lambda _: None)(resolve(tree, path).path)
    return mode


def text_mark(tree: Tree, path: str) -> str:
    """Return the begin of the SHA-256 of a configuration file without its comments, empty where there is no line."""
    lines = "\n".join(lines_of(tree, [path]))
    return f"sha256 {hashlib.sha256(lines.encode()).hexdigest()[:12]}" if lines else ""


def script_mark(tree: Tree, path: str, comment: str = "#") -> str:
    """Return the begin of the SHA-256 of a script without its comments, or of a file that is none.

    What may be in quotes counts as code: what runs must not be taken for a comment.
    """
    text = small_text(tree, path)
    if text is None or "\0" in text:
        return file_mark(tree, path)
    if comment == "--":
        text = re.sub(r"--\[\[.*?\]\]", "", text, flags=re.DOTALL)
    lines = (_without_comment(line, comment).rstrip() for line in text.splitlines())
    code = "\n".join(filter(None, lines))
    return f"sha256 {hashlib.sha256(code.encode()).hexdigest()[:12]}"


def _without_comment(line: str, comment: str) -> str:
    """Return a line without its comment, if that is behind closed quotes and has none; `#!` is no comment."""
    for found in re.finditer(rf"(^|(?<=\s)){comment}(?!!)", line):
        before, after = line[: found.start()], line[found.end() :]
        is_closed = before.count('"') % 2 == before.count("'") % 2 == 0
        if not before.strip() or (is_closed and not re.search("[\"'`]", after)):
            return before
    return line


def file_mark(tree: Tree, path: str) -> str:
    """Return the begin of the SHA-256 of a file, empty where there is none."""
    digest = digest_of(tree, path, _LARGEST_DIGEST_BYTES)
    return f"sha256 {digest[:12]}" if digest else ""


def printable_only(texts: Mapping[str, str]) -> dict[str, str]:
    """Return the texts that a report can have."""
    return {name: text for name, text in texts.items() if text and (name + text).isprintable()}
