"""The judges of modules, binds and masks, on records that real steps left and on changed ones."""

from __future__ import annotations

from typing import Any

import pytest

from lumisite.machine.masks import mask_of
from lumisite.validate.probes.affinity.judge import affinity, expected_topology
from lumisite.validate.probes.binds.judge import binds, host_paths
from lumisite.validate.probes.modules.judge import modules
from lumisite.validate.probes.probe import Expected, Target
from tests.support.records import TWO_NODES, a_job, causes, changed, judged, recorded, target_of

BOTH = "nid000001, nid000002"


# ---- modules

CPEBITS = "singularity-CPEbits/25.03"


def modules_found(*keys: str, value: object) -> list[str]:
    records = changed(recorded("modules"), *keys, value=value)
    return causes(judged(modules(target_of("twin")), records))


def test_modules_of_an_untouched_twin_pass() -> None:
    found = judged(modules(target_of("twin")), recorded("modules"))
    assert causes(found) == ["pass 3 modules load and unload cleanly on 2 nodes"]


@pytest.mark.parametrize(
    ("keys", "value", "cause"),
    [
        ("has_lmod", False, "a login shell has no `module` command"),
        ("load", 1, f"{CPEBITS} does not load: it said nothing"),
        ("loaded", False, f"{CPEBITS} does not load: it said nothing"),
        ("unload", 1, f"{CPEBITS} does not unload: it said nothing"),
        ("still_loaded", True, f"{CPEBITS} does not unload: it said nothing"),
        (
            "changes",
            {},
            f"{CPEBITS} loads but SINGULARITY_BINDPATH lacks /opt/cray, /usr/lib64/libcxi.so.1 (it is not changed)",
        ),
        (
            "left",
            {"A": {"before": None, "after": "1"}},
            f"{CPEBITS} does not unload cleanly: A was not set before and is left as '1'",
        ),
        (
            "left",
            {"PATH": {"before": "/bin", "after": "/x:/bin"}},
            f"{CPEBITS} does not unload cleanly: PATH was '/bin' and is left as '/x:/bin'",
        ),
        (
            "left",
            {"MINE": {"before": "1", "after": None}},
            f"{CPEBITS} does not unload cleanly: MINE was '1' and is gone",
        ),
    ],
)
def test_a_modules_fault_is_named(keys: str, value: object, cause: str) -> None:
    path = (keys,) if keys == "has_lmod" else ("modules", CPEBITS, keys)
    assert modules_found(*path, value=value) == [f"fail nid000001: {cause}"]


def test_what_lmod_said_is_one_short_line() -> None:
    records = changed(recorded("modules"), "modules", CPEBITS, "load", value=1)
    records = changed(records, "modules", CPEBITS, "said", value="Lmod has\n  detected:\n" + "x" * 900)
    (cause,) = causes(judged(modules(target_of("twin")), records))
    assert f"{CPEBITS} does not load: Lmod has detected: xxx" in cause
    assert len(cause) < 300
    assert "\n" not in cause


# ---- binds

TORCH_RCCL = {"path": "/opt/venv/lib/python3.12/site-packages/torch/lib/librccl.so", "point": "/", "type": "overlay"}
IMAGES_PLUGIN = {"path": "/opt/aws-ofi-rccl/librccl-net.so", "point": "/", "type": "overlay"}
IMAGES_FABRIC = {"path": "/usr/lib/libfabric.so.1.21.0", "point": "/usr", "type": "fuse.squashfuse_ll"}
HOSTS_FABRIC = {
    "path": "/opt/cray/libfabric/1.22.0/lib64/libfabric.so.1.28.0",
    "point": "/opt/cray",
    "type": "overlay",
}
HOSTS_CXI = {"path": "/usr/lib64/libcxi.so.1", "point": "/usr/lib64/libcxi.so.1", "type": "overlay"}
OLDER = "/appl/local/containers/sif-images/lumi-pytorch-rocm-6.2.4-python-3.12-pytorch-v2.7.1.sif"
LAIF = "/appl/local/laifs/containers/lumi-multitorch-latest.sif"


def binds_found(records: list[Any], target: Target | None = None) -> list[str]:
    return causes(judged(binds(target or target_of("twin")), records))


def on_lumi(image: str, *mapped: dict[str, str], plugins: dict[str, str] | None = None) -> list[str]:
    """Judge LUMI's libraries in containers that have all binds."""
    target = target_of("lumi", image)
    there = {bind.path: {"exists": True, "file": bind.path} for bind in host_paths(target)}
    records: list[Any] = []
    for rank, node in enumerate(TWO_NODES.nodes):
        own = {"host": node, "rank": rank, "local_rank": 0, "paths": there}
        records.append({**own, "part": "host"})
        opened = {"plugins": plugins or {"librccl-net.so": "", "libnccl-net.so": "no such file"}, "libraries": {}}
        inside = {**own, "part": "container", "in_container": True}
        records.append({**inside, **opened, "mapped": list(mapped), "imports": {"torch": "2.7.1"}})
    return binds_found(records, target)


def test_binds_of_an_untouched_twin_pass() -> None:
    (cause,) = binds_found(recorded("binds"))
    assert cause.startswith("pass 8 binds are the host's own on 2 nodes; in use: libfabric.so.1.27.0 from the image")


def test_a_container_that_did_not_start_for_want_of_a_bind_is_told_once() -> None:
    records = changed(recorded("binds"), "paths", "/opt/cray", "exists", value=False, part="host")
    records = [record for record in records if (record["part"], record["rank"]) != ("container", 0)]
    (cause,) = binds_found(records)
    assert cause.startswith("fail nid000001: the node lacks /opt/cray, which containers need")


def test_a_container_that_did_not_start_for_no_known_reason_is_named() -> None:
    records = [record for record in recorded("binds") if (record["part"], record["rank"]) != ("container", 0)]
    assert binds_found(records) == ["fail nid000001: the container left no record: it did not start, or was ended"]


def test_a_bind_that_only_the_helper_makes_is_blamed_on_the_helper() -> None:
    records = changed(recorded("binds"), "paths", "/var/spool/slurmd", "exists", value=False, part="container")
    (cause,) = binds_found(records)
    assert "/var/spool/slurmd is on the node but not in the container, though the srun helper binds it" in cause


def test_a_probe_outside_of_containers_proves_nothing() -> None:
    records = changed(recorded("binds"), "in_container", value=False, part="container")
    assert "fail nid000001: the probe ran outside a container" in binds_found(records)


def test_a_framework_that_cannot_be_imported_is_named() -> None:
    records = changed(
        recorded("binds"), "imports", "torch", value="error: ImportError: libx.so: no such file", part="container"
    )
    assert "fail nid000001: torch cannot be imported: ImportError: libx.so: no such file" in binds_found(records)


def test_an_image_with_its_own_network_passes_with_it() -> None:
    (cause,) = on_lumi(LAIF, TORCH_RCCL, IMAGES_PLUGIN, IMAGES_FABRIC)
    assert cause.startswith("pass ")
    assert "librccl-net.so from the image (/opt/aws-ofi-rccl/librccl-net.so)" in cause


def test_the_hosts_libfabric_in_such_an_image_is_named() -> None:
    assert on_lumi(LAIF, IMAGES_PLUGIN, HOSTS_FABRIC) == [
        (
            f"fail {BOTH}: libfabric.so.1 is {HOSTS_FABRIC['path']} from the host; "
            "family laif-multitorch needs it from the image"
        )
    ]


def test_an_older_image_needs_the_hosts_libraries() -> None:
    (cause,) = on_lumi(OLDER, IMAGES_PLUGIN, HOSTS_FABRIC, HOSTS_CXI)
    assert cause.startswith("pass ")
    assert on_lumi(OLDER, IMAGES_PLUGIN, IMAGES_FABRIC, HOSTS_CXI) == [
        (
            f"fail {BOTH}: libfabric.so.1 is /usr/lib/libfabric.so.1.21.0 from the image; "
            "family lumi-pytorch needs it from the host"
        )
    ]


def test_no_plugin_is_a_failure_though_all_else_is_right() -> None:
    refusals = {"librccl-net.so": "librccl-net.so: cannot open", "libnccl-net.so": "libnccl-net.so: cannot open"}
    assert on_lumi(LAIF, IMAGES_FABRIC, plugins=refusals) == [
        (
            f"fail {BOTH}: no OFI plugin opens, so the traffic falls back to TCP: "
            "librccl-net.so: cannot open; libnccl-net.so: cannot open"
        )
    ]


# ---- masks

ONE_NODE = a_job(("nid005001",), 8)
BUSES = [gpu.pci_bus for gpu in expected_topology(target_of("lumi")).gpus]


def masks_found(records: list[Any], job: Expected = ONE_NODE, name: str = "lumi") -> list[str]:
    return causes(judged(affinity(target_of(name)), records, job))


def with_gpus(buses: list[list[str]]) -> list[Any]:
    records = recorded("affinity-lumi-g")
    for record, own in zip(records, buses, strict=True):
        record["gpus"] = own
    return records


def test_the_masks_of_a_real_step_on_a_lumi_g_node_pass() -> None:
    assert masks_found(recorded("affinity-lumi-g")) == ["pass 8 ranks on 1 node have the masks of lumi-g"]


def test_a_wrong_mask_is_named_with_both() -> None:
    assert masks_found(changed(recorded("affinity-lumi-g"), "cpus", value="1-6", rank=4)) == [
        (
            "fail rank 4 on nid005001: it has the mask 0x7e (CPUs 1-6, NUMA domain 0), expected 0xfe (CPUs 1-7) "
            "as local rank 4 of lumi-g"
        )
    ]


def test_a_wrong_mask_that_is_another_ranks_is_told_once() -> None:
    records = recorded("affinity-lumi-g")
    (cause,) = masks_found(changed(records, "cpus", value=records[3]["cpus"], rank=4))
    assert cause.startswith("fail rank 4 on nid005001: it has the mask ")


def test_advice_tells_a_users_binding_from_the_helpers() -> None:
    records = changed(recorded("affinity-lumi-g"), "cpus", value="1-6", rank=4)
    (mine,) = judged(affinity(target_of("lumi")), records, ONE_NODE)
    records = changed(records, "slurm", "SLURM_CPU_BIND", value="quiet,map_cpu:1,2", rank=4)
    (users,) = judged(affinity(target_of("lumi")), records, ONE_NODE)
    assert [getattr(line, "advice", "") for line in (mine, users)] == [
        "LUMISITE_VERBOSE=1 srun … says which mask the helper chose, or why none",
        "leave --cpu-bind to the helper; this step was started with SLURM_CPU_BIND=quiet,map_cpu:1,2",
    ]


def test_a_rank_that_is_missing_does_not_make_the_others_wrong() -> None:
    assert masks_found(recorded("affinity-lumi-g")[1:]) == [
        "fail rank 0 on nid005001: the rank left no record: it did not start, or was ended"
    ]


def test_a_granted_part_of_a_node_is_judged_by_what_was_granted() -> None:
    """The mask is what is near the GPU of what was granted, as the helper has it."""
    records = recorded("affinity-lumi-g")
    for record in records:
        record["granted"] = "0-4,8-63"
    assert masks_found(changed(records, "cpus", value="1-4", rank=4)) == [
        "pass 8 ranks on 1 node have the masks of lumi-g"
    ]


def test_gpus_in_the_platforms_order_pass() -> None:
    assert masks_found(with_gpus([BUSES] * 8))[0].startswith("pass")
    assert masks_found(with_gpus([[bus] for bus in BUSES]))[0].startswith("pass")


def test_a_bus_id_that_a_maintenance_has_changed_is_named() -> None:
    old = ["0000:cc:00.0" if bus == "0000:ce:00.0" else bus for bus in BUSES]
    assert masks_found(with_gpus([old] * 8)) == [
        (
            "fail rank 3 on nid005001: its GPU is on bus 0000:cc:00.0, which lumi-g does not have "
            f"(expected {', '.join(BUSES)})"
        )
    ]


def test_gpus_in_another_order_are_named() -> None:
    other = [BUSES[1], BUSES[0], *BUSES[2:]]
    assert masks_found(with_gpus([other] * 8)) == [
        f"fail rank 0 on nid005001: GPU 0 is on bus {BUSES[1]}, which lumi-g has as GPU 1",
        f"fail rank 1 on nid005001: GPU 1 is on bus {BUSES[0]}, which lumi-g has as GPU 0",
    ]


def test_ranks_that_share_a_gpu_are_named() -> None:
    own = [[bus] for bus in BUSES]
    own[5] = own[4]
    assert masks_found(with_gpus(own)) == [f"fail rank 5 on nid005001: it shares the GPU on bus {BUSES[4]} with rank 4"]


def test_without_a_table_ranks_must_not_share_or_have_reserved_cpus() -> None:
    records = [record for record in recorded("affinity-lumi-g") if record["rank"] < 3]
    job = a_job(("nid005001",), 3)
    assert masks_found(records, job) == ["pass 3 ranks on 1 node share no CPU; there is no table for 3 tasks on lumi-g"]
    assert masks_found(changed(records, "cpus", value="48-50", rank=1), job) == [
        f"fail rank 1 on nid005001: its mask {mask_of([48, 49, 50])} has the reserved CPUs 48",
        (
            f"fail rank 1 on nid005001: it has the mask {mask_of([48, 49, 50])} and shares the CPUs 49-50 with rank 0, "
            "which has 0xfe000000000000; expected a mask of its own"
        ),
    ]


def test_cpus_that_cannot_be_read_prove_nothing() -> None:
    (cause,) = masks_found(changed(recorded("affinity"), "cpus", value="0-"), TWO_NODES, "twin")
    assert cause.startswith("inconclusive rank 0 on nid000001: what the kernel says of its CPUs cannot be read")
