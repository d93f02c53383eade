"""YAML text to plain values, and the position of each.

`yaml.safe_load` would turn `6.10` into 6.1, `10:00:00` into 36000 and `no` into False, and let a repeated key win
silently; so every scalar stays the text that the admin typed, and `decode` gives text its meaning.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import yaml

from lumisite.errors import SiteError, file_error, shown
from lumisite.findings.catalogue import make_finding
from lumisite.findings.finding import Finding, Place

MAX_BYTES = 4 * 1024 * 1024  # 100 times the largest description of the package
MAX_DEPTH = 32

#: libyaml, where PyYAML was built with it, reads fifteen times as fast.
LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

#: Line and column, from 1; 0 for the file as a whole.
Position = tuple[int, int]
NOWHERE: Position = (0, 0)


@dataclass
class Document:
    """The values of a file: dicts, lists, texts, and `None` where nothing was typed (`key:` alone).

    JSON has its numbers and truth values too. `positions` has those of values, `keys` those of keys, by key path:
    `partitions.small-g.node` or `gpus[0]`. `faults` are what is wrong already, with the rest of the file readable.
    `tables` are the names that keys may refer to.
    """

    file: str
    value: Any
    positions: dict[str, Position] = field(default_factory=dict)
    keys: dict[str, Position] = field(default_factory=dict)
    faults: list[Finding] = field(default_factory=list)
    tables: dict[str, Collection[str]] = field(default_factory=dict)

    def position(self, path: str) -> Position:
        """Return the position of the value at `path`, or of the nearest that the file has."""
        while path and path not in self.positions:
            path = path.rpartition(".")[0]
        return self.positions.get(path, NOWHERE)

    def key_position(self, path: str) -> Position:
        """Return the position of the key at `path`."""
        return self.keys.get(path) or self.position(path)

    def add(self, finding: Finding, position: Position | None = None) -> None:
        """Add a fault of what is at the key path that is its subject; by default it is where the value is."""
        location = Place(self.file, *(position or self.position(finding.subject)))
        self.faults.append(replace(finding, place=location))


def joined(path: str, name: str) -> str:
    """Return the key path of `name` in the mapping at `path`."""
    return f"{path}.{shown(name)}" if path else shown(name)


def parse_yaml(data: bytes, file: str) -> Document:
    """Read one YAML mapping from `data`; `file` is the name that errors give.

    Raises `SiteError` when it is too large, not UTF-8, not YAML, not one mapping, or has tags or looping aliases.
    """
    if len(data) > MAX_BYTES:
        raise file_error("file-too-large", file, most_bytes=MAX_BYTES)
    text = text_of(data, file)
    document = Document(file, None)
    try:
        _YamlReader(document, yaml.parse(text, Loader=LOADER)).read()
    except yaml.MarkedYAMLError as error:
        reason = ", ".join(part for part in (error.problem, error.context) if part) or "cannot be parsed"
        raise file_error(
            "not-yaml", file, *_position(error.problem_mark or error.context_mark), reason=reason
        ) from None
    except yaml.reader.ReaderError as error:
        before = text[: error.position] if isinstance(error.position, int) else ""
        raise file_error(
            "control-character", file, before.count("\n") + 1, 1, character=_code(error.character)
        ) from None
    if not isinstance(document.value, dict):
        raise file_error("not-a-mapping", file, *document.position(""))
    return document


@dataclass
class _YamlReader:
    """Events to values; libyaml's own composer follows any depth of nesting until its stack ends, so it is not used."""

    document: Document
    events: Iterator[Any]
    #: The value of each anchor, and the path at which it stands.
    anchors: dict[str, tuple[Any, str]] = field(default_factory=dict)
    #: The anchors of what has begun and has not ended.
    open: list[str | None] = field(default_factory=list)

    def read(self) -> None:
        """Read the only document that there should be."""
        started = False
        for event in self.events:
            if isinstance(event, yaml.DocumentStartEvent):
                if started:
                    raise self.fault(event, documents=2)
                started = True
                self.document.value = self.value(next(self.events), "")
        if not started:
            raise file_error("not-a-mapping", self.document.file)

    def value(self, event: Any, path: str) -> Any:
        """Return the value that begins with `event`, and note its position and that of each value in it."""
        if isinstance(event, yaml.AliasEvent):
            return self.alias(event, path)
        if event.tag is not None:
            raise self.fault(event, tag=event.tag)
        self.document.positions[path] = _position(event.start_mark)
        value: Any
        if isinstance(event, yaml.ScalarEvent):
            value = event.value if event.value or not event.implicit[0] else None
        elif len(self.open) == MAX_DEPTH:
            raise self.fault(event, levels=MAX_DEPTH)
        else:
            self.open.append(event.anchor)
            value = self.mapping(path) if isinstance(event, yaml.MappingStartEvent) else self.sequence(path)
            self.open.pop()
        if event.anchor:
            self.anchors[event.anchor] = value, path
        return value

    def sequence(self, path: str) -> list[Any]:
        values: list[Any] = []
        while not isinstance(event := next(self.events), yaml.SequenceEndEvent):
            values.append(self.value(event, f"{path}[{len(values)}]"))
        return values

    def mapping(self, path: str) -> dict[str, Any]:
        values: dict[str, Any] = {}
        while not isinstance(event := next(self.events), yaml.MappingEndEvent):
            if not isinstance(event, yaml.ScalarEvent) or event.tag is not None:
                raise self.fault(event)
            key, position = joined(path, event.value), _position(event.start_mark)
            if event.value in values:
                first = self.document.keys[key][0]
                self.document.add(make_finding("key-repeated", key, first=first), position)
                self.value(next(self.events), f"{key}, again")
                continue
            self.document.keys[key] = position
            values[event.value] = self.value(next(self.events), key)
        return values

    def alias(self, event: Any, path: str) -> Any:
        if event.anchor in self.open:
            raise self.fault(event, loop=event.anchor)
        if event.anchor not in self.anchors:
            raise self.fault(event, anchor=event.anchor)
        value, first = self.anchors[event.anchor]
        self.repeat(event, value, first, path, len(self.open))
        return value

    def repeat(self, event: Any, value: Any, first: str, path: str, depth: int) -> None:
        """Note that a value which stands at `first` is that of `path` too."""
        self.document.positions[path] = self.document.positions[first]
        if depth > MAX_DEPTH:
            raise self.fault(event, levels=MAX_DEPTH)
        if isinstance(value, list):
            for index, child in enumerate(value):
                self.repeat(event, child, f"{first}[{index}]", f"{path}[{index}]", depth + 1)
        elif isinstance(value, dict):
            for name, child in value.items():
                self.document.keys[joined(path, name)] = self.document.keys[joined(first, name)]
                self.repeat(event, child, joined(first, name), joined(path, name), depth + 1)

    def fault(self, event: Any, **values: Any) -> SiteError:
        return file_error("yaml-unsupported", self.document.file, *_position(event.start_mark), **values)


def text_of(data: bytes, file: str) -> str:
    """Return the text of a file in UTF-8, without byte order marks; raises `SiteError`."""
    try:
        return data.decode().lstrip("\ufeff")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise file_error("text-not-utf-8", file, line, 1, byte=f"0x{data[error.start]:02x}") from None


def _position(mark: Any) -> Position:
    return (mark.line + 1, mark.column + 1) if mark else NOWHERE


def _code(character: object) -> str:
    code = ord(character) if isinstance(character, str) and len(character) == 1 else character
    return f"U+{code:04X}" if isinstance(code, int) else repr(code)
