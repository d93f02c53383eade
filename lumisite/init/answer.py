"""What a node printed of itself (collect.sh), as a tree that the readers of nodes take."""

from __future__ import annotations

import posixpath
import shlex
from dataclasses import dataclass, field
from pathlib import Path

from lumisite.errors import ToolError
from lumisite.findings.catalogue import make_finding
from lumisite.machine.tree import DirEntry, Memory, first_line, names_of, small_text
from lumisite.site.read import read_file
from lumisite.vendors import all_fabrics, all_gpus, all_software, all_vendors

_SCRIPT_BYTES = 64 * 1024


def collector() -> str:
    """Return the script that reads a node, behind what vendors have; more paths to look for are its arguments."""
    products = [software for _, software in all_software()]
    stated = [sign.paths for gpu in all_gpus() for sign in gpu.stated.values()]
    trees: list[str] = []
    for software in products:
        if software.stated:
            stated += [f"{start}*/{software.stated.paths}" for start in software.series]
        trees += [f"{start}*" for start in (*software.folders, *software.series)]
    trees += [path for software in products for path in software.defaults]
    trees += [vendor.bound for vendor in all_vendors()]
    trees += [posixpath.dirname(folder) for vendor in all_vendors() for folder in vendor.libraries]
    lists = {
        "modules": [name for gpu in all_gpus() for name in gpu.drivers],
        "classes": [fabric.folder for fabric in all_fabrics()],
        "stated": stated,
        "trees": trees,
    }
    words = [f"{name}={shlex.quote(' '.join(dict.fromkeys(filter(None, paths))))}" for name, paths in lists.items()]
    script = read_file(Path(__file__).with_name("collect.sh"), _SCRIPT_BYTES).decode()
    return "\n".join((*words, script))


@dataclass(frozen=True)
class NodeAnswer:
    """A node as it printed it: what is not in `files`, `links` or among the parents of these is not there."""

    name: str
    files: dict[str, list[str]] = field(default_factory=dict)
    links: dict[str, str] = field(default_factory=dict)
    folders: dict[str, set[str]] = field(default_factory=lambda: {"/": set()})

    def look(self, path: str) -> DirEntry | None:
        """Return what is at a path."""
        if path in self.links:
            return DirEntry("link", self.links[path])
        return DirEntry("file") if path in self.files else DirEntry("directory") if path in self.folders else None

    def names(self, path: str) -> tuple[str, ...]:
        """Return the names in a directory."""
        return tuple(self.folders.get(path, ()))

    def source(self, path: str) -> Memory:
        """Open a file."""
        return Memory(path, "\n".join(self.files[path]).encode())

    def output(self, command: str) -> str:
        """Return the first line that a command printed; empty where it printed none that can be shown."""
        return first_line(self, f"/output/{command}") or ""

    def lines(self, path: str) -> list[str]:
        """Return the lines of a file."""
        return (small_text(self, path) or "").splitlines()

    def below(self, path: str) -> list[str]:
        """Return what is in a directory."""
        return [f"{path.rstrip('/')}/{name}" for name in names_of(self, path)]


def parse_answer(text: str, name: str) -> NodeAnswer:
    """Parse an answer; what is before it, such as output of a prolog, is passed over. Raises `ToolError`."""
    answer, lines = NodeAnswer(name), list[str]()
    for line in text.split("\n"):
        kind, _, rest = line.partition(" ")
        path, _, target = rest.partition("\t")
        if line.startswith("|"):
            lines.append(line[1:])
        elif kind in ("F", "L", "D") and path.startswith("/") and posixpath.normpath(path) == path:
            if kind == "F":
                lines = answer.files[path] = []
            elif kind == "L":
                answer.links[path] = target
            else:
                answer.folders.setdefault(path, set())
            while path != "/":
                path, below = posixpath.split(path)
                answer.folders.setdefault(path, set()).add(below)
        if line == "END":
            return answer
    raise ToolError(make_finding("collector-failed", name, files=len(answer.files)))
