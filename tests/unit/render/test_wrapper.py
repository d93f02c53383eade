"""The wrapper around the container runtime: what it corrects for which command, and which program it becomes."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.support.prologs import ROOT, lumi_like, render_files, write_script
from tests.support.wrappers import (
    CONDA,
    CPE,
    FILES,
    LAIF,
    LUMI_PYTORCH,
    RUNTIME,
    RUNTIME_THERE,
    TASK,
    USERS,
    Wrapper,
    make,
)

MONITOR = "FI_MR_CACHE_MONITOR"

# ---- what each command gets


@pytest.mark.parametrize(
    "words",
    [
        ["build", "--fakeroot", "--bind", "/mine", "image.sif", "docker://alpine"],
        ["inspect", LAIF],
        ["instance", "list"],
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
    assert wrapper.call(*words, LUMISITE="off").environment["SINGULARITY_BINDPATH"] == wrapper.binds


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (f"/usr,{ROOT}/opt/cray,{ROOT}/libcxi.so.1,/sbin", None),
        ("/sbin,/usr,/sbin", "/sbin"),  # the user has bound it too
        ("/sbin/deep,/my/sbin,/sbin:/elsewhere,/usr2,/sbin", "/sbin/deep,/my/sbin,/sbin:/elsewhere,/usr2"),
    ],
)
def test_a_bind_is_taken_out_once_and_as_a_whole(wrapper: Wrapper, before: str, after: str | None) -> None:
    assert wrapper.call("build", "x", "y", SINGULARITY_BINDPATH=before).environment.get("SINGULARITY_BINDPATH") == after


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


# ---- families


def test_a_known_image_gets_what_it_takes_beside_what_the_prolog_gave(wrapper: Wrapper) -> None:
    call = wrapper.call("exec", LUMI_PYTORCH, "python")
    task = {name: text.replace(ROOT, str(wrapper.folder)) for name, text in TASK.items()}
    assert {name: text for name, text in call.environment.items() if name in TASK} == task
    assert set(call.environment) - set(TASK) <= {MONITOR, "LUMISITE_WRAPPER", "PWD", "OLDPWD", "SHLVL", "_"}
    assert call.environment[MONITOR] == "userfaultfd"
    assert call.stderr == ""
    assert MONITOR not in wrapper.call("exec", LUMI_PYTORCH, "x", LUMISITE_DONE=None).environment, "no prolog ran"


def test_a_family_that_needs_cray_bits_gets_them(wrapper: Wrapper) -> None:
    """The family that stands for images of a ROCm 7.0 stack needs none, so the prolog has bound none."""
    bare = {"SINGULARITY_BINDPATH": "/mine", CPE: None, USERS: None, "LUMISITE_STACK": None}
    there = f"{wrapper.folder}/opt/cray"
    assert there not in wrapper.call("exec", LAIF, "x", **bare).binds
    loaded = {**bare, "LUMISITE_STACK": "25.03-rocm7.0"}
    assert wrapper.call("exec", LUMI_PYTORCH, "x", **loaded).binds == ["/mine"], "it was unloaded"
    loaded[CPE] = ""
    assert wrapper.call("exec", LUMI_PYTORCH, "x", **loaded).binds == ["/mine", there, f"{wrapper.folder}/libcxi.so.1"]
    (wrapper.folder / "libcxi.so.1").unlink()
    assert wrapper.call("exec", LUMI_PYTORCH, "x", **loaded).binds == ["/mine", there]


def test_an_image_is_known_by_its_relative_path_and_one_of_no_family_keeps_everything(wrapper: Wrapper) -> None:
    for image in ("lumi-multitorch-mine.sif", "./sub/lumi-multitorch-mine.sif"):
        call = wrapper.call("exec", image, "x", LUMISITE_VERBOSE="all")
        assert f": without the bind {wrapper.folder}/opt/cray\n" in call.stderr
        assert f"{wrapper.folder}/opt/cray" not in call.binds
    for image in ("mine.sif", "docker://python:3", "instance://x", "library://lumi-multitorch"):
        assert wrapper.call("exec", image, "x").environment["SINGULARITY_BINDPATH"] == wrapper.binds
    for family, known in (("laif-multitorch", True), ("no-family", False)):
        call = wrapper.call("exec", "mine.sif", "x", LUMISITE_FAMILY=family)
        assert (f"{wrapper.folder}/opt/cray" in call.binds) == (not known), "the user may name the family"


def test_the_first_task_of_a_node_speaks_for_it(wrapper: Wrapper) -> None:
    def said(local_id: str, verbose: str = "1") -> list[str]:
        rank = str(8 + int(local_id))
        task = {"SLURM_LOCALID": local_id, "SLURM_PROCID": rank, "LUMISITE_DONE": f"1234567.0.{rank}"}
        return wrapper.call("exec", LAIF, "x", **task, LUMISITE_VERBOSE=verbose).stderr.splitlines()

    first = said("0")
    assert len(first) > 2
    assert all(line.startswith("lumisite: nid005124 rank 8: ") for line in first)
    assert said("3") == []
    assert len(said("3", "all")) == len(first)
    outside = dict.fromkeys(("SLURM_LOCALID", "SLURM_PROCID", "LUMISITE_DONE"))
    call = wrapper.call("exec", LAIF, "x", **outside, LUMISITE_VERBOSE="1")
    assert f"lumisite: {LAIF}: family laif-multitorch\n" in call.stderr


# ---- paths in the container


def test_an_image_that_needs_with_conda_has_its_python_first(wrapper: Wrapper) -> None:
    name, conda = "SINGULARITYENV_PREPEND_PATH", "/opt/miniconda3/envs/pytorch/bin"
    for mine, after in (
        (None, conda),
        ("/mine:/too", f"/mine:/too:{conda}"),
        (f"/mine:{conda}", f"/mine:{conda}"),
    ):
        assert wrapper.call("exec", CONDA, "python", **{name: mine}).environment[name] == after


def test_a_venv_in_a_squashfs_file_comes_by_one_variable(wrapper: Wrapper) -> None:
    venv, beside = wrapper.folder / "my venv.sqsh", wrapper.folder / "mine.sqsh"
    venv.touch()
    beside.touch()
    for image, value, bind, path in (
        (LUMI_PYTORCH, f"{venv}:/venvs/mine", f"{venv}:/venvs/mine:image-src=/", "/venvs/mine/bin"),
        (CONDA, str(venv), f"{venv}:/user-software:image-src=/", "/user-software/bin:/opt/miniconda3/envs/pytorch/bin"),
        (f"{wrapper.folder}/mine.sif", "auto", f"{beside}:/user-software:image-src=/", "/user-software/bin"),
        (f"{wrapper.folder}/other.sif", "auto", "/other", None),
    ):
        call = wrapper.call("exec", image, "python", LUMISITE_VENV=value)
        assert (call.binds[-1], call.environment.get("SINGULARITYENV_PREPEND_PATH")) == (bind, path)


@pytest.mark.parametrize("value", ["/no/such.sqsh", "a,b", "x:y:z", "a\nb", "/dev/null", "", "{}:", "{}:mine", "{}:/"])
def test_a_venv_that_is_none_stops_nothing(wrapper: Wrapper, value: str) -> None:
    venv = wrapper.folder / "venv.sqsh"
    venv.touch()
    call = wrapper.call("exec", LUMI_PYTORCH, "x", LUMISITE_VENV=value.format(venv), SLURM_LOCALID="0")
    assert call.environment["SINGULARITY_BINDPATH"] == wrapper.binds
    assert ("LUMISITE_VENV" in call.stderr) == bool(value)


# ---- the real program


def test_it_becomes_the_real_program_although_it_is_first_on_path(wrapper: Wrapper) -> None:
    assert wrapper.call("version", PATH=f"{wrapper.path.parent}:/usr/bin:/bin").arguments == ["version"]
    write_script(wrapper.runtime, "#!/bin/sh\nexit 37\n")
    assert wrapper.start("exec", LAIF, "true", environment=TASK).returncode == 37


def test_without_the_real_program_in_its_place_it_is_looked_for_on_path(wrapper: Wrapper, tmp_path: Path) -> None:
    other = tmp_path / "elsewhere"
    other.mkdir()
    wrapper.runtime.rename(other / "singularity")
    path = f":{wrapper.path.parent}:/old/releases/x/spank/bin:/nowhere:{other}:/usr/bin:/bin"
    assert wrapper.start("exec", LAIF, "x", environment={**TASK, "PATH": path}).returncode == 0
    assert (other / "arguments").read_bytes() == f"exec\0{LAIF}\0x\0".encode()
    (other / "singularity").unlink()
    for without in (path, ""):
        done = wrapper.start("version", environment={**TASK, "PATH": without})
        assert done.returncode == 127
        assert done.stderr.startswith(b"lumisite: there is no singularity on this node")


def test_a_real_program_that_leads_back_here_does_not_loop(wrapper: Wrapper) -> None:
    command = " ".join(map(str, wrapper.shell))
    write_script(wrapper.runtime, f'#!/bin/sh\nexec {command} {wrapper.path} "$@"\n')
    done = wrapper.start("version", environment={**TASK, "PATH": f"{wrapper.path.parent}:/usr/bin:/bin"})
    assert done.returncode == 127


SECOND = (
    "\nfabric:",
    f"  apptainer: {{executable: {ROOT}/other/apptainer, variant: x, prefix: APPTAINER, source: TYK}}\n\nfabric:",
)


@pytest.mark.parametrize("second", [True, False])
def test_each_wrapper_is_for_the_runtime_of_its_name(shell: str, tmp_path: Path, *, second: bool) -> None:
    """Without one of its name it is for the default runtime, which Apptainer understands."""
    wrapper = make(tmp_path, shell, render_files(lumi_like(RUNTIME_THERE, SECOND), rocm=("6.2",)) if second else FILES)
    own = tmp_path / ("other" if second else "runtime") / "apptainer"
    write_script(own, RUNTIME)
    environment = {"PATH": "/usr/bin:/bin", "SINGULARITY_BINDPATH": "/mine"}
    for name, real, prefix in (
        ("singularity", wrapper.runtime, "SINGULARITY"),
        ("apptainer", own, "APPTAINER" if second else "SINGULARITY"),
    ):
        words = [str(tmp_path / "spank/bin" / name), "exec", "/env/container.sif", "true"]
        subprocess.run([*wrapper.shell, *words], env=environment, check=True)
        pairs = (real.parent / "environment").read_bytes().decode().split("\0")
        found = {pair.partition("=")[0] for pair in pairs if "LD_LIBRARY_PATH" in pair}
        assert found == {f"{prefix}ENV_LD_LIBRARY_PATH"}, name


def test_without_a_path_in_the_description_the_next_runtime_on_path_is_the_real_one(shell: str, tmp_path: Path) -> None:
    wrapper = make(
        tmp_path, shell, render_files(lumi_like(("    executable: /usr/bin/singularity\n", "")), rocm=("6.2",))
    )
    path = f"{tmp_path}/spank/bin:{tmp_path}/runtime:/usr/bin:/bin"
    assert wrapper.call("exec", "/x.sif", "true", PATH=path).arguments[0] == "exec"


# ---- the image among the arguments

PLACES = [
    ["exec", "IMAGE", "python"],
    ["run", "IMAGE"],
    ["shell", "IMAGE"],
    ["shell", "-s", "/bin/zsh", "IMAGE"],
    ["test", "IMAGE"],
    ["instance", "start", "IMAGE", "name"],
    ["instance", "run", "--nv", "IMAGE", "name"],
    ["-d", "exec", "IMAGE", "x"],
    ["--debug", "--config", "exec", "run", "IMAGE"],
    ["-c", "build", "exec", "IMAGE", "x"],
    ["--config=build", "exec", "IMAGE", "x"],
    ["exec", "--bind", "/x.sif:/y", "IMAGE", "x"],
    ["exec", "--bind=/x.sif:/y", "IMAGE", "x"],
    ["exec", "-B", "/a,/b", "--rocm", "-e", "--env", "A=b c", "IMAGE", "x"],
    ["exec", "-B/a", "IMAGE", "x"],
    ["exec", "-B/raw,/e,/scratch", "IMAGE", "x"],
    ["exec", "-eB/e,/raw", "IMAGE", "x"],
    ["exec", "-eB", "/a", "IMAGE", "x"],
    ["exec", "-eB/a", "-cip", "IMAGE", "x"],
    ["exec", "--pwd", "--rocm", "IMAGE", "x"],
    ["exec", "--home", "build", "-H", "pull", "IMAGE", "x"],
    ["exec", "--", "IMAGE", "--writable"],
    ["exec", "IMAGE", "singularity", "build", "--writable", "-w"],
]


@pytest.mark.parametrize("words", PLACES, ids=" ".join)
def test_the_image_is_found_among_the_options(wrapper: Wrapper, words: list[str]) -> None:
    given = [LAIF if word == "IMAGE" else word for word in words]
    call = wrapper.call(*given)
    assert call.arguments == given
    assert call.binds == ["/mine", "/usr", "/sbin", "/other"], "without the Cray bits, which this family does not need"


@pytest.mark.parametrize(
    "words",
    [["exec", "--new-option"], ["exec", "-eZ"], ["--new-option", "exec"], ["exec", "-s"], ["-Z,--x=y", "exec"]],
    ids=" ".join,
)
def test_an_option_that_is_not_known_has_no_value(wrapper: Wrapper, words: list[str]) -> None:
    call = wrapper.call(*words, LAIF, "x")
    assert call.arguments == [*words, LAIF, "x"]
    assert f"{wrapper.folder}/opt/cray" not in call.binds, "which the family of the image does not need"
    # Where it has one, nothing is corrected.
    call = wrapper.call("exec", "--new-option", "value", LAIF, "x")
    assert call.environment["SINGULARITY_BINDPATH"] == wrapper.binds
