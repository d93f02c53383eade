"""What is wrong with `#SBATCH` lines themselves, whatever they ask for."""

from __future__ import annotations

import re
from collections.abc import Iterator

from lumisite.lint.job import BadLine, Job, bad_line
from lumisite.lint.options import LONG_OPTIONS, read_option_list
from lumisite.lint.script import read_commands
from lumisite.text import nearest_name

_EXPANSION = re.compile(r"\$(?:\w+|\{\w+\}|\()|`|(?<==)~/")
#: Options that may be repeated, as sbatch collects their values.
_ADDING = ("gres-flags",)
#: A comment that begins as a directive does, but for its word.
_ALMOST = re.compile(r"(#(?!SBATCH)(?:S?[A-Z]{4,6}H|sbatch)|[ \t]+#SBATCH)\s+-{1,2}\w")


def late_directive(job: Job) -> Iterator[BadLine]:
    """A directive after the first command, which sbatch passes over; one in a here-document is of another script."""
    lines = job.text.split("\n")
    first = next((at for at, line in enumerate(lines, 1) if line.strip() and line.lstrip()[0] != "#"), len(lines))
    if not job.text.startswith("#!") or not any(line.startswith("#SBATCH") for line in lines[first:]):
        return
    # As a command, so that it is found where commands are.
    marked = re.sub(r"^#SBATCH\b.*", ":SBATCH", job.text, flags=re.MULTILINE)
    for command in read_commands(marked):
        if command.spot == "batch" and command.values == (":SBATCH",) and command.line > first:
            yield bad_line(command.line, lines[command.line - 1].strip(), first=first)


def directive_variable(job: Job) -> Iterator[BadLine]:
    """A variable, a command or `~` in a directive, which no shell expands."""
    for word, line in job.directives:
        if found := _EXPANSION.search(word):
            yield bad_line(line, word if found[0][-1] in "(`" else found[0])


def unknown_directive(job: Job) -> Iterator[BadLine]:
    """A directive or option whose name is almost one of sbatch; what is like none may be that of a plugin."""
    for at, text in enumerate(job.text.split("\n"), 1):
        if not job.directives or (text.strip() and text.lstrip()[0] != "#"):
            break
        if found := _ALMOST.match(text):
            yield bad_line(at, found[1].strip(), expected="#SBATCH")
    for (word, line), (before, _) in zip(job.directives, (("", 0), *job.directives), strict=False):
        option = re.match(r"(-{0,2})([A-Za-z][\w-]{2,}|)(=|$)", word)
        dashes, name, equals = option.groups() if option else ("", "", "")
        near = name if name in LONG_OPTIONS else nearest_name(name.lower(), LONG_OPTIONS, 0.8)
        begins = dashes == "--" and any(known.startswith(name) for known in LONG_OPTIONS)
        is_value = not dashes and before.startswith("-") and "=" not in before
        if near and not (begins or is_value) and (dashes == "--" or (near == name and (dashes or equals))):
            yield bad_line(line, f"{dashes}{name}", expected=f"--{near}")
        elif word == "=":
            yield bad_line(line, word, expected="--NAME=VALUE")


def repeated_directive(job: Job) -> Iterator[BadLine]:
    """An option that is given twice, with another value: sbatch takes the last one."""
    for options in map(read_option_list, job.components):
        first = {option.name: option for option in reversed(options)}
        for option in options:
            if option.value != first[option.name].value and option.name not in _ADDING:
                yield bad_line(option.line, f"--{option.name}", first=first[option.name].line, value=option.value)


def array_output(job: Job) -> Iterator[BadLine]:
    """One file for the output of all jobs of an array."""
    output = job.allocation.merged.get("output")
    if "array" in job.allocation.merged and output and not re.search(r"%\d*[ajJ]|^/dev/", output.value):
        yield bad_line(output.line, output.value)
