"""YAML text to nodes that know where they stand; every scalar stays the text that the admin typed.

`yaml.safe_load` would turn `6.10` into 6.1, `10:00:00` into 36000 and `no` into False, and let a repeated key win
silently; so only the library's event stream is used, and `decode` gives text its meaning.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TypeAlias

import yaml

from lumisite.errors import Problem, SiteError

MAX_BYTES = 4 * 1024 * 1024  # 100 times LUMI's own description
MAX_DEPTH = 32
MAX_NODES = 1_000_000  # aliases counted each time they are used: a file cannot unfold into gigabytes

_Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@dataclass(frozen=True)
class Scalar:
    """A piece of text; `empty` when nothing was typed at all (`key:` alone)."""

    line: int
    column: int
    text: str
    empty: bool = False


@dataclass(frozen=True)
class Items:
    """A YAML sequence."""

    line: int
    column: int
    nodes: tuple[Node, ...]


@dataclass(frozen=True)
class Table:
    """A YAML mapping, in the file's order, repeated keys and all."""

    line: int
    column: int
    pairs: tuple[tuple[Scalar, Node], ...]


Node: TypeAlias = Scalar | Items | Table


def parse_document(data: bytes, file: str) -> Table:
    """Read one YAML mapping from `data`; `file` is the name that errors give.

    Raises `SiteError` when it is too large, not UTF-8, not YAML, not one mapping, or has tags or looping aliases.
    """
    if len(data) > MAX_BYTES:
        raise _fault(file, 0, 0, f"{len(data)} bytes are too many for a site description (at most {MAX_BYTES})")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise _fault(file, line, 1, f"byte 0x{data[error.start]:02x} is not UTF-8 (save the file as UTF-8)") from None
    try:
        root = _build(yaml.parse(text, Loader=_Loader), file)
    except yaml.MarkedYAMLError as error:
        raise _syntax_fault(error, file) from None
    except yaml.reader.ReaderError as error:
        before = text[: error.position] if isinstance(error.position, int) else ""
        line = before.count("\n") + 1
        raise _fault(file, line, 1, f"character {_shown(error.character)} is not allowed in YAML") from None
    if not isinstance(root, Table):
        raise _fault(file, root.line, root.column, "the file must be a mapping of keys to values")
    return root


@dataclass
class _Open:
    """A collection whose end has not come yet."""

    line: int
    column: int
    is_table: bool
    anchor: str | None
    nodes: list[Node] = field(default_factory=list)


def _build(events: Iterable[yaml.Event], file: str) -> Node:
    """Fold the event stream into one node; a stack instead of recursion, so depth is ours to bound."""
    stack: list[_Open] = []
    anchors: dict[str, Node] = {}
    sizes: dict[int, int] = {}
    total = 0
    root: Node | None = None
    documents = 0
    for event in events:
        mark = event.start_mark
        line, column = (mark.line + 1, mark.column + 1) if mark else (0, 0)
        tag = getattr(event, "tag", None)
        if tag is not None:
            raise _fault(file, line, column, f"tags such as {tag} are not used here (leave it out)")
        if isinstance(event, yaml.DocumentStartEvent):
            documents += 1
            if documents > 1:
                raise _fault(file, line, column, "a second document starts here (one file describes one site)")
        elif isinstance(event, yaml.MappingStartEvent | yaml.SequenceStartEvent):
            if len(stack) >= MAX_DEPTH:
                raise _fault(file, line, column, f"nested deeper than {MAX_DEPTH} levels")
            stack.append(_Open(line, column, isinstance(event, yaml.MappingStartEvent), event.anchor))
        else:
            done = _finished(event, stack, anchors, file, line, column)
            if done is None:
                continue
            size = sizes.get(id(done), 1) + sum(sizes.get(id(child), 1) for child in _children(done))
            sizes[id(done)] = size
            total += size if isinstance(event, yaml.AliasEvent) else 1
            if total > MAX_NODES:
                raise _fault(file, line, column, f"aliases unfold into more than {MAX_NODES} values")
            if stack:
                stack[-1].nodes.append(done)
            else:
                root = done
    if root is None:
        raise _fault(file, 0, 0, "the file is empty (a site description starts with `lumisite: 1`)")
    return root


def _finished(
    event: yaml.Event, stack: list[_Open], anchors: dict[str, Node], file: str, line: int, column: int
) -> Node | None:
    """Give the node that `event` completes, if it completes one."""
    if isinstance(event, yaml.ScalarEvent):
        scalar = Scalar(line, column, event.value, empty=event.value == "" and event.implicit[0])
        if event.anchor:
            anchors[event.anchor] = scalar
        return scalar
    if isinstance(event, yaml.AliasEvent):
        if any(opened.anchor == event.anchor for opened in stack):
            raise _fault(file, line, column, f"the anchor &{event.anchor} contains itself")
        if event.anchor not in anchors:
            raise _fault(file, line, column, f"there is no anchor &{event.anchor}")
        return anchors[event.anchor]
    if isinstance(event, yaml.MappingEndEvent | yaml.SequenceEndEvent):
        opened = stack.pop()
        node = _closed(opened, file)
        if opened.anchor:
            anchors[opened.anchor] = node
        return node
    return None


def _closed(opened: _Open, file: str) -> Node:
    if not opened.is_table:
        return Items(opened.line, opened.column, tuple(opened.nodes))
    pairs = []
    for key, value in zip(opened.nodes[::2], opened.nodes[1::2], strict=True):
        if not isinstance(key, Scalar):
            raise _fault(file, key.line, key.column, "a key must be plain text")
        pairs.append((key, value))
    return Table(opened.line, opened.column, tuple(pairs))


def _children(node: Node) -> Iterable[Node]:
    if isinstance(node, Items):
        return node.nodes
    if isinstance(node, Table):
        return (value for _, value in node.pairs)
    return ()


def _syntax_fault(error: yaml.MarkedYAMLError, file: str) -> SiteError:
    mark = error.problem_mark or error.context_mark
    said = ", ".join(part for part in (error.problem, error.context) if part) or "cannot be read"
    line, column = (mark.line + 1, mark.column + 1) if mark else (0, 0)
    return _fault(file, line, column, f"not YAML: {said}")


def _shown(character: object) -> str:
    code = ord(character) if isinstance(character, str) and len(character) == 1 else character
    return f"U+{code:04X}" if isinstance(code, int) else repr(code)


def _fault(file: str, line: int, column: int, message: str) -> SiteError:
    return SiteError([Problem(file, line, column, "", message)])
