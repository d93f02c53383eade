"""The catalogue is whole: each code is used, tested and has advice."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from string import Formatter

import pytest

from lumisite.findings.catalogue import FOLDER, CatalogueEntry
from lumisite.findings.finding import Severity
from tests.support.catalogue import catalogue

TOP = Path(__file__).parents[3]
CODE = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")


def literals(*folders: str) -> Iterator[str]:
    """All words in quotes, in Python and in data."""
    for folder in folders:
        for path in (TOP / folder).rglob("*"):
            if path.suffix in (".py", ".sh", ".json", ".yaml", ".j2") and FOLDER not in path.parents:
                text = "" if path == Path(__file__) else path.read_text(errors="replace")
                yield from re.findall(r"[a-z0-9]+(?:-[a-z0-9]+)*", text)


@pytest.fixture(scope="module")
def used() -> set[str]:
    return set(literals("lumisite"))


@pytest.fixture(scope="module")
def tested() -> set[str]:
    return set(literals("tests"))


@pytest.mark.parametrize("entry", catalogue().values(), ids=lambda entry: entry.code)
def test_a_code_is_used_and_tested(entry: CatalogueEntry, used: set[str], tested: set[str]) -> None:
    assert CODE.fullmatch(entry.code)
    assert entry.code in used, "no room has it"
    assert entry.code in tested, "no test has it"


@pytest.mark.parametrize("entry", catalogue().values(), ids=lambda entry: entry.code)
def test_an_entry_is_whole(entry: CatalogueEntry) -> None:
    assert entry.text
    assert all(entry.text)
    assert entry.advice or entry.severity is Severity.INFO, "what is to be done?"
    for template in (*entry.text, *entry.advice):
        assert template == " ".join(template.split()), "a message is one line"
        assert all(name is None or name.isidentifier() for _, name, _, _ in Formatter().parse(template))


@pytest.mark.parametrize("entry", catalogue().values(), ids=lambda entry: entry.code)
def test_advice_is_not_in_the_text_too(entry: CatalogueEntry) -> None:
    # What is a value alone is the line that would be right, which a text may name.
    sentences = [todo for todo in entry.advice if " " in todo]
    assert not [todo for todo in sentences for text in entry.text if todo in text]
