"""The page about the command line, from the parser's actions.

Not from `format_help`, whose layout differs between Python versions.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator

from docs.markdown import plain, table
from lumisite.cli.commands import GROUPS, build_parser

USAGE_WIDTH = 88


def cli_page() -> str:
    """Describe the command line: each command with its usage, arguments and options, and the exit codes."""
    parser = build_parser()
    described = commands_of(parser)
    lines = [
        "# Command line",
        plain(parser.description or ""),
        "The result goes to standard output, everything else to standard error.",
        *(
            f"**{title[:1].upper()}{title[1:]}**\n\n"
            + table(["command", "does"], [[f"[`{name}`](#{name})", plain(described[name][0])] for name in names])
            for title, names in GROUPS.items()
        ),
        "## Options of lumisite itself",
        arguments_list("lumisite", parser),
        "## Exit codes",
        table(["code", "means"], [[f"`{code}`", plain(meaning)] for code, meaning in exit_codes(parser)]),
    ]
    for name, (summary, command) in described.items():
        lines += _command_section(name, summary, command)
    return "\n\n".join(lines) + "\n"


def commands_of(parser: argparse.ArgumentParser) -> dict[str, tuple[str, argparse.ArgumentParser]]:
    """Give each command's summary and parser, in the order in which `--help` lists them."""
    action = next(one for one in parser._actions if isinstance(one, argparse._SubParsersAction))
    summaries = {choice.dest: choice.help or "" for choice in action._choices_actions}
    return {name: (summaries.get(name, ""), command) for name, command in action.choices.items()}


def exit_codes(parser: argparse.ArgumentParser) -> list[tuple[str, str]]:
    """Take the exit codes from the sentence that `--help` ends with: `Exit codes: 0 fine, 1 a difference ...`."""
    said = (parser.epilog or "").removeprefix("Exit codes: ").rstrip(".")
    return [(part.split(" ", 1)[0], part.split(" ", 1)[1]) for part in re.split(r", (?=\d)", said)]


def _command_section(name: str, summary: str, command: argparse.ArgumentParser) -> list[str]:
    description = command.description or f"{summary[:1].upper()}{summary[1:]}."
    section = [f"## {name}", "\n".join(["```text", *usage(f"lumisite {name}", command), "```"]), plain(description)]
    listed = arguments_list(name, command)
    return [*section, *filter(None, [listed])]


def usage(program: str, parser: argparse.ArgumentParser) -> list[str]:
    """Write the usage of a command, options first, folded at a fixed width."""
    lines = [program]
    for part in _usage_parts(parser):
        if len(lines[-1]) + 1 + len(part) > USAGE_WIDTH:
            lines.append(" " * len(program))
        lines[-1] += f" {part}"
    return lines


def _usage_parts(parser: argparse.ArgumentParser) -> Iterator[str]:
    groups = {id(action): group for group in parser._mutually_exclusive_groups for action in group._group_actions}
    for action in sorted(shown_arguments(parser), key=lambda one: not one.option_strings):
        group = groups.get(id(action))
        if group is None:
            yield _usage_part(action)
        elif action is group._group_actions[0]:
            inner = " | ".join(_spelled(one) for one in group._group_actions)
            yield f"({inner})" if group.required else f"[{inner}]"


def _usage_part(action: argparse.Action) -> str:
    text = _spelled(action)
    if not action.option_strings or action.required:
        return text
    return f"[{text}]..." if isinstance(action, argparse._AppendAction) else f"[{text}]"


def arguments_list(command: str, parser: argparse.ArgumentParser) -> str:
    """List positional arguments, then options, each option with an anchor such as `render--rocm`."""
    lines = []
    for action in sorted(shown_arguments(parser), key=lambda one: bool(one.option_strings)):
        spelled = ", ".join(f"`{_spelled(action, text)}`" for text in action.option_strings or [""])
        anchor = f'<a id="{command}{action.option_strings[-1]}"></a>' if action.option_strings else ""
        lines.append(f"- {anchor}{spelled}: {plain(help_text(action, parser))}")
    return "\n".join(lines)


def shown_arguments(parser: argparse.ArgumentParser) -> list[argparse.Action]:
    """Give what a user can type, without `--help` and the commands themselves."""
    hidden = (argparse._HelpAction, argparse._SubParsersAction)
    return [one for one in parser._actions if not isinstance(one, hidden) and one.help != argparse.SUPPRESS]


def help_text(action: argparse.Action, parser: argparse.ArgumentParser) -> str:
    """Give an argument's help with `%(default)s` and its like filled in, as argparse does it."""
    return (action.help or "") % {**vars(action), "prog": parser.prog}


def _spelled(action: argparse.Action, option: str | None = None) -> str:
    option = next(iter(action.option_strings), "") if option is None else option
    return " ".join(filter(None, [option, _values(action)]))


def _values(action: argparse.Action) -> str:
    """Write what follows an option, or a positional argument: `V`, `[FILE]`, `NAME [NAME ...]`."""
    fallback = action.dest.upper() if action.option_strings else action.dest
    choices = "{" + ",".join(map(str, action.choices)) + "}" if action.choices else ""
    name = str(action.metavar or choices or fallback)
    if isinstance(action.nargs, int):
        return " ".join([name] * action.nargs)
    return {None: name, "?": f"[{name}]", "*": f"[{name} ...]", "+": f"{name} [{name} ...]"}[action.nargs]
