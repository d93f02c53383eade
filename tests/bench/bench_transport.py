"""`lumisite transport`: bytes for each second of one core, memory against the size of the log, a run of 8,192 ranks.

Its peer is what people write in its place: a loop over the lines that looks for two words in each, in the same run.
Time is the process's own (user and system), so that it holds on a busy machine too.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path

from tests.bench.measure import Row, in_turn, peak_mib
from tests.support.logs import Run

LUMISITE = str(Path(sys.executable).parent / "lumisite")
MEGABYTE = 1_000_000
PEER = "import sys; [line for line in open(sys.argv[1], 'rb') if b'via NET/' in line or b'NET/OFI' in line]"


def run() -> list[Row]:
    """Measure everything of this module."""
    with tempfile.TemporaryDirectory() as scratch:
        top = Path(scratch)
        return [*speed(top), memory(top), many_ranks(top)]


def speed(top: Path) -> list[Row]:
    """A log that is full of channels, as after communicators are set up, and one with a line for each collective."""
    channels = _written(top / "channels.log", Run(nodes=32, channels=128).text(), 200)
    line = (
        b"nid005000:7000:97000 [0] NCCL INFO AllReduce: opCount 2f count 1048576 datatype 7 op 0 root 0 comm 0x5 [16]\n"
    )
    collectives = _written(top / "collectives.log", Run().text() + line * 20000, 200)
    rows = []
    for name, path, least, most in (("channels", channels, 200, 1.8), ("collectives", collectives, 300, 1.3)):
        ratio, taken, peer = in_turn(
            partial(_judge, path), partial(_seconds, [sys.executable, "-c", PEER, str(path)]), 5
        )
        size = path.stat().st_size / MEGABYTE
        speeds = f"{size:.0f} MB in {taken:.2f} s, the loop in {peer:.2f} s"
        rows.append(Row(f"log of {name}", size / taken, least, speeds, "MB/s", at_least=True))
        rows.append(Row(f"log of {name}, against a loop over lines", ratio, most, speeds))
    return rows


def memory(top: Path) -> Row:
    """Peak memory with a log ten times as long."""
    text = Run(nodes=32, channels=32).text()
    small, large = (_written(top / f"memory{size}.log", text, size) for size in (50, 500))
    peaks = [peak_mib([LUMISITE, "transport", str(path)]) for path in (small, large)]
    detail = f"{peaks[0]:.0f} MiB with 50 MB of log, {peaks[1]:.0f} MiB with 500 MB"
    return Row("memory with ten times the log", peaks[1] / peaks[0], 1.1, detail)


def many_ranks(top: Path) -> Row:
    """A run of 8,192 ranks on 1,024 nodes."""
    path = _written(top / "ranks.log", Run(nodes=1024, channels=32).text(), 0)
    return Row("8,192 ranks", _judge(path), 3, f"{path.stat().st_size / MEGABYTE:.0f} MB of log", unit="s")


def _judge(path: Path) -> float:
    """Give the processor time of one call."""
    return _seconds([LUMISITE, "transport", str(path), "--expect", "cxi", "--nics", "4"])


def _seconds(command: list[str]) -> float:
    """Give the processor time of a command."""
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, command)
    return usage.ru_utime + usage.ru_stime


def _written(path: Path, text: bytes, megabytes: int) -> Path:
    """Write `text` again and again until the file is as long as asked for, without what a process prints once."""
    text = b"".join(line for line in text.splitlines(keepends=True) if b"Bootstrap" not in line)
    with path.open("wb") as stream:
        for _ in range(max(1, megabytes * MEGABYTE // len(text))):
            stream.write(text)
    subprocess.run([LUMISITE, "transport", str(path)], check=True, stdout=subprocess.DEVNULL)
    return path
