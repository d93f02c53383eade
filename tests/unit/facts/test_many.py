"""Comparing two captures takes time that grows as the number of their libraries does."""

from __future__ import annotations

import time
from dataclasses import replace

from lumisite.facts.facts import Facts, Library
from lumisite.facts.report import make_report
from tests.support.breaks import LUMI, facts_of
from tests.support.nodes import lumi_node


def node_with(libraries: int, update: int) -> Facts:
    """A node with libraries that need each other, and that libfabric needs, after an update of all of them."""
    found = {
        f"/usr/lib64/lib{at}.so.1": Library(
            f"lib{at}.so.1", 100 + update, (f"lib{at + 1}.so.1",), {"GLIBC": f"2.{update}"}, (f"V_{update}",)
        )
        for at in range(libraries)
    }
    found["/usr/lib64/libfabric.so.1"] = Library("libfabric.so.1", 10, ("lib0.so.1",))
    loads = {library.soname or "": path for path, library in found.items()}
    return replace(facts_of(lumi_node()), libraries=found, loads=loads)


def seconds(libraries: int) -> float:
    before, after = (node_with(libraries, update) for update in (30, 31))
    start = time.process_time()
    assert len(make_report(before, after, LUMI).changes) > libraries
    return time.process_time() - start


def test_four_times_as_many_libraries_take_four_times_as_long() -> None:
    few = seconds(150)
    assert seconds(600) < 4 * 2 * few + 0.3  # a square takes sixteen times as long
