"""The wrapper among faults and hostile environments: the container starts every time, and nothing of a user's is obeyed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support.prologs import ROOT, SHELLS, lay_out, render_files, write_script
from tests.support.tools import traced
from tests.support.wrappers import CONDA, HOSTILE, LAIF, ODD, TASK, Wrapper, make


@pytest.fixture(params=SHELLS)
def wrapper(request: pytest.FixtureRequest, tmp_path: Path) -> Wrapper:
    return make(tmp_path, request.param)


# ---- hostile


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
    write_script(wrapper.runtime, "#!/bin/sh\n")
    environment = {**TASK, "LUMISITE_VENV": "auto", "LUMISITE_VERBOSE": "all"}
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
