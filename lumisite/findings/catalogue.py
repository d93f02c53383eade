"""The catalogue: an entry for each code, with all that people read about it. Its data are the YAML files here."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path

from lumisite.findings.finding import Finding, Place, Severity, Value

FOLDER = Path(__file__).parent


@dataclass(frozen=True)
class CatalogueEntry:
    """What people read about a code.

    `text` and `advice` are templates over the values of a finding (`str.format`). Of several, the first one counts
    whose values are all known. `source` is where it is known from.
    """

    code: str
    text: tuple[str, ...]
    severity: Severity
    advice: tuple[str, ...] = ()
    source: str = ""


def make_finding(
    code: str,
    subject: str = "",
    *,
    nodes: Iterable[str] = (),
    cause: str | None = None,
    place: Place | None = None,
    severity: Severity | None = None,
    **values: Value,
) -> Finding:
    """Return a finding, by default with the severity that the catalogue has for its code.

    Raises `KeyError` for a code that the catalogue does not have.
    """
    return Finding(
        code,
        severity or entry(code).severity,
        subject=subject,
        nodes=tuple(nodes),
        values=values,
        cause=cause,
        place=place,
    )


def entry(code: str) -> CatalogueEntry:
    """Return the entry of a code; raises `KeyError`."""
    found = find_entry(code)
    if found is None:
        raise KeyError(code)
    return found


def find_entry(name: str) -> CatalogueEntry | None:
    """Return the entry of a code, `None` for what is no code. Of the files, only the one that has it is parsed."""
    group = _group_of(name)
    return None if group is None else load_group(group).get(name)


@lru_cache(maxsize=1024)
def _group_of(name: str) -> str | None:
    begin = f"\n{name}:".encode(errors="surrogateescape")
    return next((group for group, data in _files().items() if begin in data), None)


@cache
def load_group(group: str) -> Mapping[str, CatalogueEntry]:
    """Return the entries of one file."""
    import yaml  # most commands have nothing to report, and start without it

    # libyaml, where PyYAML was built with it, reads fifteen times as fast.
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    raw = yaml.load(_files()[group], loader) or {}  # noqa: S506, a file of the package, by a safe loader
    return {code: _entry(code, fields) for code, fields in raw.items()}


@cache
def _files() -> Mapping[str, bytes]:
    """Return the content of each file; each begins with a line break, as each entry does."""
    return {path.stem: b"\n" + path.read_bytes() for path in sorted(FOLDER.glob("*.yaml"))}


def _entry(code: str, fields: Mapping[str, object]) -> CatalogueEntry:
    return CatalogueEntry(
        code=code,
        severity=Severity(fields["severity"]),
        text=_templates(fields["text"]),
        advice=_templates(fields.get("advice", [])),
        source=str(fields.get("source", "")).strip(),
    )


def _templates(raw: object) -> tuple[str, ...]:
    return tuple(str(one).strip() for one in raw) if isinstance(raw, list) else (str(raw).strip(),)
