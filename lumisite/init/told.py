"""What a node said of itself (collect.sh), as a tree that the readers of nodes take."""

from __future__ import annotations

import posixpath
import shlex
from dataclasses import dataclass, field
from pathlib import Path

from lumisite.errors import ToolError
from lumisite.machine.tree import Entry, Memory, first_line, names_of, small_text
from lumisite.site.read import read_file
from lumisite.vendors import all_fabrics, all_gpus, all_software, all_vendors

_SCRIPT_BYTES = 64 * 1024


def collector() -> str:
    """Give the script that makes a node tell, behind what vendors have; more paths to look for are its arguments."""
    software = [one for _, one in all_software()]
    trees = [f"{start}*" for one in software for start in (*one.folders, *one.series)]
    trees += [path for one in software for path in one.defaults]
    trees += [one.bound for one in all_vendors()]
    trees += [posixpath.dirname(folder) for one in all_vendors() for folder in one.libraries]
    said = {
        "modules": (name for one in all_gpus() for name in one.drivers),
        "classes": (one.folder for one in all_fabrics()),
        "stated": [
            *(sign.paths for one in all_gpus() for sign in one.stated.values()),
            *(f"{start}*/{one.stated.paths}" for one in software if one.stated for start in one.series),
        ],
        "trees": trees,
    }
    words = (f"{name}={shlex.quote(' '.join(dict.fromkeys(filter(None, values))))}" for name, values in said.items())
    script = read_file(Path(__file__).with_name("collect.sh"), _SCRIPT_BYTES).decode()
    return "\n".join((*words, script))


@dataclass(frozen=True)
class Told:
    """A node as it told it: what is not in `files`, `links` or among the parents of these is not there."""

    name: str
    files: dict[str, list[str]] = field(default_factory=dict)
    links: dict[str, str] = field(default_factory=dict)
    folders: dict[str, set[str]] = field(default_factory=lambda: {"/": set()})

    def look(self, path: str) -> Entry | None:
        """Tell what stands at a path."""
        if path in self.links:
            return Entry("link", self.links[path])
        return Entry("file") if path in self.files else Entry("directory") if path in self.folders else None

    def names(self, path: str) -> tuple[str, ...]:
        """Give the names in a directory."""
        return tuple(self.folders.get(path, ()))

    def source(self, path: str) -> Memory:
        """Open a file."""
        return Memory(path, "\n".join(self.files[path]).encode())

    def said(self, what: str) -> str:
        """Give the first line of what a command said; empty where it said nothing that can be shown."""
        return first_line(self, f"/said/{what}") or ""

    def lines(self, path: str) -> list[str]:
        """Give the lines of a file."""
        return (small_text(self, path) or "").splitlines()

    def below(self, path: str) -> list[str]:
        """Give what stands in a directory."""
        return [f"{path.rstrip('/')}/{name}" for name in names_of(self, path)]


def read_told(text: str, name: str) -> Told:
    """Read an answer; what stands before it, such as words of a prolog, is passed over. Raises `ToolError`."""
    told, lines = Told(name), list[str]()
    for line in text.split("\n"):
        kind, _, rest = line.partition(" ")
        path, _, target = rest.partition("\t")
        if line.startswith("|"):
            lines.append(line[1:])
        elif kind in ("F", "L", "D") and path.startswith("/") and posixpath.normpath(path) == path:
            if kind == "F":
                lines = told.files[path] = []
            elif kind == "L":
                told.links[path] = target
            else:
                told.folders.setdefault(path, set())
            while path != "/":
                path, below = posixpath.split(path)
                told.folders.setdefault(path, set()).add(below)
        if line == "END":
            return told
    raise ToolError(f"{name}: the answer has no end, after {len(told.files)} files (the collector ends with END)")
