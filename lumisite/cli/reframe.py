"""The command for sites that run ReFrame: `reframe`."""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING

from lumisite.cli.asking import decided, require_shared
from lumisite.cli.parser import add_site_option, real_path, say
from lumisite.cli.validate import count
from lumisite.errors import ResolveError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from lumisite.cli.parser import Commands
    from lumisite.site.load import LoadedSite
    from lumisite.validate.reframe.cases import Choice
    from lumisite.validate.run.asked import Asked
    from lumisite.validate.run.script import JobPlan

#: Options that the module passes on to lumisite, besides the site.
PASSED_ON = ("image", "nodes", "partition", "limit", "jax_image", "wrapper")
FILES = ("image", "jax_image", "wrapper")


def add_commands(commands: Commands) -> None:
    """Add this module's commands."""
    reframe = commands.add_parser(
        "reframe",
        help="the same probes as a ReFrame test module; ReFrame's results as samples",
        description="Write a test module for ReFrame 4 with the probes of `validate`: same jobs, same gates, same "
        "numbers. With --import, write what ReFrame recorded as samples instead.",
    )
    add_site_option(reframe)
    reframe.add_argument("--image", metavar="FILE", help="container image (default: the site's)")
    reframe.add_argument("--probe", action="append", default=[], metavar="NAME", help="only this one; several times")
    reframe.add_argument("--nodes", type=count, metavar="N", help="nodes of each job (default: the site's)")
    reframe.add_argument("--partition", metavar="P", help="Slurm's partition (default: the site's)")
    reframe.add_argument("--limit", type=count, metavar="SECONDS", help="longest time of one step of a probe")
    reframe.add_argument("--jax-image", metavar="FILE", help="image with JAX, for the probe jax (default: none)")
    reframe.add_argument(
        "--wrapper", metavar="DIR", help="environment of the container wrapper, for the probe wrapper (default: none)"
    )
    reframe.add_argument(
        "--system",
        metavar="SYSTEM:PARTITION",
        help="system and partition as ReFrame's settings name them (default: the site and Slurm's partition)",
    )
    reframe.add_argument("-o", "--output", metavar="FILE", help="write to FILE (default: standard output)")
    instead = reframe.add_mutually_exclusive_group()
    instead.add_argument(
        "--import",
        dest="reports",
        nargs="+",
        metavar="FILE",
        help="write the numbers of these reports (`reframe --report-file`) and perflogs as samples",
    )
    instead.add_argument("--stage", metavar="DIR", help="for the module: put a probe's job into a stage directory")
    instead.add_argument("--judge", metavar="DIR", help="for the module: judge a probe's job in a stage directory")
    reframe.add_argument("--job", metavar="ID", help="with --judge: the job's number")
    reframe.add_argument(
        "--better",
        type=_direction,
        action="append",
        default=[],
        metavar="PATTERN=higher|lower|none",
        help="with --import: whether more is better of metrics that neither thresholds nor unit tell; none leaves them "
        "out. May be given several times",
    )
    reframe.add_argument(
        "--on",
        type=_nodes,
        default=(),
        metavar="NODES",
        help="with --import: the nodes of jobs of which ReFrame recorded none (default: they are left out)",
    )
    reframe.add_argument(
        "--after",
        action="store_true",
        help="with --import: the reports are from after a change, so tests that failed are failed gates, and numbers "
        "below their reference count",
    )
    reframe.set_defaults(call=run_reframe)


def _direction(text: str) -> tuple[str, Choice]:
    from lumisite.validate.reframe.cases import CHOICES

    pattern, _, said = text.rpartition("=")
    for choice in CHOICES:
        if pattern and said == choice:
            return pattern, choice
    raise argparse.ArgumentTypeError(f"{text!r} is not PATTERN=higher, PATTERN=lower or PATTERN=none")


def _nodes(text: str) -> tuple[str, ...]:
    from lumisite.validate.reframe.node_names import expand_nodes

    try:
        return expand_nodes(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{error} (nid[000001-000002] would be right)") from None


def run_reframe(arguments: argparse.Namespace) -> int:
    """Write the module, or do what it or an import asks."""
    if arguments.reports:
        return _import(arguments)
    for option, value in (("--better", arguments.better), ("--on", arguments.on), ("--after", arguments.after)):
        if value:
            raise ResolveError(f"{option}: goes with --import only")
    if arguments.stage:
        return _stage(arguments)
    if arguments.judge:
        return _judge(arguments)
    return _module(arguments)


def _module(arguments: argparse.Namespace) -> int:
    from lumisite.cli.report import write_text
    from lumisite.validate.reframe.module import Module, module_text
    from lumisite.validate.run.script import slurm_words, validation_of

    asked, loaded = _asked(arguments, "/stage", "module")
    plan = _job(asked, loaded)
    site, words = loaded.site, _words(arguments, asked.site_file)
    module = Module(
        site=site.name,
        words=words,
        probes={group.steps[0].probe: group.asks for group in plan.groups},
        nodes=len(plan.nodes),
        tasks_per_node=validation_of(site).tasks_per_node,
        options=tuple(slurm_words(site, asked, plan)),
        expected=validation_of(site).metrics,
        system=arguments.system or f"{site.name}:{asked.partition}",
    )
    write_text(module_text(module, _command(arguments, words)), arguments.output)
    return 0


def _asked(arguments: argparse.Namespace, folder: str, stamp: str) -> tuple[Asked, LoadedSite]:
    """Give what `validate` would be asked with these options, for one job."""
    others: dict[str, object] = {"account": None, "reservation": None, "sbatch": [], "purpose": "validate"}
    return decided(argparse.Namespace(**vars(arguments) | others), folder, stamp, 1)


def _job(asked: Asked, loaded: LoadedSite) -> JobPlan:
    """Give the one job. Slurm chooses its nodes, as for all of ReFrame's tests."""
    from dataclasses import replace

    from lumisite.validate.run.plan import plans_of

    (plan,) = plans_of(asked, loaded)
    return replace(plan, named=False)


def _words(arguments: argparse.Namespace, site_file: str) -> tuple[str, ...]:
    """Give the options that the module passes on; files by their whole path, since ReFrame works elsewhere."""
    from pathlib import Path

    words = ["--site", site_file]
    for name in PASSED_ON:
        value = getattr(arguments, name)
        if value is not None:
            is_file = name in FILES and "://" not in value
            words += [f"--{name.replace('_', '-')}", str(Path(value).absolute() if is_file else value)]
    return tuple(words)


def _command(arguments: argparse.Namespace, words: tuple[str, ...]) -> str:
    """Give the command that writes this module again."""
    import shlex

    probes = [word for name in arguments.probe for word in ("--probe", name)]
    system = ["--system", arguments.system] if arguments.system else []
    return shlex.join(["lumisite", "reframe", *words, *probes, *system])


def _stage(arguments: argparse.Namespace) -> int:
    """Put the job of one probe into a stage directory."""
    import os
    import time
    from pathlib import Path

    from lumisite.validate.run.folder import create_run
    from lumisite.validate.run.script import job_script

    folder = real_path(arguments.stage)
    stamp = f"reframe-{time.strftime('%Y%m%dT%H%M%S', time.gmtime())}-{os.getpid()}-{'-'.join(arguments.probe)}"
    asked, loaded = _asked(arguments, str(folder), stamp)
    require_shared(loaded.site, folder, "stage directory")
    plan = _job(asked, loaded)
    run = create_run(folder, asked.about())
    path = Path(run.write_script(plan.run, 1, job_script(loaded.site, asked, plan, 1)))
    print(json.dumps({"script": str(path.relative_to(folder))}))
    return 0


def _judge(arguments: argparse.Namespace) -> int:
    """Judge the job of a stage directory as `validate` judges its own: wait for it, and ask Slurm what became of it."""
    from dataclasses import replace

    from lumisite import __version__
    from lumisite.site.load import load_site
    from lumisite.validate.reframe.answer import answer
    from lumisite.validate.run.asked import parse_asked
    from lumisite.validate.run.folder import SAMPLES, image_mark, lines_of, open_run
    from lumisite.validate.run.plan import require_unchanged, with_specs
    from lumisite.validate.run.runner import Runner
    from lumisite.validate.run.script import NODES

    place = real_path(arguments.judge)
    run, about = open_run(place)
    asked = parse_asked(about, f"{place}/run.json")
    loaded = load_site(asked.site_file)
    require_unchanged(asked, loaded, __version__, image_mark(asked.image), str(place))
    name = _job(asked, loaded).run
    # A job that never began is not on any node: what is told of it is told of the partition.
    nodes = tuple(run.marker(name, NODES)) or (asked.partition,)
    asked = with_specs(replace(asked, batches=(replace(asked.batches[0], node_sets=(nodes,)),)), loaded)
    started = run.marker(name, "started.1")
    identity = arguments.job or (started[0] if started else "")
    if not identity:
        raise ResolveError(f"--judge: {place}: the job did not start, and its number is not known (--job says it)")
    run.hold()
    runner = Runner(run, loaded.site, asked, [_job(asked, loaded)], say)
    runner.restore([{"run": name, "event": "submitted", "id": identity}])
    runner.work()
    told = answer(lines_of(run.folder / SAMPLES))
    print(json.dumps(told))
    return {"pass": 0, "fail": 1, "inconclusive": 4}[str(told["verdict"])]


def _import(arguments: argparse.Namespace) -> int:
    """Write the samples of ReFrame's reports and perflogs, and say what was taken and what is still missing."""
    from lumisite.cli.proof import file_blocks
    from lumisite.cli.report import write_text
    from lumisite.validate.baseline import has_and_lacks
    from lumisite.validate.probes.ranks import counted
    from lumisite.validate.reframe.cases import Answers
    from lumisite.validate.reframe.read import with_reframe
    from lumisite.validate.samples import read_lines

    found: list[bytes] = []

    def kept(blocks: Iterable[bytes]) -> Iterator[bytes]:
        for block in blocks:
            found.append(block)
            yield block

    files = ((name, file_blocks(name)) for name in arguments.reports)
    lines = with_reframe(files, say, after=arguments.after, answers=Answers(tuple(arguments.better), arguments.on))
    imported = read_lines((name, kept(blocks)) for name, blocks in lines)
    for metric, series in imported.series.items():
        unit = f" ({series.unit})" if series.unit else ""
        say(f"{metric}{unit}: {series.better} is better, {counted(len(series.jobs), 'job')}")
    write_text(b"".join(found).decode(), arguments.output)
    has, lacks = has_and_lacks(imported)
    if not arguments.after:
        say(f"as a baseline that is {has}" + (f"; it lacks {lacks}" if lacks else ""))
    return 0
