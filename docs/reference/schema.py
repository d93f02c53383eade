"""The JSON schema of the site description, by which an editor completes keys and marks faults while one types."""

from __future__ import annotations

import dataclasses
import json
import typing
from collections.abc import Mapping
from typing import Any, Literal

from docs.reference.site import SCALAR_NAMES, fields_of, without_none
from lumisite.site.model import Site
from lumisite.site.scalars import AbsolutePath, RootPath, VariableName

#: What a schema can say of a leaf beyond that it is one; `lumisite check` says the rest.
_PATTERNS: Mapping[Any, str] = {AbsolutePath: "^/", RootPath: "^/", VariableName: "^[A-Za-z_][A-Za-z0-9_]*$"}


def site_schema() -> str:
    """Give the schema (JSON Schema, draft 2020-12) of a site description of today's format."""
    kinds: dict[str, Any] = {}
    top = _schema(Site, kinds)
    said = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "lumisite: site description"}
    return json.dumps({**said, **top, "$defs": dict(sorted(kinds.items()))}, indent=1) + "\n"


def _schema(hint: Any, kinds: dict[str, Any]) -> dict[str, Any]:
    hint = without_none(hint)
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is Literal:
        # YAML reads `2` as a number and `yes` as true, which lumisite reads as they are typed.
        return {"enum": [*arguments, *(int(one) for one in arguments if str(one).isdecimal())]}
    if origin is tuple:
        return {"type": "array", "items": _schema(arguments[0], kinds)}
    if origin is Mapping:
        return {"type": "object", "additionalProperties": _schema(arguments[1], kinds)}
    if hint in SCALAR_NAMES:
        pattern = {"pattern": f"{_PATTERNS[hint]}|^="} if hint in _PATTERNS else {}  # `={...}` names another key
        return {"type": ["string", "number", "boolean"], **pattern}
    if hint.__name__ not in kinds:
        kinds[hint.__name__] = {}  # a kind may hold itself
        kinds[hint.__name__] = _object(hint, kinds)
    return {"$ref": f"#/$defs/{hint.__name__}"}


def _object(kind: type, kinds: dict[str, Any]) -> dict[str, Any]:
    known: dict[str, Any] = {}
    required: list[str] = []
    others: dict[str, Any] | bool = False
    for item, hint in fields_of(kind):
        if item.metadata["among"]:
            others = _schema(typing.get_args(hint)[1], kinds)
            continue
        name = item.name.rstrip("_")
        value = _schema(hint, kinds)
        if item.metadata["alone"]:
            value = {"anyOf": [value.get("items") or value["additionalProperties"], value]}
        known[name] = {"description": item.metadata["doc"], **value}
        if item.default is dataclasses.MISSING and item.default_factory is dataclasses.MISSING:
            required.append(name)
    said = " ".join((kind.__doc__ or "").split())
    return {
        "description": said,
        "type": "object",
        "properties": known,
        "required": required,
        "additionalProperties": others,
    }
