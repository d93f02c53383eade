"""The same training in the container and in an environment of Tykky, on records that real steps left."""

from __future__ import annotations

from typing import Any

import pytest

from lumisite.validate.lines import Gate, Sample
from lumisite.validate.probes.ddp.judge import ddp_in_tykky
from lumisite.validate.probes.probe import Line
from tests.support.records import TWO_NODES, changed, judged, only, recorded, target_of

PROBE = ddp_in_tykky(target_of("twin"), "/env")


def timed(container: list[float], tykky: list[float], *, rank: int = 0) -> list[Any]:
    records = recorded("tykky")
    for record in records:
        record["models"]["epoch"]["step_s"] = [0.1 for _ in container]
    records = changed(records, "models", "epoch", "step_s", value=container, part="container", rank=rank)
    return changed(records, "models", "epoch", "step_s", value=tykky, part="tykky", rank=rank)


def compared(records: list[Any]) -> list[Line]:
    return judged(PROBE, records, TWO_NODES)


def measures(lines: list[Line]) -> dict[str, float]:
    return {line.metric: line.value for line in lines if isinstance(line, Sample)}


def test_both_are_measured() -> None:
    lines = compared(timed([0.5, 1.0, 1.0, 1.2], [0.9, 1.5, 1.1, 1.2], rank=1))
    # The first epoch warms up; of the others the fastest counts, and in each the slowest rank.
    assert [line.code for line in lines if isinstance(line, Gate)] == ["checks-passed"]
    assert measures(lines) == {"ddp/epoch_s/container/2n": 1.0, "ddp/epoch_s/tykky/2n": 1.1, "ddp/epoch_ratio/2n": 1.1}


def test_an_epoch_is_the_sum_of_its_steps() -> None:
    found = measures(compared(timed([1.0, 2.0] * 4, [1.0] * 6 + [2.0, 2.0])))
    assert (found["ddp/epoch_s/container/2n"], found["ddp/epoch_s/tykky/2n"]) == (3.0, 2.0)


def test_a_much_slower_environment_is_named_with_what_it_lacks() -> None:
    records = timed([1.0, 1.0], [9.0, 7.7])
    for record in records:
        if record["part"] == "container":
            record["mapped"] = ["/opt/aws-ofi-rccl/librccl-net.so"]
            record["environment"]["NCCL_SOCKET_IFNAME"] = "hsn"
        else:
            record["mapped"] = []
            del record["environment"]["NCCL_SOCKET_IFNAME"]
    found = only(compared(records))
    assert found.code == "tykky-slower"
    assert found.cause == (
        "the fastest epoch takes 7.7 s in Tykky and 1 s in the container (7.70 times); not in use in Tykky: librccl-net; "
        "settings that differ (the container's in parentheses): NCCL_SOCKET_IFNAME= (hsn)"
    )


def test_training_that_failed_is_named_with_its_part() -> None:
    lines = compared(changed(recorded("tykky"), "error", value="RuntimeError: gloo", part="tykky", rank=1))
    assert (only(lines).code, only(lines).rank) == ("rank-failed", 1)
    assert "failed (tykky) while" in only(lines).cause
    assert not measures(lines)


def test_an_environment_that_did_not_start_is_named() -> None:
    lines = compared([record for record in recorded("tykky") if record["part"] == "container"])
    assert (only(lines).code, only(lines).values["subject"]) == ("record-missing", "tykky")


@pytest.mark.parametrize("folder", ["/scratch/env"])
def test_it_is_started_by_the_python_of_the_folder(folder: str) -> None:
    inside, outside = ddp_in_tykky(target_of("twin"), folder).sruns
    assert outside.start == (f"{folder}/bin/python",)
    assert outside.arguments == inside.arguments
