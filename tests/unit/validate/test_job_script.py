"""The script of a job: what Slurm is asked for, and that bash runs each step as it should."""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from lumisite.errors import ResolveError
from lumisite.site.load import load_site
from lumisite.site.scalars import Name, RootPath
from lumisite.validate.probes.probe import Srun
from lumisite.validate.probes.suite import choose_probes, groups
from lumisite.validate.run.folder import Run
from lumisite.validate.run.jobscript import SKIPPED, job_script
from lumisite.validate.run.plan import JobPlan, validation_of
from tests.support.records import target_of
from tests.support.requests import a_request

LUMI, TWIN = load_site("lumi").site, load_site("twin").site
NODES = ("nid005124", "nid005125")


def a_plan(
    name: str, folder: str = "/scratch/run", probes: tuple[str, ...] = (), nodes: tuple[str, ...] = NODES
) -> JobPlan:
    target = target_of(name)
    chosen = choose_probes(target, probes)
    return JobPlan("s-01", nodes, tuple(groups(chosen, target.plan, None, nodes)), f"{folder}/jobs/s-01")


def script(name: str, plan: JobPlan, sbatch: tuple[str, ...] = ()) -> str:
    return job_script(load_site(name).site, replace(a_request(), sbatch=sbatch), plan)


def request(text: str) -> list[str]:
    return [line.removeprefix("#SBATCH ") for line in text.splitlines() if line.startswith("#SBATCH")]


def steps(text: str) -> dict[str, str]:
    return {line.split()[1]: line for line in text.splitlines() if line.startswith("step ")}


def test_a_job_requests_what_the_site_wants() -> None:
    words = request(script("lumi", a_plan("lumi"), sbatch=("--account=project_1", "--qos=x")))
    assert {"--nodes=2", "--nodelist=nid005124,nid005125", "--gpus-per-node=8", "--no-requeue"} <= {*words}
    assert words[-3:] == ["--mem=0", "--account=project_1", "--qos=x"]
    assert "--exclusive" not in words  # the partition gives whole nodes anyway
    partition = replace(LUMI.partitions["standard-g"], constraint=Name("gpu"), qos=(Name("regular"), Name("debug")))
    site = replace(LUMI, partitions={**LUMI.partitions, "standard-g": partition})
    plain, words = (request(job_script(one, a_request(), a_plan("lumi"))) for one in (LUMI, site))
    assert sorted(word for word in words if word not in plain) == ["--constraint=gpu", "--qos=regular"]
    shared = replace(site, partitions={"standard-g": replace(partition, whole_nodes=False)})
    assert "--exclusive" in request(job_script(shared, a_request(), a_plan("lumi")))


def test_the_ladder_has_one_gpu_one_node_and_both_nodes() -> None:
    found = steps(script("lumi", a_plan("lumi", probes=("ddp",))))
    of_node = ["node-2n", "node-2n-exchange", "node-2n-files", "node-2n-check"]
    assert list(found) == [*of_node, "ddp-1g", "ddp-1n", "ddp-2n"]
    assert "--ntasks=1 " in found["ddp-1g"]
    assert "--gpus-per-node=1 " in found["ddp-1g"]
    assert "--nodelist=nid005124 " in found["ddp-1n"]
    assert "--ntasks=16 --ntasks-per-node=8 " in found["ddp-2n"]
    assert "--cpus-per-task=7 " in found["ddp-2n"]  # 56 cores that jobs get, for 8 ranks
    assert "singularity --quiet exec" in found["ddp-2n"]


def test_what_each_node_is_is_recorded_and_judged_before_anything_can_fail() -> None:
    text = script("twin", a_plan("twin"))
    first = steps(text)["node-2n"]
    # A node that lacks the run's folder gets the script all the same.
    folder = "/scratch/run/probes"
    command = f'sh -c "$(cat {folder}/node.sh)" {folder}/node.sh /scratch/run/jobs/s-01/node-2n/'
    assert f"--ntasks=2 --ntasks-per-node=1 --kill-on-bad-exit=0 {command}" in first
    assert re.findall("^judged .*", text, re.MULTILINE) == ["judged node-2n"]
    places = [
        text.index(words)
        for words in (first, "step node-2n-check ", "judged node-2n", "module use ", "step environment-2n-node ")
    ]
    assert places == sorted(places)


def test_what_cannot_run_is_refused() -> None:
    modules = {name: replace(module, helper=False) for name, module in TWIN.modules.items()}
    with pytest.raises(ResolveError, match=r"no probe has the name dpd \(did you mean ddp\?\)"):
        a_plan("twin", probes=("dpd",))
    with pytest.raises(ResolveError, match="the site has no `validation`"):
        validation_of(replace(TWIN, validation=None))
    with pytest.raises(ResolveError, match="no module that jobs can load"):
        job_script(replace(TWIN, modules=modules), a_request(), a_plan("twin"))


# ---- bash runs it, with commands that stand for Slurm's and Lmod's

SRUN = r"""#!/bin/sh
for word; do last=$word; done
case $* in
*lost*)
  left=$(cat "$HOME/lost")
  [ "$left" = 0 ] && exit
  echo $((left - 1)) >"$HOME/lost"
  echo "srun: error: Unable to confirm allocation for job 7: Unable to contact slurm controller (connect failure)" >&2
  exit 1
  ;;
*kill-on-bad-exit=0\ true*)
  [ ! -e "$HOME/away" ] || cat "$HOME/away" >&2
  ;;
*fails*) echo "no container" >&2; exit 7 ;;
*hangs*) exec /bin/sleep 60 ;;
esac
"""


def run(tmp_path: Path, words: dict[str, str], module: str = ":", facts: tuple[str, ...] = (), job: str = "7") -> Path:
    """Run a job whose steps start these words, each with a limit of one second."""
    tools = tmp_path / "tools"
    tools.mkdir(exist_ok=True)
    (tools / "srun").write_text(SRUN)
    (tools / "srun").chmod(0o755)
    plan = a_plan("twin", str(tmp_path / "run"), ("ddp", "collectives"))
    kept = []
    for group, (name, text) in zip(plan.groups[1:], words.items(), strict=False):
        step = replace(group.steps[0], probe=name, srun=Srun("", (text,)), limit_s=1)
        kept.append(replace(group, steps=(step,)))
    plan = replace(plan, groups=tuple(kept))
    Path(plan.folder).mkdir(parents=True, exist_ok=True)
    path = tmp_path / "job.sh"
    text = job_script(
        replace(TWIN, root=RootPath(f"{tmp_path}/root")), replace(a_request(), image=f"{tmp_path}/i.sif"), plan, facts
    )
    # The site's login files would set another PATH.
    path.write_text(text.replace("/etc/profile", f"{tmp_path}/profile"))
    # It would wait for Slurm.
    if not (tools / "sleep").exists():
        (tools / "sleep").write_text("#!/bin/sh\n")
    (tools / "sleep").chmod(0o755)
    environment = {"PATH": f"{tools}:/usr/bin:/bin", "SLURM_JOB_ID": job, "HOME": str(tmp_path), "USER": "me"}
    command = f"module() {{ {module}; }}; . {path}"
    subprocess.run(["bash", "-c", command], env=environment, check=True)
    return Path(plan.folder)


def test_each_step_leaves_its_exit_code_and_the_job_its_mark(tmp_path: Path) -> None:
    marked = tmp_path / "run/jobs/s-01/marked-1n"
    marked.mkdir(parents=True)
    (marked / "skip").touch()
    folder = run(tmp_path, {"bad": "fails", "marked": "fails", "slow": "hangs"})
    found = {path.parent.name.partition("-")[0]: path.read_text().split()[0] for path in folder.glob("*/exit")}
    assert found == {"bad": "7", "marked": SKIPPED, "slow": "124"}
    assert not (marked / "began").exists()
    assert (folder / "done").read_text().split()[:2] == ["7", "0"]


def test_the_job_waits_for_the_judge_of_what_failed_and_of_nothing_else(tmp_path: Path) -> None:
    """So that a step which would hang like it is marked before it begins."""
    tools = tmp_path / "tools"
    tools.mkdir()
    (tools / "sleep").write_text(f"#!/bin/sh\necho $(ls {tmp_path}/run/jobs/s-01) >>{tmp_path}/waited\n")
    folder = run(tmp_path, {"good": "good", "bad": "fails", "last": "good"})
    waited = (tmp_path / "waited").read_text().splitlines()
    assert {tuple(re.findall("[a-z]+-[12]n", line)) for line in waited} == {("bad-1n", "good-2n")}
    assert next(folder.glob("last-*/exit")).read_text().split()[0] == "0"


def test_where_all_steps_are_marked_so_nothing_is_loaded_for_them(tmp_path: Path) -> None:
    for name in ("first-2n", "second-1n"):
        (tmp_path / "run/jobs/s-01" / name).mkdir(parents=True)
        (tmp_path / "run/jobs/s-01" / name / "skip").touch()
    folder = run(tmp_path, {"first": "good", "second": "good"}, module="touch $job/loaded", facts=("echo", "", "x"))
    assert [path.read_text().split()[0] for path in folder.glob("*/exit")] == [SKIPPED, SKIPPED]
    assert (folder / "done").read_text().split()[1] == "0"
    assert not (folder / "loaded").exists()
    assert not (folder / "facts.json").exists()


def test_a_job_that_slurm_starts_again_goes_on_where_it_was(tmp_path: Path) -> None:
    folder = run(tmp_path, {"first": "good", "second": "good"})
    first, second = (next(folder.glob(f"{name}-*/exit")) for name in ("first", "second"))
    before = first.read_text()
    # As the node went down during the second step.
    second.unlink()
    (folder / "done").unlink()
    run(tmp_path, {"first": "fails", "second": "fails"})
    assert first.read_text() == before
    assert second.read_text().split()[0] == "7"
    assert (folder / "done").exists()


def test_a_module_that_does_not_load_ends_the_job_at_once(tmp_path: Path) -> None:
    folder = run(tmp_path, {"good": "good"}, module='[ "$1" = use ] || { echo "unknown module" >&2; return 1; }')
    assert (folder / "done").read_text().split()[1] == "module:1"
    assert (folder / "module.stderr").read_text() == "unknown module\n"
    assert not list(folder.glob("*/exit"))


PROGRAM = "import os; print(os.environ['PYTHONPATH'], 'LOADED' in os.environ)"


@pytest.mark.parametrize("python", ["python3", "/no/such/python"])
def test_a_node_is_captured_before_the_module_is_loaded_by_its_own_python_where_need_be(
    tmp_path: Path, python: str
) -> None:
    folder = run(tmp_path, {"good": "good"}, "LOADED=with; export LOADED", (python, "/appl/lumisite", "-c", PROGRAM))
    assert (folder / "facts.json").read_text() == "/appl/lumisite False\n"
    run(tmp_path, {"good": "good"}, facts=("echo", "", "later"))
    assert (folder / "facts.json").read_text() == "/appl/lumisite False\n"


@pytest.mark.parametrize("python", ["no-such-python", "false"])
def test_a_capture_that_cannot_be_made_costs_nothing_else_and_reports_why(tmp_path: Path, python: str) -> None:
    folder = run(tmp_path, {"good": "good"}, facts=(python, "/x", "-c", "import sys; sys.exit('too old')"))
    assert not (folder / "facts.json").exists()
    assert Run(folder.parent.parent).errors(folder.name, "facts.stderr")[-1] == "too old"
    assert (folder / "done").read_text().split()[1] == "0"


@pytest.mark.parametrize("times", [2, 99])
def test_a_step_that_slurm_lost_is_run_again_and_at_last_ends_the_job_and_fails_no_step(
    tmp_path: Path, times: int
) -> None:
    (tmp_path / "lost").write_text(f"{times}\n")
    folder = run(tmp_path, {"good": "lost", "next": "good"})
    ended = [path.read_text().split()[0] for path in folder.glob("*/exit")]
    if times == 2:
        assert ended == ["0", "0"]
        assert (folder / "done").read_text().split()[1] == "0"
        return
    assert ended == []
    assert (folder / "done").read_text().split()[1].startswith("lost:good-")
    assert (tmp_path / "lost").read_text() == "94\n"
    assert "Unable to contact slurm controller" in next(folder.glob("good-*/stderr")).read_text()


@pytest.mark.parametrize(
    ("said", "end"),
    [
        ("srun: error: Task launch for StepId=7.4 failed on node n2: Communication connection failure", "lost:bad-1n"),
        # What a step has left on a node is the step's doing.
        ("srun: Job 7 step creation temporarily disabled, retrying (Requested nodes are busy)", "0"),
        ("", "0"),
    ],
)
def test_a_bad_end_counts_only_if_all_nodes_still_take_steps(tmp_path: Path, said: str, end: str) -> None:
    (tmp_path / "away").write_text(f"{said}\n")
    folder = run(tmp_path, {"good": "good", "bad": "fails"})
    assert (folder / "done").read_text().split()[1] == end
    assert bool(list(folder.glob("bad-*/exit"))) == (end == "0")
    assert ("no container" if end == "0" else said) in next(folder.glob("bad-*/stderr")).read_text()


def test_what_a_users_login_files_set_does_not_reach_the_job_and_is_recorded(tmp_path: Path) -> None:
    (tmp_path / ".bash_profile").write_text(
        "export SLURM_EXPORT_ENV=NONE APPTAINER_CLEANENV=1 FI_PROVIDER=tcp EDITOR=vi\n"
    )
    folder = run(tmp_path, {"good": "good"}, facts=("sh", "", "-c", "env"))
    assert "tcp" not in (folder / "facts.json").read_text()
    assert Run(folder.parent.parent).left_out(folder.name) == [
        "APPTAINER_CLEANENV=1",
        "FI_PROVIDER=tcp",
        "SLURM_EXPORT_ENV=NONE",
    ]


def test_shellcheck_finds_nothing_in_a_job_of_every_probe(tmp_path: Path) -> None:
    path = tmp_path / "job.sh"
    path.write_text(job_script(LUMI, a_request(), a_plan("lumi"), ("python3", "/appl/python", "-m", "lumisite")))
    # A step's words are quoted as they are: what looks like an expansion is for a shell on the nodes.
    tool = [str(Path(sys.executable).parent / "shellcheck"), "--exclude=SC2016", str(path)]
    done = subprocess.run(tool, capture_output=True, text=True, check=False)
    assert done.stdout == ""
    assert done.returncode == 0
