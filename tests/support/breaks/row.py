"""One change of a machine that is planted into a LUMI-G node in files, and what is expected of the report."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tests.support.dict_trees import Link

#: What is put into a node's files by path; `None` takes a file away.
Plant = Mapping[str, bytes | Link | None]


@dataclass(frozen=True)
class Break:
    """A row: `files` are planted in the node after, `both` before and after.

    `change` is the code and the subject of the change; `touched` are parts that it touches (what, name); `also` are the
    other changes, where one file is several facts.
    """

    files: Plant
    change: tuple[str, str]
    touched: list[tuple[str, str]]
    also: tuple[tuple[str, str], ...] = ()
    both: Plant = field(default_factory=dict)
