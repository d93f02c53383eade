"""A difference of two captures, and the parts of a site that it touches."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from lumisite.findings.finding import Severity
from lumisite.text import listed, printable

What = Literal["site", "setting", "module", "family", "plan", "mask", "image", "helper"]
INFO, DOUBT, FAULT = Severity.INFO, Severity.DOUBT, Severity.FAULT


@dataclass(frozen=True)
class Touched:
    """A part of the site that a change touches, and why.

    `name` is a key of the site description, a setting, a module, a family, an image. A `plan` has the name of the
    family that it is for or, if it is stored, of its file.
    """

    what: What
    name: str
    why: str


@dataclass(frozen=True)
class Change:
    """One difference of two captures.

    `subject` is what changed: a path, a SONAME, an interface. `before` and `after` are `None` where there was, or is,
    nothing. `message` and `advice` are for people; what is empty, and the severity, the kind has for all of its
    changes. `affects` is what depends on the subject, for people. `users` are sentences for users, where the message is
    not one. `paths` are the files and folders that it is about, where the subject is not one; `values` are lists that
    others decide by. `kind` is the name of its row.
    """

    subject: str
    before: str | None = None
    after: str | None = None
    message: str = ""
    values: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    paths: tuple[str, ...] = ()
    severity: Severity | None = None
    advice: str = ""
    users: tuple[str, ...] = ()
    affects: str = ""
    kind: str = ""
    touches: tuple[Touched, ...] = ()

    @property
    def sentence(self) -> str:
        """What changed and what depends on it, in one line."""
        return f"{self.what_changed}; touches {self.affects}" if self.affects else self.what_changed

    @property
    def what_changed(self) -> str:
        """What changed, in one line."""
        return printable(f"{self.subject}: {self.message}")

    @property
    def is_one_sided(self) -> bool:
        """Whether it is new, or gone, and not only a word of several."""
        return (self.before is None or self.after is None) and not self.names("kept")

    def names(self, value: str) -> tuple[str, ...]:
        """Return one of the lists of the change, empty where it has none of that name."""
        return self.values.get(value, ())


def difference(what: str, before: str | None, after: str | None) -> str:
    """Return what is another one, new or gone, as text.

    >>> [difference("driver", *pair) for pair in (("1", "2"), (None, "2"), ("1", None))]
    ['driver 1 -> 2', 'new driver 2', 'driver 1 is gone']
    >>> [difference("", *pair) for pair in (("1", "2"), (None, "2"), ("1", None))]
    ['1 -> 2', 'new: 2', 'gone: 1']
    """
    if before is None:
        return f"new {what} {after}" if what else f"new: {after}"
    if after is None:
        return f"{what} {before} is gone" if what else f"gone: {before}"
    return f"{what} {before} -> {after}".lstrip()


def known_difference(before: str | None, after: str | None) -> str:
    """Return how a value differs that a node always has, known or not."""
    if before is None or after is None:
        return f"{after}, unknown before" if before is None else f"unknown, before {before}"
    return f"{before} -> {after}"


def only_in(old: Sequence[str], new: Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return which entries of two lists only one of them has, in their order."""
    return tuple(name for name in old if name not in new), tuple(name for name in new if name not in old)


def borrows(libraries: Iterable[object]) -> str:
    """Return why the plans of an image family are touched."""
    return f"its images borrow {listed(libraries)} from the host"


def joined(names: Iterable[str]) -> str | None:
    """Return names as one text, `None` where there are none."""
    return ", ".join(names) or None
