"""`lumisite env`: what a rank finds; test_rank.py compares that with the rendered scripts."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from lumisite.cli import main
from lumisite.images.lock import Lock, LockedImage, format_lock
from lumisite.site.load import load_site
from tests.support.sites import lumi_with_lock

R70 = "/appl/local/laifs/containers/lumi-multitorch-full-u24r70f21m50t210-20260807_115122.sif"
Output = pytest.CaptureFixture[str]


def env(capsys: Output, *words: str) -> dict[str, Any]:
    assert main(["env", *words, "--json"]) == 0
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
        ("NCCL_NET_GDR_LEVEL", "wrapper", None),
        ("FI_MR_CACHE_MONITOR", "wrapper", "userfaultfd"),
        ("FI_CXI_DEFAULT_CQ_SIZE", "prolog", "131072"),
        ("OMP_NUM_THREADS", "prolog", None),
        ("TRITON_CACHE_DIR", "prolog", f"/tmp/lumisite-{os.getuid()}/triton"),
    ):
        one = variables[name]
        assert (one["by"], one["value"]) == (by, value)
        index = int(one["entry"].removeprefix("settings[").removesuffix("]"))
        assert settings[index].name == name
        assert settings[index].why in one["why"]
    assert variables["SLURM_TASK_PROLOG"]["by"] == "module"
    assert variables["PATH"]["value"].split(":")[0] == "/appl/local/lumisite/current/spank/bin"


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
    assert "\x1b" not in out
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
    assert main(["env", *words, "--json"]) == exit_code
    found = json.loads(capsys.readouterr().out)["harmful"]
    assert [(one["code"], one["subject"]) for one in found] == ([(code, name)] if code else [])
    assert all(one["message"].startswith(f"set to {value} in this shell") for one in found)
    assert main(["env", *words]) == exit_code
    first = capsys.readouterr().out.splitlines()[0]
    assert first.startswith(f"{name}: set to {value}") == bool(code)
    # What the helper of an outer step has set is no user's.
    monkeypatch.setenv("LUMISITE_EXPORTS", f";{variable};")
    assert main(["env", *words]) == 0


def test_what_the_image_is_taken_for_says_where_that_is_known_from(capsys: Output) -> None:
    assert env(capsys, R70)["image"] == {
        "family": "laif-rocm70",
        "release": None,
        "plugin": None,
        "known_from": "name",
    }
    nobody = env(capsys, "docker://rocm/pytorch:latest")["image"]
    assert nobody == {"family": None, "release": None, "plugin": None, "known_from": "name"}
    assert env(capsys)["image"] is None
    assert main(["env", "docker://rocm/pytorch:latest"]) == 0
    assert (
        "image: family not known, ROCm not known, plugin with libfabric not known (by its name"
        in capsys.readouterr().out
    )


def test_binds_and_masks_are_those_of_the_scripts(capsys: Output) -> None:
    found = env(capsys, R70, "--nodes", "2")
    by = {bind["target"]: bind["by"] for bind in found["binds"]}
    assert by["/scratch"] == "module"
    assert by["/var/spool/slurmd"] == "prolog"
    assert "/opt/cray" not in by
    assert [one["mask"] for one in found["cpus"]][:2] == ["0xfe000000000000", "0xfe00000000000000"]
    assert len(found["cpus"]) == 8
    unbound = env(capsys, "--tasks-per-node", "7")
    assert {one["mask"] for one in unbound["cpus"]} == {None}
    assert "no masks for 7 tasks" in unbound["cpus"][0]["why"]


def test_without_an_image_it_is_what_no_wrapper_corrects(capsys: Output) -> None:
    found = env(capsys, "--nodes", "2")["variables"]
    assert found["NCCL_NET"]["value"] is None
    assert found["NCCL_NET"]["by"] == "prolog"
    assert found["NCCL_NET"]["why"].startswith("the image decides: ")
    assert not any(one["by"] == "wrapper" for one in found.values())


@pytest.mark.parametrize(
    ("module", "names"),
    [
        ("none", []),
        ("singularity-CPEbits", ["/opt/cray", "/usr/lib64/libcxi.so.1"]),
        ("singularity-CPEbits/25.09", ["/opt/cray", "/usr/lib64/libcxi.so.1"]),
    ],
)
def test_another_module_or_none(module: str, names: list[str], capsys: Output) -> None:
    found = env(capsys, "--module", module)
    assert [bind["target"] for bind in found["binds"] if bind["by"] == "module"] == names
    assert ("FI_CXI_RX_MATCH_MODE" in found["variables"]) == (module == "none")


def test_a_version_of_the_module_changes_nothing_that_the_image_decides(capsys: Output) -> None:
    wanted = env(capsys, R70, "--nodes", "2")["variables"]
    for version in ("25.03-rocm6.1", "25.09-rocm7.2"):
        found = env(capsys, R70, "--nodes", "2", "--module", f"singularity-AI-bindings/{version}")["variables"]
        assert {name: one["value"] for name, one in found.items() if name.startswith(("NCCL", "FI"))} == {
            name: one["value"] for name, one in wanted.items() if name.startswith(("NCCL", "FI"))
        }


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
def test_a_wrong_question_is_one_clear_error(
    words: list[str], message: str, capsys: Output, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["env", *words]) in (2, 3)
    said = capsys.readouterr()
    assert message in said.err
    assert "Traceback" not in said.err
    assert said.out == ""


def test_the_text_names_the_step_and_says_what_is_not_here(capsys: Output) -> None:
    assert main(["env", "gone.sif", "--partition", "standard", "--all"]) == 0
    said = capsys.readouterr()
    assert said.out.startswith("gone.sif on 1 node of standard, 1 on each, with singularity-userfilesystems/2026-01 ")
    assert "\n  prolog   PYTHONNOUSERSITE=1\n      settings[" in said.out
    assert "(by its name, so " in said.out


def test_an_image_that_holds_something_else_than_its_name_says_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Output
) -> None:
    monkeypatch.chdir(tmp_path)
    image = Path("lumi-rocm-rocm-6.1.3.sif")
    (image / "opt/rocm-7.0.2/.info").mkdir(parents=True)
    (image / "opt/rocm-7.0.2/.info/version").write_text("7.0.2-56\n")
    assert main(["env", str(image)]) == 0
    assert "holds ROCm 7.0.2, taken for unknown (" in capsys.readouterr().err


def test_an_image_that_a_lock_knows_is_not_compared_with_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Output
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.sif/opt/rocm-6.1.3").mkdir(parents=True)
    assert main(["env", "mine.sif"]) == 0
    assert "holds ROCm 6.1.3, taken for unknown" in capsys.readouterr().err
    locked = LockedImage(f"{tmp_path}/mine.sif", family="cotainr", versions={"rocm": "6.1.3"})
    Path("lock").write_text(format_lock(Lock("lumi", (), {f"{tmp_path}/mine.sif": locked})))
    assert main(["env", "mine.sif", "--site", lumi_with_lock()]) == 0
    assert capsys.readouterr().err == ""


TMP = "{path: /tmp, kind: node-local, writable: yes, in_memory: yes,"


def test_a_place_for_private_directories_that_no_script_takes_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Output
) -> None:
    monkeypatch.chdir(tmp_path)
    text = load_site("lumi").data.decode()
    assert TMP in text
    Path("site.yaml").write_text(text.replace(TMP, "{path: '/t m', kind: node-local, writable: yes,"))
    assert env(capsys, "--site", "./site.yaml")["variables"]["MIOPEN_USER_DB_PATH"]["value"] is None


def test_one_screen_has_what_is_set_and_all_has_the_reasons(capsys: Output) -> None:
    assert main(["env", R70, "--nodes", "2"]) == 0
    screen = capsys.readouterr().out.splitlines()
    assert len(screen) <= 50
    assert "  wrapper  FI_MR_CACHE_MONITOR=userfaultfd" in screen
    assert "  0  49-55              0xfe000000000000" in screen
    assert main(["env", R70, "--nodes", "2", "--all"]) == 0
    everything = capsys.readouterr().out.splitlines()
    assert "  wrapper  FI_MR_CACHE_MONITOR=userfaultfd" in everything
    (left,) = [line for line in screen if line.startswith("  known to the site and not set: ")]
    begin, end = everything.index("Not set"), everything.index("Binds, by whom")
    assert left.split()[7] == str((end - begin - 2) // 2)
