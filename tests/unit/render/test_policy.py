"""The policy as the helper's scripts read it: under each shell that may be /bin/sh, and in the cli_filter."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from lumisite.release.policy import read_policy
from tests.support.prologs import EVERY_SHELL, STEP, Ran, Script, lay_out, lumi_like_files, shell_command, write_script
from tests.support.tools import tool, traced
from tests.support.wrappers import LAIF, make
from tests.unit.render.test_cli_filter import filtered

SCRIPT = Path(__file__).parents[3] / "spank_helpers/common.sh"
READ = '. "$1"; ls_read_policy; echo "$ls_mode"'
#: Where the scripts of a release are, below the folder of a test.
SPANK = "root/releases/r/spank"
JOB = {"SLURM_JOB_PARTITION": "dev-g", "SLURM_JOB_ACCOUNT": "project_1"}
READERS = [*EVERY_SHELL, "lua5.3", "lua5.4"]


def write_policy(folder: Path, text: str | None) -> None:
    """Write a policy of this content, or none."""
    (folder / SPANK).parent.mkdir(parents=True, exist_ok=True)
    (folder / "root/policy").unlink(missing_ok=True)
    if text is not None:
        (folder / "root/policy").write_bytes(os.fsencode(text))


def read(shell: str, folder: Path, script: str = f"{SPANK}/task_prolog", before: str = "", **environment: str) -> str:
    """Return the word that a shell goes by, in a script of this name."""
    words = ["-c", before + READ, str(folder / script), str(SCRIPT)]
    known = {"PATH": "/usr/bin:/bin", **JOB, **environment}
    done = subprocess.run([*shell_command(shell, folder), *words], env=known, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.removesuffix("\n")


def filter_word(lua: str, folder: Path, options: dict[str, str], **environment: str) -> str:
    """Return the word that the cli_filter goes by: seen by the MPI that it chooses for an image that needs another."""
    argv, module = ["singularity", "exec", LAIF, "python"], folder / SPANK / "cli_filter.lua"
    lines = [line for line in filtered(tool(lua), module, options, argv, "", environment) if line.startswith("set ")]
    assert not lines or lines[0].startswith("set task-prolog=")
    return "off" if not lines else "on" if "set mpi=pmi2" in lines else "observe"


def obeyed(reader: str, folder: Path, text: str | None, **environment: str) -> str:
    """Return the word that a shell or the filter goes by, for a step in partition dev-g of account project_1."""
    write_policy(folder, text)
    if not reader.startswith("lua"):
        return read(reader, folder, **environment)
    if not (folder / SPANK).exists():
        (folder / SPANK).symlink_to(lay_out(folder, lumi_like_files()))
    options = {"partition": "dev-g", "account": "project_1"}
    word = filter_word(reader, folder, options, **environment)
    assert filter_word(reader, folder, {}, SLURM_JOB_ID="1", **JOB, **environment) == word, "inside a job"
    return word


#: What is obeyed, and what it makes of a step in partition dev-g of account project_1.
ACTING = {
    "on default\n": "on",
    "observe default\n": "observe",
    "off default\n": "off",
    "on partition dev-g\noff default\n": "on",
    "on partition dev\noff default\n": "off",
    "off partition dev\nobserve partition dev-g\non default\n": "observe",
    "off account project_2\nobserve account project_1\non default\n": "observe",
    "on account project_1\noff partition dev-g\n": "on",
    "off partition dev-g\non account project_1\n": "off",
    "# Monday\n\n \t\n  #off default\nobserve default\n": "observe",
    f"off partition a\n\n# {'the rest ' * 40}\non account project_1\n": "on",
}
#: What no `lumisite policy` has written, and is obeyed.
LOOSE = {
    "on  default\n": "on",
    "\tobserve\tdefault \n": "observe",
    "off partition a\nobserve default": "observe",
}
#: Another word is off.
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
    "a name more": "on partition dev-g x\n",
    "odd letters": "\udcff\udcfe\n",
    "line ends of another system": "on default\r\n",
    "too many lines": "on partition a\n" * 64 + "on default\n",
}
#: Without a line that fits it is on for who has loaded the module.
FITTING_NONE = (None, "off partition a\n", "off account b\nobserve partition a\n")


@pytest.mark.parametrize("reader", READERS)
def test_the_first_line_that_fits_counts(reader: str, tmp_path: Path) -> None:
    for text, expected in {**ACTING, **LOOSE}.items():
        assert (text, obeyed(reader, tmp_path, text)) == (text, expected)
    for others in FITTING_NONE:
        assert obeyed(reader, tmp_path, others) == "off"
        assert obeyed(reader, tmp_path, others, LUMISITE_STACK="25.03") == "on"


@pytest.mark.parametrize("reader", READERS)
def test_another_word_and_a_damaged_policy_are_off(reader: str, tmp_path: Path) -> None:
    for text in (*OTHER_WORDS, *DAMAGED.values()):
        assert (text, obeyed(reader, tmp_path, text, LUMISITE_STACK="25.03")) == (text, "off")
        assert obeyed(reader, tmp_path, f"observe account project_1\n{text}") == "observe"


def test_status_says_what_tasks_obey(tmp_path: Path) -> None:
    """The reader of the command line, on the same file."""
    off = dict.fromkeys((*OTHER_WORDS, *DAMAGED.values()), "off")
    for text, expected in {**ACTING, **LOOSE, **off, "off partition a\n": "on"}.items():
        write_policy(tmp_path, text)
        policy = read_policy(tmp_path / "root")
        assert policy is not None
        steps = [("default", ""), ("partition", "dev-g"), ("account", "project_1")]
        words = [line.word for line in policy.lines if (line.scope, line.name) in steps]
        assert (text, [*words, "on"][0]) == (text, expected)
        assert (text, bool(policy.faults)) == (text, text not in {*ACTING, "off partition a\n"})


@pytest.mark.parametrize("shell", [each for each in EVERY_SHELL if each != "dash"])
def test_a_line_of_megabytes_is_not_read_to_its_end(shell: str, tmp_path: Path) -> None:
    """But by dash, whose `read` knows no limit; most read one byte at a time, and a call of the system is slow."""
    write_policy(tmp_path, "on partition " + "x" * 2_000_000)
    words = [*shell_command(shell, tmp_path), "-c", READ, str(tmp_path / SPANK / "task_prolog"), str(SCRIPT)]
    calls = traced("read,execve", words, {"PATH": "/usr/bin:/bin"}, tmp_path / "strace.log")
    assert sum(int(call.rpartition("= ")[2].split()[0]) for call in calls if " read(" in call) < 200_000


def test_a_policy_that_is_no_file_is_off(shell: str, tmp_path: Path) -> None:
    """A link is followed, and one to nothing is no policy."""
    write_policy(tmp_path, None)
    policy = tmp_path / "root/policy"
    policy.mkdir()
    assert read(shell, tmp_path, LUMISITE_STACK="25.03") == "off"
    policy.rmdir()
    (tmp_path / "elsewhere").write_text("observe default\n")
    policy.symlink_to("../elsewhere")
    assert read(shell, tmp_path) == "observe"
    (tmp_path / "elsewhere").unlink()
    assert (read(shell, tmp_path), read(shell, tmp_path, LUMISITE_STACK="x")) == ("off", "on")


def test_a_copy_follows_the_policy_of_the_sites_root(shell: str, tmp_path: Path) -> None:
    """As Slurm from 25.11 hands a TaskProlog out, to a folder of its own."""
    write_policy(tmp_path, "observe default\n")
    for root, expected in ((f"{tmp_path}/root", "observe"), (f"{tmp_path}/none", "on")):
        copy = "/var/spool/slurmd/conf-cache/task_prolog"
        assert read(shell, tmp_path, copy, f"ls_site_root={root}\n") == expected


@pytest.mark.parametrize("value", ["", "dev-g,x", "*", "dev-g x", "x\ndev-g", "$(id)", "d?v-g", "/"])
def test_a_hostile_partition_fits_no_line(shell: str, tmp_path: Path, value: str) -> None:
    write_policy(tmp_path, "off partition dev-g\noff account dev-g\non default\n")
    assert read(shell, tmp_path, SLURM_JOB_PARTITION=value, SLURM_JOB_ACCOUNT=value) == "on"


# ---- the cli_filter


def test_what_the_filter_does_not_know_yet_it_leaves_to_the_prolog(tmp_path: Path) -> None:
    """An srun that makes its own allocation has no job yet, and perhaps no partition."""
    for lines in ("on partition dev-g\noff default\n", "off account project_2\non default\n"):
        obeyed("lua5.4", tmp_path, lines)
        assert filter_word("lua5.4", tmp_path, {}) == "observe"
    for value in ("off", "OFF", "no", "0"):
        assert obeyed("lua5.4", tmp_path, "on default\n", LUMISITE=value) == "off"


@pytest.mark.parametrize(("word", "marks"), [("on", True), ("observe", True), ("off", False)])
def test_the_prolog_learns_of_a_binding(lua: str, tmp_path: Path, word: str, *, marks: bool) -> None:
    """The mark is for the prolog alone; a step to which it is not attached gets none where the helper is not on."""
    module = deployed(tmp_path, f"{word} default\n") / "cli_filter.lua"
    lines = filtered(lua, module, {"cpu-bind": "cores"}, ["singularity", "exec", LAIF])
    assert ("set export=ALL,LUMISITE_CPU_BIND=user" in lines) == marks
    native = filtered(lua, module, {"cpu-bind": "cores"}, ["python"])
    assert native == (["set export=ALL,LUMISITE_CPU_BIND=user"] if word == "on" else [])


# ---- the prolog and the wrapper


def deployed(folder: Path, policy: str) -> Path:
    """Lay the helper out as a release below a root; return the folder of its scripts."""
    folder.mkdir(exist_ok=True)
    write_policy(folder, policy)
    (folder / SPANK).symlink_to(lay_out(folder, lumi_like_files()))
    return folder / SPANK


def run_prolog(shell: str, folder: Path, policy: str, **changes: str | None) -> Ran:
    return Script(tuple(shell_command(shell, folder)), deployed(folder, policy) / "task_prolog").step(**changes)


def test_off_and_observe_take_the_mark_back_and_tell_slurm_nothing_else(shell: str, tmp_path: Path) -> None:
    for word in ("off", "observe"):
        ran = run_prolog(shell, tmp_path / word, f"{word} default\n", LUMISITE_CPU_BIND="user", LUMISITE_VERBOSE="all")
        assert ran.stdout == "unset LUMISITE_CPU_BIND\n"
    assert list((tmp_path / "observe/tmp").iterdir()) == []


#: Stands for `logger`: keeps its arguments and what it reads.
LOGGER = '#!/bin/sh\nprintf "%s\\n" "$@" >"{log}"\ncat >>"{log}"\n'


def logged(shell: str, folder: Path, logger: str = LOGGER, **changes: str) -> list[str]:
    """Run the prolog where it only observes, with a system log of the test's; return what that was told."""
    script, log = deployed(folder, "observe default\n") / "task_prolog", folder / "log"
    write_script(folder / "bin/logger", logger.format(log=log))
    text = script.read_text()
    assert "timeout 0.5 logger " in text
    script.write_text(text.replace("timeout 0.5 logger ", f"timeout 0.5 {folder}/bin/logger "))
    assert Script(tuple(shell_command(shell, folder)), script).step(**{"SLURM_LOCALID": "0", **changes}).lines == []
    return log.read_text().splitlines() if log.exists() else []


def test_the_first_task_of_a_node_tells_the_log_what_it_would_print(shell: str, tmp_path: Path) -> None:
    expected = run_prolog(shell, tmp_path / "on", "on default\n", SLURM_LOCALID="0").stdout
    lines = logged(shell, tmp_path / "observe")
    assert lines[:2] == ["-t", "lumisite[1234567.0.3]"]
    *printed, cpus = lines[2:]
    assert printed == expected.replace(f"{tmp_path}/on", f"{tmp_path}/observe").splitlines()
    assert cpus == "print lumisite: no CPU binding: the task has no process id"
    with_process = logged(shell, tmp_path / "bound", SLURM_TASK_PID="1")
    assert with_process[-1].startswith("print lumisite: CPUs 49-55 (task 0 of 8 on a lumi-g node")
    assert logged(shell, tmp_path / "other", SLURM_LOCALID="1") == []
    long = logged(shell, tmp_path / "long", PATH="/x" * 20000)
    assert 7000 < len("\n".join(long[2:])) <= 8000, "the log gets a part of what is long"


def test_a_log_that_is_missing_full_or_asleep_costs_half_a_second(shell: str, tmp_path: Path) -> None:
    for name, logger in (("asleep", "#!/bin/sh\nexec sleep 60\n"), ("fails", "#!/bin/sh\nexit 1\n"), ("gone", "")):
        assert logged(shell, tmp_path / name, logger) == []


@pytest.mark.parametrize("word", ["off", "observe"])
def test_the_wrapper_steps_aside(shell: str, tmp_path: Path, word: str) -> None:
    wrapper = make(tmp_path, shell)
    write_policy(tmp_path, f"{word} default\n")
    (tmp_path / SPANK).symlink_to(tmp_path / "spank")
    path = f"{tmp_path / SPANK}/bin:/usr/bin:/bin"
    done = subprocess.run(
        [*wrapper.shell, str(tmp_path / SPANK / "bin/singularity"), "exec", LAIF, "a b"],
        env={**STEP, "PATH": path, "SINGULARITY_BINDPATH": "/mine", "LUMISITE_STACK": "x", "LUMISITE_VERBOSE": "all"},
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    call = wrapper.seen()
    assert call.arguments == ["exec", LAIF, "a b"]
    assert (call.binds, call.environment["PATH"]) == (["/mine"], path)
