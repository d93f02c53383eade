"""The task prolog, run for real under each shell that may be /bin/sh: one test for each rule that users are told."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support.prologs import (
    SHELLS,
    STEP,
    Ran,
    Script,
    lay_out,
    lumi_like,
    lumi_like_files,
    render_files,
    shell_command,
)

#: The variables that name private directories.
CACHES = {setting.name for setting in lumi_like().site.settings if setting.directory}
PROTOCOL = re.compile(r"(export [A-Za-z_][A-Za-z0-9_]*=|unset [A-Za-z_][A-Za-z0-9_]*$|print lumisite: ).*", re.DOTALL)


@pytest.fixture(params=SHELLS)
def prolog(request: pytest.FixtureRequest, tmp_path: Path) -> Script:
    spank = lay_out(tmp_path, lumi_like_files())
    return Script(tuple(shell_command(request.param, tmp_path)), spank / "task_prolog")


def sound(ran: Ran) -> Ran:
    """Every run: the task starts, and Slurm reads nothing but whole protocol lines."""
    assert (ran.status, ran.stderr) == (0, "")
    assert ran.stdout == "" or ran.stdout.endswith("\n")
    for line in ran.lines:
        assert PROTOCOL.fullmatch(line), line
    return ran


# ---- where it acts at all


@pytest.mark.parametrize("step", [None, "-5", "4294967291"])
def test_nothing_in_the_batch_step(prolog: Script, step: str | None) -> None:
    """None before Slurm 26.05, -5 from then on."""
    assert sound(prolog.step(SLURM_STEP_ID=step)).stdout == ""


@pytest.mark.parametrize("step", ["-6", "4294967290", "4294967292"])
def test_nothing_in_an_interactive_salloc_step(prolog: Script, step: str) -> None:
    assert sound(prolog.step(SLURM_STEP_ID=step)).stdout == ""


@pytest.mark.parametrize("value", ["off", "0", "no"])
def test_off_switches_it_off(prolog: Script, value: str) -> None:
    assert sound(prolog.step(LUMISITE=value)).stdout == ""


def test_export_none_leaves_it_working(prolog: Script) -> None:
    exports = sound(prolog.step(PATH=None)).exports
    assert exports["NCCL_SOCKET_IFNAME"] == "hsn0,hsn1,hsn2,hsn3"
    assert exports["SINGULARITY_BINDPATH"]
    assert exports["PATH"].startswith(str(prolog.path.parent / "bin"))


def test_a_site_prolog_and_a_users_prolog_do_everything_once(prolog: Script) -> None:
    first = sound(prolog.step(SINGULARITY_BINDPATH="/mine"))
    second = sound(prolog.run(first.task_environment({**STEP, "SINGULARITY_BINDPATH": "/mine"})))
    assert second.stdout == ""


# ---- values


def test_the_step_counts_not_the_job(prolog: Script) -> None:
    assert "NCCL_CROSS_NIC" not in sound(prolog.step(SLURM_STEP_NUM_NODES="1", SLURM_NNODES="8")).exports


@pytest.mark.parametrize("value", ["0", "", " ", "a;b", "$(touch x)", "1", "*"])
def test_the_users_value_wins(prolog: Script, value: str) -> None:
    ran = sound(prolog.step(NCCL_CROSS_NIC=value))
    assert "NCCL_CROSS_NIC" not in ran.exports
    assert "NCCL_CROSS_NIC" not in ran.unsets
    assert ";NCCL_CROSS_NIC=" not in ran.exports["LUMISITE_EXPORTS"]


def test_its_own_earlier_exports_are_not_taken_for_the_users(prolog: Script) -> None:
    """A nested srun, or an salloc inside a step: one node inside a step of two."""
    outer = sound(prolog.step()).task_environment(STEP)
    inner = sound(prolog.run({**outer, "SLURM_STEP_ID": "1", "SLURM_STEP_NUM_NODES": "1"}))
    assert {"NCCL_CROSS_NIC", "FI_MR_CACHE_MONITOR"} <= set(inner.unsets)
    assert inner.exports["MASTER_PORT"] != outer["MASTER_PORT"]
    assert ";NCCL_CROSS_NIC=" not in inner.exports["LUMISITE_EXPORTS"]
    again = inner.task_environment({**outer, "SLURM_STEP_ID": "2"})
    assert sound(prolog.run({**again, "SLURM_STEP_ID": "2"})).exports["NCCL_CROSS_NIC"] == "1"


def test_a_value_that_the_user_changed_after_it_is_the_users(prolog: Script) -> None:
    outer = sound(prolog.step()).task_environment(STEP)
    inner = sound(prolog.run({**outer, "SLURM_STEP_ID": "1", "SLURM_STEP_NUM_NODES": "1", "NCCL_CROSS_NIC": "Socket"}))
    assert "NCCL_CROSS_NIC" not in inner.unsets
    assert "NCCL_CROSS_NIC" not in inner.exports


def test_a_record_that_says_so_does_not_make_another_value_ours(prolog: Script) -> None:
    forged = ";NCCL_CROSS_NIC=Socket;FI=y;"
    ran = sound(prolog.step(LUMISITE_EXPORTS=forged, NCCL_CROSS_NIC="Socket;FI=y", SLURM_STEP_NUM_NODES="1"))
    assert "NCCL_CROSS_NIC" not in ran.unsets


def test_a_step_inside_a_step_changes_nothing_that_still_fits(prolog: Script) -> None:
    outer = sound(prolog.step()).task_environment(STEP)
    inner = sound(prolog.run({**outer, "SLURM_STEP_ID": "1"}))
    changed = {name for name, value in inner.exports.items() if outer.get(name) != value}
    assert changed == {"LUMISITE_DONE", "LUMISITE_EXPORTS", "MASTER_PORT"}
    assert not set(inner.unsets) & changed


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize(
    "stack", ["25.03-rocm7.0", "25.03-rocm6.2", "99.99-rocm1.0", "", "*", "25.03-rocm7.0\nexport EVIL=1"]
)
def test_what_depends_on_the_image_is_left_to_the_wrapper_whatever_the_module(
    shell: str, stack: str, tmp_path: Path
) -> None:
    spank = lay_out(tmp_path, lumi_like_files("6.2", "7.0"))
    prolog = Script(tuple(shell_command(shell, tmp_path)), spank / "task_prolog")
    for nodes in ("1", "2"):
        ran = sound(prolog.step(LUMISITE_STACK=stack, SLURM_STEP_NUM_NODES=nodes))
        assert not {"NCCL_NET_GDR_LEVEL", "NCCL_NET"} & set(ran.exports)


def test_cpu_partitions_get_nothing_that_is_meant_for_gpus(prolog: Script, tmp_path: Path) -> None:
    meant = {setting.name for setting in lumi_like().site.settings if setting.when.gpus}
    for partition in ("standard", "small", "debug", "largemem", "no-such"):
        ran = sound(prolog.step(SLURM_JOB_PARTITION=partition))
        assert not meant & set(ran.exports), partition
        assert ran.exports["PYTHONNOUSERSITE"] == "1"
    assert list((tmp_path / "tmp").iterdir()) == []
    unknown = sound(prolog.step(SLURM_JOB_PARTITION="no-such", SLURM_STEP_GPUS="0,1"))
    assert unknown.exports["NCCL_CROSS_NIC"] == "1"


# ---- binds


def binds(ran: Ran) -> list[str]:
    return ran.exports["SINGULARITY_BINDPATH"].split(",")


def test_binds_that_exist_here_are_appended_to_what_the_user_has(prolog: Script, tmp_path: Path) -> None:
    ran = sound(prolog.step(SINGULARITY_BINDPATH="/my data:/data:ro,/x"))
    assert binds(ran) == [
        "/my data:/data:ro",
        "/x",
        "/usr",
        f"{tmp_path}/projappl",
        f"{tmp_path}/opt/cray",
        f"{tmp_path}/libcxi.so.1",
        f"{tmp_path}/spool",
    ]
    assert ran.exports["LUMISITE_BINDS_TASK"] == f"{tmp_path}/spool"
    assert ran.exports["LUMISITE_BINDS_SINGULARITY_CPEBITS"] == f"{tmp_path}/opt/cray,{tmp_path}/libcxi.so.1"


@pytest.mark.parametrize("mine", ["{0}/opt/cray", "/else:{0}/opt/cray", "/else:{0}/opt/cray:ro"])
def test_no_bind_is_there_twice(prolog: Script, tmp_path: Path, mine: str) -> None:
    ran = sound(prolog.step(SINGULARITY_BINDPATH=mine.format(tmp_path)))
    assert f"{tmp_path}/opt/cray" not in binds(ran)[1:]
    elsewhere = sound(prolog.step(SINGULARITY_BIND=mine.format(tmp_path)))
    assert f"{tmp_path}/opt/cray" not in binds(elsewhere)
    second = sound(prolog.run({**ran.task_environment(STEP), "SLURM_STEP_ID": "1"}))
    assert "SINGULARITY_BINDPATH" not in second.exports


def test_a_missing_required_bind_is_said_once_for_each_node_by_its_name(prolog: Script, tmp_path: Path) -> None:
    (tmp_path / "libcxi.so.1").unlink()
    first = sound(prolog.step(SLURM_LOCALID="0"))
    assert any(f"{tmp_path}/libcxi.so.1 not found on nid005124" in line for line in first.prints)
    assert f"{tmp_path}/libcxi.so.1" not in binds(first)
    assert not sound(prolog.step(SLURM_LOCALID="1")).prints


def test_what_a_module_brought_and_the_node_lacks_is_taken_out_so_that_containers_start(
    prolog: Script, tmp_path: Path
) -> None:
    lost, marker = f"{tmp_path}/libcxi.so.1", "LUMISITE_BINDS_SINGULARITY_CPEBITS"
    (tmp_path / "libcxi.so.1").unlink()
    loaded = {
        "LUMISITE_STACK": "25.03-rocm6.2",
        "SINGULARITY_BINDPATH": f"/mine,{tmp_path}/opt/cray,{lost},{lost}/mine",
        marker: f"{tmp_path}/opt/cray,{lost}",
    }
    ran = sound(prolog.step(**loaded))
    assert binds(ran)[:3] == ["/mine", f"{tmp_path}/opt/cray", f"{lost}/mine"]
    assert ran.exports[marker] == f"{tmp_path}/opt/cray"
    # On another node the next step has it again.
    (tmp_path / "libcxi.so.1").touch()
    second = sound(prolog.run({**ran.task_environment({**STEP, **loaded}), "SLURM_STEP_ID": "1"}))
    assert lost in binds(second)
    assert second.exports[marker] == f"{tmp_path}/opt/cray,{lost}"
    # What the user has there is the user's.
    (tmp_path / "libcxi.so.1").unlink()
    assert lost in binds(sound(prolog.step(**{**loaded, marker: f"{tmp_path}/opt/cray"})))


def test_a_list_of_nothing_but_what_the_node_lacks_is_empty(prolog: Script, tmp_path: Path) -> None:
    for name in ("libcxi.so.1", "opt/cray", "opt", "projappl", "spool"):
        path = tmp_path / name
        path.unlink() if path.is_file() else path.rmdir()
    lost = f"{tmp_path}/opt/cray"
    unloaded = {f"LUMISITE_BINDS_{name}": None for name in ("SINGULARITY_USERFILESYSTEMS", "SINGULARITY_AI_BINDINGS")}
    mine = {"LUMISITE_STACK": "25.03-rocm6.2", "LUMISITE_BINDS_SINGULARITY_CPEBITS": lost}
    ran = sound(prolog.step(SINGULARITY_BINDPATH=lost, **mine, **unloaded))
    assert ran.exports["SINGULARITY_BINDPATH"] == ""


def test_a_module_that_the_user_unloaded_stays_unloaded(prolog: Script, tmp_path: Path) -> None:
    ran = sound(prolog.step(LUMISITE_STACK="25.03-rocm6.2", LUMISITE_BINDS_SINGULARITY_USERFILESYSTEMS=""))
    assert f"{tmp_path}/opt/cray" not in binds(ran)
    assert "/usr" in binds(ran)


def test_a_users_list_with_a_line_break_stays_as_it_is(prolog: Script) -> None:
    ran = sound(prolog.step(SINGULARITY_BINDPATH="/a\nexport LD_PRELOAD=/evil.so"))
    assert "SINGULARITY_BINDPATH" not in ran.exports
    assert "LD_PRELOAD" not in ran.exports


def test_a_list_that_slurm_would_drop_stays_as_it_is(prolog: Script) -> None:
    ran = sound(prolog.step(SINGULARITY_BINDPATH="/" + "a" * 129_990))
    assert "SINGULARITY_BINDPATH" not in ran.exports
    assert "LUMISITE_BINDS_TASK" not in ran.exports


# ---- PATH


def test_the_wrapper_comes_first_on_path_once(prolog: Script) -> None:
    own = str(prolog.path.parent / "bin")
    assert sound(prolog.step(PATH="/my bin::/usr/bin")).exports["PATH"] == f"{own}:/my bin::/usr/bin"
    assert "PATH" not in sound(prolog.step(PATH=f"/usr/bin:{own}:/bin")).exports
    assert "PATH" not in sound(prolog.step(PATH="/usr/bin\nexport EVIL=1")).exports
    assert "PATH" not in sound(prolog.step(PATH="/x" * 65_250)).exports, "more than Slurm takes"


def test_a_job_keeps_the_release_that_it_started_with(prolog: Script, tmp_path: Path) -> None:
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "current").symlink_to(tmp_path)
    (tmp_path / "site" / "policy").write_text("on default\n")
    through_the_link = Script(prolog.command, tmp_path / "site/current/spank/task_prolog")
    path = sound(through_the_link.step()).exports["PATH"]
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
    ],
)
def test_the_master_is_the_first_node_of_the_step(prolog: Script, nodes: str, first: str) -> None:
    assert sound(prolog.step(SLURM_STEP_NODELIST=nodes)).exports["MASTER_ADDR"] == first


@pytest.mark.parametrize(
    "nodes", ["", "a b", "[", "nid00[1-3]x[4,5]", "nid[", "nid[1-2", "$(reboot)", "a\nexport EVIL=1", "]", ",a"]
)
def test_no_master_from_a_list_that_is_not_one(prolog: Script, nodes: str) -> None:
    exports = sound(prolog.step(SLURM_STEP_NODELIST=nodes)).exports
    assert not {"MASTER_ADDR", "EVIL"} & set(exports)


def test_no_master_where_rank_0_may_be_anywhere(prolog: Script) -> None:
    assert "MASTER_ADDR" not in sound(prolog.step(SLURM_DISTRIBUTION="arbitrary")).exports


def test_the_port_is_the_same_for_all_tasks_and_another_for_another_step(prolog: Script) -> None:
    def port(**changes: str) -> int:
        return int(sound(prolog.step(**changes)).exports["MASTER_PORT"])

    assert port(SLURM_PROCID="0", SLURM_NODEID="1") == port()
    ports = {port(SLURM_JOB_ID=str(job), SLURM_STEP_ID=str(step)) for job in (1, 2, 99_999_999) for step in (0, 1, 2)}
    assert len(ports) == 9
    # Above those that Ray gives its workers (--max-worker-port), below the ephemeral ones.
    assert all(19_999 < value < 28_000 and value != 29_500 for value in ports)


@pytest.mark.parametrize(
    ("given", "changed"),
    [
        ({"SINGULARITY_BINDPATH": "/mine"}, "SINGULARITY_BINDPATH"),
        ({"SINGULARITY_BINDPATH": "/old", "APPTAINER_BINDPATH": "/mine"}, "APPTAINER_BINDPATH"),
        ({}, "APPTAINER_BINDPATH"),
        ({"SINGULARITY_BINDPATH": "/old", "APPTAINER_BINDPATH": ",/mine"}, "APPTAINER_BINDPATH"),
    ],
)
def test_apptainer_keeps_the_list_that_the_user_has(given: dict[str, str], changed: str, tmp_path: Path) -> None:
    site = lumi_like(("  prefix: SINGULARITY\n", "  prefix: APPTAINER\n"))
    prolog = Script(tuple(shell_command("dash", tmp_path)), lay_out(tmp_path, render_files(site)) / "task_prolog")
    exports = prolog.step(**given).exports
    lists = {name: value for name, value in exports.items() if name.endswith("_BINDPATH")}
    assert list(lists) == [changed]
    assert lists[changed].lstrip(",").startswith("/mine," if given else "/usr,")


@pytest.mark.parametrize(
    ("value", "told"),
    [
        ("eth0", "NCCL_SOCKET_IFNAME=eth0"),
        ("", "NCCL_SOCKET_IFNAME="),
        ("eth0\nexport EVIL=1", "NCCL_SOCKET_IFNAME"),
        ("eth0\x1b[2J", "NCCL_SOCKET_IFNAME"),
        ("x" * 5000, "NCCL_SOCKET_IFNAME"),
        ("~a b$(c)%s\\n*", "NCCL_SOCKET_IFNAME=~a b$(c)%s\\n*"),
    ],
)
def test_what_was_set_before_is_said_with_its_value_and_blamed_on_nobody(prolog: Script, value: str, told: str) -> None:
    ran = sound(prolog.step(NCCL_SOCKET_IFNAME=value, LUMISITE_VERBOSE="all"))
    (line,) = [line for line in ran.prints if ": NCCL_SOCKET_IFNAME" in line]
    assert line == f"lumisite: nid005124 rank 3: {told} not changed: it was set before lumisite ran"
    assert not [line for line in ran.prints if " you " in f"{line} " and "not changed" in line]
    assert "EVIL" not in ran.exports
