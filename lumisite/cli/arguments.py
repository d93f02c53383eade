"""Arguments that several commands have: how they are added to a parser, and what their values choose."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lumisite.errors import ResolveError

if TYPE_CHECKING:
    from lumisite.cli.site_choice import Chosen
    from lumisite.site.load import LoadedSite
    from lumisite.site.selection import Selection

#: Names this node instead of a node kind.
LIVE = "live"
#: These name the site themselves, in the first line that they print.
_NAME_SITE = ("check", "render")
#: These explain, or write into a folder, and do so for an example where no site is named or known.
_EXPLAIN = ("render", "why", "env", "lint")
#: These judge files, which may be of any machine: they take a site only where it is named.
_JUDGE_FILES = ("transport", "verdict")


def number_to(most: int, no: str = "no", least: int = 1) -> Callable[[str], int]:
    """Return the parser of a number from `least` to `most`."""

    def number(text: str) -> int:
        value = int(text) if text.isascii() and text.isdecimal() and len(text) < 7 else 0
        if not least <= value <= most:
            raise argparse.ArgumentTypeError(f"{text!r} is {no} number from {least} to {most}")
        return value

    return number


COUNT = number_to(10_000, "not a")


def add_json(parser: argparse.ArgumentParser) -> None:
    """Add `--json`."""
    parser.add_argument("--json", action="store_true", help="print the result as JSON")


def add_output(parser: argparse.ArgumentParser) -> None:
    """Add `--output`."""
    parser.add_argument("-o", "--output", metavar="FILE", help="write to FILE (default: standard output)")


def add_dry_run(parser: argparse.ArgumentParser) -> None:
    """Add `--dry-run`."""
    parser.add_argument(
        "--dry-run",
        action="store_true",
        help="print what jobs would run and cost, with --json a job's script too; submits nothing, needs no Slurm",
    )


def add_site(parser: argparse.ArgumentParser, otherwise: str = "") -> None:
    """Add `--site` for a command that needs a site; `otherwise` says what it uses where none is named or known."""
    parser.add_argument(
        "--site",
        metavar="NAME|FILE",
        default="",
        help="the site: the name of an embedded one, or a YAML file (default: LUMISITE_SITE, else the embedded one "
        f"that this machine is known as{otherwise})",
    )


def add_site_or_example(parser: argparse.ArgumentParser) -> None:
    """Add `--site` for a command that takes an example where no site is named or known."""
    add_site(parser, ", else lumi as an example")


def add_release_site(parser: argparse.ArgumentParser) -> None:
    """Add `--site` for a command about a deployment root, whose releases know their site."""
    parser.add_argument(
        "--site",
        metavar="NAME|FILE",
        help="the site (default: the one that the release is of, by LUMISITE_SITE or embedded)",
    )


def add_host_root(parser: argparse.ArgumentParser, *aliases: str) -> None:
    """Add `--host-root`."""
    parser.add_argument(
        "--host-root", *aliases, metavar="DIR", default="/", help="the host's root, or a copy (default: /)"
    )


def add_out(parser: argparse.ArgumentParser) -> None:
    """Add OUT, a rendered tree."""
    parser.add_argument("out", metavar="OUT", type=Path, help="a tree that `lumisite render` wrote")


def add_root(parser: argparse.ArgumentParser) -> None:
    """Add ROOT, a deployment root."""
    parser.add_argument("root", metavar="ROOT", type=Path, help="the deployment root")


def add_usual_root(parser: argparse.ArgumentParser) -> None:
    """Add ROOT, a deployment root that a configuration file may have."""
    parser.add_argument(
        "root",
        metavar="ROOT",
        nargs="?",
        type=Path,
        help="the deployment root (default: `root` of a configuration file, else the site's)",
    )


def usual_root(arguments: argparse.Namespace) -> Path | None:
    """Return ROOT, or that of a configuration file; raises `SiteError` for one with faults."""
    from lumisite.cli.config_file import configured_root

    return arguments.root or configured_root()


def add_details(parser: argparse.ArgumentParser) -> None:
    """Add `--details` and `--full`."""
    parser.add_argument("--details", action="store_true", help="show every change and the diff of the files")
    parser.add_argument("--full", action="store_true", help="show the whole diff of every file")


def add_platform(parser: argparse.ArgumentParser) -> None:
    """Add `--platform`."""
    parser.add_argument(
        "--platform",
        metavar="P",
        help="the system release: a platform of the site description (default: its current one)",
    )


def add_selection(parser: argparse.ArgumentParser) -> None:
    """Add the options that choose a platform and releases, of which there may be several."""
    _add_releases(
        parser,
        "release of a stack of the site; 12.8 means its newest 12.8.x. May be given several times; `all` means "
        "every release that is supported, or the newest of each series that the platform's driver supports "
        "(default: the platform's own)",
        action="append",
    )


def add_one_release(parser: argparse.ArgumentParser) -> None:
    """Add the options that choose a platform and one release of a stack; the values are lists too."""
    _add_releases(parser, "release of a stack (default: the platform's own)", nargs=1)


def _add_releases(parser: argparse.ArgumentParser, use: str, **short_form: Any) -> None:
    parser.add_argument("--use", metavar="STACK=V", action="append", default=[], help=use)
    add_platform(parser)
    for stack in ("rocm", "cpe"):
        parser.add_argument(f"--{stack}", metavar="V", default=[], help=f"the same as --use {stack}=V", **short_form)


def add_lock(parser: argparse.ArgumentParser) -> None:
    """Add `--lock`, a lock that is read."""
    parser.add_argument(
        "--lock",
        metavar="FILE",
        type=Path,
        help="a lock of the site's images (`lumisite images --lock`): what it knows of an image counts more than "
        "the "
        "image's name (default: the one that the site names)",
    )


def add_plan_and_lock(parser: argparse.ArgumentParser) -> None:
    """Add what is known of images."""
    parser.add_argument(
        "--plan",
        metavar="FILE",
        type=Path,
        action="append",
        default=[],
        help="a reviewed plan of an image, beside those that the site names; may be given several times",
    )
    add_lock(parser)


def add_run_folder(parser: argparse.ArgumentParser) -> None:
    """Add the site, and the folder of a run: a new one, one to resume, or one to add jobs to."""
    add_site(parser)
    folder = parser.add_mutually_exclusive_group()
    folder.add_argument("--out", metavar="RUN", help="folder of the run, on a file system that all nodes see")
    folder.add_argument("--resume", metavar="RUN", help="go on with a run that was interrupted")
    folder.add_argument(
        "--more", metavar="RUN", help="add jobs to a run, on other nodes if there are any: what its verdict asks for"
    )


def add_nodes(parser: argparse.ArgumentParser) -> None:
    """Add `--nodes`."""
    parser.add_argument("--nodes", metavar="N", type=COUNT, help="nodes of each job (default: the site's)")


def add_probe(parser: argparse.ArgumentParser) -> None:
    """Add `--probe`."""
    parser.add_argument("--probe", metavar="NAME", action="append", default=[], help="only this one; several times")


def add_image(parser: argparse.ArgumentParser) -> None:
    """Add `--image`, the image that is run."""
    parser.add_argument("--image", metavar="FILE", help="container image (default: the site's)")


def add_jobs(parser: argparse.ArgumentParser) -> None:
    """Add what jobs are submitted with."""
    add_nodes(parser)
    parser.add_argument("--nodelist", metavar="NODES", help="only these nodes, in Slurm's notation")
    parser.add_argument("--avoid", metavar="NODES", help="not these nodes, in Slurm's notation")
    add_probe(parser)
    parser.add_argument("--partition", metavar="P", help="partition (default: the site's)")
    parser.add_argument("--account", metavar="A", help="account for sbatch")
    parser.add_argument("--reservation", metavar="R", help="reservation for sbatch; its nodes are used")
    parser.add_argument("--sbatch", metavar="OPTION", action="append", default=[], help="one more option for sbatch")
    parser.add_argument(
        "--limit", metavar="SECONDS", type=COUNT, help="longest time of one step of a probe (default: by back-end)"
    )
    add_image(parser)


def add_node_sets(parser: argparse.ArgumentParser) -> None:
    """Add `--node-sets`."""
    parser.add_argument("--node-sets", metavar="N", type=COUNT, help="disjoint sets of nodes (default: 2)")


def add_machine(parser: argparse.ArgumentParser) -> None:
    """Add how many nodes are divided into jobs of few."""
    parser.add_argument(
        "--step-nodes",
        metavar="N",
        type=number_to(64, least=2),
        help="divide the nodes into jobs of N, 2 to 64, of which 32 at most run at once: all nodes once, then the "
        "first node of each job, up to one job (default: 16 where --nodes is more than 64)",
    )


def add_other_images(parser: argparse.ArgumentParser) -> None:
    """Add the images of single probes."""
    parser.add_argument(
        "--jax-image", metavar="FILE", help="image with JAX, which the probe environment checks too (default: none)"
    )
    parser.add_argument(
        "--wrapper", metavar="DIR", help="environment of Tykky, in which the probe ddp trains too (default: none)"
    )


def choose_site(arguments: argparse.Namespace) -> Iterator[str]:
    """Fill in the site where no option names one, and yield a line that names it."""
    if any(getattr(arguments, name, None) for name in ("resume", "more")):
        return  # the run knows its site
    if arguments.command == "check" and arguments.site:
        if arguments.file:
            raise ResolveError(f"--site: FILE is {arguments.file} already (leave one out)")
        arguments.file = arguments.site
    if getattr(arguments, "root", None) and (arguments.command == "why" or getattr(arguments, "host", False)):
        return  # the release knows its site
    for option in ("site", "file"):
        if getattr(arguments, option, None) == "" and (found := _site_of(arguments)):
            setattr(arguments, option, found.name)
            if found.is_example or arguments.command not in _NAME_SITE:
                yield f"lumisite: site {found.name}, {found.why}"


def _site_of(arguments: argparse.Namespace) -> Chosen | None:
    """Return the site where no option names one; raise `ResolveError` where the command needs one."""
    from lumisite.cli import site_choice

    if arguments.command in _EXPLAIN:
        return site_choice.site_or_example()
    judges_files = arguments.command in _JUDGE_FILES or getattr(arguments, "topology", None) is not None
    if judges_files or arguments.command == "facts" or getattr(arguments, "node", None) == LIVE:
        return site_choice.named_site()  # a machine that nobody has described yet is read as well
    return site_choice.default_site()


def load_selection(arguments: argparse.Namespace) -> tuple[LoadedSite, Selection]:
    """Load the site and choose the releases that the options name."""
    from lumisite.site.load import load_site
    from lumisite.site.selection import resolve_selection

    loaded = load_site(arguments.site)
    return loaded, resolve_selection(loaded.site, platform=arguments.platform, **requested_releases(arguments))


def requested_releases(arguments: argparse.Namespace) -> dict[str, list[str]]:
    """Return the releases that options name, by stack; raises `ResolveError`."""
    from lumisite.site.selection import SHORT_FORMS

    releases = {stack: list(getattr(arguments, stack)) for stack in SHORT_FORMS if getattr(arguments, stack)}
    for text in arguments.use:
        stack, sign, version = text.partition("=")
        if not sign or not stack:
            raise ResolveError(f"--use: {text!r} is no stack with its release (NAME=12.8 would be right)")
        releases.setdefault(stack, []).append(version)
    return releases


def real_path(name: str | Path) -> Path:
    """Return a path without links. Links in a circle stay, for what opens the path to report."""
    return Path(os.path.realpath(name))


def check_root(root: str) -> None:
    """Refuse the root of a host that is no directory; raises `ResolveError`."""
    if "\0" in root or not Path(root).is_dir():
        raise ResolveError(f"--host-root: {root!r} is no directory (the root of a host, or of a copy of one)")
