"""The probe `environment`: CPU masks and GPUs of ranks, on records that real steps left, and on changed ones."""

from __future__ import annotations

from typing import Any

from lumisite.validate.lines import Gate
from lumisite.validate.probes.environment.expected import Setup
from lumisite.validate.probes.probe import Expected, Target
from tests.support.records import a_job, changed, recorded, target_of
from tests.unit.validate.test_environment import gates_of

# ---- CPUs and GPUs

LUMI = target_of("lumi")
LUMI_G = recorded("environment-lumi-g")
ONE_NODE = a_job(("nid005001",), 8)
BUSES = [gpu.pci_bus for gpu in Setup(LUMI).topology.gpus]


def masks_found(records: list[Any], job: Expected = ONE_NODE, target: Target = LUMI) -> list[Gate]:
    return [line for line in gates_of(records, target, job) if line.gate == "affinity"]


def with_gpus(buses: list[list[str]]) -> list[Any]:
    return [{**record, "gpus": seen} for record, seen in zip(LUMI_G, buses, strict=True)]


def test_a_wrong_mask_is_named_with_both() -> None:
    assert masks_found(LUMI_G) == []
    (found,) = masks_found(changed(LUMI_G, "cpus", value="1-6", rank=4))
    assert (found.code, found.rank) == ("mask-wrong", 4)
    assert "mask 0x7e (CPUs 1-6), expected 0xfe (CPUs 1-7) for local rank 4" in found.text


def test_a_wrong_mask_that_is_another_ranks_is_named_once() -> None:
    (found,) = masks_found(changed(LUMI_G, "cpus", value=LUMI_G[3]["cpus"], rank=4))
    assert (found.code, found.rank) == ("mask-wrong", 4)


def test_a_users_binding_is_told_from_the_task_prologs() -> None:
    records = changed(LUMI_G, "cpus", value="1-6", rank=4)
    (prologs,) = masks_found(records)
    records = changed(records, "environment", "SLURM_CPU_BIND", value="quiet,map_cpu:1,2", rank=4)
    (users,) = masks_found(records)
    assert "SLURM_CPU_BIND" not in prologs.advice
    assert users.advice.endswith("SLURM_CPU_BIND=quiet,map_cpu:1,2")


def test_a_granted_part_of_a_node_is_judged_by_what_was_granted() -> None:
    """The mask is what is near the GPU of what was granted, as the task prolog has it."""
    records = [{**record, "granted": "0-4,8-63"} for record in LUMI_G]
    assert masks_found(changed(records, "cpus", value="1-4", rank=4)) == []


def test_gpus_in_the_platforms_order_pass() -> None:
    assert masks_found(with_gpus([BUSES] * 8)) == []
    assert masks_found(with_gpus([[bus] for bus in BUSES])) == []


def test_a_bus_id_that_a_maintenance_has_changed_is_named() -> None:
    old = ["0000:cc:00.0" if bus == "0000:ce:00.0" else bus for bus in BUSES]
    (found,) = masks_found(with_gpus([old] * 8))
    assert (found.code, found.rank) == ("gpu-wrong", 3)
    assert f"GPU on bus 0000:cc:00.0, which lumi-g does not have (expected {', '.join(BUSES)})" in found.text


def test_gpus_in_another_order_are_named() -> None:
    found = masks_found(with_gpus([[BUSES[1], BUSES[0], *BUSES[2:]]] * 8))
    assert [(line.rank, line.text.rpartition(" ")[2]) for line in found] == [(0, "1"), (1, "0")]


def test_ranks_that_share_a_gpu_are_named() -> None:
    (found,) = masks_found(with_gpus([[BUSES[4 if rank == 5 else rank]] for rank in range(8)]))
    assert (found.code, found.rank) == ("gpu-wrong", 5)
    assert found.text.endswith("with rank 4")


def test_without_a_table_ranks_must_not_share_or_have_reserved_cpus() -> None:
    records = [record for record in LUMI_G if record["rank"] < 3]
    job = a_job(("nid005001",), 3)
    assert masks_found(records, job) == []
    found = masks_found(changed(records, "cpus", value="48-50", rank=1), job)
    reserved, shared = (line.text for line in found)
    assert reserved.startswith("rank 1 on nid005001: mask 0x7000000000000 has the reserved CPUs 48")
    assert "mask 0x7000000000000 shares the CPUs 49-50 with local rank 0 (" in shared
