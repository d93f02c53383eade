"""Expand Slurm's short form of node names, without Slurm: a report is read where there may be none.

Own code, for one pattern: the libraries that do this (ClusterShell, python-hostlist) bring an algebra of sets.
"""

from __future__ import annotations

import re

#: A list that names more nodes than this is a mistake.
MOST_NODES = 100_000

_BRACKET = re.compile(r"([^,\[\]]*)\[([0-9,-]+)\]")
_PLAIN = re.compile(r"[A-Za-z0-9][\w.-]*", re.ASCII)


def expand_nodes(text: str) -> tuple[str, ...]:
    """Give the names, each once, in the order of the text. Raises `ValueError` for what is no list of nodes.

    >>> expand_nodes("nid[000001-000002,7],uan01")
    ('nid000001', 'nid000002', 'nid7', 'uan01')
    """
    found: dict[str, None] = {}
    for part in _parts(text):
        for name in _expanded(part):
            if not _PLAIN.fullmatch(name):
                raise ValueError(f"{name!r} is not the name of a node")
            found[name] = None
            if len(found) > MOST_NODES:
                raise ValueError(f"more than {MOST_NODES} nodes")
    return tuple(found)


def _parts(text: str) -> list[str]:
    """Cut at commas outside of brackets."""
    return [part.strip() for part in re.split(r",(?![^\[]*\])", text) if part.strip()]


def _expanded(part: str) -> list[str]:
    found = _BRACKET.match(part)
    if found is None:
        return [part]
    numbers = [number for each in found[2].split(",") for number in _range(each)]
    rest = _expanded(part[found.end() :]) if found.end() < len(part) else [""]
    if len(numbers) * len(rest) > MOST_NODES:
        raise ValueError(f"more than {MOST_NODES} nodes")
    return [f"{found[1]}{number}{tail}" for number in numbers for tail in rest]


def _range(text: str) -> list[str]:
    first, dash, last = text.partition("-")
    if not first.isdigit() or (dash and not last.isdigit()):
        raise ValueError(f"[{text}] is not a range of nodes")
    if not dash:
        return [first]
    if int(last) - int(first) >= MOST_NODES:
        raise ValueError(f"more than {MOST_NODES} nodes")
    return [f"{number:0{len(first)}}" for number in range(int(first), int(last) + 1)]
