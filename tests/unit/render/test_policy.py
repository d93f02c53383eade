"""The policy as the helper's scripts read it: under each shell that may be /bin/sh, and in the cli_filter."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from lumisite.release.policy import Policy, Rule
from tests.support.prologs import SHELLS, STEP, Ran, Script, lay_out, lumi_like_files, shell_command
from tests.support.tools import tool
from tests.support.wrappers import LAIF
from tests.unit.render.test_cli_filter import filtered

SCRIPT = Path(__file__).parents[3] / "spank_helpers/policy.sh"
HEAD = "lumisite-policy 1\nwritten 2026-11-27T02:00:00Z root@login1\n"
#: Its mode, and the line of the rule that decides it, for each of some jobs.
READ = """. "$1"
shift
for SLURM_JOB_ID; do
    ls_read_policy
    echo "$ls_mode $ls_rule"
done
"""


def modes(shell: str, folder: Path, text: str | None, jobs: range = range(1, 2), **environment: str) -> list[str]:
    """Give mode and rule for jobs by a policy of this content, without any where there is none."""
    root = folder / "root"
    (root / "releases/r/spank").mkdir(parents=True, exist_ok=True)
    (root / "policy").unlink(missing_ok=True)
    if text is not None:
        (root / "policy").write_text(text)
    words = ["-c", READ, str(root / "releases/r/spank/task_prolog"), str(SCRIPT), *map(str, jobs)]
    known = {"PATH": "/usr/bin:/bin", "SLURM_JOB_PARTITION": "dev-g", "SLURM_JOB_ACCOUNT": "project_1", **environment}
    done = subprocess.run([*shell_command(shell, folder), *words], env=known, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.splitlines()


@pytest.fixture(params=SHELLS)
def shell(request: pytest.FixtureRequest) -> str:
    return str(request.param)


GROUPS = ",".join(map(str, {os.getegid(), *os.getgroups()}))
#: The rules of a policy, and what it makes of a step in partition dev-g of account project_1, by which line.
RULES = {
    "act": "act 3",
    "observe": "observe 3",
    "off": "off 3",
    "act partition=dev-g\noff": "act 3",
    "act partition=dev\noff": "off 4",
    "act partition=dev,dev-g,x\noff": "act 3",
    "act partition=dev-g,x account=project_2\noff": "off 4",
    "act partition=dev-g account=project_1\noff": "act 3",
    "off account=project_2\nobserve account=project_1\nact": "observe 4",
    f"act group={GROUPS}\noff": "act 3",
    "act group=4294967290\noff": "off 4",
    "act share=100\noff": "act 3",
    "observe\nact": "observe 3",
}
#: What no `lumisite policy` has written.
DAMAGED = {
    "empty": "",
    "no-head": "act\nend\n",
    "another-version": "lumisite-policy 2\nact\nend\n",
    "no-end": f"{HEAD}act\n",
    "end-without-line-break": f"{HEAD}act\nend",
    "cut": f"{HEAD}act\nobse",
    "a-mode-that-is-none": f"{HEAD}act\nkill\nend\n",
    "a-condition-that-is-none": f"{HEAD}act\noff user=me\nend\n",
    "a-share-over-100": f"{HEAD}act\noff share=1000\nend\n",
    "a-share-that-is-no-number": f"{HEAD}act share=$(touch /tmp/x)\nend\n",
    "odd-letters": f"{HEAD}act\n\xff\xfe\nend\n",
}


@pytest.mark.parametrize(("rules", "expected"), RULES.items(), ids=range(len(RULES)))
def test_the_first_rule_that_fits_counts(shell: str, tmp_path: Path, rules: str, expected: str) -> None:
    assert modes(shell, tmp_path, f"{HEAD}{rules}\nend\n") == [expected]
    assert modes(shell, tmp_path, f"{HEAD}{rules}\nend\n", LUMISITE_STACK="") == [expected]


@pytest.mark.parametrize("text", DAMAGED.values(), ids=DAMAGED)
def test_a_damaged_policy_is_off_but_for_who_has_loaded_the_module(shell: str, tmp_path: Path, text: str) -> None:
    assert modes(shell, tmp_path, text) == ["off damaged"]
    assert modes(shell, tmp_path, text, LUMISITE_STACK="25.03") == ["act damaged"]


def test_without_a_policy_or_a_rule_that_fits_it_is_the_same(shell: str, tmp_path: Path) -> None:
    for text, rule in ((None, "missing"), (f"{HEAD}observe partition=x\nend\n", "missing")):
        assert modes(shell, tmp_path, text) == [f"off {rule}"]
        assert modes(shell, tmp_path, text, LUMISITE_STACK="25.03") == [f"act {rule}"]


def test_a_policy_that_is_no_file_counts_as_missing(shell: str, tmp_path: Path) -> None:
    (tmp_path / "root/policy").mkdir(parents=True)
    words = ["-c", READ, f"{tmp_path}/root/releases/r/spank/task_prolog", str(SCRIPT), "1"]
    done = subprocess.run([*shell_command(shell, tmp_path), *words], env={}, capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("off missing\n", "")


def test_a_copy_follows_the_policy_of_the_sites_root(shell: str, tmp_path: Path) -> None:
    """As Slurm from 25.11 hands a TaskProlog out, to a folder of its own."""
    modes(shell, tmp_path, f"{HEAD}observe\nend\n")
    for root, expected in ((f"{tmp_path}/root", "observe 3"), (f"{tmp_path}/none", "act none")):
        words = ["-c", f"ls_site_root={root}\n{READ}", "/var/spool/slurmd/conf-cache/task_prolog", str(SCRIPT), "1"]
        done = subprocess.run([*shell_command(shell, tmp_path), *words], env={}, capture_output=True, text=True)
        assert (done.stdout, done.stderr) == (f"{expected}\n", "")


def test_the_users_word_observes_what_would_act(shell: str, tmp_path: Path) -> None:
    assert modes(shell, tmp_path, f"{HEAD}act\nend\n", LUMISITE="observe") == ["observe user"]
    assert modes(shell, tmp_path, f"{HEAD}off\nend\n", LUMISITE="observe") == ["off 3"]
    assert modes(shell, tmp_path, None, LUMISITE="observe") == ["off missing"]
    assert modes(shell, tmp_path, None, LUMISITE="observe", LUMISITE_STACK="x") == ["observe user"]


@pytest.mark.parametrize("begin", [1, 7_654_321, 67_000_000])
@pytest.mark.parametrize("step", [1, 2, 3, 10])
def test_a_share_is_a_share_of_the_jobs(shell: str, tmp_path: Path, begin: int, step: int) -> None:
    jobs = range(begin, begin + 1000 * step, step)
    found = modes(shell, tmp_path, f"{HEAD}act share=30\nobserve\nend\n", jobs)
    assert 290 <= found.count("act 3") <= 310
    assert found.count("act 3") + found.count("observe 4") == 1000
    # A larger share has the same jobs, and more.
    more = modes(shell, tmp_path, f"{HEAD}act share=31\nobserve\nend\n", jobs)
    assert all(wider == "act 3" for share, wider in zip(found, more, strict=True) if share == "act 3")


@pytest.mark.parametrize("job", ["", "x", "0", "$(id)", "1 2", "99999999999999999999"])
def test_a_step_without_a_number_of_a_job_is_in_no_share(shell: str, tmp_path: Path, job: str) -> None:
    modes(shell, tmp_path, f"{HEAD}act share=99\nobserve\nend\n")
    words = ["-c", READ, f"{tmp_path}/root/releases/r/spank/task_prolog", str(SCRIPT), job]
    done = subprocess.run([*shell_command(shell, tmp_path), *words], env={}, capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("observe 4\n", "")


@pytest.mark.parametrize("value", ["", ",", "dev-g,x", "*", "dev-g x", "\n", "x\ndev-g", "$(id)", "d?v-g"])
def test_a_hostile_partition_fits_no_rule(shell: str, tmp_path: Path, value: str) -> None:
    found = modes(shell, tmp_path, f"{HEAD}off partition=dev-g\nact\nend\n", SLURM_JOB_PARTITION=value)
    assert found == ["act 4"]


def deployed(folder: Path, policy: str | None) -> Path:
    """Lay the helper out as a release below a root; give the folder of its scripts."""
    folder.mkdir(exist_ok=True)
    spank = lay_out(folder, lumi_like_files())
    release = folder / "root/releases/r"
    release.mkdir(parents=True)
    (release / "spank").symlink_to(spank)
    if policy is not None:
        (folder / "root/policy").write_text(policy)
    return release / "spank"


@pytest.fixture(params=("lua5.3", "lua5.4"))
def lua(request: pytest.FixtureRequest) -> str:
    return tool(request.param)


def of_filter(lua: str, folder: Path, text: str | None, options: Mapping[str, str], **environment: str) -> str:
    """Give the mode that the cli_filter takes: by the MPI that it chooses for an image that needs another."""
    argv = ["singularity", "exec", LAIF, "python"]
    module = deployed(folder, text) / "cli_filter.lua"
    answer = filtered(lua, module, options, argv, environment=environment)
    lines = [line for line in answer if line.startswith("set ")]
    if not lines:
        return "off"
    assert lines[0].startswith("set task-prolog=")
    return "act" if "set mpi=pmi2" in lines else "observe"


@pytest.mark.parametrize(("rules", "expected"), RULES.items(), ids=range(len(RULES)))
def test_the_filter_reads_rules_alike(lua: str, tmp_path: Path, rules: str, expected: str) -> None:
    options = {"partition": "dev-g", "account": "project_1"}
    mode = expected.split()[0]
    inside = {"SLURM_JOB_ID": "1", "SLURM_JOB_PARTITION": "dev-g", "SLURM_JOB_ACCOUNT": "project_1"}
    if "share" not in rules:
        assert of_filter(lua, tmp_path / "a", f"{HEAD}{rules}\nend\n", options) == mode
    assert of_filter(lua, tmp_path / "b", f"{HEAD}{rules}\nend\n", {}, **inside) == mode


@pytest.mark.parametrize("text", [*DAMAGED.values(), None], ids=[*DAMAGED, "missing"])
def test_the_filter_is_off_by_a_damaged_policy(lua: str, tmp_path: Path, text: str | None) -> None:
    assert of_filter(lua, tmp_path / "a", text, {"partition": "dev-g"}) == "off"
    assert of_filter(lua, tmp_path / "b", text, {"partition": "dev-g"}, LUMISITE_STACK="25.03") == "act"


def test_what_the_filter_does_not_know_yet_it_leaves_to_the_prolog(lua: str, tmp_path: Path) -> None:
    """An srun that makes its own allocation has no job yet, and perhaps no partition."""
    for number, rules in enumerate(("act share=30\noff", "act partition=dev-g\noff", "off account=project_2\nact")):
        assert of_filter(lua, tmp_path / str(number), f"{HEAD}{rules}\nend\n", {}) == "observe"
    text = f"{HEAD}act share=30\nobserve\nend\n"
    found = [of_filter(lua, tmp_path / f"job-{job}", text, {}, SLURM_JOB_ID=str(job)) for job in range(1, 11)]
    assert found == [line.split()[0] for line in modes("dash", tmp_path, text, range(1, 11))]


@pytest.mark.parametrize(("mode", "marks"), [("act", True), ("observe", True), ("off", False)])
def test_the_prolog_learns_what_it_cannot_see(lua: str, tmp_path: Path, mode: str, *, marks: bool) -> None:
    """Both marks are for the prolog alone; a step to which it is not attached gets none where nothing acts."""
    module = deployed(tmp_path, f"{HEAD}{mode}\nend\n") / "cli_filter.lua"
    lines = filtered(lua, module, {"cpu-bind": "cores"}, ["singularity", "exec", LAIF])
    by_name = "LUMISITE_BY_NAME=1," if mode == "observe" else ""
    expected = f"set export=ALL,{by_name}LUMISITE_MPI=pmi2,LUMISITE_CPU_BIND=user"
    assert (expected in lines) == marks
    native = filtered(lua, module, {"cpu-bind": "cores"}, ["python"])
    assert native == (["set export=ALL,LUMISITE_CPU_BIND=user"] if mode == "act" else [])


def test_the_prolog_takes_its_marks_back(shell: str, tmp_path: Path) -> None:
    marks = {"LUMISITE_CPU_BIND": "user", "LUMISITE_MPI": "pmi2", "LUMISITE_BY_NAME": "1", "LUMISITE_STACK": "x"}
    for mode in ("act", "observe", "off"):
        path = str(tmp_path / mode / "root/releases/r/spank/bin")
        ran = run_prolog(shell, tmp_path / mode, f"{HEAD}{mode}\nend\n", PATH=path, **marks)
        assert {"LUMISITE_CPU_BIND", "LUMISITE_MPI", "LUMISITE_BY_NAME"} <= set(ran.unsets)
        assert (len(ran.lines) == 3) == (mode != "act")


def test_the_users_word_makes_the_filter_observe(lua: str, tmp_path: Path) -> None:
    text = f"{HEAD}act\nend\n"
    assert of_filter(lua, tmp_path / "a", text, {}, LUMISITE="observe") == "observe"
    assert of_filter(lua, tmp_path / "b", text, {}, LUMISITE="off") == "off"


def run_prolog(shell: str, folder: Path, policy: str | None, **changes: str | None) -> Ran:
    script = deployed(folder, policy) / "task_prolog"
    return Script(tuple(shell_command(shell, folder)), script).step(**changes)


def test_off_and_observe_tell_slurm_nothing(shell: str, tmp_path: Path) -> None:
    acted = run_prolog(shell, tmp_path / "act", f"{HEAD}act\nend\n")
    assert len(acted.exports) > 10
    for mode in ("off", "observe"):
        # As with the module, which has the wrapper on PATH already.
        path = str(tmp_path / mode / "root/releases/r/spank/bin")
        assert run_prolog(shell, tmp_path / mode, f"{HEAD}{mode}\nend\n", PATH=path).stdout == ""
    assert list((tmp_path / "observe/tmp").iterdir()) == []


def test_written_rules_are_what_the_scripts_read(shell: str, tmp_path: Path) -> None:
    rules = (Rule("off", partitions=("a",)), Rule("act", ("dev-g", "b"), ("project_1",), (), 100), Rule("observe"))
    assert modes(shell, tmp_path, Policy(rules, "2026-11-27T02:00:00Z", "me@here").text) == ["act 4"]


def test_the_step_of_the_tests_is_in_no_deployed_release(shell: str, tmp_path: Path) -> None:
    """A rendered tree that is called where it was rendered: whoever does it has chosen to."""
    script = lay_out(tmp_path, lumi_like_files()) / "task_prolog"
    assert "LUMISITE_STACK" not in STEP
    assert Script(tuple(shell_command(shell, tmp_path)), script).step().exports["LUMISITE_DONE"] == "1234567.0.3"
