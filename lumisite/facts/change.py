"""A difference of two captures and the parts of a site that it touches: values, from which findings are made."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from lumisite.findings.catalogue import make_finding
from lumisite.findings.finding import Finding, Severity, Value
from lumisite.findings.writers import MOST_NAMES
from lumisite.text import some

What = Literal["site", "setting", "module", "family", "plan", "mask", "image", "helper"]
#: Correct the description, measure a setting, render again, rebuild or plan an image, run a step and read what it says.
_CODES: Mapping[What, str] = {
    "site": "affected-site",
    "mask": "affected-site",
    "setting": "affected-setting",
    "module": "affected-module",
    "family": "affected-module",
    "image": "affected-image",
    "plan": "affected-plan",
    "helper": "affected-helper",
}


@dataclass(frozen=True)
class Touched:
    """A part of the site that a change touches, and why.

    `name` is a key of the site description, a setting, a module, a family, an image. A `plan` has the name of the
    family that it is for or, if it is stored, of its file.
    """

    what: What
    name: str
    why: str

    @property
    def code(self) -> str:
        """The code: one for each thing that a reader does about it."""
        return _CODES[self.what]


@dataclass(frozen=True)
class Change:
    """One difference of two captures.

    `subject` is what changed: a path, a SONAME, an interface. `before` and `after` are `None` where there was, or is,
    nothing. `paths` are the files and folders that it is about, where the subject is not one. `kind` is the name of the
    row of `KINDS` that found it.
    """

    code: str
    subject: str
    before: str | None = None
    after: str | None = None
    values: Mapping[str, Value] = field(default_factory=dict)
    paths: tuple[str, ...] = ()
    kind: str = ""
    touches: tuple[Touched, ...] = ()
    severity: Severity | None = None

    @property
    def finding(self) -> Finding:
        """The finding, with the severity of its code if it has none of its own."""
        values = {"before": self.before, "after": self.after, **self.values}
        return replace(make_finding(self.code, self.subject, severity=self.severity), values=values)

    def names(self, value: str) -> tuple[str, ...]:
        """Return one of the values that is a list of names."""
        found = self.values.get(value)
        return tuple(map(str, found)) if isinstance(found, tuple) else ()

    def words(self) -> Iterator[str]:
        """Yield every word of the change: names and paths."""
        for value in (self.subject, self.before, self.after, self.paths, *self.values.values()):
            for text in value if isinstance(value, tuple) else (value,):
                if isinstance(text, str):
                    yield text
                    yield from text.replace(",", " ").split()


def only_in(old: Iterable[str] | None, new: Iterable[str] | None) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return what only the first has, and what only the second has."""
    first, second = set(old or ()), set(new or ())
    return tuple(sorted(first - second)), tuple(sorted(second - first))


def listed(names: Iterable[object]) -> str:
    """Return names for a sentence, many of them counted."""
    return some([str(name) for name in names], MOST_NAMES, ", ")


def borrows(libraries: Iterable[object]) -> str:
    """Return why the plans of an image family are touched."""
    return f"its images borrow {listed(libraries)} from the host"


def joined(names: Iterable[str]) -> str | None:
    """Return names as one text, `None` where there are none."""
    return ", ".join(names) or None
