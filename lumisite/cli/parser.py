"""The command line: a parser made of the table of commands, and what several commands do."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from textwrap import indent
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, cast

from lumisite.cli.plain import plain
from lumisite.cli.version import TellVersion
from lumisite.errors import ResolveError, ToolError, refused, shown

if TYPE_CHECKING:
    from lumisite.cli.chosen import Chosen
    from lumisite.site.load import LoadedSite
    from lumisite.site.model import Site
    from lumisite.site.selection import Selection


EXIT_CODES = (
    "Exit codes: 0 fine, 1 a difference or a failed verdict, 2 usage or site description, "
    "3 a tool or the system refused, 4 inconclusive, 5 the system is fine but some nodes are not."
)
#: Who uses which command: the order of `lumisite --help`.
GROUPS: Mapping[str, tuple[str, ...]] = {
    "describe the machine (admins)": ("init", "check", "resolve"),
    "modules and releases (admins)": ("render", "diff", "deploy", "rollback", "releases", "status"),
    "jobs and images (user support)": ("why", "env", "masks", "binds", "images", "transport", "lint"),
    "before and after an update (engineers)": (
        *("facts", "changes", "baseline", "validate", "verdict", "report", "reframe", "try"),
    ),
}


class About(NamedTuple):
    """What `--help` says of an argument, and what argparse must know besides."""

    help: str
    more: Mapping[str, Any]


#: Arguments are spelled as in a usage line: `--flag`, `-o --output VALUE`, or `name VALUE` for a word without an
#: option; `[VALUE]` may be left out, and of `VALUE...` there may be several.
Arguments: TypeAlias = Mapping[str, "str | About"]


class Command(NamedTuple):
    """A command: its line in `lumisite --help`, its own help and its arguments.

    At most one of the options in `either` may be given. `run` is MODULE.FUNCTION of this room that runs it, else the
    `run` of the module with the command's name.
    """

    help: str
    description: str | None
    arguments: Arguments
    either: tuple[str, ...] = ()
    run: str = ""


class _Grouped(argparse.HelpFormatter):
    """Help with the commands in their groups."""

    def _format_action(self, action: argparse.Action) -> str:
        if not isinstance(action, argparse._SubParsersAction):
            return super()._format_action(action)
        told = {one.dest: indent(super(_Grouped, self)._format_action(one), "  ") for one in action._choices_actions}
        return "\n".join(f"  {title}:\n{''.join(map(told.__getitem__, names))}" for title, names in GROUPS.items())


def build_parser(commands: Mapping[str, Command], only: str | None = None) -> argparse.ArgumentParser:
    """Build the parser, which stores the command's name as `command`, and its parser as `parser`.

    With `only`, no other command gets arguments or a parser of its own: giving them to all takes as long as rendering.
    """
    others = None if only is None else argparse.ArgumentParser()

    def own_parser(prog: str, **options: Any) -> argparse.ArgumentParser:
        return others if others and prog.split()[-1] != only else argparse.ArgumentParser(prog=prog, **options)

    parser = argparse.ArgumentParser(
        prog="lumisite",
        description="The layer between Slurm and the container on an HPC site.",
        epilog=EXIT_CODES,
        formatter_class=_Grouped,
    )
    parser.add_argument("--version", action=TellVersion, nargs=0, help="tell the version and the commit")
    parsers: argparse._SubParsersAction[argparse.ArgumentParser] = parser.add_subparsers(
        title="commands", metavar="COMMAND", dest="command", required=True, parser_class=cast(Any, own_parser)
    )
    for name, command in commands.items():
        own = parsers.add_parser(name, help=command.help, description=command.description, epilog=EXIT_CODES)
        if only in (None, name):
            own.set_defaults(parser=own)
            _add_arguments(own, command)
    return parser


def _add_arguments(parser: argparse.ArgumentParser, command: Command) -> None:
    either = parser.add_mutually_exclusive_group() if command.either else None
    for spelled, about in command.arguments.items():
        said, more = (about, {}) if isinstance(about, str) else about
        *names, value = words = spelled.split()
        if value.startswith("-"):
            names, value = words, ""
        several, may_lack = value.endswith("..."), value.startswith("[")
        options: dict[str, Any] = {"help": said, "metavar": value.removesuffix("...").strip("[]") or None}
        if not names[0].startswith("-"):
            options["nargs"] = ("*" if may_lack else "+") if several else "?" if may_lack else None
        elif several:
            options |= {"action": "append", "default": []}
        elif not value and not more:
            options = {"help": said, "action": "store_true"}
        group = either if either is not None and names[-1] in command.either else parser
        group.add_argument(*names, **options, **more)


def number_to(most: int, no: str = "no") -> Callable[[str], int]:
    """Give what reads how many of something there should be."""

    def number(text: str) -> int:
        value = int(text) if text.isascii() and text.isdecimal() and len(text) < 7 else 0
        if not 1 <= value <= most:
            raise argparse.ArgumentTypeError(f"{text!r} is {no} number from 1 to {most}")
        return value

    return number


#: These name the site by themselves, in the first line of what they tell.
_TELL_SITE = ("check", "render", "resolve")
#: These explain, or write into a folder, and do so for an example where no site is named or known.
_EXPLAIN = ("render", "why", "env", "resolve", "lint")
#: These judge files, which may be of any machine: they take a site only where it is named.
_JUDGE_FILES = ("transport", "verdict")
#: What stands for this node in the place of a node kind.
LIVE = "live"


def parse(commands: Mapping[str, Command], words: Sequence[str]) -> argparse.Namespace:
    """Parse what was typed; what is mistyped comes back with what may have been meant."""
    name = next((word for word in words if not word.startswith("-")), "")
    parser = build_parser(commands, name)
    if name and name not in commands:
        parser.error(f"there is no command {name!r} ({_meant(name, commands) or 'see lumisite --help'})")
    arguments, odd = parser.parse_known_args(words)
    if odd:
        options = [option for action in arguments.parser._actions for option in action.option_strings]
        near = _meant(odd[0].partition("=")[0], options)
        arguments.parser.error(f"unrecognized arguments: {' '.join(odd)}{f' ({near})' if near else ''}")
    return arguments


def _meant(word: str, known: Iterable[str]) -> str:
    from difflib import get_close_matches

    near = get_close_matches(word, list(known), n=1)
    return f"did you mean {near[0]}?" if near else ""


def as_typed(message: str, arguments: argparse.Namespace, words: Sequence[str]) -> str:
    """Let an error name the option that was typed, where there are two for the same thing."""
    from lumisite.site.selection import SHORT_FORMS

    others = {"--host-root": "--root", "--site": "FILE"} | {f"--{stack}": f"--use {stack}" for stack in SHORT_FORMS}
    typed = {word.partition("=")[0] for word in words} | ({"FILE"} if getattr(arguments, "file", "") else set())
    named, colon, rest = message.partition(":")
    other = others.get(named, named)
    return f"{other}{colon}{rest}" if named not in typed and other.split(" ")[0] in typed else message


def choose_site(arguments: argparse.Namespace) -> Iterator[str]:
    """Fill in the site where none was asked for, and give a line that names it."""
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
            if found.is_example or arguments.command not in _TELL_SITE:
                yield f"lumisite: site {found.name}, {found.why}"


def _site_of(arguments: argparse.Namespace) -> Chosen | None:
    """Return the site where no option names one; raise `ResolveError` where the command needs one."""
    from lumisite.cli import chosen

    if arguments.command in _EXPLAIN:
        return chosen.site_or_example()
    if arguments.command in _JUDGE_FILES or getattr(arguments, "topology", None) is not None:
        return chosen.named_site()
    if arguments.command == "facts" or getattr(arguments, "node", None) == LIVE:
        return chosen.known_site()  # a machine that nobody has described yet is read as well
    return chosen.default_site()


def load_selection(arguments: argparse.Namespace) -> tuple[LoadedSite, Selection]:
    """Load the site and choose the releases that these options ask for."""
    from lumisite.site.load import load_site
    from lumisite.site.selection import resolve_selection

    loaded = load_site(arguments.site)
    return loaded, resolve_selection(loaded.site, platform=arguments.platform, **asked_for(arguments))


def asked_for(arguments: argparse.Namespace) -> dict[str, list[str]]:
    """Give the releases that options ask for, by stack; raises `ResolveError`."""
    from lumisite.site.selection import SHORT_FORMS

    asked = {stack: list(getattr(arguments, stack)) for stack in SHORT_FORMS if getattr(arguments, stack)}
    for text in arguments.use:
        stack, sign, version = text.partition("=")
        if not sign or not stack:
            raise ResolveError(f"--use: {text!r} is no stack with its release (NAME=12.8 would be right)")
        asked.setdefault(stack, []).append(version)
    return asked


def real_path(name: str | Path) -> Path:
    """Follow links as far as they lead. Those that go round are left for what opens the path: it has the message."""
    return Path(os.path.realpath(name))


def check_root(root: str) -> None:
    """Refuse the root of a host that is no directory; raises `ResolveError`."""
    if "\0" in root or not Path(root).is_dir():
        raise ResolveError(f"--host-root: {root!r} is no directory (the root of a host, or of a copy of one)")


def tell(result: object, lines: Iterable[str], *, as_json: bool) -> None:
    """Print a result: as JSON for a machine, else its lines, if there are any."""
    if rows := (json.dumps(result, indent=2, default=str),) if as_json else tuple(lines):
        print("\n".join(rows))


def rows_of_json(rows: Iterable[object]) -> str:
    """Give a JSON list with one line for each of its values, as `grep` reads it."""
    return "[" + ",".join(f"\n  {json.dumps(row)}" for row in rows) + "\n]"


def say(text: str) -> None:
    """Tell what goes on, beside the result."""
    print(f"lumisite: {text}", file=sys.stderr, flush=True)


def say_untried(site: Site) -> None:
    """Tell of a site that nobody tried; silent for others."""
    if not site.tried:
        say(f"{site.title} was never run with this: its description is from documents, so try it before you rely on it")


def write_whole(path: Path, content: bytes) -> bool:
    """Write a file whole or not at all, and tell whether it was another before; raises `ToolError`."""
    from lumisite.release.files import replace_file

    try:
        return replace_file(path, content)
    except OSError as error:
        raise refused("write", error) from None


def write_text(text: str, output: str | None) -> None:
    """Write to a file, which may be a device, or to standard output; raises `ToolError`."""
    if output is None:
        sys.stdout.write(text)
        return
    try:
        Path(output).write_text(plain(text), encoding="utf-8")
    except (OSError, ValueError) as error:
        raise ToolError(f"cannot write {shown(output)}: {getattr(error, 'strerror', None) or error}") from None
