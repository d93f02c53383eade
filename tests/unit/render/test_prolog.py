"""The task prolog, run for real under each shell that may be /bin/sh: one test for each rule that users are told.

That it sets and binds what is decided for each step and kind of node is in `test_rank.py`.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from tests.support.prologs import STEP, Ran, Script, lay_out, lumi_like, render_files, shell_command

PROTOCOL = re.compile(r"(export [A-Za-z_][A-Za-z0-9_]*=|unset [A-Za-z_][A-Za-z0-9_]*$|print lumisite: ).*", re.DOTALL)
CPE, USERS = "LUMISITE_BINDS_SINGULARITY_CPEBITS", "LUMISITE_BINDS_SINGULARITY_USERFILESYSTEMS"
STACK = "25.03-rocm6.2"


def sound(ran: Ran) -> Ran:
    """Every run: the task starts, and Slurm reads nothing but whole protocol lines."""
    assert (ran.status, ran.stderr) == (0, "")
    assert ran.stdout == "" or ran.stdout.endswith("\n")
    for line in ran.lines:
        assert PROTOCOL.fullmatch(line), line
    return ran


def rendered(prolog: Script, folder: Path, *changes: tuple[str, str]) -> Script:
    """Return the prolog of a site that differs."""
    return Script(prolog.command, lay_out(folder, render_files(lumi_like(*changes), rocm=["6.2"])) / "task_prolog")


# ---- where it acts at all


@pytest.mark.parametrize(
    "changes",
    [
        # A batch step has no id, or -5 since Slurm 26.05; an interactive salloc has -6, or 4294967290.
        *({"SLURM_STEP_ID": step} for step in (None, "-5", "4294967291", "-6", "4294967290", "4294967292")),
        *({"LUMISITE": word} for word in ("off", "OFF", "0", "no")),
    ],
    ids=str,
)
def test_where_there_is_nothing_to_do_nothing_is_said(prolog: Script, changes: dict[str, str | None]) -> None:
    assert sound(prolog.step(**changes)).stdout == ""


def test_a_step_inside_a_step_takes_back_what_no_longer_fits_and_changes_nothing_else(prolog: Script) -> None:
    outer = sound(prolog.step()).task_environment(STEP)
    assert sound(prolog.run(outer)).stdout == "", "a site's prolog and a user's do everything once"
    alike = sound(prolog.run({**outer, "SLURM_STEP_ID": "1"}))
    changed = {name for name, value in alike.exports.items() if outer.get(name) != value}
    assert changed == {"LUMISITE_DONE", "LUMISITE_EXPORTS", "MASTER_PORT"}
    assert not set(alike.unsets) & changed
    # The number of nodes is the step's, not the job's.
    one_node = {**outer, "SLURM_STEP_ID": "1", "SLURM_STEP_NUM_NODES": "1"}
    smaller = sound(prolog.run(one_node))
    assert {"NCCL_CROSS_NIC", "FI_MR_CACHE_MONITOR"} <= set(smaller.unsets)
    assert ";NCCL_CROSS_NIC=" not in smaller.exports["LUMISITE_EXPORTS"]
    # A value that was changed in between is the user's, also where the record says otherwise.
    for record, value in ((outer["LUMISITE_EXPORTS"], "0"), (";NCCL_CROSS_NIC=0;FI=y;", "0;FI=y")):
        ran = sound(prolog.run({**one_node, "LUMISITE_EXPORTS": record, "NCCL_CROSS_NIC": value}))
        assert "NCCL_CROSS_NIC" not in {*ran.unsets, *ran.exports}


# ---- settings


@pytest.mark.parametrize(
    ("value", "quoted"),
    [
        ("", "="),
        ("eth0\nexport EVIL=1", ""),
        ("eth0\x1b[2J", ""),
        ("x" * 201, ""),
        ("~a b;$(c)%s\\n*", "=~a b;$(c)%s\\n*"),
    ],
)
def test_a_value_that_is_there_stays_and_is_named(prolog: Script, value: str, quoted: str) -> None:
    ran = sound(prolog.step(NCCL_SOCKET_IFNAME=value, LUMISITE_VERBOSE="all"))
    assert "NCCL_SOCKET_IFNAME" not in {*ran.exports, *ran.unsets}
    assert ";NCCL_SOCKET_IFNAME=" not in ran.exports["LUMISITE_EXPORTS"]
    (line,) = [line for line in ran.prints if "NCCL_SOCKET_IFNAME" in line]
    words = "not changed: it was set before lumisite ran"
    assert line == f"lumisite: nid005124 rank 3: NCCL_SOCKET_IFNAME{quoted} {words}"


def test_in_a_partition_that_is_not_described_granted_gpus_are_what_tells_of_some(prolog: Script) -> None:
    for gpus in ("", "0,1"):
        exports = sound(prolog.step(SLURM_JOB_PARTITION="no-such", SLURM_STEP_GPUS=gpus)).exports
        assert ("NCCL_CROSS_NIC" in exports) == bool(gpus)


@pytest.mark.parametrize("stack", ["99.99-rocm1.0", "", "*", f"{STACK}\nexport EVIL=1"])
def test_a_module_that_is_not_rendered_here_counts_as_the_default(prolog: Script, stack: str) -> None:
    assert sound(prolog.step(LUMISITE_STACK=stack)).exports["LUMISITE_STEP"] == f"{STACK}/several/gpu/lumi-g"


def test_the_first_task_of_a_node_says_all_and_the_others_what_is_their_own(prolog: Script) -> None:
    def said(local_id: str, verbose: str = "1", **changes: str) -> list[str]:
        """Return what a task of the second node prints, but for missing paths; its rank is its number there and 8."""
        task = {"SLURM_LOCALID": local_id, "SLURM_PROCID": str(8 + int(local_id)), "LUMISITE_VERBOSE": verbose}
        prints = sound(prolog.step(SLURM_TASK_PID=str(os.getpid() + 10**8), **task, **changes)).prints
        return [line for line in prints if "containers start without it" not in line]

    first = said("0")
    assert all(line.startswith("lumisite: nid005124 rank 8: ") for line in first)
    assert any("NCCL_SOCKET_IFNAME=" in line for line in first)
    assert any("BINDPATH=" in line for line in first)
    (line,) = said("3")
    assert re.match("lumisite: nid005124 rank 11: .*25-31", line), "its CPUs"
    assert len(said("0", "all")) == len(said("5", "all")) == len(first)
    assert said("4", LUMISITE_CPU_BIND="off") == ["lumisite: nid005124 rank 12: no CPU binding: the binding is yours"]
    assert [said("0", word) for word in ("", "0", "no", "off")] == [[]] * 4


# ---- binds


def binds(ran: Ran) -> list[str]:
    return ran.exports["SINGULARITY_BINDPATH"].split(",")


def test_binds_that_exist_here_are_appended_to_what_the_user_has(prolog: Script, tmp_path: Path) -> None:
    ran = sound(prolog.step(SINGULARITY_BINDPATH="/my data:/data:ro,/x"))
    ours = [f"{tmp_path}/{name}" for name in ("projappl", "opt/cray", "libcxi.so.1", "spool")]
    assert binds(ran) == ["/my data:/data:ro", "/x", "/usr", *ours]
    assert ran.exports["LUMISITE_BINDS_TASK"] == f"{tmp_path}/spool"
    assert ran.exports[CPE] == f"{tmp_path}/opt/cray,{tmp_path}/libcxi.so.1"


@pytest.mark.parametrize("mine", ["{0}/opt/cray", "/else:{0}/opt/cray", "/else:{0}/opt/cray:ro"])
def test_no_bind_is_there_twice(prolog: Script, tmp_path: Path, mine: str) -> None:
    ran = sound(prolog.step(SINGULARITY_BINDPATH=mine.format(tmp_path)))
    assert f"{tmp_path}/opt/cray" not in binds(ran)[1:]
    assert f"{tmp_path}/opt/cray" not in binds(sound(prolog.step(SINGULARITY_BIND=mine.format(tmp_path))))


def test_what_the_node_lacks_is_said_once_and_taken_out_of_what_a_module_brought(
    prolog: Script, tmp_path: Path
) -> None:
    lost = f"{tmp_path}/libcxi.so.1"
    Path(lost).unlink()
    first = sound(prolog.step(SLURM_LOCALID="0"))
    assert f"lumisite: {lost} not found on nid005124: containers start without it" in first.prints
    assert lost not in binds(first)
    assert not sound(prolog.step(SLURM_LOCALID="1")).prints
    cray = f"{tmp_path}/opt/cray"
    loaded = {
        "LUMISITE_STACK": STACK,
        "SINGULARITY_BINDPATH": f"/mine,{cray},{lost},{lost}/mine",
        CPE: f"{cray},{lost}",
    }
    ran = sound(prolog.step(**loaded))
    assert binds(ran)[:3] == ["/mine", cray, f"{lost}/mine"]
    assert ran.exports[CPE] == cray
    # What the user has there is the user's.
    assert lost in binds(sound(prolog.step(**{**loaded, CPE: cray})))
    # On another node the next step has it again.
    Path(lost).touch()
    second = sound(prolog.run({**ran.task_environment({**STEP, **loaded}), "SLURM_STEP_ID": "1"}))
    assert lost in binds(second)
    assert second.exports[CPE] == f"{cray},{lost}"


def test_a_module_that_the_user_unloaded_stays_unloaded(prolog: Script, tmp_path: Path) -> None:
    (tmp_path / "libcxi.so.1").unlink()
    ran = sound(prolog.step(LUMISITE_STACK=STACK, SLURM_LOCALID="0", **{USERS: ""}))
    assert "/usr" in binds(ran)
    assert f"{tmp_path}/opt/cray" not in binds(ran)
    assert not any("libcxi" in line for line in ran.prints)


@pytest.mark.parametrize("mine", ["/a\nexport LD_PRELOAD=/evil.so", "/" + "a" * 129_990], ids=["line break", "long"])
def test_a_list_that_slurm_would_not_take_stays_as_it_is(prolog: Script, mine: str) -> None:
    assert not {"SINGULARITY_BINDPATH", "LD_PRELOAD"} & set(sound(prolog.step(SINGULARITY_BINDPATH=mine)).exports)


@pytest.mark.parametrize(
    ("given", "changed"),
    [
        ({"SINGULARITY_BINDPATH": "/mine"}, "SINGULARITY_BINDPATH"),
        ({"SINGULARITY_BINDPATH": "/old", "APPTAINER_BINDPATH": ",/mine"}, "APPTAINER_BINDPATH"),
        ({}, "APPTAINER_BINDPATH"),
    ],
)
def test_apptainer_keeps_the_list_that_the_user_has(given: dict[str, str], changed: str, tmp_path: Path) -> None:
    dash = Script(tuple(shell_command("dash", tmp_path)), tmp_path)
    exports = rendered(dash, tmp_path, ("  prefix: SINGULARITY\n", "  prefix: APPTAINER\n")).step(**given).exports
    lists = {name: value for name, value in exports.items() if name.endswith("_BINDPATH")}
    assert list(lists) == [changed]
    assert lists[changed].lstrip(",").startswith("/mine," if given else "/usr,")


# ---- PATH


def test_the_wrapper_comes_first_on_path_once(prolog: Script) -> None:
    own = str(prolog.path.parent / "bin")
    assert sound(prolog.step(PATH="/my bin::/usr/bin")).exports["PATH"] == f"{own}:/my bin::/usr/bin"
    assert sound(prolog.step(PATH=None)).exports["PATH"].startswith(own)
    for path in (f"/usr/bin:{own}:/bin", "/usr/bin\nexport EVIL=1", "/x" * 65_250):  # the last is more than Slurm takes
        assert "PATH" not in sound(prolog.step(PATH=path)).exports


def test_a_job_keeps_the_release_that_it_started_with(prolog: Script, tmp_path: Path) -> None:
    (tmp_path / "site").mkdir()
    (tmp_path / "site/current").symlink_to(tmp_path)
    (tmp_path / "site/policy").write_text("on default\n")
    path = sound(Script(prolog.command, tmp_path / "site/current/spank/task_prolog").step()).exports["PATH"]
    assert re.match(rf"{re.escape(str(tmp_path))}/site/releases/[^/]+/spank/bin:", path)


# ---- torch.distributed


@pytest.mark.parametrize(
    ("nodes", "first"),
    [
        ("nid005124", "nid005124"),
        ("nid[005124-005130,006000]", "nid005124"),
        ("nid[005124,005130-006000],x1", "nid005124"),
        ("a-b-[07-09]-c,d", "a-b-07-c"),
        ("plain,other[1-2]", "plain"),
        ("host.example.org,b", "host.example.org"),
        *((text, None) for text in ("", "a b", "[", "nid00[1-3]x[4,5]", "nid[1-2", "$(reboot)", "a\nexport X=1", ",a")),
    ],
)
def test_the_master_is_the_first_node_of_the_step(prolog: Script, nodes: str, first: str | None) -> None:
    assert sound(prolog.step(SLURM_STEP_NODELIST=nodes)).exports.get("MASTER_ADDR") == first
    spread = sound(prolog.step(SLURM_STEP_NODELIST=nodes, SLURM_DISTRIBUTION="arbitrary"))
    assert "MASTER_ADDR" not in spread.exports, "rank 0 may be anywhere"


def test_the_port_is_the_same_for_all_tasks_and_another_for_another_step(prolog: Script) -> None:
    def port(**changes: str) -> int:
        return int(sound(prolog.step(**changes)).exports["MASTER_PORT"])

    assert port(SLURM_PROCID="0", SLURM_NODEID="1") == port()
    ports = {port(SLURM_JOB_ID=str(job), SLURM_STEP_ID=str(step)) for job in (1, 2, 99_999_999) for step in (0, 1, 2)}
    assert len(ports) == 9
    assert "MASTER_PORT" not in sound(prolog.step(SLURM_JOB_ID=None)).exports
    # Above those that Ray gives its workers (--max-worker-port), below the ephemeral ones.
    assert all(19_999 < value < 28_000 and value != 29_500 for value in ports)


def test_with_a_suffix_torchruns_c10d_is_told_which_node_leads(prolog: Script, tmp_path: Path) -> None:
    """No node knows the name with the suffix as its own, and all would wait for another."""
    assert not any(name.startswith("PET_") for name in sound(prolog.step(SLURM_PROCID="0")).exports)
    prolog = rendered(prolog, tmp_path / "suffix", ("  interfaces: [hsn0,", "  host_suffix: i\n  interfaces: [hsn0,"))
    first, other = (sound(prolog.step(SLURM_PROCID=rank)) for rank in "01")
    assert first.exports["MASTER_ADDR"] == other.exports["MASTER_ADDR"] == "nid005124i"
    assert [each.exports["PET_LOCAL_ADDR"] for each in (first, other)] == [f"{STEP['SLURMD_NODENAME']}i"] * 2
    assert (first.exports["PET_RDZV_CONF"], "PET_RDZV_CONF" in other.exports) == ("is_host=1", False)
    # In a step inside the step only its own first task leads.
    inner = sound(prolog.step(SLURM_PROCID="1", SLURM_STEP_ID="1", **first.exports))
    assert "PET_RDZV_CONF" in inner.unsets
    # What the user says stays, and where the address is the user's, so is all of it.
    mine = sound(prolog.step(SLURM_PROCID="0", PET_RDZV_CONF="timeout=9", PET_LOCAL_ADDR="x")).exports
    theirs = sound(prolog.step(SLURM_PROCID="0", MASTER_ADDR="nid000009")).exports
    assert not any(name.startswith("PET_") for name in (*mine, *theirs))
