"""Evidence that a trial found, put into the text of a site description: its comments, order and layout stay.

The text is edited at the places that PyYAML tells, as `update` does, so that all else keeps its bytes; a library that
writes the whole file anew (ruamel.yaml) would keep comments, and change quotes and widths.
"""

from __future__ import annotations

import glob
from collections.abc import Mapping, Sequence
from typing import cast

import yaml

from lumisite.errors import ResolveError
from lumisite.site.document import parse_yaml, text_of
from lumisite.site.entries import Setting
from lumisite.site.load import LoadedSite
from lumisite.site.update import Node, composed, end_of, is_flow, line_end, pairs_of
from lumisite.text import flow, yaml_text

#: What an entry is told to be that the ledger did not have.
TRIED = "tried, and left as it is: what was seen stands below"


def with_evidence(loaded: LoadedSite, name: str, value: str | None, found: Mapping[str, str], file: str) -> bytes:
    """Give the text of a description with evidence in the entry that it is about: the strongest comes first.

    `value` is what was tried, None for the value that the entry itself sets. An entry that sets another value says of
    which this is; a variable without an entry gets one that leaves it alone. Raises `ResolveError` for a file of
    format 1, `SiteError` for one that cannot be read.
    """
    if parse_yaml(loaded.data, file).value.get("lumisite") != "2":
        raise ResolveError(f"{file}: is of an older format (`lumisite check --update {file}` writes it anew)")
    text = text_of(loaded.data, file)
    top = {key.value: node for key, node in pairs_of(composed(text))}
    index = _index(loaded.site.settings, name, value)
    if index is None:
        return _with_entry(text, top.get("settings"), name, value, found).encode()
    if value is not None and loaded.site.settings[index].value != value:
        found = _about(value, found)
    return _with_line(text, cast(list[Node], top["settings"].value)[index], flow(found)).encode()


def _index(settings: Sequence[Setting], name: str, value: str | None) -> int | None:
    """Find the entry that sets this value, else the one that leaves the variable alone, else any of its own."""
    own = [index for index, one in enumerate(settings) if one.name == name]
    same = [index for index in own if settings[index].value is not None and value in (None, settings[index].value)]
    return next(iter([*same, *(index for index in own if settings[index].leave), *own]), None)


def _about(value: str, found: Mapping[str, str]) -> dict[str, str]:
    """Say of which value this is, behind the effect and how it is known; `|` would part two."""
    first = {key: found[key] for key in ("effect", "by")}
    return {**first, "of": glob.escape(value).replace("|", "?"), **found}


def _with_entry(text: str, settings: Node | None, name: str, value: str | None, found: Mapping[str, str]) -> str:
    told = found if value is None else _about(value, found)
    entry = f"- name: {name}\n  leave: yes\n  why: {yaml_text(TRIED)}\n  evidence:\n    - {flow(told)}\n"
    if not isinstance(settings, yaml.nodes.SequenceNode) or settings.flow_style or not settings.value:
        raise ResolveError("settings: is no list in block style, to which an entry could be added")
    at, indent = line_end(text, end_of(settings)), " " * settings.start_mark.column
    lines = "".join(f"{indent}{line}\n" for line in entry.splitlines())
    return _inserted(text, at, lines)


def _with_line(text: str, entry: Node, line: str) -> str:
    pairs = pairs_of(entry)
    known = next((node for key, node in pairs if key.value == "evidence"), None)
    if known is not None and not entry.start_mark.index < known.start_mark.index < end_of(entry):
        raise ResolveError("evidence: is that of another entry (`*`), so what is added would stand there too")
    if is_flow(entry if known is None else known):
        if known is None:
            at = entry.end_mark.index - 1
            return f"{text[:at]}, evidence: [{line}]{text[at:]}"
        at = known.start_mark.index + 1
        return f"{text[:at]}{line}{', ' if known.value else ''}{text[at:]}"
    if known is None:
        indent = " " * pairs[0][0].start_mark.column
        return _inserted(text, line_end(text, end_of(entry)), f"{indent}evidence:\n{indent}  - {line}\n")
    first = known.start_mark
    return _inserted(text, first.index - first.column, f"{' ' * first.column}- {line}\n")


def _inserted(text: str, at: int, lines: str) -> str:
    """Put whole lines at the beginning of one."""
    return text[:at] + ("" if text[:at].endswith("\n") else "\n") + lines + text[at:]
