"""Read a shell script into commands, words and here-documents, far enough to judge job scripts.

The standard library's shlex knows neither here-documents nor `$(...)`; bashlex is under the GPL and stops at scripts
that bash accepts; a real grammar (tree-sitter) is a compiled library for an admin's node. Rules about job scripts need
none of that: which words a command has, how each was quoted, and on which line it stands. What is unterminated reads to
the end; nothing is ever expanded or run.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property

#: Scripts in scripts (`bash -c '...'`) are read to this depth.
DEPTH_LIMIT = 4

_OPERATOR = re.compile(r"&&|\|\||;;|\|&|[;&|(){}]")
#: Where a file or string follows; `<<` alone is a here-document.
_REDIRECTION = re.compile(r"<<<|&>>?|>>|[<>][&|]|<>|>|<(?!<)")
_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)\+?=(.*)", re.DOTALL)
_RESERVED = frozenset({"if", "then", "elif", "else", "while", "until", "do", "!"})
#: What only names a program that follows, and does not start it.
_TALKERS = frozenset({"echo", "printf", "which", "type", "command", "man", "grep", "alias", "hash", "module", "ml"})
_DIRECTIVE = re.compile(r"^#SBATCH\s", re.MULTILINE)
_HEREDOC = re.compile(r"<<(-?)[ \t]*")


@dataclass(frozen=True)
class Part:
    """A run of a word with one kind of quoting: `quote` is `'`, `"` or empty; `text` is as it stands between them."""

    quote: str
    text: str
    line: int

    @property
    def value(self) -> str:
        """The text without what protects it; expansions are left as they are, protected dollars keep a backslash."""
        if self.quote == "'":
            return self.text.replace("$", r"\$").replace("`", r"\`")
        return re.sub(r"\\\n", "", self.text) if self.quote == '"' else re.sub(r"\\([^$`])", r"\1", self.text)


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


@dataclass(frozen=True)
class HereDocument:
    """The text that a command gets; `quoted` keeps the shell from expanding it."""

    line: int
    text: str
    quoted: bool


@dataclass(frozen=True)
class Command:
    """A simple command: assignments before it, words, and here-documents. `spot` is where it runs.

    `batch` is the batch script itself, on the first node; `task` is what a launcher starts, or what a here-document
    writes to a file; `container` is what a container runs.
    """

    assignments: tuple[tuple[str, Word], ...]
    words: tuple[Word, ...]
    documents: tuple[HereDocument, ...]
    spot: str

    @property
    def line(self) -> int:
        """Where it begins."""
        return self.assignments[0][1].line if self.assignments else self.words[0].line

    @cached_property
    def values(self) -> tuple[str, ...]:
        """The values of its words."""
        return tuple(word.value for word in self.words)


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
    return _script(text.replace("\r\n", "\n"), 1, 0)


def program_at(command: Command, program: str) -> int | None:
    """Find a program among the first words of a command, after `time` and the like, but not where it is only named."""
    for at, value in enumerate(command.values[:4]):
        name = value.rpartition("/")[2]
        if name == program:
            return at
        if name in _TALKERS:
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
    for command in _Lexer(text, line, spot).commands():
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
    names = {value.rpartition("/")[2] for value in command.values}
    if not names.isdisjoint({"singularity", "apptainer"}):
        return "container"
    return "task" if _launches(command) and command.spot == "batch" else command.spot


def _launches(command: Command) -> bool:
    names = {value.rpartition("/")[2] for value in command.values}
    return not names.isdisjoint({"srun", "mpirun", "mpiexec"})


def _inner_scripts(command: Command) -> Iterator[Part]:
    """Give the scripts of `bash -c SCRIPT`, as the inner shell gets them."""
    values = command.values
    for at, value in enumerate(values[:-2]):
        if value.rpartition("/")[2] in ("bash", "sh") and re.fullmatch(r"-[a-z]*c", values[at + 1]):
            word = command.words[at + 2]
            yield Part("", "".join(map(_inner_text, word.parts)), word.line)


def _inner_text(part: Part) -> str:
    if part.quote == "'":
        return part.text
    return _unescaped(part.text) if part.quote else re.sub(r"\\(.)", r"\1", part.text)


def _unescaped(text: str) -> str:
    """Take away what protects characters in double quotes, and in a here-document."""
    return re.sub(r'\\([$`"\\])', r"\1", text)


@dataclass
class _Pending:
    """A here-document whose text comes after the end of the line."""

    delimiter: str
    quoted: bool
    tabs: bool
    command: int


@dataclass
class _Lexer:
    """The state of reading one script."""

    text: str
    line: int
    spot: str
    at: int = 0
    found: list[Command] = field(default_factory=list)
    pending: list[_Pending] = field(default_factory=list)

    def commands(self) -> list[Command]:
        """Read to the end."""
        words: list[Word] = []
        while self.at < len(self.text):
            char = self.text[self.at]
            if char == "\n":
                self._finish(words)
                words = []
                self.at += 1
                self.line += 1
                self._documents()
            elif char in " \t":
                self.at += 1
            elif self.text.startswith("\\\n", self.at):
                self.at += 2
                self.line += 1
            elif char == "#":
                end = self.text.find("\n", self.at)
                self.at = len(self.text) if end < 0 else end
            elif redirection := _REDIRECTION.match(self.text, self.at):
                self.at = redirection.end()
            elif self.text.startswith("<<", self.at):
                self._expect_document()
            elif (operator := _OPERATOR.match(self.text, self.at)) and not (char == "{" and self._brace_word()):
                self._finish(words)
                words = []
                self.at = operator.end()
            else:
                words.append(self._word())
        self._finish(words)
        return self.found

    def _brace_word(self) -> bool:
        """Tell `{a,b}`, which is a word, from `{ list; }`."""
        return self.text[self.at + 1 : self.at + 2] not in ("", " ", "\t", "\n")

    def _finish(self, words: list[Word]) -> None:
        assignments: list[tuple[str, Word]] = []
        rest = list(words)
        while rest and len(rest[0].parts) == 1 and not rest[0].parts[0].quote and rest[0].value in _RESERVED:
            rest.pop(0)
        while rest and (found := _assignment(rest[0])):
            assignments.append(found)
            rest.pop(0)
        if rest and rest[0].value in ("export", "declare", "local", "readonly", "typeset"):
            assignments += [found for word in rest[1:] if (found := _assignment(word))]
        if assignments or rest:
            self.found.append(Command(tuple(assignments), tuple(rest), (), self.spot))

    def _expect_document(self) -> None:
        operator = _HEREDOC.match(self.text, self.at)
        assert operator is not None
        self.at = operator.end()
        if self.at < len(self.text) and self.text[self.at] not in "\n;&|<>() \t":
            word = self._word()
            quoted = any(part.quote or "\\" in part.text for part in word.parts)
            delimiter = "".join(part.text.replace("\\", "") for part in word.parts)
            self.pending.append(_Pending(delimiter, quoted, bool(operator[1]), len(self.found)))

    def _documents(self) -> None:
        """Take the texts of here-documents, which follow the line of their command."""
        for pending in self.pending:
            start, taken = self.line, []
            while self.at < len(self.text):
                end = self.text.find("\n", self.at)
                end = len(self.text) if end < 0 else end
                line = self.text[self.at : end]
                self.at = min(end + 1, len(self.text))
                self.line += 1
                if (line.lstrip("\t") if pending.tabs else line) == pending.delimiter:
                    break
                taken.append(line)
            if pending.command < len(self.found):
                document = HereDocument(start, "\n".join(taken), pending.quoted)
                command = self.found[pending.command]
                self.found[pending.command] = replace(command, documents=(*command.documents, document))
        self.pending.clear()

    def _word(self) -> Word:
        parts: list[Part] = []
        while self.at < len(self.text):
            char = self.text[self.at]
            if char in "\"'" or self.text.startswith(("$'", '$"'), self.at):
                self.at += char == "$"
                parts.append(self._quoted(self.text[self.at]))
            elif char in " \t\n;&|<>()":
                break
            else:
                parts.append(self._bare())
        return Word(tuple(parts))

    def _quoted(self, quote: str) -> Part:
        start, line = self.at + 1, self.line
        self.at += 1
        while self.at < len(self.text) and self.text[self.at] != quote:
            self._step(escapes=quote == '"', expands=quote == '"')
        text = self.text[start : self.at]
        self.at += 1
        return Part(quote, text, line)

    def _bare(self) -> Part:
        start, line = self.at, self.line
        while self.at < len(self.text) and self.text[self.at] not in " \t\n;&|<>()\"'":
            if self.text.startswith(("$'", '$"'), self.at) and self.at > start:
                break
            self._step(escapes=True, expands=True)
        return Part("", self.text[start : self.at].replace("\\\n", ""), line)

    def _step(self, *, escapes: bool, expands: bool) -> None:
        """Go over one character, or over the whole of a protected one or of an expansion."""
        if escapes and self.text[self.at] == "\\":
            self.line += self.text[self.at + 1 : self.at + 2] == "\n"
            self.at += 2
        elif expands and self.text.startswith(("$(", "${"), self.at):
            self._nested(")" if self.text[self.at + 1] == "(" else "}")
        elif expands and self.text[self.at] == "`":
            end = self.text.find("`", self.at + 1)
            end = len(self.text) if end < 0 else end + 1
            self.line += self.text.count("\n", self.at, end)
            self.at = end
        else:
            self.line += self.text[self.at] == "\n"
            self.at += 1

    def _nested(self, close: str) -> None:
        """Go over `$(...)` or `${...}` with what is in it."""
        opening = {")": "(", "}": "{"}[close]
        self.at += 2
        depth = 1
        while self.at < len(self.text):
            char = self.text[self.at]
            if char == close:
                depth -= 1
                self.at += 1
                if not depth:
                    return
            elif char == opening:
                depth += 1
                self.at += 1
            elif (char == "'" and close == ")") or char == '"':
                self._quoted(char)
            else:
                self._step(escapes=True, expands=True)


def _assignment(word: Word) -> tuple[str, Word] | None:
    """Read `NAME=value`; the name must be bare, the value is given as a word of its own."""
    first = word.parts[0]
    found = _ASSIGNMENT.match(first.text) if not first.quote else None
    if not found:
        return None
    rest = (*((Part("", found[2], first.line),) if found[2] or len(word.parts) == 1 else ()), *word.parts[1:])
    return found[1], Word(rest)
