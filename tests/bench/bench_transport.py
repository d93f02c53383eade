"""`lumisite transport` against what people write in its place, memory against the size of the log, 8,192 ranks.

That is a loop over the lines which looks for two words in each, in the same run.
Time is the process's own (user and system), so that it holds on a busy machine too.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path

from tests.bench.measure import Row, cost, in_turn
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
    for name, path, most in (("channels", channels, 1.8), ("collectives", collectives, 1.3)):
        judge, loop = _command(path), [sys.executable, "-c", PEER, str(path)]
        ratio, taken, peer = in_turn(partial(_cpu_s, judge), partial(_cpu_s, loop), 5)
        size = path.stat().st_size / MEGABYTE
        detail = f"{size:.0f} MB in {taken:.2f} s ({size / taken:.0f} MB/s), the loop in {peer:.2f} s"
        rows.append(Row(f"transport, log of {name} / a loop over its lines", ratio, most, detail))
    return rows


def memory(top: Path) -> Row:
    """Peak memory with a log ten times as long."""
    text = Run(nodes=32, channels=32).text()
    small, large = (_written(top / f"memory{size}.log", text, size) for size in (50, 500))
    peaks = [cost(_command(path)).peak_mib for path in (small, large)]
    detail = f"{peaks[0]:.0f} MiB with 50 MB of log, {peaks[1]:.0f} MiB with 500 MB"
    return Row("transport: memory with ten times the log", peaks[1] / peaks[0], 1.1, detail)


def many_ranks(top: Path) -> Row:
    """A run of 8,192 ranks on 1,024 nodes."""
    path = _written(top / "ranks.log", Run(nodes=1024, channels=32).text(), 0)
    size = path.stat().st_size / MEGABYTE
    return Row("transport: 8,192 ranks", _cpu_s(_command(path)), 3, f"{size:.0f} MB of log", unit="s")


def _command(path: Path) -> list[str]:
    return [LUMISITE, "transport", str(path), "--expect", "cxi", "--nics", "4"]


def _cpu_s(command: list[str]) -> float:
    return cost(command).cpu_s


def _written(path: Path, text: bytes, megabytes: int) -> Path:
    """Write `text` again and again until the file is as long as asked for, without what a process prints once."""
    text = b"".join(line for line in text.splitlines(keepends=True) if b"Bootstrap" not in line)
    with path.open("wb") as stream:
        for _ in range(max(1, megabytes * MEGABYTE // len(text))):
            stream.write(text)
    subprocess.run([LUMISITE, "transport", str(path)], check=True, stdout=subprocess.DEVNULL)
    return path
