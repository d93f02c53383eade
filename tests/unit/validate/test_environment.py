"""The probe `environment`: its checks on records that real steps left, and on changed ones."""

from __future__ import annotations

from typing import Any

import pytest

from lumisite.validate.lines import Gate
from lumisite.validate.probes.environment.expected import Setup
from lumisite.validate.probes.environment.judge import GATES, environment
from lumisite.validate.probes.probe import Expected, Target
from tests.support.records import TWO_NODES, changed, codes, failed, judged, recorded, target_of
from tests.support.sites import load_text, site_text

TWIN = target_of("twin")
RECORDS = recorded("environment")
DB = "MIOPEN_USER_DB_PATH"
DIRECTORY = ("directories", DB)


def gates_of(records: list[Any], target: Target = TWIN, job: Expected = TWO_NODES) -> list[Any]:
    return failed(judged(environment(target), records, job))


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
    ],
)  # fmt: skip
def test_a_fault_of_one_node_is_found_by_its_check_and_no_other(
    part: str, keys: tuple[str, ...], value: object, gate: str, code: str, message: str
) -> None:
    (found,) = gates_of(changed(RECORDS, *keys, value=value, part=part))
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


@pytest.mark.parametrize(
    ("keys", "value"),
    [
        ((*DIRECTORY, "mode"), "1700"),
        (("hidden",), ["torch"]),
    ],
)
def test_what_does_no_harm_passes(keys: tuple[str, ...], value: object) -> None:
    assert gates_of(changed(RECORDS, *keys, value=value)) == []


# ---- records that are missing


def without(rank: int, part: str) -> list[Any]:
    return [record for record in RECORDS if (record["rank"], record["part"]) != (rank, part)]


@pytest.mark.parametrize("part", ["node", "container"])
def test_a_record_that_is_missing_is_named(part: str) -> None:
    (found,) = gates_of(without(0, part))
    assert (found.gate, found.code, found.values["subject"]) == ("environment", "record-missing", part)
    assert found.nodes == ("nid000001",)


def test_a_rank_that_died_of_a_library_is_named() -> None:
    records = changed(RECORDS, "imports", value={})
    del next(record for record in records if record["part"] == "container")["imports"]
    (found,) = gates_of(records)
    assert (found.code, found.values["ranks"]) == ("record-missing", "0")


def test_a_container_that_did_not_start_for_want_of_a_bind_is_named_once() -> None:
    records = changed(without(0, "container"), "paths", "/opt/cray", "exists", value=False, part="node")
    (found,) = gates_of(records)
    assert (found.gate, found.code, found.nodes) == ("binds", "bind-missing", ("nid000001",))


# ---- libraries

TORCH_RCCL = {"path": "/opt/venv/lib/python3.12/site-packages/torch/lib/librccl.so", "point": "/", "type": "overlay"}
IMAGES_PLUGIN = {"path": "/opt/aws-ofi-rccl/librccl-net.so", "point": "/", "type": "overlay"}
IMAGES_FABRIC = {"path": "/usr/lib/libfabric.so.1.21.0", "point": "/usr", "type": "fuse.squashfuse_ll"}
HOSTS_FABRIC = {
    "path": "/opt/cray/libfabric/1.22.0/lib64/libfabric.so.1.28.0",
    "point": "/opt/cray",
    "type": "overlay",
}
HOSTS_CXI = {"path": "/usr/lib64/libcxi.so.1", "point": "/usr/lib64/libcxi.so.1", "type": "overlay"}
OLDER = "/appl/local/containers/sif-images/lumi-pytorch-rocm-6.1.3-python-3.12-pytorch-v2.4.1.sif"
LAIF = "/appl/local/laifs/containers/lumi-multitorch-latest.sif"
OPENED = {"librccl-net.so": "", "libnccl-net.so": "no such file"}


def on_lumi(image: str, *mapped: dict[str, str], plugins: dict[str, str] = OPENED) -> list[str]:
    """What is found of LUMI's libraries in containers that have all binds."""
    target = target_of("lumi", image)
    there = {bind.path: {"exists": True, "file": bind.path} for bind in Setup(target).binds}
    opened = {"plugins": plugins, "libraries": {}, "mapped": [*mapped], "imports": {"torch": {"version": "2.7.1"}}}
    records = [{**record, "paths": there, **(opened if record["part"] == "container" else {})} for record in RECORDS]
    found = [line for line in gates_of(records, target) if line.gate == "binds"]
    assert {line.code for line in found} <= {"library-not-opened"}
    return [line.text.partition(": ")[2] for line in found]


def test_an_image_with_its_own_network_passes_with_it() -> None:
    assert on_lumi(LAIF, TORCH_RCCL, IMAGES_PLUGIN, IMAGES_FABRIC) == []
    (found,) = on_lumi(LAIF, IMAGES_PLUGIN, HOSTS_FABRIC)
    assert found == (
        "libfabric.so.1: /opt/cray/libfabric/1.22.0/lib64/libfabric.so.1.28.0 is in use, from the host; "
        "family laif-multitorch needs it from the image"
    )


def test_an_older_image_needs_the_hosts_libraries() -> None:
    assert on_lumi(OLDER, IMAGES_PLUGIN, HOSTS_FABRIC, HOSTS_CXI) == []
    (found,) = on_lumi(OLDER, IMAGES_PLUGIN, IMAGES_FABRIC, HOSTS_CXI)
    assert "is in use, from the image" in found


def test_no_plugin_is_a_failure_though_all_else_is_right() -> None:
    refusals = dict.fromkeys(OPENED, "cannot open")
    (found,) = on_lumi(LAIF, IMAGES_FABRIC, plugins=refusals)
    assert found.startswith("librccl-net.so: no network plugin opens, so traffic falls back to TCP: cannot open")


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
