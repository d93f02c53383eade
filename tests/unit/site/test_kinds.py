"""What a node has otherwise than the nodes of its kind."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from lumisite.site.node_recognition import Fingerprint, NodeFacts


def test_what_a_node_has_otherwise_is_one_finding_each() -> None:
    kind = Fingerprint("0-3", "0-1", {0: 0, 2: 1}, ((0, 0), (2, 1)), "2 amd", (("0000:c1:00.0",),))
    same = NodeFacts("0-3", "0-3", "0-1", {0: 0, 2: 1}, "2 amd", ("0000:c1:00.0",))
    changes: dict[str, dict[str, Any]] = {
        "CPUs 0-1, expected 0-3": {"present": "0-1", "online": "0-1"},
        "NUMA domains 0-3, expected 0-1": {"domains": "0-3"},
        "CPU 2 outside NUMA domain 1": {"domain_of": {0: 0, 2: 0}},
        "GPUs 1 amd at 0000:c1:00.0, expected 2 amd": {"gpus": "1 amd"},
        "GPUs at 0000:d1:00.0, expected 0000:c1:00.0": {"buses": ("0000:d1:00.0",)},
    }
    assert not list(kind.differences(same))
    for text, change in changes.items():
        assert list(kind.differences(replace(same, **change))) == [text]
