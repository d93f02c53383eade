"""Files of JSON that lumisite writes, and values of JSON as dataclasses.

They have numbers too, names of any kind, and may have keys of later versions, which are passed over.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import sys
import typing
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeVar

import cattrs

from lumisite.errors import LumisiteError, SiteError, UnfitError, shown, unreadable, wrong_type
from lumisite.findings.finding import Finding, Place, Severity
from lumisite.site.decode import Rule, Scalars, default_of, missing_key, new_converter, structure
from lumisite.site.yaml import parse_yaml, text_of
from lumisite.text import first_repeated

T = TypeVar("T")
#: The version of the files.
FORMAT = 1


def _json_text(value: object) -> str:
    """Return a text of JSON that prints on one line."""
    if not isinstance(value, str):
        raise wrong_type(short(value), "text", '"text"')
    if not value.isprintable():
        raise UnfitError(f"contains {short(value)}", "write one line of visible text")
    return value


def _json_int(value: object) -> int:
    if type(value) is not int:
        raise wrong_type(short(value), "whole number", "4096")
    return value


def _json_float(value: object) -> float:
    if type(value) not in (int, float) or not abs(typing.cast(float, value)) <= sys.float_info.max:
        raise wrong_type(short(value), "finite number", "0.05")
    return float(typing.cast(float, value))


def _json_bool(value: object) -> bool:
    if not isinstance(value, bool):
        raise wrong_type(short(value), "truth value", "true")
    return value


@dataclass(frozen=True)
class JsonFile:
    """A kind of file that lumisite writes: `key` has its format, `written_by` is the command that writes one.

    A file may lack the keys with a default, unless it is `complete`. Odd characters are spelled out when it is written,
    and refused when it is read.
    """

    name: str
    key: str
    written_by: str
    error: type[LumisiteError] = LumisiteError
    complete: bool = False

    def encode(self, value: object) -> str:
        """Return the text of a file: the same value always gives the same bytes."""
        document = {self.key: FORMAT, **self._plain(value)}
        return json.dumps(document, sort_keys=True, indent=2) + "\n"

    def _plain(self, value: Any) -> Any:
        """Turn a dataclass into JSON's types; what a file may lack is left out."""
        if isinstance(value, str):  # most values are
            return value if value.isprintable() else ascii(value)
        if dataclasses.is_dataclass(value):
            pairs = [(item, getattr(value, item.name)) for item in dataclasses.fields(value)]
            return {item.name: self._plain(part) for item, part in pairs if self.complete or part != default_of(item)}
        if isinstance(value, Mapping):
            return {self._plain(name): self._plain(part) for name, part in value.items()}
        return [self._plain(part) for part in value] if isinstance(value, tuple) else value

    def decode(self, data: bytes, kind: type[T], file: str, rules: Iterable[Rule] = ()) -> T:
        """Decode `data` into the dataclass `kind`; raise `error` with one fault and its position."""
        advice = f"restore it, or write one with `{self.written_by}`"
        try:
            values = parse_json(data, file, advice)
            if not isinstance(values, dict) or self.key not in values:
                raise unreadable(file, f"not a {self.name}: it has no key {self.key}", advice)
            found = values.pop(self.key)
            if type(found) is not int or found != FORMAT:
                message = f"format {short(found)} is not known, only {FORMAT}"
                raise SiteError([Finding("value-wrong", Severity.FAULT, message, advice, self.key, place=Place(file))])
            return decode_values(values, kind, file, rules, complete=self.complete)
        except SiteError as error:
            finding = error.finding
        location = finding.place
        if finding.subject:
            with contextlib.suppress(SiteError):  # JSON is read as YAML, which knows the position of everything
                location = Place(file, *parse_yaml(data, "").position(finding.subject))
        raise self.error(dataclasses.replace(finding, place=location))


def decode_values(
    values: Mapping[str, Any],
    kind: type[T],
    file: str,
    rules: Iterable[Rule] = (),
    *,
    complete: bool = False,
) -> T:
    """Decode values of JSON into the dataclass `kind`; `JsonFile` says what `complete` means. Raises `SiteError`."""
    value, faults = structure(values, kind, _json_values())
    if complete:
        names = (item.name for item in dataclasses.fields(kind))  # type: ignore[arg-type]
        faults += (missing_key(name) for name in names if name not in values)
    if value is not None and not faults:
        faults = [finding for rule in rules for finding in rule(value)]
    if faults:
        raise SiteError([dataclasses.replace(finding, place=Place(file)) for finding in faults])
    return typing.cast(T, value)


@cache
def _json_values() -> cattrs.BaseConverter:
    scalars: Scalars = {str: _json_text, int: _json_int, float: _json_float, bool: _json_bool}
    return new_converter(scalars, by_hand=False)


def short(value: object) -> str:
    """Show a value of JSON on one line that is not long."""
    text = json.dumps(value)
    return text if len(text) <= 60 else text[:57] + "..."


def parse_json(data: bytes, file: str, advice: str = "restore it from a copy") -> Any:
    """Read one JSON value from `data`; raises `SiteError` when it is not UTF-8 or JSON, or has a key twice."""
    try:
        return json.loads(text_of(data, file), object_pairs_hook=_once)
    except json.JSONDecodeError as error:
        raise unreadable(file, f"not JSON: {error.msg}", advice, error.lineno, error.colno) from None
    except RecursionError:
        raise unreadable(file, "not JSON that can be read: nested too deep", advice) from None
    except _RepeatedKeyError as error:
        raise unreadable(file, f"{shown(str(error))} is given twice", "remove one of the two") from None
    except ValueError as error:  # numbers of too many digits
        raise unreadable(file, f"not JSON: {error}", advice) from None


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise _RepeatedKeyError(first_repeated(name for name, _ in pairs))
    return found


class _RepeatedKeyError(ValueError):
    """A key is in one object of JSON twice."""
