"""Plain values to dataclasses: the field's type says what a value means, and every fault of a file is found in one run.

What people write (YAML) has texts only, names that any tool takes, and no key that is not known.
"""

from __future__ import annotations

import dataclasses
import functools
import re
import types
import typing
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Literal, TypeVar

from lumisite.errors import SiteError
from lumisite.findings.catalogue import make_finding
from lumisite.findings.finding import Finding
from lumisite.site.document import Document, Position, joined, parse_yaml
from lumisite.text import alternatives

T = TypeVar("T")

#: The faults that a rule between keys finds: their subjects are key paths, such as `partitions.small-g.node`.
Faults = Iterator[Finding]
#: A rule between keys.
Rule = Callable[[Any], Iterable[Finding]]
#: How the text or number of each leaf type is read; raises `UnfitError`.
Scalars = Mapping[Any, Callable[[Any], Any]]


class UnfitError(ValueError):
    """A value that a scalar type cannot take: the code of what is wrong, and its values."""

    def __init__(self, code: str, **values: Any) -> None:
        super().__init__(code, values)
        self.code = code
        self.values = values

    def finding(self, subject: str) -> Finding:
        """Return what is wrong as a finding about the value of a key, or of an option."""
        return make_finding(self.code, subject, **self.values)


def wrong_type(value: str, kind: str, example: str) -> UnfitError:
    """Return the error of a text that is not what a key holds."""
    return UnfitError("wrong-type", value=value, type=kind, example=example)


def key(
    doc: str,
    *,
    names: str = "",
    split: Callable[[str], tuple[str, ...]] | None = None,
    least: float | None = None,
    most: float | None = None,
    example: str = "",
    needs: tuple[str, ...] = (),
    **options: Any,
) -> Any:
    """Declare a site key: a dataclass field whose `doc` goes into the generated reference.

    `names` is the table of the document that must have what the key names; a text with several names is `split`. A
    number is from `least` to `most`; a list or mapping with an `example` is not empty. A key that `needs` another one
    has no effect without it, or without one of the values behind its name.
    """
    limits = {"least": least, "most": most, "example": example, "needs": needs}
    return field(metadata={"doc": doc, "names": names, "split": split, **limits}, **options)


#: Stands for a value that could not be decoded; its fault is already recorded.
MISSING: Any = object()

#: Linux takes names of files of 255 bytes, and some are made of a key, versions and a suffix.
LONGEST_NAME = 100


def decode(
    data: bytes,
    kind: type[T],
    *,
    file: str,
    scalars: Scalars,
    rules: Iterable[Rule] = (),
    prepare: Callable[[Document], None] = lambda document: None,
) -> T:
    """Decode YAML `data` into the dataclass `kind`; raise one `SiteError` with every fault found.

    `prepare` may fill in what follows from other values, and the tables of names. Rules run only on a file whose keys
    and values are all sound.
    """
    document = parse_yaml(data, file)
    prepare(document)
    return Decoder(document, scalars, by_hand=True).decode(kind, rules)


def unknown_name(subject: str, name: str, kind: str, site: str, known: Iterable[str]) -> Finding:
    """Return a finding about a name of some kind, with the known name that is most like it."""
    return make_finding("unknown-name", subject, name=name, kind=kind, site=site, **alternatives(name, known))


def unknown(path: str, names: Iterable[str], known: Iterable[str]) -> Faults:
    """Yield a fault for each name that is not described."""
    known = known if isinstance(known, Collection) else list(known)  # a table is not copied for each of its users
    for name in names:
        if name not in known:
            yield make_finding("unknown-name", path, name=name, **alternatives(name, known))


@dataclass
class Decoder:
    """One walk over the values of a document; methods return `MISSING` where a fault was noted."""

    document: Document
    scalars: Scalars
    by_hand: bool
    may_lack: Collection[str] | None = None

    def decode(self, kind: type[T], rules: Iterable[Rule]) -> T:
        """Decode the document into the dataclass `kind`, and follow the rules; raises `SiteError`."""
        document = self.document
        value = self.value(document.value, kind, "")
        for rule in () if document.faults else tuple(rules):
            for finding in rule(value):
                document.add(finding)
        if document.faults:
            raise SiteError(document.faults)
        return typing.cast(T, value)

    def value(self, value: Any, kind: Any, path: str) -> Any:
        """Decode the value at `path`."""
        kind, origin, inner, may_be_none, is_record = _form(kind)
        if value is None:
            if may_be_none and not self.by_hand:
                return None
            return self._fault("value-missing", path)
        if kind in self.scalars or origin is Literal:
            return self._scalar(value, kind, path)
        if is_record:
            return self._dataclass(value, kind, path)
        if origin is tuple:
            return self._tuple(value, inner[0], path)
        if origin is Mapping:
            return self._mapping(value, inner, path)
        raise TypeError(f"unsupported type: {kind}")

    def _fault(self, code: str, path: str, position: Position | None = None, **values: Any) -> Any:
        self.document.add(make_finding(code, path, **values), position)
        return MISSING

    def _shape_fault(self, path: str, value: object, expected: str) -> Any:
        actual = "list" if isinstance(value, list) else "mapping" if isinstance(value, dict) else "single value"
        return self._fault("wrong-shape", path, actual=actual, expected=expected)

    def _scalar(self, value: Any, kind: Any, path: str) -> Any:
        if isinstance(value, dict | list):
            return self._shape_fault(path, value, "single value")
        if kind not in self.scalars:
            choices = typing.get_args(kind)
            if value not in choices:
                return self._fault("unknown-name", path, name=str(value), **alternatives(str(value), choices))
            return value
        try:
            return self.scalars[kind](value)
        except UnfitError as error:
            return self._fault(error.code, path, **error.values)

    def _tuple(self, value: Any, kind: Any, path: str) -> Any:
        if not isinstance(value, list):
            return self._shape_fault(path, value, "list")
        values = [self.value(child, kind, f"{path}[{index}]") for index, child in enumerate(value)]
        return MISSING if MISSING in values else tuple(values)

    def _mapping(self, value: Any, kinds: Sequence[Any], path: str) -> Any:
        if not isinstance(value, dict):
            return self._shape_fault(path, value, "mapping")
        values = {}
        for name, child in value.items():
            key_path = joined(path, name)
            fits = not self.by_hand or self._name(name, path, key_path) is not MISSING
            if fits and self._scalar(name, kinds[0], key_path) is not MISSING:
                values[name] = self.value(child, kinds[1], key_path)
        if MISSING in values.values():
            return MISSING
        return MappingProxyType(values) if self.by_hand else values

    def _name(self, name: str, path: str, key_path: str) -> Any:
        """Return a name as people write it in keys."""
        error = _key_error(name)
        if error is None:
            return name
        return self._fault(error.code, path, self.document.key_position(key_path), **error.values)

    def _dataclass(self, value: Any, kind: Any, path: str) -> Any:
        if not isinstance(value, dict):
            return self._shape_fault(path, value, "mapping")
        fields = _fields(kind)
        values: dict[str, Any] = {}
        for name, child in value.items():
            key_path = joined(path, name)
            if self.by_hand and self._name(name, path, key_path) is MISSING:
                continue
            if name in fields:
                item, inner = fields[name]
                values[item.name] = self.value(child, inner, key_path)
                if self.by_hand and values[item.name] is not MISSING:
                    self._check_value(item, values[item.name], key_path)
            elif self.by_hand:
                known = alternatives(name, fields)
                self._fault("key-unknown", key_path, self.document.key_position(key_path), **known)
        missing = [name for name, (item, _) in fields.items() if name not in value and self._needed(name, item)]
        for name in missing:
            first, *_ = fields[name][0].metadata.get("doc", "").split(". ")
            self._fault("key-missing", joined(path, name), what=first.rstrip("."))
        if missing or MISSING in values.values():
            return MISSING
        record = kind(**values)
        for item, _ in fields.values() if self.by_hand else ():
            self._check_needs(record, item, path)
        return record

    def _check_value(self, item: dataclasses.Field[Any], value: Any, path: str) -> None:
        """Add the faults of a sound value: a number out of range, an empty list, names that are not described."""
        limits = item.metadata
        if not limits:
            return
        if limits["example"] and not value:
            self._fault("list-empty", path, example=limits["example"])
        if limits["least"] is not None and value < limits["least"]:
            self._fault("value-out-of-range", path, value=value, least=limits["least"])
        if limits["most"] is not None and value > limits["most"]:
            self._fault("value-out-of-range", path, value=value, most=limits["most"])
        if (table := self.document.tables.get(limits["names"])) is not None:
            one_or_more = limits["split"](value) if limits["split"] else value
            names = (one_or_more,) if isinstance(one_or_more, str) else one_or_more
            for finding in unknown(path, names, table):
                self.document.add(finding)

    def _check_needs(self, record: Any, item: dataclasses.Field[Any], path: str) -> None:
        """Add the fault of a key that has no effect without another one."""
        if not item.metadata or not item.metadata["needs"] or not getattr(record, item.name):
            return
        other, *allowed = item.metadata["needs"]
        value = getattr(record, other)
        if value not in allowed if allowed else not value:
            words = " or ".join(f"`{other}: {choice}`" for choice in allowed) or f"`{other}`"
            self._fault("key-without-effect", joined(path, item.name), needs=words)

    def _needed(self, name: str, item: dataclasses.Field[Any]) -> bool:
        if self.may_lack is not None:
            return name not in self.may_lack
        return default_of(item) is dataclasses.MISSING


@functools.cache
def _form(kind: Any) -> tuple[Any, Any, tuple[Any, ...], bool, bool]:
    """Return a type without None, its origin and arguments, and whether it may be None, and is a dataclass."""
    may_be_none = typing.get_origin(kind) in (types.UnionType, typing.Union)
    if may_be_none:
        kind = next(arg for arg in typing.get_args(kind) if arg is not type(None))
    is_record = dataclasses.is_dataclass(kind) and isinstance(kind, type)
    return kind, typing.get_origin(kind), typing.get_args(kind), may_be_none, is_record


@functools.lru_cache(maxsize=4096)  # most keys stand in a file many times
def _key_error(name: str) -> UnfitError | None:
    """Return why people may not write a name in keys."""
    if (size := len(name.encode())) > LONGEST_NAME:
        return UnfitError("value-too-long", bytes=size, most_bytes=LONGEST_NAME)
    fits = re.fullmatch(r"[\w.+-]+", name)
    return None if fits else wrong_type(name, "name", "letters, digits, and . _ + -")


@functools.cache
def _fields(kind: type) -> dict[str, tuple[dataclasses.Field[Any], Any]]:
    """Return the field and type of each key."""
    hints = typing.get_type_hints(kind)
    return {item.name: (item, hints[item.name]) for item in dataclasses.fields(kind)}


def default_of(item: dataclasses.Field[Any]) -> Any:
    """Return the default of a field; `MISSING` of `dataclasses` where it has none."""
    return item.default if item.default_factory is dataclasses.MISSING else item.default_factory()
