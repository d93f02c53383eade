"""Every command, with one damaged file each time. A fault is a traceback, a hang, much memory, or a bad answer.

`python -m tests.support.fuzz SEED COUNT [PROCESSES]` plays cases and tells those that are bad, and
`python -m tests.support.fuzz --case SEED` plays one and shows what it printed. A case follows from its seed alone.
"""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import functools
import io
import json
import os
import random
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import NoReturn
from unittest import mock
from xml.etree import ElementTree as Xml

from lumisite.cli import main
from lumisite.machine.host import DiskTree
from tests.support.fuzz_commands import COMMANDS
from tests.support.fuzz_damage import AS_NOBODY, NEIGHBOUR, damage, take_away
from tests.support.fuzz_scene import make, slurm_says

#: A case takes some 30 ms of CPU; one that takes longer than this, or waits for longer, hangs. In seconds.
MOST_CPU_S, MOST_WAIT_S = 20.0, 60.0
MOST_MIB = 300
_ADDRESSES_MIB = 1500
_NOBODY = 65534
#: Of these, exit code 1 is a verdict, which is printed; of others, also what does not fit to what is there.
_JUDGING = ("masks", "binds", "changes", "validate", "baseline", "reframe", "transport", "verdict", "lint", "report")


@dataclass(frozen=True)
class Case:
    """A case that was played: what went wrong, if anything; CPU `seconds` that it took, and `mib` at its peak."""

    seed: int
    command: str
    file: str
    damage: str
    what: str
    seconds: float
    mib: float
    answer: str = ""


@dataclass(frozen=True)
class Answer:
    """How a command ended: its exit code, or what there is instead, and what it said."""

    code: int
    what: str = ""
    out: str = ""
    err: str = ""


class HangError(BaseException):
    """The time of a case is over."""


def played(seed: int, count: int, processes: int = 1) -> list[Case]:
    """Play cases, each process a part of them; tell bad ones on stderr as they come.

    One that ends its process is bad, and the next process goes on after it.
    """
    share = -(-count // processes)
    parts = [(first, min(first + share, seed + count)) for first in range(seed, seed + count, share)]
    with ThreadPoolExecutor(processes) as pool:
        return [case for cases in pool.map(_part, *zip(*parts, strict=True)) for case in cases]


def _part(first: int, end: int) -> list[Case]:
    cases: list[Case] = []
    while first + len(cases) < end:
        words = [sys.executable, "-m", "tests.support.fuzz", "--part", str(first + len(cases)), str(end)]
        with tempfile.TemporaryFile("w+") as said:
            with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=said, text=True) as child:
                for line in child.stdout or ():
                    cases.append(Case(**json.loads(line)))
                    _tell(cases[-1])
            if first + len(cases) < end:
                said.seek(0)
                what = f"ended its process ({child.returncode}): {said.read()[-1500:]}"
                cases.append(Case(first + len(cases), "", "", "", what, 0, 0))
                _tell(cases[-1])
    return cases


def _tell(case: Case) -> None:
    if case.what:
        print(json.dumps(asdict(case)), file=sys.stderr, flush=True)


class Player:
    """Plays cases in this process, in a folder that it makes."""

    def __init__(self, top: Path) -> None:
        """Lay out the scene, and the copy of it that cases damage."""
        self.scene, self.now = top / "scene", top / "now"
        signal.signal(signal.SIGPROF, _too_long)
        signal.signal(signal.SIGALRM, _asleep)
        at_edges()
        make(self.scene, self.now, _call)
        shutil.copytree(self.scene, self.now, symlinks=True)
        os.chdir(self.now)
        self.usual: dict[str, Answer] = {}
        for words, _, writes in COMMANDS:  # what is loaded later is not read under a case's limits
            self.usual[words] = self.usual[words.replace(".html", ".txt")] = usual = _call(words)
            if usual.what or usual.code not in ((2,) if words.startswith("why lib") else (0, 1, 4, 5)):
                raise ValueError(f"{words}: {usual}")
            self._restore(*writes.split())
        resource.setrlimit(resource.RLIMIT_AS, (_ADDRESSES_MIB << 20, _ADDRESSES_MIB << 20))

    @functools.cache  # noqa: B019 - lives as long as the process
    def files(self, patterns: str) -> list[str]:
        """Give the files that a command reads."""
        return sorted({path for one in patterns.split() for path in _matching(self.scene, one)})

    def play(self, seed: int) -> Case:
        """Play one case, and put everything back."""
        choose = random.Random(seed)
        words, patterns, writes = COMMANDS[seed % len(COMMANDS)]
        if choose.randrange(8):  # plots take as long as twenty other cases
            words, writes = (one.replace(".html", ".txt") for one in (words, writes))
        name = choose.choice(self.files(patterns))
        how = damage(self.now / name, choose)
        with contextlib.suppress(OSError):
            Path("/proc/self/clear_refs").write_text("5")
        start = time.process_time()
        answer = _call(words, nobody=how in AS_NOBODY)
        seconds = time.process_time() - start
        mib = _peak_mib()
        what = answer.what or _fault(self.usual[words], answer, words, name, how) or self._written(words, writes)
        if not what and mib > MOST_MIB:
            what = f"has taken {mib:.0f} MiB"
        self._restore(name, "slurm.asked", *writes.split())
        said = f"{answer.code} {answer.err[-300:]!r}" if what else ""
        return Case(seed, words, name, how, what, round(seconds, 3), round(mib, 1), said)

    def _written(self, words: str, writes: str) -> str:
        """Judge the file that a command wrote for people."""
        for file in (Path(one) for one in writes.split() if one in words and Path(one).suffix):
            if file.is_symlink() or not file.is_file() or file.stat().st_size > 1 << 30:
                continue
            text = file.read_bytes().decode(errors="surrogateescape")
            if file.suffix in (".md", ".html", ".txt", ".xml", ".py", ".json", ".out") and (odd := _raw(text)):
                return f"writes {odd!a} into {file}"
            if file.suffix == ".xml":
                Xml.fromstring(text)
        return ""

    def _restore(self, *names: str) -> None:
        for name in names:
            now, whole = self.now / name, self.scene / name
            if now.parent != self.now:
                shutil.copymode(whole.parent, now.parent)
            take_away(now)
            (now.parent / NEIGHBOUR).unlink(missing_ok=True)
            if whole.is_dir() and not whole.is_symlink():
                shutil.copytree(whole, now, symlinks=True)
            elif os.path.lexists(whole):
                shutil.copy2(whole, now, follow_symlinks=False)


def _fault(usual: Answer, answer: Answer, words: str, name: str, how: str) -> str:
    """Say what is wrong with an answer: its code, its words, or their letters."""
    code, said = answer.code, answer.out + answer.err
    if code not in range(6) and not (code == 130 and name.startswith("slurm/")):  # what asks Slurm on and on
        return f"exit code {code}"
    if odd := _raw(said):
        return f"prints {odd!a} raw"
    if len(answer.err) > 50_000 or any(len(line) > 10_000 for line in answer.err.splitlines()):
        return f"says {len(answer.err)} letters on stderr"
    if code in (2, 3):
        if not said.strip():
            return f"exit code {code} without a word"
        parts = {part for part in Path(name).parts if len(part) > 2 and not name.startswith("slurm/")}
        if parts and how not in AS_NOBODY and usual.code != code and not any(part in said for part in parts):
            return "does not name the file"
    elif code == 1 and not answer.out.strip() and words.split()[0] in _JUDGING and "-o" not in words:
        return "exit code 1 without a verdict"
    elif "--json" in words and answer.out:
        try:
            json.loads(answer.out, parse_constant=_no_number)
        except ValueError as error:
            return f"prints no JSON: {error}"
    return ""


def _no_number(text: str) -> NoReturn:
    raise ValueError(f"{text} is no JSON")


def _raw(text: str) -> str:
    """Give what a terminal or an eye would take for more than it is."""
    if text.isprintable():
        return ""
    found = re.search(r"[^\n\t]", "".join(sorted(one for one in set(text) if not one.isprintable() and one != "\r")))
    return found[0] if found else ""


def _matching(top: Path, pattern: str) -> Iterator[str]:
    """Give files by a pattern with braces, which may hold others."""
    for one in _unfolded(pattern):
        for path in top.glob(one):
            if path.is_file() or path.is_symlink() or path.name == "releases":
                yield str(path.relative_to(top))


def _unfolded(pattern: str) -> Iterator[str]:
    found = re.search(r"\{([^{}]*)\}", pattern)
    if found is None:
        yield pattern
        return
    for one in found[1].split(","):
        yield from _unfolded(pattern[: found.start()] + one + pattern[found.end() :])


def _call(words: str, *, nobody: bool = False) -> Answer:
    """Run a command under the limits of a case."""
    out, err = io.StringIO(), io.StringIO()
    code, what = -1, ""
    faulthandler.dump_traceback_later(10 * MOST_WAIT_S, exit=True)
    signal.setitimer(signal.ITIMER_PROF, MOST_CPU_S)
    signal.setitimer(signal.ITIMER_REAL, MOST_WAIT_S, MOST_WAIT_S)
    _asleep.since = time.process_time()  # type: ignore[attr-defined]
    try:
        if nobody and os.geteuid() == 0:
            os.seteuid(_NOBODY)
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = main(words.split())
    except HangError as error:
        what = f"hangs ({error}): {_where()}"
    except BaseException:  # this is what is looked for
        what = _where()
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.setitimer(signal.ITIMER_REAL, 0)
        faulthandler.cancel_dump_traceback_later()
        os.seteuid(os.getuid())
    return Answer(code, what, out.getvalue(), err.getvalue())


def _where() -> str:
    return traceback.format_exc(limit=-4).replace("\n", " ")[-900:]


def _too_long(*_: object) -> None:
    raise HangError(f"over {MOST_CPU_S:g} s of CPU")


def _asleep(*_: object) -> None:
    """Tell a process that waits from one that others keep from the CPU."""
    before, now = _asleep.since, time.process_time()  # type: ignore[attr-defined]
    _asleep.since = now  # type: ignore[attr-defined]
    if now - before < 0.5:
        raise HangError(f"waits for {MOST_WAIT_S:g} s")


def _peak_mib() -> float:
    found = re.search(r"VmHWM:\s+(\d+)", Path("/proc/self/status").read_text())
    peak = int(found[1]) / 1024 if found else 0.0
    if peak > MOST_MIB / 2:  # what this case took is not the next one's
        ctypes.CDLL(None).malloc_trim(0)
    return peak


def at_edges() -> None:
    """Put files in the place of Slurm and of this node, and let nothing wait."""
    import lumisite.cli.masks as masks
    import lumisite.cli.reframe as reframe
    import lumisite.cli.validate as validate
    from lumisite.validate.run import runner, slurm

    quick = functools.partial(runner.Runner, marks_s=0, slurm_s=0, grace_s=0)
    for module, name, instead in (
        (slurm, "_run", slurm_says),
        (runner, "Runner", quick),
        (validate, "Runner", quick),
        (reframe, "Runner", quick),
        (masks, "DiskTree", lambda _: DiskTree("node")),
        (validate, "require_shared", lambda *_: None),
        (reframe, "require_shared", lambda *_: None),
    ):
        mock.patch.object(module, name, instead).start()


def _play(seeds: range, *, show: bool = False) -> None:
    with tempfile.TemporaryDirectory(prefix="lumisite-fuzz-") as top:
        Path(top).chmod(0o755)
        player = Player(Path(top).resolve())
        for seed in seeds:
            case = player.play(seed)
            print(json.dumps(asdict(case)), flush=True)
            if show:
                print(player.usual[case.command])
        os.chdir("/")


def summary(cases: list[Case]) -> str:
    """Say what the cases took."""
    slowest, largest = max(cases, key=lambda one: one.seconds), max(cases, key=lambda one: one.mib)
    return (
        f"{len(cases)} cases, the longest {slowest.seconds:.1f} s of CPU (case {slowest.seed}), "
        f"the largest {largest.mib:.0f} MiB (case {largest.seed})"
    )


def _main(words: list[str]) -> None:
    if words[0] == "--part":
        _play(range(int(words[1]), int(words[2])))
    elif words[0] == "--case":
        _play(range(int(words[1]), int(words[1]) + 1), show=True)
    else:
        start = time.monotonic()
        cases = played(*map(int, words))
        print(f"{summary(cases)}, {time.monotonic() - start:.0f} s")


if __name__ == "__main__":
    _main(sys.argv[1:])
