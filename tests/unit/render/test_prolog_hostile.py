"""The prolog among faults and hostile environments: the task starts every time, and nothing of a user's is obeyed.

Each row of `ENVIRONMENTS` and each test below it is one kind of fault, run for real under each shell.
"""

from __future__ import annotations

import contextlib
import os
import re
import resource
import signal
import subprocess
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.prologs import (
    EVERY_SHELL,
    STEP,
    Ran,
    Script,
    is_root,
    lay_out,
    lumi_like_files,
    render_files,
    shell_command,
)
from tests.support.sites import load_text, site_text
from tests.unit.render.test_prolog import sound

EVIL = "x\nexport LD_PRELOAD=/evil.so\nunset HOME\nprint evil\n"
TEXT = lumi_like_files()["spank/task_prolog"]

#: Every variable that the prolog reads or uses; a user may have any of them in the environment.
NAMES = sorted(set(re.findall(r"\$\{?([A-Za-z_][A-Za-z0-9_]*)", TEXT)) | set(re.findall(r"\b([a-z_0-9]+)=", TEXT)))
#: What it may set.
LEDGER = set(re.findall(r"^\s*(?:.*\) )?(?:setting|special_setting|cache) ([A-Z_]+) ", TEXT, re.MULTILINE))
ALLOWED = {
    *LEDGER,
    *(
        "PATH",
        "SINGULARITY_BINDPATH",
        "SLURM_CPU_BIND",
        *(f"SLURM_CPU_BIND_{of}" for of in ("LIST", "TYPE", "VERBOSE")),
    ),
    *(f"LUMISITE_{of}" for of in ("BINDS_TASK", "CPU_BIND", "DONE", "EXPORTS", "PRIVATE", "STEP")),
    *(f"LUMISITE_BINDS_SINGULARITY_{of}" for of in ("CPEBITS", "USERFILESYSTEMS")),
}


@pytest.fixture(scope="module", params=EVERY_SHELL)
def shared(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Script:
    """A prolog for tests that leave its folder as it is."""
    folder = tmp_path_factory.mktemp("shared")
    return Script(tuple(shell_command(request.param, folder)), lay_out(folder, lumi_like_files()) / "task_prolog")


@pytest.fixture(params=EVERY_SHELL)
def shell(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def harmless(ran: Ran) -> Ran:
    """Nothing but its own variables is set, and no line comes from a value of the user's."""
    assert set(ran.exports) <= ALLOWED
    assert set(ran.unsets) <= ALLOWED
    assert all(line.startswith("lumisite: ") for line in ran.prints)
    return sound(ran)


def without_warnings(ran: Ran) -> Ran:
    """Leave out what the loader and bash themselves say before the script begins; Slurm reads it, and obeys none."""
    lines = ran.stderr.splitlines(keepends=True)
    started = [line for line in lines if not re.match(r"(ERROR: ld\.so: |\S*sh: warning: setlocale: )", line)]
    return Ran(ran.status, ran.stdout, "".join(started))


def test_the_names_are_found() -> None:
    assert {"SLURM_JOB_ID", "lines", "private", "ls_verbose"} <= set(NAMES)
    assert {"NCCL_CROSS_NIC", "MIOPEN_USER_DB_PATH", "MASTER_PORT"} <= LEDGER


FUNCTIONS = (
    *("[", "test", "printf", "read", "echo", "mkdir", "taskset", "timeout", "command", "cd", "umask", "true"),
    *("exec", "exit", "trap", "unset", "set", "export", "eval", "shift", "return", ":", "."),
    *re.findall(r"^(\w+)\(\)", TEXT, re.MULTILINE),
)
#: Lists of 10 to 120 KB.
LONG = {
    "SINGULARITY_BINDPATH": ",".join(["/a"] * 30_000),
    "SINGULARITY_BIND": ",".join(["/a"] * 30_000),
    "LUMISITE_BINDS_TASK": ",".join(["/a:/b"] * 15_000),
    "LUMISITE_EXPORTS": ";A=b" * 30_000,
    "SLURM_STEP_NODELIST": f"nid[{','.join(f'{2 * number:06}' for number in range(2978))}]",
    "SLURM_STEP_GPUS": ",".join(["0"] * 60_000),
    "SLURM_GTIDS": ",".join(["0"] * 60_000),
    "SLURM_CPU_BIND": "mask_cpu" * 15_000,
    "SLURM_GPU_BIND": "map:" * 30_000,
}

ENVIRONMENTS: dict[str, dict[str, str]] = {
    **{f"a line break in {name}": {name: EVIL} for name in NAMES if name.isupper()},
    "a line break in the record and its value": {"LUMISITE_EXPORTS": f";NCCL_NET={EVIL};", "NCCL_NET": EVIL},
    "a line break in every number": {
        name: EVIL for name in STEP if name.startswith("SLURM_") and "STEP_ID" not in name
    },
    "our own variables": {name: EVIL for name in NAMES if name.islower()},
    **{f"a long {name}": {name: value} for name, value in LONG.items()},
    "format characters": {"SINGULARITY_BINDPATH": "%s%d%n\\x41\\n\\c", "PATH": "%s:\\c:/usr/bin"},
    "shell syntax in values": {"SINGULARITY_BINDPATH": "$(touch x)`id`;&|<>*?[a]~'\"", "LUMISITE_KEEP": "$(id)"},
    "arithmetic in numbers": {"SLURM_JOB_ID": "a[$(touch x)]", "SLURM_LOCALID": "1+1", "SLURM_NODEID": "x=1"},
    "octal numbers": {"SLURM_JOB_ID": "08", "SLURM_STEP_ID": "1", "SLURM_LOCALID": "09", "SLURM_PROCID": "010"},
    "huge numbers": {"SLURM_JOB_ID": "9" * 40, "SLURM_LOCALID": "9" * 40, "SLURM_CPUS_ON_NODE": "9" * 40},
    "negative numbers": {"SLURM_JOB_ID": "-1", "SLURM_LOCALID": "-1", "SLURM_STEP_NUM_NODES": "-2"},
    "a broken list of tasks": {"SLURM_GTIDS": ",,*,0-99999, x,,"},
    "a huge list of GPUs": {"SLURM_STEP_GPUS": ",".join(["0-8191"] * 1000)},
    "a broken list of GPUs": {"SLURM_STEP_GPUS": "3-1,,-,1-", "SLURM_GPU_BIND": "map:,,-"},
    "a broken CPU binding": {
        "SLURM_CPU_BIND": "mask_cpu:",
        "SLURM_CPU_BIND_TYPE": "mask_cpu:",
        "SLURM_CPU_BIND_LIST": "",
    },
    "a list of nodes that does not end": {"SLURM_STEP_NODELIST": "nid[" * 1000},
    "a list of nodes of many brackets": {"SLURM_STEP_NODELIST": "[1]" * 20_000},
    "IFS": {"IFS": "/0123456789abcdefx ,=:"},
    "a start-up file": {"ENV": "/lumisite-evil", "BASH_ENV": "/lumisite-evil"},
    "preloaded libraries": {"LD_PRELOAD": "libc.so.6"},
    "a locale": {"LC_ALL": "tr_TR.UTF-8", "LANG": "zh_CN.GB18030", "LC_CTYPE": "C.UTF-8", "LANGUAGE": "de"},
    "shell options": {"SHELLOPTS": "errexit:nounset:noglob:noclobber:allexport:pipefail:monitor:physical"},
    "a trace into stdout": {"SHELLOPTS": "xtrace", "BASH_XTRACEFD": "1", "PS4": "\nexport LD_PRELOAD=/evil.so "},
    "bash options": {"BASHOPTS": "failglob:nullglob:nocasematch:xpg_echo:extglob:dotglob:lastpipe:execfail"},
    "an ignored glob": {"GLOBIGNORE": "/*:*"},
    "a depth of calls": {"FUNCNEST": "1"},
    "exported functions": {f"BASH_FUNC_{name}%%": "() { echo export LD_PRELOAD=/evil.so; }" for name in FUNCTIONS},
    "shell variables": {"PS4": "$(id)", "CDPATH": "/", "TMOUT": "1", "OPTIND": "7", "POSIXLY_CORRECT": "1"},
    "bytes that are no text": {"SINGULARITY_BINDPATH": "/\udcff\udc80\x01\x7f", "PATH": "/\udcc3:/usr/bin"},
    "a large environment": {f"LARGE_{number}": "x" * 100_000 for number in range(10)},
    "no home and no name": {"HOME": "", "USER": "", "LOGNAME": "", "PWD": "/nowhere", "OLDPWD": "", "SHLVL": "x"},
    "Python's and Lua's variables": {"PYTHONPATH": "/evil", "LUA_INIT": "@/evil", "PERL5OPT": "-Mevil"},
}


@pytest.mark.parametrize("fault", ENVIRONMENTS)
def test_a_hostile_environment(shared: Script, fault: str) -> None:
    given, before = ENVIRONMENTS[fault], set(Path.cwd().iterdir())
    ran = without_warnings(shared.run({**STEP, "LUMISITE_VERBOSE": "all", **given}, timeout_s=20))
    harmless(ran)
    assert set(Path.cwd().iterdir()) == before
    # It has not only survived: what the fault does not concern is there.
    if not {"SLURM_STEP_ID", "PYTHONNOUSERSITE"} & set(given):
        assert ran.exports["PYTHONNOUSERSITE"] == "1"
        assert ran.exports["LUMISITE_EXPORTS"].endswith(";")
    if fault.startswith("a long "):
        assert not set(given) & {*ran.exports, *ran.unsets} - {"LUMISITE_EXPORTS", "LUMISITE_BINDS_TASK"}
        assert ("MASTER_ADDR" in ran.exports) == ("SLURM_STEP_NODELIST" not in given)
        lists = {"SINGULARITY_BINDPATH", "SINGULARITY_BIND"}
        assert ("SINGULARITY_BINDPATH" in ran.exports) == (not lists & set(given))


#: bash keeps a few variables to itself and refuses to start, or to run anything, with some values of these.
VALUES = st.text(
    st.one_of(
        st.sampled_from("\nexport unset print=;:,/$`'\"\\()[]{}*?x01289-%"), st.characters(exclude_characters="\0")
    ),
    max_size=40,
) | st.sampled_from([EVIL, "export A=b", "\nexport A=b", " export A=b", "x\n\nunset PATH", "off\nexport A=b"])


@pytest.mark.thorough
@settings(max_examples=100)
@given(values=st.dictionaries(st.sampled_from(NAMES), VALUES, max_size=8), verbose=st.sampled_from(["", "1"]))
def test_no_value_of_any_variable_becomes_a_protocol_line(shared: Script, values: dict[str, str], verbose: str) -> None:
    values = {
        name: value.encode("utf-8", "surrogatepass").decode("utf-8", "surrogateescape")
        for name, value in values.items()
    }
    harmless(shared.run({**STEP, "LUMISITE_VERBOSE": verbose, **values}))


@pytest.mark.parametrize("name", ["LD_LIBRARY_PATH", "LD_PRELOAD", "LD_AUDIT"])
def test_libraries_that_break_the_tools_it_runs(prolog: Script, tmp_path: Path, name: str) -> None:
    broken = tmp_path / "broken"
    broken.mkdir()
    for library in ("libselinux.so.1", "libsmartcols.so.1", "libpcre2-8.so.0"):
        (broken / library).write_text("no library")
    value = broken if name == "LD_LIBRARY_PATH" else broken / "libselinux.so.1"
    ran = harmless(without_warnings(prolog.step(**{name: str(value)})))
    assert Path(ran.exports["MIOPEN_USER_DB_PATH"]).is_dir()


@pytest.mark.parametrize("shell", ["bash"])
@pytest.mark.parametrize("option", ["noexec", "onecmd", "verbose"])
def test_a_bash_that_runs_nothing_or_echoes_all_still_lets_the_task_start(prolog: Script, option: str) -> None:
    """Slurm reads stderr as it reads stdout; bash has echoed lines before the first command can stop it."""
    ran = prolog.step(SHELLOPTS=option)
    assert (ran.status, "PYTHONNOUSERSITE" in ran.exports) == (0, option == "verbose")
    assert not re.search(r"^(export|unset|print) ", ran.stderr, re.MULTILINE)


# ---- what the process is given


def start(prolog: Script, **options: object) -> subprocess.CompletedProcess[bytes]:
    given: dict[str, object] = {"env": STEP, "stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "timeout": 20}
    return subprocess.run([*prolog.command, str(prolog.path)], **{**given, **options})  # type: ignore[call-overload,no-any-return]


def test_a_working_directory_that_is_gone(shared: Script, tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()

    def leave_it() -> None:
        os.chdir(gone)
        gone.rmdir()

    done = start(shared, preexec_fn=leave_it)
    assert done.returncode == 0
    assert b"export PYTHONNOUSERSITE=1\n" in done.stdout


def test_descriptors_that_are_closed_few_or_take_nothing(shared: Script) -> None:
    for number in (0, 1, 2):
        assert start(shared, preexec_fn=lambda number=number: os.close(number), stdin=None, stdout=None).returncode == 0
    # dash and busybox need a dozen to run any script at all, and ksh crashes with less than 18.
    few = 18 if shared.command[0].endswith("as-ksh/sh") else 13
    assert start(shared, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (few, few))).returncode == 0
    reader, writer = os.pipe()
    os.close(reader)
    with Path("/dev/full").open("w") as full, open(writer, "w") as gone:  # noqa: PTH123 - a descriptor
        for stdout in (full, gone):
            done = start(shared, stdout=stdout, stderr=subprocess.PIPE)
            assert (done.returncode, done.stderr) == (0, b"")


def no_file_grows() -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))


def test_no_space_for_files(prolog: Script, tmp_path: Path) -> None:
    """Whoever writes past the limit gets a signal, which would end the prolog, and the task with it."""
    with (tmp_path / "out").open("w") as out:
        assert start(prolog, preexec_fn=no_file_grows, stdout=out).returncode == 0
    done = start(prolog, preexec_fn=no_file_grows)
    assert done.returncode == 0
    assert b"export PYTHONNOUSERSITE=1\n" in done.stdout
    assert b"MIOPEN_USER_DB_PATH" not in done.stdout, "no cache could be written"


@pytest.mark.parametrize("kind", ["fifo", "link", "directory"])
def test_a_file_of_ours_that_is_none_is_not_opened(prolog: Script, tmp_path: Path, kind: str) -> None:
    space = Path(prolog.step().exports["LUMISITE_PRIVATE"]) / ".space"
    space.unlink()
    (tmp_path / "mine").write_text("mine")
    {"fifo": os.mkfifo, "link": lambda path: path.symlink_to(tmp_path / "mine"), "directory": Path.mkdir}[kind](space)
    assert "MIOPEN_USER_DB_PATH" not in harmless(prolog.run(STEP, timeout_s=10)).exports
    assert (tmp_path / "mine").read_text() == "mine"


def changed(prolog: Script, *changes: tuple[str, str]) -> None:
    text = prolog.path.read_text()
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    prolog.path.write_text(text)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGUSR1])
def test_a_signal_while_it_runs(prolog: Script, tmp_path: Path, number: signal.Signals) -> None:
    """It waits for a fifo in place of a file of the kernel; what it had to say by then is still said."""
    os.mkfifo(tmp_path / "fifo")
    changed(prolog, (f"{tmp_path}/cpuset", str(tmp_path / "fifo")))
    command = [*prolog.command, str(prolog.path)]
    step = {**STEP, "SLURM_TASK_PID": str(os.getpid() + 10**8)}
    with subprocess.Popen(command, env=step, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        with contextlib.suppress(BrokenPipeError), (tmp_path / "fifo").open("w") as fifo:  # opens when the prolog reads
            process.send_signal(number)
            fifo.write("Name: x\n")
        stdout, stderr = process.communicate(timeout=20)
    assert harmless(Ran(process.returncode, stdout, stderr)).exports["PYTHONNOUSERSITE"] == "1"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("PATH=/usr/bin:/bin:/usr/sbin:/sbin", "PATH=/nowhere"),
        *(("CPUSET", place) for place in ("/nowhere/cpuset", "/dev/null", "/usr")),
        ("/dev/null", "/nowhere/null"),
        ("for folder in /*", "for folder in /nowhere/*"),
    ],
)
def test_a_node_that_lacks_something(prolog: Script, tmp_path: Path, old: str, new: str) -> None:
    changed(prolog, (old.replace("CPUSET", f"{tmp_path}/cpuset"), new))
    ran = prolog.step()
    assert ran.status == 0
    if old != "/dev/null":
        assert harmless(ran).exports["PYTHONNOUSERSITE"] == "1"


@pytest.mark.skipif(
    not is_root(), reason="the limit on processes does not bind root's own, and only root can change users"
)
@pytest.mark.parametrize("shell", ["dash", "busybox"])
def test_no_process_may_be_started(shell: str) -> None:
    """What was decided before the first fork is said all the same; bash says it too, after trying for 15 seconds."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as place:
        folder = Path(place)
        folder.chmod(0o755)
        spank = lay_out(folder, lumi_like_files())

        def be_nobody() -> None:
            os.setgid(65534)
            os.setuid(65534)
            resource.setrlimit(resource.RLIMIT_NPROC, (0, 0))

        prolog = Script(tuple(shell_command(shell, folder)), spank / "task_prolog")
        done = start(prolog, preexec_fn=be_nobody, stderr=subprocess.PIPE)
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"export PYTHONNOUSERSITE=1\n" in done.stdout


def test_a_site_with_next_to_nothing_gives_a_script_that_runs_to_its_end(tmp_path: Path, prolog: Script) -> None:
    """A list that is empty must not leave an `if` without a command, which would end the script unseen."""
    text = site_text()
    for start_, end in (("\nbinds:", "\nsettings:"), ("\nsettings:", "\nmodules:")):
        text = text[: text.index(start_)] + text[text.index(end) :]
    text = re.sub(r"file_systems:\n(  - .*\n)+", "file_systems: []\n", text)
    text = re.sub(r"partitions:\n(  .*\n)+", "partitions: {}\n", text)
    sparse = Script(prolog.command, lay_out(tmp_path / "sparse", render_files(load_text(text))) / "task_prolog")
    assert ": no CPU binding" in harmless(sparse.step(LUMISITE_VERBOSE="all")).prints[-1]
