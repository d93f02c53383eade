"""`validate`: the request that the options make, and its run."""

from __future__ import annotations

import os
import re
import signal
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import click
from click.core import ParameterSource

import lumisite
from lumisite import __version__
from lumisite.cli.commands import Command
from lumisite.cli.input import file_blocks
from lumisite.cli.options import COUNT, FILE_NAME, json_option, one_of, real_path, site_option
from lumisite.cli.output import print_lines, print_note, print_result, progress, write_text
from lumisite.cli.policy import note_policy
from lumisite.cli.runs import read_side
from lumisite.cli.site_choice import required_site
from lumisite.errors import ResolveError, ToolError
from lumisite.findings import writers
from lumisite.findings.finding import Finding
from lumisite.images.lock import unlike_lock
from lumisite.paths import MODULES, current
from lumisite.site.load import LoadedSite, is_file, load_site
from lumisite.site.model import Site
from lumisite.text import counted, some
from lumisite.validate.report.gather import Side, make_report
from lumisite.validate.report.write import WRITERS
from lumisite.validate.run import slurm
from lumisite.validate.run.folder import Run, create_run, gather, image_mark, lines_of, open_run, samples_of
from lumisite.validate.run.jobscript import JobPlan, job_script, slurm_words, validation_of
from lumisite.validate.run.plan import (
    MOST_NODES,
    STEP_NODES,
    choose_node_sets,
    cost_of,
    machine_sets,
    plans_of,
    require_unchanged,
    site_digest,
    with_specs,
)
from lumisite.validate.run.request import KEPT_OPTIONS, RunRequest
from lumisite.validate.run.runner import Runner
from lumisite.validate.samples import read_lines
from lumisite.validate.verdict.baseline import baseline_size
from lumisite.validate.verdict.system import Terms

#: Jobs of a run, by its purpose: five decide (docs/explanation/verdict.md); ten baseline jobs come from three days.
JOBS = {"validate": 5, "baseline": 4}
NODE_SETS = 2
#: Options of a run that goes on; all others were decided when it began.
RESUME_OPTIONS = ("resume", "before", "as_json")


@click.command(cls=Command)
@site_option()
@click.option(
    "-o", "--out", metavar="RUN", type=FILE_NAME, help="Folder of the run, on a file system that all nodes see."
)
@click.option("--resume", metavar="RUN", type=FILE_NAME, help="Go on with a run that was interrupted.")
@click.option("--jobs", metavar="N", type=COUNT, help="Jobs to measure (default: 5, of a baseline 4).")
@click.option("--nodes", metavar="N", type=COUNT, help="Nodes of each job (default: the site's).")
@click.option("--nodelist", metavar="NODES", help="Only these nodes, in Slurm's notation.")
@click.option("--avoid", metavar="NODES", help="Not these nodes, in Slurm's notation.")
@click.option("--probe", metavar="NAME", multiple=True, help="Only this one; several times.")
@click.option("--partition", metavar="P", help="Partition (default: the site's).")
@click.option("--account", metavar="A", help="Account for sbatch.")
@click.option("--reservation", metavar="R", help="Reservation for sbatch; its nodes are used.")
@click.option("--sbatch", metavar="OPTION", multiple=True, help="One more option for sbatch.")
@click.option(
    "--limit", metavar="SECONDS", type=COUNT, help="Longest time of one step of a probe (default: by back-end)."
)
@click.option("--image", metavar="FILE", type=FILE_NAME, help="Container image (default: the site's).")
@click.option("--node-sets", metavar="N", type=COUNT, help="Disjoint sets of nodes (default: 2).")
@click.option(
    "--step-nodes",
    metavar="N",
    type=click.IntRange(2, 64),
    help="Divide the nodes into jobs of N, 2 to 64, of which 32 at most run at once: all nodes once, then the first "
    "node of each job, up to one job (default: 16 where --nodes is more than 64).",
)
@click.option(
    "--baseline",
    is_flag=True,
    help="Measure the time before a change: to be run on several days, so that noise is known.",
)
@click.option(
    "--before",
    metavar="FILE",
    type=FILE_NAME,
    multiple=True,
    help="Judge against these runs from before the change: folders or files (default: only gates decide).",
)
@click.option(
    "--into",
    metavar="PLACE",
    type=FILE_NAME,
    help="With --baseline: add what was measured to PLACE, and print what is still missing for a baseline; PLACE is a "
    "folder like that of a run, or a file NAME.jsonl, which has the samples only.",
)
@click.option(
    "--env", metavar="NAME=VALUE", multiple=True, help="Set this variable in all steps; may be given several times."
)
@click.option(
    "--dry-run",
    is_flag=True,
    help="Print what jobs would run and cost, with --json a job's script too; submits nothing, needs no Slurm.",
)
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
    request = resumed_run(arguments) if arguments.resume else new_run(arguments)
    # What cannot be judged against is told before anything is made or submitted.
    side = read_side(request.before) if request.before else None
    loaded = load_site(request.site_file)
    plans, python = plans_of(request, loaded), this_python()
    note_policy(Path(loaded.site.root))
    if arguments.dry_run:
        print_plan(request, loaded.site, plans, python, as_json=arguments.as_json)
        return 0
    folder = Path(request.folder)
    run = Run(folder) if arguments.resume else create_run(folder, request.about())
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
        print_note("to go on, run:")
        print_note(f"  {report.next_command}")
        print_note(f"`lumisite report {folders}{sides}` judges both runs together")
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
    """Print what jobs cost, what they request and which steps each has; as JSON with the script of the first one."""
    cost, first, named = cost_of(site, plans), plans[0], slurm.is_installed()
    jobs, nodes = counted(cost.jobs, "job"), counted(cost.nodes, "node")
    lines = [
        f"{jobs} on {nodes}, {cost.node_hours:.1f} node hours at most",
        f"  {counted(cost.steps, 'step')} of {cost.ranks} ranks at most, in {request.folder}",
    ]
    sets = Counter(plan.nodes for plan in plans)
    if named:
        lines += [f"  {counted(count, 'job')} on {some(names, between=', ')}" for names, count in [*sets.items()][:4]]
        lines += [f"  … and {len(sets) - 4} other sets of nodes"] if len(sets) > 4 else []
    words = [
        word
        for word in slurm_words(site, request, first)
        if not word.startswith(("--job-name", "--output", "--nodelist"))
    ]
    lines += [
        "each job requests",
        f"  {' '.join(words)}",
        f"steps of a job, of {first.steps[0].limit_s} s each at most",
    ]
    lines += [
        f"  {step.folder:32} {counted(step.ranks, 'rank')} on {counted(len(step.nodes), 'node')}"
        for step in first.steps
    ]
    document = asdict(cost) | {
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
    path = samples_of(into)
    recorded = read_lines([(str(path), file_blocks(str(path)))])
    size = baseline_size(recorded, validation_of(site).baseline_days)
    print_note(writers.sentence(replace(size, subject=f"baseline {into}")))


def new_run(arguments: SimpleNamespace) -> RunRequest:
    """Decide all that a run needs. Raises `ResolveError` and `ToolError`."""
    arguments.site = required_site(arguments.site)
    loaded = load_site(arguments.site)
    stamp = f"{time.strftime('%Y%m%dT%H%M%S', time.gmtime())}-{os.getpid() % 1000:03}"
    purpose = "baseline" if arguments.baseline else "validate"
    folder = real_path(arguments.out or f"lumisite-runs/{stamp[:15]}-{purpose}")
    # An unknown probe is reported before Slurm is queried.
    request = with_specs(_make_request(arguments, loaded, purpose, str(folder), stamp), loaded)
    if not arguments.dry_run:
        require_shared(loaded.site, folder, "--out")
        require_deployed(loaded.site)
    warn_before_jobs(request)
    if replaced := unlike_lock(loaded, request.image, request.image_digest):
        print_note(writers.sentence(replaced))
    return with_nodes(request, arguments)


def _make_request(arguments: SimpleNamespace, loaded: LoadedSite, purpose: str, folder: str, stamp: str) -> RunRequest:
    """Return the request that the options make, with made-up names of nodes."""
    site, validation = loaded.site, validation_of(loaded.site)
    nodes = tuple(f"node{number}" for number in range(arguments.nodes or validation.nodes))
    sets, step_nodes = node_sets_of(arguments, nodes)
    image = arguments.image or validation.image
    return RunRequest(
        lumisite=__version__,
        site=site.name,
        platform=site.platform,
        purpose=purpose,
        image=image,
        image_digest=image_mark(image),
        started=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        backend=validation.backend,
        partition=arguments.partition or validation.partition,
        folder=folder,
        site_file=str(real_path(arguments.site)) if is_file(arguments.site) else arguments.site,
        site_digest=site_digest(loaded),
        stamp=stamp,
        # Each set of a machine is measured once, unless more jobs are requested.
        jobs=len(sets) * (arguments.jobs or 1) if step_nodes else arguments.jobs or JOBS[purpose],
        node_sets=sets,
        probes=tuple(arguments.probe),
        specs={},
        sbatch=tuple(arguments.sbatch),
        **{name: getattr(arguments, name) for name in KEPT_OPTIONS},
        env=dict(map(parse_assignment, arguments.env)),
        before=_real_paths(arguments.before),
        into=str(real_path(arguments.into)) if arguments.into else None,
        step_nodes=step_nodes,
    )


def parse_assignment(text: str) -> tuple[str, str]:
    """Return the name and the value of a variable that is to be set. Raises `ResolveError`."""
    name, equals, value = text.partition("=")
    if not equals or not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name) or not value.isprintable():
        raise ResolveError(f"--env: {text!r} does not set a variable (NCCL_ALGO=Ring would)")
    return name, value


def node_sets_of(arguments: SimpleNamespace, nodes: tuple[str, ...]) -> tuple[tuple[tuple[str, ...], ...], int | None]:
    """Return the sets of nodes that jobs have, and of how many nodes each is where the nodes are divided."""
    if arguments.step_nodes is None and len(nodes) <= MOST_NODES:
        return (nodes,), None
    size = min(arguments.step_nodes or STEP_NODES, len(nodes))
    return tuple(machine_sets(nodes, size)), size


def _real_paths(names: Sequence[str]) -> tuple[str, ...]:
    return tuple(str(real_path(name)) for name in names)


def warn_before_jobs(request: RunRequest) -> None:
    """Print what will be missing later, before jobs are spent on it. Raises what a file that cannot be used raises."""
    if ignored := slurm.ignored_options():
        print_note(
            f"{', '.join(ignored)} of this shell not passed to sbatch (use the options of validate, or --sbatch)"
        )
    if not request.image_digest:
        print_note(f"{request.image} is not there on this node: jobs look for it on theirs")
    if request.into and samples_of(Path(request.into)).exists():
        lines_of(samples_of(Path(request.into)), torn=True)
    if request.before and request.jobs < JOBS["validate"]:
        print_note(f"{counted(request.jobs, 'job')} may be too few to decide: {JOBS['validate']} are recommended")


def require_shared(site: Site, folder: Path, what: str) -> None:
    """Refuse a folder that not all nodes see, or whose name a container's bind or an #SBATCH line would cut."""
    if not re.fullmatch(r"[\w./+@=-]+", str(folder)):
        raise ResolveError(
            f"{what}: {str(folder)!r} has characters that separate binds (use letters, digits and ._+@=-)"
        )
    shared = [file_system.path for file_system in site.file_systems if file_system.kind == "shared"]
    places = [folder, *folder.parents]
    if not any(real_path(path) in places for path in shared):
        raise ResolveError(f"{what}: {folder} is not on a file system that all nodes see (have {', '.join(shared)})")


def require_deployed(site: Site) -> None:
    """Refuse to submit jobs that could not load the site's module."""
    if not Path(current(site.root, MODULES)).is_dir():
        raise ToolError(
            f"{site.root}: nothing is deployed here, or this node does not see it: jobs could not load the module "
            f"(`lumisite render`, then `lumisite deploy OUT {site.root} --apply`)"
        )


def with_nodes(request: RunRequest, arguments: SimpleNamespace) -> RunRequest:
    """Choose the nodes; what is only printed where there is no Slurm leaves them to Slurm."""
    if arguments.dry_run and not slurm.is_installed():
        return request
    only = slurm.expand(arguments.nodelist) if arguments.nodelist else None
    avoid = slurm.expand(arguments.avoid) if arguments.avoid else []
    if request.reservation:
        reserved = slurm.nodes_of_reservation(request.reservation)
        only = [name for name in reserved if only is None or name in only]
    nodes = slurm.nodes_of(request.partition)
    size = len(request.nodes) if request.step_nodes else len(request.node_sets[0])
    count = 1 if request.step_nodes else min(arguments.node_sets or NODE_SETS, request.jobs)
    reasons = slurm.reasons_of([name for name, state in nodes.items() if state not in slurm.IN_SERVICE])
    sets = choose_node_sets(
        nodes, size, count, reserved=bool(request.reservation), only=only, avoid=avoid, reasons=reasons
    )
    if len(sets) < count:
        print_note(
            f"only {len(sets)} of {count} disjoint sets of {size} nodes available: with one set alone, a slow node "
            "looks like a slow system"
        )
    if request.step_nodes:
        sets = machine_sets(sets[0], len(request.node_sets[0]))
    return replace(request, node_sets=tuple(sets))


def resumed_run(arguments: SimpleNamespace) -> RunRequest:
    """Return the request of a run, if it can go on as it began. Raises `ResolveError`."""
    context = click.get_current_context()
    for name in vars(arguments):
        if name not in RESUME_OPTIONS and context.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            option = name.replace("_", "-")
            raise ResolveError(f"--resume: --{option} was decided when the run began (leave it out)")
    folder = arguments.resume
    _, request = open_run(real_path(folder))
    if real_path(folder) != Path(request.folder):
        raise ResolveError(f"--resume: {folder} was moved, it began as {request.folder} (move it back)")
    loaded = load_site(request.site_file)
    require_unchanged(request, loaded, __version__, image_mark(request.image), f"--resume: {folder}")
    return replace(request, before=_real_paths(arguments.before) or request.before)
