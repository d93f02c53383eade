"""The commands in the groups of `lumisite --help`, each in the module of this room that has its name."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import click
from click.shell_completion import CompletionItem

from lumisite import __version__
from lumisite.cli.options import quiet_option

EXIT_CODES = (
    "Exit codes: 0 fine, 1 a difference or a failed verdict, 2 usage or site description, "
    "3 a tool or the system refused, 4 inconclusive, 5 the system is fine but some nodes are not."
)
#: Who uses which command, and what it does: the order of `lumisite --help`.
GROUPS: dict[str, dict[str, str]] = {
    "describe the machine (admins)": {
        "init": "write a site description from the machine itself",
        "check": "find all faults of a site description",
    },
    "modules and releases (admins)": {
        "render": "write the modulefiles and the srun helper",
        "deploy": "what a rendered tree would change in a deployment root, and with --apply deploy it",
        "rollback": "go one release back, at once",
        "status": "what is deployed, whether it fits this machine, and what to do next",
        "policy": "for whom the srun helper is on: on, observe or off",
    },
    "jobs and images (user support)": {
        "why": "explain a setting, bind, module or library",
        "env": "what a rank will find: each variable, bind and CPU mask, who sets it, and why",
        "masks": "the CPU mask of each task on a node",
        "binds": "what a container needs from the host, library by library",
        "images": "where each image alias points, what it carries, and what moved",
        "transport": "which network NCCL, or a library like it, really used",
        "lint": "known-bad lines in job scripts",
    },
    "before and after an update (engineers)": {
        "facts": "capture what this node is, as one JSON file",
        "changes": "what changed between two facts files, and what that touches",
        "validate": "measure the system before and after a change, with real jobs",
        "verdict": "whether the system became slower",
        "report": "what a run found: what changed, what is slower, which node, what to do",
    },
}
COMMANDS: dict[str, str] = {name: line for commands in GROUPS.values() for name, line in commands.items()}
#: Help is as wide as the terminal, up to this, and `-h` is short for `--help`.
CONTEXT = {"max_content_width": 120, "help_option_names": ["-h", "--help"]}


def _commit() -> str:
    """Return the commit that the builder of a wheel wrote down, for the version; empty in a checkout."""
    written = Path(__file__).parents[1] / "COMMIT"
    if not written.is_file():
        return ""
    from lumisite.site.read import read_file

    return f" (commit {read_file(written, 100).decode('ascii').strip()})"


class Command(click.Command):
    """A command, with what all have: `--quiet`, and the exit codes below its help."""

    def __init__(self, name: str | None, **attributes: Any) -> None:
        super().__init__(name, epilog=EXIT_CODES, context_settings=CONTEXT, **attributes)
        self.params.append(quiet_option())


class CommandGroup(click.Group):
    """The group of all commands; the module of a command is imported when it is named."""

    def list_commands(self, _: click.Context) -> list[str]:
        """Return the names of the commands, in their order."""
        return list(COMMANDS)

    def get_command(self, _: click.Context, name: str) -> click.Command | None:
        """Import a command."""
        if name not in COMMANDS:
            return None
        command: click.Command = importlib.import_module(f"lumisite.cli.{name}").command
        return command

    def resolve_command(
        self, context: click.Context, words: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command that is named; the error for one that is not known names the nearest."""
        if words[0] not in COMMANDS and not words[0].startswith("-"):
            raise click.NoSuchCommand(words[0], possibilities=COMMANDS, ctx=context)
        return super().resolve_command(context, words)

    def format_commands(self, _: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands in their groups."""
        width = max(map(len, COMMANDS))
        for title, commands in GROUPS.items():
            with formatter.section(title[:1].upper() + title[1:]):
                formatter.write_dl([(f"{name:{width}}", line) for name, line in commands.items()])

    def shell_complete(self, context: click.Context, incomplete: str) -> list[CompletionItem]:
        """Return the commands that begin so, without importing them."""
        found = [CompletionItem(name, help=line) for name, line in COMMANDS.items() if name.startswith(incomplete)]
        return [*found, *click.Command.shell_complete(self, context, incomplete)]


@click.group(cls=CommandGroup, epilog=EXIT_CODES, context_settings=CONTEXT, no_args_is_help=False)
@click.version_option(__version__, "-V", "--version", message=f"lumisite {__version__}{_commit()}")
@click.option("--site", metavar="NAME|FILE", help="The same as --site after the command.")
@click.pass_context
def program(context: click.Context, site: str | None) -> None:
    """The layer between Slurm and the container on an HPC site."""
    if site is not None:
        name = str(context.invoked_subcommand)
        command = program.get_command(context, name)
        if command is not None and not any(one.name == "site" for one in command.params):
            raise click.UsageError(f"--site: `{name}` takes no site")
        context.default_map = {name: {"site": site}}


program.params.append(quiet_option())


def usage_message(error: click.UsageError) -> str:
    """Return what is wrong with a command line, and where to look, on one line."""
    where = error.ctx.command_path if error.ctx else "lumisite"
    return f"{where}: {' '.join(error.format_message().split()).rstrip('.')} (`{where} --help` lists what it takes)"
