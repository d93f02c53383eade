"""The history of a deployment root: one JSON line for each time that the link was about to be moved.

A line is written before the link moves, so the last line may tell of something that a kill has prevented. The
link is the only truth: `way_back` reads the lines in its light.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass

from lumisite.errors import DifferenceError, SiteError
from lumisite.render.manifest import is_release_id
from lumisite.site.decode import decode_values, parse_json

#: A line has some 200.
LARGEST_HISTORY_BYTES = 16 * 1024 * 1024
START_ANEW = "move the file away, and the next deploy starts a new one (rollback then knows no release before it)"


@dataclass(frozen=True)
class Step:
    """One move of the link from release `before` (empty for the first) to `release`.

    `manifest` is the SHA-256 of the release's `MANIFEST.json` as it was deployed, `time` is UTC, `by` is
    `user@host`.
    """

    action: str
    release: str
    before: str
    manifest: str
    time: str
    by: str


def format_history(steps: Sequence[Step]) -> str:
    """Give the text of the history, the oldest line first."""
    return "".join(json.dumps(asdict(step)) + "\n" for step in steps)


def parse_history(content: bytes, where: str) -> tuple[Step, ...]:
    """Read a history; raises `DifferenceError` with the line that is not one."""
    return tuple(
        _step(line, f"{where}:{number}") for number, line in enumerate(content.split(b"\n"), start=1) if line.strip()
    )


def way_back(steps: Sequence[Step], current: str) -> tuple[str, ...]:
    """Give the releases that rollback walks, the oldest first; the last is `current` itself.

    A deploy after a rollback starts from where the rollback went: what was rolled back is not come back to.

    >>> first, second = Step("deploy", "a", "", "", "", ""), Step("deploy", "b", "a", "", "", "")
    >>> way_back([first, second], "b")
    ('a', 'b')
    >>> way_back([first, second], "a")  # the second was killed before the link moved, or was undone by hand
    ('a',)
    """
    stack: list[str] = []
    afterwards = [*(step.before for step in steps), current][1:]
    for step, after in zip(steps, afterwards, strict=True):
        _stand_on(stack, step.before)
        if after == step.before:
            continue
        if step.action == "rollback":
            stack.pop() if len(stack) > 1 else None
            _stand_on(stack, step.release)
        else:
            stack.append(step.release)
    _stand_on(stack, current)
    return tuple(stack)


def deployed_step(steps: Sequence[Step], release: str) -> Step | None:
    """Give the last step that deployed a release, if any did."""
    return next((s for s in reversed(steps) if s.action == "deploy" and s.release == release), None)


def _stand_on(stack: list[str], release: str) -> None:
    """Follow a link that was moved by hand: back to a release on the way, or on to a new one."""
    if not release:
        return
    while stack.count(release) and stack[-1] != release:
        stack.pop()
    if not stack or stack[-1] != release:
        stack.append(release)


def _step(line: bytes, where: str) -> Step:
    try:
        return decode_values(parse_json(line, where), Step, where, (_faults,))
    except SiteError:
        raise DifferenceError(f"{where}: is not a line of lumisite's history; {START_ANEW}") from None


def _faults(step: Step) -> Iterator[tuple[str, str]]:
    if not is_release_id(step.release) or (step.before and not is_release_id(step.before)):
        yield "release", "is not a release id"
    if not f"{step.time}{step.by}".isprintable():
        yield "time", "does not print"
