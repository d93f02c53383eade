"""`lumisite env`: what a rank finds, and whether the image fits; test_rank.py compares the first with the scripts."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from lumisite.cli import main
from lumisite.images.lock import Lock, LockedImage, format_lock
from lumisite.site.load import load_site
from tests.support.dict_trees import Files, write_tree
from tests.support.elves import elf
from tests.support.sites import lumi_with_lock, site_text
from tests.support.torch import torch

pytestmark = pytest.mark.usefixtures("at_lumi")

R70 = "/appl/local/laifs/containers/lumi-multitorch-full-u24r70f21m50t210-20260807_115122.sif"
Output = pytest.CaptureFixture[str]


def env(capsys: Output, *words: str, code: int = 0) -> dict[str, Any]:
    assert main(["env", *words, "--json"]) == code
    found = json.loads(capsys.readouterr().out)
    assert isinstance(found, dict)
    return found


def test_each_variable_says_who_sets_it_by_which_entry_and_why(capsys: Output) -> None:
    found = env(capsys, R70, "--nodes", "2", "--tasks-per-node", "8")
    assert set(found) == {"variables", "binds", "cpus", "image", "set_before", "harmful"}
    variables = found["variables"]
    assert all(set(one) == {"value", "by", "entry", "why"} for one in variables.values())
    settings = load_site("lumi").site.settings
    for name, by, value in (
        ("NCCL_NET", "wrapper", None),
        ("FI_MR_CACHE_MONITOR", "wrapper", "userfaultfd"),
        ("FI_CXI_DEFAULT_CQ_SIZE", "prolog", "131072"),
        ("OMP_NUM_THREADS", "prolog", None),
        ("TRITON_CACHE_DIR", "prolog", f"/tmp/lumisite-{os.getuid()}/triton"),
    ):
        one = variables[name]
        assert (one["by"], one["value"]) == (by, value)
        setting = settings[int(one["entry"].removeprefix("settings[").removesuffix("]"))]
        assert setting.name == name
        assert setting.why in one["why"]
    assert variables["SLURM_TASK_PROLOG"]["by"] == "module"
    assert variables["PATH"]["value"].split(":")[0] == "/appl/local/lumisite/current/spank/bin"
    by_target = {bind["target"]: bind["by"] for bind in found["binds"]}
    assert (by_target["/scratch"], by_target["/var/spool/slurmd"], "/opt/cray" in by_target) == (
        "module",
        "prolog",
        False,
    )
    assert [one["mask"] for one in found["cpus"]][:2] == ["0xfe000000000000", "0xfe00000000000000"]
    unbound = env(capsys, "--tasks-per-node", "7")["cpus"]
    assert [one["mask"] for one in unbound] == [None] * 7
    assert "no masks for 7 tasks" in unbound[0]["why"]


def test_one_screen_has_what_is_set_and_all_has_the_reasons(capsys: Output) -> None:
    assert main(["env", R70, "--nodes", "2"]) == 0
    screen = capsys.readouterr().out.splitlines()
    assert len(screen) <= 50
    assert "  wrapper  FI_MR_CACHE_MONITOR=userfaultfd" in screen
    assert "  0  49-55              0xfe000000000000" in screen
    assert main(["env", R70, "--nodes", "2", "--all"]) == 0
    everything = capsys.readouterr().out.splitlines()
    (left,) = [line for line in screen if line.startswith("  known to the site and not set: ")]
    begin, end = everything.index("Not set"), everything.index("Binds, by whom")
    assert left.split()[7] == str((end - begin - 2) // 2)
    assert main(["env", "gone.sif", "--partition", "standard", "--all"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("gone.sif on 1 node of standard, 1 on each, with singularity-userfilesystems/2026-01 ")
    assert "\n  prolog   PYTHONNOUSERSITE=1\n      settings[" in out
    assert "(by its name, so " in out


def test_what_this_shell_has_set_before_is_named_with_its_value(
    capsys: Output, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NCCL_SOCKET_IFNAME", "eth0\x1b[2J")
    monkeypatch.setenv("NCCL_NET_GDR_LEVEL", "LOC")  # which the helper leaves alone for this image
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    assert env(capsys, R70, "--nodes", "2")["set_before"] == {"NCCL_SOCKET_IFNAME": "eth0\x1b[2J"}
    assert main(["env", R70, "--nodes", "2"]) == 0
    out = capsys.readouterr().out
    assert "\nSet in this shell already, which counts more than what follows:\n" in out
    assert "\n  NCCL_SOCKET_IFNAME='eth0\\x1b[2J'\n" in out
    # What the helper of an outer step has set is no user's.
    monkeypatch.setenv("LUMISITE_EXPORTS", ";NCCL_SOCKET_IFNAME=eth0\x1b[2J;")
    assert env(capsys, R70, "--nodes", "2")["set_before"] == {}


@pytest.mark.parametrize(
    ("words", "variable", "code", "exit_code"),
    [
        ((R70, "--nodes", "2"), "FI_MR_CACHE_MONITOR=memhooks", "harmful-value-exported", 1),
        ((R70, "--nodes", "2"), "NCCL_NET_GDR_LEVEL=sys", "harmful-value-exported", 1),
        ((R70, "--nodes", "1"), "NCCL_NET_GDR_LEVEL=SYS", None, 0),
        (("--nodes", "2"), "NCCL_NET_GDR_LEVEL=SYS", "value-may-harm", 4),
        ((R70, "--nodes", "2"), "NCCL_PROTO=Simple", None, 0),
    ],
)
def test_a_harmful_value_of_this_shell_comes_first(
    words: tuple[str, ...],
    variable: str,
    code: str | None,
    exit_code: int,
    capsys: Output,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    name, _, value = variable.partition("=")
    monkeypatch.setenv(name, value)
    found = env(capsys, *words, code=exit_code)["harmful"]
    assert [(one["code"], one["subject"]) for one in found] == ([(code, name)] if code else [])
    assert all(one["message"].startswith(f"set to {value} in this shell") for one in found)
    assert main(["env", *words]) == exit_code
    assert capsys.readouterr().out.startswith(f"{name}: set to {value}") == bool(code)
    # What the helper of an outer step has set is no user's.
    monkeypatch.setenv("LUMISITE_EXPORTS", f";{variable};")
    assert main(["env", *words]) == 0


def test_without_an_image_it_is_what_no_wrapper_corrects(capsys: Output) -> None:
    found = env(capsys, "--nodes", "2")
    assert found["image"] is None
    net = found["variables"]["NCCL_NET"]
    assert (net["value"], net["by"], net["why"].partition(":")[0]) == (None, "prolog", "the image decides")
    assert not any(one["by"] == "wrapper" for one in found["variables"].values())


@pytest.mark.parametrize(
    ("module", "names"),
    [("none", []), ("singularity-CPEbits/25.09", ["/opt/cray", "/usr/lib64/libcxi.so.1"])],
)
def test_another_module_or_none(module: str, names: list[str], capsys: Output) -> None:
    found = env(capsys, "--module", module)
    assert [bind["target"] for bind in found["binds"] if bind["by"] == "module"] == names
    assert ("FI_CXI_RX_MATCH_MODE" in found["variables"]) == (module == "none")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--partition", "standart-g"], "did you mean standard-g?) [name-unknown]"),
        (["--module", "singularity-AI"], "[name-unknown]"),
        (["--module", "singularity-AI-bindings/1"], "[name-unknown]"),
        (["--nodes", "0"], "--nodes'"),
        (["--nodes", "²"], "--nodes'"),
        (["--tasks-per-node", "9999"], "9999 is not in the range"),
    ],
)
def test_a_wrong_question_is_one_clear_error(words: list[str], message: str, capsys: Output) -> None:
    assert main(["env", *words]) in (2, 3)
    printed = capsys.readouterr()
    assert message in printed.err
    assert ("Traceback" in printed.err, printed.out) == (False, "")


# ---- the image

SCRIPT = "/.singularity.d/env/90-environment.sh"
R64: Files = {"/opt/rocm-6.4.4/.info/version": b"6.4.4-1\n", "/opt/rocm-6.4.4/lib/librccl.so.1": elf("librccl.so.1")}


def codes(found: dict[str, Any]) -> list[str]:
    return [one["code"] for one in found["harmful"]]


def test_what_the_image_is_taken_for_says_where_that_is_known_from(capsys: Output) -> None:
    unknown = {"family": None, "release": None, "plugin": None, "known_from": "name"}
    assert env(capsys, R70)["image"] == {**unknown, "family": "laif-rocm70"}
    assert env(capsys, "docker://rocm/pytorch:latest")["image"] == unknown
    assert main(["env", "docker://rocm/pytorch:latest"]) == 0
    out = capsys.readouterr().out
    assert "image: family not known, ROCm not known, plugin with libfabric not known (by its name" in out


def test_an_image_that_holds_something_else_than_its_name_says_is_told_unless_a_lock_knows_it(
    tmp_path: Path, capsys: Output
) -> None:
    for name, release in (("lumi-rocm-rocm-6.1.3.sif", "7.0.2"), ("mine.sif", "6.1.3")):
        write_tree(tmp_path / name, {f"/opt/rocm-{release}/.info/version": f"{release}-56\n".encode()})
        assert main(["env", name]) == 0
        assert f"holds ROCm {release}, taken for unknown (" in capsys.readouterr().err
    locked = LockedImage(f"{tmp_path}/mine.sif", family="cotainr", versions={"rocm": "6.1.3"})
    Path("lock").write_text(format_lock(Lock("lumi", (), {f"{tmp_path}/mine.sif": locked})))
    assert main(["env", "mine.sif", "--site", lumi_with_lock()]) == 0
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("name", "files", "unfit"),
    [
        ("mine", {"/usr/local/cuda-12.4/bin/nvcc": b""}, "built for GPUs of NVIDIA, but the job gets GPUs of AMD"),
        ("gone-cuda12.sif", None, "built for GPUs of NVIDIA, but the job gets GPUs of AMD"),
        ("docker://vllm/vllm-rocm5.7", None, "has ROCm 5.7, but the GPU driver of this system supports >=6.1,<7.1"),
        # What is in it counts, not its name.
        ("lumi-rocm-rocm-6.2.4.sif", {"/opt/rocm-5.7.3/.info/version": b"5.7.3-1\n"}, "has ROCm 5.7.3, but the"),
        ("lumi-rocm-rocm-5.6.1.sif", R64, None),
        ("cuda-like.sif", R64, None),
        ("lumi-multitorch-full-u24r72f21m50t211-20260929_104918.sif", None, None),
        ("mine.sif", {"/usr/bin/true": b""}, None),
    ],
)
def test_an_image_that_cannot_use_the_gpus_is_a_fault(
    name: str, files: Files | None, unfit: str | None, tmp_path: Path, capsys: Output
) -> None:
    if files is not None:
        write_tree(tmp_path / name, {**files, "/.singularity.d/x": b""})
    found = env(capsys, name, code=0 if unfit is None else 1)
    assert codes(found) == ([] if unfit is None else ["image-unfit"])
    assert all(one["message"].startswith(str(unfit)) for one in found["harmful"])
    assert codes(env(capsys, name, "--partition", "standard")) == [], "no GPUs there"


def test_an_image_whose_libfabric_is_gone_is_a_fault_for_several_nodes(tmp_path: Path, capsys: Output) -> None:
    files = {**R64, "/opt/aws-ofi-rccl/librccl-net.so": elf("librccl-net.so")}
    script = b"L=/opt/cray/libfabric; export LD_LIBRARY_PATH=$L/1.20.1/lib64\n"
    image = str(write_tree(tmp_path / "lumi-rocm-rocm-6.4.4.sif", {**files, SCRIPT: script}))
    (one,) = env(capsys, image, "--nodes", "2", code=1)["harmful"]
    assert one["code"] == "image-without-network"
    assert "looks for libfabric in /opt/cray/libfabric/1.20.1/lib64, which has none" in one["message"]
    assert codes(env(capsys, image)) == ["image-without-network"], "one node does not need it"
    assert codes(env(capsys, image, "--nodes", "2", "--partition", "standard")) == []


def test_what_the_image_sets_counts_as_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Output) -> None:
    """By its own environment whatever the host has, or only where the host has nothing."""
    script = (
        "export NCCL_SOCKET_IFNAME=hsn1\n"
        'export FI_CXI_DEFAULT_CQ_SIZE="${FI_CXI_DEFAULT_CQ_SIZE:-"262144"}" NCCL_BUFFSIZE="${NCCL_BUFFSIZE:-"8388608"}"\n'
    )
    image = str(write_tree(tmp_path / "mine.sif", {**R64, SCRIPT: script.encode()}))

    def by(*words: str) -> list[tuple[str, str | None]]:
        variables = env(capsys, image, "--nodes", "2", *words)["variables"]
        names = ("NCCL_SOCKET_IFNAME", "FI_CXI_DEFAULT_CQ_SIZE", "NCCL_BUFFSIZE")
        return [(variables[name]["by"], variables[name]["value"]) for name in names]

    assert by() == [("image", "hsn1"), ("prolog", "131072"), ("image", "8388608")]
    # Once the wrapper knows the image, its own default stays.
    assert main(["images", image, "--lock", str(tmp_path / "lock")]) == 0
    capsys.readouterr()
    assert by("--site", lumi_with_lock()) == [("image", "hsn1"), ("image", "262144"), ("image", "8388608")]
    monkeypatch.setenv("NCCL_BUFFSIZE", "1")
    assert by()[2][0] != "image", "the user's own"
    assert main(["why", "NCCL_SOCKET_IFNAME", "--image", image]) == 0
    assert "the image itself sets NCCL_SOCKET_IFNAME=hsn1" in capsys.readouterr().out


def test_a_harmful_value_of_the_image_is_told(tmp_path: Path, capsys: Output) -> None:
    """An environment of cotainr, with a wheel for ROCm 7.0, on a base that sets the level of PHB by its number."""
    own = {"torch/lib/librccl.so.1": elf("librccl.so.1")}
    conda = "/opt/cotainr/conda/envs/mine/lib/python3.12/site-packages"
    wheel = torch(conda, own, rpath="$ORIGIN", built="2.10.0+rocm7.0")
    level = {SCRIPT: b"export NCCL_NET_GDR_LEVEL=3\n"}
    base = {
        "/opt/rocm-6.2.4/.info/version": b"6.2.4-1\n",
        "/opt/rocm-6.2.4/lib/librccl.so.1.0.60204": own["torch/lib/librccl.so.1"],
    }
    both, alone, older = (
        str(write_tree(tmp_path / f"{name}.sif", {**level, **files}))
        for name, files in (("both", {**wheel, **base}), ("alone", wheel), ("older", base))
    )
    (one,) = env(capsys, both, "--nodes", "2", code=4)["harmful"]
    assert (one["code"], one["subject"]) == ("value-may-harm", "NCCL_NET_GDR_LEVEL")
    assert one["message"].startswith("the image itself sets it to 3; where rocm is >=7.0,<7.1: ")
    assert codes(env(capsys, alone, "--nodes", "2", code=1)) == ["harmful-value-exported"]
    assert codes(env(capsys, alone)) == [], "one node"
    assert codes(env(capsys, older, "--nodes", "2")) == []


def test_libraries_under_another_path_are_named_as_the_container_has_them(capsys: Output) -> None:
    """And a place for private directories that no script takes is passed over."""
    cray, plugin = "  - path: /opt/cray\n", "    plugin: from-host\n"
    text = site_text(
        (cray, f"{cray}    target: /host/opt/cray\n"), (plugin, f"{plugin}    library_path: [libfabric]\n")
    )
    Path("site.yaml").write_text(text)
    found = env(capsys, "/appl/images/torch.sif", "--site", "./site.yaml")
    path = found["variables"]["SINGULARITYENV_LD_LIBRARY_PATH"]["value"]
    assert path == "/host/opt/cray/libfabric/1.22.0/lib64"
    assert {"source": "/opt/cray", "target": "/host/opt/cray"}.items() <= found["binds"][5].items()
    text, place = load_site("lumi").data.decode(), "{path: /tmp, kind: node-local, writable: yes, in_memory: yes,"
    assert place in text
    Path("site.yaml").write_text(text.replace(place, "{path: '/t m', kind: node-local, writable: yes,"))
    assert env(capsys, "--site", "./site.yaml")["variables"]["MIOPEN_USER_DB_PATH"]["value"] is None
