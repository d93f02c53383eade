"""The probe `environment`: its checks on records that real steps left, and on changed ones."""

from __future__ import annotations

from typing import Any

import pytest

from lumisite.validate.lines import Gate
from lumisite.validate.probes.environment.expected import Setup
from lumisite.validate.probes.environment.judge import GATES, environment
from lumisite.validate.probes.probe import Expected, Target
from tests.support.records import TWO_NODES, a_job, changed, codes, failed, judged, recorded, target_of
from tests.support.sites import load_text, site_text

TWIN, LUMI = target_of("twin"), target_of("lumi")
RECORDS, LUMI_G = recorded("environment"), recorded("environment-lumi-g")
DB = "MIOPEN_USER_DB_PATH"
DIRECTORY = ("directories", DB)


def gates_of(records: list[Any], target: Target = TWIN, job: Expected = TWO_NODES) -> list[Any]:
    return failed(judged(environment(target), records, job))


def test_an_untouched_twin_passes() -> None:
    lines = judged(environment(TWIN), RECORDS)
    assert [line.gate for line in lines if isinstance(line, Gate)] == ["environment", *GATES]
    assert codes(lines) == []
    assert {line.nodes for line in lines if isinstance(line, Gate)} == {TWO_NODES.nodes}


@pytest.mark.parametrize(
    ("part", "keys", "value", "gate", "code", "message"),
    [
        ("node", ("paths", "/opt/cray", "exists"), False, "binds", "bind-missing", "/opt/cray: cannot be found on the node ("),
        ("container", ("in_container",), False, "binds", "bind-not-in-container", "ran outside of containers"),
        ("container", ("paths", "/var/spool/slurmd"), {"exists": False}, "binds", "bind-not-in-container",
         "/var/spool/slurmd: on the node but not in the container, though the task prolog binds it"),
        ("container", ("paths", "/opt/cray"), {"exists": False}, "binds", "bind-not-in-container",
         "/opt/cray: on the node but not in the container, though the module singularity-CPEbits binds it"),
        ("container", ("paths", "/opt/cray", "file"), "1:2", "binds", "bind-not-in-container",
         "another file in the container (1:2) than /opt/cray on the node"),
        ("container", ("imports", "torch"), {"error": "ImportError: no"}, "binds", "library-not-opened",
         "torch: cannot be imported: ImportError: no"),
        ("container", ("libraries",), {"libx.so": "cannot open"}, "binds", "library-not-opened",
         "libx.so: does not open: cannot open"),
        ("container", (*DIRECTORY, "set"), False, "miopen", "directory-unfit", f"{DB}: not set"),
        ("container", (*DIRECTORY, "mount", "type"), "lustre", "miopen", "directory-unfit",
         "is on lustre, which all nodes share"),
        ("container", (*DIRECTORY, "real"), "/users/me/x", "miopen", "directory-unfit",
         "(leads to /users/me/x) is on /users, which all nodes share"),
        ("container", (*DIRECTORY, "real"), "/usersx", "miopen", "directory-unfit",
         "is not on a node-local file system (/tmp)"),
        ("container", (*DIRECTORY, "directory"), False, "miopen", "directory-unfit", "is no directory"),
        ("container", (*DIRECTORY, "owner"), 1, "miopen", "directory-unfit",
         "belongs to user 1, and the job runs as 2000"),
        ("container", (*DIRECTORY, "mode"), "770", "miopen", "directory-unfit", "has mode 770 (expected 700)"),
        ("container", (*DIRECTORY, "writing"), "No space left", "miopen", "directory-unfit",
         "cannot be written: No space left"),
        # What does no harm.
        ("container", (*DIRECTORY, "mode"), "1700", "", "", ""),
        ("container", ("hidden",), ["torch"], "", "", ""),
    ],
)  # fmt: skip
def test_a_fault_of_one_node_is_found_by_its_check_and_no_other(
    part: str, keys: tuple[str, ...], value: object, gate: str, code: str, message: str
) -> None:
    records = gates_of(changed(RECORDS, *keys, value=value, part=part))
    if not gate:
        assert records == []
        return
    (found,) = records
    assert (found.gate, found.code, found.nodes) == (gate, code, ("nid000001",))
    assert message in found.text
    assert found.rank == (0 if gate in ("affinity", "miopen", "usersite") else None)
    assert found.asked == TWO_NODES.nodes
    assert found.advice


GRANTED = {
    "locked memory": ["unlimited", "unlimited"],
    "open files": ["1024", "524288"],
    "shared memory": ["264000000"],
}


@pytest.mark.parametrize(
    ("limits", "message"),
    [
        ({"locked memory": ["65536", "65536"], "open files": ["1000", "1000"]},
         "locked memory: hard limit is 65536, the step on the node has unlimited; lower too: open files"),
        ({"open files": ["256", "524288"]}, "open files: soft limit is 256, the step on the node has 1024"),
        ({"shared memory": ["65536"]}, "shared memory: 65536 KiB, on the node 264000000 KiB"),
        ({"open files": ["524288", "524288"], "processes": ["1", "1"]}, ""),
    ],
)  # fmt: skip
def test_a_rank_has_the_limits_that_its_step_has_on_the_node(limits: dict[str, list[str]], message: str) -> None:
    records = [{**one, "granted": GRANTED} if one["part"] == "node" else {**one, "limits": GRANTED} for one in RECORDS]
    assert gates_of(records) == []
    found = gates_of(changed(records, "limits", value=GRANTED | limits, rank=1))
    assert [(gate.gate, gate.code, gate.nodes) for gate in found] == (
        [("limits", "limit-lower", ("nid000002",))] if message else []
    )
    assert all(gate.text == f"rank 1 on nid000002: {message}" for gate in found)


@pytest.mark.parametrize(("owner", "message"), [(0, "belongs to user 0"), (1234, "is no private directory")])
def test_a_private_directory_of_another_owner_is_the_cause_and_named_once(owner: int, message: str) -> None:
    entry = {"path": "/tmp/lumisite-1234", "owner": owner, "usable": False}
    records = changed(RECORDS, "user", value=1234)
    for name in ("MIOPEN_USER_DB_PATH", "MIOPEN_CUSTOM_CACHE_DIR"):
        records = changed(records, "directories", name, "set", value=False)
    (gate,) = gates_of(changed(records, "private", value=[{**entry, "usable": True}, entry]))
    assert (gate.code, gate.nodes) == ("directory-unfit", TWO_NODES.nodes[:1])
    assert f"{entry['path']}: {message}" in gate.text
    assert gate.text.endswith("; so MIOPEN_USER_DB_PATH, MIOPEN_CUSTOM_CACHE_DIR are not set")


# ---- records that are missing


def without(rank: int, part: str) -> list[Any]:
    return [record for record in RECORDS if (record["rank"], record["part"]) != (rank, part)]


@pytest.mark.parametrize("part", ["node", "container"])
def test_a_record_that_is_missing_is_named(part: str) -> None:
    (found,) = gates_of(without(0, part))
    assert (found.gate, found.code, found.values["subject"]) == ("environment", "record-missing", part)
    assert found.nodes == ("nid000001",)


def test_a_rank_that_died_of_a_library_or_did_not_start_for_want_of_a_bind_is_named_once() -> None:
    records = changed(RECORDS, "imports", value={})
    del next(record for record in records if record["part"] == "container")["imports"]
    (found,) = gates_of(records)
    assert (found.code, found.values["ranks"]) == ("record-missing", "0")
    (found,) = gates_of(changed(without(0, "container"), "paths", "/opt/cray", "exists", value=False, part="node"))
    assert (found.gate, found.code, found.nodes) == ("binds", "bind-missing", ("nid000001",))


# ---- CPUs and GPUs

BUSES = [gpu.pci_bus for gpu in Setup(LUMI).topology.gpus]
OLD_BUSES = ["0000:cc:00.0" if bus == "0000:ce:00.0" else bus for bus in BUSES]
SWAPPED = [BUSES[1], BUSES[0], *BUSES[2:]]
GRANTED_PART = [{**record, "granted": "0-4,8-63"} for record in LUMI_G]
UNKNOWN_BUS = f"GPU on bus 0000:cc:00.0, which lumi-g does not have (expected {', '.join(BUSES)})"


def cpus(value: str, rank: int = 4, records: list[Any] = LUMI_G) -> list[Any]:
    return changed(records, "cpus", value=value, rank=rank)


def with_gpus(*buses: list[str]) -> list[Any]:
    return [{**record, "gpus": seen} for record, seen in zip(LUMI_G, buses, strict=True)]


def affinity(records: list[Any]) -> list[Gate]:
    job = a_job(("nid005001",), len(records))
    return [line for line in gates_of(records, LUMI, job) if line.gate == "affinity"]


@pytest.mark.parametrize(
    ("records", "code", "found"),
    [
        (LUMI_G, "", {}),
        (cpus("1-6"), "mask-wrong", {4: "mask 0x7e (CPUs 1-6), expected 0xfe (CPUs 1-7) for local rank 4"}),
        # Another rank's is named once.
        (cpus(LUMI_G[3]["cpus"]), "mask-wrong", {4: "expected 0xfe (CPUs 1-7)"}),
        # Of what was granted it is what is near the GPU, as the task prolog has it.
        (cpus("1-4", records=GRANTED_PART), "", {}),
        # Without a table ranks must not share or have reserved CPUs.
        (cpus("48", 1, LUMI_G[:3]), "mask-wrong", {1: "mask 0x1000000000000 has the reserved CPUs 48"}),
        (
            cpus("49-50", 1, LUMI_G[:3]),
            "mask-wrong",
            {1: "mask 0x6000000000000 shares the CPUs 49-50 with local rank 0 ("},
        ),
        (with_gpus(*[BUSES] * 8), "", {}),
        (with_gpus(*[[bus] for bus in BUSES]), "", {}),
        # A maintenance has changed a bus id, or the order.
        (with_gpus(*[OLD_BUSES] * 8), "gpu-wrong", {3: UNKNOWN_BUS}),
        (with_gpus(*[SWAPPED] * 8), "gpu-wrong", {0: "which lumi-g has as GPU 1", 1: "which lumi-g has as GPU 0"}),
        (with_gpus(*[[BUSES[4 if rank == 5 else rank]] for rank in range(8)]), "gpu-wrong", {5: "with rank 4"}),
    ],
)
def test_masks_and_gpus_are_those_of_the_node_kind(records: list[Any], code: str, found: dict[int, str]) -> None:
    lines = affinity(sorted(records, key=lambda record: record["rank"]))
    assert [(line.rank, line.code) for line in lines] == [(rank, code) for rank in found]
    assert all(text in line.text for line, text in zip(lines, found.values(), strict=True))


def test_a_users_binding_is_told_from_the_task_prologs() -> None:
    (prologs,) = affinity(cpus("1-6"))
    (users,) = affinity(changed(cpus("1-6"), "environment", "SLURM_CPU_BIND", value="quiet,map_cpu:1,2", rank=4))
    assert "SLURM_CPU_BIND" not in prologs.advice
    assert users.advice.endswith("SLURM_CPU_BIND=quiet,map_cpu:1,2")


# ---- libraries


def mapped(path: str, point: str = "/", kind: str = "overlay") -> dict[str, str]:
    return {"path": path, "point": point, "type": kind}


TORCH_RCCL = mapped("/opt/venv/lib/python3.12/site-packages/torch/lib/librccl.so")
IMAGES_PLUGIN = mapped("/opt/aws-ofi-rccl/librccl-net.so")
IMAGES_FABRIC = mapped("/usr/lib/libfabric.so.1.21.0", "/usr", "fuse.squashfuse_ll")
HOSTS_FABRIC = mapped("/opt/cray/libfabric/1.22.0/lib64/libfabric.so.1.28.0", "/opt/cray")
HOSTS_CXI = mapped("/usr/lib64/libcxi.so.1", "/usr/lib64/libcxi.so.1")
OLDER = "/appl/local/containers/sif-images/lumi-pytorch-rocm-6.1.3-python-3.12-pytorch-v2.4.1.sif"
LAIF = "/appl/local/laifs/containers/lumi-multitorch-latest.sif"
OPENED = {"librccl-net.so": "", "libnccl-net.so": "no such file"}


@pytest.mark.parametrize(
    ("image", "libraries", "plugins", "message"),
    [
        # One has its own network, an older one needs the host's libraries; without a plugin all else is no use.
        (LAIF, [TORCH_RCCL, IMAGES_PLUGIN, IMAGES_FABRIC], OPENED, ""),
        (LAIF, [IMAGES_PLUGIN, HOSTS_FABRIC], OPENED,
         f"libfabric.so.1: {HOSTS_FABRIC['path']} is in use, from the host; family laif-multitorch needs it from the image"),
        (OLDER, [IMAGES_PLUGIN, HOSTS_FABRIC, HOSTS_CXI], OPENED, ""),
        (OLDER, [IMAGES_PLUGIN, IMAGES_FABRIC, HOSTS_CXI], OPENED, "libfabric.so.1.21.0 is in use, from the image; "),
        (LAIF, [IMAGES_FABRIC], dict.fromkeys(OPENED, "cannot open"),
         "librccl-net.so: no network plugin opens, so traffic falls back to TCP: cannot open"),
    ],
)  # fmt: skip
def test_libraries_come_from_where_the_images_family_has_them(
    image: str, libraries: list[dict[str, str]], plugins: dict[str, str], message: str
) -> None:
    target = target_of("lumi", image)
    there = {bind.path: {"exists": True, "file": bind.path} for bind in Setup(target).binds}
    opened = {"plugins": plugins, "libraries": {}, "mapped": libraries, "imports": {"torch": {"version": "2.7.1"}}}
    records = [{**record, "paths": there, **(opened if record["part"] == "container" else {})} for record in RECORDS]
    found = [line for line in gates_of(records, target) if line.gate == "binds"]
    assert [line.code for line in found] == ["library-not-opened"] * bool(message)
    assert all(message in line.text for line in found)


def test_what_a_user_site_hides_is_named() -> None:
    folder = "/users/lumiuser/.local/lib/python3.13/site-packages"
    for hidden, words in ((["torch"], ", where it hides the image's own torch"), ([], "")):
        records = changed(changed(RECORDS, "user_site_on_path", value=True), "hidden", value=hidden)
        (found,) = gates_of(records)
        assert found.text.endswith(f"{folder}: on Python's path{words}")


def test_a_variable_of_the_site_is_missed_before_it_does_harm() -> None:
    records = [
        {**record, "environment": {**record.get("environment", {}), "PYTHONNOUSERSITE": ""}} for record in RECORDS
    ]
    (found,) = gates_of(records)
    assert found.text.startswith("ranks 0-1 on nid000001, nid000002: PYTHONNOUSERSITE: not set")
    setting = ('  - name: PYTHONNOUSERSITE\n    value: "1"\n', "  - name: PYTHONNOUSERSITE\n    leave: yes\n")
    assert gates_of(records, target_of(load_text(site_text(setting)).site)) == []
