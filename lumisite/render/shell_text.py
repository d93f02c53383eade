"""How the site's data becomes sh: words, functions, and cases that ask for nothing that does not matter."""

from __future__ import annotations

import shlex
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, product
from typing import TypeAlias

#: Where a line of data is broken, if it can be.
WIDTH = 96


@dataclass(frozen=True)
class Where:
    """The steps in which a line of data counts, as the scripts know a step; what is empty does not matter.

    `nodes` is `one` or `several`, `gpus` is `gpu` or `cpu`.
    """

    stack: tuple[str, ...] = ()
    nodes: tuple[str, ...] = ()
    gpus: tuple[str, ...] = ()
    kind: tuple[str, ...] = ()


#: Lines of which the first counts whose condition holds.
Chain: TypeAlias = tuple[tuple[Where, str], ...]
#: What a line is where a script does nothing.
NOTHING = ":"
#: What a step is, in the order of the scripts' words for it.
_SIDES = ("stack", "nodes", "gpus", "kind")


def assign(**values: str) -> str:
    """Write assignments on one line."""
    return " ".join(f"{name}={shlex.quote(value)}" for name, value in values.items())


def row(**values: str) -> str:
    """Write a row of a table: what is empty is left out, since the scripts begin with empty variables."""
    return assign(**{name: value for name, value in values.items() if value}) or NOTHING


def numbers(name: str, words: Iterable[object]) -> str:
    """Write a long list of numbers, which the shell splits at any white space."""
    begin = f"{name}='"
    text = textwrap.wrap(begin + " ".join(map(str, words)), WIDTH - 10, break_long_words=False)
    return "\n\t".join(text) + "'"


def call(function: str, *words: str) -> str:
    """Write a call of words that are quoted here; the last goes to a line of its own where it is long."""
    line, quoted = " ".join([function, *map(shlex.quote, words[:-1])]), shlex.quote(words[-1])
    return f"{line} {quoted}" if len(line) + len(quoted) < WIDTH else f"{line} \\\n\t{quoted}"


def indented(text: str) -> str:
    """Indent all lines of a text; none of the site's values has a line break."""
    return textwrap.indent(text, "\t")


def function(name: str, body: Iterable[str]) -> list[str]:
    """Write a function, on one line where it has one; without a body it does nothing."""
    lines = list(body) or [NOTHING]
    if len(lines) == 1 and len(name) + len(lines[0]) < WIDTH - 10 and "\n" not in lines[0]:
        return [f"{name}() {{ {lines[0]}; }}"]
    return [f"{name}() {{", *map(indented, lines), "}"]


def case(subject: str, rows: Iterable[tuple[Sequence[str], Sequence[str]]], otherwise: str = "") -> list[str]:
    """Write a `case` of patterns (as they stand in it) and what to do."""
    lines = [f"case {subject} in"]
    for patterns, body in (*rows, *([(("*",), (otherwise,))] if otherwise else [])):
        head = f"{_alternatives(patterns)})"
        last_line = head.rpartition("\n")[2]
        if tuple(body) == (NOTHING,):
            lines.append(f"{head} ;;")
        elif len(body) == 1 and len(last_line) + len(body[0]) < WIDTH:
            lines.append(f"{head} {body[0]} ;;")
        else:
            lines += [head, *map(indented, body), "\t;;"]
    return [*lines, "esac"]


def case_pattern(text: str) -> str:
    r"""Write a shell pattern as it may stand in `case`, with everything but its wildcards made literal.

    >>> print(case_pattern("*/a b;[0-9]$(x).sif"))
    */a\ b\;[0-9]\$\(x\).sif
    """
    literal = "".join(c if c.isalnum() or c in "/._+-,:=@%*?[]!" else f"\\{c}" for c in text)
    return literal.replace("[!\\^", "[!^")


def lookup(name: str, rows: Iterable[tuple[Sequence[str], str | Sequence[str]]]) -> list[str]:
    """Write a function that looks its first argument up, and fails where there is nothing."""
    table = [(patterns, (lines,) if isinstance(lines, str) else lines) for patterns, lines in rows]
    return function(name, case('"$1"', table, "return 1") if table else ["return 1"])


def alike(chains: Iterable[Chain]) -> list[Chain]:
    """Return chains in an order in which those that ask for the same are neighbours."""
    groups: dict[tuple[Where, ...], list[Chain]] = {}
    for chain in map(_without_idle_end, chains):
        groups.setdefault(tuple(where for where, _ in chain), []).append(chain)
    return [chain for group in groups.values() for chain in group]


def decide(chains: Iterable[Chain], step: str) -> Iterator[str]:
    """Write chains by a script's variable for the step; neighbours that ask for the same share a case."""
    shortened = map(_without_idle_end, chains)
    for wheres, group in groupby(shortened, key=lambda chain: tuple(where for where, _ in chain)):
        bodies = [
            list(dict.fromkeys(lines)) for lines in zip(*([line for _, line in chain] for chain in group), strict=True)
        ]
        asks = any(getattr(where, side) for where in wheres for side in _SIDES)
        if not wheres:
            continue
        if asks:
            yield from case(f"${step}", zip(map(_patterns, wheres), bodies, strict=True))
        else:
            yield from bodies[0]


def _without_idle_end(chain: Chain) -> Chain:
    """Return a chain without links at its end that do nothing, which a `case` need not have."""
    while chain and chain[-1][1] == NOTHING:
        chain = chain[:-1]
    return chain


def _patterns(where: Where) -> list[str]:
    if where == Where():
        return ["*"]
    sides: list[Iterable[str]] = [list(map(shlex.quote, getattr(where, side))) or ["*"] for side in _SIDES]
    return ["/".join(words) for words in product(*sides)]


def _alternatives(patterns: Sequence[str]) -> str:
    """Join patterns, with line breaks before they get long."""
    text, width = patterns[0], len(patterns[0])
    for pattern in patterns[1:]:
        if width + len(pattern) < WIDTH - 10:
            text, width = f"{text} | {pattern}", width + len(pattern) + 3
        else:
            text, width = f"{text} | \\\n\t{pattern}", len(pattern) + 4
    return text
