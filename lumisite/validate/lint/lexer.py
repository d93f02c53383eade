"""Take a shell script apart into simple commands, words and here-documents."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from functools import cached_property

#: Expansions in expansions are read to this depth.
NESTING_LIMIT = 50
_OPERATOR = re.compile(r"&&|\|\||;;|\|&|[;&|(){}]")
#: Where a file or string follows; `<<` alone is a here-document.
_REDIRECTION = re.compile(r"<<<|&>>?|>>|[<>][&|]|<>|>|<(?!<)")
_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)\+?=(.*)", re.DOTALL)
_RESERVED = frozenset({"if", "then", "elif", "else", "while", "until", "do", "!"})
_ARRAY = re.compile(r"[A-Za-z_]\w*\+?=")
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

    @cached_property
    def programs(self) -> tuple[str, ...]:
        """What each word is called as a program, without the directories before it."""
        return tuple(value.rpartition("/")[2] for value in self.values)

    def names_any(self, *programs: str) -> bool:
        """Whether one of these stands anywhere in it, as `srun` does in `exec /usr/bin/srun`."""
        return not set(programs).isdisjoint(self.programs)


@dataclass
class _Pending:
    """A here-document whose text comes after the end of the line."""

    delimiter: str
    quoted: bool
    tabs: bool
    command: int


@dataclass
class Lexer:
    """The state of reading one script."""

    text: str
    line: int
    spot: str
    at: int = 0
    depth: int = 0
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
            assignments += [found for word in rest[1:] if (found := _assignment(word, quoted=True))]
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
            elif char == "(" and len(parts) == 1 and _ARRAY.fullmatch(parts[0].text) and not parts[0].quote:
                start, line = self.at, self.line
                self._nested(")", opened=1)
                parts.append(Part("", self.text[start : self.at], line))
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
        elif expands and self.depth < NESTING_LIMIT and self.text.startswith(("$(", "${"), self.at):
            self._nested(")" if self.text[self.at + 1] == "(" else "}")
        elif expands and self.text[self.at] == "`":
            end = self.text.find("`", self.at + 1)
            end = len(self.text) if end < 0 else end + 1
            self.line += self.text.count("\n", self.at, end)
            self.at = end
        else:
            self.line += self.text[self.at] == "\n"
            self.at += 1

    def _nested(self, close: str, opened: int = 2) -> None:
        """Go over `$(...)`, `${...}` or `(...)` of an array with what is in it; `opened` characters begin it."""
        opening = {")": "(", "}": "{"}[close]
        self.at += opened
        self.depth += 1
        depth = 1
        while self.at < len(self.text):
            char = self.text[self.at]
            if char == close:
                depth -= 1
                self.at += 1
                if not depth:
                    break
            elif char == opening:
                depth += 1
                self.at += 1
            elif (char == "'" and close == ")") or char == '"':
                self._quoted(char)
            elif char == "#" and close == ")" and self.text[self.at - 1] in " \t\n(":
                end = self.text.find("\n", self.at)
                self.at = len(self.text) if end < 0 else end
            else:
                self._step(escapes=True, expands=True)
        self.depth -= 1


def _assignment(word: Word, *, quoted: bool = False) -> tuple[str, Word] | None:
    """Read `NAME=value`; the name must be bare, but not behind `export`; the value is given as a word of its own."""
    first = word.parts[0]
    found = _ASSIGNMENT.match(first.text) if quoted or not first.quote else None
    if not found:
        return None
    rest = (
        *((Part(first.quote, found[2], first.line),) if found[2] or len(word.parts) == 1 else ()),
        *word.parts[1:],
    )
    return found[1], Word(rest)
