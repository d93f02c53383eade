"""The probes as data (probes.yaml): what each must show, how its ranks run, and the options of its script."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from lumisite.site.read import read_file
from lumisite.site.yaml import MAX_BYTES
from lumisite.validate.probes.probe import Backend, Judge, Probe, Shape, Srun


@dataclass(frozen=True)
class Definition:
    """The entry of a probe; `options` are by back-end.

    Numbers of one `version` compare. Raise it when a script measures something else, or in another way: sizes, ranks
    and other options are told apart without it, and words and checks of a script need no new baseline.
    """

    question: str
    version: int = 1
    shapes: Sequence[Shape] = ("several",)
    together: bool = False
    options: Mapping[Backend, str] = field(default_factory=dict)


@cache
def definitions() -> Mapping[str, Definition]:
    """Return the entry of each probe."""
    import yaml  # most commands start without it

    raw = yaml.safe_load(read_file(Path(__file__).with_name("probes.yaml"), MAX_BYTES))
    return {name: Definition(**fields) for name, fields in raw.items()}


def options_of(name: str, backend: Backend) -> list[str]:
    """Return the options of a probe's script."""
    return definitions()[name].options[backend].split()


def make_probe(name: str, sruns: Sequence[Srun], judge: Judge) -> Probe:
    """Return a probe with what its entry says of it."""
    entry = definitions()[name]
    return Probe(name, entry.question, tuple(sruns), judge, tuple(entry.shapes), entry.together, entry.version)
