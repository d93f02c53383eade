from __future__ import annotations

import doctest

from lumisite import text


def test_the_examples_in_the_docstrings_are_true() -> None:
    found = doctest.testmod(text)
    assert found.failed == 0
    assert found.attempted > 0
