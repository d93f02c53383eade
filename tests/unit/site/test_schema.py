"""The JSON schema of the site description takes what `check` takes, and marks what a schema can know to be wrong."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft202012Validator

from docs.reference.schema import site_schema
from lumisite.site.document import LOADER
from lumisite.site.load import EMBEDDED

SCHEMA = Draft202012Validator(json.loads(site_schema()))


def as_an_editor_reads_it(text: str) -> Any:
    return json.loads(json.dumps(yaml.load(text, Loader=LOADER), default=str))  # dates too are texts to us


@pytest.mark.parametrize("path", sorted(EMBEDDED.glob("*.yaml")), ids=lambda path: path.stem)
def test_every_site_fits(path: Path) -> None:
    assert list(SCHEMA.iter_errors(as_an_editor_reads_it(path.read_text()))) == []


@pytest.mark.parametrize(
    ("old", "new", "where"),
    [
        ("root:", "roots:", []),
        ("\nroot: ", "\nroot: x", ["root"]),
        ("interfaces: [", "interfaces: x #", ["fabric", "interfaces"]),
        ("emit: modulefile", "emit: module", ["runtimes", "singularity", "emit"]),
        ("partitions:\n", "partitions:\n  odd: {}\n", ["partitions", "odd"]),
    ],
)
def test_what_a_schema_can_know_is_marked(old: str, new: str, where: list[str]) -> None:
    text = (EMBEDDED / "twin.yaml").read_text().replace("variant: ", "emit: modulefile\n    variant: ", 1)
    assert old in text
    found = list(SCHEMA.iter_errors(as_an_editor_reads_it(text.replace(old, new, 1))))
    assert [list(error.absolute_path) for error in found][:1] == [where]
