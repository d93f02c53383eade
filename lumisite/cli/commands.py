"""The commands: for each its module in this room, its line in `lumisite --help`, and the parser of what may be typed.

A command NAME is two functions of its module: `add_NAME` adds its arguments to a parser, and `run_NAME` runs it.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Callable, Iterable, Sequence
from textwrap import indent
from types import ModuleType
from typing import Any, NamedTuple

from lumisite.cli.version import ShowVersion
from lumisite.text import nearest_name

EXIT_CODES = (
    "Exit codes: 0 fine, 1 a difference or a failed verdict, 2 usage or site description, "
    "3 a tool or the system refused, 4 inconclusive, 5 the system is fine but some nodes are not."
)


class Command(NamedTuple):
    """A command: the module of this room that has it, and its line in `lumisite --help`."""

    module: str
    help: str


#: Who uses which command: the order of `lumisite --help`.
GROUPS: dict[str, dict[str, Command]] = {
    "describe the machine (admins)": {
        "init": Command("init", "write a site description from the machine itself"),
        "check": Command("check", "find all faults of a site description"),
    },
    "modules and releases (admins)": {
        "render": Command("render", "write the modulefiles and the srun helper"),
        "deploy": Command(
            "release", "what a rendered tree would change in a deployment root, and with --apply deploy it"
        ),
        "rollback": Command("release", "go one release back, at once"),
        "status": Command("status", "what is deployed, whether it fits this machine, and what to do next"),
        "policy": Command("policy", "for whom the srun helper is on: on, observe or off"),
    },
    "jobs and images (user support)": {
        "why": Command("why", "explain a setting, bind, module or library"),
        "env": Command("env", "what a rank will find: each variable, bind and CPU mask, who sets it, and why"),
        "masks": Command("masks", "the CPU mask of each task on a node"),
        "binds": Command("binds", "what a container needs from the host, library by library"),
        "images": Command("images", "where each image alias points, what it carries, and what moved"),
        "transport": Command("transport", "which network NCCL, or a library like it, really used"),
        "lint": Command("lint", "known-bad lines in job scripts"),
    },
    "before and after an update (engineers)": {
        "facts": Command("facts", "capture what this node is, as one JSON file"),
        "changes": Command("facts", "what changed between two facts files, and what that touches"),
        "validate": Command("validate", "measure the system before and after a change, with real jobs"),
        "verdict": Command("report", "whether the system became slower"),
        "report": Command("report", "what a run found: what changed, what is slower, which node, what to do"),
    },
}
COMMANDS: dict[str, Command] = {name: command for commands in GROUPS.values() for name, command in commands.items()}


class _Grouped(argparse.HelpFormatter):
    """Help with the commands in their groups."""

    def _format_action(self, action: argparse.Action) -> str:
        if not isinstance(action, argparse._SubParsersAction):
            return super()._format_action(action)
        lines = {
            choice.dest: indent(super(_Grouped, self)._format_action(choice), "  ")
            for choice in action._choices_actions
        }
        return "\n".join(f"  {title}:\n{''.join(lines[name] for name in names)}" for title, names in GROUPS.items())


class _Parser(argparse.ArgumentParser):
    """A parser that does not hide that its help could not be written."""

    def _print_message(self, message: str, file: Any = None) -> None:
        if message:
            (file or sys.stderr).write(message)


def build_parser(only: str | None = None) -> argparse.ArgumentParser:
    """Build the parser, which stores the command's name as `command`, and its parser as `parser`.

    With `only`, no other command gets its arguments: that would import all of this room.
    """
    parser = _Parser(
        prog="lumisite",
        description="The layer between Slurm and the container on an HPC site.",
        epilog=EXIT_CODES,
        formatter_class=_Grouped,
    )
    parser.add_argument("-V", "--version", action=ShowVersion, nargs=0, help="show version and commit")
    _add_verbosity(parser)
    subparsers = parser.add_subparsers(title="commands", metavar="COMMAND", dest="command", required=True)
    for name, command in COMMANDS.items():
        subparser = subparsers.add_parser(name, help=command.help, epilog=EXIT_CODES)
        if only in (None, name):
            subparser.set_defaults(parser=subparser)
            _add_verbosity(subparser, default=argparse.SUPPRESS)
            getattr(_module(name), f"add_{name}")(subparser)
    return parser


def _add_verbosity(parser: argparse.ArgumentParser, **default: Any) -> None:
    """Add the options for how much is printed, which are accepted before the command and after it."""
    for short, name, what in (
        ("-q", "--quiet", "print no notes and no progress, only errors"),
        ("-v", "--verbose", "print which files are read and which programs are run"),
    ):
        parser.add_argument(short, name, action="store_true", help=what, **default)


def runner(name: str) -> Callable[[argparse.Namespace], int]:
    """Return the function that runs a command and returns its exit code."""
    function: Callable[[argparse.Namespace], int] = getattr(_module(name), f"run_{name}")
    return function


def _module(name: str) -> ModuleType:
    return importlib.import_module(f"lumisite.cli.{COMMANDS[name].module}")


def parse(words: Sequence[str]) -> argparse.Namespace:
    """Parse a command line; the error for a word that is not known names the nearest one that is."""
    if words[:1] == ["help"]:
        words = [*words[1:2], "--help"]
    name = next((word for word in words if not word.startswith("-")), "")
    parser = build_parser(name)
    if name and name not in COMMANDS:
        parser.error(f"there is no command {name!r} ({_did_you_mean(name, COMMANDS) or 'see lumisite --help'})")
    arguments, unknown = parser.parse_known_args(words)
    if unknown:
        options = [option for action in arguments.parser._actions for option in action.option_strings]
        near = _did_you_mean(unknown[0].partition("=")[0], options)
        arguments.parser.error(f"unrecognized arguments: {' '.join(unknown)}{f' ({near})' if near else ''}")
    return arguments


def _did_you_mean(word: str, known: Iterable[str]) -> str:
    near = nearest_name(word, known)
    return f"did you mean {near}?" if near else ""
