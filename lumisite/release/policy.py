"""The policy of a deployment root, `ROOT/policy`: for whom the helper is on.

It is text that the helper's scripts read before each task (spank_helpers/policy.sh, cli_filter.lua): the first rule
counts whose conditions all fit.

    lumisite-policy 1
    written 2026-11-27T02:00:00Z root@login1
    act partition=dev-g,small-g share=5
    observe
    end

Without `end` it is damaged. A share is a part of the jobs, in percent: by its number, so that it is the same on all
nodes of a job.
"""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from lumisite.errors import DifferenceError
from lumisite.findings.catalogue import make_finding
from lumisite.findings.finding import Place
from lumisite.release.files import replace_entry
from lumisite.release.root import locked
from lumisite.release.tree import utc
from lumisite.site.read import UnfitFileError, read_file

MODES = ("off", "observe", "act")
#: What a name in a rule may be made of; Slurm itself takes more, which no script could read back.
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@+-]*")
_HEAD = "lumisite-policy 1"
#: Each task reads it, byte by byte: a rule has some 30 of them.
MOST_BYTES = 16 * 1024


@dataclass(frozen=True)
class Rule:
    """A mode, and for whom: an empty tuple is everybody, `groups` are numbers, `share` is in percent of the jobs."""

    mode: str
    partitions: tuple[str, ...] = ()
    accounts: tuple[str, ...] = ()
    groups: tuple[int, ...] = ()
    share: int | None = None

    @property
    def line(self) -> str:
        """The rule as it stands in the file."""
        lists = {"partition": self.partitions, "account": self.accounts, "group": self.groups}
        words = [f"{name}={','.join(map(str, values))}" for name, values in lists.items() if values]
        words += [] if self.share is None else [f"share={self.share}"]
        return " ".join([self.mode, *words])

    def covers(self, other: Rule) -> bool:
        """Return whether each step that fits the other rule fits this one."""
        pairs = (
            (self.partitions, other.partitions),
            (self.accounts, other.accounts),
            (self.groups, other.groups),
        )
        lists = all(not mine or (theirs and set(theirs) <= set(mine)) for mine, theirs in pairs)
        return lists and (self.share is None or (other.share is not None and other.share <= self.share))


@dataclass(frozen=True)
class Policy:
    """The rules, the first of which counts that fits; `time` is UTC, `by` is `user@host`."""

    rules: tuple[Rule, ...]
    time: str
    by: str

    @property
    def text(self) -> str:
        """The content of the file."""
        return "\n".join([_HEAD, f"written {self.time} {self.by}", *(rule.line for rule in self.rules), "end", ""])


def policy_path(root: Path) -> Path:
    """Return the file of a deployment root that has its policy."""
    return root / "policy"


def read_policy(root: Path) -> Policy | None:
    """Read the policy of a root, `None` where it has none; raises `DifferenceError` for a damaged one."""
    path = policy_path(root)
    try:
        data = read_file(path, MOST_BYTES, follow=False)
    except FileNotFoundError:
        return None
    except (OSError, UnfitFileError):
        raise DifferenceError(make_finding("policy-unreadable", str(path))) from None
    return parse_policy(data.decode(errors="replace"), str(path))


def parse_policy(text: str, where: str) -> Policy:
    """Parse a policy; raises `DifferenceError` with the first line that is not as `lumisite policy` writes it."""
    rules: list[Rule] = []
    written = "", ""
    lines = text.split("\n")
    for number, line in enumerate(lines, start=1):
        words = line.split(" ")
        rule = _parse_rule(words)
        if number == 1 and line == _HEAD:
            continue
        if number > 1 and line == "end":
            return Policy(tuple(rules), *written)
        if number > 1 and words[0] == "written" and len(words) == 3:
            written = words[1], words[2]
        elif number > 1 and rule is not None:
            rules.append(rule)
        else:
            raise DifferenceError(make_finding("policy-damaged", place=Place(where, number), line=line))
    raise DifferenceError(make_finding("policy-damaged", place=Place(where, len(lines))))


def _parse_rule(words: Sequence[str]) -> Rule | None:
    """Parse the words of a rule, `None` for what is none."""
    if words[0] not in MODES:
        return None
    rule = Rule(words[0])
    for word in words[1:]:
        name, _, value = word.partition("=")
        values = tuple(value.split(","))
        if name == "partition" and all(map(NAME.fullmatch, values)):
            rule = replace(rule, partitions=values)
        elif name == "account" and all(map(NAME.fullmatch, values)):
            rule = replace(rule, accounts=values)
        elif name == "group" and all(re.fullmatch(r"[0-9]{1,10}", each) for each in values):
            rule = replace(rule, groups=tuple(map(int, values)))
        elif name == "share" and re.fullmatch(r"[1-9][0-9]?|100", value):
            rule = replace(rule, share=int(value))
        else:
            return None
    return rule


def change_policy(root: Path, rules: Sequence[Rule], by: str) -> Policy:
    """Put rules in front of those of a root, and write its policy in one step.

    Rules behind them that could never count again go: a mode for everybody leaves nothing of the policy before. Only
    then a damaged policy is replaced. Raises `ToolError` where somebody else writes, `DifferenceError`, `OSError`.
    """
    with locked(root, by):
        whole = any(rule.covers(Rule(rule.mode)) for rule in rules)
        before = None if whole else read_policy(root)
        kept = [rule for rule in (before.rules if before else ()) if not any(new.covers(rule) for new in rules)]
        policy = Policy((*rules, *kept), utc(time.time()), by)
        if len(policy.text) > MOST_BYTES:
            raise DifferenceError(make_finding("policy-too-large", str(policy_path(root)), most_bytes=MOST_BYTES))
        replace_entry(policy_path(root), policy.text.encode())
    return policy


def to_json(policy: Policy) -> dict[str, Any]:
    """Return a policy by the keys of the JSON; what a rule does not ask for is left out."""
    rules = []
    for rule in policy.rules:
        conditions = {"partitions": rule.partitions, "accounts": rule.accounts, "groups": rule.groups}
        share = {} if rule.share is None else {"share": rule.share}
        rules.append(
            {"mode": rule.mode, **{name: list(values) for name, values in conditions.items() if values}, **share}
        )
    return {"written": policy.time, "by": policy.by, "rules": rules}
