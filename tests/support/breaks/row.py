"""One change of a machine that is planted into a LUMI-G node in files, and what is expected of the report."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tests.support.dict_trees import Link

#: What is put into a node's files by path; `None` takes a file away.
Plant = Mapping[str, bytes | Link | None]

#: What the text for users says where nothing concerns them.
NOTHING = "Nothing changed on LUMI that containers depend on."


@dataclass(frozen=True)
class Break:
    """A row: `files` are planted in the node after, `both` before and after.

    `said` is what names the change; `touched` are parts (what, name, a word of the reason); `users` is what the text
    for users says; `also` are words of the other changes that are told: a fault is told once, so there are none but
    where one file is two facts. `plan` is why a stored plan of the latest image is touched, if it is.
    """

    files: Plant
    said: str
    touched: list[tuple[str, str, str]]
    users: str
    also: tuple[str, ...] = ()
    both: Plant = field(default_factory=dict)
    plan: str = ""
