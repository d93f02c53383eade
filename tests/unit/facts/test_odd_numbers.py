"""Numbers that nothing has, in the files of a node."""

from __future__ import annotations

from lumisite.facts.slurm import is_named
from tests.support.breaks import facts_of
from tests.support.nodes import AFTER, lumi_node


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
    assert "hugepages-2048kB" not in facts.texts["hugepages"]
    assert not is_named("nid7", f"nid[0-{long.decode()}]")
