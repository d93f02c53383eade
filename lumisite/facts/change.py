"""A difference of two captures and the parts of a site that it touches: values, from which findings are made."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from lumisite.findings.catalogue import make_finding
from lumisite.findings.finding import Finding, Value

What = Literal["site", "setting", "module", "family", "plan", "mask", "image", "helper"]


@dataclass(frozen=True)
class Touched:
    """A part of the site that a change touches; `code` and `values` are why.

    `name` is a key of the site description, a setting, a module, a family, an image. A `plan` has the name of the
    family that it is for or, if it is stored, of its file.
    """

    what: What
    name: str
    code: str
    values: Mapping[str, Value] = field(default_factory=dict)

    def finding(self, cause: str) -> Finding:
        """Return the finding; `cause` is the code of the change."""
        return replace(make_finding(self.code, self.name, cause=cause), values=self.values)


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

    @property
    def finding(self) -> Finding:
        """The finding."""
        values = {"before": self.before, "after": self.after, **self.values}
        return replace(make_finding(self.code, self.subject), values=values)

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


def joined(names: Iterable[str]) -> str | None:
    """Return names as one text, `None` where there are none."""
    return ", ".join(names) or None
