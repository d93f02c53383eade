"""The policy of a deployment root, `ROOT/policy`: for whom the helper is on.

It is text that the helper's scripts read before each task (spank_helpers/policy.sh, cli_filter.lua): the first line
counts that fits the step.

    on partition dev-g
    observe account project_462000001
    off default
"""

from __future__ import annotations

import re
import shlex
import stat
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from lumisite.errors import DifferenceError, LumisiteError
from lumisite.findings.finding import Finding, Place, Severity
from lumisite.machine.host import open_file
from lumisite.paths import POLICY
from lumisite.release.files import replace_entry
from lumisite.release.root import locked
from lumisite.site.read import kind_of
from lumisite.text import printable

WORDS = ("on", "observe", "off")
#: What the name of a partition or account may be made of; Slurm itself takes more, which no script could read back.
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@+-]*")
#: The scripts read no more than this, before each task.
MOST_BYTES, MOST_LINES = 4096, 64
_MODE = 0o644


@dataclass(frozen=True)
class PolicyLine:
    """A word, and for whom: a partition or account of a name, or `default` without one."""

    word: str
    scope: str = "default"
    name: str = ""

    @property
    def text(self) -> str:
        """The line as it stands in the file."""
        return " ".join(filter(None, (self.word, self.scope, self.name)))


@dataclass(frozen=True)
class Policy:
    """A policy as users' steps see it: the `lines` that the helper obeys, and the `faults` of the file."""

    lines: tuple[PolicyLine, ...]
    faults: tuple[Finding, ...] = ()


def policy_path(root: Path) -> Path:
    """Return the file of a deployment root that has its policy."""
    return root / POLICY


def read_policy(root: Path) -> Policy | None:
    """Read the policy of a root as the helper's scripts do, `None` where it has none.

    They follow a link, obey a line with more blanks too, pass over any other and what comes behind the limits, and are
    off for all jobs where users cannot read the file.
    """
    path = policy_path(root)
    try:
        is_link = path.is_symlink()
        mode = path.stat().st_mode
        if not stat.S_ISREG(mode):
            return _closed(root, f"{kind_of(mode)}, expected a file")
        if not mode & stat.S_IROTH:
            return _closed(root, f"mode {stat.S_IMODE(mode):04o}, so that users cannot read it")
        text = open_file(str(path)).read(0, MOST_BYTES + 1).decode(errors="replace")
    except FileNotFoundError:
        lost = _fault(root, "a link to nothing: the helper acts as without a policy")
        return Policy((), (lost,)) if is_link else None
    except (OSError, LumisiteError):
        return _closed(root, "cannot be read")
    found = parse_policy(text, root)
    if is_link:
        link = _fault(root, "a symbolic link: the helper follows it, and `lumisite policy` replaces it by a file")
        return Policy(found.lines, (link, *found.faults))
    return found


def parse_policy(text: str, root: Path) -> Policy:
    """Parse a policy; a line that is not as `lumisite policy` writes it is a fault, which the helper passes over.

    Of a line for a step, a word that is none of the three means off.
    """
    lines, faults = [], []
    every = text[:MOST_BYTES].split("\n")
    for number, line in enumerate(every[:-1][:MOST_LINES], start=1):
        word, whom = (*re.split("[ \t]+", line.strip(" \t"), maxsplit=1), "")[:2]  # as `read` of the shell does
        scope, _, name = whom.partition(" ")
        is_known = whom == "default" or (scope in ("partition", "account") and bool(NAME.fullmatch(name)))
        found = PolicyLine(word if word in WORDS else "off", scope, name)
        if is_known:
            lines.append(found)
        if not is_known or found.text != line:
            effect = "though tasks obey it" if word in WORDS else "which means off"
            effect = effect if is_known else "which the helper passes over"
            faults.append(_fault(root, f"{printable(line)!r} is not a policy line, {effect}", number))
    if len(text) > MOST_BYTES or len(every) - 1 > MOST_LINES:
        rest = f"the helper reads {MOST_LINES} lines and {MOST_BYTES} bytes, and passes over the rest"
        faults.append(_fault(root, rest, MOST_LINES + 1))
    elif every[-1] or not text:
        faults.append(_fault(root, "the last line has no end, and the helper passes over it", len(every)))
    return Policy(tuple(lines), tuple(faults))


def _closed(root: Path, reason: str) -> Policy:
    """Return what the helper makes of a policy that users cannot read."""
    return Policy((PolicyLine("off"),), (_fault(root, f"{reason}: the helper is off for all jobs"),))


def _fault(root: Path, text: str, line: int = 0) -> Finding:
    path, advice = str(policy_path(root)), f"write it anew: `lumisite policy {shlex.quote(str(root))} observe`"
    if line:
        return Finding("policy-damaged", Severity.FAULT, text, advice, place=Place(path, line))
    return Finding("policy-damaged", Severity.FAULT, text, advice, subject=path)


def change_policy(root: Path, lines: Sequence[PolicyLine], by: str) -> Policy:
    """Put lines in front of those of a root, in the place of older ones for the same, and write its policy in one step.

    A `default` replaces the whole policy, also a damaged one. Raises `ToolError` where somebody else writes,
    `DifferenceError`, `OSError`.
    """
    changed = {(line.scope, line.name) for line in lines}
    with locked(root, by):
        before = None if ("default", "") in changed else read_policy(root)
        if before and before.faults:
            raise DifferenceError(before.faults[0])
        kept = before.lines if before else ()
        policy = (*lines, *(line for line in kept if (line.scope, line.name) not in changed))
        text = "".join(f"{line.text}\n" for line in policy)
        if len(text) > MOST_BYTES or len(policy) > MOST_LINES:
            reason = f"would have more than {MOST_LINES} lines, and each task reads it"
            raise DifferenceError(_fault(root, reason))
        replace_entry(policy_path(root), text.encode(), _MODE)
    return Policy(policy)
