"""A difference of two captures, and the parts of a site that it touches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from lumisite.findings.finding import Severity
from lumisite.text import printable

What = Literal["site", "setting", "module", "family", "plan", "mask", "image", "helper"]
INFO, DOUBT, FAULT = Severity.INFO, Severity.DOUBT, Severity.FAULT
#: What is compared are lists of words by subject. A single value is a list of one.
Words: TypeAlias = tuple[str, ...]


@dataclass(frozen=True)
class Touched:
    """A part of the site that a change touches.

    `name` is a key of the site description, a setting, a module, a family, an image. A `plan` has the name of the
    family that it is for or, if it is stored, of its file.
    """

    what: What
    name: str


@dataclass(frozen=True)
class Change:
    """One difference of two captures; `kind` is the name of its row in `change_kinds`.

    `subject` is what changed: a path, a SONAME, an interface. `gone` and `come` are the words that only one capture has
    of it, `kept` those of both; `before` and `after` are `None` where there was, or is, nothing of `gone` and `come`.
    `message` and `advice` are for people.
    `names` are paths, SONAMEs and devices that parts of a site may name; `inside` are the files of which all are gone
    or new with a folder above them. `users` are sentences for users, where the row has none.
    """

    kind: str
    subject: str
    before: str | None = None
    after: str | None = None
    message: str = ""
    severity: Severity = DOUBT
    gone: Words = ()
    come: Words = ()
    names: Words = ()
    inside: Words = ()
    users: Words = ()
    advice: str = ""
    touches: tuple[Touched, ...] = ()
    kept: Words = ()

    @property
    def sentence(self) -> str:
        """What changed, in one line."""
        return printable(f"{self.subject}: {self.message}")

    @property
    def is_one_sided(self) -> bool:
        """Whether the subject is new, or gone, and not only a word of several."""
        return (self.before is None or self.after is None) and not self.kept


def only_in(old: Sequence[str], new: Sequence[str]) -> tuple[Words, Words]:
    """Return which entries of two lists only one of them has, in their order."""
    return tuple(name for name in old if name not in new), tuple(name for name in new if name not in old)
