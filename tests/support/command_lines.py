"""Command lines, parsed and not run."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace

import click

from lumisite.cli.commands import program


def parsed(words: Sequence[str]) -> SimpleNamespace:
    """Return the values that a command line has for its command. Raises `click.UsageError`."""
    name, *values = words
    if name.startswith("-"):
        return SimpleNamespace()
    context = click.Context(program, info_name="lumisite")
    command = program.get_command(context, name)
    assert command is not None, name
    return SimpleNamespace(**command.make_context(name, values, parent=context).params)
