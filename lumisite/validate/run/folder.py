"""The edge to a run's folder: what was planned, the lines measured, and what jobs leave on disk.

Every line is appended with one write. A line that was torn when the writer was killed is cut off when the run is opened
again, and a line that is there already is not written a second time: to collect a step twice changes nothing.
"""

from __future__ import annotations

import fcntl
import math
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from lumisite.errors import LumisiteError, ResolveError, ToolError
from lumisite.findings.finding import Place
from lumisite.images.digest import digest_of
from lumisite.machine.host import open_file
from lumisite.release.files import replace_entry
from lumisite.site.read import opened, read_file
from lumisite.validate.lines import Gate, LineError, line_json, parse_line, parse_object
from lumisite.validate.probes.probe import Line, ProbeStep, Record, scripts
from lumisite.validate.run.jobscript import DONE, FACTS, LEFT_OUT, RECORDS, SKIPPED
from lumisite.validate.run.request import RunRequest, parse_request, request_json

SAMPLES, RUN = "samples.jsonl", "run.json"
#: The script of a job, in its folder.
SCRIPT = "job.sh"
#: No file of a run has more: one on 3,000 nodes has 14 MB of lines.
LARGEST_BYTES = 128 << 20
#: The gate that says how a job ended.
END = "job"
#: How much of a step's stderr is read, in bytes.
STDERR_BYTES = 1 << 14
#: Colours and other sequences for a terminal (ECMA-48, CSI).
_FOR_TERMINALS = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")
#: Lines that say why a container or a step did not start, or a program ended; `lost` is what `node.sh` writes.
_ERROR = re.compile(r"FATAL|ERROR|[Ee]rror\b|srun: |^lost\t")


@dataclass(frozen=True)
class End:
    """How a step or a job came to its own end: an exit code, or a word and what that is about; when (since 1970, s)."""

    code: str
    time: float


class Run:
    """A run's folder, held by one process at a time."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._lines: dict[str, Line] = {}
        """The lines measured, by their text, once the folder is locked."""
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
        self._lines = _cut_lines(self.folder / SAMPLES)

    def release(self) -> None:
        """Unlock the folder."""
        os.close(self._lock)

    # ---- lines

    def keep(self, lines: Iterable[Line]) -> None:
        """Append what was measured, but for what is there."""
        for line in lines:
            text = line_json(line)
            if text not in self._lines:
                append(self.folder / SAMPLES, f"{text}\n".encode())
                self._lines[text] = line

    def ends(self) -> dict[str, Gate]:
        """Return how jobs ended, as far as they have."""
        return {line.run: line for line in self._lines.values() if isinstance(line, Gate) and line.gate == END}

    def forget_end(self, run: str) -> None:
        """Forget how a job ended; what it has measured stays."""
        end = self.ends()[run]
        self._lines = {text: line for text, line in self._lines.items() if line is not end}
        replace_entry(self.folder / SAMPLES, "".join(f"{text}\n" for text in self._lines).encode())

    # ---- captures

    @property
    def has_facts(self) -> bool:
        """Whether a capture of a node is kept."""
        return (self.folder / FACTS).exists()

    def keep_facts(self, run: str) -> None:
        """Keep a job's capture of its node as that of the run; the first one stays."""
        captured = self.job_folder(run) / FACTS
        if captured.exists() and not self.has_facts:
            replace_entry(self.folder / FACTS, read_file(captured, LARGEST_BYTES))

    # ---- what is in the folder of a job

    def job_folder(self, run: str) -> Path:
        """Return a job's folder."""
        return self.folder / "jobs" / run

    def write_script(self, run: str, text: str) -> str:
        """Write a job's script and return its path; how it ended before is forgotten."""
        folder = self.job_folder(run)
        folder.mkdir(parents=True, exist_ok=True)
        replace_entry(folder / SCRIPT, text.encode())
        (folder / DONE).unlink(missing_ok=True)
        return str(folder / SCRIPT)

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
        return self._text(run, name).split()

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
        return self._text(run, LEFT_OUT).splitlines()

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

    def _text(self, run: str, name: str) -> str:
        """Return a file in a job's folder, empty where it cannot be read."""
        with suppress(OSError, ValueError):
            return read_file(self.job_folder(run) / name, LARGEST_BYTES).decode(errors="replace")
        return ""


def create_run(request: RunRequest) -> Run:
    """Make a run's folder with the probes' scripts and at last run.json.

    Raises `ResolveError` if there is one already.
    """
    folder = Path(request.folder)
    if (folder / RUN).exists():
        raise ResolveError(f"--out: {folder} has a run already (`--resume {folder}` continues it)")
    for name in ("probes", "jobs"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    for name, source in scripts().items():
        (folder / "probes" / name).write_bytes(read_file(source, LARGEST_BYTES))
    replace_entry(folder / RUN, request_json(request).encode())
    return Run(folder)


def read_request(folder: Path) -> RunRequest:
    """Return the request of a run. Raises `ResolveError` if the folder has none."""
    try:
        data = read_file(folder / RUN, LARGEST_BYTES)
    except FileNotFoundError:
        text = f"{folder}: not a run, it has no {RUN} (name the folder that `lumisite validate` printed)"
        raise ResolveError(text) from None
    return parse_request(data, str(folder / RUN))


def image_mark(image: str) -> str:
    """Return the start of an image's header digest; empty for none, and for an unpacked one."""
    try:
        return digest_of(open_file(image)).partition(":")[2][:16]
    except LumisiteError:
        return ""


def gather(source: Path, target: Path) -> None:
    """Add a run to a folder of runs, but for the lines that it has; a torn last line is cut off first.

    The folder has the newest run's request and its capture of a node too.
    """
    target.mkdir(parents=True, exist_ok=True)
    there = _cut_lines(target / SAMPLES)
    new = [text for text in _cut_lines(source / SAMPLES) if text not in there]
    append(target / SAMPLES, "".join(f"{text}\n" for text in new).encode())
    for name in (RUN, FACTS):
        if (source / name).exists():
            replace_entry(target / name, read_file(source / name, LARGEST_BYTES))


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


def lines_of(path: Path) -> list[Line]:
    """Read the lines of a run but a torn last one. Raises `ToolError` for one that cannot be read."""
    return _parsed(path, read_file(path, LARGEST_BYTES).split(b"\n")[:-1])


def _cut_lines(path: Path) -> dict[str, Line]:
    """Cut off a torn last line, and return the others by their text; none where there is no file."""
    if not path.exists():
        return {}
    *lines, torn = read_file(path, LARGEST_BYTES).split(b"\n")
    if torn:
        os.truncate(path, sum(len(line) + 1 for line in lines))
    return dict(zip(map(bytes.decode, lines), _parsed(path, lines), strict=True))


def _parsed(path: Path, lines: Sequence[bytes]) -> list[Line]:
    found: list[Line] = []
    for number, line in enumerate(lines, start=1):
        try:
            found.append(parse_line(line))
        except LineError as error:
            raise ToolError(replace(error.finding, place=Place(str(path), number))) from None
    return found


def read_records(folder: Path) -> list[Record]:
    """Read what the ranks of a step left (probes/common/): records, then reports of where those were that left none.

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
        data = read_file(path, LARGEST_BYTES)
    for part in data.split(end) if end else (data,):
        with suppress(LineError):
            yield parse_object(part)


def _seconds(words: Sequence[str]) -> float | None:
    """Read the time that a mark begins with; None where there is none."""
    with suppress(ValueError, IndexError):
        return seconds if math.isfinite(seconds := float(words[0])) else None
    return None
