"""The jobs of a trial: each run with its arm's environment, a plain step after what went wrong, and what runs left."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from lumisite.errors import ResolveError
from lumisite.validate.run.folder import Run, create_run, slot_run
from lumisite.validate.run.plan import with_specs
from lumisite.validate.run.request import Batch, RunRequest
from lumisite.validate.run.script import DONE, EXIT, RECORDS, JobPlan, job_script
from lumisite.validate.trial.design import Design, TrialSetting, plan
from lumisite.validate.trial.jobs import controls, trial_plans
from lumisite.validate.trial.results import results_of
from tests.support.records import target_of
from tests.support.requests import LOADED, a_request

TWIN = target_of("twin")
HELD, NEW, SIDE = TrialSetting("GLOO_SOCKET_IFNAME"), TrialSetting("A_B", "1 2"), TrialSetting("SIDE", "x")


def a_design(*tried: TrialSetting, probes: tuple[str, ...] = ("collectives",), allocations: int = 2) -> Design:
    return plan(
        3,
        tried or (NEW,),
        against=[SIDE],
        control=controls(LOADED.site),
        probes=probes,
        nodes=2,
        allocations=allocations,
        slot_s=180,
        sign_s=180,
    )


def a_trial(design: Design, folder: str = "/scratch/run", *jobs: int) -> tuple[RunRequest, list[JobPlan]]:
    batches = tuple(Batch(f"b{at}", count, (("n1", "n2"),)) for at, count in enumerate(jobs or (design.allocations,)))
    request = replace(a_request(), purpose="try", folder=folder, batches=batches, specs={})
    request = with_specs(request, LOADED, partial(trial_plans, design))
    return request, trial_plans(design, request, LOADED)


def lines_of_job(design: Design) -> dict[str, str]:
    request, plans = a_trial(design)
    lines = job_script(LOADED.site, request, plans[0], 1).splitlines()
    return {line.split()[1]: line for line in lines if line.startswith(("step ", "in_slot ", "check "))}


# ---- the script


def test_each_slot_has_its_arms_environment_as_a_user_sets_it() -> None:
    design = a_design(NEW, HELD)
    found = lines_of_job(design)
    by_arm = {slot.arm: found[f"s{slot.position:02}-collectives-2n"] for slot in design.runs_of(1)}
    assert "env SIDE=x srun " in by_arm["reference"]
    assert (
        by_arm["sham"].partition("env ")[2].partition(" /scratch")[0]
        == (by_arm["reference"].partition("env ")[2].partition(" /scratch")[0])
    )
    assert "env SIDE=x 'A_B=1 2' srun " in by_arm["A_B=1 2"]
    assert "env SIDE=x GLOO_SOCKET_IFNAME=eth0 srun " in by_arm["control"]
    assert " torch.sif env --unset=GLOO_SOCKET_IFNAME python3 " in by_arm["GLOO_SOCKET_IFNAME unset"].replace(
        "/appl/images/", " "
    )
    # Ranks end as a user's program does.
    assert all("--exit program --tell" in line for line in by_arm.values())
    # All are asked to tell the same, so that they measure the same.
    assert all(line.endswith("--tell SIDE --tell GLOO_SOCKET_IFNAME --tell 'A_B=1 2'".replace("'A_B=1 2'", "A_B")) for
               line in by_arm.values())  # fmt: skip


def test_slots_run_in_the_order_of_the_design_each_with_a_check_behind_it() -> None:
    found = list(lines_of_job(a_design(probes=("communicators", "collectives"))))
    assert found[:2] == ["node-2n", "node-2n-files"]
    signs = ["v00-sign-2n", "v00-check-2n", "v03-sign-2n", "v03-check-2n"]
    slots = [f"s{at:02}-{name}-2n" for at in range(1, 6) for name in ("communicators", "collectives", "check")]
    assert found[2:] == [*signs, *slots]


def test_what_judges_others_has_time_and_what_is_judged_its_limit() -> None:
    design = a_design()
    request, _ = a_trial(design)
    (plan,) = trial_plans(design, replace(request, limit=5, batches=(replace(request.batches[0], jobs=1),)), LOADED)
    limits = {(step.probe, step.limit_s, "--sign" in step.srun.arguments) for step in plan.steps}
    assert limits == {("node", 5, False), ("sign", 180, True), ("check", 180, False), ("collectives", 5, False)}


def test_whether_it_takes_effect_is_asked_once_in_each_batch() -> None:
    design = a_design()
    _, plans = a_trial(design, "/scratch/run", 2, 1)
    signs = [[step.folder for step in plan.steps if step.probe == "sign"] for plan in plans]
    assert signs == [["v00-sign-2n", "v03-sign-2n"], [], ["v00-sign-2n", "v03-sign-2n"]]
    assert len({slot.arm for plan in plans for slot in design.runs_of(3)}) == 4


def test_what_is_measured_is_the_same_in_all_slots() -> None:
    request, plans = a_trial(a_design(NEW, HELD), "/scratch/run", 3)
    assert set(request.specs) == {"node-2n", "sign-2n", "check-2n", "collectives-2n"}
    assert {group.measures for plan in plans for group in plan.groups} == set(request.specs)
    # Whichever slot came last: the orders of two allocations differ.
    assert a_trial(a_design(HELD, NEW), "/scratch/run", 1)[0].specs == request.specs


SRUN = """\
#!/bin/sh
case $* in
*fails*) exit 7 ;;
*kill-on-bad-exit=0*) [ ! -e "$HOME/leftover" ] || printf 's01\\tn1\\tsleep 4242\\n' ;;
esac
"""


def ran(tmp_path: Path, *wrong: str) -> Path:
    """Run a job of two slots with two steps each; steps that are named fail."""
    request, plans = a_trial(a_design(probes=("communicators", "collectives")), str(tmp_path / "run"))
    kept = [group for group in plans[0].groups if group.steps[0].slot in ("s01", "s02")]
    groups = []
    for group in kept:
        (step,) = group.steps
        words = ("fails",) if step.folder in wrong else ("good",)
        groups.append(replace(group, steps=(replace(step, srun=replace(step.srun, start=words, script="x")),)))
    job = replace(plans[0], groups=tuple(groups))
    tools = tmp_path / "tools"
    tools.mkdir()
    (tools / "srun").write_text(SRUN)
    (tools / "srun").chmod(0o755)
    Path(job.folder).mkdir(parents=True)
    (tmp_path / "job.sh").write_text(job_script(LOADED.site, request, job, 1))
    environment = {"PATH": f"{tools}:/usr/bin:/bin", "SLURM_JOB_ID": "7", "HOME": str(tmp_path), "USER": "me"}
    command = ["bash", "-c", f"module() {{ :; }}; . {tmp_path}/job.sh"]
    subprocess.run(command, env=environment, check=True)
    return Path(job.folder)


def codes(folder: Path) -> dict[str, str]:
    return {path.parent.name: path.read_text().split()[0] for path in sorted(folder.glob("*/exit"))}


def test_a_slot_that_goes_wrong_ends_and_plain_ranks_meet_before_the_next(tmp_path: Path) -> None:
    (tmp_path / "leftover").touch()
    folder = ran(tmp_path, "s01-communicators-2n")
    assert codes(folder) == {
        "s01-check-2n": "0",
        "s01-collectives-2n": "skipped",
        "s01-communicators-2n": "7",
        "s02-check-2n": "skipped",
        "s02-collectives-2n": "0",
        "s02-communicators-2n": "0",
    }
    assert (folder / "done").read_text().split()[1] == "0"
    assert Run(tmp_path / "run").left(folder.name) == [("s01", "n1", "sleep 4242")] * 2


def test_where_plain_ranks_do_not_meet_nothing_more_runs(tmp_path: Path) -> None:
    folder = ran(tmp_path, "s01-collectives-2n", "s01-check-2n")
    assert set(codes(folder)) == {"s01-communicators-2n", "s01-collectives-2n", "s01-check-2n"}
    assert (folder / "done").read_text().split()[1] == "unclean:s01-check-2n"


def test_shellcheck_finds_nothing_in_a_job_with_slots(tmp_path: Path) -> None:
    request, plans = a_trial(a_design(NEW, HELD))
    (tmp_path / "job.sh").write_text(job_script(LOADED.site, request, plans[0], 1))
    tool = [str(Path(sys.executable).parent / "shellcheck"), "--exclude=SC2016,SC2329", str(tmp_path / "job.sh")]
    done = subprocess.run(tool, capture_output=True, text=True, check=False)
    assert done.stdout == ""


# ---- what came of it


def a_sample(slot: str, value: float, run: str = "b0-01") -> dict[str, Any]:
    base = {"metric": "collectives/all_reduce_busbw/4MiB/2n", "better": "higher", "nodes": ["n1", "n2"], "time": 9.0}
    return base | {"value": value, "run": slot_run(run, slot)}


Left: TypeAlias = tuple[Design, Run, list[JobPlan], Path]


@pytest.fixture(name="left")
def _left(tmp_path: Path) -> Left:
    """A run of one allocation of which every step ended well, with a number in each slot."""
    design = a_design(probes=("collectives",), allocations=1)
    request, plans = a_trial(design, str(tmp_path / "run"))
    run = create_run(tmp_path / "run", request.about())
    job = Path(plans[0].folder)
    arms = design.by_name
    for step in plans[0].steps:
        slot = next((one for one in design.runs_of(1) if f"s{one.position:02}" == step.slot), None)
        arm = (
            arms[slot.arm]
            if slot
            else next((a for a in design.arms if step.slot == f"v{design.arms.index(a):02}"), None)
        )
        (job / step.folder / RECORDS).mkdir(parents=True)
        if step.check:
            (job / step.folder / EXIT).write_text("skipped 1\n")
            continue
        (job / step.folder / "began").write_text("100.0\n")
        (job / step.folder / EXIT).write_text("0 105.5\n")
        given: dict[str, Any] = {one.name: one.value for one in arm.settings} if arm else {}
        for rank in (0, 1):
            record: dict[str, Any] = {"rank": rank, "local_rank": 0, "given": {"GLOO_SOCKET_IFNAME": "hsn0"} | given}
            record |= {"named": {"A_B": "liba.so"}, "carried": {"hsn0": 10}}
            (job / step.folder / RECORDS / f"{rank}.json").write_text(json.dumps(record))
    (job / DONE).write_text("7 0 1000\n")
    lines = [json.dumps(a_sample(f"s{slot.position:02}", 1.5)) for slot in design.runs_of(1)]
    (run.folder / "samples.jsonl").write_text("\n".join(lines) + "\n")
    return design, run, plans, job


def test_slots_that_ended_well_have_their_numbers_and_their_proof(left: Left) -> None:
    design, run, plans, _ = left
    results = results_of(design, run, plans)
    assert [result.run for result in results] == [*design.runs_of(1)]
    assert {(result.outcome, result.seconds) for result in results} == {("done", 5.5)}
    assert [one.values["collectives/all_reduce_busbw/4MiB/2n"].values for one in results] == [(1.5,)] * 5
    (tried,) = (one for one in results if one.run.arm == str(NEW))
    assert (tried.took_effect, [one.code for one in tried.proof]) == ("yes", ["library-names-setting"])


def slot_of(design: Design, arm: str) -> str:
    return next(f"s{one.position:02}" for one in design.runs_of(1) if one.arm == arm)


@pytest.mark.parametrize(
    ("exit_mark", "record", "outcome"),
    [
        ("124 290.0", {}, "hung"),
        ("124 105.0", {}, "failed"),  # not after its time: the rank itself gave this code
        ("1 120.0", {"hung_time": 115.0}, "hung"),
        ("1 120.0", {}, "failed"),
    ],
)
def test_how_a_slot_went_wrong(left: Left, exit_mark: str, record: dict[str, float], outcome: str) -> None:
    design, run, plans, job = left
    slot = slot_of(design, str(NEW))
    (job / f"{slot}-collectives-2n/{EXIT}").write_text(f"{exit_mark}\n")
    path = job / f"{slot}-collectives-2n/{RECORDS}/1.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | record))
    (job / f"{slot}-check-2n/began").write_text("300\n")
    (job / f"{slot}-check-2n/{EXIT}").write_text("0 301\n")
    (job / "left").write_text(f"{slot}-collectives-2n\tn2\tsleep 4242\n")
    gate = {
        "gate": "collectives",
        "verdict": "fail",
        "cause": "rank 1 hung",
        "advice": "",
        "nodes": ["n1"],
        "time": 9.0,
    }
    lines = (run.folder / "samples.jsonl").read_text().splitlines()
    kept = [line for line in lines if json.loads(line)["run"] != slot_run("b0-01", slot)]
    lines = [*kept, json.dumps(gate | {"run": slot_run("b0-01", slot)})]
    (run.folder / "samples.jsonl").write_text("\n".join(lines) + "\n")
    results = results_of(design, run, plans)
    (bad,) = (one for one in results if one.outcome != "done")
    assert (bad.run.arm, bad.outcome, bad.leftovers) == (str(NEW), outcome, ("n2",))
    (check,) = (one for one in results if one.run.check)
    assert (check.run.position, check.run.arm, check.outcome) == (bad.run.position, "reference", "done")


def test_a_slot_that_never_began_is_lost(left: Left) -> None:
    design, run, plans, job = left
    (job / "s05-collectives-2n/began").unlink()
    (job / f"s05-collectives-2n/{EXIT}").unlink()
    assert [one.outcome for one in results_of(design, run, plans)] == ["done"] * 4 + ["lost"]


def test_what_a_job_measured_that_was_set_aside_is_lost(left: Left) -> None:
    design, run, plans, _ = left
    (run.folder / "jobs.jsonl").write_text(json.dumps({"run": plans[0].run, "event": "aside"}) + "\n")
    assert {one.outcome for one in results_of(design, run, plans)} == {"lost"}


def repeated(design: Design, run: Run, plans: list[JobPlan]) -> object:
    with pytest.raises(ResolveError) as refused:
        results_of(design, run, plans)
    assert refused.value.finding.code == "result-repeated"
    return refused.value.finding.values["name"]


def test_a_number_that_was_changed_is_refused(left: Left) -> None:
    design, run, plans, _ = left
    with (run.folder / "samples.jsonl").open("a") as stream:
        stream.write(json.dumps(a_sample("s02", 9.5)) + "\n")
    assert repeated(design, run, plans) == "collectives/all_reduce_busbw/4MiB/2n"


def test_a_gate_that_was_changed_is_refused(left: Left) -> None:
    design, run, plans, _ = left
    gate = {"gate": "collectives", "cause": "x", "advice": "", "nodes": ["n1", "n2"], "time": 9.0, "run": "b0-01.s02"}
    with (run.folder / "samples.jsonl").open("a") as stream:
        for verdict in ("pass", "fail"):
            stream.write(json.dumps(gate | {"verdict": verdict}) + "\n")
    assert repeated(design, run, plans) == "collectives"


@pytest.mark.parametrize(("code", "outcome"), [("exit-failed", "failed"), ("exit-hung", "hung")])
def test_a_run_whose_ranks_did_not_end_well_is_bad_and_said_to_be(left: Left, code: str, outcome: str) -> None:
    design, run, plans, job = left
    slot = slot_of(design, str(NEW))
    (job / f"{slot}-collectives-2n/{EXIT}").write_text("139 120.0\n")
    gate = {"gate": "collectives", "verdict": "fail", "cause": "x", "code": code, "advice": "", "nodes": ["n1"]}
    lines = (run.folder / "samples.jsonl").read_text().splitlines()
    lines.append(json.dumps(gate | {"time": 9.0, "run": slot_run("b0-01", slot)}))
    (run.folder / "samples.jsonl").write_text("\n".join(lines) + "\n")
    (bad,) = (one for one in results_of(design, run, plans) if one.outcome != "done")
    assert (bad.run.arm, bad.outcome, bad.at_exit) == (str(NEW), outcome, True)
