"""Symptoms: error texts of other programs, what they mostly come from, and what to run next."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal

from lumisite.site.decode import decode
from lumisite.site.document import MAX_BYTES
from lumisite.site.read import read_file
from lumisite.site.scalars import SCALARS, Line

FOLDER = Path(__file__).parent / "symptoms"
Kind = Literal["slow", "hangs", "stops"]
#: Of a longer text the beginning is searched, where the first error is, in characters.
MOST_TEXT = 1 << 20
#: A line is searched and quoted up to here, in characters.
MOST_LINE = 2000
#: The `program` of what is seen, and not printed.
SEEN = "any"


@dataclass(frozen=True)
class SymptomCause:
    """What a symptom may come from: codes of findings, variables of the site's settings, and a command."""

    text: Line
    run: Line
    codes: tuple[str, ...]
    settings: tuple[str, ...] = ()


@dataclass(frozen=True)
class Symptom:
    """What a user sees: one of `patterns` fits a line of it. `program` prints it; `source` is where it is known from.

    `follows`: it mostly follows from another error, so it counts after those that do not. `unless`: where one of these
    fits a line of the text, that line explains this one, which does not count.
    """

    title: Line
    program: Line
    kind: Kind
    patterns: tuple[Line, ...]
    causes: tuple[SymptomCause, ...]
    source: Line
    follows: bool = False
    unless: tuple[Line, ...] = ()


@dataclass(frozen=True)
class _SymptomFile:
    symptoms: Mapping[str, Symptom]


@dataclass(frozen=True)
class SymptomMatch:
    """A symptom, its name, and the first line of a text that it fits."""

    name: str
    symptom: Symptom
    line: str


@cache
def load_symptoms() -> Mapping[str, Symptom]:
    """Return all symptoms by name, in the order of the files."""
    found: dict[str, Symptom] = {}
    for path in sorted(FOLDER.glob("*.yaml")):
        found |= decode(read_file(path, MAX_BYTES), _SymptomFile, file=str(path), scalars=SCALARS).symptoms
    return found


def is_symptom(name: str) -> bool:
    """Return whether this is an error text, or what is seen in words, or the name of a symptom; a path is neither."""
    is_text = " " in name.strip() and not name.startswith("/")
    return is_text or name in load_symptoms()


def find_symptoms(text: str) -> Sequence[SymptomMatch]:
    """Return the symptoms that fit a line of an error text: first those that follow from no other, by their line.

    What is seen (`it is slow`) counts only where no error text of a program fits.
    """
    lines = [line[:MOST_LINE].strip() for line in text[:MOST_TEXT].splitlines()]
    printed: list[tuple[bool, int, SymptomMatch]] = []
    seen: list[SymptomMatch] = []
    for name, symptom in load_symptoms().items():
        fits = _any_of(symptom.patterns)
        at = next((at for at, line in enumerate(lines) if line == name or fits.search(line)), None)
        if at is None or (symptom.unless and any(map(_any_of(symptom.unless).search, lines))):
            continue
        match = SymptomMatch(name, symptom, lines[at])
        if symptom.program == SEEN and symptom.kind != "stops":
            seen.append(match)
        else:
            printed.append((symptom.follows, at, match))
    printed.sort(key=lambda entry: entry[:2])
    return [match for _, _, match in printed] or seen


def _any_of(patterns: Sequence[str]) -> re.Pattern[str]:
    return re.compile("|".join(f"(?:{pattern})" for pattern in patterns))
