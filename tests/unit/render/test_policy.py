"""The policy as the helper's scripts read it: under each shell that may be /bin/sh, and in the cli_filter."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from lumisite.release.policy import read_policy
from tests.support.prologs import EVERY_SHELL, STEP, Ran, Script, lay_out, lumi_like_files, shell_command, write_script
from tests.support.tools import traced
from tests.support.wrappers import LAIF, make
from tests.unit.render.test_cli_filter import filtered

SCRIPT = Path(__file__).parents[3] / "spank_helpers/common.sh"
READ = '. "$1"; ls_read_policy; echo "$ls_mode"'


def mode(shell: str, folder: Path, text: str | None, **environment: str) -> str:
    """Give the mode by a policy of this content, without any where there is none."""
    root = folder / "root"
    (root / "releases/r/spank").mkdir(parents=True, exist_ok=True)
    (root / "policy").unlink(missing_ok=True)
    if text is not None:
        (root / "policy").write_bytes(os.fsencode(text))
    return read(shell, folder, root / "releases/r/spank/task_prolog", **environment)


def read(shell: str, folder: Path, script: Path | str, before: str = "", **environment: str) -> str:
    words = ["-c", before + READ, str(script), str(SCRIPT)]
    known = {"PATH": "/usr/bin:/bin", "SLURM_JOB_PARTITION": "dev-g", "SLURM_JOB_ACCOUNT": "project_1", **environment}
    done = subprocess.run([*shell_command(shell, folder), *words], env=known, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.removesuffix("\n")


#: The lines of a policy, and what it makes of a step in partition dev-g of account project_1.
LINES = {
    "on default": "on",
    "observe default": "observe",
    "off default": "off",
    "on partition dev-g\noff default": "on",
    "on partition dev\noff default": "off",
    "off partition dev\nobserve partition dev-g\non default": "observe",
    "off account project_2\nobserve account project_1\non default": "observe",
    "on account project_1\noff partition dev-g": "on",
    "off partition dev-g\non account project_1": "off",
    "observe default\non default": "observe",
}
#: What no `lumisite policy` has written, and what it makes of the step: another word is off.
OTHER_WORDS = ("act default\n", "ON default\n", "kill partition dev-g\non default\n", "$(id) default\n")
#: What is no policy: the helper is off from such a line on.
DAMAGED = {
    "empty": "",
    "blank": "\n\n",
    "remarks alone": "# off\n\n",
    "another form": "lumisite-policy 1\nact\nend\n",
    "no name": "on partition\n",
    "a share": "on share 5\n",
    "cut": "off partition a\non defau",
    "a word more": "on default # since Monday\n",
    "odd letters": "\udcff\udcfe\n",
    "line ends of another system": "on default\r\n",
    "too many lines": "on partition a\n" * 64 + "on default\n",
}
#: What no `lumisite policy` has written either, and is obeyed.
LOOSE = {
    "on  default\n": "on",
    "\tobserve\tdefault \n": "observe",
    "off partition a\nobserve default": "observe",
    "# Monday\n\n \t\n  #off default\nobserve default\n": "observe",
    f"off partition a\n\n# {'the rest ' * 40}\non account project_1": "on",
}


ACTING = {**{f"{lines}\n": word for lines, word in LINES.items()}, **LOOSE}


@pytest.mark.parametrize(("text", "expected"), ACTING.items(), ids=range(len(ACTING)))
def test_the_first_line_that_fits_counts(shell: str, tmp_path: Path, text: str, expected: str) -> None:
    assert mode(shell, tmp_path, text) == expected
    assert mode(shell, tmp_path, text, LUMISITE_STACK="") == expected


@pytest.mark.parametrize("text", [*OTHER_WORDS, *DAMAGED.values()])
def test_another_word_and_a_damaged_policy_are_off(shell: str, tmp_path: Path, text: str) -> None:
    assert mode(shell, tmp_path, text, LUMISITE_STACK="25.03") == "off"
    assert mode(shell, tmp_path, f"observe account project_1\n{text}") == "observe"


@pytest.mark.parametrize("shell", [each for each in EVERY_SHELL if each != "dash"])
def test_a_line_of_megabytes_is_not_read_to_its_end(shell: str, tmp_path: Path) -> None:
    """But by dash, whose `read` knows no limit; most read one byte at a time, and a call of the system is slow."""
    mode(shell, tmp_path, "on partition " + "x" * 2_000_000)
    words = [*shell_command(shell, tmp_path), "-c", READ, f"{tmp_path}/root/releases/r/spank/task_prolog", str(SCRIPT)]
    calls = traced("read,execve", words, {"PATH": "/usr/bin:/bin"}, tmp_path / "strace.log")
    assert sum(int(call.rpartition("= ")[2].split()[0]) for call in calls if " read(" in call) < 200_000


@pytest.mark.parametrize("text", [None, "off partition a\n", "off account b\nobserve partition a\n"])
def test_without_a_line_that_fits_it_is_on_for_who_has_loaded_the_module(
    shell: str, tmp_path: Path, text: str | None
) -> None:
    assert mode(shell, tmp_path, text) == "off"
    assert mode(shell, tmp_path, text, LUMISITE_STACK="25.03") == "on"


def test_a_policy_that_is_no_file_is_off(shell: str, tmp_path: Path) -> None:
    (tmp_path / "root/policy").mkdir(parents=True)
    script = tmp_path / "root/releases/r/spank/task_prolog"
    assert read(shell, tmp_path, script, LUMISITE_STACK="25.03") == "off"


EVERY = [*ACTING, *OTHER_WORDS, "off partition a\n", *DAMAGED.values()]
#: Those that `lumisite policy` may have written, and one with remarks.
WRITTEN = {"off partition a\n", *(f"{lines}\n" for lines in LINES), *(text for text in LOOSE if text.startswith("#"))}


@pytest.mark.parametrize("text", EVERY, ids=range(len(EVERY)))
def test_status_says_what_tasks_obey(tmp_path: Path, text: str) -> None:
    """The reader of the command line, on the same file."""
    obeyed = mode("dash", tmp_path, text, LUMISITE_STACK="25.03")
    policy = read_policy(tmp_path / "root")
    assert policy is not None
    steps = [("default", ""), ("partition", "dev-g"), ("account", "project_1")]
    words = [line.word for line in policy.lines if (line.scope, line.name) in steps]
    assert [*words, "on"][0] == obeyed
    assert bool(policy.faults) == (text not in WRITTEN)


def test_a_link_is_followed_and_one_to_nothing_is_no_policy(shell: str, tmp_path: Path) -> None:
    mode(shell, tmp_path, "observe default\n")
    script, policy = tmp_path / "root/releases/r/spank/task_prolog", tmp_path / "root/policy"
    policy.rename(tmp_path / "elsewhere")
    policy.symlink_to("../elsewhere")
    assert read(shell, tmp_path, script) == "observe"
    (tmp_path / "elsewhere").unlink()
    assert (read(shell, tmp_path, script), read(shell, tmp_path, script, LUMISITE_STACK="x")) == ("off", "on")


def test_a_copy_follows_the_policy_of_the_sites_root(shell: str, tmp_path: Path) -> None:
    """As Slurm from 25.11 hands a TaskProlog out, to a folder of its own."""
    mode(shell, tmp_path, "observe default\n")
    for root, expected in ((f"{tmp_path}/root", "observe"), (f"{tmp_path}/none", "on")):
        copy = "/var/spool/slurmd/conf-cache/task_prolog"
        assert read(shell, tmp_path, copy, f"ls_site_root={root}\n") == expected


@pytest.mark.parametrize("value", ["", "dev-g,x", "*", "dev-g x", "x\ndev-g", "$(id)", "d?v-g", "/"])
def test_a_hostile_partition_fits_no_line(shell: str, tmp_path: Path, value: str) -> None:
    text = "off partition dev-g\noff account dev-g\non default\n"
    assert mode(shell, tmp_path, text, SLURM_JOB_PARTITION=value, SLURM_JOB_ACCOUNT=value) == "on"


def deployed(folder: Path, policy: str | None) -> Path:
    """Lay the helper out as a release below a root; give the folder of its scripts."""
    folder.mkdir(exist_ok=True)
    spank = lay_out(folder, lumi_like_files())
    release = folder / "root/releases/r"
    release.mkdir(parents=True)
    (release / "spank").symlink_to(spank)
    if policy is not None:
        (folder / "root/policy").write_bytes(os.fsencode(policy))
    return release / "spank"


def of_filter(lua: str, folder: Path, text: str | None, options: Mapping[str, str], **environment: str) -> str:
    """Give the word that the cli_filter goes by: seen by the MPI that it chooses for an image that needs another."""
    argv = ["singularity", "exec", LAIF, "python"]
    module = deployed(folder, text) / "cli_filter.lua"
    answer = filtered(lua, module, options, argv, environment=environment)
    lines = [line for line in answer if line.startswith("set ")]
    if not lines:
        return "off"
    assert lines[0].startswith("set task-prolog=")
    return "on" if "set mpi=pmi2" in lines else "observe"


OPTIONS = {"partition": "dev-g", "account": "project_1"}
OFF = dict.fromkeys([*OTHER_WORDS, *DAMAGED.values()], "off")


@pytest.mark.parametrize(("text", "expected"), (ACTING | OFF).items(), ids=range(len(ACTING | OFF)))
def test_the_filter_reads_a_policy_alike(lua: str, tmp_path: Path, text: str, expected: str) -> None:
    assert of_filter(lua, tmp_path / "a", text, OPTIONS, LUMISITE_STACK="25.03") == expected
    inside = {"SLURM_JOB_ID": "1", "SLURM_JOB_PARTITION": "dev-g", "SLURM_JOB_ACCOUNT": "project_1"}
    assert of_filter(lua, tmp_path / "b", text, {}, **inside) == expected


@pytest.mark.parametrize("value", ["off", "OFF", "no", "0"])
def test_a_user_switches_the_filter_off_as_the_prolog(lua: str, tmp_path: Path, value: str) -> None:
    assert of_filter(lua, tmp_path, "on default\n", {}, LUMISITE=value) == "off"


@pytest.mark.parametrize("text", [None, "off partition a\n"])
def test_without_a_line_that_fits_the_filter_is_on_with_the_module(lua: str, tmp_path: Path, text: str | None) -> None:
    assert of_filter(lua, tmp_path / "a", text, OPTIONS) == "off"
    assert of_filter(lua, tmp_path / "b", text, OPTIONS, LUMISITE_STACK="25.03") == "on"


def test_what_the_filter_does_not_know_yet_it_leaves_to_the_prolog(lua: str, tmp_path: Path) -> None:
    """An srun that makes its own allocation has no job yet, and perhaps no partition."""
    for number, lines in enumerate(("on partition dev-g\noff default\n", "off account project_2\non default\n")):
        assert of_filter(lua, tmp_path / str(number), lines, {}) == "observe"


@pytest.mark.parametrize(("word", "marks"), [("on", True), ("observe", True), ("off", False)])
def test_the_prolog_learns_of_a_binding(lua: str, tmp_path: Path, word: str, *, marks: bool) -> None:
    """The mark is for the prolog alone; a step to which it is not attached gets none where the helper is not on."""
    module = deployed(tmp_path, f"{word} default\n") / "cli_filter.lua"
    lines = filtered(lua, module, {"cpu-bind": "cores"}, ["singularity", "exec", LAIF])
    assert ("set export=ALL,LUMISITE_CPU_BIND=user" in lines) == marks
    native = filtered(lua, module, {"cpu-bind": "cores"}, ["python"])
    assert native == (["set export=ALL,LUMISITE_CPU_BIND=user"] if word == "on" else [])


def run_prolog(shell: str, folder: Path, policy: str | None, **changes: str | None) -> Ran:
    script = deployed(folder, policy) / "task_prolog"
    return Script(tuple(shell_command(shell, folder)), script).step(**changes)


def test_off_and_observe_take_the_mark_back_and_tell_slurm_nothing_else(shell: str, tmp_path: Path) -> None:
    assert len(run_prolog(shell, tmp_path / "on", "on default\n", LUMISITE_CPU_BIND="user").exports) > 10
    for word in ("off", "observe"):
        ran = run_prolog(shell, tmp_path / word, f"{word} default\n", LUMISITE_CPU_BIND="user", LUMISITE_VERBOSE="all")
        assert ran.stdout == "unset LUMISITE_CPU_BIND\n"
    assert list((tmp_path / "observe/tmp").iterdir()) == []


#: Stands for `logger`: keeps its arguments and what it reads.
LOGGER = '#!/bin/sh\nprintf "%s\\n" "$@" >"{log}"\ncat >>"{log}"\n'


def logged(shell: str, folder: Path, policy: str, logger: str = LOGGER, **changes: str) -> list[str]:
    """Run the prolog with a system log of the test's; give what it was told."""
    script, log = deployed(folder, policy) / "task_prolog", folder / "log"
    write_script(folder / "bin/logger", logger.format(log=log))
    text = script.read_text()
    assert "timeout 0.5 logger " in text
    script.write_text(text.replace("timeout 0.5 logger ", f"timeout 0.5 {folder}/bin/logger "))
    assert Script(tuple(shell_command(shell, folder)), script).step(**changes).lines == []
    return log.read_text().splitlines() if log.exists() else []


def test_the_first_task_of_a_node_tells_the_log_what_it_would_print(shell: str, tmp_path: Path) -> None:
    expected = run_prolog(shell, tmp_path / "on", "on default\n", SLURM_LOCALID="0").stdout
    lines = logged(shell, tmp_path / "observe", "observe default\n", SLURM_LOCALID="0")
    assert lines[:2] == ["-t", "lumisite[1234567.0.3]"]
    *printed, cpus = lines[2:]
    assert printed == expected.replace(f"{tmp_path}/on", f"{tmp_path}/observe").splitlines()
    assert cpus == "print lumisite: no CPU binding: the task has no process id"
    with_process = logged(shell, tmp_path / "bound", "observe default\n", SLURM_LOCALID="0", SLURM_TASK_PID="1")
    assert with_process[-1].startswith("print lumisite: CPUs 49-55 (task 0 of 8 on a lumi-g node")
    assert logged(shell, tmp_path / "other", "observe default\n", SLURM_LOCALID="1") == []


def test_a_log_that_is_missing_full_or_asleep_costs_half_a_second(shell: str, tmp_path: Path) -> None:
    for name, logger in (("asleep", "#!/bin/sh\nexec sleep 20\n"), ("fails", "#!/bin/sh\nexit 1\n"), ("gone", "")):
        folder = tmp_path / name
        assert logged(shell, folder, "observe default\n", logger, SLURM_LOCALID="0") == []


def test_the_log_gets_a_part_of_what_is_long(shell: str, tmp_path: Path) -> None:
    lines = logged(shell, tmp_path, "observe default\n", SLURM_LOCALID="0", PATH="/x" * 20000)
    assert 7000 < len("\n".join(lines[2:])) <= 8000


@pytest.mark.parametrize("word", ["off", "observe"])
def test_the_wrapper_steps_aside(shell: str, tmp_path: Path, word: str) -> None:
    wrapper = make(tmp_path, shell)
    release = tmp_path / "root/releases/r"
    release.mkdir(parents=True)
    (release / "spank").symlink_to(tmp_path / "spank")
    (tmp_path / "root/policy").write_text(f"{word} default\n")
    path = f"{release}/spank/bin:/usr/bin:/bin"
    done = subprocess.run(
        [*wrapper.shell, str(release / "spank/bin/singularity"), "exec", LAIF, "a b"],
        env={**STEP, "PATH": path, "SINGULARITY_BINDPATH": "/mine", "LUMISITE_STACK": "x", "LUMISITE_VERBOSE": "all"},
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    call = wrapper.seen()
    assert call.arguments == ["exec", LAIF, "a b"]
    assert (call.binds, call.environment["PATH"]) == (["/mine"], path)
