"""The page about the command line, from the commands as click knows them."""

from __future__ import annotations

import re
from collections.abc import Iterator

import click

from docs.markdown import plain, table
from lumisite.cli.commands import COMMANDS, EXIT_CODES, GROUPS, program


def cli_page() -> str:
    """Describe the command line: each command with its usage, arguments and options, and the exit codes."""
    lines = [
        "# Command line",
        plain(program.help or ""),
        "The result goes to standard output, everything else to standard error.",
        "`--site` and `--quiet` may stand before the command or behind it.",
        *(
            f"**{title[:1].upper()}{title[1:]}**\n\n"
            + table(["command", "does"], [[f"[`{name}`](#{name})", plain(does)] for name, does in commands.items()])
            for title, commands in GROUPS.items()
        ),
        "## Options of lumisite itself",
        parameter_list("lumisite", program),
        "## Exit codes",
        table(["code", "means"], [[f"`{code}`", plain(meaning)] for code, meaning in exit_codes()]),
    ]
    for name, command in commands_by_name().items():
        lines += _command_section(name, command)
    return "\n\n".join(lines) + "\n"


def commands_by_name() -> dict[str, click.Command]:
    """Return each command, in the order in which `--help` lists them."""
    context = click.Context(program)
    found = {name: program.get_command(context, name) for name in COMMANDS}
    return {name: command for name, command in found.items() if command is not None}


def exit_codes() -> list[tuple[str, str]]:
    """Return the exit codes of the sentence that `--help` ends with: `Exit codes: 0 fine, 1 a difference ...`."""
    text = EXIT_CODES.removeprefix("Exit codes: ").rstrip(".")
    return [(part.split(" ", 1)[0], part.split(" ", 1)[1]) for part in re.split(r", (?=\d)", text)]


def _command_section(name: str, command: click.Command) -> Iterator[str]:
    usage = " ".join(command.collect_usage_pieces(click.Context(command)))
    yield f"## {name}"
    yield f"```text\nlumisite {name} {usage}\n```"
    yield from (plain(" ".join(text.split())) for text in (command.help or "").split("\n\n"))
    yield parameter_list(name, command)


def parameter_list(name: str, command: click.Command) -> str:
    """List positional arguments, then options, each option with an anchor such as `render--rocm`."""
    lines = []
    context = click.Context(command)
    shown = [one for one in command.params if one.expose_value or command is program]  # others are said there
    for parameter in sorted(shown, key=lambda one: isinstance(one, click.Option)):
        value = parameter.make_metavar(context)
        if isinstance(parameter, click.Option):
            value = "" if parameter.is_flag else f" {value}"
            spelled = ", ".join(f"`{spelling}{value}`" for spelling in parameter.opts)
            anchor = f'<a id="{name}{parameter.opts[-1]}"></a>'
        else:
            spelled, anchor = f"`{value}`", ""
        lines.append(f"- {anchor}{spelled}: {plain(help_of(parameter))}")
    return "\n".join(lines)


def help_of(parameter: click.Parameter) -> str:
    """Return the help text of an argument or option."""
    return str(getattr(parameter, "help", None) or "")
