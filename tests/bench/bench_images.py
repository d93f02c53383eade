"""`lumisite images`: the whole process over 200 SIFs, beside a process that only reads their heads and ends."""

from __future__ import annotations

import statistics
import sys
import tempfile
from pathlib import Path

from tests.bench.measure import Row, cost, in_turn, seconds
from tests.support.dict_trees import Link, write_tree
from tests.support.images import PARTITION, PRIMARY, SQUASHFS, laif, sif, squash

LUMISITE = str(Path(sys.executable).parent / "lumisite")
IMAGES, BUILDS, FILES = 200, 10, 2000
SPARSE_BYTES = 20 * 1024**3

#: What no reader of these images can do without: start, list, open each, read its head and its end.
READ = """
import hashlib, json, os, pathlib, sys
known = hashlib.sha256()
for path in sorted(pathlib.Path(sys.argv[1]).iterdir()):
    with path.open("rb") as stream:
        known.update(stream.read(32768))
        stream.seek(-65536, os.SEEK_END)
        known.update(stream.read())
print(json.dumps(known.hexdigest()))
"""


def run() -> list[Row]:
    """Measure everything of this module."""
    with tempfile.TemporaryDirectory() as scratch:
        top = Path(scratch)
        folder = _images(top)
        lock = str(top / "images.lock")
        write = [LUMISITE, "images", str(folder), "--site", "lumi", "--lock", lock]
        read = [sys.executable, "-I", "-S", "-c", READ, str(folder)]
        ratio, whole, limit = in_turn(lambda: seconds(write), lambda: seconds(read), 7)
        alone = statistics.median(seconds([LUMISITE, "images", "--help"]) for _ in range(5))
        size = next(folder.iterdir()).stat().st_size
        detail = f"{FILES} files, {size / 1e6:.1f} MB each; `--help` {alone * 1000:.0f} ms"
        with (folder / "sparse.sif").open("wb") as stream:
            stream.write((folder / "image0.sif").read_bytes())
            stream.truncate(SPARSE_BYTES)
        return [
            Row(f"images: {IMAGES} of them, lock", whole, 2.0, detail, unit="s"),
            Row("images / reading head and end of each", ratio, 25, f"reading them takes {limit * 1000:.0f} ms"),
            Row("images: memory with one of 20 GB", cost(write).peak_mib, 200, "peak of the process", unit="MiB"),
        ]


def _images(top: Path) -> Path:
    """SIFs of ten builds, each with the C library of this machine; half of them gzip, half zstd."""
    libc = next(Path("/").glob("lib*/**/libc.so.6")).read_bytes()
    folder = top / "images"
    folder.mkdir()
    for build in range(BUILDS):
        files: dict[str, bytes | Link] = laif() | {"/usr/lib/x86_64-linux-gnu/libc.so.6": libc}
        files |= {f"/opt/venv/lib/python3.12/site-packages/p{n % 90}/m{n}.py": b"x = %d" % n for n in range(FILES)}
        options = ("-comp", "gzip") if build % 2 else ("-comp", "zstd", "-Xcompression-level", "1")
        squashed = squash(write_tree(top / f"tree{build}", files), top / "one.squash", *options).read_bytes()
        for number in range(build, IMAGES, BUILDS):
            parts = (PARTITION, squashed, SQUASHFS, PRIMARY), (PARTITION + 1, b"build %d" % number, 0, 0)
            (folder / f"image{number}.sif").write_bytes(sif(*parts))
    return folder
