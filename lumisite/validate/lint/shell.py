"""Read a shell script into commands, words and here-documents, far enough to judge job scripts.

The standard library's shlex knows neither here-documents nor `$(...)`; bashlex is under the GPL and stops at scripts
that bash accepts; a real grammar (tree-sitter) is a compiled library for an admin's node. Rules about job scripts need
none of that: which words a command has, how each was quoted, and on which line it stands. What is unterminated reads to
the end; nothing is ever expanded or run.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from lumisite.validate.lint.lexer import Command, HereDocument, Lexer, Part, Word

#: Scripts in scripts (`bash -c '...'`) are read to this depth.
DEPTH_LIMIT = 4

#: What only names a program that follows, and does not start it.
TALKERS = frozenset({"echo", "printf", "which", "type", "command", "man", "grep", "alias", "hash", "module", "ml"})
#: How a script begins that was copied from a terminal.
_LISTING = re.compile(r"(?:\$ )?cat [\w./-]+[ \t]*\n(?=#!)")
_DIRECTIVE = re.compile(r"^#SBATCH\s", re.MULTILINE)


@dataclass(frozen=True)
class Directive:
    """One word of `#SBATCH` lines."""

    line: int
    value: str


@dataclass(frozen=True)
class Script:
    """A script: its `#SBATCH` words and all commands, those of scripts inside it among them.

    `jobs` are the other jobs that it writes or submits: a here-document with `#SBATCH` lines, `sbatch` and `salloc`
    with what stands behind them, which is `submitted`.
    """

    directives: tuple[Directive, ...]
    commands: tuple[Command, ...]
    jobs: tuple[Script, ...] = ()
    submitted: tuple[Word, ...] = ()


def parse_script(text: str) -> Script:
    """Read a script; never fails."""
    text = text.replace("\r\n", "\n")
    listed = _LISTING.match(text)
    return _script(text[listed.end() :], 2, 0) if listed else _script(text, 1, 0)


def program_at(command: Command, program: str) -> int | None:
    """Find a program among the first words of a command, after `time` and the like, but not where it is only named."""
    for at, name in enumerate(command.programs[:4]):
        if name == program:
            return at
        if name in TALKERS:
            break
    return None


def _script(text: str, line: int, depth: int, submitted: tuple[Word, ...] = ()) -> Script:
    jobs: list[Script] = []
    commands = tuple(_commands(text, line, "batch", depth, jobs))
    return Script(tuple(_directives(text, line)), commands, tuple(jobs), submitted)


def _directives(text: str, start: int) -> Iterator[Directive]:
    """Give the options that sbatch reads: up to the first line that is neither empty nor a comment."""
    for number, line in enumerate(text.split("\n"), start=start):
        if line.strip() and not line.startswith("#"):
            return
        if line.startswith("#SBATCH"):
            for word in re.sub(r"\s#.*", "", line.removeprefix("#SBATCH")).split():
                yield Directive(number, word.strip("\"'"))


def _commands(text: str, line: int, spot: str, depth: int, jobs: list[Script]) -> Iterator[Command]:
    for command in Lexer(text, line, spot).commands():
        yield command
        submitted = _submitted(command)
        if depth < DEPTH_LIMIT:
            inner = _inner_spot(command)
            for script in _inner_scripts(command):
                yield from _commands(script.text, script.line, inner, depth + 1, jobs)
            for text, line in _job_texts(command):
                jobs.append(_script(text, line, depth + 1, submitted))
                submitted = ()
            for document in command.documents:
                if not _DIRECTIVE.search(document.text):
                    yield from _commands(_body(document), document.line, "task", depth + 1, jobs)
        if submitted:
            jobs.append(Script((), (), (), submitted))


def _submitted(command: Command) -> tuple[Word, ...]:
    """Give what stands behind `sbatch` or `salloc`."""
    starts = [at for at in (program_at(command, "sbatch"), program_at(command, "salloc")) if at is not None]
    return command.words[starts[0] + 1 :] if starts else ()


def _job_texts(command: Command) -> Iterator[tuple[str, int]]:
    """Give the job scripts in a command: `sbatch --wrap=SCRIPT`, and here-documents with `#SBATCH` lines."""
    for at, word in enumerate(command.words[:-1]):
        following = command.words[at + 1]
        if word.value == "--wrap":
            yield "".join(map(_inner_text, following.parts)), following.line
    for word in command.words:
        if word.value.startswith("--wrap="):
            yield "".join(map(_inner_text, word.parts)).removeprefix("--wrap="), word.line
    for document in command.documents:
        if _DIRECTIVE.search(document.text):
            yield _body(document), document.line


def _body(document: HereDocument) -> str:
    return document.text if document.quoted else _unescaped(document.text)


def _inner_spot(command: Command) -> str:
    if command.names_any("singularity", "apptainer"):
        return "container"
    return "task" if _launches(command) and command.spot == "batch" else command.spot


def _launches(command: Command) -> bool:
    return command.names_any("srun", "mpirun", "mpiexec")


def _inner_scripts(command: Command) -> Iterator[Part]:
    """Give the scripts of `bash -c SCRIPT`, as the inner shell gets them."""
    for at, program in enumerate(command.programs[:-2]):
        if program in ("bash", "sh") and re.fullmatch(r"-[a-z]*c", command.values[at + 1]):
            word = command.words[at + 2]
            yield Part("", "".join(map(_inner_text, word.parts)), word.line)


def _inner_text(part: Part) -> str:
    if part.quote == "'":
        return part.text
    return _unescaped(part.text) if part.quote else re.sub(r"\\(.)", r"\1", part.text)


def _unescaped(text: str) -> str:
    """Take away what protects characters in double quotes, and in a here-document."""
    return re.sub(r'\\([$`"\\])', r"\1", text)
