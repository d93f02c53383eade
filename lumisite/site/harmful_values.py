"""Values of variables that do harm, as the ledger's entries name them."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterator
from dataclasses import dataclass

from lumisite.site.entries import Harmful, Setting
from lumisite.site.model import Site

#: The name of a source that every site has: what was read or measured on the machine itself.
HERE = "here"


@dataclass(frozen=True)
class Harm:
    """Values that do harm, and the entry that says so."""

    setting: Setting
    harmful: Harmful

    @property
    def patterns(self) -> tuple[str, ...]:
        """The values, as patterns of the shell."""
        return tuple(self.harmful.value.split("|"))

    def fits(self, value: str) -> bool:
        """Return whether a value is one of these, whatever its case."""
        return any(fnmatch.fnmatchcase(value.lower(), pattern.lower()) for pattern in self.patterns)


def harms(site: Site, name: str | None = None) -> Iterator[Harm]:
    """Yield what is known to do harm, of all variables or of one, in ledger order."""
    for setting in site.settings:
        for harmful in setting.harmful if name in (None, setting.name) else ():
            yield Harm(setting, harmful)


def sets(setting: Setting) -> bool:
    """Return whether an entry gives its variable a value."""
    return not setting.leave and not setting.unset


def covers(patterns: tuple[str, ...], setting: Setting) -> bool:
    """Return whether patterns of values fit what an entry sets; what is worked out on the node, `*` alone fits."""
    if setting.value is None:
        return "*" in patterns
    return any(fnmatch.fnmatchcase(setting.value, pattern) for pattern in patterns)
