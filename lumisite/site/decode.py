"""Nodes to dataclasses: the field's type says what the text means, and every fault of the file is found in one run."""

from __future__ import annotations

import dataclasses
import difflib
import re
import types
import typing
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Literal, TypeVar

from lumisite.errors import Problem, SiteError
from lumisite.site.document import Items, Node, Scalar, Table, parse_document

T = TypeVar("T")

#: A rule between keys: yields (key path, message) for each fault; key paths look like `partitions.small-g.node`.
Rule = Callable[[Any], Iterable[tuple[str, str]]]


class UnfitError(ValueError):
    """Text that a scalar type cannot take; the message says what would be right."""


def key(doc: str, **options: Any) -> Any:
    """Declare a site key: a dataclass field whose `doc` goes into the generated reference."""
    return field(metadata={"doc": doc}, **options)


@dataclass
class _Faults:
    """What is wrong so far, and where each key path stands, for the rules that come after."""

    file: str
    problems: list[Problem]
    places: dict[str, Node]

    def add(self, node: Node, path: str, message: str) -> None:
        self.problems.append(Problem(self.file, node.line, node.column, path, message))


class _Missing:
    """Stands for a value that could not be decoded; its fault is already recorded."""


MISSING = _Missing()

#: A list of what there is to choose from ends after so many.
MOST_NAMES = 15


def decode(
    data: bytes,
    kind: type[T],
    *,
    file: str,
    scalars: Mapping[Any, Callable[[str], Any]],
    stages: Iterable[Iterable[Rule]] = (),
) -> T:
    """Decode YAML `data` into the dataclass `kind`; raise one `SiteError` with every fault found.

    `scalars` maps a leaf type to the function that reads its text and raises `UnfitError`. Rules run only on a file
    whose keys and values are all sound, and those of a stage only when the stages before found nothing.
    """
    root = parse_document(data, file)
    faults = _Faults(file, [], {"": root})
    value = _Decoder(faults, dict(scalars)).value(root, kind, "")
    for rules in stages:
        if faults.problems:
            break
        for rule in rules:
            for path, message in rule(value):
                faults.add(_place(faults.places, path), path, message)
    if faults.problems:
        raise SiteError(faults.problems)
    return typing.cast(T, value)


def suggestion(word: str, known: Iterable[str]) -> str:
    """Say what `word` may have been meant to be, or what there is to choose from."""
    names = [str(name) for name in known]
    near = difflib.get_close_matches(word, names, n=1, cutoff=0.6)
    if near:
        return f"did you mean {near[0]}?"
    if len(names) > MOST_NAMES:
        return f"have {', '.join(names[:MOST_NAMES])} and {len(names) - MOST_NAMES} more"
    return f"have {', '.join(names)}" if names else "there are none"


def _place(places: Mapping[str, Node], path: str) -> Node:
    """Find the nearest node to `path` that stands in the file."""
    while path not in places:
        path = path.rpartition(".")[0]
    return places[path]


class _Decoder:
    """One walk over the nodes; methods return `MISSING` where a fault was recorded."""

    def __init__(self, faults: _Faults, scalars: dict[Any, Callable[[str], Any]]) -> None:
        self.faults = faults
        self.scalars = scalars
        self.fields: dict[type, dict[str, dataclasses.Field[Any]]] = {}

    def value(self, node: Node, kind: Any, path: str) -> Any:
        self.faults.places[path] = node
        origin = typing.get_origin(kind)
        if origin is types.UnionType or origin is typing.Union:
            kind = next(arg for arg in typing.get_args(kind) if arg is not type(None))
            origin = typing.get_origin(kind)
        if isinstance(node, Scalar) and node.empty:
            return self._fault(node, path, "has no value (write one, or leave the key out)")
        if kind in self.scalars or origin is Literal:
            return self._scalar(node, kind, path)
        if dataclasses.is_dataclass(kind) and isinstance(kind, type):
            return self._dataclass(node, kind, path)
        if origin is tuple:
            return self._tuple(node, typing.get_args(kind)[0], path)
        if origin is Mapping:
            return self._mapping(node, typing.get_args(kind)[1], path)
        raise TypeError(f"no way to read {kind} is known")

    def _fault(self, node: Node, path: str, message: str) -> _Missing:
        self.faults.add(node, path, message)
        return MISSING

    def _scalar(self, node: Node, kind: Any, path: str) -> Any:
        if not isinstance(node, Scalar):
            return self._fault(node, path, f"is a {_shape(node)} (one value would be right)")
        if kind not in self.scalars:
            choices = typing.get_args(kind)
            if node.text not in choices:
                return self._fault(node, path, f"{node.text!r} is not known here ({suggestion(node.text, choices)})")
            return node.text
        try:
            return self.scalars[kind](node.text)
        except UnfitError as error:
            return self._fault(node, path, str(error))

    def _tuple(self, node: Node, kind: Any, path: str) -> Any:
        if not isinstance(node, Items):
            return self._fault(node, path, f"is a {_shape(node)} (a list would be right: [a, b])")
        values = [self.value(child, kind, f"{path}[{index}]") for index, child in enumerate(node.nodes)]
        return MISSING if MISSING in values else tuple(values)

    def _mapping(self, node: Node, kind: Any, path: str) -> Any:
        if not isinstance(node, Table):
            return self._fault(node, path, f"is a {_shape(node)} (a mapping of names would be right)")
        values = {
            name.text: self.value(child, kind, _joined(path, name.text)) for name, child in self._pairs(node, path)
        }
        return MISSING if MISSING in values.values() else MappingProxyType(values)

    def _pairs(self, node: Table, path: str) -> Iterable[tuple[Scalar, Node]]:
        """Give each key once; a repeated one is a fault."""
        seen: dict[str, Scalar] = {}
        for name, child in node.pairs:
            if name.text in seen:
                self._fault(name, _joined(path, name.text), f"is given twice (first in line {seen[name.text].line})")
                continue
            seen[name.text] = name
            if not re.fullmatch(r"[\w.+-]+", name.text):
                self._fault(name, path, f"{name.text!r} is not a name (letters, digits, and . _ + - would be right)")
                continue
            yield name, child

    def _dataclass(self, node: Node, kind: Any, path: str) -> Any:
        if not isinstance(node, Table):
            return self._fault(node, path, f"is a {_shape(node)} (keys and values would be right)")
        if kind not in self.fields:
            self.fields[kind] = {_key_name(item): item for item in dataclasses.fields(kind)}
        fields = self.fields[kind]
        values: dict[str, Any] = {}
        given = set()
        for name, child in self._pairs(node, path):
            item = fields.get(name.text)
            here = _joined(path, name.text)
            if item is None:
                self._fault(name, here, f"is not a key here ({suggestion(name.text, fields)})")
                continue
            given.add(name.text)
            values[item.name] = self.value(child, item.type, here)
        complete = True
        for text, item in fields.items():
            if text not in given and _required(item):
                complete = False
                self._fault(node, _joined(path, text), f"is missing ({_first_sentence(item.metadata['doc'])})")
        return kind(**values) if complete and MISSING not in values.values() else MISSING


def _key_name(item: dataclasses.Field[Any]) -> str:
    """Keys are written with `_` as in Python; a trailing one only avoids a reserved word."""
    return item.name.rstrip("_")


def _required(item: dataclasses.Field[Any]) -> bool:
    return item.default is dataclasses.MISSING and item.default_factory is dataclasses.MISSING


def _first_sentence(doc: str) -> str:
    return doc.split(". ")[0].rstrip(".")


def _joined(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _shape(node: Node) -> str:
    return {Scalar: "single value", Items: "list", Table: "mapping"}[type(node)]
