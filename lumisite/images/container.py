"""What a container of an image sees: the image, the host paths that modules bind over it, and its library path.

What the image's shell scripts set is evaluated as far as possible without running them. Read are assignments,
`export`, `unset` and the usual expansions, as builders of images write them; every line counts as run. Written here:
the parsers of shell on PyPI are under the GPL, or only split words. Source: chapter 2 of POSIX.1-2017.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from lumisite.machine.tree import ByteSource, DirEntry, Tree, is_under, names_of, resolve, text_of

_VARIABLE = "LD_LIBRARY_PATH"
_ENVIRONMENT = "/.singularity.d/env"
#: Where runtimes put host libraries, by a flag for GPUs.
RUNTIME_LIBRARIES = "/.singularity.d/libs"
_LARGEST_SCRIPT_BYTES = 256 * 1024
#: Scripts that runtimes put into every image; what they do to LD_LIBRARY_PATH is to append their own directory.
_OF_RUNTIMES = ("01-", "94-", "95-", "99-")


@dataclass(frozen=True)
class Bound:
    """A host path that a module binds: `real` is where `source` leads there, `target` the path in the container."""

    source: str
    real: str
    target: str
    by: str


@dataclass(frozen=True)
class ContainerTree:
    """An image with host paths bound over it; the last bind of a path wins, as for the runtime."""

    image: Tree
    host: Tree
    bound: tuple[Bound, ...] = ()

    @property
    def name(self) -> str:
        """The image."""
        return self.image.name

    def look(self, path: str) -> DirEntry | None:
        """Return what is at a path; a folder that only leads to a bind is there too."""
        host_path = self.host_path(path)
        if host_path is not None:
            return self.host.look(host_path)
        entry = self.image.look(path)
        if entry is None and any(bound.target.startswith(path + "/") for bound in self.bound):
            return DirEntry("directory")
        return entry

    def names(self, path: str) -> tuple[str, ...]:
        """Return the names in a directory; of a bind into a folder of the image, not its name."""
        host_path = self.host_path(path)
        return self.image.names(path) if host_path is None else self.host.names(host_path)

    def source(self, path: str) -> ByteSource | None:
        """Return a reader of a file."""
        host_path = self.host_path(path)
        return self.image.source(path) if host_path is None else self.host.source(host_path)

    def host_path(self, path: str) -> str | None:
        """Return the host path behind a path of the container, `None` where it is the image's own."""
        bound = self.bound_at(path)
        return None if bound is None else bound.real.rstrip("/") + path[len(bound.target) :] or "/"

    def bound_at(self, path: str) -> Bound | None:
        """Return the bind that covers a path of the container."""
        return next((bound for bound in reversed(self.bound) if is_under(path, bound.target)), None)


def container_of(image: Tree, host: Tree, binds: Sequence[tuple[str, str, str]]) -> ContainerTree:
    """Return an image with binds: source on the host, target, and module. A source that the host lacks is left out."""
    bound = []
    for source, target, by in binds:
        on_host = resolve(host, source)
        if on_host.entry is not None:
            folder = resolve(image, posixpath.dirname(target))
            top = folder.path if folder.entry is not None else posixpath.dirname(target)
            bound.append(Bound(source, on_host.path, posixpath.join(top, posixpath.basename(target)), by))
    return ContainerTree(image, host, tuple(bound))


def library_path(image: Tree) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return LD_LIBRARY_PATH as an image's own environment sets it, and what of that could not be worked out.

    Read are the scripts that builds write (`%environment`, and ENV of a Docker image); the runtime's own append its
    directory of injected libraries. An image without such scripts sets nothing.
    """
    folder = resolve(image, _ENVIRONMENT)
    if folder.entry is None or folder.entry.kind != "directory":
        return (), ()
    values = variables_of(image)
    parts = [part for part in re.split("[:;]", values[_VARIABLE]) if part]
    unknown = tuple(part.replace(UNKNOWN, "") for part in parts if not part.startswith("/") or UNKNOWN in part)
    return (*(part for part in parts if part.startswith("/") and UNKNOWN not in part), RUNTIME_LIBRARIES), unknown


def variables_of(image: Tree, before: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the variables `before` after the scripts of an image; what is not known begins with UNKNOWN."""
    values = {_VARIABLE: "", **(before or {})}
    for name in names_of(image, _ENVIRONMENT, None):
        if name.endswith(".sh") and not name.startswith(_OF_RUNTIMES):
            evaluate(text_of(image, f"{_ENVIRONMENT}/{name}", _LARGEST_SCRIPT_BYTES) or "", values)
            values.setdefault(_VARIABLE, "")
    return values


#: Begins what is not known: a command, or a variable that no script sets.
UNKNOWN = "\0"
#: More than builders nest; deeper ones are not known.
_DEEPEST = 40
_BETWEEN_COMMANDS = "\n;&|()"
_BETWEEN_WORDS = " \t\r" + _BETWEEN_COMMANDS
_ASSIGNED = re.compile(r"([A-Za-z_]\w*)=")
#: `$NAME`, or the begin of `${NAME}`, with one of the operators that ask whether it is set.
_PARAMETER = re.compile(r"\$(?:([A-Za-z_]\w*)|\{([A-Za-z_]\w*)(?:(:?[-+])|(?=\})))")


def evaluate(script: str, values: dict[str, str]) -> None:
    """Carry out the assignments of a script on `values`: those with which a command begins, or after `export`."""
    at = 0
    command: str | None = None
    while at < len(script):
        if script[at] in _BETWEEN_WORDS:
            if script[at] in _BETWEEN_COMMANDS:
                command = None
            at += 1
            continue
        if script[at] == "#":
            end = script.find("\n", at)
            at = len(script) if end < 0 else end
            continue
        assigned = _ASSIGNED.match(script, at) if command in (None, "export") else None
        word, at = _expanded(script, at if assigned is None else assigned.end(), values, _BETWEEN_WORDS)
        if assigned is not None:
            values[assigned[1]] = word
        elif command == "unset":
            values.pop(word, None)
        elif command is None:
            command = word


def _expanded(
    text: str, at: int, values: Mapping[str, str], stops: str, depth: int = 0, *, quoted: bool = False
) -> tuple[str, int]:
    """Expand what stands before one of `stops`, and remove its quotes; return it and where it ends."""
    parts: list[str] = []
    while at < len(text) and text[at] not in stops:
        if depth == _DEEPEST:
            return UNKNOWN, len(text)
        part, at = _part(text, at, values, depth, quoted=quoted)
        parts.append(part)
    return "".join(parts), at


def _part(text: str, at: int, values: Mapping[str, str], depth: int, *, quoted: bool) -> tuple[str, int]:
    """Expand one sign, one quoted text, or one expansion; return it and where it ends."""
    sign = text[at]
    if sign == "\\":
        return text[at + 1 : at + 2].removesuffix("\n"), at + 2
    if sign == '"':
        part, end = _expanded(text, at + 1, values, '"', depth + 1, quoted=True)
        return part, end + 1
    if sign == "`" or (sign == "'" and not quoted):
        end = text.find(sign, at + 1) + 1 or len(text)
        return (text[at + 1 : end].removesuffix("'") if sign == "'" else UNKNOWN + text[at:end]), end
    if sign != "$":
        return sign, at + 1
    match = _PARAMETER.match(text, at)
    if match is None:
        closing = {"${": "}", "$(": ")"}.get(text[at : at + 2])
        end = at + 1 if closing is None else _expanded(text, at + 2, {}, closing, depth + 1)[1] + 1
        return UNKNOWN + text[at:end], end
    name, operator = match[1] or match[2], match[3] or ""
    value = values.get(name)
    missing = value is None or (operator.startswith(":") and not value)
    end = match.end()
    if not match[1]:
        used = missing != operator.endswith("+")
        word, end = _expanded(text, end, values if used else {}, "}", depth + 1, quoted=quoted)
        end += 1
        if operator.endswith("+"):
            return ("" if missing else word), end
        if missing and operator.endswith("-"):
            value = word
    return UNKNOWN + text[at:end] if value is None else value, end
