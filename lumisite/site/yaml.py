"""A YAML file as texts and their places.

`yaml.safe_load` would turn `6.10` into 6.1, `10:00:00` into 36000 and `no` into False, and let a repeated key win
silently; so every scalar stays the text that the admin typed, and its type gives it a meaning later (`decode`).
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import Any

import yaml

from lumisite.errors import SiteError, shown, unreadable
from lumisite.findings.finding import Finding, Place, Severity

MAX_BYTES = 4 * 1024 * 1024  # 100 times the largest description of the package
MAX_DEPTH = 32
#: Values of a file, with those that aliases repeat: 100 times those of the largest description.
MAX_VALUES = 200_000
#: The loader that knows no types but text, list and mapping. libyaml, where PyYAML was built with it, reads fifteen
#: times as fast.
LOADER = getattr(yaml, "CBaseLoader", yaml.BaseLoader)

#: The tags that the loader gives to what has none.
_YAML = "tag:yaml.org,2002:"
_TAGS = (f"{_YAML}str", f"{_YAML}seq", f"{_YAML}map")

#: Line and column, from 1; 0 for the file as a whole.
Position = tuple[int, int]
NOWHERE: Position = (0, 0)


@dataclass
class Document:
    """The values of a file: dicts, lists, texts, and `None` where nothing was typed (`key:` alone).

    JSON has its numbers and truth values too. `positions` has those of values, `keys` those of keys, by key path:
    `partitions.small-g.node` or `gpus[0]`. `faults` are what is wrong already, with the rest of the file readable.
    """

    file: str
    value: Any
    positions: dict[str, Position] = field(default_factory=dict)
    keys: dict[str, Position] = field(default_factory=dict)
    faults: list[Finding] = field(default_factory=list)

    def position(self, path: str) -> Position:
        """Return the position of the value at `path`, or of the nearest that the file has."""
        while path and path not in self.positions:
            path = path.rpartition(".")[0]
        return self.positions.get(path, NOWHERE)

    def add(self, finding: Finding, position: Position | None = None) -> None:
        """Add a fault of what is at the key path that is its subject; by default it is where the value is."""
        location = Place(self.file, *(position or self.position(finding.subject)))
        self.faults.append(replace(finding, place=location))


def joined(path: str, name: str) -> str:
    """Return the key path of `name` in the mapping at `path`."""
    return f"{path}.{shown(name)}" if path else shown(name)


def parse_yaml(data: bytes, file: str) -> Document:
    """Read one YAML mapping from `data`; `file` is the name that errors give.

    Raises `SiteError` when it is too large, not UTF-8, not YAML, not one mapping, or has tags. A key that is given
    twice is a fault of the document.
    """
    if len(data) > MAX_BYTES:
        raise unreadable(file, f"it has more than {MAX_BYTES} bytes", "check that it is the right file")
    text = text_of(data, file)
    try:
        top = yaml.compose(text, Loader=LOADER)
    except yaml.MarkedYAMLError as error:
        raise _not_yaml(error, text, file) from None
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1 if isinstance(error.position, int) else 0
        code = ord(error.character) if isinstance(error.character, str) else error.character
        advice = "write one line of visible text; `>-` folds lines"
        raise unreadable(file, f"contains U+{code:04X}", advice, line, min(line, 1)) from None
    except RecursionError:  # without libyaml
        raise unreadable(file, f"nested deeper than {MAX_DEPTH} levels", "write the values out") from None
    if not isinstance(top, yaml.MappingNode):
        advice = "begin with `lumisite: 2` for a site, with `plan: 2` for a bind plan"
        raise unreadable(file, "must be a mapping of keys to values", advice, *(_start(top) if top else NOWHERE))
    document = Document(file, None)
    document.value = _Reader(document).read(top, "", 0)
    return document


@dataclass
class _Reader:
    """Walks over the nodes of a document, and notes the position of each."""

    document: Document
    values: int = 0

    def read(self, node: yaml.Node, path: str, depth: int) -> Any:
        """Return the value of the node at a key path."""
        self.values += 1
        if depth > MAX_DEPTH:
            raise self.refusal(node, f"nested deeper than {MAX_DEPTH} levels, or an anchor that contains itself")
        if self.values > MAX_VALUES:
            raise self.refusal(node, f"more than {MAX_VALUES} values, with those that aliases repeat")
        if node.tag not in _TAGS:
            raise self.refusal(node, f"tag {node.tag.replace(_YAML, '!!')} is not supported")
        self.document.positions[path] = _start(node)
        if isinstance(node, yaml.MappingNode):
            return self.mapping(node, path, depth)
        if isinstance(node, yaml.SequenceNode):
            return [self.read(child, f"{path}[{index}]", depth + 1) for index, child in enumerate(node.value)]
        assert isinstance(node, yaml.ScalarNode)
        return node.value if node.value or node.style else None

    def mapping(self, node: yaml.MappingNode, path: str, depth: int) -> dict[str, Any]:
        """Return the values of a mapping by their keys."""
        values: dict[str, Any] = {}
        for key, value in node.value:
            if not isinstance(key, yaml.ScalarNode) or key.tag not in _TAGS:
                raise self.refusal(key, "a key must be plain text")
            key_path = joined(path, key.value)
            if key.value in values:
                message = f"is given twice (first in line {self.document.keys[key_path][0]})"
                fault = Finding("key-repeated", Severity.FAULT, message, "remove one of the two", key_path)
                self.document.add(fault, _start(key))
            else:
                self.document.keys[key_path] = _start(key)
                values[key.value] = self.read(value, key_path, depth + 1)
        return values

    def refusal(self, node: yaml.Node, message: str) -> SiteError:
        return unreadable(self.document.file, message, "write the values out", *_start(node))


def text_of(data: bytes, file: str) -> str:
    """Return the text of a file in UTF-8, without byte order marks; raises `SiteError`."""
    try:
        return data.decode().lstrip("\ufeff")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        message = f"byte 0x{data[error.start]:02x} is not UTF-8"
        raise unreadable(file, message, "save the file as UTF-8", line, 1) from None


def _not_yaml(error: yaml.MarkedYAMLError, text: str, file: str) -> SiteError:
    """Return the error of a text that is not YAML, where it was mistyped: the parser itself notices it later."""
    mark = error.problem_mark or error.context_mark
    if mark is None:
        return unreadable(file, f"not YAML: {error.problem}", "compare it with an example")
    lines = text.split("\n")
    line = lines[mark.line] if mark.line < len(lines) else ""
    if (quote := _open_quote(text, mark.line)) is not None:
        return unreadable(file, "not YAML: the quote that begins here does not end on its line", "close it", *quote)
    if re.match(r" *\t", line):
        position = (mark.line + 1, line.index("\t") + 1)
        return unreadable(file, "not YAML: a tab", "indent by spaces", *position)
    reason = ", ".join(part for part in (error.problem, error.context) if part)
    advice = "correct the line, or the one before it"
    found = re.match(r"\s*(?:- +)*(?:[\w.+-]+: +)?([^\s'\"{}].*?)\s*$", line)
    value = found[1] if found else ""
    texts = re.split(r",\s*", value.strip("[] ")) if value.startswith("[") else [value]
    # What begins with one of these signs, or has a colon in it, is text only in quotes.
    if odd := next((text for text in texts if re.match(r"[*&!|>%@`]", text) or ": " in text), None):
        advice = f"put the text in quotes, as in: '{odd}'"
    return unreadable(file, f"not YAML: {reason}", advice, mark.line + 1, mark.column + 1)


def _open_quote(text: str, line: int) -> Position | None:
    """Return where a quoted text begins that never ends, or that ends in a later line: the one with the error."""
    begin = None
    try:
        for token in yaml.scan(text, Loader=LOADER):
            if isinstance(token, yaml.ScalarToken) and token.style in ("'", '"'):
                over_lines = token.start_mark.line < token.end_mark.line == line
                begin = (token.start_mark.line + 1, token.start_mark.column + 1) if over_lines else begin
    except yaml.MarkedYAMLError as error:
        if error.context_mark and "quoted scalar" in str(error.context):
            return (error.context_mark.line + 1, error.context_mark.column + 1)
    return begin


def _start(node: yaml.Node) -> Position:
    return (node.start_mark.line + 1, node.start_mark.column + 1)
