"""`reframe`: a test module for sites that run ReFrame, and the two commands that the module calls."""

from __future__ import annotations

import argparse
import json
import os
import shlex
import time
from dataclasses import replace
from pathlib import Path

from lumisite import __version__
from lumisite.cli.arguments import add_image, add_nodes, add_other_images, add_output, add_probe, add_site, real_path
from lumisite.cli.output import write_text
from lumisite.cli.validate import make_request, report_progress, require_shared
from lumisite.errors import ResolveError
from lumisite.findings.exit_code import verdict_exit_code
from lumisite.site.load import LoadedSite, load_site
from lumisite.validate.reframe.module import answer, module_text
from lumisite.validate.run.folder import SAMPLES, create_run, image_mark, lines_of, open_run
from lumisite.validate.run.plan import plans_of, require_unchanged, with_specs
from lumisite.validate.run.request import RunRequest
from lumisite.validate.run.runner import Runner
from lumisite.validate.run.script import NODES, JobPlan, job_script, slurm_words

#: Options that the module passes on to lumisite, besides the site.
PASSED_ON = ("image", "nodes", "partition", "jax_image", "wrapper")
FILES = ("image", "jax_image", "wrapper")


def add_reframe(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `reframe`."""
    parser.description = (
        "Write a test module for ReFrame 4 with the probes of `validate`: same jobs, same gates, same numbers."
    )
    either = parser.add_mutually_exclusive_group()
    add_site(parser)
    add_image(parser)
    add_probe(parser)
    add_nodes(parser)
    parser.add_argument("--partition", metavar="P", help="Slurm's partition (default: the site's)")
    add_other_images(parser)
    add_output(parser)
    either.add_argument("--stage", metavar="DIR", help="for the module: put a probe's job into a stage directory")
    either.add_argument("--judge", metavar="DIR", help="for the module: judge a probe's job in a stage directory")
    parser.add_argument("--job", metavar="ID", help="with --judge: the job's number")


def run_reframe(arguments: argparse.Namespace) -> int:
    """Write the module, or do what it asks."""
    if arguments.stage:
        return _stage(arguments)
    return _judge(arguments) if arguments.judge else _module(arguments)


def _module(arguments: argparse.Namespace) -> int:
    request, loaded = _requested(arguments, "/stage", "module")
    plan = _job(request, loaded)
    options = slurm_words(loaded.site, request, plan)
    words, system = _words(arguments, request.site_file), f"{request.site}:{request.partition}"
    # The command that writes this module again.
    command = ["lumisite", "reframe", *words, *(word for name in arguments.probe for word in ("--probe", name))]
    write_text(module_text(loaded.site, plan, options, system, words, shlex.join(command)), arguments.output)
    return 0


def _requested(arguments: argparse.Namespace, folder: str, stamp: str) -> tuple[RunRequest, LoadedSite]:
    """Return what `validate` would request with these options, for one job."""
    return make_request(argparse.Namespace(**vars(arguments) | {"sbatch": [], "command": "validate"}), folder, stamp, 1)


def _job(request: RunRequest, loaded: LoadedSite) -> JobPlan:
    """Return the plan of the job. Slurm chooses its nodes, as for all tests of ReFrame."""
    (plan,) = plans_of(request, loaded)
    return replace(plan, named=False)


def _words(arguments: argparse.Namespace, site_file: str) -> tuple[str, ...]:
    """Return the options that the module passes on; files by their absolute path, since ReFrame runs elsewhere."""
    words = ["--site", site_file]
    for name in PASSED_ON:
        value = getattr(arguments, name)
        if value is not None:
            is_file = name in FILES and "://" not in value
            words += [f"--{name.replace('_', '-')}", str(Path(value).absolute() if is_file else value)]
    return tuple(words)


def _stage(arguments: argparse.Namespace) -> int:
    """Write the job of one probe into a stage directory."""
    folder = real_path(arguments.stage)
    stamp = f"reframe-{time.strftime('%Y%m%dT%H%M%S', time.gmtime())}-{os.getpid()}-{'-'.join(arguments.probe)}"
    request, loaded = _requested(arguments, str(folder), stamp)
    require_shared(loaded.site, folder, "stage directory")
    plan = _job(request, loaded)
    run = create_run(folder, request.about())
    path = Path(run.write_script(plan.run, 1, job_script(loaded.site, request, plan, 1)))
    print(json.dumps({"script": str(path.relative_to(folder))}))
    return 0


def _judge(arguments: argparse.Namespace) -> int:
    """Judge the job of a stage directory as `validate` judges its own: wait for it, and ask Slurm what became of it."""
    folder = real_path(arguments.judge)
    run, request = open_run(folder)
    loaded = load_site(request.site_file)
    require_unchanged(request, loaded, __version__, image_mark(request.image), str(folder))
    name = _job(request, loaded).run
    # A job that never began is not on any node: its findings name the partition.
    nodes = tuple(run.marker(name, NODES)) or (request.partition,)
    request = with_specs(replace(request, batches=(replace(request.batches[0], node_sets=(nodes,)),)), loaded)
    if not arguments.job:
        raise ResolveError("--judge: goes with --job ID, the job's number")
    run.lock()
    runner = Runner(run, loaded.site, request, [_job(request, loaded)], report_progress)
    runner.restore([{"run": name, "event": "submitted", "id": arguments.job}])
    runner.work()
    document = answer(lines_of(run.folder / SAMPLES))
    print(json.dumps(document))
    return verdict_exit_code(str(document["verdict"]))
