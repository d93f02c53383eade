"""Commands that measure: `validate` and `baseline`."""

from __future__ import annotations

import argparse
import json
import os
import shlex
import signal
import statistics
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from lumisite.cli.asking import more_jobs, new_run, resumed_run
from lumisite.cli.parser import say
from lumisite.cli.report import read_side
from lumisite.cli.transport import file_blocks
from lumisite.errors import ToolError
from lumisite.site.load import LoadedSite, load_site
from lumisite.site.model import Site
from lumisite.validate.lines import Gate, Sample
from lumisite.validate.report.gather import Side, make_report
from lumisite.validate.report.write import WRITERS
from lumisite.validate.run.asked import Asked
from lumisite.validate.run.folder import SAMPLES, Run, create_run, gather, lines_of, samples_of
from lumisite.validate.run.plan import hunt_words, more_words, plans_of
from lumisite.validate.run.runner import Runner
from lumisite.validate.run.script import job_script, validation_of
from lumisite.validate.samples import Recorded, read_lines
from lumisite.validate.verdict.baseline import has_and_lacks
from lumisite.validate.verdict.gates import LOOK, following
from lumisite.validate.verdict.system import SystemVerdict, Terms, judge_system


def run(arguments: argparse.Namespace) -> int:
    """Run, or go on with a run, and print what came of it."""
    more = getattr(arguments, "more", None)
    asked = (resumed_run if arguments.resume else more_jobs if more else new_run)(arguments)
    # A baseline that cannot be used is told before anything is made or submitted.
    side = read_side(asked.baseline) if asked.baseline else None
    loaded = load_site(asked.site_file)
    plans, facts = plans_of(asked, loaded), _facts_command(asked)
    folder = Path(asked.folder)
    if arguments.dry_run:
        new = plans[-asked.batches[-1].jobs :]
        print("\n".join(job_script(loaded.site, asked, plan, 1, facts) for plan in new))
        return 0
    run = Run(folder) if arguments.resume or more else create_run(folder, asked.about())
    journal = run.hold()
    if more:
        run.describe(asked.about())
    if not _worked(Runner(run, loaded.site, asked, plans, say, facts=facts), journal, again=bool(arguments.resume)):
        return 130
    if not run.has_facts:
        say(f"no node could be captured; `lumisite facts -o {run.folder}/facts.json` on one tells what changed")
    if asked.purpose == "validate" and side is not None:
        return _against(run, asked, loaded, side, as_json=arguments.json)
    code = _report(run, loaded.site, as_json=arguments.json)
    if code in (0, 5) and asked.into:
        _gather(run, Path(asked.into), loaded.site)
    return code


def _facts_command(asked: Asked) -> tuple[str, ...]:
    """Give the command that captures a node: this lumisite, where the node sees it."""
    path = os.environ.get("PYTHONPATH")
    place = ("env", f"PYTHONPATH={path}") if path else ()
    return (*place, sys.executable, "-m", "lumisite", "facts", "--site", asked.site_file)


def _worked(runner: Runner, journal: Sequence[Mapping[str, object]], *, again: bool) -> bool:
    """Do the work of a run; false where Ctrl-C has stopped it."""
    resume = f"`lumisite {runner.asked.purpose} --resume {runner.asked.folder}`"
    try:
        runner.restore(journal, again=again)
        runner.work()
    except KeyboardInterrupt:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # what follows is short, and leaves nothing behind in Slurm
        say("interrupted: cancelling the jobs of this run")
        runner.cancel()
        say(f"what is measured is kept; {resume} goes on")
        return False
    except (OSError, ToolError):
        say(f"its jobs go on; {resume} does too, once this is put right:")
        raise
    return True


def _report(run: Run, site: Site, *, as_json: bool) -> int:
    """Print what a run found by itself: its numbers, its gates, and nodes that are slower than the others."""
    lines = lines_of(run.folder / SAMPLES)
    alone = judge_system(Recorded({}), read_side([str(run.folder)]).recorded, Terms.of(site.validation))
    gates = [line for line in lines if isinstance(line, Gate)]
    samples = [line for line in lines if isinstance(line, Sample)]
    behind = following(gates)
    if as_json:
        own = [vars(gate) | {"follows": behind.get(gate, ())} for gate in gates]
        told = {"run": str(run.folder), "gates": own, "metrics": _medians(samples)}
        slow = {"slow_nodes": [vars(one) for one in alone.slow_nodes], "drain": alone.drain}
        print(json.dumps(told | slow, indent=1))
    else:
        print("\n".join(_text(run.folder, gates, samples, alone, behind)))
    if not samples and any(gate.cause.startswith("sbatch refused") for gate in gates):
        return 3
    states = {gate.verdict for gate in alone.gates if not gate.follows}
    return 1 if "fail" in states else 4 if "inconclusive" in states else 5 if alone.drain else 0


def _gather(run: Run, into: Path, site: Site) -> None:
    """Add what was measured to the baseline, and say what that has; a run with a failed gate is no baseline."""
    gather(run.folder, into)
    place = samples_of(into)
    recorded = read_lines([(str(place), file_blocks(str(place)))])
    has, lacks = has_and_lacks(recorded, validation_of(site).baseline_days)
    say(f"{into} has {has}")
    say(f"for a baseline it lacks {lacks}" if lacks else "that is a baseline")


def _against(run: Run, asked: Asked, loaded: LoadedSite, before: Side, *, as_json: bool) -> int:
    """Print the verdict against runs from before the change, and the command that runs what it waits for."""
    terms = Terms.of(loaded.site.validation)
    report = make_report(before, read_side([str(run.folder)]), terms, loaded)
    sys.stdout.write(WRITERS["json" if as_json else "text"](report))
    sys.stdout.flush()
    words = more_words(report.verdict, {folder.partition("-")[0] for folder in asked.specs})
    if words:
        say("to go on, run:")
        say(f"  lumisite validate --more {run.folder} {shlex.join(words)}")
    if hunt := hunt_words(report.verdict):
        say("to find the node, run:")
        say(f"  lumisite validate --site {shlex.quote(asked.site_file)} {shlex.join(hunt)}")
    return report.verdict.exit_code


def _medians(samples: Sequence[Sample]) -> dict[str, dict[str, object]]:
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


def _text(
    folder: Path,
    gates: Sequence[Gate],
    samples: Sequence[Sample],
    alone: SystemVerdict,
    behind: Mapping[Gate, Sequence[str]],
) -> Iterator[str]:
    for metric, told in _medians(samples).items():
        yield f"{metric:44} {told['median']:>12} {told['unit']}".rstrip()
    by_gate: dict[str, list[Gate]] = {}
    for gate in gates:
        by_gate.setdefault(gate.gate, []).append(gate)
    for name, own in by_gate.items():
        bad = sorted((gate for gate in own if gate.verdict != "pass"), key=lambda gate: gate in behind)
        state = "passed" if not bad else "follows" if bad[0] in behind else bad[0].verdict
        yield f"{name}: {state} ({len(own) - len(bad)} of {len(own)})"
        for gate in bad:
            yield f"    {gate.run}: {gate.cause}"
            advice = f"it follows from {','.join(behind[gate])}" if gate in behind else gate.advice or LOOK
            yield f"        {advice}"
    for slow in alone.slow_nodes:
        yield f"{slow.node} is slow: {slow.metric} {slow.below:.1%} below the median of all nodes (z {slow.z:.1f})"
    if alone.drain:
        yield f"to drain bad nodes (nothing runs it): {alone.drain}"
    yield from alone.next_runs
    yield f"{folder}"
