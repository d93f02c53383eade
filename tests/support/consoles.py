"""Console blocks of a page: found, run for real in a folder of their own, compared, and rewritten on request.

In a block ```` ```console ````, lines after `$ ` are commands and the others what they print, standard error included.
A line `...` stands for any lines, and `…` in a line for any text. ```` ```console no-run ```` is only parsed; what
```` ```console twin ```` says is typed on the twin, by `tests/twin/test_transcripts.py`.
```` ```yaml file=NAME ```` writes a file first, and ```` ```diff file=NAME ```` changes one, as the reader
is told to. The folder has a copy of the embedded sites and of the examples where a checkout has them.
"""

from __future__ import annotations

import difflib
import itertools
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from lumisite.site.load import EMBEDDED

EXAMPLES = Path(__file__).parent.parent.parent / "docs/examples"
PROMPT = "$ "
HARMLESS = ("lumisite", "cat", "ls", "ln", "echo", "mkdir", "cp")
#: Commands whose absolute paths may exist or be only names; those of the others could be written to.
READERS = ("cat", "ls", "echo", "lumisite why", "lumisite env")
JOINS = ("|", "&&", "||")
WRITES = (">", ">>")
#: What pages show in place of the folder that a test runs in.
SHOWN_HOME = "/home/admin"
KNOWN_WORDS = {
    "console": r"no-run|twin",
    "yaml": r"file=[\w.-]+",
    "bash": r"file=[\w.-]+",
    "diff": r"file=[\w.-]+(/[\w.-]+)*",
}


@dataclass(frozen=True)
class Block:
    """A fenced block; `line` is the index of its first line of content, and the number of the fence above it."""

    language: str
    words: tuple[str, ...]
    line: int
    lines: tuple[str, ...]


@dataclass(frozen=True)
class Command:
    """A command, and what the page says that it prints."""

    text: str
    expected: tuple[str, ...]


@dataclass
class Session:
    """One reader who works through a page in `home`; `previous` is the last exit code, for `$?`."""

    home: Path
    previous: int = 0
    differences: list[str] = field(default_factory=list)

    def output(self, command: str) -> list[str]:
        environment = {
            "PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin",
            "HOME": str(self.home),
            "LC_ALL": "C.UTF-8",
            # This checkout's own commands, whichever one is installed.
            "PYTHONPATH": str(Path(__file__).parents[2]),
            # What a command says on both streams comes in the order in which it says it.
            "PYTHONUNBUFFERED": "1",
        }
        done = subprocess.run(
            ["sh", "-c", f"(exit {self.previous})\n{command}"],
            cwd=self.home,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        self.previous = done.returncode
        return [line.rstrip() for line in done.stdout.replace(str(self.home), SHOWN_HOME).splitlines()]


def find_blocks(text: str) -> list[Block]:
    """Find the fenced blocks of a page; a fence that is indented or says what is not known is an error."""
    blocks = []
    lines = iter(enumerate(text.splitlines()))
    for index, line in lines:
        if re.match(r"[ \t>]+(```|~~~)|~~~", line):
            raise ValueError(f"line {index + 1}: a fence must be ``` at the margin, or it would not be run")
        if not line.startswith("```"):
            continue
        language, *words = line.strip("`").split() or [""]
        for word in words:
            if not re.fullmatch(KNOWN_WORDS.get(language, "(?!)"), word):
                raise ValueError(f"line {index + 1}: {word!r} is not known after {language!r}")
        content = [inner for _, inner in itertools.takewhile(lambda numbered: not numbered[1].startswith("```"), lines)]
        blocks.append(Block(language, tuple(words), index + 1, tuple(content)))
    return blocks


def find_commands(block: Block) -> list[Command]:
    """Split a console block into commands with their output; what stands before the first prompt is an error."""
    commands: list[tuple[str, list[str]]] = []
    for line in block.lines:
        if line.startswith(PROMPT):
            commands.append((line.removeprefix(PROMPT), []))
        elif not commands:
            raise ValueError(f"line {block.line}: a console block starts with {PROMPT!r}")
        else:
            commands[-1][1].append(line)
    return [Command(text, tuple(expected)) for text, expected in commands]


def refusal(command: str) -> str:
    """Say why a command must not run in a test; empty when it may."""
    if "`" in command or "$(" in command:
        return "substitutes a command"
    words: list[str] = []
    for token in [*shlex.shlex(command, posix=True, punctuation_chars=True), "&&"]:
        if token in JOINS:
            reason = _refusal_of_one(words)
            if reason:
                return reason
            words = []
        elif set(token) <= set("();<>|&") and token not in WRITES:
            return f"{token} is not known"
        else:
            words.append(token)
    return ""


def _refusal_of_one(words: Sequence[str]) -> str:
    if not words or words[0] not in HARMLESS:
        return f"{words[0] if words else 'nothing'} is not among {', '.join(HARMLESS)}"
    written = [word for before, word in itertools.pairwise(words) if before in WRITES]
    reads = words[0] in READERS or " ".join(words[:2]) in READERS
    for word in written if reads else words[1:]:
        path = word.rpartition("=")[2]
        if path.startswith(("/", "~")) or ".." in path.split("/"):
            return f"{path} is outside the folder that the test runs in"
    return ""


def matches(expected: Sequence[str], actual: Sequence[str]) -> bool:
    """Tell whether output is as a page says; `...` is any lines, `…` any text in a line."""
    pattern = "".join("(?:.*\n)*?" if line.rstrip() == "..." else f"{_line_pattern(line)}\n" for line in expected)
    return re.fullmatch(pattern, "".join(f"{line}\n" for line in actual)) is not None


def _line_pattern(line: str) -> str:
    return ".*".join(re.escape(part) for part in line.rstrip().split("…"))


def rewritten(expected: Sequence[str], actual: Sequence[str]) -> list[str]:
    """Give the output anew, leaving `...` and `…` where they still fit."""
    if matches(expected, actual):
        return list(expected)
    patterns = [line for line in expected if "…" in line]
    kept = [next((line for line in patterns if re.fullmatch(_line_pattern(line), one)), one) for one in actual]
    lines: list[str] = []
    for _, start, end, first, last in difflib.SequenceMatcher(None, expected, kept, autojunk=False).get_opcodes():
        old, new = expected[start:end], kept[first:last]
        if "..." in old:
            head, tail = old.index("..."), len(old) - 1 - old[::-1].index("...")
            after = min(len(old) - tail - 1, len(new))
            lines += [*new[:head], "...", *new[max(len(new) - after, head) :]]
        else:
            lines += new
    return lines if matches(lines, actual) else list(actual)


def work_through(text: str, home: Path) -> tuple[str, list[str]]:
    """Do what a page tells its reader; give the page with the true output, and what differs as diffs."""
    session = Session(home)
    shutil.copytree(EMBEDDED, home / "lumisite/sites", dirs_exist_ok=True)
    shutil.copytree(EXAMPLES, home / "docs/examples", dirs_exist_ok=True)
    lines = text.splitlines()
    replaced: list[tuple[Block, list[str]]] = []
    for block in find_blocks(text):
        if block.language in ("yaml", "bash") and block.words:
            path = home / block.words[0].removeprefix("file=")
            path.write_text("\n".join(block.lines) + "\n")
        elif block.language == "diff" and block.words:
            _change(block, home)
        elif block.language == "console" and not block.words:
            replaced.append((block, _run(block, session)))
    for block, new in reversed(replaced):
        lines[block.line : block.line + len(block.lines)] = new
    return "\n".join(lines) + "\n", session.differences


def _change(block: Block, home: Path) -> None:
    path = home / block.words[0].removeprefix("file=")
    old = "".join(f"{line[1:]}\n" for line in block.lines if not line.startswith("+"))
    new = "".join(f"{line[1:]}\n" for line in block.lines if not line.startswith("-"))
    text = path.read_text()
    if text.count(old) != 1:
        raise ValueError(f"line {block.line}: {path.name} has these lines {text.count(old)} times, not once")
    path.write_text(text.replace(old, new))


def _run(block: Block, session: Session) -> list[str]:
    lines = []
    for command in find_commands(block):
        reason = refusal(command.text)
        if reason:
            raise ValueError(f"line {block.line}: {command.text}: {reason}")
        actual = session.output(command.text)
        new = rewritten(command.expected, actual)
        if new != list(command.expected):
            session.differences.append("\n".join(_diff(command, actual)))
        lines += [PROMPT + command.text, *new]
    return lines


def _diff(command: Command, actual: Sequence[str]) -> Iterator[str]:
    yield PROMPT + command.text
    yield from difflib.unified_diff(command.expected, actual, "the page", "what it prints", lineterm="")
