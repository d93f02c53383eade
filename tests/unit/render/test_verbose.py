"""`LUMISITE_VERBOSE`: whose lines are whose, one block for a node, and from its other tasks only what is their own."""

from __future__ import annotations

import os

import pytest

from tests.support.prologs import STEP, Script
from tests.support.wrappers import LAIF, Wrapper

NODE = STEP["SLURMD_NODENAME"]
WITH_PID = {"SLURM_TASK_PID": str(os.getpid() + 10**8)}


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
    assert len(lines(prolog, "0", "all")) == len(lines(prolog, "5", "all")) == len(first)


def test_each_task_says_why_it_gets_no_mask(prolog: Script) -> None:
    assert [line for line in lines(prolog, "0", LUMISITE_CPU_BIND="off") if "no CPU" in line]
    assert lines(prolog, "4", LUMISITE_CPU_BIND="off") == [
        f"lumisite: {NODE} rank 12: no CPU binding: the binding is yours"
    ]


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
    # Outside of a step no rank is named.
    assert f"lumisite: {LAIF}: family laif-multitorch" in said(wrapper, None, LAIF)
