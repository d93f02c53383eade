"""Comparing two captures takes time that grows as the number of their libraries does."""

from __future__ import annotations

import time
from dataclasses import replace

from lumisite.facts.facts import Facts, Library
from lumisite.facts.kinds.slurm_node import is_named
from lumisite.facts.report import make_report
from tests.support.breaks import LUMI, facts_of
from tests.support.nodes import AFTER, lumi_node


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


def test_a_number_that_nothing_has_does_not_stop_a_capture() -> None:
    """Python refuses to read a number of more than 4,300 digits."""
    long = b"9" * 5000
    pages = "/sys/kernel/mm/hugepages/hugepages-2048kB"
    files = {
        "/etc/slurm/slurm.conf": b"NodeName=uan[0-" + long + b"] Sockets=2\nNodeName=uan01 Sockets=4\n",
        f"{pages}/nr_hugepages": long,
        f"{pages}/surplus_hugepages": b"0",
    }
    facts = facts_of(lumi_node(AFTER, files))
    assert "hugepages-2048kB" not in facts.plain["hugepages"]
    assert not is_named("nid7", f"nid[0-{long.decode()}]")
