"""The policy of a deployment root, `ROOT/policy`: for whom the helper is on.

It is text that the helper's scripts read before each task (spank_helpers/policy.sh, cli_filter.lua): the first line
counts that fits the step.

    on partition dev-g
    observe account project_462000001
    off default
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from lumisite.errors import DifferenceError
from lumisite.findings.catalogue import make_finding
from lumisite.findings.finding import Place
from lumisite.release.files import replace_entry
from lumisite.release.root import locked
from lumisite.site.read import UnfitFileError, read_file

WORDS = ("on", "observe", "off")
#: What the name of a partition or account may be made of; Slurm itself takes more, which no script could read back.
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@+-]*")
#: The scripts read no more than this, before each task.
MOST_BYTES, MOST_LINES = 4096, 64


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


def policy_path(root: Path) -> Path:
    """Return the file of a deployment root that has its policy."""
    return root / "policy"


def read_policy(root: Path) -> tuple[PolicyLine, ...] | None:
    """Read the policy of a root, `None` where it has none; raises `DifferenceError` for a damaged one."""
    path = policy_path(root)
    try:
        data = read_file(path, MOST_BYTES, follow=False)
    except FileNotFoundError:
        return None
    except (OSError, UnfitFileError):
        raise DifferenceError(make_finding("policy-unreadable", str(path), most_bytes=MOST_BYTES)) from None
    return parse_policy(data.decode(errors="replace"), str(path))


def parse_policy(text: str, where: str) -> tuple[PolicyLine, ...]:
    """Parse a policy; raises `DifferenceError` with the first line that is not as `lumisite policy` writes it."""
    lines = []
    for number, line in enumerate(text.split("\n")[:-1], start=1):
        word, scope, name = (*line.split(" "), "", "", "")[:3]
        found = PolicyLine(word, scope, name)
        named = scope in ("partition", "account") and NAME.fullmatch(name)
        if found.text != line or word not in WORDS or not (named or (scope == "default" and not name)):
            raise DifferenceError(make_finding("policy-damaged", place=Place(where, number), line=line))
        lines.append(found)
    if not text.endswith("\n") or len(lines) > MOST_LINES:
        raise DifferenceError(make_finding("policy-damaged", place=Place(where, len(lines) + 1)))
    return tuple(lines)


def change_policy(root: Path, lines: Sequence[PolicyLine], by: str) -> tuple[PolicyLine, ...]:
    """Put lines in front of those of a root, in the place of older ones for the same, and write its policy in one step.

    A `default` replaces the whole policy, also a damaged one. Raises `ToolError` where somebody else writes,
    `DifferenceError`, `OSError`.
    """
    changed = {(line.scope, line.name) for line in lines}
    with locked(root, by):
        before = () if ("default", "") in changed else read_policy(root) or ()
        policy = (*lines, *(line for line in before if (line.scope, line.name) not in changed))
        text = "".join(f"{line.text}\n" for line in policy)
        if len(text) > MOST_BYTES or len(policy) > MOST_LINES:
            raise DifferenceError(make_finding("policy-too-large", str(policy_path(root)), most_lines=MOST_LINES))
        replace_entry(policy_path(root), text.encode())
    return policy
