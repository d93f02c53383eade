"""`validate`: the request that the options make, and its run."""

from __future__ import annotations

import os
import signal
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import click
from click.core import ParameterSource

import lumisite
from lumisite import __version__
from lumisite.cli.commands import Command
from lumisite.cli.input import file_blocks
from lumisite.cli.options import COUNT, FILE_NAME, json_option, one_of, site_option
from lumisite.cli.output import print_lines, print_note, print_result, progress, write_text
from lumisite.cli.policy import note_policy
from lumisite.cli.runs import read_side
from lumisite.cli.site_choice import required_site
from lumisite.errors import ResolveError, ToolError
from lumisite.findings import writers
from lumisite.findings.finding import Finding
from lumisite.site.load import LoadedSite, load_site
from lumisite.site.model import Site
from lumisite.text import counted, minutes_of, some
from lumisite.validate.report.gather import Side, make_report
from lumisite.validate.report.write import WRITERS
from lumisite.validate.run import slurm
from lumisite.validate.run.folder import SAMPLES, Run, create_run, gather, image_mark, read_request
from lumisite.validate.run.jobscript import job_script
from lumisite.validate.run.new_request import new_request, real_path, real_paths
from lumisite.validate.run.plan import JobPlan, plans_of, require_unchanged, validation_of
from lumisite.validate.run.request import RunRequest
from lumisite.validate.run.runner import Runner
from lumisite.validate.run.sbatch_options import PASSED_ON, sbatch_options
from lumisite.validate.samples import read_lines
from lumisite.validate.verdict.baseline import baseline_size
from lumisite.validate.verdict.jobs_needed import FIRST_AFTER, LEAST_BEFORE, NODE_SETS
from lumisite.validate.verdict.system import Terms

#: Options of a run that goes on; all others were decided when it began.
RESUME_OPTIONS = ("resume", "before", "as_json")


def passed_on_options(command: Callable[..., int]) -> Callable[..., int]:
    """Add the options that sbatch has too."""
    for name, (metavar, text) in reversed([*PASSED_ON.items()]):
        command = click.option(f"--{name}", metavar=metavar, help=text)(command)
    return command


@click.command(cls=Command)
@site_option()
@click.option("-o", "--out", metavar="RUN", type=FILE_NAME, help="Folder of the run, which all nodes see.")
@click.option("--resume", metavar="RUN", type=FILE_NAME, help="Go on with a run that was interrupted.")
@click.option(
    "--jobs", metavar="N", type=COUNT, help=f"Jobs to measure (default: {FIRST_AFTER}, of a baseline {LEAST_BEFORE})."
)
@click.option("--nodes", metavar="N", type=COUNT, help="Nodes of each job (default: the site's).")
@click.option("--nodelist", metavar="NODES", help="Only these nodes, in Slurm's notation.")
@click.option("--avoid", metavar="NODES", help="Not these nodes, in Slurm's notation.")
@click.option("--probe", metavar="NAME", multiple=True, help="Only this one; several times.")
@click.option("--partition", metavar="P", help="Partition (default: the site's).")
@passed_on_options
@click.option("--sbatch", metavar="OPTION", multiple=True, help="One more option for sbatch.")
@click.option("--limit", metavar="SECONDS", type=COUNT, help="Longest time of a step (default: by back-end).")
@click.option("--image", metavar="FILE", type=FILE_NAME, help="Container image (default: the site's).")
@click.option("--node-sets", metavar="N", type=COUNT, help=f"Disjoint sets of nodes (default: {NODE_SETS}).")
@click.option(
    "--step-nodes",
    metavar="N",
    type=click.IntRange(2, 64),
    help="Divide the nodes into jobs of N, 2 to 64 (default: 16 where --nodes is more than 64).",
)
@click.option("--baseline", is_flag=True, help="Measure the time before a change, best on several days.")
@click.option(
    "--before", metavar="FILE", type=FILE_NAME, multiple=True, help="A run from before the change; several times."
)
@click.option("--into", metavar="PLACE", type=FILE_NAME, help="With --baseline: add the samples to this folder.")
@click.option("--env", metavar="NAME=VALUE", multiple=True, help="Set this variable in all steps; several times.")
@click.option("--dry-run", is_flag=True, help="Print what jobs would run and cost; nothing is submitted.")
@json_option
def command(**options: Any) -> int:
    """Submit jobs that run the probes in the site's container, follow them, and judge.

    They go through the deployed module, and every number is kept as a line in RUN/samples.jsonl. Exit code 0: all gates
    passed, 1: one failed, 4: one could not tell, 5: a node is bad, or slower than the others; with --before that of the
    verdict.
    """
    arguments = SimpleNamespace(**options)
    one_of(baseline=arguments.baseline, before=arguments.before)
    if arguments.into and not arguments.baseline:
        raise ResolveError("--into: is for a baseline (give --baseline too)")
    if arguments.resume:
        request = resumed_run(arguments)
    else:
        arguments.site = required_site(arguments.site)
        request = new_request(arguments, load_site(arguments.site), print_note)
    # What cannot be judged against is told before anything is made or submitted.
    side = read_side(request.before) if request.before else None
    loaded = load_site(request.site_file)
    plans, python = plans_of(request, loaded), this_python()
    note_policy(Path(loaded.site.root))
    if arguments.dry_run:
        print_plan(request, loaded.site, plans, python, as_json=arguments.as_json)
        return 0
    run = Run(Path(request.folder)) if arguments.resume else create_run(request)
    run.lock()
    runner = Runner(run, loaded.site, request, plans, report_progress, python=python)
    if not run_jobs(runner, again=bool(arguments.resume)):
        return 130
    if not run.has_facts:
        print_note(no_capture(run, plans))
    code = print_run(run, request, loaded, side, as_json=arguments.as_json)
    if code in (0, 5) and request.into:
        _gather(run, Path(request.into), loaded.site)
    return code


def print_run(run: Run, request: RunRequest, loaded: LoadedSite, before: Side | None, *, as_json: bool) -> int:
    """Print the verdict on a run and the command that goes on, and return the exit code."""
    side = read_side([str(run.folder)])
    report = make_report(before, side, Terms.of(loaded.site.validation), loaded)
    if as_json:
        write_text(WRITERS["json"](report), None)
    else:
        print_lines([WRITERS["text"](report).rstrip("\n")])
    if report.next_command:
        folders = f"{request.folder} {request.folder}-next"
        sides = "".join(f" --before {name}" for name in request.before)
        print_note(f"after `{report.next_command}`, `lumisite report {folders}{sides}` judges both runs together")
    if not side.recorded.series and any(gate.code == "sbatch-refused" for gate in side.recorded.gates):
        return 3
    return report.verdict.exit_code


def no_capture(run: Run, plans: Sequence[JobPlan]) -> str:
    """Return why there is no capture of a node, and the command that makes one."""
    words = next((lines[-1] for plan in plans if (lines := run.errors(plan.run, "facts.stderr"))), "no job came so far")
    return f"no node could be captured: {words} (`lumisite facts -o {run.folder}/facts.json` on a node does it by hand)"


def print_plan(
    request: RunRequest, site: Site, plans: Sequence[JobPlan], python: Sequence[str], *, as_json: bool
) -> None:
    """Print what jobs cost at most, what they request and which steps each has; as JSON with the first one's script."""
    first, named = plans[0], slurm.is_installed()
    sets = Counter(plan.nodes for plan in plans)
    job_nodes, steps = sum(len(plan.nodes) for plan in plans), [step for plan in plans for step in plan.steps]
    nodes, ranks = len({node for names in sets for node in names}), max(step.ranks for step in steps)
    node_hours = job_nodes * minutes_of(validation_of(site).time_limit) / 60
    lines = [
        f"{counted(len(plans), 'job')} on {counted(nodes, 'node')}, {node_hours:.1f} node hours at most",
        f"  {counted(len(steps), 'step')} of {ranks} ranks at most, in {request.folder}",
    ]
    if named:
        lines += [f"  {counted(count, 'job')} on {some(names, between=', ')}" for names, count in [*sets.items()][:4]]
        lines += [f"  … and {len(sets) - 4} other sets of nodes"] if len(sets) > 4 else []
    of_each = ("--job-name", "--output", "--nodelist")
    words = [word for word in sbatch_options(site, request, first) if not word.startswith(of_each)]
    lines += [
        "each job requests",
        f"  {' '.join(words)}",
        f"steps of a job, of {first.steps[0].limit_s} s each at most",
    ]
    lines += [
        f"  {step.folder:32} {counted(step.ranks, 'rank')} on {counted(len(step.nodes), 'node')}"
        for step in first.steps
    ]
    document = {
        "jobs": len(plans),
        "nodes": nodes,
        "steps": len(steps),
        "ranks": ranks,
        "node_hours": node_hours,
        "node_sets": [*sets],
        "sbatch": words,
        "step_names": [step.folder for step in first.steps],
        "script": job_script(site, request, replace(first, named=named), python),
    }
    print_result(document, lines, as_json=as_json)


def report_progress(finding: Finding) -> None:
    """Print what happens while jobs run."""
    print_note(writers.sentence(finding))


def this_python() -> tuple[str, str]:
    """Return this Python, and the PYTHONPATH by which it finds lumisite and its libraries."""
    package = str(Path(lumisite.__file__).parents[1])
    libraries = [path for path in sys.path if path.endswith(("site-packages", "dist-packages"))]
    given = os.environ.get("PYTHONPATH", "")
    paths = dict.fromkeys(filter(None, [package, *given.split(":"), *libraries]))
    return (sys.executable, ":".join(paths))


def run_jobs(runner: Runner, *, again: bool) -> bool:
    """Run the jobs of a request; return false where Ctrl-C has stopped it."""
    resume = f"`lumisite validate --resume {runner.request.folder}`"
    try:
        with progress("steps") as runner.progress:
            runner.restore(again=again)
            runner.work()
    except KeyboardInterrupt:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # what follows is short, and leaves nothing behind in Slurm
        print_note("interrupted: cancelling the jobs of this run")
        runner.cancel()
        print_note(f"what is measured is kept; {resume} goes on")
        return False
    except (OSError, ToolError):
        print_note(f"its jobs go on; {resume} does too, once this is put right:")
        raise
    return True


def _gather(run: Run, into: Path, site: Site) -> None:
    """Add the samples to the baseline, and print how large that is; a run with a failed gate is no baseline."""
    gather(run.folder, into)
    path = into / SAMPLES
    recorded = read_lines([(str(path), file_blocks(str(path)))])
    size = baseline_size(recorded, validation_of(site).baseline_days)
    print_note(writers.sentence(replace(size, subject=f"baseline {into}")))


def resumed_run(arguments: SimpleNamespace) -> RunRequest:
    """Return the request of a run, if it can go on as it began. Raises `ResolveError`."""
    context = click.get_current_context()
    for name in vars(arguments):
        if name not in RESUME_OPTIONS and context.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            option = name.replace("_", "-")
            raise ResolveError(f"--resume: --{option} was decided when the run began (leave it out)")
    folder = arguments.resume
    request = read_request(real_path(folder))
    if real_path(folder) != Path(request.folder):
        raise ResolveError(f"--resume: {folder} was moved, it began as {request.folder} (move it back)")
    loaded = load_site(request.site_file)
    require_unchanged(request, loaded, __version__, image_mark(request.image), f"--resume: {folder}")
    return replace(request, before=real_paths(arguments.before) or request.before)
