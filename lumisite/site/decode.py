"""Plain values to dataclasses: the field's type says what a value means, and every fault of a file is found in one run.

`cattrs` structures the values. What people write (YAML) has texts only, names that any tool takes, and no key that is
not known; which names a key may refer to, and which numbers it takes, its `key` says.
"""

from __future__ import annotations

import dataclasses
import re
import types
import typing
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from functools import cache
from types import MappingProxyType
from typing import Any, Literal, TypeVar

import cattrs

from lumisite.errors import SiteError, UnfitError
from lumisite.findings.finding import Finding, Severity
from lumisite.site.scalars import SCALARS
from lumisite.site.yaml import Document, joined, parse_yaml
from lumisite.text import nearest_name, suggestion

T = TypeVar("T")

#: The faults that a rule between keys finds: their subjects are key paths, such as `partitions.small-g.node`.
Faults = Iterator[Finding]
#: A rule between keys.
Rule = Callable[[Any], Iterable[Finding]]
#: How the text or number of each leaf type is read; raises `UnfitError`.
Scalars = Mapping[Any, Callable[[Any], Any]]
#: The names that keys may refer to, by the name of their table.
Tables = Mapping[str, Collection[str]]


def unknown_name(subject: str, name: str, kind: str, site: str, known: Iterable[str]) -> Finding:
    """Return a finding about a name of some kind, with the known name that is most like it."""
    message = f"{site} has no {kind} {name}"
    return Finding("name-unknown", Severity.FAULT, message, suggestion(name, known), subject)


def unknown(path: str, names: Iterable[str], known: Iterable[str]) -> Faults:
    """Yield a fault for each name that is not described."""
    known = known if isinstance(known, Collection) else list(known)  # a table is not copied for each of its users
    for name in names:
        if name not in known:
            yield Finding("name-unknown", Severity.FAULT, _unknown(name), suggestion(name, known), path)


def _unknown(name: str) -> str:
    return f"{name} is not known here" if name else "the name is empty"


def contradiction(path: str, message: str, advice: str) -> Finding:
    """Return a finding about keys whose values, each sound by itself, do not go together."""
    return Finding("keys-contradict", Severity.FAULT, message, advice, path)


def missing_key(path: str, advice: str = "add it") -> Finding:
    """Return a finding about a key that must be there."""
    return Finding("key-missing", Severity.FAULT, "is missing", advice, path)


def key(
    doc: str,
    *,
    names: str = "",
    split: Callable[[str], tuple[str, ...]] | None = None,
    least: float | None = None,
    most: float | None = None,
    example: str = "",
    **options: Any,
) -> Any:
    """Declare a site key: a dataclass field whose `doc` goes into the generated reference.

    `names` is the table that must have what the key names; a text with several names is `split`. A number is from
    `least` to `most`; a list or mapping with an `example` is not empty.
    """
    limits = {"least": least, "most": most, "example": example}
    return field(metadata={"doc": doc, "names": names, "split": split, **limits}, **options)


def decode(
    data: bytes,
    kind: type[T],
    *,
    file: str,
    rules: Iterable[Rule] = (),
    prepare: Callable[[Document], Tables] = lambda document: {},
) -> T:
    """Decode YAML `data` into the dataclass `kind`; raise one `SiteError` with every fault found.

    `prepare` may fill in what follows from other values, and returns the tables of names. Rules run only on a file
    whose keys and values are all sound.
    """
    document = parse_yaml(data, file)
    tables = prepare(document)
    value, faults = structure(document.value, kind, _texts())
    for finding in (*_name_faults(document.value, ""), *faults, *_limit_faults(document.value, kind, tables, "")):
        # One place has one fault, the first: an empty value is not one of the wrong type too.
        if not any(finding.subject == fault.subject for fault in document.faults):
            document.add(finding, document.keys.get(finding.subject) if finding.code == "key-unknown" else None)
    for rule in () if document.faults else tuple(rules):
        for finding in rule(value):
            document.add(finding)
    if document.faults:
        raise SiteError(document.faults)
    return typing.cast(T, value)


def structure(value: Any, kind: type[T], converter: cattrs.BaseConverter) -> tuple[T | None, list[Finding]]:
    """Return a value as the dataclass `kind`, or all that is wrong with it."""
    try:
        return converter.structure(value, kind), []
    except (cattrs.BaseValidationError, UnfitError) as error:
        return None, list(_faults_of(error, ""))


def new_converter(scalars: Scalars, *, by_hand: bool) -> cattrs.BaseConverter:
    """Return what structures values, with leaf types as `scalars` has them; files `by_hand` have no unknown keys.

    `cattrs.Converter` would write and compile a function for each dataclass, which takes longer than the largest file.
    """
    converter = cattrs.BaseConverter()
    for leaf, read in scalars.items():
        converter.register_structure_hook(leaf, _hook(read))

    def record(kind: Any) -> Any:
        return lambda value, _: _record(_shaped(value, dict), kind, converter, by_hand=by_hand)

    def by_name(kind: Any) -> Any:
        mutable: Any = types.GenericAlias(dict, typing.get_args(kind))
        fixed: Callable[[Any], Any] = MappingProxyType if by_hand else dict
        return lambda value, _: fixed(converter.structure(_shaped(value, dict), mutable))

    def several(kind: Any) -> Any:
        mutable: Any = types.GenericAlias(list, typing.get_args(kind)[0])
        return lambda value, _: tuple(converter.structure(_shaped(value, list), mutable))

    def one_of(kind: Any) -> Any:
        return lambda value, _: _chosen(_shaped(value, str), typing.get_args(kind))

    converter.register_structure_hook_factory(dataclasses.is_dataclass, record)
    converter.register_structure_hook_factory(_comes_from(Mapping), by_name)
    converter.register_structure_hook_factory(_comes_from(tuple), several)
    converter.register_structure_hook_factory(_comes_from(Literal), one_of)
    return converter


def _record(values: Mapping[str, Any], kind: Any, converter: cattrs.BaseConverter, *, by_hand: bool) -> Any:
    """Return values as a dataclass, or raise all that is wrong with them."""
    given: dict[str, Any] = {}
    errors: list[Exception] = []
    for item, hint in _fields(kind):
        if item.name in values:
            try:
                given[item.name] = converter.structure(values[item.name], hint)
            except (cattrs.BaseValidationError, UnfitError) as error:
                error.__notes__ = [cattrs.AttributeValidationNote("", item.name, hint)]
                errors.append(error)
        elif item.default is item.default_factory is dataclasses.MISSING:
            errors.append(KeyError(item.name))
    if by_hand and (extra := values.keys() - {item.name for item, _ in _fields(kind)}):
        errors.append(cattrs.ForbiddenExtraKeysError("", kind, extra))
    if errors:
        raise cattrs.ClassValidationError("", errors, kind)
    return kind(**given)


def _hook(read: Callable[[Any], Any]) -> Callable[[Any, Any], Any]:
    return lambda value, _: read(value)


def _comes_from(origin: Any) -> Callable[[Any], bool]:
    return lambda kind: typing.get_origin(kind) is origin


@cache
def _texts() -> cattrs.BaseConverter:
    """Return the converter of files that people write, whose values are texts."""

    def of_text(read: Callable[[str], Any]) -> Callable[[Any], Any]:
        return lambda value: read(_shaped(value, str))

    return new_converter({leaf: of_text(read) for leaf, read in SCALARS.items()}, by_hand=True)


_SHAPES: Mapping[type, str] = {dict: "mapping", list: "list", str: "single value"}


def _shaped(value: Any, shape: type) -> Any:
    """Return a value that is a mapping, a list, or a text as it should be; raises `UnfitError`."""
    if value is None:
        raise _no_value()
    if not isinstance(value, shape):
        advice = "example for a list: [a, b]; for a mapping: `a: b` on a line of its own"
        found = next((name for kind, name in _SHAPES.items() if isinstance(value, kind)), "single value")
        raise UnfitError(f"is a {found}, expected a {_SHAPES[shape]}", advice)
    return value


def _no_value() -> UnfitError:
    return UnfitError("has no value", "write one, or remove the key")


def _chosen(value: str, choices: Sequence[str]) -> str:
    if value not in choices:
        raise UnfitError(_unknown(value), suggestion(value, choices))
    return value


def _faults_of(error: Exception, path: str) -> Faults:
    """Yield what is wrong with the value at a path, by the notes of cattrs about the place of each error in a group."""
    if isinstance(error, cattrs.BaseValidationError):
        others = [
            inner for inner in error.exceptions if not isinstance(inner, cattrs.ForbiddenExtraKeysError | KeyError)
        ]
        for inner in others:
            yield from _faults_of(inner, _place_of(inner, path))
        if isinstance(error, cattrs.ClassValidationError):
            yield from _record_faults(error, path)
    elif isinstance(error, UnfitError):
        yield error.finding(path)
    else:
        raise error


def _record_faults(error: cattrs.ClassValidationError, path: str) -> Faults:
    """Yield the keys that a record does not have, and those that it lacks; one that is mistyped is not missing too."""
    docs = {item.name: str(item.metadata.get("doc", "")) for item in dataclasses.fields(typing.cast(Any, error.cl))}
    extra = [inner for inner in error.exceptions if isinstance(inner, cattrs.ForbiddenExtraKeysError)]
    meant: set[str | None] = set()
    for name in sorted(name for inner in extra for name in inner.extra_fields):
        meant.add(nearest_name(name, docs))
        advice = suggestion(name, docs)
        yield Finding("key-unknown", Severity.FAULT, "is not a key here", advice, joined(path, name))
    for inner in error.exceptions:
        if isinstance(inner, KeyError) and inner.args[0] not in meant:
            what = docs[inner.args[0]].split(". ")[0].rstrip(".")
            yield missing_key(joined(path, inner.args[0]), f"add it: {what}" if what else "add it")


def _place_of(error: BaseException, path: str) -> str:
    """Return the key path that a note of cattrs gives to an error in the value at `path`."""
    for note in getattr(error, "__notes__", ()):
        if isinstance(note, cattrs.AttributeValidationNote):
            return joined(path, note.name)
        if isinstance(note, cattrs.IterableValidationNote):
            return f"{path}[{note.index}]" if isinstance(note.index, int) else joined(path, note.index)
    return path


def _name_faults(value: Any, path: str) -> Faults:
    """Yield the keys that no tool would take as a name, and those without a value."""
    if isinstance(value, dict):
        for name, child in value.items():
            key_path = joined(path, name)
            if not re.fullmatch(r"[\w.+-]+", name):
                message = f"{name!r} is not a name"
                yield Finding("key-unknown", Severity.FAULT, message, "use letters, digits, and . _ + -", key_path)
            else:
                yield from _name_faults(child, key_path)
    elif isinstance(value, list):
        for index, child in enumerate(value):
            yield from _name_faults(child, f"{path}[{index}]")
    elif value is None:
        yield _no_value().finding(path)


def _limit_faults(value: Any, kind: Any, tables: Tables, path: str) -> Faults:
    """Yield the values that their `key` does not take, as far as they have the right type."""
    kind = _without_none(kind)
    inner = typing.get_args(kind)
    if typing.get_origin(kind) is tuple and isinstance(value, list):
        for index, child in enumerate(value):
            yield from _limit_faults(child, inner[0], tables, f"{path}[{index}]")
    elif typing.get_origin(kind) is Mapping and isinstance(value, dict):
        for name, child in value.items():
            yield from _limit_faults(child, inner[1], tables, joined(path, name))
    elif dataclasses.is_dataclass(kind) and isinstance(value, dict):
        for item, hint in _fields(typing.cast(type, kind)):
            if item.name in value and item.metadata:
                yield from _key_faults(value, item, tables, joined(path, item.name))
                yield from _limit_faults(value[item.name], hint, tables, joined(path, item.name))


def _key_faults(record: Mapping[str, Any], item: dataclasses.Field[Any], tables: Tables, path: str) -> Faults:
    """Yield what is wrong with the value of a key: a number out of range, an empty list, names that nothing has."""
    limits, value = item.metadata, record[item.name]
    if limits["example"] and value in ([], {}):
        yield UnfitError("names nothing", f"example: {limits['example']}").finding(path)
    if isinstance(value, str) and re.fullmatch(r"[0-9]{1,12}(\.[0-9]{1,9})?", value):
        for limit, words in (("least", "less"), ("most", "more")):
            bound = limits[limit]
            if bound is not None and (float(value) < bound if limit == "least" else float(value) > bound):
                yield UnfitError(f"{value} is {words} than {bound}", "use another value").finding(path)
    if (table := tables.get(limits["names"])) is not None:
        texts = [value] if isinstance(value, str) else value if isinstance(value, list | dict) else ()
        names = [name for text in texts for name in (limits["split"](text) if limits["split"] else (text,))]
        yield from unknown(path, [name for name in names if isinstance(name, str)], table)


def _without_none(kind: Any) -> Any:
    if typing.get_origin(kind) in (types.UnionType, typing.Union):
        return next(arg for arg in typing.get_args(kind) if arg is not type(None))
    return kind


@cache
def _fields(kind: type) -> list[tuple[dataclasses.Field[Any], Any]]:
    """Return the fields of a dataclass with their types."""
    hints = typing.get_type_hints(kind)
    return [(item, hints[item.name]) for item in dataclasses.fields(kind)]


def default_of(item: dataclasses.Field[Any]) -> Any:
    """Return the default of a field; `MISSING` of `dataclasses` where it has none."""
    return item.default if item.default_factory is dataclasses.MISSING else item.default_factory()
