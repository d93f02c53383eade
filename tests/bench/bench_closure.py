"""`lumisite binds`: the whole process on an image of 400 MB, what an image's size costs, and how ldd compares."""

from __future__ import annotations

import json
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.bench.closure_ldd import against_ldd
from tests.bench.measure import Row, in_turn, peak_mib, seconds
from tests.support.dict_trees import Link, write_tree
from tests.support.images import HEADER_BYTES, PARTITION, PRIMARY, SQUASHFS, descriptor, sif, squash

LUMISITE = str(Path(sys.executable).parent / "lumisite")
DATA = Path(__file__).parents[1] / "data" / "elf"
#: As many files as a conda environment with PyTorch has, and as much as a SIF with it weighs.
FILES, LARGE_MB = 40_000, 400


def run() -> list[Row]:
    """Measure everything of this module."""
    with tempfile.TemporaryDirectory() as scratch:
        top = Path(scratch)
        host = _host(top / "host")
        large, small = _image(top / "large", FILES, LARGE_MB), _image(top / "small", 100, 1)
        commands = {
            path.stem: [
                LUMISITE,
                "binds",
                str(path),
                "--site",
                "lumi",
                "--host-root",
                str(host),
                "--family",
                "lumi-rocm",
                "--json",
            ]
            for path in (large, small)
        }
        entries = json.loads(subprocess.run(commands["large"], check=True, capture_output=True).stdout)
        bound = sum(entry["decision"] == "bind" for entry in entries)
        assert bound == 3, entries
        ratio, big, little = in_turn(lambda: seconds(commands["large"]), lambda: seconds(commands["small"]), 9)
        size = large.stat().st_size // 1_000_000
        alone = statistics.median(seconds([LUMISITE, "binds", "--help"]) for _ in range(5))
        detail = f"{FILES} files, {size} MB, zstd; {bound} binds; `--help` {alone * 1000:.0f} ms"
        return [
            Row("closure of a large image", big, 1.0, detail, unit="s"),
            Row("large / small image", ratio, 1.5, f"small takes {little * 1000:.0f} ms"),
            Row("memory with a large image", peak_mib(commands["large"]), 200, "peak of the process", unit="MiB"),
            *against_ldd(),
        ]


def _host(top: Path) -> Path:
    files: dict[str, bytes | Link] = {
        f"/usr/lib64/{path.name}": path.read_bytes() for path in (DATA / "after").iterdir()
    }
    files["/opt/cray/libfabric/1.22.0/lib64/libfabric.so.1"] = files.pop("/usr/lib64/libfabric.so.1")
    return write_tree(top, files)


def _image(top: Path, count: int, megabytes: int) -> Path:
    """A SIF with many small files and a few that do not pack, beside the libraries of openSUSE.

    It is written in pieces: a process that is started counts what its parent held as its own memory.
    """
    choose = random.Random(1)
    write_tree(top, {f"/lib64/{path.name}": path.read_bytes() for path in (DATA / "suse155").iterdir()})
    for number in range(count):
        name = f"/opt/conda/lib/python3/package{number % 400}/module{number}.py"
        write_tree(top, {name: b"x = %d\n" % number})
    for number in range(megabytes):
        write_tree(top, {f"/opt/rocm/lib/libkernels{number}.so": choose.randbytes(1_000_000)})
    squashed = squash(top, top.with_suffix(".sqfs"), "-comp", "zstd", "-Xcompression-level", "1")
    head = sif((PARTITION, b"", SQUASHFS, PRIMARY))
    whole = descriptor(PARTITION, len(head), squashed.stat().st_size, file_system=SQUASHFS, part=PRIMARY)
    image = top.with_suffix(".sif")
    with image.open("wb") as stream, squashed.open("rb") as content:
        stream.write(head[:HEADER_BYTES] + whole + head[HEADER_BYTES + len(whole) :])
        shutil.copyfileobj(content, stream)
    squashed.unlink()
    return image


if __name__ == "__main__":
    from tests.bench.measure import table

    print(table(run()))
