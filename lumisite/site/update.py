"""The text of a description of format 1 as format 2, with its comments: what has moved is moved as it was written."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, cast

import yaml

from lumisite.errors import SiteError
from lumisite.site.document import LOADER, Document, joined, parse_yaml, text_of
from lumisite.site.format_1 import RETIRED, Keys, fits, upgraded
from lumisite.text import flow, yaml_key

Node = yaml.nodes.Node
Pair = tuple[yaml.nodes.ScalarNode, Node]
_COMMENT = re.compile("( *)#")


def updated(data: bytes, file: str) -> str:
    """Give the text of a file as format 2, or its own text if it is of that format; raises `SiteError`.

    Where the layout of a file is so odd that text cannot be moved, its values are written without its comments.
    """
    text = text_of(data, file)
    wanted = upgraded(parse_yaml(data, file))
    if parse_yaml(data, file).value == wanted.value:
        return text
    try:
        new = _Text(_without_retired(text), wanted).updated()
        if parse_yaml(new.encode(), file).value == wanted.value:
            return new
    except (SiteError, yaml.YAMLError, LookupError, ValueError):
        pass
    return yaml.safe_dump(wanted.value, sort_keys=False, allow_unicode=True, width=120)


def _without_retired(text: str) -> str:
    """Make comments of keys that say nothing any more, so that their words stay; in braces they go with the rest."""
    for index in sorted(_retired(composed(text), ()), reverse=True):
        text = f"{text[:index]}# {text[index:]}"
    return text


def _retired(node: Node, keys: Keys) -> Iterator[int]:
    for key, value in pairs_of(node) if not is_flow(node) else ():
        here = (*keys, key.value)
        yield from [key.start_mark.index] if fits(here, RETIRED) else _retired(value, here)


@dataclass(frozen=True)
class _Part:
    """An entry of a mapping or a list as it is written: the key, or the sign of a list, is [begin, end).

    Its whole text is [first, last), with the comments before it. What is in it is [inner[0], inner[1]), where it is in
    block style.
    """

    first: int
    begin: int
    end: int
    node: Node
    value: object
    inner: tuple[int, int] | None
    last: int


@dataclass
class _Text:
    """The text of format 1, what it says as format 2, and by old path the parts of it that have no place yet."""

    text: str
    new: Document
    parts: dict[str, _Part] = field(default_factory=dict)

    def updated(self) -> str:
        """Give the new text."""
        end = self.read(composed(self.text), parse_yaml(self.text.encode(), "").value, "", 0)
        return self.entries(self.new.value, "", 0) + self.text[end:]

    def read(self, node: Node, value: Any, path: str, first: int) -> int:
        """Note the parts of a value whose text begins at `first`, and tell where the last of them ends."""
        rows = [(joined(path, key.value), key.start_mark.index, end_of(key), one) for key, one in pairs_of(node)]
        values = [value[key.value] for key, _ in pairs_of(node)]
        if isinstance(node, yaml.nodes.SequenceNode):
            signs = [self.text.rindex("-", 0, one.start_mark.index) for one in node.value]
            rows = [(f"{path}[{at}]", sign, sign + 1, node.value[at]) for at, sign in enumerate(signs)]
            values = value
        for (here, begin, end, one), said in zip(rows, values, strict=True):
            inner, last = None, line_end(self.text, max(end_of(one), end))
            if isinstance(one, yaml.nodes.CollectionNode) and not is_flow(one) and one.start_mark.index > begin:
                start = min(line_end(self.text, end), one.start_mark.index)
                inner = start, self.read(one, said, here, start)
            while (sign := _COMMENT.match(self.text, last)) and len(sign[1]) > node.start_mark.column:
                last = line_end(self.text, sign.end())
            self.parts[here] = _Part(first, begin, end, one, said, inner, last)
            first = last
        return first

    def entries(self, value: Any, path: str, column: int) -> str:
        """Give the text of what is in a mapping or a list, which begins at a column."""
        if isinstance(value, list):
            return "".join(self.entry("-", one, f"{path}[{at}]", column) for at, one in enumerate(value))
        return "".join(self.entry(yaml_key(key), one, joined(path, key), column) for key, one in value.items())

    def entry(self, key: str, value: Any, path: str, column: int) -> str:
        """Give the text of an entry, as it was written where that can be."""
        old, text = self.new.written(path), self.text
        part = self.parts.pop(old, None)
        if part is None:
            inner = self.entries(value, path, column + 2) if isinstance(value, dict) else ""
            return " " * column + (f"{key}:\n{inner}" if inner else f"{key}: {flow(value)}\n")
        deeper = " " * (column - part.begin + text.rfind("\n", 0, part.begin) + 1)
        head = text[part.first : part.begin] + (text[part.begin : part.end] if path == old else key)
        if part.value == value:
            said = text[part.end : part.last]
        elif part.inner and type(part.value) is type(value):
            start, stop = part.inner
            inner = self.entries(value, path, part.node.start_mark.column + len(deeper))
            head = textwrap.indent(head + text[part.end : start], deeper)
            return head + inner + textwrap.indent(text[stop : part.last], deeper)
        else:
            said = text[part.end : part.node.start_mark.index] + flow(value) + text[end_of(part.node) : part.last]
        return textwrap.indent(head + said, deeper)


def composed(text: str) -> Node:
    """Give the nodes of a text that is one mapping; `parse_yaml` has taken it, so that it is not too deep."""
    return cast(Node, yaml.compose(text, Loader=LOADER))


def line_end(text: str, index: int) -> int:
    """Give where the line of a letter ends, behind its line break."""
    if index and text[index - 1] == "\n":
        return index
    found = text.find("\n", index)
    return len(text) if found < 0 else found + 1


def pairs_of(node: Node) -> list[Pair]:
    """Give the keys and values of a mapping; nothing else has any."""
    return cast(list[Pair], node.value) if isinstance(node, yaml.nodes.MappingNode) else []


def is_flow(node: Node) -> bool:
    """Tell whether a value stands in brackets or braces."""
    return bool(getattr(node, "flow_style", False))


def end_of(node: Node) -> int:
    """Give where the text of a value ends: a mark at the end of a block stands before what comes next."""
    if isinstance(node, yaml.nodes.CollectionNode) and not is_flow(node) and node.value:
        last = node.value[-1]
        return max(map(end_of, last if isinstance(last, tuple) else (last,)))
    return cast(int, node.end_mark.index)
