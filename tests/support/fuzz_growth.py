"""Products and squares: input whose size is doubled; what a command takes may at most double, and has a limit.

`python -m tests.support.fuzz_growth [NAME …]` plays all cases, or those with a word of these in their names.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import resource
import struct
import sys
import tempfile
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from lumisite.cli import main
from lumisite.site.load import load_site
from tests.support.closures import host, stock
from tests.support.dict_trees import Link, write_tree
from tests.support.elves import elf
from tests.support.images import PARTITION, PRIMARY, SQUASHFS, sif


class Growth(NamedTuple):
    """What grows: a command, and what writes the files that it reads, at a size and at twice that size."""

    words: str
    make: Callable[[int], None]
    size: int


def _put(name: str, *parts: str | bytes) -> None:
    Path(name).write_bytes(b"".join(part.encode() if isinstance(part, str) else part for part in parts))


def _site(text: str, place: str = "") -> None:
    """Write a description with more in it: behind a line of it, or at its end."""
    whole = load_site("lumi").data.decode()
    assert place in whole
    _put("site.yaml", whole.replace(place, place + text, 1) if place else whole + text)


def _times(size: int, line: str, most: int = 1 << 62) -> str:
    return "".join(line.replace("@", str(number)) for number in range(min(size, most)))


_GPUS = "\npartitions:\n"
#: A line of a log of NCCL, by process.
_LOG = "n@:1:1 [0] NCCL INFO "


def _sample(**more: object) -> str:
    plain = {"metric": "m", "value": 1.5, "better": "higher", "run": "r", "nodes": ["n1"], "time": 1}
    return json.dumps({**plain, **more}) + "\n"


def _gate(**more: object) -> str:
    plain = {"gate": "g", "verdict": "fail", "cause": "c", "advice": "a", "run": "r", "nodes": ["n1"], "time": 1}
    return json.dumps({**plain, **more}) + "\n"


def _library(needed: int, folders: int, *, there: bool = False) -> None:
    """Write an image with a library that needs many others, in many folders."""
    runpath = ":".join(f"/r/{number:04}" for number in range(folders))[:65_000]
    files: dict[str, bytes | Link] = dict(host("after"))
    library = elf("libfabric.so.1", [f"libn{number:05}.so" for number in range(needed)], runpath=runpath)
    files["/opt/cray/libfabric/1.22.0/lib64/libfabric.so.1"] = library
    if there:
        files.update({f"/r/0000/libn{number:05}.so": elf() for number in range(needed)})
    write_tree(Path("host"), files)
    write_tree(Path("image"), stock("ubuntu24", "/usr/lib/x86_64-linux-gnu"))


def listing(names: int, *, name_bytes: int = 6) -> bytes:
    """Return a squashfs without compression whose folder /usr has many names."""
    width = name_bytes
    entries = b"".join(
        struct.pack("<HhHH", 32, 0, 2, width - 1) + f"{number:0{width}}".encode()[:width] for number in range(names)
    )
    return b"".join(
        struct.pack("<III", min(256, names - at) - 1, 0, 1) + entries[at * (8 + width) : (at + 256) * (8 + width)]
        for at in range(0, names, 256)
    )


def packed(content: bytes, block: int = 8192) -> bytes:
    """Return metadata in blocks that are not compressed."""
    return b"".join(
        struct.pack("<H", 0x8000 | len(content[at : at + block])) + content[at : at + block]
        for at in range(0, len(content), block)
    )


def image(names: int, block: int = 8192) -> bytes:
    """Return a SIF whose root has /usr with many names; `block` bytes of metadata stand in a block."""
    below = listing(names)
    top = struct.pack("<III", 0, 0, 1) + struct.pack("<HhHH", 0, 0, 1, 2) + b"usr"
    size = len(below) + 3
    # An extended directory (8) has a size of 32 bits: its inode is followed by that of the root, which is a basic one.
    usr = struct.pack("<HHHHII", 8, 0o755, 0, 0, 0, 1) + struct.pack("<IIIIHHI", 2, size, 0, 1, 0, 0, 0)
    usr = usr.ljust(64, b"\0")
    directories = packed(below, block)
    root_at = len(directories)
    root = struct.pack("<HHHHII", 1, 0o755, 0, 0, 0, 2) + struct.pack("<IIHHI", root_at, 2, len(top) + 3, 0, 0)
    directories += packed(top)
    inodes = packed(usr + root)
    inode_table = 96
    directory_table = inode_table + len(inodes)
    used = directory_table + len(directories)
    head = struct.pack(
        "<4sIIIIHHHHHHQQQQQQQQ",
        b"hsqs", 2, 0, 131072, 0, 1, 17, 0, 1, 4, 0, 64, used, 0, 0, inode_table, directory_table, used, 0,
    )  # fmt: skip
    return sif((PARTITION, head + inodes + directories, SQUASHFS, PRIMARY))


def _image(names: int, block: int = 8192) -> None:
    _library(1, 1)
    _put("x.sif", image(names, block))


GROWTHS: dict[str, Growth] = {
    "unknown keys": Growth("check site.yaml", lambda n: _site(_times(n, "k@: 1\n")), 16_000),
    "unknown keys of a partition": Growth("check site.yaml", lambda n: _site(_times(n, "  k@: 1\n"), "\npartitions:\n  "[:13]), 16_000),
    "repeated keys": Growth("check site.yaml", lambda n: _site("tried: no\n" * n), 200_000),
    "partitions without keys": Growth("check site.yaml", lambda n: _site(_times(n, "  k@: {}\n"), _GPUS), 16_000),
    "a long key with many values": Growth(
        "check site.yaml", lambda n: _site(f"? {'x' * 10 * n}\n: [{'1,' * 10 * n}1]\n"), 30_000
    ),
    "nested long keys": Growth(
        "check site.yaml", lambda n: _site("".join(f"{' ' * k}? {'k' * n}\n{' ' * k}:\n" for k in range(25)) + " " * 25 + f"- [{'1,' * n}1]\n"), 60_000
    ),
    "aliases of a list": Growth(
        "check site.yaml", lambda n: _site(f"a: &a [{'x,' * 1000}x]\n" + f"b: [{'*a,' * (n // 1000)}x]\n"), 200_000
    ),
    "aliases of long keys": Growth(
        "check site.yaml", lambda n: _site(f"a: &a {{? {'k' * n} : [{'x,' * 1000}x]}}\n" + f"? {'b' * n}\n: [{'*a,' * 300}x]\n"), 10_000
    ),
    "settings of nothing": Growth("check site.yaml", lambda n: _site("  - name: []\n" * n, "\nsettings:\n"), 5_000),
    "unknown partitions": Growth(
        "check site.yaml", lambda n: _site(_times(n, "  p@: {node_kind: nowhere@}\n"), _GPUS), 4_000
    ),
    "sources": Growth("check site.yaml", lambda n: _site(_times(n, "  S@: x\n"), "\nsources:\n"), 16_000),
    "plans": Growth("check site.yaml", lambda n: _site("plans: [" + _times(n, "p@.yaml,") + "x.yaml]\n"), 9_000),
    "a word": Growth("lint job.sh", lambda n: _put("job.sh", "#!/bin/bash\necho ", "x" * n, "\n"), 400_000),
    "quotes": Growth("lint job.sh", lambda n: _put("job.sh", "#!/bin/bash\n", "'" * n, "\n"), 400_000),
    "open quotes": Growth("lint job.sh", lambda n: _put("job.sh", "#!/bin/bash\n", '"\n' * n), 9_000),
    "open expansions": Growth("lint job.sh", lambda n: _put("job.sh", "#!/bin/bash\necho ", "$(" * n, "\n"), 200_000),
    "open braces": Growth("lint job.sh", lambda n: _put("job.sh", "#!/bin/bash\necho ", "${x" * n, "\n"), 150_000),
    "double quotes with expansions": Growth("lint job.sh", lambda n: _put("job.sh", "#!/bin/bash\necho \"", "$(x) " * n, "\n"), 100_000),
    "words": Growth("lint job.sh", lambda n: _put("job.sh", "#!/bin/bash\necho ", "x " * n, "\n"), 90_000),
    "lines of words": Growth("lint job.sh", lambda n: _put("job.sh", "#!/bin/bash\n", "x y z\n" * n), 4_800),
    "continued lines": Growth("lint job.sh", lambda n: _put("job.sh", "#!/bin/bash\necho ", "a \\\n" * n, "\n"), 20_000),
    "multiline words": Growth("lint job.sh", lambda n: _put("job.sh", "#!/bin/bash\necho '", "$A\n" * n, "'\n"), 20_000),
    "multiline expanded words": Growth("lint job.sh", lambda n: _put("job.sh", "#!/bin/bash\necho \"", "$MASTER_PORT NODE=$RANK mktemp\n" * n, "\"\n"), 20_000),
    "exports": Growth("lint job.sh", lambda n: _put("job.sh", "#!/bin/bash\n", _times(n, "export A@=1 B@=2\n")), 4_800),
    "exports of one another": Growth("lint job.sh", lambda n: _put("job.sh", "#!/bin/bash\nA0=x\n", _times(n, "A@=$A@$A@/$B\n")), 4_800),
    "exports of one name": Growth("lint job.sh", lambda n: _put("job.sh", "#!/bin/bash\n", _times(n, "export NCCL_SOCKET_IFNAME=eth@\nsrun x\n")), 2_400),
    "words of exports": Growth("lint job.sh", lambda n: _put("job.sh", "#!/bin/bash\nA='", "x " * n, "'\n", "srun $A\n" * 500), 20_000),
    "cache names": Growth("lint job.sh", lambda n: _put("job.sh", "#!/bin/bash\n", _times(n, "A@=$(mktemp)\n"), "MIOPEN_USER_DB_PATH=", _times(n, "$A@")), 4_000),
    "cache chain": Growth("lint job.sh", lambda n: _put("job.sh", "#!/bin/bash\nA=$(mktemp)\n", _times(n, "A=$A$A@\nB=$A$B\nMIOPEN_USER_DB_PATH=$B\n")), 1_600),
    "sruns": Growth("lint job.sh", lambda n: _put("job.sh", "#!/bin/bash\n", "srun -N2 --cpu-bind=map_cpu:1 -p none singularity exec x.sif true\n" * n), 4_800),
    "images": Growth("lint job.sh", lambda n: _put("job.sh", "#!/bin/bash\n", _times(n, "singularity exec /x@.sif true\n")), 4_800),
    "images and settings": Growth("lint job.sh", lambda n: _put("job.sh", "#!/bin/bash\n", _times(n, "export NCCL_NET_GDR_LEVEL=PHB\nsingularity exec /x@.sif true\n")), 2_400),
    "modules": Growth("lint job.sh", lambda n: _put("job.sh", "#!/bin/bash\n", _times(n, "module load rocm/9.@ LUMI/9\n")), 4_800),
    "directives": Growth("lint job.sh", lambda n: _put("job.sh", "#!/bin/bash\n", _times(n, "#SBATCH --partition=p@\n")), 20_000),
    "partition names": Growth("lint job.sh", lambda n: _put("job.sh", "#!/bin/bash\n#SBATCH --partition=", _times(n, "p@,"), "\n", "srun true\n" * 1000), 50_000),
    "options": Growth("lint job.sh", lambda n: _put("job.sh", "#!/bin/bash\nsrun ", "-N 2 " * n, "true\n"), 45_000),
    "lists of env": Growth("lint job.sh", lambda n: _put("job.sh", "#!/bin/bash\nsingularity exec --env ", _times(n, "A@=1,"), " x.sif true\n"), 60_000),
    "scripts in scripts": Growth("lint job.sh", lambda n: _put("job.sh", "#!/bin/bash\n", "bash -c 'bash -c \"bash -c true\"'\n" * n), 1_600),
    "bash -c of one word": Growth("lint job.sh", lambda n: _put("job.sh", "#!/bin/bash\n", "sh -c ", "'x" + " x" * n + "'", "\n"), 80_000),
    "here documents": Growth("lint job.sh", lambda n: _put("job.sh", "#!/bin/bash\ncat ", _times(n, "<<E@ "), "\nx\n"), 20_000),
    "here documents with an end": Growth("lint job.sh", lambda n: _put("job.sh", "#!/bin/bash\ncat ", "<<E " * n, "\nx\n" + "y\n" * n, "E\n" * n), 10_000),
    "arrays": Growth("lint job.sh", lambda n: _put("job.sh", "#!/bin/bash\nA=(", "x\n" * n, ")\n"), 40_000),
    "flags of images": Growth("lint job.sh", lambda n: _put("job.sh", "#!/bin/bash\nsingularity exec ", "-B /x " * n, " x.sif true\n"), 45_000),
    "declared": Growth("lint job.sh", lambda n: _put("job.sh", "#!/bin/bash\nexport ", _times(n, "A@=$A1 ")), 60_000),
    "samples of one run": Growth("verdict --before s --after s", lambda n: _put("s", *(_sample(nodes=[f"n{k}"]) for k in range(n))), 20_000),
    "metrics": Growth("verdict --before s --after s", lambda n: _put("s", *(_sample(metric=f"m{k}") for k in range(n))), 4_000),
    "runs": Growth("verdict --before s --after s", lambda n: _put("s", *(_sample(run=f"r{k}", time=k) for k in range(n))), 20_000),
    "gates": Growth("verdict --before s --after s", lambda n: _put("s", _sample(), *(_gate(gate=f"g{k}", cause=f"c{k}") for k in range(n))), 20_000),
    "gates of runs": Growth("verdict --before s --after s", lambda n: _put("s", _sample(), *(_gate(run=f"r{k}", time=k, nodes=[f"n{k}"]) for k in range(n))), 20_000),
    "gates of nodes": Growth("verdict --before s --after s", lambda n: _put("s", _sample(), *(_gate(run=f"r{k % 100}", cause=f"c{k}", nodes=[f"n{j}" for j in range(200)]) for k in range(n // 200))), 100_000),
    "nodes of a sample": Growth("verdict --before s --after s", lambda n: _put("s", *(_sample(run=f"r{k}", nodes=[f"n{j}" for j in range(n)]) for k in range(3))), 40_000),
    "a node twice": Growth("verdict --before s --after s", lambda n: _put("s", _sample(nodes=[*(f"n{j}" for j in range(n)), "n0", f"n{n - 1}"][1:])), 60_000),
    "keys of a line": Growth("verdict --before s --after s", lambda n: _put("s", _sample(**{f"k{j}": 1 for j in range(n)}).replace("}", ', "k1": 2}')), 60_000),
    "nodes of samples": Growth("verdict --before s --after s", lambda n: _put("s", *(_sample(run=f"r{k}", nodes=[f"n{k}-{j}" for j in range(300)]) for k in range(n // 300))), 100_000),
    "report of gates": Growth("report s", lambda n: _put("s", _sample(), *(_gate(gate=f"g{k}", cause=f"c{k}") for k in range(n))), 5_000),
    "report of runs": Growth("report s -o r.html", lambda n: _put("s", *(_sample(run=f"r{k}", time=k) for k in range(n))), 5_000),
    "report of metrics": Growth("report s", lambda n: _put("s", *(_sample(metric=f"m{k}") for k in range(n))), 4_000),
    "report of nodes": Growth("report s", lambda n: _put("s", *(_sample(run=f"r{k}", nodes=[f"n{k}"], value=1 + k % 7) for k in range(n))), 5_000),
    "processes": Growth("transport log", lambda n: _put("log", _times(n, _LOG + "Using network Socket\n")), 60_000),
    "nranks": Growth("transport log", lambda n: _put("log", _LOG.replace("@", "0"), f"comm 0x1 rank 0 nRanks {n} nNodes 1 - Init COMPLETE\n"), 500_000),
    "many nranks": Growth("transport log", lambda n: _put("log", _times(n, _LOG + "comm 0x1 rank @ nranks 1000000 cudaDev 0 - Init COMPLETE\n")), 30_000),
    "providers of a process": Growth("transport log", lambda n: _put("log", _times(n, _LOG.replace("@", "0") + "NET/OFI Selected Provider is p@x (found 4 nics)\n")), 60_000),
    "providers of processes": Growth("transport log", lambda n: _put("log", *(_times(n // 300, _LOG.replace("@", str(k)) + "NET/OFI Selected Provider is p@x (found 4 nics)\n") for k in range(300))), 60_000),
    "networks of a process": Growth("transport log", lambda n: _put("log", _times(n, _LOG.replace("@", "0") + "Using network N@x\n")), 60_000),
    "networks of processes": Growth("transport log", lambda n: _put("log", *(_times(n // 300, _LOG.replace("@", str(k)) + "Using network N@x\n") for k in range(300))), 60_000),
    "communicators": Growth("transport log", lambda n: _put("log", _times(n, _LOG.replace("@", "0") + "comm 0x@ rank 0 nranks 2 commId 0x@ - Init START\n")), 60_000),
    "split communicators": Growth("transport log", lambda n: _put("log", _times(n, _LOG.replace("@", "0") + "comm 0x@ rank 0 nranks 2 parent 0x1 color @ - Init COMPLETE\n")), 60_000),
    "chain of communicators": Growth("transport log", lambda n: _put("log", *(f"n0:1:1 [0] NCCL INFO comm 0x{k + 1} rank 0 nranks 2 parent 0x{k} splitCount 1 color 1 - Init COMPLETE\n" for k in range(n))), 5_000),
    "channels": Growth("transport log", lambda n: _put("log", _times(n, _LOG + "Channel 00/0 : 0[0] -> 1[0] [send] via NET/X/@\n")), 40_000),
    "sockets": Growth("transport log", lambda n: _put("log", _LOG.replace("@", "0") + "NET/Socket : Using " + _times(n, "[@]eth@:1<0> ") + "\n"), 3_000),
    "a long line": Growth("transport log", lambda n: _put("log", _LOG, "NCCL " * n), 400_000),
    "long line of NET": Growth("transport log", lambda n: _put("log", "via NET/" * n), 400_000),
    "NET/ without an end": Growth("transport log", lambda n: _put("log", "NET/OFI " * n), 400_000),
    "needed and folders": Growth("binds image --host-root host --site lumi", lambda n: _library(n, 2 * n), 700),
    "needed that are there": Growth("binds image --host-root host --site lumi", lambda n: _library(n, n, there=True), 500),
    "names of a squashfs": Growth("binds x.sif --host-root host --site lumi", lambda n: _image(n), 200_000),
    "blocks of one byte": Growth("binds x.sif --host-root host --site lumi", lambda n: _image(n, 1), 100_000),
    "changes of facts": Growth("changes a.json a.json --site lumi", lambda n: _put("a.json", json.dumps({"lumisite_facts": 1, "host": {"x": ["y"] * n}})), 100_000),
}  # fmt: skip

#: CPU time in seconds and memory in MiB that a case may take at its larger size.
MOST_S, MOST_MIB = 20, 500
#: Noise of a measured time: a part of it, and seconds for what does not grow.
SLACK, BASE_S = 1.6, 0.5


class Took(NamedTuple):
    """What a command took: CPU time in seconds, memory in MiB; and what went wrong, if anything."""

    seconds: float
    mib: float
    what: str


def judged(name: str) -> str:
    """Play one case at half its size and in full; return what is wrong with it, if anything."""
    growth = GROWTHS[name]
    small, large = (_played(growth, size) for size in (growth.size // 2, growth.size))
    if what := small.what or large.what:
        return f"{name}: {what}"
    if large.seconds > 2 * SLACK * small.seconds + BASE_S:
        return f"{name}: {small.seconds:.2f} s, twice as much {large.seconds:.2f} s"
    if large.mib > MOST_MIB or large.mib > 2 * SLACK * small.mib:
        return f"{name}: {small.mib:.0f} MiB, twice as much {large.mib:.0f} MiB"
    return ""


def _played(growth: Growth, size: int) -> Took:
    """Run a command in a process of its own, under limits."""
    reading, writing = os.pipe()
    with tempfile.TemporaryDirectory(prefix="lumisite-growth-") as folder:
        process = os.fork()
        if process == 0:
            os.chdir(folder)
            growth.make(size)
            os.write(writing, json.dumps(_measured(growth.words)).encode())
            os._exit(0)
        os.close(writing)
        with os.fdopen(reading) as stream:
            told = stream.read()
        os.waitpid(process, 0)
    return Took(*json.loads(told)) if told else Took(MOST_S, 0, f"ended its process, or took over {MOST_S} s")


def _measured(words: str) -> Took:
    before = resource.getrusage(resource.RUSAGE_SELF)
    spent = before.ru_utime + before.ru_stime
    resource.setrlimit(resource.RLIMIT_CPU, (int(spent) + MOST_S, int(spent) + MOST_S))
    resource.setrlimit(resource.RLIMIT_AS, (2000 << 20, 2000 << 20))
    os.environ["LUMISITE_SITE"] = "lumi"
    what = ""
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        try:
            if (code := main(words.split())) not in range(6):
                what = f"exit code {code}"
        except BaseException:  # this is what is looked for
            what = traceback.format_exc(limit=-3)[-500:]
    after = resource.getrusage(resource.RUSAGE_SELF)
    return Took(after.ru_utime + after.ru_stime - spent, after.ru_maxrss / 1024, what)


def played(words: list[str]) -> list[str]:
    """Play all cases, or those with one of these words in their names; return what is wrong."""
    main(["check", "lumi"])  # what all commands load is loaded once
    names = [name for name in GROWTHS if not words or any(word in name for word in words)]
    return [what for what in map(judged, names) if what]


if __name__ == "__main__":
    print("\n".join(played(sys.argv[1:])) or "all of them grow as their input does")
