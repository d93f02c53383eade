"""The probe `environment`: CPU masks and GPUs of ranks, on records that real steps left, and on changed ones."""

from __future__ import annotations

from typing import Any

from lumisite.machine.masks import mask_of
from lumisite.validate.lines import Gate
from lumisite.validate.probes.environment.expected import Setup
from lumisite.validate.probes.probe import Expected, Target
from tests.support.records import a_job, changed, recorded, target_of
from tests.unit.validate.test_environment import RECORDS, gates_of

# ---- CPUs and GPUs

LUMI = target_of("lumi")
LUMI_G = recorded("environment-lumi-g")
ONE_NODE = a_job(("nid005001",), 8)
BUSES = [gpu.pci_bus for gpu in Setup(LUMI).topology.gpus]


def masks_found(records: list[Any], job: Expected = ONE_NODE, target: Target = LUMI) -> list[Gate]:
    return [line for line in gates_of(records, target, job) if line.gate == "affinity"]


def with_gpus(buses: list[list[str]]) -> list[Any]:
    return [{**record, "gpus": seen} for record, seen in zip(LUMI_G, buses, strict=True)]


def test_the_masks_of_a_real_step_on_a_lumi_g_node_pass() -> None:
    assert masks_found(LUMI_G) == []


def test_a_wrong_mask_is_named_with_both() -> None:
    (found,) = masks_found(changed(LUMI_G, "cpus", value="1-6", rank=4))
    assert (found.code, found.rank) == ("mask-wrong", 4)
    expected = {"mask": "0x7e", "cpus": "1-6", "numa": "0", "expected_mask": "0xfe", "expected_cpus": "1-7"}
    assert expected.items() <= found.values.items()


def test_a_wrong_mask_that_is_another_ranks_is_named_once() -> None:
    (found,) = masks_found(changed(LUMI_G, "cpus", value=LUMI_G[3]["cpus"], rank=4))
    assert (found.code, found.rank) == ("mask-wrong", 4)


def test_a_users_binding_is_told_from_the_task_prologs() -> None:
    records = changed(LUMI_G, "cpus", value="1-6", rank=4)
    (prologs,) = masks_found(records)
    records = changed(records, "environment", "SLURM_CPU_BIND", value="quiet,map_cpu:1,2", rank=4)
    (users,) = masks_found(records)
    assert "binding" not in prologs.values
    assert users.values["binding"] == "quiet,map_cpu:1,2"
    assert prologs.advice != users.advice


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
    assert (found.code, found.rank, found.values["bus"]) == ("gpu-bus-unknown", 3, "0000:cc:00.0")
    assert found.values["expected"] == tuple(BUSES)


def test_gpus_in_another_order_are_named() -> None:
    found = masks_found(with_gpus([[BUSES[1], BUSES[0], *BUSES[2:]]] * 8))
    assert [(line.code, line.rank, line.values["expected"]) for line in found] == [
        ("gpu-order", 0, 1),
        ("gpu-order", 1, 0),
    ]


def test_ranks_that_share_a_gpu_are_named() -> None:
    (found,) = masks_found(with_gpus([[BUSES[4 if rank == 5 else rank]] for rank in range(8)]))
    assert (found.code, found.rank, found.values["other"]) == ("gpu-shared", 5, 4)


def test_without_a_table_ranks_must_not_share_or_have_reserved_cpus() -> None:
    records = [record for record in LUMI_G if record["rank"] < 3]
    job = a_job(("nid005001",), 3)
    assert masks_found(records, job) == []
    found = masks_found(changed(records, "cpus", value="48-50", rank=1), job)
    assert [(line.code, line.rank) for line in found] == [("mask-reserved", 1), ("mask-shared", 1)]
    assert found[1].values["shared"] == "49-50"
    assert found[1].values["mask"] == mask_of([48, 49, 50])


def test_cpus_that_cannot_be_read_prove_nothing() -> None:
    (found,) = gates_of(changed(RECORDS, "cpus", value=""))
    assert (found.verdict, found.code) == ("inconclusive", "cpus-unreadable")


# ---- caches, Python and JAX by the site
