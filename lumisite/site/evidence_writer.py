"""Evidence that a trial found, written into a site description whose comments, order and quotes stay."""

from __future__ import annotations

import glob
import io
from collections.abc import Mapping, Sequence
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap, CommentedSeq
from ruamel.yaml.util import load_yaml_guess_indent

from lumisite.errors import ResolveError
from lumisite.findings.catalogue import make_finding
from lumisite.site.document import parse_yaml, text_of
from lumisite.site.entries import Setting
from lumisite.site.load import LoadedSite

#: `why` of an entry that has evidence and sets nothing.
TRIED = "tried, not set: see `evidence`"
#: No line is folded that was not.
_WIDEST = 1_000_000


def with_evidence(loaded: LoadedSite, name: str, value: str | None, found: Mapping[str, str], file: str) -> bytes:
    """Return the text of a description with evidence in the entry that it is about, before what is known already.

    `value` is what was tried, None for the value that the entry itself sets. An entry that sets another value says of
    which this is; a variable without an entry gets one that leaves it alone. Raises `ResolveError` where evidence is
    shared by several entries, `SiteError` for a file that cannot be read.
    """
    parse_yaml(loaded.data, file)
    writer = YAML()
    writer.preserve_quotes = True
    writer.width = _WIDEST
    writer.brace_single_entry_mapping_in_flow_sequence = True
    document, indent, offset = load_yaml_guess_indent(text_of(loaded.data, file), yaml=writer)
    writer.indent(mapping=2, sequence=indent, offset=offset)
    settings = document.setdefault("settings", CommentedSeq())
    index = _entry_for(loaded.site.settings, name, value)
    if index is None:
        evidence = CommentedSeq([_one_line(found if value is None else _about(value, found))])
        # First in the list: what stands behind the last entry belongs to the next key of the file.
        settings.insert(0, CommentedMap(name=name, leave="yes", why=TRIED, evidence=evidence))
    else:
        sets_it = value is None or loaded.site.settings[index].value == value
        _add(settings, index, _one_line(found if sets_it else _about(value or "", found)))
    text = io.StringIO()
    writer.dump(document, text)
    return text.getvalue().encode()


def _entry_for(settings: Sequence[Setting], name: str, value: str | None) -> int | None:
    """Return the index of the entry that sets this value, else of one that leaves the variable, else of any."""
    entries = [index for index, entry in enumerate(settings) if entry.name == name]
    same = [index for index in entries if settings[index].value is not None and value in (None, settings[index].value)]
    left = [index for index in entries if settings[index].leave]
    return next(iter([*same, *left, *entries]), None)


def _about(value: str, found: Mapping[str, str]) -> dict[str, str]:
    """Return evidence that says of which value it is, as a pattern: `|` would part two."""
    first = {key: found[key] for key in ("effect", "by")}
    return {**first, "of": glob.escape(value).replace("|", "?"), **found}


def _add(settings: Any, index: int, evidence: CommentedMap) -> None:
    """Insert evidence as the first in the list of an entry."""
    entry = settings[index]
    if "evidence" not in entry:
        entry.insert(len(entry) - 1, "evidence", CommentedSeq())  # comments behind the last key stay behind it
    known = entry["evidence"]
    if any(other is not entry and other.get("evidence") is known for other in settings):
        raise ResolveError(make_finding("evidence-shared", "evidence"))
    known.insert(0, evidence)


def _one_line(values: Mapping[str, str]) -> CommentedMap:
    line = CommentedMap(values)
    line.fa.set_flow_style()
    return line
