"""The page about the site description, from the dataclasses that it is decoded into."""

from __future__ import annotations

import dataclasses
import functools
import types
import typing
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

from docs.markdown import plain, table
from lumisite.site.decode import Rule
from lumisite.site.load import load_site
from lumisite.site.model import Site
from lumisite.site.plans import ImagePlan, plan_rules
from lumisite.site.rules import RULES
from lumisite.site.scalars import (
    AbsolutePath,
    Chain,
    CpuList,
    Date,
    Flag,
    Line,
    Name,
    PciBus,
    Place,
    RelativePath,
    ReleaseName,
    RootPath,
    Value,
    VariableName,
)
from lumisite.site.versions import Version, VersionRange

INTRODUCTION = """\
One YAML file describes a site. Text stays as it is typed until a key's type reads it: `6.10` is a version, never the
number 6.1. Unknown, missing and repeated keys are faults, and so are names that nothing in the file describes, and
characters that nobody sees. [`lumisite check`](cli.md#check) prints all faults of a file in one run; rules between keys
are checked once each key is sound."""

PLAN_INTRODUCTION = """\
A plan says what one image needs from the host. [`lumisite binds --write`](cli.md#binds) writes it, you
[review it](../how-to/review-a-plan.md), and `lumisite render` compiles it into the wrapper. It is read as a site
description is: a fault is named by line, column and key."""

#: What each leaf type of the site description looks like to the person who types it.
SCALAR_NAMES: Mapping[Any, str] = {
    str: "name",
    Line: "line of text",
    Name: "name or pattern",
    Date: "day or month",
    Chain: "line of text",
    Flag: "name of an option",
    ReleaseName: "version",
    Value: "text, kept byte for byte",
    Place: "`task`, or a module's name",
    AbsolutePath: "absolute path",
    RootPath: "absolute path of letters, digits and `._+@=-`",
    RelativePath: "relative path",
    VariableName: "variable name",
    CpuList: "CPU list",
    PciBus: "PCI bus",
    int: "whole number",
    bool: "yes or no",
    float: "a number above 0",
    Version: "version",
    VersionRange: "version range",
}


@dataclasses.dataclass(frozen=True)
class Section:
    """One dataclass of the site description, and every key path that leads to it."""

    kind: type
    paths: tuple[str, ...]

    @property
    def name(self) -> str:
        """The path without what the admin chooses; where several lead here, the part that they end in."""
        path = self.paths[0] if len(self.paths) == 1 else self.paths[0].rpartition(".")[2]
        return path.replace(".NAME", "").replace("[]", "")


def site_page() -> str:
    """Describe every key of a site description, from the dataclasses that it is decoded into."""
    head = ["# Site description", INTRODUCTION]
    return _page(head, site_sections(), RULES)


def plan_page() -> str:
    """Describe every key of a plan, from the dataclasses that it is decoded into."""
    head = ["# Plan of an image", PLAN_INTRODUCTION]
    return _page(head, site_sections(ImagePlan), plan_rules(load_site("lumi").site, {}))


def _page(head: Sequence[str], sections: Mapping[type, Section], rules: Iterable[Rule]) -> str:
    lines = [*head, "`NAME` stands for a name that you choose, `[]` for the entries of a list."]
    for section in sections.values():
        lines += [f"## {section.name or 'The file'}", *_section_text(section, sections)]
    lines += ["## Rules between keys", "\n".join(f"- {rule_text(rule)}" for rule in rules)]
    return "\n\n".join(lines) + "\n"


def site_sections(top: type = Site) -> dict[type, Section]:
    """Give the dataclasses of a site description, or of a plan, in the order in which a reader of a file meets them."""
    paths: dict[type, list[str]] = {}

    def walk(kind: type, path: str) -> None:
        paths.setdefault(kind, []).append(path)
        for item, hint in fields_of(kind):
            nested, suffix = _innermost(hint)
            if dataclasses.is_dataclass(nested) and nested not in SCALAR_NAMES:
                walk(typing.cast(type, nested), f"{path}.{item.name}{suffix}".removeprefix("."))

    walk(top, "")
    return {kind: Section(kind, tuple(found)) for kind, found in paths.items()}


def fields_of(kind: type) -> list[tuple[dataclasses.Field[Any], Any]]:
    """Give each key of a dataclass with its type, those last that many have."""
    hints = typing.get_type_hints(kind)
    keys = sorted(dataclasses.fields(kind), key=lambda item: item.name not in kind.__annotations__)
    return [(item, hints[item.name]) for item in keys]


def _innermost(hint: Any) -> tuple[Any, str]:
    """Go through optional, list and mapping to the type inside, and say what that adds to a key path."""
    hint = without_none(hint)
    origin = typing.get_origin(hint)
    if origin is tuple:
        return _innermost(typing.get_args(hint)[0])[0], "[]"
    if origin is Mapping:
        return _innermost(typing.get_args(hint)[1])[0], ".NAME"
    return hint, ""


def without_none(hint: Any) -> Any:
    """Give what a key that may be left out holds."""
    if typing.get_origin(hint) in (types.UnionType, typing.Union):
        return next(one for one in typing.get_args(hint) if one is not type(None))
    return hint


def _section_text(section: Section, sections: Mapping[type, Section]) -> list[str]:
    where = " and ".join(f"`{path}`" for path in section.paths if path)
    said = plain((section.kind.__doc__ or "").strip())
    rows = []
    for item, hint in fields_of(section.kind):
        anchor = f"{section.name or 'site'}.{item.name}"
        name = f'<a id="{anchor}"></a>`{item.name}`'
        rows.append([name, type_text(hint, sections), default_text(item), plain(item.metadata["doc"])])
    return [f"{where}: {said}" if where else said, table(["key", "value", "default", "meaning"], rows)]


def type_text(hint: Any, sections: Mapping[type, Section]) -> str:
    """Write a key's type for people; a nested dataclass becomes a link to its section."""
    hint = without_none(hint)
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is Literal:
        return ", ".join(f"`{choice}`" for choice in arguments)
    if origin is tuple:
        return f"list: {type_text(arguments[0], sections)}"
    if origin is Mapping:
        return f"by name: {type_text(arguments[1], sections)}"
    if hint in SCALAR_NAMES:
        return SCALAR_NAMES[hint]
    return f"[{sections[hint].name}](#{_heading_anchor(sections[hint].name)})"


def _heading_anchor(heading: str) -> str:
    """The anchor that GitHub and MkDocs both give a heading made of names and dots."""
    return heading.replace(".", "")


def default_text(item: dataclasses.Field[Any]) -> str:
    """Say whether a key is required, and what leaving it out means."""
    if item.default is dataclasses.MISSING and item.default_factory is dataclasses.MISSING:
        return "**required**"
    default = item.default_factory() if item.default_factory is not dataclasses.MISSING else item.default
    if isinstance(default, bool):
        return "yes" if default else "no"
    if default is None or dataclasses.is_dataclass(default) or default in ((), {}):
        return "none"
    return f"`{default}`"


def rule_text(rule: Rule) -> str:
    """Take what a rule demands from its docstring."""
    told = rule.func if isinstance(rule, functools.partial) else rule
    return plain(" ".join((told.__doc__ or "").split()))
