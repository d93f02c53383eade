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

TWIN = target_of("twin", jax_image="/j.sif")
RECORDS = recorded("environment")
DB = "MIOPEN_USER_DB_PATH"
CPEBITS = "singularity-CPEbits/25.03"
MODULE = ("modules", CPEBITS)
DIRECTORY = ("directories", DB)


def gates_of(records: list[Any], target: Target = TWIN, job: Expected = TWO_NODES) -> list[Any]:
    return failed(judged(environment(target), records, job))


@pytest.mark.parametrize(("owner", "named"), [(0, "0"), (1234, None)])
def test_a_private_directory_of_another_owner_is_the_cause_and_named_once(owner: int, named: str | None) -> None:
    entry = {"path": "/tmp/lumisite-1234", "owner": owner, "usable": False}
    records = changed(RECORDS, "user", value=1234)
    for name in ("MIOPEN_USER_DB_PATH", "MIOPEN_CUSTOM_CACHE_DIR"):
        records = changed(records, "directories", name, "set", value=False)
    (gate,) = gates_of(changed(records, "private", value=[{**entry, "usable": True}, entry]))
    assert (gate.code, gate.nodes, gate.values["subject"]) == (
        "private-folder-taken",
        TWO_NODES.nodes[:1],
        entry["path"],
    )
    assert gate.values.get("owner") == named
    assert gate.values["variables"] == ("MIOPEN_USER_DB_PATH", "MIOPEN_CUSTOM_CACHE_DIR")
    assert codes(judged(environment(TWIN), changed(RECORDS, "private", value=[entry]))) == [], "all that is set is fine"


def test_a_parent_without_the_sticky_bit_is_the_cause() -> None:
    entry = {"path": "/tmp", "owner": 0, "usable": False, "parent": True, "mode": "777"}
    records = changed(RECORDS, "directories", DB, "set", value=False)
    (gate,) = gates_of(changed(records, "private", value=[entry]))
    assert (gate.code, gate.values["subject"], gate.values["open"]) == ("private-folder-taken", "/tmp", "777")
    assert "owner" not in gate.values


def test_a_library_behind_a_folder_that_users_may_not_enter_has_its_folder_named() -> None:
    records = changed(RECORDS, "libraries", value={"libx.so": "cannot open shared object file"})
    (gate,) = gates_of(changed(records, "shut", value=["/opt/shut"]))
    assert (gate.code, gate.nodes, gate.values["shut"]) == ("library-not-opened", TWO_NODES.nodes[:1], "/opt/shut")
    assert codes(judged(environment(TWIN), changed(RECORDS, "shut", value=["/opt/shut"]))) == []


def test_an_untouched_twin_passes() -> None:
    lines = judged(environment(TWIN), RECORDS)
    passed = {line.gate: line.values for line in lines if isinstance(line, Gate)}
    assert [*passed] == ["environment", *GATES]
    assert codes(lines) == []
    assert {line.nodes for line in lines if isinstance(line, Gate)} == {TWO_NODES.nodes}
    assert passed["jax"]["versions"] == ("0.10.2",)
    assert passed["conda"]["versions"] == ("3.13.5",)
    assert "libfabric.so.1.27.0" in str(passed["binds"]["libraries"])


@pytest.mark.parametrize(
    ("part", "keys", "value", "gate", "code", "values"),
    [
        ("node", ("has_lmod",), False, "modules", "module-command-missing", {}),
        ("node", (*MODULE, "load"), 1, "modules", "module-not-loaded", {"subject": CPEBITS}),
        ("node", (*MODULE, "loaded"), False, "modules", "module-not-loaded", {"subject": CPEBITS}),
        ("node", (*MODULE, "unload"), 1, "modules", "module-not-unloaded", {"subject": CPEBITS}),
        ("node", (*MODULE, "still_loaded"), True, "modules", "module-not-unloaded", {"subject": CPEBITS}),
        ("node", (*MODULE, "changes"), {}, "modules", "module-binds-missing",
         {"missing": ("/opt/cray", "/usr/lib64/libcxi.so.1"), "variable": "SINGULARITY_BINDPATH"}),
        ("node", (*MODULE, "left"), {"A": {"before": None, "after": "1"}}, "modules", "module-leaves-change",
         {"variable": "A", "after": "1"}),
        ("node", (*MODULE, "left"), {"MINE": {"before": "1", "after": None}}, "modules", "module-leaves-change",
         {"variable": "MINE", "before": "1"}),
        ("node", ("paths", "/opt/cray", "exists"), False, "binds", "bind-missing", {"subject": "/opt/cray"}),
        ("container", ("in_container",), False, "binds", "not-in-container", {}),
        ("container", ("paths", "/var/spool/slurmd", "exists"), False, "binds", "bind-not-in-container",
         {"subject": "/var/spool/slurmd"}),
        ("container", ("paths", "/opt/cray", "exists"), False, "binds", "bind-not-in-container",
         {"subject": "/opt/cray", "module": "singularity-CPEbits"}),
        ("container", ("paths", "/opt/cray", "file"), "1:2", "binds", "bind-other-file", {"found": "1:2"}),
        ("container", ("imports", "torch"), {"error": "ImportError: no"}, "binds", "import-failed",
         {"error": "ImportError: no"}),
        ("container", ("libraries",), {"libx.so": "cannot open"}, "binds", "library-not-opened",
         {"subject": "libx.so"}),
        ("container", ("cpus",), "0-", "affinity", "cpus-unreadable", {"cpus": "0-"}),
        ("container", (*DIRECTORY, "set"), False, "miopen", "directory-unset", {"subject": DB}),
        ("node", ("paths", "/opt/cray"), {"exists": False, "shut": "/opt"}, "binds", "bind-missing",
         {"subject": "/opt/cray", "shut": "/opt"}),
        ("container", (*DIRECTORY, "mount", "type"), "lustre", "miopen", "directory-shared",
         {"file_system": "lustre"}),
        ("container", (*DIRECTORY, "real"), "/users/me/x", "miopen", "directory-shared",
         {"file_system": "/users", "real": "/users/me/x"}),
        ("container", (*DIRECTORY, "real"), "/usersx", "miopen", "directory-not-local", {"local": ("/tmp",)}),
        ("container", (*DIRECTORY, "exists"), False, "miopen", "directory-missing", {}),
        ("container", (*DIRECTORY, "directory"), False, "miopen", "directory-missing", {}),
        ("container", (*DIRECTORY, "owner"), 1, "miopen", "directory-owner",
         {"owner": 1, "user": 2000, "private": "/tmp"}),
        ("container", (*DIRECTORY, "mode"), "770", "miopen", "directory-open", {"mode": "770"}),
        ("container", (*DIRECTORY, "writing"), "No space left", "miopen", "directory-not-writable",
         {"reason": "No space left"}),
        ("container", ("pythonpath",), [{"path": "/s", "hidden": ["torch"]}], "usersite", "pythonpath-hides",
         {"subject": "/s", "hidden": ("torch",)}),
        ("container", ("frameworks", "torch"), {"path": "", "real": ""}, "conda", "framework-missing", {}),
        ("container", ("executable", "mount"), {"point": "/scratch", "type": "lustre"}, "conda", "python-from-host",
         {"mount": "/scratch"}),
        ("container", ("executable", "real_mount"), {"point": "/scratch", "type": "lustre"}, "conda",
         "python-from-host", {"mount": "/scratch"}),
        ("container", ("found", "python"), {"path": "/opt/bin/python", "real": "/opt/bin/python3.6"}, "conda",
         "python-two", {"other": "/opt/bin/python"}),
        ("jax", ("error",), "RuntimeError: no", "jax", "jax-failed", {"error": "RuntimeError: no"}),
        ("jax", ("processes",), 1, "jax", "jax-count", {"quantity": "processes", "found": 1, "expected": 2}),
        ("jax", ("local_devices",), 8, "jax", "jax-count", {"quantity": "local_devices", "expected": 1}),
        ("jax", ("devices",), 1, "jax", "jax-count", {"quantity": "devices", "expected": 2}),
        ("jax", ("sum",), 1.0, "jax", "jax-sum", {"expected": 3.0}),
        ("jax", ("platform",), "rocm", "jax", "jax-platform", {"found": "rocm", "expected": "cpu"}),
    ],
)  # fmt: skip
def test_a_fault_of_one_node_is_found_by_its_check_and_no_other(
    part: str, keys: tuple[str, ...], value: object, gate: str, code: str, values: dict[str, object]
) -> None:
    (found,) = gates_of(changed(RECORDS, *keys, value=value, part=part))
    assert (found.gate, found.code, found.nodes) == (gate, code, ("nid000001",))
    assert values.items() <= found.values.items()
    assert found.rank == (0 if gate in ("affinity", "miopen", "usersite", "conda", "jax") else None)
    assert found.asked == TWO_NODES.nodes
    assert found.advice


GRANTED = {
    "locked memory": ["unlimited", "unlimited"],
    "open files": ["1024", "524288"],
    "shared memory": ["264000000"],
}


@pytest.mark.parametrize(
    ("limits", "values"),
    [
        ({"locked memory": ["65536", "65536"], "open files": ["1000", "1000"]},
         {"subject": "locked memory", "kind": "hard", "found": "65536", "expected": "unlimited", "more": ("open files",)}),
        ({"open files": ["256", "524288"]}, {"subject": "open files", "kind": "soft", "found": "256"}),
        ({"shared memory": ["65536"]}, {"subject": "shared memory", "found": "65536", "expected": "264000000"}),
        ({"open files": ["524288", "524288"], "processes": ["1", "1"]}, None),
        ({"open files": [], "locked memory": "x"}, None),
    ],
)  # fmt: skip
def test_a_rank_has_the_limits_that_its_step_has_on_the_node(
    limits: dict[str, list[str]], values: dict[str, object] | None
) -> None:
    records = [{**one, "granted": GRANTED} if one["part"] == "node" else {**one, "limits": GRANTED} for one in RECORDS]
    assert gates_of(records) == []
    found = gates_of(changed(records, "limits", value=GRANTED | limits, rank=1))
    assert [(gate.gate, gate.code, gate.nodes) for gate in found] == (
        [("limits", "rank-limit-lower", ("nid000002",))] if values else []
    )
    assert all((values or {}).items() <= gate.values.items() for gate in found)


@pytest.mark.parametrize(
    ("keys", "value"),
    [
        ((*DIRECTORY, "mode"), "1700"),
        (("executable", "mount"), {"point": "/user-software", "type": "fuse.squashfuse_ll", "root": "/"}),
        (("pythonpath",), [{"path": "/scratch/me/src", "hidden": []}]),
        (("user_packages",), ["torch"]),
    ],
)
def test_what_does_no_harm_passes(keys: tuple[str, ...], value: object) -> None:
    assert gates_of(changed(RECORDS, *keys, value=value)) == []


def test_what_lmod_wrote_is_quoted_on_one_short_line() -> None:
    records = changed(RECORDS, *MODULE, "load", value=1, part="node")
    records = changed(records, *MODULE, "said", value="Lmod has\n  detected:\n" + "x" * 900, part="node")
    (found,) = gates_of(records)
    assert found.values["words"].startswith("Lmod has detected: xxx")
    assert len(found.values["words"]) == 200


def test_equal_findings_of_ranks_are_one_line() -> None:
    records = RECORDS
    for rank in (0, 1):
        records = changed(records, *DIRECTORY, "set", value=False, rank=rank)
    (found,) = gates_of(records)
    assert (found.values["ranks"], found.rank, found.nodes, found.asked) == ("0-1", None, TWO_NODES.nodes, ())


# ---- records that are missing


def without(rank: int, part: str) -> list[Any]:
    return [record for record in RECORDS if (record["rank"], record["part"]) != (rank, part)]


@pytest.mark.parametrize("part", ["node", "container", "jax"])
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


def on_lumi(image: str, *mapped: dict[str, str], plugins: dict[str, str] = OPENED) -> list[tuple[str, ...]]:
    """What is found of LUMI's libraries in containers that have all binds."""
    target = target_of("lumi", image)
    there = {bind.path: {"exists": True, "file": bind.path} for bind in Setup(target).binds}
    records: list[Any] = []
    for rank, node in enumerate(TWO_NODES.nodes):
        record = {"host": node, "rank": rank, "local_rank": 0, "paths": there}
        records.append({**record, "part": "node"})
        opened = {"plugins": plugins, "libraries": {}, "mapped": list(mapped), "imports": {"torch": "2.7.1"}}
        records.append({**record, "part": "container", "in_container": True, **opened})
    found = [line for line in gates_of(records, target) if line.gate == "binds"]
    return [(line.code, line.values["subject"], str(line.values.get("found", ""))) for line in found]


def test_an_image_with_its_own_network_passes_with_it() -> None:
    assert on_lumi(LAIF, TORCH_RCCL, IMAGES_PLUGIN, IMAGES_FABRIC) == []
    assert on_lumi(LAIF, IMAGES_PLUGIN, HOSTS_FABRIC) == [("library-origin", "libfabric.so.1", "host")]


def test_an_older_image_needs_the_hosts_libraries() -> None:
    assert on_lumi(OLDER, IMAGES_PLUGIN, HOSTS_FABRIC, HOSTS_CXI) == []
    assert on_lumi(OLDER, IMAGES_PLUGIN, IMAGES_FABRIC, HOSTS_CXI) == [("library-origin", "libfabric.so.1", "image")]


def test_no_plugin_is_a_failure_though_all_else_is_right() -> None:
    refusals = dict.fromkeys(OPENED, "cannot open")
    assert on_lumi(LAIF, IMAGES_FABRIC, plugins=refusals) == [("plugin-not-opened", "librccl-net.so", "")]


def test_the_advice_names_the_place_that_the_site_has() -> None:
    tmp = "{path: /tmp, kind: node-local, writable: yes,"
    site = load_text(site_text((tmp, "{path: /tmp, kind: node-local, job_folder: $TMPDIR,"))).site
    (found,) = gates_of(changed(RECORDS, *DIRECTORY, "owner", value=1), target_of(site, jax_image="/j.sif"))
    assert found.values["private"] == "$TMPDIR"


def user_site(hidden: list[str], packages: list[str]) -> list[Any]:
    records = changed(RECORDS, "user_site_on_path", value=True)
    records = changed(records, "hidden", value=hidden)
    return changed(records, "user_packages", value=packages)


def test_what_a_user_site_hides_is_named() -> None:
    (found,) = gates_of(user_site(["torch"], ["torch", "x"]))
    assert (found.code, found.values["hidden"]) == ("user-site-active", ("torch",))
    assert found.values["subject"] == "/users/lumiuser/.local/lib/python3.13/site-packages"
    (found,) = gates_of(user_site([], ["p1", "p2"]))
    assert found.values["packages"] == ("p1", "p2")


def test_a_variable_of_the_site_is_missed_before_it_does_harm() -> None:
    records = [
        {**record, "environment": {**record.get("environment", {}), "PYTHONNOUSERSITE": ""}} for record in RECORDS
    ]
    (found,) = gates_of(records)
    assert (found.code, found.values["ranks"]) == ("user-site-open", "0-1")
    setting = ('  - name: PYTHONNOUSERSITE\n    value: "1"\n', "  - name: PYTHONNOUSERSITE\n    leave: yes\n")
    assert gates_of(records, target_of(load_text(site_text(setting)).site, jax_image="/j.sif")) == []


CONDA = target_of(
    "lumi", "/appl/local/containers/sif-images/lumi-pytorch-rocm-6.2.1-python-3.12-pytorch-20240918-vllm-4075b35.sif"
)


def python_found(records: list[Any]) -> list[Any]:
    return [line for line in gates_of(records, CONDA) if line.gate == "conda"]


def test_a_python_beside_the_environment_is_named() -> None:
    (found,) = python_found(RECORDS)
    assert (found.code, found.values["activation"]) == ("python-not-activated", "with-conda")
    assert found.values["expected"] == ("/opt/miniconda3/envs/pytorch/bin",)


def test_the_environments_python_passes() -> None:
    path = "/opt/miniconda3/envs/pytorch/bin/python3"
    records = [record for record in RECORDS if record["part"] == "container"]
    for rank in (0, 1):
        records = changed(records, "executable", "path", value=path, rank=rank)
        real = records[0]["executable"]["real"]
        records = changed(records, "found", "python", value={"path": path, "real": real}, rank=rank)
    assert python_found(records) == []


@pytest.mark.parametrize(("site", "selectors"), [("lumi", ("ROCR_VISIBLE_DEVICES", "--rocm")), ("university", ("CUDA_VISIBLE_DEVICES", "--nv"))])  # fmt: skip
def test_jax_on_the_cpu_of_a_gpu_node_is_named(site: str, selectors: tuple[str, ...]) -> None:
    found = [line for line in gates_of(RECORDS, target_of(site, jax_image="/j.sif")) if line.gate == "jax"]
    assert [line.code for line in found] == ["jax-platform"]
    assert found[0].values["selectors"] == selectors
