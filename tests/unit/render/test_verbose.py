"""`LUMISITE_VERBOSE`: whose lines are whose, one block for a node, and from its other tasks only what is their own."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.support.kernels import be_node, kernel_files
from tests.support.prologs import SHELLS, STEP, Script, lay_out, lumi_like, lumi_like_files, shell_command
from tests.support.wrappers import LAIF, Wrapper, make

NODE = STEP["SLURMD_NODENAME"]
WITH_PID = {"SLURM_TASK_PID": str(os.getpid() + 10**8)}


@pytest.fixture(params=SHELLS)
def prolog(request: pytest.FixtureRequest, tmp_path: Path) -> Script:
    spank = lay_out(tmp_path, lumi_like_files())
    be_node(tmp_path, kernel_files(lumi_like().site, "lumi-g"))
    return Script(tuple(shell_command(request.param, tmp_path)), spank / "task_prolog")


@pytest.fixture(params=SHELLS)
def wrapper(request: pytest.FixtureRequest, tmp_path: Path) -> Wrapper:
    return make(tmp_path, request.param)


def lines(prolog: Script, local_id: str, verbose: str = "1", **changes: str) -> list[str]:
    """What a task of the second node of a step prints, but for missing paths; its rank is its number there and 8."""
    of_task = {"SLURM_LOCALID": local_id, "SLURM_PROCID": str(8 + int(local_id)), "LUMISITE_VERBOSE": verbose}
    prints = prolog.step(**of_task, **WITH_PID, **changes).prints
    return [line for line in prints if "containers start without it" not in line]


def test_the_first_task_of_a_node_says_all_and_the_others_what_is_their_own(prolog: Script) -> None:
    first, other = lines(prolog, "0"), lines(prolog, "3")
    assert all(line.startswith(f"lumisite: {NODE} rank 8: ") for line in first)
    assert any("NCCL_SOCKET_IFNAME=" in line for line in first)
    assert any("BINDPATH=" in line for line in first)
    (line,) = other
    assert line.startswith(f"lumisite: {NODE} rank 11: ")
    assert "25-31" in line, "its CPUs"


def test_each_task_says_why_it_gets_no_mask(prolog: Script) -> None:
    assert [line for line in lines(prolog, "0", LUMISITE_CPU_BIND="off") if "no CPU" in line]
    assert lines(prolog, "4", LUMISITE_CPU_BIND="off") == [
        f"lumisite: {NODE} rank 12: no CPU binding: the binding is yours"
    ]


def test_all_makes_each_task_say_all(prolog: Script) -> None:
    first, other = lines(prolog, "0", "all"), lines(prolog, "5", "all")
    assert len(first) == len(other) > 10


@pytest.mark.parametrize("verbose", ["", "0", "no", "off"])
def test_without_being_asked_nothing_is_said(prolog: Script, verbose: str) -> None:
    assert lines(prolog, "0", verbose) == []


def said(wrapper: Wrapper, local_id: str | None, image: str, **changes: str | None) -> list[str]:
    rank = None if local_id is None else str(8 + int(local_id))
    done = None if rank is None else f"1234567.0.{rank}"
    of_task = {"SLURM_LOCALID": local_id, "SLURM_PROCID": rank, "LUMISITE_DONE": done, "LUMISITE_VERBOSE": "1"}
    return wrapper.call("exec", image, "x", **{**of_task, **changes}).stderr.splitlines()


def test_the_wrapper_speaks_for_a_node_too(wrapper: Wrapper) -> None:
    first = said(wrapper, "0", LAIF)
    assert len(first) > 2
    assert all(line.startswith(f"lumisite: {NODE} rank 8: ") for line in first)
    assert said(wrapper, "3", LAIF) == []
    assert len(said(wrapper, "3", LAIF, LUMISITE_VERBOSE="all")) == len(first)


def test_outside_of_a_step_no_rank_is_named(wrapper: Wrapper) -> None:
    found = said(wrapper, None, LAIF)
    assert f"lumisite: {LAIF}: family laif-multitorch" in found
