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

from lumisite.render.runtimes import RUNTIMES

#: Scripts in scripts (`bash -c '...'`) are read to this depth, and expansions in expansions to that one.
DEPTH_LIMIT = 4
NESTING_LIMIT = 50

#: What only names a program that follows, and does not start it.
TALKERS = frozenset({"echo", "printf", "which", "type", "command", "man", "grep", "alias", "hash", "module", "ml"})
_LAUNCHERS = ("srun", "mpirun", "mpiexec")

#: What stands between words: nothing but space, a comment, or what leads to a file (whose name is read as a word); a
#: here-document; the end of a line; the end of a command, `((1 << 2))` for one. `{a,b}` is a word, `{ list; }` is not.
_BETWEEN = re.compile(
    r"(?:[ \t]|\\\n|\#[^\n]*|<<<|&>>?|>>|[<>][&|]|<>|>|<(?!<))+|(?P<document><<(?P<tabs>-?)[ \t]*)"
    r"|(?P<line>\n)|(?P<operator>\(\((?:[^\n$]|\$(?!\()){0,200}?\)\)|[;&|()}]|\{(?!\S))"
)
#: Quotes, and what else a word is made of.
_QUOTE = re.compile(r"\$?([\"'])")
_PIECE = re.compile(r"(?P<opens>\$[({]|`)|\\.|(?!\$?[\"'])[^ \t\n;&|<>()]", re.DOTALL)
_ARRAY = re.compile(r"[A-Za-z_]\w*\+?=")
#: What ends a quote, an expansion or an array, and what opens another one before that.
_CLOSING = {"'": "'", '"': '"', "`": "`", "(": ")", "{": "}"}
_INSIDE = {
    "'": re.compile("(?P<closes>')"),
    "`": re.compile("(?P<closes>`)"),
    '"': re.compile(r"\\.|(?P<closes>\")|(?P<opens>\$[({]|`)", re.DOTALL),
    ")": re.compile(r"\\.|(?<=[ \t\n(])#[^\n]*|(?P<closes>\))|(?P<opens>\$\{|[('\"`])", re.DOTALL),
    "}": re.compile(r"\\.|(?P<closes>\})|(?P<opens>\$\(|[{\"`])", re.DOTALL),
}
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
        """The text as an inner shell gets it."""
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
                pieces = part.matches(re.compile(r"[^\s\\]\S*"))
                found += [Word((Part(part.quote, text, line),)) for text, line in pieces]
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
    """A script: the words of its `#SBATCH` lines, with the line of each, and all commands in order.

    What stands in `bash -c` and in here-documents follows the command that has it. A job script that it writes or
    submits is a script of its own.
    """

    directives: tuple[tuple[str, int], ...]
    commands: tuple[Command, ...]


def parse_script(text: str) -> Script:
    """Read a script; never fails."""
    text = text.replace("\r\n", "\n")
    listed = _LISTING.match(text)
    script = Part("'", text[listed.end() :], 2) if listed else Part("'", text, 1)
    return Script(tuple(_directives(script)), tuple(_commands(script, "batch", 0)))


def _directives(script: Part) -> Iterator[tuple[str, int]]:
    """Give the options that sbatch reads: up to the first line that is neither empty nor a comment."""
    for number, line in enumerate(script.text.split("\n"), start=script.line):
        if line.strip() and not line.startswith("#"):
            return
        if line.startswith("#SBATCH"):
            for word in re.sub(r"\s#.*", "", line.removeprefix("#SBATCH")).split():
                yield word.strip("\"'"), number


def _commands(script: Part, spot: str, depth: int) -> Iterator[Command]:
    for command in _Reader(script.inner, script.line, spot).commands():
        yield command
        for text, where in _inside(command) if depth < DEPTH_LIMIT else ():
            yield from _commands(text, where, depth + 1)


def _inside(command: Command) -> Iterator[tuple[Part, str]]:
    """Give the scripts in a command, and where each runs: that of `bash -c`, and here-documents that are no jobs."""
    spot = "container" if command.names_any(*RUNTIMES) else command.spot
    spot = "task" if spot == "batch" and command.names_any(*_LAUNCHERS) else spot
    for at, (option, given) in enumerate(zip(command.words[1:], command.words[2:], strict=False)):
        if command.programs[at] in ("bash", "sh") and re.fullmatch(r"-[a-z]*c", option.value):
            yield Part("'", "".join(part.inner for part in given.parts), given.line), spot
    for document in command.documents:
        if not _DIRECTIVE.search(document.text):
            yield document, "task"


@dataclass
class _Reader:
    """The state of reading one script."""

    text: str
    line: int
    spot: str
    at: int = 0
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
        if self.text[self.at : self.at + 1] not in " \t\n;&|<>()":
            parts = self._word().parts
            quoted = any(part.quote or "\\" in part.text for part in parts)
            delimiter = "".join(part.text.replace("\\", "") for part in parts)
            self.expected.append((delimiter, tabs, "'" if quoted else '"', self.documents))

    def _read_documents(self) -> None:
        """Take the texts of here-documents, which follow the line of their command."""
        for delimiter, tabs, quote, documents in self.expected:
            start, taken = self.at, []
            while self.at < len(self.text):
                end = self.text.find("\n", self.at)
                end = len(self.text) if end < 0 else end
                line = self.text[self.at : end]
                self.at = end + 1
                if (line.lstrip("\t") if tabs else line) == delimiter:
                    break
                taken.append(line)
            documents.append(Part(quote, "\n".join(taken), self._line(start)))
        self.expected.clear()

    def _word(self) -> Word:
        parts: list[Part] = []
        while True:
            start = self.at
            if quote := _QUOTE.match(self.text, start):
                self.at = quote.end()
                self._skip(quote[1])
                parts.append(Part(quote[1], self.text[quote.end() : self.at - 1], self._line(quote.end() - 1)))
            elif len(parts) == 1 and _ARRAY.fullmatch(parts[0].text) and self.text.startswith("(", start):
                self.at += 1
                self._skip(")")
                parts.append(Part("", self.text[start : self.at], self._line(start)))
            else:
                while piece := _PIECE.match(self.text, self.at):
                    self.at = piece.end()
                    if piece["opens"]:
                        self._skip(_CLOSING[piece["opens"][-1]])
                if self.at == start:
                    return Word(tuple(parts))
                parts.append(Part("", self.text[start : self.at].replace("\\\n", ""), self._line(start)))

    def _skip(self, close: str, depth: int = 1) -> None:
        """Go to behind `close`, over all that is quoted or nested before it; as if the text ended with it."""
        while found := _INSIDE[close].search(self.text, self.at):
            self.at = found.end()
            if found.lastgroup == "closes":
                return
            if found.lastgroup == "opens" and depth < NESTING_LIMIT:
                self._skip(_CLOSING[found["opens"][-1]], depth + 1)
        self.at = len(self.text) + 1


def _assignment(word: Word) -> tuple[str, Word] | None:
    """Read `NAME=value`; the value is given as a word of its own."""
    first = word.parts[0]
    found = _ASSIGNMENT.match(first.text)
    if not found:
        return None
    head = (Part(first.quote, found[2], first.line),) if found[2] or len(word.parts) == 1 else ()
    return found[1], Word((*head, *word.parts[1:]))
