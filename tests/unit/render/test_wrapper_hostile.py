"""The wrapper among faults and hostile environments: the container starts every time, and nothing of a user's is obeyed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support.prologs import EVERY_SHELL, lay_out, render_files, write_script
from tests.support.sites import load_text, site_text
from tests.support.tools import traced
from tests.support.wrappers import CONDA, CPE, FILES, LAIF, ODD, RUNTIME_THERE, TASK, Wrapper, make


@pytest.fixture(params=EVERY_SHELL)
def shell(request: pytest.FixtureRequest) -> str:
    return str(request.param)


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
    "a version of bash": {"BASH_VERSION": "5.2"},
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
    for options in {"SHELLOPTS", "BASHOPTS"} & changed:
        # bash adds what it has by itself: nothing of ours may be there, and nothing of the user's gone.
        before, after = (set(one[options].split(":")) for one in (HOSTILE[fault], call.environment))
        assert before <= after
        assert not (after - before) & {"noglob", "errexit", "nounset", "noexec", "nocasematch", "nullglob", "failglob"}
        changed.remove(options)
    ours = {
        "SINGULARITY_BINDPATH",
        "IFS",
        "PWD",
        "BASH_VERSION",
        *(name for name in changed if name.startswith(("ls_", "BASH_FUNC_"))),
    }
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


def test_control_characters_of_the_users_are_not_printed(wrapper: Wrapper) -> None:
    odd = {"SINGULARITYENV_PREPEND_PATH": "/y\r\x07", "FI_MR_CACHE_MONITOR": "x\x1b[2J"}
    call = wrapper.call("exec", CONDA, "x", LUMISITE_VERBOSE="all", **odd)
    assert call.environment["SINGULARITYENV_PREPEND_PATH"] == "/y\r\x07:/opt/miniconda3/envs/pytorch/bin"
    assert "SINGULARITYENV_PREPEND_PATH=/y\n" in call.stderr
    assert call.stderr.replace("\n", "").isprintable()


def test_what_is_too_long_for_what_it_stands_for_changes_nothing(wrapper: Wrapper) -> None:
    for words in (["exec", "/" + "a/" * 3000, "x"], ["exec", f"-{'e' * 60_000}Z", LAIF]):
        assert wrapper.call(*words).environment["SINGULARITY_BINDPATH"] == wrapper.binds
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
    text = site_text(RUNTIME_THERE)
    text = text[: text.index("\nbinds:")] + text[text.index("\nmodules:") :]
    text = re.sub(r"partitions:\n(  .*\n)+", "partitions: {}\n", text)
    lay_out(wrapper.folder, render_files(load_text(text)))
    assert wrapper.call("exec", "/appl/images/x.sif", "y").arguments == ["exec", "/appl/images/x.sif", "y"]
