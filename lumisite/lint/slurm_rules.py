"""What is wrong on every Slurm and in every shell: directives, options, and steps that nothing waits for."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from lumisite.lint.job import BadLine, Job
from lumisite.lint.script import read_commands
from lumisite.lint.slurm_options import ADDING, EXCLUSIVE, OPTIONS, Option, Program, is_option
from lumisite.lint.step import read_count
from lumisite.text import nearest_name

# ---------------------------------------------------------------- directives and options


def dos_line_ends(job: Job) -> Iterator[BadLine]:
    """Lines that end as on Windows, which sbatch refuses."""
    if job.dos:
        yield BadLine(1, "line ends of Windows", "sbatch refuses the script", "dos2unix SCRIPT, or sed -i 's/\\r$//'")


def late_directive(job: Job) -> Iterator[BadLine]:
    """A directive after the first command; one in a here-document is of another script."""
    first, lines = job.first_command, job.text.split("\n")
    if not job.text.startswith("#!") or not any(line.startswith("#SBATCH") for line in lines[first:]):
        return
    # As a command, so that it is found where commands are.
    marked = re.sub(r"^#SBATCH\b.*", ":SBATCH", job.text, flags=re.MULTILINE)
    for command in read_commands(marked):
        if command.spot in ("batch", "function") and command.values == (":SBATCH",) and command.line > first:
            reason = f"sbatch reads no directives after the first command, in line {first}"
            yield BadLine(command.line, lines[command.line - 1].strip(), reason, f"move the line above line {first}")


_EXPANSION = re.compile(r"\$(?:\w+|\{\w+\}|\()|`|(?<==)~/")


def directive_variable(job: Job) -> Iterator[BadLine]:
    """A variable, a command or `~` in a directive, which no shell expands."""
    for word, line in job.directives:
        if found := _EXPANSION.search(word):
            subject = word if found[0][-1] in "(`" else found[0]
            right = "the value itself, %x, %j or %u in names of files, or sbatch --option=… SCRIPT"
            yield BadLine(line, subject, "no shell expands directives, Slurm takes the text as it is", right)


_IN_COMMENT = re.compile(r"#[ \t]+SBATCH[ \t]+-{1,2}[A-Za-z]")


def commented_directive(job: Job) -> Iterator[BadLine]:
    """`# SBATCH`, which is a comment."""
    reason = "a comment: sbatch reads only #SBATCH, without the space"
    for at, text in enumerate(job.text.split("\n")[: job.first_command], 1):
        if _IN_COMMENT.match(text):
            yield BadLine(at, "# SBATCH", reason, text.replace("# ", "#", 1).strip())


#: A comment that begins as a directive does, but for its word or a space before it.
_ALMOST = re.compile(r"(#(?!SBATCH)(?:S?[A-Z]{4,6}H|sbatch)|[ \t]+#SBATCH)\s+-{1,2}\w")


def unknown_directive(job: Job) -> Iterator[BadLine]:
    """A directive, or an option of one, whose name is almost right."""
    head = job.text.split("\n")[: job.first_command]
    for at, text in enumerate(head if job.directives else (), 1):
        if found := _ALMOST.match(text):
            yield BadLine(at, found[1].strip(), "a comment, no directive of sbatch", "#SBATCH at the start of the line")
    for options in job.requests:
        yield from _unknown(options, "sbatch")


def unknown_option(job: Job) -> Iterator[BadLine]:
    """An option that srun does not have, and that is almost one of srun."""
    for step in job.sruns:
        yield from _unknown(step.own, "srun")


def _unknown(options: Iterable[Option], program: Program) -> Iterator[BadLine]:
    """Yield options that a program does not have, and that are almost one of its own or one of the other program."""
    other: Program = "srun" if program == "sbatch" else "sbatch"
    for option in options:
        if len(option.name) < 3 or is_option(option.name, program):
            continue
        if option.name in OPTIONS[other]:
            reason = f"an option of {other}, {program} refuses it"
            yield BadLine(option.line, f"--{option.name}", reason, f"{other} --{option.name}=…")
        elif near := nearest_name(option.name.lower(), OPTIONS[program], 0.86):
            yield BadLine(option.line, f"--{option.name}", f"no option of {program}", f"--{near}")


def repeated_directive(job: Job) -> Iterator[BadLine]:
    """An option that is given twice, with another value: sbatch takes the last one."""
    for options in job.requests:
        first = {option.name: option for option in reversed(options)}
        for option in options:
            before = first[option.name]
            if option.value != before.value and option.name not in ADDING:
                reason = f"the value of line {before.line} is replaced by {option.value}"
                yield BadLine(option.line, f"--{option.name}", reason, f"one line with --{option.name}")


def array_output(job: Job) -> Iterator[BadLine]:
    """One file for the output of all jobs of an array, which each of them empties where it does not add to it."""
    output = job.allocation.options.get("output")
    emptied = "array" in job.allocation.options and job.allocation.value("open-mode") != "append"
    if output and emptied and not re.search(r"%\d*[ajJ]|^/dev/", output.value):
        reason = "all jobs of the array write to this file, and each one begins it anew"
        yield BadLine(output.line, output.value, reason, "#SBATCH --output=%x-%A_%a.out")


def options_exclude_each_other(job: Job) -> Iterator[BadLine]:
    """Options of which Slurm takes one on a line."""
    for options in job.option_lists:
        names = {option.name: option for option in options}
        for group in EXCLUSIVE:
            given = sorted((names[name] for name in group if name in names), key=lambda option: option.line)
            if len(given) > 1:
                first, second = given[:2]
                reason = f"Slurm refuses it together with --{first.name} of line {first.line}"
                yield BadLine(second.line, f"--{second.name}", reason, f"one of --{first.name} and --{second.name}")


def too_many_tasks(job: Job) -> Iterator[BadLine]:
    """More tasks than the nodes have room for."""
    for option, tasks, nodes, each in _tasks(job):
        if tasks > nodes * each:
            reason = f"{tasks} tasks do not fit on {nodes} nodes with {each} tasks each: the job never starts"
            yield BadLine(option.line, "--ntasks", reason, f"--ntasks={nodes * each}, or without it")


def fewer_tasks(job: Job) -> Iterator[BadLine]:
    """Fewer tasks than nodes and tasks of a node make: `--ntasks` wins."""
    for option, tasks, nodes, each in _tasks(job):
        if tasks < nodes * each:
            reason = f"{tasks} tasks in all are started, not {nodes} x {each}: --ntasks comes before --ntasks-per-node"
            yield BadLine(option.line, "--ntasks", reason, f"--ntasks={nodes * each}, or without it")


def _tasks(job: Job) -> Iterator[tuple[Option, int, int, int]]:
    """Yield `--ntasks` with the number of tasks, of nodes and of tasks of a node, where all stand together."""
    for options in job.option_lists:
        names = {option.name: option for option in options if read_count(option.value)}
        if {"ntasks", "nodes", "ntasks-per-node"} <= names.keys():
            tasks = names["ntasks"]
            yield tasks, int(tasks.value), int(names["nodes"].value), int(names["ntasks-per-node"].value)


def export_without_all(job: Job) -> Iterator[BadLine]:
    """A list of variables to export, without ALL: all others stay behind, those of modules among them."""
    reason = "no other variable is passed on, those that modules set neither"
    for option in (option for options in job.option_lists for option in options if option.name == "export"):
        names = option.value.split(",")
        if any(names) and not {"ALL", "NONE", "NIL"} & set(names):
            yield BadLine(option.line, f"--export={option.value}", reason, f"--export=ALL,{option.value}")


def export_none(job: Job) -> Iterator[BadLine]:
    """`#SBATCH --export=NONE`, which srun inherits: tasks get nothing that the script sets or loads."""
    option = job.allocation.options.get("export")
    if option is None or option.value not in ("NONE", "NIL"):
        return
    for command in job.commands:
        if command.values[:2] == ("unset", "SLURM_EXPORT_ENV") or "SLURM_EXPORT_ENV" in dict(command.assignments):
            return
        step = job.step_of(command)
        if step and not step.has_own("export"):
            reason = f"srun in line {command.line} inherits it: tasks get nothing that this script sets or loads"
            yield BadLine(option.line, f"--export={option.value}", reason, "srun --export=ALL …")
            return


# ---------------------------------------------------------------- the shell


def text_after_continuation(job: Job) -> Iterator[BadLine]:
    """A backslash that is not the last character of its line, so that the line is not continued."""
    reason = "escapes the space behind it, and does not continue the line"
    for word in (word for command in job.commands for word in command.words[1:]):
        if word.raw in ("\\ ", "\\\t") or re.match(r"\\[ \t]#", word.raw):
            yield BadLine(word.line, "\\", reason, "nothing behind the backslash, no space and no comment")


#: Commands that take no time, and ends of blocks.
_BRIEF = ("done", "fi", "}", "esac", "echo", "date", "printf", "export", "cd", "for", "while")


def background_without_wait(job: Job) -> Iterator[BadLine]:
    """A step in the background after which the script ends, so that Slurm kills it."""
    commands = [command for command in job.commands if command.spot in ("batch", "function") and command.values]
    last = next((command for command in reversed(commands) if command.values[0] not in _BRIEF), None)
    if last is not None and last.end == "&" and last.names_any("srun"):
        yield BadLine(last.line, "&", "the script ends at once, and Slurm kills the step with it", "wait, at the end")
