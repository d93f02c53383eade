"""The command `try`: the effect of a setting on this machine, by a trial that is planned before its first job."""

from __future__ import annotations

import argparse
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path

from lumisite.cli.arguments import COUNT, add_jobs, add_json, add_run_folder, real_path
from lumisite.cli.output import print_note, print_result, write_whole
from lumisite.cli.validate import (
    BATCH_OPTIONS,
    KEPT,
    facts_command,
    make_request,
    recorded_run,
    report_progress,
    require_shared,
    run_jobs,
    stamp_now,
    warn_before_jobs,
    with_nodes,
)
from lumisite.errors import ResolveError
from lumisite.findings.exit_code import exit_code
from lumisite.findings.writers import message
from lumisite.site.evidence import HERE
from lumisite.site.load import LoadedSite, load_site, read_input, site_of
from lumisite.text import counted, nearest_name
from lumisite.validate.report.templates import messages
from lumisite.validate.run.folder import Run, create_run, open_run
from lumisite.validate.run.plan import target_of, with_specs
from lumisite.validate.run.request import RunRequest
from lumisite.validate.run.runner import Runner
from lumisite.validate.trial.allocations import judge_allocations
from lumisite.validate.trial.design import REFERENCE, Arm, Design, TrialSetting, design_text, plan, read_design
from lumisite.validate.trial.jobs import (
    PROBES,
    SIGN,
    check_probes,
    controls,
    deciding,
    slot_seconds,
    trial_plans,
    with_time,
)
from lumisite.validate.trial.judge import TrialVerdict, judge_trial
from lumisite.validate.trial.report import plan_text, trial_document, trial_text
from lumisite.validate.trial.results import RunResult, results_of
from lumisite.validate.trial.settings import parse_settings, settings_present, unmeasured

#: The largest seed that is drawn.
SEEDS = 1_000_000
DESIGN = "design.json"
#: From which likeness on one name may be another one that was mistyped; most names begin alike.
NEAR = 0.9
#: Options that only a new trial may have, beside those that every run keeps from its beginning.
DESIGNED = ("unset", "against", "ledger", "budget", "allocations", "attempts", "seed")


@dataclass(frozen=True)
class Trial:
    """A trial: what was requested, of which site, by which design."""

    request: RunRequest
    loaded: LoadedSite
    design: Design


def add_try(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `try`."""
    parser.description = (
        "Run what ranks have today first and last, and between them, in an order drawn from the seed, each setting, a"
        " placebo and a control. What they have is tried by doing without. Exit 0: answered, 1: harmful, 4: not all."
    )
    parser.add_argument("settings", metavar="NAME=VALUE", nargs="*", help="a variable with the value that is tried")
    add_run_folder(parser)
    parser.add_argument("--unset", metavar="NAME", action="append", default=[], help="try to do without a variable")
    parser.add_argument(
        "--against",
        metavar="NAME=VALUE",
        action="append",
        default=[],
        help="what the reference sets (default: nothing more than what ranks have today)",
    )
    parser.add_argument(
        "--ledger",
        action="store_true",
        help="try every entry of the ledger that ranks have here and nobody measured on this platform",
    )
    parser.add_argument(
        "--budget",
        metavar="NODE_HOURS",
        type=COUNT,
        help="with --ledger: as many entries as this is enough for (default: all)",
    )
    parser.add_argument("--allocations", metavar="K", type=COUNT, help="valid allocations that are needed (default: 3)")
    parser.add_argument(
        "--attempts", metavar="A", type=COUNT, help="runs of each setting in each allocation (default: 1)"
    )
    parser.add_argument(
        "--seed", metavar="S", type=COUNT, help="draw the order of runs from this number (default: at random)"
    )
    add_jobs(parser)
    parser.add_argument(
        "--write", metavar="SITE.yaml", type=Path, help="add the evidence to the ledger's entries in this file"
    )
    parser.add_argument("--dry-run", action="store_true", help="print the design only")
    add_json(parser)


def run_try(arguments: argparse.Namespace) -> int:
    """Begin a trial or go on with one, and print the effects of its settings."""
    trial = resumed_trial(arguments) if arguments.resume else new_trial(arguments)
    design = trial.design
    if arguments.write is not None:
        # What the ledger may not have is refused before jobs are spent on it.
        describe(arguments.write, trial, {arm: evidence_of(trial, "unknown", "tried") for arm in design.variants})
    if arguments.dry_run:
        print_result(asdict(design), [plan_text(design).rstrip()], as_json=arguments.json)
        return 0
    facts = facts_command(trial.request)
    folder = Path(trial.request.folder)
    run = Run(folder) if arguments.resume else create_run(folder, trial.request.about(), {DESIGN: design_text(design)})
    results = measure(trial, run, facts, again=bool(arguments.resume))
    if results is None:
        return 130
    verdict = judge_trial(design, results)
    document = {"run": str(folder)} | trial_document(design, verdict)
    print_result(document, [f"{trial_text(design, verdict)}{folder}"], as_json=arguments.json)
    if arguments.write is not None:
        write_evidence(arguments.write, trial, verdict)
    if not any(result.seconds for result in results):
        return 3
    return exit_code(answer.finding for answer in verdict.answers)


def resumed_trial(arguments: argparse.Namespace) -> Trial:
    """Return a trial that was interrupted. Raises `ResolveError`."""
    folder = real_path(arguments.resume)
    open_run(folder)
    if arguments.settings:
        raise ResolveError(f"--resume: settings were decided when the run began (leave {arguments.settings[0]} out)")
    design = read_design(read_input(folder / DESIGN), str(folder / DESIGN))
    plans = partial(trial_plans, design)
    return Trial(*recorded_run(arguments, "--resume", (*KEPT, *BATCH_OPTIONS, *DESIGNED), plans), design)


def new_trial(arguments: argparse.Namespace) -> Trial:
    """Decide all that a trial needs, and refuse what proves nothing. Raises `ResolveError`."""
    arguments.probe = arguments.probe or list(PROBES)
    stamp = stamp_now()
    folder = real_path(arguments.out or f"lumisite-runs/{stamp[:15]}-try")
    allocations = arguments.allocations or 3
    request, loaded = make_request(arguments, str(folder), stamp, allocations)
    target = target_of(request, loaded)
    check_probes(target, arguments.probe)
    tried, against = parse_settings(arguments.settings, arguments.unset, arguments.against, target)
    warn_of_names(loaded, [*tried, *against])
    metrics, thresholds = deciding(loaded.site, arguments.probe)
    designed = partial(
        plan,
        1 + secrets.randbelow(SEEDS) if arguments.seed is None else arguments.seed,
        against=against,
        control=controls(loaded.site),
        present={name: entry.value for name, entry in settings_present(target).items() if entry.value is not None},
        probes=arguments.probe,
        metrics=metrics,
        thresholds=thresholds,
        nodes=len(request.batches[0].node_sets[0]),
        allocations=allocations,
        attempts=arguments.attempts or 1,
        slot_s=slot_seconds(loaded.site, arguments.probe, request.limit),
        sign_s=slot_seconds(loaded.site, (SIGN,), None),
    )
    if arguments.budget and not arguments.ledger:
        raise ResolveError("--budget: is for --ledger (leave it out, or give both)")
    if arguments.ledger and (tried or against):
        raise ResolveError("--ledger: takes its settings from the ledger (leave the others out)")
    design = within_budget(designed, unmeasured(target), arguments.budget) if arguments.ledger else designed(tried)
    request = with_time(request, design)
    if not arguments.dry_run:
        require_shared(loaded.site, folder, "--out")
        warn_before_jobs(request)
        request = with_nodes(request, arguments)
    return Trial(with_specs(replace(request, specs={}), loaded, partial(trial_plans, design)), loaded, design)


def warn_of_names(loaded: LoadedSite, settings: Sequence[TrialSetting]) -> None:
    """Name the variables that may be mistyped."""
    known = sorted({setting.name for setting in loaded.site.settings})
    for setting in settings:
        if setting.name not in known and (near := nearest_name(setting.name, known, NEAR)):
            print_note(f"{setting.name} is not in the ledger (did you mean {near}?)")


def within_budget(
    designed: Callable[[Sequence[TrialSetting]], Design], settings: Sequence[TrialSetting], budget: int | None
) -> Design:
    """Return the design with as many of these settings as the budget is enough for, and print what it costs."""
    if not settings:
        raise ResolveError("--ledger: every entry that ranks have here is measured on this platform")
    every = [designed(settings[:count]) for count in range(1, len(settings) + 1)]
    design = next((design for design in reversed(every) if budget is None or design.node_hours <= budget), None)
    if design is None:
        raise ResolveError(
            f"--budget: {budget} node hours are less than one setting may take ({every[0].node_hours:g})"
        )
    names = [arm.name for arm in design.variants]
    print_note(f"{len(names)} of {counted(len(settings), 'entry')} without measured evidence: {', '.join(names)}")
    print_note(f"{design.node_hours:g} node hours at most, {design.most_node_hours:g} where allocations are run again")
    return design


def measure(trial: Trial, run: Run, facts: Sequence[str], *, again: bool) -> list[RunResult] | None:
    """Run allocations until enough of them are valid, or no more may run; None where Ctrl-C has stopped it."""
    design, request, loaded = trial.design, trial.request, trial.loaded
    plans, journal = trial_plans(design, request, loaded), run.lock()
    runner = Runner(run, loaded.site, request, plans, report_progress, facts=facts)
    reported: set[int] = set()
    while run_jobs(runner, journal, again=again):
        results = results_of(design, run, plans)
        allocations = judge_allocations(design, results)
        for allocation in allocations:
            if allocation.reasons and allocation.number not in reported:
                reported.add(allocation.number)
                print_note(f"allocation {allocation.number} is thrown out: {messages(allocation.reasons)}")
        valid = sum(allocation.standing == "valid" for allocation in allocations)
        jobs = min(design.allocations - valid, design.most_allocations - len(plans))
        latest = range(len(plans) - request.batches[-1].jobs + 1, len(plans) + 1)
        if jobs <= 0 or not any(result.seconds for result in results if result.run.allocation in latest):
            return results
        batch = replace(request.batches[-1], stamp=stamp_now(), jobs=jobs)
        request = with_specs(replace(request, batches=(*request.batches, batch)), loaded, partial(trial_plans, design))
        run.describe(request.about())
        plans, journal, again = trial_plans(design, request, loaded), [], False
        runner.add(request, plans)
    return None


# ---- evidence


def describe(path: Path, trial: Trial, evidence: Mapping[Arm, Mapping[str, str]]) -> LoadedSite:
    """Return the description in a file with evidence of these variants. Raises `LumisiteError`."""
    loaded = load_site(str(path) if "/" in str(path) else f"./{path}")
    if loaded.site.name != trial.request.site:
        raise ResolveError(f"--write: {path} describes {loaded.site.name}, and this is tried on {trial.request.site}")
    for arm, found in evidence.items():
        if arm.tried is not None:
            from lumisite.site.evidence_writer import with_evidence  # loads a library that nothing else needs

            loaded = site_of(with_evidence(loaded, arm.tried.name, arm.value, found, str(path)), path)
    return loaded


def write_evidence(path: Path, trial: Trial, verdict: TrialVerdict) -> None:
    """Add what was found to the ledger's entries in a file, all of it or nothing. Raises `LumisiteError`."""
    alpha = trial.design.thresholds.alpha
    found: dict[Arm, Mapping[str, str]] = {}
    for arm, answer in zip(trial.design.variants, verdict.answers, strict=True):
        if answer.effect in ("unverified", "underpowered"):
            print_note(
                f"{answer.finding.subject} {message(answer.finding)}, which is no evidence: nothing of it is written"
            )
            continue
        metric = "stalls" if min(answer.hangs.worse, answer.hangs.better) <= alpha else "speed"
        what = "; ".join(map(message, answer.reasons))
        found[arm] = evidence_of(trial, answer.effect, what, answer.hangs.with_it.runs, metric)
    if found and write_whole(path, describe(path, trial, found).data):
        for arm, evidence in found.items():
            print_note(
                f"{path} has as evidence: {arm.tried and arm.tried.name}: {evidence['effect']}, {evidence['what']}"
            )


def evidence_of(trial: Trial, effect: str, what: str, runs: int = 1, metric: str = "speed") -> dict[str, str]:
    """Return evidence for the ledger; a reference that is not what ranks have today is named too."""
    against = ", ".join(map(str, trial.design.by_name[REFERENCE].settings))
    return {
        "effect": effect,
        "by": "measured",
        "metric": metric,
        "what": f"{what}; against {against}" if against else what,
        "platform": trial.request.platform,
        "image": Path(trial.request.image).name,
        "nodes": str(trial.design.nodes),
        "runs": str(runs),
        "date": trial.request.started[:10],
        "source": HERE,
    }
