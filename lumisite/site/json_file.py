"""JSON files that lumisite writes and reads again, whatever has become of them in between."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from lumisite.errors import LumisiteError, Problem, SiteError, file_fault, shown
from lumisite.site.decode import Decoder, Rule, Scalars, UnfitError
from lumisite.site.document import MAX_DEPTH, NOWHERE, Document, Place, parse_yaml, text_of

T = TypeVar("T")


def json_text(value: object) -> str:
    """A text of JSON, which can hold half of a surrogate pair, and then fails far from here when it is printed."""
    if not isinstance(value, str):
        raise UnfitError(f"{short(value)} is not a text")
    if not value.isascii() and any("\ud800" <= character <= "\udfff" for character in value):
        raise UnfitError(f"{short(value)} holds half of a character, which UTF-8 cannot write")
    return value


def json_int(value: object) -> int:
    """A whole number of JSON."""
    if type(value) is not int:
        raise UnfitError(f"{short(value)} is not a whole number")
    return value


def json_line(value: object) -> str:
    """A text of JSON that prints on one line."""
    if not json_text(value).isprintable():
        raise UnfitError(f"{short(value)} holds a character that does not print")
    return json_text(value)


@dataclass(frozen=True)
class JsonFile:
    """A kind of file that lumisite writes: `key` says its format, `remedy` what to do about one that is none.

    A file may lack the keys with a default; where `may_lack` is given, those alone. Where
    all that is in a file `prints`, odd characters are spelled out when it is written, and refused when it is read.
    """

    name: str
    key: str
    remedy: str
    error: type[LumisiteError] = LumisiteError
    format: int = 1
    may_lack: Collection[str] | None = None
    prints: bool = False
    ascii: bool = True

    def encode(self, value: object) -> str:
        """Give the text of a file: the same value always gives the same bytes."""
        document = {self.key: self.format, **self._plain(value)}
        return json.dumps(document, sort_keys=True, indent=2, ensure_ascii=self.ascii) + "\n"

    def _plain(self, value: Any) -> Any:
        """Turn a dataclass into JSON's types; what a file may lack is left out."""
        if dataclasses.is_dataclass(value):
            sparse = self.may_lack is None
            pairs = [(item, getattr(value, item.name)) for item in dataclasses.fields(value)]
            return {item.name: self._plain(one) for item, one in pairs if not (sparse and _is_default(item, one))}
        if isinstance(value, Mapping):
            return {self._plain(name): self._plain(one) for name, one in value.items()}
        if isinstance(value, str):
            return ascii(value) if self.prints and not value.isprintable() else value
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
            return decode_values(values, kind, file, rules, may_lack=self.may_lack, prints=self.prints)
        except SiteError as error:
            problem = error.problems[0]
        if problem.key:
            line, column = _json_place(data, problem.key)
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
    scalars: Scalars = {str: json_line if prints else json_text, int: json_int}
    return Decoder(Document(file, values), scalars, by_hand=False, may_lack=may_lack).decode(kind, [rules])


def _is_default(item: dataclasses.Field[Any], value: object) -> bool:
    if item.default_factory is not dataclasses.MISSING:
        return bool(value == item.default_factory())
    return bool(value == item.default)


def _json_place(data: bytes, path: str) -> Place:
    """Give the place of a key path; JSON is read as YAML for that, which knows where everything stands."""
    try:
        return parse_yaml(data, "").place(path)
    except SiteError:
        return NOWHERE


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
