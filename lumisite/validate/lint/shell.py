"""Read a shell script into commands, words and here-documents, far enough to judge job scripts.

The standard library's shlex knows neither here-documents nor `$(...)`; bashlex is under the GPL and stops at scripts
that bash accepts; a real grammar (tree-sitter) is a compiled library for an admin's node. Rules about job scripts need
none of that: which words a command has, how each was quoted, and on which line it stands. What is unterminated reads to
the end; nothing is ever expanded or run.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property

#: Scripts in scripts (`bash -c '...'`) are read to this depth, and expansions in expansions to that one.
DEPTH_LIMIT = 4
NESTING_LIMIT = 50

#: What only names a program that follows, and does not start it.
TALKERS = frozenset({"echo", "printf", "which", "type", "command", "man", "grep", "alias", "hash", "module", "ml"})
RUNTIMES = ("singularity", "apptainer")
_LAUNCHERS = ("srun", "mpirun", "mpiexec")

#: What stands between words: nothing but space, a comment, or what leads to a file (whose name is read as a word); a
#: here-document; the end of a line; the end of a command. `{a,b}` is a word, `{ list; }` is not.
_BETWEEN = re.compile(
    r"(?:[ \t]|\\\n|\#[^\n]*|<<<|&>>?|>>|[<>][&|]|<>|>|<(?!<))+|(?P<document><<(?P<tabs>-?)[ \t]*)"
    r"|(?P<line>\n)|(?P<operator>[;&|()}]|\{(?!\S))"
)
_WORD_ENDS = " \t\n;&|<>()"
_QUOTE = re.compile(r"\$?([\"'])")
_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)\+?=(.*)", re.DOTALL)
_RESERVED = frozenset({"if", "then", "elif", "else", "while", "until", "do", "!"})
#: How a script begins that was copied from a terminal.
_LISTING = re.compile(r"(?:\$ )?cat [\w./-]+[ \t]*\n(?=#!)")
_DIRECTIVE = re.compile(r"^#SBATCH\s", re.MULTILINE)


@dataclass(frozen=True)
class Part:
    """A run of a word with one kind of quoting: `quote` is `'`, `"` or empty; `text` is as it stands between them.

    A here-document is one too, in `'` where the shell does not expand it, and else in `"`.
    """

    quote: str
    text: str
    line: int

    @property
    def value(self) -> str:
        """The text without what protects it; expansions are left as they are, protected dollars keep a backslash."""
        if self.quote == "'":
            return self.text.replace("$", r"\$").replace("`", r"\`")
        return re.sub(r"\\\n", "", self.text) if self.quote == '"' else re.sub(r"\\([^$`])", r"\1", self.text)

    @property
    def inner(self) -> str:
        """The text as a shell gets it that is given the word as a script."""
        if self.quote == "'":
            return self.text
        return re.sub(r'\\([$`"\\])', r"\1", self.text) if self.quote else re.sub(r"\\(.)", r"\1", self.text)

    def matches(self, pattern: re.Pattern[str]) -> Iterator[tuple[str, int]]:
        """Give all that matches, with the line on which it begins."""
        line, at = self.line, 0
        for found in pattern.finditer(self.text):
            line += self.text.count("\n", at, found.start())
            at = found.start()
            yield found[0], line


@dataclass(frozen=True)
class Word:
    """One word of a command."""

    parts: tuple[Part, ...]

    @property
    def line(self) -> int:
        """Where it begins."""
        return self.parts[0].line

    @cached_property
    def value(self) -> str:
        """The word without quotes; what the shell will expand begins with a bare `$`."""
        return "".join(part.value for part in self.parts)

    @property
    def bare(self) -> bool:
        """Whether none of it is quoted."""
        return len(self.parts) == 1 and not self.parts[0].quote

    @property
    def words(self) -> tuple[Word, ...]:
        """The words of an array, or of a text that is kept for a command."""
        found: list[Word] = []
        for part in self.parts:
            if not part.quote and part.text.startswith("("):
                commands = _Reader(part.text[1:-1], part.line, "").commands()
                found += [word for command in commands for word in command.words]
            else:
                found += [Word((Part("", text, line),)) for text, line in part.matches(re.compile(r"[^\s\\]\S*"))]
        return tuple(found)


@dataclass(frozen=True)
class Command:
    """A simple command: assignments before it, words, and here-documents. `spot` is where it runs.

    `batch` is the batch script itself, on the first node; `task` is what a launcher starts, or what a here-document
    writes to a file; `container` is what a container runs.
    """

    assignments: tuple[tuple[str, Word], ...]
    words: tuple[Word, ...]
    documents: list[Part]
    spot: str

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
        """What each word is called as a program, without the directories before it."""
        return tuple(value.rpartition("/")[2] for value in self.values)

    def names_any(self, *programs: str) -> bool:
        """Whether one of these stands anywhere in it, as `srun` does in `exec /usr/bin/srun`."""
        return not set(programs).isdisjoint(self.programs)

    def behind(self, *programs: str, first: int | None = None) -> tuple[Word, ...] | None:
        """Give the words behind one of these programs; None where there is none, or where it is only talked of.

        The program is among the `first` words, after `time` and the like, or anywhere.
        """
        for at, name in enumerate(self.programs[:first]):
            if name in programs:
                return self.words[at + 1 :]
            if name in TALKERS:
                break
        return None


@dataclass(frozen=True)
class Script:
    """A script: its `#SBATCH` words with their lines, and all commands, those of scripts inside it among them.

    `jobs` are the other jobs that it writes or submits: a here-document with `#SBATCH` lines, `sbatch` and `salloc`
    with what stands behind them, which is `submitted`.
    """

    directives: tuple[tuple[str, int], ...]
    commands: tuple[Command, ...]
    jobs: tuple[Script, ...] = ()
    submitted: tuple[Word, ...] = ()


def parse_script(text: str) -> Script:
    """Read a script; never fails."""
    text = text.replace("\r\n", "\n")
    listed = _LISTING.match(text)
    return _script(Part("'", text[listed.end() :], 2) if listed else Part("'", text, 1), 0, ())


def _script(text: Part, depth: int, submitted: tuple[Word, ...]) -> Script:
    jobs: list[Script] = []
    commands = tuple(_commands(text, "batch", depth, jobs))
    return Script(tuple(_directives(text)), commands, tuple(jobs), submitted)


def _directives(script: Part) -> Iterator[tuple[str, int]]:
    """Give the options that sbatch reads: up to the first line that is neither empty nor a comment."""
    for number, line in enumerate(script.inner.split("\n"), start=script.line):
        if line.strip() and not line.startswith("#"):
            return
        if line.startswith("#SBATCH"):
            for word in re.sub(r"\s#.*", "", line.removeprefix("#SBATCH")).split():
                yield word.strip("\"'"), number


def _commands(script: Part, spot: str, depth: int, jobs: list[Script]) -> Iterator[Command]:
    for command in _Reader(script.inner, script.line, spot).commands():
        yield command
        submitted = command.behind("sbatch", "salloc", first=4) or ()
        if depth == DEPTH_LIMIT:
            continue
        for text in list(_job_texts(command)) or ([Part("", "", command.line)] if submitted else []):
            jobs.append(_script(text, depth + 1, submitted))
        for text in _inner_scripts(command):
            yield from _commands(text, _inner_spot(command), depth + 1, jobs)
        for text in command.documents:
            if not _DIRECTIVE.search(text.text):
                yield from _commands(text, "task", depth + 1, jobs)


def _job_texts(command: Command) -> Iterator[Part]:
    """Give the job scripts in a command: `sbatch --wrap=SCRIPT`, and here-documents with `#SBATCH` lines."""
    for word, following in zip(command.words, (*command.words[1:], None), strict=False):
        if word.value == "--wrap" and following:
            yield _joined(following)
        elif word.value.startswith("--wrap="):
            whole = _joined(word)
            yield Part("'", whole.text.removeprefix("--wrap="), whole.line)
    yield from (document for document in command.documents if _DIRECTIVE.search(document.text))


def _inner_spot(command: Command) -> str:
    if command.names_any(*RUNTIMES):
        return "container"
    return "task" if command.names_any(*_LAUNCHERS) and command.spot == "batch" else command.spot


def _inner_scripts(command: Command) -> Iterator[Part]:
    """Give the scripts of `bash -c SCRIPT`."""
    for at, program in enumerate(command.programs[:-2]):
        if program in ("bash", "sh") and re.fullmatch(r"-[a-z]*c", command.values[at + 1]):
            yield _joined(command.words[at + 2])


def _joined(word: Word) -> Part:
    return Part("'", "".join(part.inner for part in word.parts), word.line)


def option_values(commands: tuple[Command, ...], pattern: str) -> Iterator[tuple[str, int]]:
    """Give the values of an option, `--option=VALUE` or `--option VALUE`, with the lines of the option."""
    for command in commands:
        for word, following in zip(command.words, (*command.values[1:], ""), strict=False):
            option, equals, value = word.value.partition("=")
            if re.fullmatch(pattern, option):
                yield (value if equals else following), word.line


@dataclass
class _Reader:
    """The state of reading one script."""

    text: str
    line: int
    spot: str
    at: int = 0
    depth: int = 0
    found: list[Command] = field(default_factory=list)
    #: Here-documents of the command that is read, and all of the line: how they end, their quote, and where they go.
    documents: list[Part] = field(default_factory=list)
    expected: list[tuple[str, bool, str, list[Part]]] = field(default_factory=list)

    def commands(self) -> list[Command]:
        """Read to the end."""
        words: list[Word] = []
        while self.at < len(self.text):
            between = _BETWEEN.match(self.text, self.at)
            if between is None:
                words.append(self._word())
                continue
            self.at = between.end()
            if between["document"]:
                self._expect_document(tabs=bool(between["tabs"]))
            elif between["line"] or between["operator"]:
                self._finish(words)
                words = []
                if between["line"]:
                    self._read_documents()
        self._finish(words)
        return self.found

    @cached_property
    def _breaks(self) -> list[int]:
        return [found.start() for found in re.finditer("\n", self.text)]

    def _line(self, at: int) -> int:
        return self.line + bisect_left(self._breaks, at)

    def _finish(self, rest: list[Word]) -> None:
        assignments: list[tuple[str, Word]] = []
        while rest and rest[0].bare and rest[0].value in _RESERVED:
            rest = rest[1:]
        while rest and not rest[0].parts[0].quote and (found := _assignment(rest[0])):
            assignments.append(found)
            rest = rest[1:]
        if rest and rest[0].value in ("export", "declare", "local", "readonly", "typeset"):
            assignments += [found for word in rest[1:] if (found := _assignment(word))]
        if assignments or rest:
            self.found.append(Command(tuple(assignments), tuple(rest), self.documents, self.spot))
            self.documents = []

    def _expect_document(self, *, tabs: bool) -> None:
        if self.text[self.at : self.at + 1] not in {"", *_WORD_ENDS}:
            parts = self._word().parts
            quoted = any(part.quote or "\\" in part.text for part in parts)
            delimiter = "".join(part.text.replace("\\", "") for part in parts)
            self.expected.append((delimiter, tabs, "'" if quoted else '"', self.documents))

    def _read_documents(self) -> None:
        """Take the texts of here-documents, which follow the line of their command."""
        for delimiter, tabs, quote, documents in self.expected:
            start, taken = self.at, []
            while self.at < len(self.text):
                line = self.text[self.at : self._after("\n") - 1]
                self.at = self._after("\n")
                if (line.lstrip("\t") if tabs else line) == delimiter:
                    break
                taken.append(line)
            documents.append(Part(quote, "\n".join(taken), self._line(start)))
        self.expected.clear()

    def _after(self, end: str) -> int:
        """Give the place behind the next of a character, as if the text ended with one."""
        found = self.text.find(end, self.at)
        return (len(self.text) if found < 0 else found) + 1

    def _word(self) -> Word:
        parts: list[Part] = []
        while self.at < len(self.text):
            start = self.at
            if quote := _QUOTE.match(self.text, start):
                self.at = quote.end()
                self._quoted(quote[1])
                parts.append(Part(quote[1], self.text[quote.end() : self.at - 1], self._line(quote.end() - 1)))
            elif self.text[start] == "(" and len(parts) == 1 and re.fullmatch(r"[A-Za-z_]\w*\+?=", parts[0].text):
                self._nested(")", opened=1)
                parts.append(Part("", self.text[start : self.at], self._line(start)))
            elif self.text[start] in _WORD_ENDS:
                break
            else:
                while self.at < len(self.text) and self.text[self.at] not in _WORD_ENDS:
                    if _QUOTE.match(self.text, self.at):
                        break
                    self._step()
                parts.append(Part("", self.text[start : self.at].replace("\\\n", ""), self._line(start)))
        return Word(tuple(parts))

    def _quoted(self, quote: str) -> None:
        """Go over what is quoted, from behind the first quote to behind the last."""
        if quote == '"':
            while self.at < len(self.text) and self.text[self.at] != '"':
                self._step()
            self.at += 1
        else:
            self.at = self._after(quote)

    def _step(self) -> None:
        """Go over one character, or over the whole of a protected one or of an expansion."""
        if self.text[self.at] == "\\":
            self.at += 2
        elif self.text[self.at] == "`":
            self.at += 1
            self.at = self._after("`")
        elif self.depth < NESTING_LIMIT and self.text.startswith(("$(", "${"), self.at):
            self._nested(")" if self.text[self.at + 1] == "(" else "}", opened=2)
        else:
            self.at += 1

    def _nested(self, close: str, *, opened: int) -> None:
        """Go over `$(...)`, `${...}` or `(...)` of an array with what is in it; `opened` characters begin it."""
        opening = {")": "(", "}": "{"}[close]
        self.at += opened
        self.depth += 1
        depth = 1
        while depth and self.at < len(self.text):
            char = self.text[self.at]
            if char in (opening, close):
                depth += 1 if char == opening else -1
                self.at += 1
            elif (char == "'" and close == ")") or char == '"':
                self.at += 1
                self._quoted(char)
            elif char == "#" and close == ")" and self.text[self.at - 1] in " \t\n(":
                self.at = self._after("\n") - 1
            else:
                self._step()
        self.depth -= 1


def _assignment(word: Word) -> tuple[str, Word] | None:
    """Read `NAME=value`; the value is given as a word of its own."""
    first = word.parts[0]
    found = _ASSIGNMENT.match(first.text)
    if not found:
        return None
    head = (Part(first.quote, found[2], first.line),) if found[2] or len(word.parts) == 1 else ()
    return found[1], Word((*head, *word.parts[1:]))
