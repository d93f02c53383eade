"""The wrapper around the container runtime, run for real under each shell: what it corrects, and what it never touches."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lumisite.release import runtimes
from tests.unit.prologs import (
    ROOT,
    SHELLS,
    STEP,
    lay_out,
    lumi_like,
    render_files,
    shell_command,
    write_script,
)

#: Stands for the real runtime: writes down the arguments and the environment that it was given.
RUNTIME = f"""#!{sys.executable} -SEs
import os, sys
here = os.path.dirname(os.path.abspath(sys.argv[0]))
open(here + "/arguments", "wb").write(b"".join(os.fsencode(word) + b"\\0" for word in sys.argv[1:]))
open(here + "/environment", "wb").write(open("/proc/self/environ", "rb").read())
"""

CPE = "LUMISITE_BINDS_SINGULARITY_CPEBITS"
USERS = "LUMISITE_BINDS_SINGULARITY_USERFILESYSTEMS"

#: What a task of the default family has after the module and the prolog.
TASK = {
    **STEP,
    "LUMISITE_STACK": "25.03-rocm6.2",
    "LUMISITE_DONE": "1234567.0.3",
    "LUMISITE_EXPORTS": ";NCCL_NET=AWS Libfabric;AITER_JIT_DIR=/private/aiter;",
    "LUMISITE_PRIVATE": "/private",
    "NCCL_NET": "AWS Libfabric",
    "AITER_JIT_DIR": "/private/aiter",
    "SINGULARITY_BINDPATH": f"/mine,/usr,{ROOT}/opt/cray,{ROOT}/libcxi.so.1,/spool,/other",
    CPE: f"{ROOT}/opt/cray,{ROOT}/libcxi.so.1",
    USERS: "/usr",
    "LUMISITE_BINDS_TASK": "/spool",
}

LUMI_PYTORCH = "/appl/local/containers/sif-images/lumi-pytorch-rocm-6.2.4-python-3.12-pytorch-v2.7.1.sif"
CONDA = "/scratch/me/lumi-pytorch-rocm-6.1.3-python-3.12-pytorch-v2.4.1.sif"
LAIF = "/appl/local/laifs/containers/lumi-multitorch-latest.sif"


@dataclass(frozen=True)
class Call:
    """What the real runtime was given."""

    arguments: list[str]
    environment: dict[str, str]
    stderr: str

    @property
    def binds(self) -> list[str]:
        return self.environment["SINGULARITY_BINDPATH"].split(",")


@dataclass(frozen=True)
class Wrapper:
    """The wrapper, its shell, and the place of the real runtime."""

    shell: tuple[str, ...]
    folder: Path

    @property
    def path(self) -> Path:
        return self.folder / "spank/bin/singularity"

    @property
    def runtime(self) -> Path:
        return self.folder / "runtime/singularity"

    def start(self, *arguments: str, environment: dict[str, str]) -> subprocess.CompletedProcess[bytes]:
        return subprocess.run(
            [*self.shell, str(self.path), *arguments], env=environment, capture_output=True, timeout=20, check=False
        )

    def call(self, *arguments: str, **changes: str | None) -> Call:
        merged: dict[str, str | None] = {**TASK, **changes}
        given = {name: text.replace(ROOT, str(self.folder)) for name, text in merged.items() if text is not None}
        done = self.start(*arguments, environment=given)
        assert done.returncode == 0, done.stderr
        assert done.stdout == b""
        return self.seen(os.fsdecode(done.stderr))

    @property
    def binds(self) -> str:
        """The list of binds of a task, as it is before the wrapper."""
        return TASK["SINGULARITY_BINDPATH"].replace(ROOT, str(self.folder))

    def seen(self, stderr: str = "") -> Call:
        words = os.fsdecode((self.runtime.parent / "arguments").read_bytes()).split("\0")[:-1]
        pairs = os.fsdecode((self.runtime.parent / "environment").read_bytes()).split("\0")[:-1]
        environment = dict(pair.split("=", 1) for pair in pairs)
        return Call(words, environment, stderr)


FILES = render_files(
    lumi_like(
        ("executable: /usr/bin/singularity", f"executable: {ROOT}/runtime/singularity"),
    ),
    rocm=("6.2", "7.0"),
)


def make(folder: Path, shell: str) -> Wrapper:
    lay_out(folder, FILES)
    write_script(folder / "runtime/singularity", RUNTIME)
    write_script(folder / "runtime/apptainer", RUNTIME)
    return Wrapper(tuple(shell_command(shell, folder)), folder)


@pytest.fixture(params=SHELLS)
def wrapper(request: pytest.FixtureRequest, tmp_path: Path) -> Wrapper:
    return make(tmp_path, request.param)


@pytest.fixture(scope="module", params=SHELLS)
def shared(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Wrapper:
    return make(tmp_path_factory.mktemp("wrapper"), request.param)


# ---- arguments


ODD = [
    "",
    " ",
    "a b",
    "new\nline\n",
    "'",
    '"',
    "\\",
    "$(reboot)",
    "`id`",
    "*",
    "--",
    "-",
    "ü\udcff",
    "\n",
    "!",
    "[",
    "=",
]


def test_arguments_reach_the_runtime_untouched(wrapper: Wrapper) -> None:
    words = ["exec", "--bind", "/a b:/c", LUMI_PYTORCH, "python", *ODD]
    assert wrapper.call(*words).arguments == words


@settings(max_examples=60, deadline=None)
@given(
    words=st.lists(
        st.text(st.characters(exclude_characters="\0"), max_size=12)
        | st.sampled_from(
            [
                *ODD,
                *runtimes.ACTIONS,
                "instance",
                "start",
                "build",
                "-B",
                "-eB",
                "--bind",
                "--nv",
                "--writable",
                LAIF,
                CONDA,
            ]
        ),
        max_size=8,
    )
)
def test_any_arguments_reach_the_runtime_untouched(shared: Wrapper, words: list[str]) -> None:
    plain = [word.encode("utf-8", "surrogatepass").decode("utf-8", "surrogateescape") for word in words]
    assert shared.call(*plain).arguments == plain


def test_no_argument_at_all(wrapper: Wrapper) -> None:
    assert wrapper.call().arguments == []


def test_its_exit_status_is_that_of_the_runtime(wrapper: Wrapper) -> None:
    write_script(wrapper.runtime, "#!/bin/sh\nexit 37\n")
    assert wrapper.start("exec", LAIF, "true", environment=TASK).returncode == 37


# ---- where the image is


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
    assert call.binds == [
        "/mine",
        "/usr",
        "/spool",
        "/other",
    ]  # the Cray bits are gone, which this family does not need


@pytest.mark.parametrize(
    "words",
    [
        ["exec", "--new-option", LAIF, "x"],
        ["exec", "-Z", LAIF, "x"],
        ["exec", "-eZ", LAIF, "x"],
        ["--new-option", "exec", LAIF],
        ["exec", "-s", LAIF, "x"],
    ],
    ids=" ".join,
)
def test_where_an_option_is_not_known_nothing_is_corrected(wrapper: Wrapper, words: list[str]) -> None:
    call = wrapper.call(*words)
    assert call.arguments == words
    assert call.environment["SINGULARITY_BINDPATH"] == wrapper.binds


def test_the_options_of_the_runtimes_are_listed_once() -> None:
    assert not set(runtimes.ACTION_VALUED) & set(runtimes.ACTION_FLAGS)
    assert not set(runtimes.ACTION_VALUED_LETTERS) & set(runtimes.ACTION_FLAG_LETTERS)
    assert len(set(runtimes.ACTION_VALUED)) == len(runtimes.ACTION_VALUED)
    assert len(set(runtimes.ACTION_FLAGS)) == len(runtimes.ACTION_FLAGS)


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
    call = wrapper.call(*words, APPTAINER_BINDPATH="/spool,/theirs")
    assert call.arguments == words
    assert call.binds == ["/mine", "/other"]
    assert call.environment["APPTAINER_BINDPATH"] == "/theirs"


def test_a_list_that_was_all_ours_goes_away_for_build(wrapper: Wrapper) -> None:
    call = wrapper.call("build", "x", "y", SINGULARITY_BINDPATH=f"/usr,{ROOT}/opt/cray,{ROOT}/libcxi.so.1,/spool")
    assert "SINGULARITY_BINDPATH" not in call.environment


def test_a_path_that_the_user_bound_too_stays_for_build(wrapper: Wrapper) -> None:
    assert wrapper.call("build", "x", "y", SINGULARITY_BINDPATH="/spool,/usr,/spool").binds == ["/spool"]


def test_paths_that_only_begin_or_end_alike_stay(wrapper: Wrapper) -> None:
    mine = "/spool/deep,/my/spool,/spool:/elsewhere,/usr2"
    assert wrapper.call("build", "x", "y", SINGULARITY_BINDPATH=f"{mine},/spool").binds == mine.split(",")


def test_off_changes_nothing(wrapper: Wrapper) -> None:
    call = wrapper.call("build", "x", "y", LUMISITE="off")
    assert call.environment["SINGULARITY_BINDPATH"] == wrapper.binds


# ---- families


def test_the_default_family_has_its_environment_from_the_prolog(wrapper: Wrapper) -> None:
    call = wrapper.call("exec", LUMI_PYTORCH, "python")
    task = {name: text.replace(ROOT, str(wrapper.folder)) for name, text in TASK.items()}
    assert {name: text for name, text in call.environment.items() if name in TASK} == task
    assert set(call.environment) - set(TASK) <= {"LUMISITE_WRAPPER", "PWD", "OLDPWD", "SHLVL", "_"}
    assert call.stderr == ""


def test_a_family_that_needs_no_cray_bits_gets_none(wrapper: Wrapper) -> None:
    call = wrapper.call("exec", LAIF, "python")
    assert call.binds == ["/mine", "/usr", "/spool", "/other"]
    assert "AITER_JIT_DIR" not in call.environment
    assert call.environment["NCCL_NET"] == "AWS Libfabric"


def test_a_family_that_needs_cray_bits_gets_them(wrapper: Wrapper) -> None:
    """The default family of ROCm 7.0 needs none, so the prolog has bound none."""
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
    assert wrapper.call("exec", LAIF, "x", AITER_JIT_DIR="/mine").environment["AITER_JIT_DIR"] == "/mine"


def test_settings_of_a_family_stay_out_where_no_prolog_ran(wrapper: Wrapper) -> None:
    bare = {"LUMISITE_DONE": None, "NCCL_NET": None, "AITER_JIT_DIR": None, "LUMISITE_EXPORTS": None}
    assert "NCCL_NET" not in wrapper.call("exec", LAIF, "x", **bare).environment


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
    said = wrapper.call("exec", LAIF, "x", LUMISITE_VERBOSE="1").stderr
    assert f"lumisite: {LAIF} is of the family laif-multitorch\n" in said
    assert f"lumisite: without the bind {wrapper.folder}/opt/cray\n" in said


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


# ---- hostile


EVIL = "x\nexport LD_PRELOAD=/evil.so\n$(reboot)`id`"
HOSTILE: dict[str, dict[str, str]] = {
    "IFS": {"IFS": "/,:abcdefgx"},
    "start-up files": {"ENV": "/nowhere", "BASH_ENV": "/nowhere"},
    "strict options": {"SHELLOPTS": "errexit:nounset:pipefail:noclobber:noglob"},
    "allexport": {"SHELLOPTS": "allexport"},
    "bash options": {"BASHOPTS": "failglob:nullglob:xpg_echo:extglob:execfail"},
    "functions": {
        f"BASH_FUNC_{name}%%": "() { exit 9; }" for name in ("[", "printf", "exec", "exit", "unset", "export")
    },
    "line breaks in the bind list": {"SINGULARITY_BINDPATH": EVIL},
    "line breaks in ours": {CPE: EVIL, "LUMISITE_EXPORTS": EVIL, "LUMISITE_FAMILY": EVIL, "LUMISITE_STACK": EVIL},
    "a broken PATH": {"PATH": EVIL},
    "no PWD": {"PWD": ""},
    "wildcards": {"SINGULARITY_BINDPATH": "/*,[a-z],?,*", CPE: "*", "LUMISITE_BINDS_TASK": "?,/opt/*"},
    "our own variables": dict.fromkeys(sorted(set(re.findall(r"\bls_\w+", FILES["spank/bin/singularity"]))), EVIL),
    "common names": {"list": "1", "nodes": "2", "stack": "3", "partition": "4", "kind": "5", "rest": "6", "key": "7"},
    "a locale": {"LC_ALL": "C.UTF-8", "LANG": "tr_TR.UTF-8"},
    "bytes that are no text": {"SINGULARITY_BINDPATH": "/\udcff,/a", "PWD": "/\udc80"},
}


@pytest.mark.parametrize("words", [["exec", LAIF, "python", *ODD], ["build", "a b", "c\nd"]], ids=["exec", "build"])
@pytest.mark.parametrize("fault", HOSTILE)
def test_a_hostile_environment(wrapper: Wrapper, fault: str, words: list[str]) -> None:
    call = wrapper.call(*words, **HOSTILE[fault])
    assert call.arguments == words
    assert call.stderr == ""
    changed = {name for name, text in HOSTILE[fault].items() if call.environment.get(name) != text}
    for options in {
        "SHELLOPTS",
        "BASHOPTS",
    } & changed:  # bash adds what it has by itself, and nothing of ours may be there
        grown = set(call.environment[options].split(":")) - set(HOSTILE[fault][options].split(":"))
        assert not grown & {"noglob", "errexit", "nounset", "noexec", "nocasematch", "nullglob", "failglob"}
        changed.remove(options)
    ours = {"SINGULARITY_BINDPATH", "IFS", "PWD", *(name for name in changed if name.startswith(("ls_", "BASH_FUNC_")))}
    assert changed <= ours
    assert "LD_PRELOAD" not in call.environment


def test_an_exported_function_reaches_the_container_where_the_shell_can_carry_it(tmp_path: Path) -> None:
    """dash drops names that are none for a shell; bash, which is /bin/sh on LUMI, does not."""
    call = make(tmp_path, "bash").call("exec", LAIF, "x", **{"BASH_FUNC_module%%": "() {  echo hi\n}"})
    assert call.environment["BASH_FUNC_module%%"] == "() {  echo hi\n}"


def test_it_starts_no_process(wrapper: Wrapper) -> None:
    strace = shutil.which("strace")
    if strace is None:
        pytest.skip("strace is not installed (.ci/packages installs it)")
    write_script(wrapper.runtime, "#!/bin/sh\n")
    log = wrapper.folder / "strace.log"
    traced = [strace, "-f", "-o", str(log), "-e", "trace=%process", *wrapper.shell, str(wrapper.path)]
    venv = {"LUMISITE_VENV": "auto", "LUMISITE_VERBOSE": "1"}
    for words in (["exec", LAIF, "x"], ["build", "a", "b"], ["exec", CONDA, "x"]):
        done = subprocess.run([*traced, *words], env={**TASK, **venv}, capture_output=True, check=False)
        if not log.exists():
            pytest.skip(f"strace may not trace here: {done.stderr.decode(errors='replace')[:200]}")
        assert not re.search(r"^\d+ +(v?fork|clone3?)\(", log.read_text(), re.MULTILINE)


def test_a_site_with_next_to_nothing_gives_wrappers_that_run(wrapper: Wrapper) -> None:
    from tests.unit.sites import load_text, site_text

    text = site_text(("executable: /usr/bin/singularity", f"executable: {ROOT}/runtime/singularity"))
    text = text[: text.index("\nbinds:")] + text[text.index("\nmodules:") :]
    text = re.sub(r"partitions:\n(  .*\n)+", "partitions: {}\n", text)
    lay_out(wrapper.folder, render_files(load_text(text)))
    assert wrapper.call("exec", "/appl/images/x.sif", "y").arguments == ["exec", "/appl/images/x.sif", "y"]
