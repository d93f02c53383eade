"""Gate probes in a job: what a step that ran nowhere is called."""

from __future__ import annotations

from lumisite.site.load import load_site
from lumisite.site.selection import resolve_selection
from lumisite.validate.lines import Gate
from lumisite.validate.probes.gate_groups import gate_group
from lumisite.validate.probes.gates import gate_probes
from lumisite.validate.probes.probe import Ended, Expected

TWIN = load_site("twin").site
NODES = ("n1", "n2")
WORDS = "FATAL: could not open image /appl/images/none.sif: no such file or directory"


def told(name: str, *codes: int, records: int = 0) -> list[str]:
    """Judge a probe whose steps ended so; the first has a record of each of so many nodes."""
    probe = next(one for one in gate_probes(TWIN, resolve_selection(TWIN)) if one.name == name)
    group = gate_group(probe, "several", NODES, 1, "singularity", 60)
    left = tuple({"host": NODES[rank], "rank": rank, "local_rank": 0} for rank in range(records))
    steps = [
        Ended(step, () if number else left, code, WORDS if code else "")
        for number, (step, code) in enumerate(zip(group.steps, codes, strict=True))
    ]
    expected = Expected(name, "2n", NODES, 1, "gloo", TWIN.network, "r", 1.0)
    return [line.cause for line in group.judge(steps, expected) if isinstance(line, Gate)]


def test_a_step_that_ran_nowhere_is_told_in_the_runtimes_words() -> None:
    assert told("conda", 1) == [f"conda-2n ran on no node: {WORDS}"]


def test_what_one_step_has_seen_tells_more_than_that_the_other_did_not_run() -> None:
    causes = told("binds", 0, 1, records=2)
    assert causes
    assert not any("ran on no node" in cause for cause in causes)
