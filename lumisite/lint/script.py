"""Read a job script line by line: its directives, and its commands with their words, as far as rules need them.

This is no grammar of shell: quotes, continued lines, comments and here-documents are seen, so that no rule takes a text
for a command. What cannot be read (a quote without an end, expansions nested deeper than two levels) is passed over to
the end of its line, and rules are silent about it. Nothing is ever expanded or run.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain, takewhile

from lumisite.render.runtimes import RUNTIMES

#: Scripts in scripts (`bash -c '...'`) are read to this depth.
DEPTH_LIMIT = 4
#: Programs that print the words after them, or load them, and do not run them.
TALKERS = frozenset({"echo", "printf", "which", "type", "command", "man", "grep", "alias", "hash", "module", "ml"})
_LAUNCHERS = ("srun", "mpirun", "mpiexec")
_DECLARING = ("export", "declare", "local", "readonly", "typeset")
_RESERVED = frozenset({"if", "then", "elif", "else", "while", "until", "do", "!", "{", "time"})

_SINGLE = r"\$?'[^']*'"
_PLAIN = r"'[^']*'|\"(?:\\.|[^\"\\])*\"|\\.|[^()'\"\\]"
_PARENTHESES = rf"\((?:{_PLAIN}|\((?:{_PLAIN}|\((?:{_PLAIN})*\))*\))*\)"
_EXPANSION = rf"\${_PARENTHESES}|\$\{{(?:[^{{}}$]|\$(?!\{{)|\$\{{[^{{}}]*\}})*\}}|`[^`]*`"
_DOUBLE = rf"\$?\"(?:\\.|{_EXPANSION}|\$(?![({{])|[^\"\\$`])*\""
_TOKEN = re.compile(
    rf"(?P<space>(?:[ \t\r]|\\\n|\#[^\n]*)+)|(?P<line>\n)"
    r"|(?<!<)<<(?!<)(?P<tabs>-?)[ \t]*(?P<quote>['\"\\]?)(?P<delimiter>\w+)['\"]?"
    r"|(?P<arithmetic>\(\([^\n()]*\)\))|(?P<file>&>>?|[<>]+&?)|(?P<operator>[;&|()])"
    rf"|(?P<word>(?:{_SINGLE}|{_DOUBLE}|{_EXPANSION}|\\.|\$(?![({{'\"])|[^\s;&|()<>'\"`\\$]+)+)|(?P<other>.)",
    re.DOTALL,
)
_PART = re.compile(
    rf"(?P<single>{_SINGLE})|(?P<double>{_DOUBLE})|(?P<expansion>{_EXPANSION})|(?P<bare>\\.|[^'\"\\])",
    re.DOTALL,
)
#: What follows the first parenthesis of a function's head.
_FUNCTION = re.compile(r"\s*\)\s*\{")
_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)\+?=(.*)", re.DOTALL)
#: A word of a directive or the comment after them, as `get_argument` in Slurm's src/sbatch/opt.c reads them.
_DIRECTIVE_WORD = re.compile(r"(?P<comment>#)|(?:\\.|\"[^\"]*\"|'[^']*'|[^\s#\"'\\])+")


@dataclass(frozen=True)
class Word:
    """A word as it stands in the script, with the line on which it begins."""

    raw: str
    line: int

    @cached_property
    def _unquoted(self) -> str:
        parts = []
        for part in _PART.finditer(self.raw):
            if part["single"]:
                parts.append(part["single"].strip("$")[1:-1].replace("$", r"\$").replace("`", r"\`"))
            elif part["double"]:
                parts.append(part["double"].removeprefix("$")[1:-1])
            else:
                bare = part["expansion"] or part["bare"]
                parts.append(bare[1] if bare[0] == "\\" and bare[1] not in "$`\n" else bare)
        return "".join(parts)

    @property
    def value(self) -> str:
        """The word without quotes. A dollar that the shell leaves alone has a backslash."""
        return self._unquoted.replace("\\\n", "")

    @property
    def inner(self) -> str:
        """The word as an inner shell gets it, as the script of `bash -c`."""
        return re.sub(r'\\([$`"\\])', r"\1", self._unquoted)

    def matches(self, pattern: re.Pattern[str]) -> Iterator[tuple[str, int]]:
        """Yield all matches in what the shell expands, which is all but what is in single quotes, with their lines."""
        blank = _PART.sub(lambda part: re.sub(r"[^\n]", " ", part[0]) if part["single"] else part[0], self.raw)
        yield from ((match[0], line) for match, line in with_lines(pattern, blank, self.line))


def with_lines(pattern: re.Pattern[str], text: str, line: int) -> Iterator[tuple[re.Match[str], int]]:
    """Yield all matches in a text that begins on a line, each with the line on which it begins."""
    position = 0
    for match in pattern.finditer(text):
        line += text.count("\n", position, match.start())
        position = match.start()
        yield match, line


@dataclass(frozen=True)
class ShellCommand:
    """A simple command: the variables that it sets, its words, and its here-documents that the shell expands.

    `spot` is where it runs: `batch` is the batch script itself, on the first node, `function` the body of a function,
    `task` what a launcher starts, `container` what a container runs. `end` is the operator or line end behind it.
    """

    assignments: tuple[tuple[str, Word], ...]
    words: tuple[Word, ...]
    documents: tuple[Word, ...]
    spot: str
    end: str = ""

    def with_words(self, words: Iterable[Iterable[Word]]) -> ShellCommand:
        """Return it with other words, each list in the place of one."""
        return replace(self, words=tuple(chain.from_iterable(words)))

    @property
    def line(self) -> int:
        """Where it begins."""
        return self.assignments[0][1].line if self.assignments else self.words[0].line

    @cached_property
    def values(self) -> tuple[str, ...]:
        """The values of its words."""
        return tuple(word.value for word in self.words)

    @cached_property
    def programs(self) -> tuple[str, ...]:
        """What each word is called as a program, without directories."""
        return tuple(value.rpartition("/")[2] for value in self.values)

    def names_any(self, *programs: str) -> bool:
        """Return whether one of these is among its words, as `srun` is in `exec /usr/bin/srun`."""
        return not set(programs).isdisjoint(self.programs)

    def words_after(self, *programs: str, first: int | None = None) -> tuple[Word, ...] | None:
        """Return the words after one of these programs; None where there is none, or where it is only printed.

        The program is among the `first` words, or anywhere.
        """
        for index, name in enumerate(self.programs[:first]):
            if name in programs:
                return self.words[index + 1 :]
            if name in TALKERS:
                break
        return None


def is_shell(text: str) -> bool:
    """Return whether a script is read by a shell, as it is where its first line names no other interpreter."""
    return not re.match(r"#![^\n]*\b(?:python|perl|ruby|julia|Rscript|lua|node)[\d.]*\b", text)


def read_directives(text: str) -> Iterator[tuple[str, int]]:
    """Yield the words of `#SBATCH` lines; sbatch stops to read them at the first command."""
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip() and not line.lstrip().startswith("#"):
            return
        words = _DIRECTIVE_WORD.finditer(line.removeprefix("#SBATCH")) if line.startswith("#SBATCH") else ()
        for word in takewhile(lambda word: not word["comment"], words):
            yield re.sub(r"\\(.)|[\"']", r"\1", word[0]), number


def read_commands(text: str, line: int = 1, spot: str = "batch", depth: int = 0) -> Iterator[ShellCommand]:
    """Yield all commands, each followed by those of a script that it has as an argument."""
    for command in _simple_commands(text, line, spot):
        yield command
        if depth == DEPTH_LIMIT:
            continue
        inner = "task" if spot == "batch" and command.names_any(*_LAUNCHERS) else command.spot
        inner = "container" if command.names_any(*RUNTIMES) else inner
        for program, option, script in zip(command.programs, command.values[1:], command.words[2:], strict=False):
            if program in ("bash", "sh") and re.fullmatch("-[a-z]*c", option):
                yield from read_commands(script.inner, script.line, inner, depth + 1)


def _simple_commands(text: str, line: int, spot: str) -> Iterator[ShellCommand]:
    words: list[Word] = []
    documents: list[Word] = []
    expected: list[re.Match[str]] = []
    in_array = False
    depth = 0  # of braces, inside of a function
    position = 0
    while position < len(text):
        token = _TOKEN.match(text, position)
        assert token is not None
        position = token.end()
        kind = token.lastgroup
        if kind == "word":
            words.append(Word(token[0], line))
        elif kind == "delimiter":
            expected.append(token)
        elif kind == "other":
            end = text.find("\n", position)
            position = len(text) if end < 0 else end
        elif kind == "operator" and token[0] == "(" and (body := _FUNCTION.match(text, position)) and len(words) == 1:
            line += text.count("\n", position, body.end())
            position, depth, words = body.end(), depth + 1, []
            continue
        elif kind in ("line", "operator", "arithmetic") and not (in_array and kind == "line"):
            in_array = token[0] == "(" and bool(words) and words[-1].raw.endswith("=")
            if kind == "line":
                for start in expected:
                    first = line + text.count("\n", token.start(), position)
                    position = _read_document(text, position, start, first, documents)
                expected.clear()
            yield from _command(words, documents, "function" if depth and spot == "batch" else spot, token[0])
            if depth and words:
                depth += (words[0].raw == "{") - (words[0].raw == "}")
            words, documents = [], []
        line += text.count("\n", token.start(), position)
    yield from _command(words, documents, spot, "")


def _read_document(text: str, position: int, start: re.Match[str], line: int, documents: list[Word]) -> int:
    """Return where a here-document ends, and keep it where the shell expands it; one without an end is none."""
    end = re.compile(rf"^{'	*' if start['tabs'] else ''}{start['delimiter']}$\n?", re.MULTILINE).search(
        text, position
    )
    if end is None:
        return position
    if not start["quote"]:
        documents.append(Word(text[position : end.start()], line))
    return end.end()


def _command(words: list[Word], documents: list[Word], spot: str, end: str) -> Iterator[ShellCommand]:
    assignments: list[tuple[str, Word]] = []
    at = next((at for at, word in enumerate(words) if word.raw not in _RESERVED), len(words))
    while at < len(words) and (found := _assignment(words[at])):
        assignments.append(found)
        at += 1
    rest = words[at:]
    if rest and rest[0].value in _DECLARING:
        declared = (Word(word.raw.strip("\"'") if word.raw[0] in "\"'" else word.raw, word.line) for word in rest[1:])
        assignments += filter(None, map(_assignment, declared))
    if assignments or rest:
        yield ShellCommand(tuple(assignments), tuple(rest), tuple(documents), spot, end)


def _assignment(word: Word) -> tuple[str, Word] | None:
    found = _ASSIGNMENT.match(word.raw)
    return (found[1], Word(found[2], word.line)) if found else None
