"""The edge to a run's folder: what was planned, the lines measured, and what jobs leave on disk.

Every line is appended with one write. A line that was torn when the writer was killed is cut off when the run is opened
again, and a line that is there already is not written a second time: to collect a step twice changes nothing.
"""

from __future__ import annotations

import fcntl
import io
import json
import math
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeVar

from lumisite.errors import LumisiteError, ResolveError, ToolError
from lumisite.facts.facts import LARGEST_FACTS_BYTES
from lumisite.findings.finding import Place
from lumisite.images.digest import digest_of
from lumisite.machine.host import open_file
from lumisite.release.files import replace_entry
from lumisite.site.read import opened, read_file
from lumisite.validate.lines import Gate, LineError, Sample, line_json, parse_line, parse_object
from lumisite.validate.probes.probe import Line, ProbeStep, Record, scripts
from lumisite.validate.run.jobscript import DONE, FACTS, LEFT_OUT, RECORDS, SKIPPED
from lumisite.validate.run.request import RunRequest, parse_request

SAMPLES, RUN = "samples.jsonl", "run.json"
#: The script of a job, in its folder.
SCRIPT = "job.sh"
#: No script or request has more, and no file of lines: a run on 3,000 nodes writes 14 MB.
LARGEST_BYTES, LARGEST_LINES_BYTES = 32 << 20, 128 << 20
#: No environment of a job is larger.
ENVIRONMENT_BYTES = 2 << 20
#: The gate that says how a job ended.
END = "job"
#: How much of a step's stderr is read, in bytes.
STDERR_BYTES = 1 << 14
#: Colours and other sequences for a terminal (ECMA-48, CSI).
_FOR_TERMINALS = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")
#: Lines that say why a container or a step did not start, or a program ended; `lost` is what `node.sh` writes.
_ERROR = re.compile(r"FATAL|ERROR|[Ee]rror\b|srun: |^lost\t")


T = TypeVar("T")


@dataclass(frozen=True)
class End:
    """How a step or a job came to its own end: an exit code, or a word and what that is about; when (since 1970, s)."""

    code: str
    time: float


@dataclass
class _LinesFile:
    """A file of lines that only grows."""

    path: Path
    seen: set[str] = field(default_factory=set)

    def load(self, parse: Callable[[bytes], T]) -> list[T]:
        """Cut off what was torn, and return the lines. Raises `ToolError` for one that cannot be read."""
        if not self.path.exists():
            return []
        data = read_file(self.path, LARGEST_LINES_BYTES)
        found = parsed(self.path, data, parse, torn=True)
        if (whole := data.rfind(b"\n") + 1) < len(data):
            os.truncate(self.path, whole)
        self.seen = set(data[:whole].decode().split("\n"))
        return found

    def add(self, line: str) -> None:
        """Append a line, unless it is there."""
        if line not in self.seen:
            append(self.path, line.encode() + b"\n")
            self.seen.add(line)

    def drop(self, unwanted: Callable[[Mapping[str, object]], bool]) -> None:
        """Remove lines."""
        lines = self.load(lambda line: (line.decode(), unwanted(parse_object(line))))
        if any(out for _, out in lines):
            kept = [line for line, out in lines if not out]
            replace_entry(self.path, "".join(f"{line}\n" for line in kept).encode())
            self.seen = {*kept}


def append(path: Path, data: bytes) -> None:
    """Write at the end of a file; an error of the system names the file."""
    handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        while data:
            data = data[os.write(handle, data) :]
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from None
    finally:
        os.close(handle)


class Run:
    """A run's folder, held by one process at a time."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.probes = folder / "probes"
        self._lines = _LinesFile(folder / SAMPLES)
        self._lock = -1

    def lock(self) -> None:
        """Lock the folder, and cut off a line that was torn. Raises `ToolError` if it is locked."""
        self._lock = os.open(self.folder / "lock", os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(self._lock)
            text = f"{self.folder}: another lumisite works on this run (wait until it has ended, or stop it)"
            raise ToolError(text) from None
        except OSError:
            pass  # a file system without locks, such as Lustre mounted without flock
        self._lines.load(parse_line)

    def release(self) -> None:
        """Unlock the folder."""
        os.close(self._lock)

    def describe(self, about: Mapping[str, object]) -> None:
        """Write run.json; a reader sees all of the old one or all of the new one."""
        replace_entry(self.folder / RUN, (json.dumps(about, indent=1) + "\n").encode())

    def keep(self, lines: Iterable[Line]) -> None:
        """Append what was measured, but for what is there."""
        for line in lines:
            self._lines.add(line_json(line))

    def forget_end(self, run: str) -> None:
        """Forget how a job ended; what it has measured stays."""
        self._lines.drop(lambda line: line.get("run") == run and line.get("gate") == END)

    def ends(self) -> dict[str, Gate]:
        """Return how jobs ended, as far as they have."""
        path = self.folder / SAMPLES
        lines = lines_of(path) if path.exists() else []
        return {line.run: line for line in lines if isinstance(line, Gate) and line.gate == END}

    @property
    def has_facts(self) -> bool:
        """Whether a capture of a node is kept."""
        return (self.folder / FACTS).exists()

    def keep_facts(self, run: str) -> None:
        """Keep a job's capture of its node as that of the run; the first one stays."""
        captured = self.job_folder(run) / FACTS
        if captured.exists() and not self.has_facts:
            replace_entry(self.folder / FACTS, read_file(captured, LARGEST_FACTS_BYTES))

    def job_folder(self, run: str) -> Path:
        """Return a job's folder."""
        return self.folder / "jobs" / run

    def write_script(self, run: str, text: str) -> str:
        """Write a job's script and return its path; how it ended before is forgotten."""
        folder = self.job_folder(run)
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / SCRIPT
        replace_entry(path, text.encode())
        (folder / DONE).unlink(missing_ok=True)
        return str(path)

    def has_script(self, run: str) -> bool:
        """Return whether a job was about to be submitted."""
        return (self.job_folder(run) / SCRIPT).exists()

    def mark(self, run: str, name: str) -> None:
        """Leave a mark for a job in its folder."""
        path = self.job_folder(run) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()

    def marker(self, run: str, name: str) -> list[str]:
        """Read one of a job's marks as words; empty if it is not there."""
        with suppress(OSError, ValueError):
            return read_file(self.job_folder(run) / name, STDERR_BYTES).decode(errors="replace").split()
        return []

    def end(self, run: str, name: str) -> End | None:
        """Return how a job or a step came to its own end, by its mark; None if it has not."""
        words = self.marker(run, name)[-2:]
        codes = r"[0-9]{1,3}|(module|lost):[\w:.-]+" if name == DONE else f"[0-9]{{1,3}}|{SKIPPED}"
        time = _seconds(words[1:])
        return End(words[0], round(time, 3)) if time is not None and re.fullmatch(codes, words[0]) else None

    def step_began(self, run: str, step: ProbeStep) -> float | None:
        """Return when a step began, if it has."""
        return _seconds(self.marker(run, f"{step.folder}/began"))

    def records(self, run: str, step: ProbeStep) -> list[Record]:
        """Read what the ranks of a step wrote, and of those that did not finish where they were."""
        return read_records(self.job_folder(run) / step.folder / RECORDS)

    def left_out(self, run: str) -> list[str]:
        """Return the variables of the user's login files that a job does not have, each as NAME=VALUE."""
        with suppress(OSError, ValueError):
            return read_file(self.job_folder(run) / LEFT_OUT, ENVIRONMENT_BYTES).decode(errors="replace").splitlines()
        return []

    def errors(self, run: str, name: str) -> tuple[str, ...]:
        """Return the lines at the end of a file in a job's folder that are errors, or all if none is; each once."""
        try:
            with opened(self.job_folder(run) / name) as stream:
                stream.seek(max(0, stream.seek(0, os.SEEK_END) - STDERR_BYTES))
                lines = stream.read().decode("utf-8", "replace").splitlines()
        except OSError:
            return ()
        plain = (_FOR_TERMINALS.sub("", line).strip() for line in lines)
        every = tuple(dict.fromkeys(line for line in plain if line))
        return tuple(line for line in every if _ERROR.search(line)) or every


def create_run(folder: Path, about: Mapping[str, object]) -> Run:
    """Make a run's folder with the probes' scripts and at last run.json.

    Raises `ResolveError` if there is one already.
    """
    if (folder / RUN).exists():
        raise ResolveError(f"--out: {folder} has a run already (`--resume {folder}` continues it)")
    run = Run(folder)
    run.probes.mkdir(parents=True, exist_ok=True)
    (folder / "jobs").mkdir(exist_ok=True)
    for name in scripts():
        (run.probes / name).write_bytes(script_bytes(name))
    run.describe(about)
    return run


def open_run(folder: Path) -> tuple[Run, RunRequest]:
    """Open a run's folder, and return its request too. Raises `ResolveError` if it is none."""
    try:
        data = read_file(folder / RUN, LARGEST_BYTES)
    except FileNotFoundError:
        text = f"{folder}: not a run, it has no {RUN} (name the folder that `lumisite validate` printed)"
        raise ResolveError(text) from None
    return Run(folder), parse_request(data, str(folder / RUN))


def script_bytes(name: str) -> bytes:
    """Return a script as it goes into jobs."""
    return read_file(scripts()[name], LARGEST_BYTES)


def image_mark(image: str) -> str:
    """Return the start of an image's header digest; empty for none, and for an unpacked one."""
    try:
        return digest_of(open_file(image)).partition(":")[2][:16]
    except LumisiteError:
        return ""


def _seconds(words: Sequence[str]) -> float | None:
    """Read the time that a mark begins with; None where there is none."""
    with suppress(ValueError, IndexError):
        return seconds if math.isfinite(seconds := float(words[0])) else None
    return None


def gather(source: Path, target: Path) -> None:
    """Add a run to a folder of runs, but for the lines that it has; a torn last line is cut off first.

    The folder has the newest run's request and its capture of a node too.
    """
    target.mkdir(parents=True, exist_ok=True)
    lines = _LinesFile(target / SAMPLES)
    lines.load(parse_object)
    for line in read_file(source / SAMPLES, LARGEST_LINES_BYTES).decode().splitlines():
        lines.add(line)
    for name in (RUN, FACTS):
        if (source / name).exists():
            replace_entry(target / name, read_file(source / name, LARGEST_FACTS_BYTES))


def lines_of(path: Path, *, torn: bool = False) -> list[Sample | Gate]:
    """Read the lines of a run that is whole, or `torn` at its end. Raises `ToolError` for one that cannot be read."""
    return parsed(path, read_file(path, LARGEST_LINES_BYTES), parse_line, torn=torn)


def parsed(path: Path, data: bytes, parse: Callable[[bytes], T], *, torn: bool) -> list[T]:
    """Read what the lines of a file hold; raises `ToolError` with the first that cannot be read."""
    found = []
    for count, line in enumerate(io.BytesIO(data[: data.rfind(b"\n") + 1] if torn else data), start=1):
        try:
            found.append(parse(line.rstrip(b"\r\n")))
        except LineError as error:
            raise ToolError(replace(error.finding, place=Place(str(path), count))) from None
    return found


#: No node leaves more in a file: the logs of its ranks, most of all.
MOST_BYTES = 64 << 20


def read_records(folder: Path) -> list[Record]:
    """Read what the ranks of a step left (probes/job/): records, then reports of where those were that left none.

    A rank that is alone on its node leaves RANK.json, and reports in RANK.at. Ranks that share a node share two files:
    HOST.jsonl has a line for each record, of which the last of a rank counts, and HOST.at a place for each rank, with
    zeros behind each report.
    """
    found = [record for path in sorted(folder.glob("*.json")) for record in _parts(path, b"")]
    for path in sorted(folder.glob("*.jsonl")):
        found += {str(record.get("rank")): record for record in _parts(path, b"\n")}.values()
    return found + [report for path in sorted(folder.glob("*.at")) for report in _parts(path, b"\0")]


def _parts(path: Path, end: bytes) -> Iterator[Record]:
    """Yield the objects in a file; what is none was torn as its writer was killed."""
    data = b""
    with suppress(OSError):
        data = read_file(path, MOST_BYTES)
    for part in data.split(end) if end else (data,):
        with suppress(LineError):
            yield parse_object(part)
