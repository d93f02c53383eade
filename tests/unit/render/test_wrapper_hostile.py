"""The wrapper among faults and hostile environments: the container starts every time, and nothing of a user's is obeyed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support.prologs import EVERY_SHELL, ROOT, lay_out, render_files, write_script
from tests.support.tools import traced
from tests.support.wrappers import CONDA, HOSTILE, LAIF, ODD, TASK, Wrapper, make


@pytest.fixture(params=EVERY_SHELL)
def shell(request: pytest.FixtureRequest) -> str:
    return str(request.param)


# ---- hostile


@pytest.mark.parametrize("words", [["exec", LAIF, "python", *ODD], ["build", "a b", "c\nd"]], ids=["exec", "build"])
@pytest.mark.parametrize("fault", HOSTILE)
def test_a_hostile_environment(wrapper: Wrapper, fault: str, words: list[str]) -> None:
    call = wrapper.call(*words, **HOSTILE[fault])
    assert call.arguments == words
    assert call.stderr == ""
    changed = {name for name, text in HOSTILE[fault].items() if call.environment.get(name) != text}
    for options in {"SHELLOPTS", "BASHOPTS"} & changed:
        # bash adds what it has by itself: nothing of ours may be there, and nothing of the user's gone.
        before, after = (set(one[options].split(":")) for one in (HOSTILE[fault], call.environment))
        assert before <= after
        assert not (after - before) & {"noglob", "errexit", "nounset", "noexec", "nocasematch", "nullglob", "failglob"}
        changed.remove(options)
    ours = {"SINGULARITY_BINDPATH", "IFS", "PWD", *(name for name in changed if name.startswith(("ls_", "BASH_FUNC_")))}
    assert changed <= ours
    assert "LD_PRELOAD" not in call.environment
    assert not [name for name in call.environment if "ls_" in name and name not in HOSTILE[fault]]


def test_the_users_functions_reach_the_container_and_do_nothing_on_the_way(tmp_path: Path) -> None:
    """dash drops names that are none for a shell; bash, which is /bin/sh on LUMI, does not."""
    functions = {f"BASH_FUNC_{name}%%": "() {  exit 9\n}" for name in ("printf", "test", "read", "readlink", "module")}
    link = tmp_path / "link.sif"
    link.symlink_to("lumi-multitorch-mine.sif")
    call = make(tmp_path, "bash").call("exec", str(link), "x", LUMISITE_VERBOSE="all", **functions)
    assert {name: call.environment.get(name) for name in functions} == functions
    assert "family laif-multitorch" in call.stderr


@pytest.mark.parametrize("more", [{}, {"BASH_FUNC_test%%": "() { exit 9; }"}])
def test_bash_cannot_be_told_to_stop_at_a_depth_of_calls(tmp_path: Path, more: dict[str, str]) -> None:
    call = make(tmp_path, "bash").call("exec", LAIF, "x", FUNCNEST="1", **more)
    assert f"{tmp_path}/opt/cray" not in call.binds
    assert call.environment["FUNCNEST"] == "1"


def test_a_version_of_bash_in_the_environment_makes_no_shell_one(wrapper: Wrapper) -> None:
    assert wrapper.call("exec", LAIF, "x", BASH_VERSION="5.2").arguments == ["exec", LAIF, "x"]


def test_control_characters_of_the_users_are_not_printed(wrapper: Wrapper) -> None:
    odd = {"SINGULARITYENV_PREPEND_PATH": "/y\r\x07", "FI_MR_CACHE_MONITOR": "x\x1b[2J"}
    call = wrapper.call("exec", CONDA, "x", LUMISITE_VERBOSE="all", **odd)
    assert call.environment["SINGULARITYENV_PREPEND_PATH"] == "/y\r\x07:/opt/miniconda3/envs/pytorch/bin"
    assert "SINGULARITYENV_PREPEND_PATH=/y\n" in call.stderr
    assert call.stderr.replace("\n", "").isprintable()


@pytest.mark.parametrize(
    "words", [["exec", "/" + "a/" * 3000, "x"], ["exec", f"-{'e' * 60_000}Z", LAIF]], ids=["image", "letters"]
)
def test_words_that_are_too_long_for_what_they_stand_for_change_nothing(wrapper: Wrapper, words: list[str]) -> None:
    assert wrapper.call(*words).environment["SINGULARITY_BINDPATH"] == wrapper.binds


def test_a_long_list_of_binds_is_left_as_it_is(wrapper: Wrapper) -> None:
    mine = ",".join(["/a"] * 30_000)
    assert wrapper.call("exec", LAIF, "x", SINGULARITY_BINDPATH=mine).environment["SINGULARITY_BINDPATH"] == mine


def test_it_starts_no_process(wrapper: Wrapper) -> None:
    write_script(wrapper.runtime, "#!/bin/sh\n")
    environment = {**TASK, "LUMISITE_VERBOSE": "all"}
    for words in (["exec", LAIF, "x"], ["build", "a", "b"], ["exec", CONDA, "x"]):
        command = [*wrapper.shell, str(wrapper.path), *words]
        calls = traced("%process", command, environment, wrapper.folder / "strace.log")
        assert not [call for call in calls if re.match(r"\d+ +(v?fork|clone3?)\(", call)]


def test_a_site_with_next_to_nothing_gives_wrappers_that_run(wrapper: Wrapper) -> None:
    from tests.support.sites import load_text, site_text

    text = site_text(("executable: /usr/bin/singularity", f"executable: {ROOT}/runtime/singularity"))
    text = text[: text.index("\nbinds:")] + text[text.index("\nmodules:") :]
    text = re.sub(r"partitions:\n(  .*\n)+", "partitions: {}\n", text)
    lay_out(wrapper.folder, render_files(load_text(text)))
    assert wrapper.call("exec", "/appl/images/x.sif", "y").arguments == ["exec", "/appl/images/x.sif", "y"]
