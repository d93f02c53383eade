"""Commands that measure: `validate` and `baseline`."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from lumisite.cli.parser import add_json_option, add_site_option

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from lumisite.cli.parser import Commands
    from lumisite.site.model import Site
    from lumisite.validate.job import JobPlan
    from lumisite.validate.lines import Gate, Sample
    from lumisite.validate.runner import Runner, Setting
    from lumisite.validate.runs import Run

#: Jobs of a run, by its purpose: five decide (docs/explanation/verdict.md); ten baseline jobs come from three days.
JOBS = {"validate": 5, "baseline": 4}


def add_commands(commands: Commands) -> None:
    """Add this module's commands."""
    validate = commands.add_parser(
        "validate",
        help="measure the system after a change, with real jobs",
        description="Submit jobs that run the probes in the site's container through the deployed module, follow them, "
        "and keep every number as a line in RUN/samples.jsonl. Exit code 0: all gates passed, 1: one failed, 4: one "
        "could not tell.",
    )
    _add_run_options(validate, "validate")
    baseline = commands.add_parser(
        "baseline",
        help="measure the system before a change",
        description="As `validate`, for the time before a change: to be run on several days, so that noise is known.",
    )
    _add_run_options(baseline, "baseline")


def _add_run_options(parser: argparse.ArgumentParser, purpose: str) -> None:
    add_site_option(parser)
    parser.add_argument("--out", metavar="RUN", help="folder of the run, on a file system that all nodes see")
    parser.add_argument("--resume", metavar="RUN", help="go on with a run that was interrupted")
    parser.add_argument("--jobs", type=_count, metavar="N", help=f"jobs to measure (default: {JOBS[purpose]})")
    parser.add_argument("--nodes", type=_count, metavar="N", help="nodes of each job (default: the site's)")
    parser.add_argument("--node-sets", type=_count, default=2, metavar="N", help="disjoint sets of nodes (default: 2)")
    parser.add_argument("--nodelist", metavar="NODES", help="only these nodes, in Slurm's notation")
    parser.add_argument("--probe", action="append", default=[], metavar="NAME", help="only this one; several times")
    parser.add_argument("--partition", metavar="P", help="partition (default: the site's)")
    parser.add_argument("--account", metavar="A", help="account for sbatch")
    parser.add_argument("--reservation", metavar="R", help="reservation for sbatch; its nodes are used")
    parser.add_argument("--sbatch", action="append", default=[], metavar="OPTION", help="one more option for sbatch")
    parser.add_argument(
        "--limit", type=_count, metavar="SECONDS", help="longest time of one step of a probe (default: by back-end)"
    )
    parser.add_argument("--image", metavar="FILE", help="container image (default: the site's)")
    if purpose == "baseline":
        parser.add_argument(
            "--into",
            metavar="PLACE",
            help="add what was measured to PLACE, and say what is still missing for a baseline; PLACE is a folder like "
            "that of a run, or a file NAME.jsonl, which has the samples only",
        )
    else:
        parser.add_argument(
            "--baseline",
            action="append",
            default=[],
            metavar="FILE",
            help="judge against these runs from before the change, folders or files (default: only gates decide)",
        )
    parser.add_argument("--jax-image", metavar="FILE", help="image with JAX, for the probe jax (default: none)")
    parser.add_argument(
        "--wrapper", metavar="DIR", help="environment of the container wrapper, for the probe wrapper (default: none)"
    )
    parser.add_argument("--dry-run", action="store_true", help="print the jobs' scripts and submit nothing")
    add_json_option(parser)
    parser.set_defaults(call=run_validate, purpose=purpose)


def _count(text: str) -> int:
    try:
        number = int(text)
    except ValueError:
        number = 0
    if not 1 <= number <= 10_000:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 1 to 10000")
    return number


def run_validate(arguments: argparse.Namespace) -> int:
    """Run, or go on with a run, and print what came of it."""
    from pathlib import Path

    from lumisite.validate.runs import open_run

    if arguments.resume:
        folder = Path(arguments.resume).resolve()
        run, about = open_run(folder)
        arguments = _recorded(arguments, about)
    else:
        about = _new(arguments)
        folder = Path(str(about["folder"]))
        scripts = list(_scripts(arguments, about))
        if arguments.dry_run:
            print("\n".join(scripts))
            return 0
        run = _create(folder, about)
    runner = _runner(run, arguments, about)
    return _drive(run, runner, arguments)


def _new(arguments: argparse.Namespace) -> dict[str, object]:
    """Decide all that a run needs, as run.json keeps it."""
    import os
    import time
    from pathlib import Path

    from lumisite import __version__
    from lumisite.site.load import load_site
    from lumisite.validate.job import validation_of
    from lumisite.validate.runs import image_mark

    site = load_site(arguments.site).site
    validation = validation_of(site)
    stamp = time.strftime("%Y%m%dT%H%M%S", time.gmtime())
    folder = Path(arguments.out or f"lumisite-runs/{stamp}-{arguments.purpose}").resolve()
    _require_shared(site, folder)
    node_sets = _node_sets(arguments, site)
    image = arguments.image or validation.image
    place = arguments.site if "/" not in arguments.site else str(Path(arguments.site).resolve())
    return {
        "lumisite": __version__,
        "site": site.name,
        "platform": site.platform,
        "purpose": arguments.purpose,
        "image": image,
        "image_digest": image_mark(image),
        "spec": "",
        "started": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "backend": validation.backend,
        "partition": arguments.partition or validation.partition,
        "node_sets": node_sets,
        "folder": str(folder),
        "stamp": f"{stamp}-{os.getpid() % 1000:03}",
        "jobs": arguments.jobs or JOBS[arguments.purpose],
        "site_file": place,
        "probes": list(arguments.probe),
        "account": arguments.account,
        "reservation": arguments.reservation,
        "sbatch": list(arguments.sbatch),
        "limit": arguments.limit,
        "jax_image": arguments.jax_image,
        "wrapper": arguments.wrapper,
    }


def _require_shared(site: Site, folder: Path) -> None:
    """Refuse a folder that not all nodes see, or whose name a container's bind or an #SBATCH line would cut."""
    import re
    from pathlib import Path

    from lumisite.errors import ResolveError

    if not re.fullmatch(r"[\w./+@=-]+", str(folder)):
        raise ResolveError(
            f"--out: {str(folder)!r} has characters that cut binds (letters, digits and ._+@=- are right)"
        )
    shared = [file_system.path for file_system in site.file_systems if file_system.kind == "shared"]
    places = [folder, *folder.parents]
    if not any(Path(path).resolve() in places for path in shared):
        raise ResolveError(f"--out: {folder} is not on a file system that all nodes see (have {', '.join(shared)})")


def _node_sets(arguments: argparse.Namespace, site: Site) -> list[tuple[str, ...]]:
    from lumisite.validate import slurm
    from lumisite.validate.job import validation_of
    from lumisite.validate.plan import choose_node_sets

    validation = validation_of(site)
    only = slurm.expand(arguments.nodelist) if arguments.nodelist else None
    if arguments.reservation:
        reserved = slurm.nodes_of_reservation(arguments.reservation)
        only = [name for name in reserved if only is None or name in only]
    nodes = slurm.nodes_of(arguments.partition or validation.partition)
    size = arguments.nodes or validation.nodes
    jobs = arguments.jobs or JOBS[arguments.purpose]
    wanted = min(arguments.node_sets, jobs)
    sets = choose_node_sets(nodes, size, wanted, reserved=bool(arguments.reservation), only=only)
    if len(sets) < wanted:
        _say(f"only {len(sets)} of {wanted} node sets of {size} can be had: what one set cannot tell stays open")
    return sets


def _create(folder: Path, about: Mapping[str, object]) -> Run:
    from lumisite.validate.runs import create_run

    return create_run(folder, about)


def _recorded(arguments: argparse.Namespace, about: Mapping[str, object]) -> argparse.Namespace:
    """Give the options that the run was started with."""
    from lumisite.errors import ResolveError

    missing = [key for key in ("site_file", "folder", "stamp", "node_sets", "jobs") if key not in about]
    if missing:
        raise ResolveError(f"--resume: {arguments.resume}/run.json lacks {', '.join(missing)}")
    values = vars(arguments) | {
        "site": about["site_file"],
        "probe": about["probes"],
        "partition": about["partition"],
        "account": about["account"],
        "reservation": about["reservation"],
        "sbatch": about["sbatch"],
        "limit": about.get("limit"),
        "jax_image": about.get("jax_image"),
        "wrapper": about.get("wrapper"),
        "image": about["image"],
    }
    return argparse.Namespace(**values)


def _setting(arguments: argparse.Namespace, about: Mapping[str, object]) -> tuple[Setting, list[JobPlan]]:
    from lumisite.site.load import load_site
    from lumisite.site.selection import resolve_selection
    from lumisite.validate.gates import gate_probes
    from lumisite.validate.job import Options, validation_of
    from lumisite.validate.plan import plan_jobs
    from lumisite.validate.probe import Group, spec_hash
    from lumisite.validate.runner import Setting
    from lumisite.validate.runs import script_bytes
    from lumisite.validate.suite import Wanted, groups, require_known

    site = load_site(str(about["site_file"])).site
    validation = validation_of(site)

    names, image = tuple(arguments.probe), str(about["image"])
    gates = gate_probes(
        site, resolve_selection(site), image=image, jax_image=arguments.jax_image, wrapper=arguments.wrapper
    )
    wanted = Wanted(names, validation, site.network, site.runtime.name, image, gates, arguments.limit)
    require_known(wanted)

    def contents(nodes: tuple[str, ...]) -> list[Group]:
        return groups(wanted, nodes)

    sets = about["node_sets"]
    assert isinstance(sets, list)
    jobs, stamp, folder = int(str(about["jobs"])), str(about["stamp"]), str(about["folder"])
    plans = plan_jobs(stamp, folder, [tuple(each) for each in sets], jobs, contents)
    specs = {
        group.folder: spec_hash([script_bytes(name) for step in group.steps for name in step.files], group)
        for plan in plans
        for group in plan.groups
    }
    partition = arguments.partition or validation.partition
    setting = Setting(
        site=site,
        backend=validation.backend,
        options=Options(
            partition, arguments.account, arguments.reservation, tuple(arguments.sbatch), _facts_command(about)
        ),
        image_mark=str(about["image_digest"]),
        specs=specs,
    )
    return setting, plans


def _facts_command(about: Mapping[str, object]) -> tuple[str, ...]:
    """Give the command that captures a node: this lumisite, where the node sees it."""
    import os

    path = os.environ.get("PYTHONPATH")
    place = ("env", f"PYTHONPATH={path}") if path else ()
    return (*place, sys.executable, "-m", "lumisite", "facts", "--site", str(about["site_file"]))


def _scripts(arguments: argparse.Namespace, about: Mapping[str, object]) -> Iterator[str]:
    from lumisite.validate.job import job_script

    setting, plans = _setting(arguments, about)
    for plan in plans:
        yield job_script(setting.site, plan, setting.options, f"{about['folder']}/probes", 1)


def _runner(run: Run, arguments: argparse.Namespace, about: Mapping[str, object]) -> Runner:
    from lumisite.validate.runner import Runner

    journal = run.hold()
    setting, plans = _setting(arguments, about)
    runner = Runner(run, setting, plans, _say)
    runner.restore(journal)
    return runner


def _drive(run: Run, runner: Runner, arguments: argparse.Namespace) -> int:
    import signal

    try:
        runner.work()
    except KeyboardInterrupt:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # what follows is short, and leaves nothing behind in Slurm
        _say("interrupted: cancelling the jobs of this run")
        runner.cancel()
        _say(f"what is measured is kept; `lumisite {arguments.purpose} --resume {run.folder}` goes on")
        return 130
    if not run.has_facts:
        _say(f"no node could be captured; `lumisite facts -o {run.folder}/facts.json` on one tells what changed")
    if arguments.purpose == "validate" and arguments.baseline:
        return _against(run, arguments)
    code = _report(run, arguments)
    return code or (_gather(run, arguments) if arguments.purpose == "baseline" else 0)


def _report(run: Run, arguments: argparse.Namespace) -> int:
    import json

    from lumisite.validate.lines import Gate, Sample
    from lumisite.validate.runs import SAMPLES, lines_of

    lines = lines_of(run.folder / SAMPLES)
    gates = [line for line in lines if isinstance(line, Gate)]
    samples = [line for line in lines if isinstance(line, Sample)]
    if arguments.json:
        told = {"run": str(run.folder), "gates": [vars(gate) for gate in gates], "metrics": _medians(samples)}
        print(json.dumps(told, indent=1))
    else:
        print("\n".join(_text(run.folder, gates, samples)))
    if not samples and any(gate.cause.startswith("sbatch refused") for gate in gates):
        return 3
    states = {gate.verdict for gate in gates}
    return 1 if "fail" in states else 4 if "inconclusive" in states else 0


def _gather(run: Run, arguments: argparse.Namespace) -> int:
    """Add what was measured to the baseline, and say what that has; a run with a failed gate is no baseline."""
    from pathlib import Path

    from lumisite.validate.baseline import has_and_lacks
    from lumisite.validate.runs import SAMPLES, gather, lines_of
    from lumisite.validate.samples import read_lines

    if not arguments.into:
        return 0
    place = Path(arguments.into)
    if place.suffix == ".jsonl" or place.is_file():
        gather(run.folder, place.parent, {SAMPLES: place.name})
    else:
        gather(run.folder, place)
        place /= SAMPLES
    lines_of(place)  # tells a damaged line by its number
    has, lacks = has_and_lacks(read_lines([(arguments.into, [place.read_bytes()])]))
    _say(f"{arguments.into} has {has}")
    _say(f"for a baseline it lacks {lacks}" if lacks else "that is a baseline")
    return 0


def _against(run: Run, arguments: argparse.Namespace) -> int:
    """Print the verdict against runs from before the change."""
    from lumisite.cli.report import run_report

    words = {"run": str(run.folder), "baseline": arguments.baseline, "site": arguments.site, "json": arguments.json}
    return run_report(argparse.Namespace(**words, facts=None, allow_image_change=False, format=None, output=None))


def _medians(samples: Sequence[Sample]) -> dict[str, dict[str, object]]:
    import statistics

    by_metric: dict[str, list[Sample]] = {}
    for sample in samples:
        by_metric.setdefault(sample.metric, []).append(sample)
    return {
        metric: {
            "median": float(f"{statistics.median(sample.value for sample in own):.6g}"),
            "unit": own[0].unit,
            "jobs": len({sample.run for sample in own}),
        }
        for metric, own in sorted(by_metric.items())
    }


def _text(folder: Path, gates: Sequence[Gate], samples: Sequence[Sample]) -> Iterator[str]:
    for metric, told in _medians(samples).items():
        yield f"{metric:44} {told['median']:>12} {told['unit']}".rstrip()
    by_gate: dict[str, list[Gate]] = {}
    for gate in gates:
        by_gate.setdefault(gate.gate, []).append(gate)
    for name, own in by_gate.items():
        bad = [gate for gate in own if gate.verdict != "pass"]
        yield f"{name}: {'passed' if not bad else bad[0].verdict} ({len(own) - len(bad)} of {len(own)})"
        for gate in bad:
            yield f"    {gate.run}: {gate.cause}"
            if gate.advice:
                yield f"        {gate.advice}"
    yield f"{folder}"


def _say(text: str) -> None:
    print(f"lumisite: {text}", file=sys.stderr, flush=True)
