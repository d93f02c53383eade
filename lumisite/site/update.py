"""The text of a description of format 1 as format 2, with its comments: what has moved is moved as it was written."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, cast

import yaml

from lumisite.errors import SiteError
from lumisite.site.document import parse_yaml, text_of
from lumisite.site.format_1 import (
    AS_WRITTEN,
    DRIVEN,
    OF_FAMILY,
    OF_NETWORK,
    OF_PLATFORM,
    RETIRED,
    STACKS,
    VERSIONS,
    is_for_shell,
    upgraded,
)

Node = yaml.nodes.Node
Pair = tuple[yaml.nodes.ScalarNode, Node]


def updated(data: bytes, file: str) -> str:
    """Give the text of a file as format 2, or its own text if it is of that format; raises `SiteError`.

    Where the layout of a file is so odd that text cannot be moved, its values are written without its comments.
    """
    text = text_of(data, file)
    wanted = upgraded(parse_yaml(data, file)).value
    if parse_yaml(data, file).value == wanted:
        return text
    try:
        new = _Text(text).updated()
        if parse_yaml(new.encode(), file).value == wanted:
            return new
    except (SiteError, yaml.YAMLError, LookupError, StopIteration, ValueError):
        pass
    return yaml.safe_dump(wanted, sort_keys=False, allow_unicode=True, width=120)


@dataclass
class _Text:
    """A text, and what is put in the place of parts of it: (first letter, letter behind the last, new text)."""

    text: str
    edits: list[tuple[int, int, str]] = field(default_factory=list)

    def updated(self) -> str:
        """Give the new text."""
        top = pairs_of(yaml.compose(self.text, Loader=yaml.SafeLoader))
        moved = [pair for pair in top if pair[0].value in STACKS]
        for key, value in top:
            match key.value:
                case "lumisite":
                    self.replace(value, "2")
                case "network":
                    self.replace(key, "fabric")
                    self.rename(value, OF_NETWORK)
                case "runtime":
                    self.runtime(key, value)
                case "platforms":
                    self.each(value, self.platform)
                case "families":
                    self.each(value, self.family)
                case "modules":
                    self.each(value, self.module)
                case name if name in AS_WRITTEN:
                    self.exact(value, AS_WRITTEN[name])
                case name if name in RETIRED and name not in STACKS:
                    self.each(value, lambda pairs, name=name: self.drop(pairs, RETIRED[name]))
        if moved:
            self.stacks(moved)
        else:
            first = top[1][0].start_mark.index
            self.edits.append((first, first, "stacks: {}\n"))
        return self.edited()

    def edited(self) -> str:
        new = self.text
        for start, end, text in sorted(self.edits, reverse=True):
            new = new[:start] + text + new[end:]
        return new

    # ---- parts of the text

    def of(self, node: Node) -> str:
        """Give the text of a value."""
        return self.text[node.start_mark.index : end_of(node)]

    def replace(self, node: Node, text: str) -> None:
        self.edits.append((node.start_mark.index, end_of(node), text))

    def rename(self, mapping: Node, names: Mapping[str, str]) -> None:
        for key, _ in pairs_of(mapping):
            if key.value in names:
                self.replace(key, names[key.value])

    def each(self, table: Node, change: Any) -> None:
        seen = set()
        for _, value in pairs_of(table):
            if id(value) not in seen:  # an alias stands for one that is changed already
                seen.add(id(value))
                change(pairs_of(value))

    def span(self, pair: Pair) -> tuple[int, int]:
        """Give where the lines of a pair in block style begin and end, with the comments that belong to it."""
        key, value = pair
        first = self.text.rfind("\n", 0, key.start_mark.index) + 1
        indent = key.start_mark.column
        comment = re.compile(rf" {{{indent}}}#")
        while (before := self.text.rfind("\n", 0, max(first - 1, 0)) + 1) < first and comment.match(self.text, before):
            first = before
        last = line_end(self.text, max(end_of(value), key.end_mark.index))
        deeper = re.compile(rf" {{{indent + 1},}}#.*\n?")
        while match := deeper.match(self.text, last):
            last = match.end()
        return first, last

    def moved(self, pair: Pair, name: str, indent: int) -> str:
        """Give the lines of a pair under another name and with other indentation."""
        first, last = self.span(pair)
        at = pair[0].start_mark.index
        text = self.text[first:at] + name + self.text[end_of(pair[0]) : last]
        text = text if text.endswith("\n") else f"{text}\n"
        return textwrap.indent(textwrap.dedent(text), " " * indent) if indent else text

    def cut(self, pair: Pair) -> None:
        self.edits.append((*self.span(pair), ""))

    # ---- what has moved

    def stacks(self, moved: list[Pair]) -> None:
        """Put the tables of releases below one key, where the first of them was."""
        known = {key.value: (key, value) for key, value in moved}
        text = "stacks:\n"
        for stack in (stack for stack in STACKS if stack in known):
            own = "".join(f"    {name}: {value}\n" for name, value in STACKS[stack].items())
            key, value = known[stack]
            body = self.moved((key, value), "releases", 4)
            if stack in RETIRED:
                body = textwrap.indent(_Text(textwrap.dedent(body)).without(RETIRED[stack]), "    ")
            text += f"  {stack}:\n{own}{body}"
        first = min(self.span(pair)[0] for pair in moved)
        for pair in moved:
            self.cut(pair)
        self.edits.append((first, first, text))

    def without(self, name: str) -> str:
        """Give the text of one table without a key of each of its entries."""
        ((_, table),) = pairs_of(yaml.compose(self.text, Loader=yaml.SafeLoader))
        self.each(table, lambda pairs: self.drop(pairs, name))
        return self.edited()

    def runtime(self, key: yaml.nodes.ScalarNode, value: Node) -> None:
        """Put the runtime below its command."""
        named = next(one for key, one in pairs_of(value) if key.value == "name")
        name = named.value
        self.replace(key, "runtimes")
        if is_flow(value):
            rest = ", ".join(self.pair_text(pair) for pair in pairs_of(value) if pair[0].value != "name")
            self.replace(value, f"{{{name}: {{{rest}}}}}")
            return
        pairs = [pair for pair in pairs_of(value) if pair[0].value != "name"]
        first, last = self.span(pairs_of(value)[0])[0], max(self.span(pair)[1] for pair in pairs_of(value))
        body = "".join(self.moved(pair, pair[0].value, 4) for pair in pairs)
        behind = self.text[end_of(named) : line_end(self.text, end_of(named))].rstrip()
        self.edits.append((first, last, f"  {name}:{behind}\n{body}"))

    def platform(self, pairs: list[Pair]) -> None:
        """Put what a platform says of a stack below the stack's name."""
        old = {one for keys in OF_PLATFORM.values() for one in keys}
        mine = [pair for pair in pairs if pair[0].value in old]
        if not mine:
            return
        flow = _is_flow_pair(self.text, pairs)
        parts: dict[str, list[str]] = {}
        for stack, keys in OF_PLATFORM.items():
            known = {pair[0].value: pair for pair in mine}
            for name in (name for name in keys if name in known):
                said = f"{keys[name]}: {self.of(known[name][1])}" if flow else self.moved(known[name], keys[name], 8)
                parts.setdefault(stack, []).append(said)
        if flow:
            inner = ", ".join(f"{stack}: {{{', '.join(texts)}}}" for stack, texts in parts.items())
            self.flow(pairs, old, f"stacks: {{{inner}}}")
            return
        indent = " " * mine[0][0].start_mark.column
        text = "".join(f"{indent}  {stack}:\n{''.join(texts)}" for stack, texts in parts.items())
        first = self.span(mine[0])[0]
        for pair in mine:
            self.cut(pair)
        self.edits.append((first, first, f"{indent}stacks:\n{text}"))

    def flow(self, pairs: list[Pair], dropped: Iterable[str], more: str = "") -> None:
        """Write a mapping in flow style without some keys, and with something more."""
        kept = [self.pair_text(pair) for pair in pairs if pair[0].value not in dropped]
        begin, end = pairs[0][0].start_mark.index, end_of(pairs[-1][1])
        self.edits.append((begin, end, ", ".join([*kept, more] if more else kept)))

    def pair_text(self, pair: Pair) -> str:
        return self.text[pair[0].start_mark.index : end_of(pair[1])]

    def drop(self, pairs: list[Pair], name: str) -> None:
        """Leave a key out that says nothing."""
        for pair in (pair for pair in pairs if pair[0].value == name):
            if _is_flow_pair(self.text, pairs):
                self.flow(pairs, [name])
            else:  # its words stay, as a comment
                self.edits.append((pair[0].start_mark.index,) * 2 + ("# ",))

    def family(self, pairs: list[Pair]) -> None:
        for key, value in pairs:
            if key.value in OF_FAMILY:
                self.replace(value, f"{{{DRIVEN}: {self.of(value)}}}")
                self.replace(key, OF_FAMILY[key.value])

    def module(self, pairs: list[Pair]) -> None:
        for key, value in pairs:
            if key.value == "version" and isinstance(value, yaml.nodes.ScalarNode):
                self.replace(value, f"[{', '.join(VERSIONS.get(value.value, [value.value]))}]")

    def exact(self, entries: Node, keys: Collection[str]) -> None:
        """Say of values that they stand for themselves, which format 1 did not ask."""
        for entry in entries.value if isinstance(entries, yaml.nodes.SequenceNode) else ():
            for key, value in pairs_of(entry):
                if key.value in keys and is_for_shell(key.value, getattr(value, "value", None)):
                    sign = ", " if is_flow(entry) else "\n" + " " * key.start_mark.column
                    self.edits.append((end_of(value), end_of(value), f"{sign}exact: yes"))
                    break


def line_end(text: str, index: int) -> int:
    """Give where the line of a letter ends, behind its line break."""
    if index and text[index - 1] == "\n":
        return index
    found = text.find("\n", index)
    return len(text) if found < 0 else found + 1


def pairs_of(node: Node | None) -> list[Pair]:
    """Give the keys and values of a mapping, none of what is none."""
    return cast(list[Pair], node.value) if isinstance(node, yaml.nodes.MappingNode) else []


def is_flow(node: Node) -> bool:
    """Tell whether a value stands in brackets or braces."""
    return bool(getattr(node, "flow_style", False))


def _is_flow_pair(text: str, pairs: list[Pair]) -> bool:
    """Tell whether pairs stand in braces: something else than white space is before the first on its line."""
    at = pairs[0][0].start_mark.index
    return bool(text[text.rfind("\n", 0, at) + 1 : at].strip())


def end_of(node: Node) -> int:
    """Give where the text of a value ends: a mark at the end of a block stands before what comes next."""
    if isinstance(node, yaml.nodes.CollectionNode) and not is_flow(node) and node.value:
        last = node.value[-1]
        return max(map(end_of, _leaves(last)))
    return cast(int, node.end_mark.index)


def _leaves(item: Any) -> Iterator[Node]:
    yield from item if isinstance(item, tuple) else (item,)
