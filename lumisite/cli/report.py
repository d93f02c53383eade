"""The commands `report` and `verdict`: what a run found."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from lumisite.cli.arguments import add_json, add_output
from lumisite.cli.colours import print_lines
from lumisite.cli.facts import load_facts
from lumisite.cli.input import file_blocks
from lumisite.cli.output import print_note, print_result, write_text
from lumisite.cli.site_choice import recorded_site
from lumisite.errors import ResolveError
from lumisite.site.json_file import parse_json
from lumisite.site.load import LoadedSite, load_site, read_input
from lumisite.validate import InputError
from lumisite.validate.report.gather import Side, make_report
from lumisite.validate.report.write import WRITERS, verdict_text
from lumisite.validate.run.folder import RUN, SAMPLES
from lumisite.validate.run.jobscript import FACTS
from lumisite.validate.samples import Recorded, read_lines
from lumisite.validate.verdict.system import Terms, judge_system
from lumisite.validate.verdict.system import as_json as verdict_json


def add_verdict(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `verdict`."""
    parser.description = (
        "Judge samples and gates after a change against those before it: files of JSON lines, samples with metric, "
        "value, better (higher or lower), run, nodes and time, gates with gate, verdict, cause, advice, run, nodes "
        "and time. A failed gate is a failure. The first five jobs after the change decide, five later ones on other "
        "nodes confirm. Exit code 0: not slower, 1: a gate failed, or slower and confirmed, 4: not decided, with what"
        " to run next, 5: the system is fine but some nodes are not."
    )
    parser.add_argument("runs", nargs="*", help=argparse.SUPPRESS)
    for side in ("before", "after"):
        parser.add_argument(
            f"--{side}",
            metavar="FILE",
            action="append",
            default=[],
            help=f"samples {side} the change, or the folder of a run; may be given several times; - is standard input",
        )
    parser.add_argument(
        "--site",
        metavar="NAME|FILE",
        default="",
        help="take what is expected of each metric from this site (default: LUMISITE_SITE, else none)",
    )
    parser.add_argument(
        "--allow-image-change",
        action="store_true",
        help="compare samples of different images: the image is what is tested",
    )
    add_json(parser)


def add_report(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `report`."""
    parser.description = (
        "Show a run of `validate` against a baseline: the verdict, what to do, what changed on the machine, gates, "
        "metrics, nodes, and as HTML the plots. A run is the folder that `validate` wrote, or a file "
        "of samples. The exit code is that of the verdict: 0 fine, 1 failed, 4 not decided, 5 only some nodes."
    )
    parser.add_argument("run", metavar="RUN", help="the folder of a run after the change, or its file of samples")
    parser.add_argument(
        "--before",
        metavar="FILE",
        action="append",
        default=[],
        help=(
            "a run from before the change, folder or file; may be given several times "
            "(default: none, and then only gates and the site's expectations decide)"
        ),
    )
    parser.add_argument(
        "--site",
        metavar="NAME|FILE",
        help=(
            "take what is expected of each metric, and what changes touch, from this site (default: the one that the "
            "run was made for)"
        ),
    )
    parser.add_argument("--allow-image-change", action="store_true", help="compare samples of different images")
    parser.add_argument(
        "--format",
        choices=("text", "html", "json"),
        help=(
            "what to write; html is one file, with plots where matplotlib is installed (default: by the ending of "
            "FILE: .html, .json, else text)"
        ),
    )
    add_json(parser)
    add_output(parser)


def run_report(arguments: argparse.Namespace) -> int:
    """Write the report of a run."""
    form = "json" if arguments.json else arguments.format or _form(arguments.output)
    before, after = read_side(arguments.before), read_side([arguments.run])
    loaded = _site(arguments, after)
    terms = _terms(loaded, arguments)
    if loaded is None and after.facts is not None and (name := recorded_site(after.facts.site)):
        loaded = load_site(name)  # the site of the capture shows what changes touch, and nothing else
    report = make_report(before, after, terms, loaded)
    text = WRITERS[form](report)
    if form == "text" and arguments.output is None:
        print_lines([text.rstrip("\n")])
    else:
        write_text(text, arguments.output)
    return report.verdict.exit_code


def run_verdict(arguments: argparse.Namespace) -> int:
    """Judge samples and gates after a change against those before it."""
    if arguments.runs or not arguments.before or not arguments.after:
        run = arguments.runs[0] if arguments.runs else "RUN"
        raise ResolveError(
            f"verdict: two sides are compared (`lumisite verdict --before FILE --after {run}`; `lumisite report {run}` "
            "shows one run alone)"
        )
    terms = _terms(load_site(arguments.site) if arguments.site else None, arguments)
    verdict = judge_system(_recorded(arguments.before), _recorded(arguments.after), terms)
    lines = [] if arguments.json else [verdict_text(verdict).rstrip("\n")]
    print_result(verdict_json(verdict), lines, as_json=arguments.json)
    return verdict.exit_code


def _terms(loaded: LoadedSite | None, arguments: argparse.Namespace) -> Terms:
    rules = loaded.site.validation if loaded else None
    alone = arguments.command == "report" and not arguments.before
    return Terms.of(rules, allow_image_change=arguments.allow_image_change, alone=alone)


def _recorded(names: Iterable[str]) -> Recorded:
    files = [str(Path(name) / SAMPLES) if Path(name).is_dir() else name for name in names]
    return read_lines((file, file_blocks(file)) for file in files)


def _form(output: str | None) -> str:
    endings = {".html": "html", ".htm": "html", ".json": "json"}
    return next((form for ending, form in endings.items() if (output or "").endswith(ending)), "text")


def _site(arguments: argparse.Namespace, after: Side) -> LoadedSite | None:
    """Load the site that is named, or the one that the run was made for."""
    if arguments.site:
        return load_site(arguments.site)
    named = str(after.about.get("site_file", ""))
    if not named:
        return None
    if name := recorded_site(named) or (named if "/" in named and Path(named).is_file() else ""):
        return load_site(name)
    print_note(f"the site of the run, {named!r}, was not found: its expectations are left out")
    return None


def read_side(names: Sequence[str]) -> Side:
    """Read runs, folders or files, as one side. Raises `InputError`."""
    paths = [Path(name) for name in names]
    folders = [path for path in paths if path.is_dir()]
    recorded = _recorded(names)
    facts = [load_facts(str(path)) for folder in folders if (path := folder / FACTS).exists()]
    about = [found for folder in folders if (found := _object(folder / RUN))]
    return Side(recorded, facts[-1] if facts else None, about[-1] if about else {})


def _object(path: Path) -> Mapping[str, object]:
    """Read a JSON object; an empty one where there is no such file."""
    if not path.exists():
        return {}
    raw = parse_json(read_input(path, remedy="`lumisite validate` writes one"), str(path))
    if not isinstance(raw, dict):
        raise InputError(f"{path}: is not a JSON object")
    return raw
