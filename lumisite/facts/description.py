"""Parts of a site description as text, with a mark above each value that was not read.

`init` and the draft of `changes` use it. The templates beside have the layout and the words. A mark is a guess, whose
value is written, or an open question.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import yaml

from lumisite.findings.writers import line
from lumisite.site.read import read_file
from lumisite.text import printable

FOLDER = Path(__file__).parent
_LARGEST_BYTES = 64 * 1024


@dataclass(frozen=True)
class Mark:
    """Why a value was not read, by a name that the templates have words for (`platform.yaml.j2`)."""

    name: str
    details: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True)
class Marked:
    """A value with its marks; one that is `None` is left out, and its marks are not."""

    value: object
    marks: tuple[Mark, ...] = ()


def guess(value: object, name: str, **details: object) -> Marked:
    """Return a value with one mark."""
    return Marked(value, (Mark(name, details),))


@dataclass
class Description:
    """A text, and how many guesses and questions are in it."""

    text: str = ""
    guesses: int = 0
    questions: int = 0

    def guess(self, text: str) -> str:
        """Return the comment for a value that was not read."""
        self.guesses += 1
        return f"# guessed: {_comment(text)}"

    def question(self, text: str) -> str:
        """Return the comment for what only a person knows."""
        self.questions += 1
        return f"# QUESTION: {_comment(text)}"


def describe(template: Path, values: Mapping[str, object]) -> Description:
    """Fill a template; it may import those of this room."""
    import jinja2  # to capture a node needs no templates

    texts = {path.name: read_file(path, _LARGEST_BYTES).decode() for path in (*FOLDER.glob("*.yaml.j2"), template)}
    environment = jinja2.Environment(
        loader=jinja2.DictLoader(texts),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,  # noqa: S701  # not HTML: every value goes through `yaml` or into a comment
    )
    environment.filters.update(yaml=yaml_text, comment=_comment, line=line)
    found = Description()
    environment.globals.update(guess=found.guess, question=found.question)
    found.text = environment.get_template(template.name).render(**values)
    return found


def yaml_text(value: object) -> str:
    """Return a value as it is written in one line, inside of a list or a mapping too.

    Scalars are texts, as descriptions are read: `24.03` and `no` need no quotes.

    >>> print(yaml_text({"path": "/a, b", "versions": [24.03, "no"]}))
    {path: '/a, b', versions: [24.03, no]}
    """
    written: str = yaml.serialize(_node([value]), Dumper=yaml.BaseDumper, width=10**6)
    return written.strip()[1:-1]


def _node(value: object) -> yaml.Node:
    """Return a value as a node of YAML; what cannot be shown in a text is spelled out."""
    if isinstance(value, Mapping):
        pairs = [(_node(key), _node(entry)) for key, entry in value.items()]
        return yaml.MappingNode("tag:yaml.org,2002:map", pairs, flow_style=True)
    if isinstance(value, list | tuple):
        return yaml.SequenceNode("tag:yaml.org,2002:seq", [_node(entry) for entry in value], flow_style=True)
    text = str(value)
    return yaml.ScalarNode("tag:yaml.org,2002:str", printable(text) if text else text)


def _comment(text: str) -> str:
    """Keep text that goes into a comment on its line."""
    return "".join(character if character.isprintable() else "?" for character in text)
