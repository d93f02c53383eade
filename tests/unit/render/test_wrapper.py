"""The wrapper around the container runtime: what it corrects for which image, and which program it becomes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.prologs import ROOT, SHELLS, write_script
from tests.support.wrappers import CONDA, CPE, LAIF, LUMI_PYTORCH, TASK, USERS, Wrapper, make

MONITOR = "FI_MR_CACHE_MONITOR"


@pytest.fixture(params=SHELLS)
def wrapper(request: pytest.FixtureRequest, tmp_path: Path) -> Wrapper:
    return make(tmp_path, request.param)


# ---- what each command gets


@pytest.mark.parametrize(
    "words",
    [
        ["build", "image.sif", "image.def"],
        ["build", "--fakeroot", "--bind", "/mine", "image.sif", "docker://alpine"],
        ["pull", "docker://alpine"],
        ["inspect", LAIF],
        ["cache", "list"],
        ["instance", "list"],
        ["version"],
        ["--version"],
        ["exec", "--writable", "sandbox", "python", "-m", "conda"],
        ["exec", "-cw", "sandbox", "x"],
        [],
    ],
    ids=" ".join,
)
def test_what_starts_no_container_runs_without_our_binds_and_with_the_users(wrapper: Wrapper, words: list[str]) -> None:
    call = wrapper.call(*words, APPTAINER_BINDPATH="/sbin,/theirs")
    assert call.arguments == words
    assert call.binds == ["/mine", "/other"]
    assert call.environment["APPTAINER_BINDPATH"] == "/theirs"


def test_a_list_that_was_all_ours_goes_away_for_build(wrapper: Wrapper) -> None:
    call = wrapper.call("build", "x", "y", SINGULARITY_BINDPATH=f"/usr,{ROOT}/opt/cray,{ROOT}/libcxi.so.1,/sbin")
    assert "SINGULARITY_BINDPATH" not in call.environment


def test_a_path_that_the_user_bound_too_stays_for_build(wrapper: Wrapper) -> None:
    assert wrapper.call("build", "x", "y", SINGULARITY_BINDPATH="/sbin,/usr,/sbin").binds == ["/sbin"]


def test_paths_that_only_begin_or_end_alike_stay(wrapper: Wrapper) -> None:
    mine = "/sbin/deep,/my/sbin,/sbin:/elsewhere,/usr2"
    assert wrapper.call("build", "x", "y", SINGULARITY_BINDPATH=f"{mine},/sbin").binds == mine.split(",")


def test_what_is_not_there_is_taken_out_so_that_the_container_starts(wrapper: Wrapper) -> None:
    """A link in `/` that leads nowhere, which the prolog has bound: it does not touch shared file systems."""
    lost = wrapper.folder / "opt/cray"
    lost.rmdir()
    lost.symlink_to("nowhere")
    call = wrapper.call("exec", "image.sif", "x", SLURM_LOCALID="0")
    assert call.binds == ["/mine", "/usr", f"{wrapper.folder}/libcxi.so.1", "/sbin", "/other"]
    assert call.stderr == f"lumisite: {lost} not found on nid005124: the container starts without it\n"
    assert wrapper.call("exec", "image.sif", "x").stderr == ""
    # What the user has in the list is the user's.
    mine = wrapper.call("exec", "image.sif", "x", SINGULARITY_BINDPATH="/gone:/x,/sbin")
    assert mine.binds[:2] == ["/gone:/x", "/sbin"]


def test_off_changes_nothing(wrapper: Wrapper) -> None:
    call = wrapper.call("build", "x", "y", LUMISITE="off")
    assert call.environment["SINGULARITY_BINDPATH"] == wrapper.binds


# ---- families


def test_a_known_image_gets_what_it_takes_beside_what_the_prolog_gave(wrapper: Wrapper) -> None:
    call = wrapper.call("exec", LUMI_PYTORCH, "python")
    task = {name: text.replace(ROOT, str(wrapper.folder)) for name, text in TASK.items()}
    assert {name: text for name, text in call.environment.items() if name in TASK} == task
    assert set(call.environment) - set(TASK) <= {MONITOR, "LUMISITE_WRAPPER", "PWD", "OLDPWD", "SHLVL", "_"}
    assert call.environment[MONITOR] == "userfaultfd"
    assert call.stderr == ""


def test_a_family_that_needs_no_cray_bits_gets_none(wrapper: Wrapper) -> None:
    call = wrapper.call("exec", LAIF, "python")
    assert call.binds == ["/mine", "/usr", "/sbin", "/other"]


def test_a_family_that_needs_cray_bits_gets_them(wrapper: Wrapper) -> None:
    """The family that stands for images of a ROCm 7.0 stack needs none, so the prolog has bound none."""
    bare = {"SINGULARITY_BINDPATH": "/mine", CPE: None, USERS: None, "LUMISITE_STACK": None}
    there = f"{wrapper.folder}/opt/cray"
    assert there not in wrapper.call("exec", LAIF, "x", **bare).binds
    call = wrapper.call("exec", LUMI_PYTORCH, "x", **{**bare, "LUMISITE_STACK": "25.03-rocm7.0", CPE: ""})
    assert call.binds == ["/mine", there, f"{wrapper.folder}/libcxi.so.1"]
    unloaded = wrapper.call("exec", LUMI_PYTORCH, "x", **{**bare, "LUMISITE_STACK": "25.03-rocm7.0"})
    assert unloaded.binds == ["/mine"]
    (wrapper.folder / "libcxi.so.1").unlink()
    call = wrapper.call("exec", LUMI_PYTORCH, "x", **{**bare, "LUMISITE_STACK": "25.03-rocm7.0", CPE: ""})
    assert call.binds == ["/mine", there]


def test_a_value_of_the_users_stays_whatever_the_family(wrapper: Wrapper) -> None:
    assert wrapper.call("exec", LAIF, "x", **{MONITOR: "memhooks"}).environment[MONITOR] == "memhooks"


def test_settings_of_a_family_stay_out_where_no_prolog_ran(wrapper: Wrapper) -> None:
    bare = {"LUMISITE_DONE": None, "AITER_JIT_DIR": None, "LUMISITE_EXPORTS": None}
    assert MONITOR not in wrapper.call("exec", LAIF, "x", **bare).environment


def test_an_image_is_known_by_its_relative_path_too(wrapper: Wrapper) -> None:
    assert f"{wrapper.folder}/opt/cray" not in wrapper.call("exec", "lumi-multitorch-mine.sif", "x").binds
    assert f"{wrapper.folder}/opt/cray" not in wrapper.call("exec", "./sub/lumi-multitorch-mine.sif", "x").binds


def test_an_image_of_no_known_family_keeps_everything(wrapper: Wrapper) -> None:
    for image in ("mine.sif", "docker://python:3", "instance://x", "library://lumi-multitorch"):
        assert wrapper.call("exec", image, "x").environment["SINGULARITY_BINDPATH"] == wrapper.binds


def test_the_user_may_name_the_family(wrapper: Wrapper) -> None:
    assert (
        f"{wrapper.folder}/opt/cray"
        not in wrapper.call("exec", "mine.sif", "x", LUMISITE_FAMILY="laif-multitorch").binds
    )
    assert f"{wrapper.folder}/opt/cray" in wrapper.call("exec", "mine.sif", "x", LUMISITE_FAMILY="no-family").binds


def test_verbose_says_on_stderr_what_it_corrects(wrapper: Wrapper) -> None:
    said = wrapper.call("exec", LAIF, "x", LUMISITE_VERBOSE="all").stderr
    assert f": {LAIF}: family laif-multitorch\n" in said
    assert f": without the bind {wrapper.folder}/opt/cray\n" in said


# ---- activation, venv, container wrapper


def test_an_image_that_needs_with_conda_has_its_python_first(wrapper: Wrapper) -> None:
    environment = wrapper.call("exec", CONDA, "python").environment
    assert environment["SINGULARITYENV_PREPEND_PATH"] == "/opt/miniconda3/envs/pytorch/bin"
    mine = wrapper.call("exec", CONDA, "python", SINGULARITYENV_PREPEND_PATH="/mine:/too").environment
    assert mine["SINGULARITYENV_PREPEND_PATH"] == "/mine:/too:/opt/miniconda3/envs/pytorch/bin"
    again = wrapper.call("exec", CONDA, "x", SINGULARITYENV_PREPEND_PATH=mine["SINGULARITYENV_PREPEND_PATH"])
    assert again.environment["SINGULARITYENV_PREPEND_PATH"] == mine["SINGULARITYENV_PREPEND_PATH"]


def test_a_venv_in_a_squashfs_file_comes_by_one_variable(wrapper: Wrapper) -> None:
    venv = wrapper.folder / "my venv.sqsh"
    venv.touch()
    call = wrapper.call("exec", LUMI_PYTORCH, "python", LUMISITE_VENV=f"{venv}:/venvs/mine")
    assert call.binds[-1] == f"{venv}:/venvs/mine:image-src=/"
    assert call.environment["SINGULARITYENV_PREPEND_PATH"] == "/venvs/mine/bin"
    plain = wrapper.call("exec", CONDA, "python", LUMISITE_VENV=str(venv))
    assert plain.binds[-1] == f"{venv}:/user-software:image-src=/"
    assert plain.environment["SINGULARITYENV_PREPEND_PATH"] == "/user-software/bin:/opt/miniconda3/envs/pytorch/bin"


def test_auto_takes_the_venv_beside_the_image(wrapper: Wrapper) -> None:
    (wrapper.folder / "mine.sqsh").touch()
    call = wrapper.call("exec", f"{wrapper.folder}/mine.sif", "x", LUMISITE_VENV="auto")
    assert call.binds[-1] == f"{wrapper.folder}/mine.sqsh:/user-software:image-src=/"
    assert wrapper.call("exec", f"{wrapper.folder}/other.sif", "x", LUMISITE_VENV="auto").binds[-1] == "/other"


@pytest.mark.parametrize("value", ["/no/such.sqsh", "a,b", "x:y:z", "a\nb", "/dev/null", ""])
def test_a_venv_that_is_none_stops_nothing(wrapper: Wrapper, value: str) -> None:
    call = wrapper.call("exec", LUMI_PYTORCH, "x", LUMISITE_VENV=value)
    assert call.environment["SINGULARITY_BINDPATH"] == wrapper.binds
    assert ("LUMISITE_VENV" in call.stderr) == bool(value)


def test_a_container_wrapper_environment_finds_libfabric(wrapper: Wrapper) -> None:
    mine = wrapper.call("exec", "/env/container.sif", "python", SINGULARITYENV_LD_LIBRARY_PATH="/env/lib")
    assert mine.environment["SINGULARITYENV_LD_LIBRARY_PATH"] == "/env/lib:/opt/cray/libfabric/1.22.0/lib64"


# ---- never itself again


def test_it_becomes_the_real_program_although_it_is_first_on_path(wrapper: Wrapper) -> None:
    assert wrapper.call("version", PATH=f"{wrapper.path.parent}:/usr/bin:/bin").arguments == ["version"]


def test_without_the_real_program_in_its_place_it_is_looked_for_on_path(wrapper: Wrapper, tmp_path: Path) -> None:
    other = tmp_path / "elsewhere"
    other.mkdir()
    wrapper.runtime.rename(other / "singularity")
    path = f":{wrapper.path.parent}:/old/releases/x/spank/bin:/nowhere:{other}:/usr/bin:/bin"
    done = wrapper.start("exec", LAIF, "x", environment={**TASK, "PATH": path})
    assert done.returncode == 0
    assert (other / "arguments").read_bytes() == f"exec\0{LAIF}\0x\0".encode()


def test_without_any_real_program_it_says_so(wrapper: Wrapper) -> None:
    wrapper.runtime.unlink()
    done = wrapper.start("version", environment={**TASK, "PATH": f"{wrapper.path.parent}:{wrapper.runtime.parent}"})
    assert done.returncode == 127
    assert done.stderr.startswith(b"lumisite: there is no singularity on this node")


@pytest.mark.parametrize("shell", SHELLS)
def test_a_real_program_that_leads_back_here_does_not_loop(shell: str, tmp_path: Path) -> None:
    wrapper = make(tmp_path, shell)
    command = " ".join(map(str, wrapper.shell))
    write_script(wrapper.runtime, f'#!/bin/sh\nexec {command} {wrapper.path} "$@"\n')
    done = wrapper.start("version", environment={**TASK, "PATH": f"{wrapper.path.parent}:/usr/bin:/bin"})
    assert done.returncode == 127
