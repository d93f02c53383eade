"""Runs of `validate` as the commands read them that judge them: folders, or files of samples."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from lumisite.cli.facts import load_facts
from lumisite.cli.input import file_blocks
from lumisite.site.json_file import parse_json
from lumisite.site.load import read_input
from lumisite.validate import InputError
from lumisite.validate.report.gather import Side
from lumisite.validate.run.folder import RUN, SAMPLES
from lumisite.validate.run.jobscript import FACTS
from lumisite.validate.samples import Recorded, read_lines


def read_samples(names: Iterable[str]) -> Recorded:
    """Read the samples and gates of runs. Raises `InputError`."""
    files = [str(Path(name) / SAMPLES) if Path(name).is_dir() else name for name in names]
    return read_lines((file, file_blocks(file)) for file in files)


def read_side(names: Iterable[str]) -> Side:
    """Read runs as one side, with the facts and the request of the last one. Raises `InputError`."""
    names = tuple(names)
    folders = [path for path in map(Path, names) if path.is_dir()]
    recorded = read_samples(names)
    facts = [load_facts(str(path)) for folder in folders if (path := folder / FACTS).exists()]
    about = [found for folder in folders if (found := _object(folder / RUN))]
    return Side(recorded, facts[-1] if facts else None, about[-1] if about else {})


def _object(path: Path) -> Mapping[str, object]:
    """Read a JSON object; an empty one where there is no such file."""
    if not path.exists():
        return {}
    raw = parse_json(read_input(path, remedy="`lumisite validate` writes one"), str(path))
    if not isinstance(raw, dict):
        raise InputError(f"{path}: is not a JSON object")
    return raw
