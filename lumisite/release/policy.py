"""The policy of a deployment root, `ROOT/policy`: for whom the helper is on.

It is text that the helper's scripts read before each task (spank_helpers/common.sh, cli_filter.lua): the first line
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

    They follow a link, obey a line with more blanks too, and pass over blank lines and those that begin with `#`. They
    are off from a line of another form on, behind the limits, and for all jobs where the file has no line or users
    cannot read it.
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
    """Parse a policy; a line that is not as `lumisite policy` writes it is a fault.

    The helper is off for all whom no line before one of another form fits. Of a line for a step, a word that is none
    of the three means off.
    """
    lines: list[PolicyLine] = []
    faults: list[Finding] = []
    number = 0
    for number, line in enumerate(text[:MOST_BYTES].removesuffix("\n").split("\n") if text else (), start=1):
        words = re.split("[ \t]+", line.strip(" \t"))  # as `read` of the shell does
        if number <= MOST_LINES and (not words[0] or words[0].startswith("#")):
            continue
        is_for_some = len(words) == 3 and words[1] in ("partition", "account")
        if number > MOST_LINES or not (is_for_some or (len(words) == 2 and words[1] == "default")):
            reason = "is not a policy line" if number <= MOST_LINES else f"is behind {MOST_LINES} lines"
            effect = "so the helper is off for all whom no line before it fits"
            faults.append(_fault(root, f"{printable(line)!r} {reason}, {effect}", number))
            return Policy((*lines, PolicyLine("off")), tuple(faults))
        found = PolicyLine(words[0] if words[0] in WORDS else "off", *words[1:])
        lines.append(found)
        if found.text != line or (found.name and not NAME.fullmatch(found.name)):
            effect = "though tasks obey it" if words[0] in WORDS else "which means off"
            faults.append(_fault(root, f"{printable(line)!r} is not a policy line, {effect}", number))
    if len(text) > MOST_BYTES:
        faults.append(_fault(root, f"more than {MOST_BYTES} bytes, which not all of the helper reads", number))
    elif not lines:
        return _closed(root, "has no line")
    elif not text.endswith("\n"):
        faults.append(_fault(root, "the last line has no end", number))
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
