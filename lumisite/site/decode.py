"""Plain values to dataclasses: the field's type says what a value means, and every fault of a file is found in one run.

What people write (YAML) has texts only, names that any tool takes, and no key that is not known. What lumisite writes
(JSON) has numbers too, names of any kind, and may have keys of later versions, which are passed over.
"""

from __future__ import annotations

import contextlib
import dataclasses
import difflib
import functools
import json
import re
import types
import typing
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Literal, TypeVar

from lumisite.errors import LumisiteError, Problem, SiteError, file_fault, shown
from lumisite.site.document import MAX_DEPTH, Document, Place, joined, parse_yaml, text_of
from lumisite.text import some

T = TypeVar("T")

#: A rule between keys.
Rule = Callable[[Any], Iterable[tuple[str, str]]]
#: How the text or number of each leaf type is read; raises `UnfitError`.
Scalars = Mapping[Any, Callable[[Any], Any]]


#: The key path and the message of each fault that a rule finds; paths look like `partitions.small-g.node`.
Faults = Iterator[tuple[str, str]]


class UnfitError(ValueError):
    """A value that a scalar type cannot take; the message says what would be right."""


def key(doc: str, *, names: str = "", among: bool = False, alone: bool = False, **options: Any) -> Any:
    """Declare a site key: a dataclass field whose `doc` goes into the generated reference.

    `names` is the table of the site that must describe what the key names; `places` are the modules, and `task`.
    Of a list, or of a mapping, that says `alone`, one value may stand without its brackets.
    A mapping that is `among` others is no key itself: what the table describes are keys beside those of other fields.
    """
    return field(metadata={"doc": doc, "names": names, "among": among, "alone": alone}, **options)


#: Stands for a value that could not be decoded; its fault is already recorded.
MISSING: Any = object()

#: A list of what there is to choose from ends after so many.
MOST_NAMES = 15
#: No number of JSON that is read as a float is larger.
LARGEST_NUMBER = 1e100
#: Linux takes names of files of 255 bytes, and some are made of a key, versions and a suffix.
LONGEST_NAME = 100


def decode(
    data: bytes,
    kind: type[T],
    *,
    file: str,
    scalars: Scalars,
    stages: Iterable[Iterable[Rule]] = (),
    prepare: Callable[[Document], Document] = lambda document: document,
) -> T:
    """Decode YAML `data` into the dataclass `kind`; raise one `SiteError` with every fault found.

    `prepare` may fill in what follows from other values.

    Rules run only on a file whose keys and values are all sound, and those of a stage only when the stages before
    found nothing.
    """
    return Decoder(prepare(parse_yaml(data, file)), scalars, by_hand=True).decode(kind, stages)


def suggestion(word: str, known: Iterable[str]) -> str:
    """Say what `word` may have been meant to be, or what there is to choose from."""
    names = [str(name) for name in known]
    near = difflib.get_close_matches(word, names, n=1, cutoff=0.6)
    if near:
        return f"did you mean {near[0]}?"
    return f"have {some(names, MOST_NAMES, ', ')}" if names else "there are none"


def unknown(path: str, names: Iterable[str], known: Iterable[str]) -> Faults:
    """Say which names are not among those that are described."""
    known = list(known)
    for name in names:
        if name not in known:
            yield path, f"{name} is not described ({suggestion(name, known)})"


@dataclass
class Decoder:
    """One walk over the values of a document; methods return `MISSING` where a fault was noted."""

    document: Document
    scalars: Scalars
    by_hand: bool
    may_lack: Collection[str] | None = None

    def decode(self, kind: type[T], stages: Iterable[Iterable[Rule]]) -> T:
        """Decode the document into the dataclass `kind`, and follow the rules; raises `SiteError`."""
        document = self.document
        value = self.value(document.value, kind, "")
        for rules in stages:
            for rule in () if document.faults else tuple(rules):
                for path, message in rule(value):
                    document.faults.append(document.problem(path, message))
        if document.faults:
            raise SiteError(document.faults)
        return typing.cast(T, value)

    def value(self, value: Any, kind: Any, path: str) -> Any:
        """Decode what stands at `path`."""
        kind, origin, inner, may_be_none, is_record = _form(kind)
        if value is None:
            if may_be_none and not self.by_hand:
                return None
            return self._fault(path, "has no value (write one, or leave the key out)")
        if kind in self.scalars or origin is Literal:
            return self._scalar(value, kind, path)
        if is_record:
            return self._dataclass(value, kind, path)
        if origin is tuple:
            return self._tuple(value, inner[0], path)
        if origin is Mapping:
            return self._mapping(value, inner, path)
        raise TypeError(f"no way to read {kind} is known")

    def _fault(self, path: str, message: str, place: Place | None = None) -> Any:
        self.document.faults.append(self.document.problem(path, message, place))
        return MISSING

    def _scalar(self, value: Any, kind: Any, path: str) -> Any:
        if isinstance(value, dict | list):
            return self._fault(path, f"is a {_shape(value)} (one value would be right)")
        if kind not in self.scalars:
            choices = typing.get_args(kind)
            if value not in choices:
                return self._fault(path, f"{value!r} is not known here ({suggestion(str(value), choices)})")
            return value
        try:
            return self.scalars[kind](value)
        except UnfitError as error:
            return self._fault(path, str(error))

    def _tuple(self, value: Any, kind: Any, path: str) -> Any:
        if not isinstance(value, list):
            return self._fault(path, f"is a {_shape(value)} (a list would be right: [a, b])")
        values = [self.value(child, kind, f"{path}[{index}]") for index, child in enumerate(value)]
        return MISSING if MISSING in values else tuple(values)

    def _mapping(self, value: Any, kinds: Sequence[Any], path: str) -> Any:
        if not isinstance(value, dict):
            return self._fault(path, f"is a {_shape(value)} (a mapping of names would be right)")
        values = {}
        for name, child in value.items():
            here = joined(path, name)
            fits = not self.by_hand or self._name(name, path, here) is not MISSING
            if fits and self._scalar(name, kinds[0], here) is not MISSING:
                values[name] = self.value(child, kinds[1], here)
        if MISSING in values.values():
            return MISSING
        return MappingProxyType(values) if self.by_hand else values

    def _name(self, name: str, path: str, here: str) -> Any:
        """Give a name as people write it in keys."""
        message = _key_fault(name)
        return self._fault(path, message, self.document.key_place(here)) if message else name

    def _dataclass(self, value: Any, kind: Any, path: str) -> Any:
        if not isinstance(value, dict):
            return self._fault(path, f"is a {_shape(value)} (keys and values would be right)")
        fields, among, of_more = _fields(kind)
        table = self.document.value.get(among.metadata["names"]) if among and self.by_hand else None
        more: Collection[str] = table if isinstance(table, dict) else ()
        values: dict[str, Any] = {among.name: {}} if among else {}
        for name, child in value.items():
            here = joined(path, name)
            if self.by_hand and self._name(name, path, here) is MISSING:
                continue
            if name in fields:
                item, inner = fields[name]
                alone = item.metadata.get("alone") and isinstance(child, str)
                if alone:
                    self.document.moved[f"{here}[0]"] = self.document.written(here)
                values[item.name] = self.value([child] if alone else child, inner, here)
            elif among and name in more:
                values[among.name][name] = self.value(child, of_more, here)
            elif self.by_hand:
                known = [*more, *fields]
                self._fault(here, f"is not a key here ({suggestion(name, known)})", self.document.key_place(here))
        missing = [name for name, (item, _) in fields.items() if name not in value and self._needed(name, item)]
        for name in missing:
            first, *_ = fields[name][0].metadata.get("doc", "").split(". ")
            self._fault(joined(path, name), f"is missing ({first.rstrip('.')})" if first else "is missing")
        below = values[among.name].values() if among else ()
        return MISSING if missing or MISSING in values.values() or MISSING in below else kind(**values)

    def _needed(self, name: str, item: dataclasses.Field[Any]) -> bool:
        if self.may_lack is not None:
            return name not in self.may_lack
        return _default(item) is dataclasses.MISSING


@functools.cache
def _form(kind: Any) -> tuple[Any, Any, tuple[Any, ...], bool, bool]:
    """Give a type without None, its origin and arguments, and whether it may be None, and is a dataclass."""
    may_be_none = typing.get_origin(kind) in (types.UnionType, typing.Union)
    if may_be_none:
        kind = next(arg for arg in typing.get_args(kind) if arg is not type(None))
    is_record = dataclasses.is_dataclass(kind) and isinstance(kind, type)
    return kind, typing.get_origin(kind), typing.get_args(kind), may_be_none, is_record


@functools.lru_cache(maxsize=4096)  # most keys stand in a file many times
def _key_fault(name: str) -> str:
    """Say why a name is none that people may write in keys; empty where it is one."""
    if (size := len(name.encode())) > LONGEST_NAME:
        return f"is a name of {size} bytes (at most {LONGEST_NAME} fit into names of files)"
    fits = re.fullmatch(r"[\w.+-]+", name)
    return "" if fits else f"{name!r} is not a name (letters, digits, and . _ + - would be right)"


@functools.cache
def _fields(kind: type) -> tuple[dict[str, tuple[dataclasses.Field[Any], Any]], dataclasses.Field[Any] | None, Any]:
    """Give the field and the type behind each key; and the field for keys that the site describes, with their type."""
    hints, fields = typing.get_type_hints(kind), dataclasses.fields(kind)
    among = next((item for item in fields if item.metadata.get("among")), None)
    own = {item.name: (item, hints[item.name]) for item in fields if item is not among}
    return own, among, typing.get_args(hints[among.name])[1] if among else None


def _default(item: dataclasses.Field[Any]) -> Any:
    return item.default if item.default_factory is dataclasses.MISSING else item.default_factory()


def _shape(value: object) -> str:
    return "list" if isinstance(value, list) else "mapping" if isinstance(value, dict) else "single value"


def _json_text(value: object) -> str:
    """A text of JSON, which can hold half of a surrogate pair, and then fails far from here when it is printed."""
    if not isinstance(value, str):
        raise UnfitError(f"{short(value)} is not a text")
    if not value.isascii() and any("\ud800" <= character <= "\udfff" for character in value):
        raise UnfitError(f"{short(value)} holds half of a character, which UTF-8 cannot write")
    return value


def _json_int(value: object) -> int:
    if type(value) is not int:
        raise UnfitError(f"{short(value)} is not a whole number")
    return value


def _json_float(value: object) -> float:
    if type(value) not in (int, float) or not abs(typing.cast(float, value)) <= LARGEST_NUMBER:
        raise UnfitError(f"{short(value)} is not a finite number")
    return float(typing.cast(float, value))


def _json_line(value: object) -> str:
    if not _json_text(value).isprintable():
        raise UnfitError(f"{short(value)} holds a character that does not print")
    return _json_text(value)


@dataclass(frozen=True)
class JsonFile:
    """A kind of file that lumisite writes: `key` says its format, `remedy` what to do about one that is none.

    A file may lack the keys with a default; where `may_lack` is given, those alone. Where
    all that is in a file `prints`,  odd characters are spelled out when it is written, and refused when it is read.
    """

    name: str
    key: str
    remedy: str
    error: type[LumisiteError] = LumisiteError
    format: int = 1
    may_lack: Collection[str] | None = None
    prints: bool = False
    ascii: bool = True
    older: Callable[[dict[str, Any]], dict[str, Any]] = lambda values: values

    def encode(self, value: object) -> str:
        """Give the text of a file: the same value always gives the same bytes."""
        document = {self.key: self.format, **self._plain(value)}
        return json.dumps(document, sort_keys=True, indent=2, ensure_ascii=self.ascii) + "\n"

    def _plain(self, value: Any) -> Any:
        """Turn a dataclass into JSON's types; what a file may lack is left out."""
        if isinstance(value, str):  # most values are
            return ascii(value) if self.prints and not value.isprintable() else value
        if dataclasses.is_dataclass(value):
            sparse = self.may_lack is None
            pairs = [(item, getattr(value, item.name)) for item in dataclasses.fields(value)]
            return {item.name: self._plain(one) for item, one in pairs if not (sparse and one == _default(item))}
        if isinstance(value, Mapping):
            return {self._plain(name): self._plain(one) for name, one in value.items()}
        return [self._plain(one) for one in value] if isinstance(value, tuple) else value

    def decode(self, data: bytes, kind: type[T], file: str, rules: Iterable[Rule] = ()) -> T:
        """Decode `data` into the dataclass `kind`; raise `error` with one fault and its place."""
        try:
            values = parse_json(data, file)
            if not isinstance(values, dict) or self.key not in values:
                raise file_fault(file, f"is no {self.name}: it has no key {self.key}")
            found = values.pop(self.key)
            if type(found) is not int or found != self.format:
                message = f"{short(found)} is another format ({self.format} can be read)"
                raise SiteError([Problem(file, 0, 0, self.key, message)])
            return decode_values(self.older(values), kind, file, rules, may_lack=self.may_lack, prints=self.prints)
        except SiteError as error:
            problem = error.problems[0]
        if problem.key:
            with contextlib.suppress(SiteError):  # JSON is read as YAML, which knows where everything stands
                line, column = parse_yaml(data, "").place(problem.key)
                problem = dataclasses.replace(problem, line=line, column=column)
        raise self.error(f"{problem}" if problem.key else f"{problem} ({self.remedy})")


def decode_values(
    values: Mapping[str, Any],
    kind: type[T],
    file: str,
    rules: Iterable[Rule] = (),
    *,
    may_lack: Collection[str] | None = None,
    prints: bool = False,
) -> T:
    """Decode values of JSON into the dataclass `kind`; `JsonFile` says what the options mean. Raises `SiteError`."""
    scalars: Scalars = {str: _json_line if prints else _json_text, int: _json_int, float: _json_float}
    return Decoder(Document(file, values), scalars, by_hand=False, may_lack=may_lack).decode(kind, [rules])


def short(value: object) -> str:
    """Show a value of JSON on one line that is not long."""
    text = json.dumps(value)
    return text if len(text) <= 60 else text[:57] + "..."


def parse_json(data: bytes, file: str) -> Any:
    """Read one JSON value from `data`; raises `SiteError` when it is not UTF-8 or JSON, or has a key twice."""
    try:
        value = json.loads(text_of(data, file), object_pairs_hook=_once)
        if data.count(b"[") + data.count(b"{") > MAX_DEPTH:
            _require_shallow(value)
        return value
    except json.JSONDecodeError as error:
        raise file_fault(file, f"is not JSON: {error.msg}", error.lineno, error.colno) from None
    except RecursionError:
        raise file_fault(file, "is not JSON that can be read: nested too deep") from None
    except ValueError as error:  # a key twice, and numbers of too many digits
        raise file_fault(file, f"is not JSON that can be read: {error}") from None


def _require_shallow(value: object) -> None:
    """Raise `RecursionError` where values are nested so deep that what walks through them might."""
    level = [value]
    for _ in range(MAX_DEPTH + 1):
        inner = (one.values() if isinstance(one, dict) else one for one in level if isinstance(one, dict | list))
        level = [child for children in inner for child in children]
    if level:
        raise RecursionError


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"the key {shown(twice)} stands twice in one object")
    return found
