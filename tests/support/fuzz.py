"""Every command that reads, with one damaged file each time: a fault is a traceback, a hang, or much memory.

`python -m tests.support.fuzz SEED COUNT` plays cases in one process, as `played` starts it, and prints one JSON line for
each that is bad; the last line has the peak of its memory. What is damaged and how, and what reads it, are two tables.
"""

from __future__ import annotations

import contextlib
import functools
import io
import json
import os
import random
import re
import resource
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from lumisite import __version__
from lumisite.cli import main
from lumisite.errors import ToolError
from lumisite.validate.run import slurm
from lumisite.validate.run.asked import Batch
from lumisite.validate.run.folder import create_run
from lumisite.validate.run.plan import plans_of, with_specs
from lumisite.validate.run.runner import Runner
from tests.support.asked import LOADED, an_asked
from tests.support.dict_trees import write_tree
from tests.support.example_runs import Maintenance, write_runs
from tests.support.nodes import AFTER, BEFORE, lumi_node
from tests.support.records import DATA
from tests.support.trees import NEW, OLD, tree, written

#: A case takes some 50 ms; an answer that takes longer than this is a hang, in seconds.
PATIENCE_S = 20
MOST_MIB = 300
NOBODY = 65534
_WRONG = [
    *json.loads(r'[null, true, -1, 1e308, "", "\ud800", [], {}, [[]], {"": 1}, "²", "\u0000", "a\u001b[2J"]'),
    10**400,
    "x" * 5000,
]


def _json_fault(content: bytes, choose: random.Random) -> bytes:
    """Put something of another type at one place of a JSON file, or of one line of a file of them."""
    lines = content.split(b"\n") if content.count(b"\n{") > 1 else [content]
    at = choose.randrange(len(lines))
    with contextlib.suppress(ValueError):
        whole: Any = {"": json.loads(lines[at])}
        place, key = whole, ""
        while isinstance(place[key], dict | list) and place[key] and choose.random() < 0.8:
            place = place[key]
            key = choose.choice(list(place) if isinstance(place, dict) else range(len(place)))
        place[key] = choose.choice(_WRONG)
        lines[at] = json.dumps(whole[""]).encode()
    return b"\n".join(lines)


def _number(content: bytes, choose: random.Random) -> bytes:
    """Put digits in the place of a number."""
    found = list(re.finditer(rb"[0-9]+", content))
    if not found:
        return content + b"9" * 5000
    one = choose.choice(found)
    digits = choose.choice(
        [b"9" * 5000, b"9" * 400, b"-1", b"1e999", b"NaN", b"0" * 50, b"1.5", "²".encode(), "٣".encode()]
    )
    return content[: one.start()] + digits + content[one.end() :]


def _somewhere(what: bytes) -> Callable[[bytes, random.Random], bytes]:
    def put(content: bytes, choose: random.Random) -> bytes:
        at = choose.randrange(len(content) + 1)
        return content[:at] + what + content[at + choose.choice([0, 1, len(what)]) :]

    return put


def _twice(content: bytes, _: random.Random) -> bytes:
    return re.sub(rb'("[^"]+": *[^,{}\[\]]+),', rb"\1, \1,", content, count=1)


#: Damage to what a file holds.
CONTENTS: dict[str, Callable[[bytes, random.Random], bytes]] = {
    "empty": lambda content, choose: b"",
    "cut short": lambda content, choose: content[: choose.randrange(len(content) + 1)],
    "random": lambda content, choose: choose.randbytes(choose.choice([1, 100, 100_000])),
    "NUL": _somewhere(b"\0"),
    "not UTF-8": _somewhere(b"\xff\xfe"),
    "BOM": lambda content, choose: b"\xef\xbb\xbf" + content,
    "UTF-16": lambda content, choose: content.decode(errors="replace").encode("utf-16"),
    "number": _number,
    "deep": lambda content, choose: choose.choice([b"[", b'{"a":', b"- ", b"<a>"]) * choose.choice([40, 900, 100_000]),
    "deep inside": _somewhere(b"[" * 5000),
    "long line": lambda content, choose: content + b"x" * 9_000_000,
    "lines": lambda content, choose: b"\n" * 9_000_000,
    "lists": lambda content, choose: b"[" + b"[]," * 2_000_000 + b"[]]",
    "gzip": lambda content, choose: b"\x1f\x8b" + choose.randbytes(50),
    "type": _json_fault,
    "key twice": _twice,
    "escape": _somewhere(b"\x1b[2J"),
}


def _socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as one:
        one.bind(str(path))  # which is short: its folder is the one that we are in


def _sparse(path: Path) -> None:
    with path.open("wb") as stream:
        stream.truncate(5 << 30)


#: What may stand in a file's place.
PLACES: dict[str, Callable[[Path], object]] = {
    "missing": lambda path: None,
    "pipe": os.mkfifo,
    "directory": Path.mkdir,
    "device": lambda path: path.symlink_to("/dev/zero"),
    "socket": _socket,
    "loop": lambda path: path.symlink_to(path.name),
    "dangling": lambda path: path.symlink_to("nowhere"),
    "sparse": _sparse,
}

_RUN, _OUT = "runs/after/{run.json,facts.json,samples.jsonl,series.jsonl}", "new/{MANIFEST.json,spank/task_prolog}"
_ROOT = "root/{history,.lock,current,releases,releases/*/MANIFEST.json,releases/*/spank/task_prolog}"
_RESUMED = (
    "resumed/{run.json,jobs.jsonl,samples.jsonl,series.jsonl,lock,facts.json,jobs/*/done,jobs/*/facts.json,jobs/*/*/*}"
)
_STEPS = "resumed/jobs/*/*/{exit,began,stderr,records/*}"
#: What a command is given, and the files that it reads.
COMMANDS: tuple[tuple[str, str], ...] = (
    ("check site.yaml", "site.yaml"),
    ("resolve --site site.yaml --rocm 6.2", "site.yaml"),
    ("render --site site.yaml --out out --rocm 6.2", "site.yaml"),
    ("render --site twin --out out --rocm 6.2 --lock lock.json --plan plan.yaml", "{lock.json,plan.yaml}"),
    ("images --site twin --lock lock.json --check", "lock.json"),
    ("report runs/after --baseline runs/before", _RUN),
    ("report runs/after --baseline runs/before --json", _RUN),
    ("report runs/after/samples.jsonl -o report.html", "runs/after/samples.jsonl"),
    ("verdict --before runs/before/samples.jsonl --after runs/after/samples.jsonl", "runs/*/samples.jsonl"),
    ("verdict --before runs/before/samples.jsonl --after report.json", "report.json"),
    ("verdict --before runs/before/samples.jsonl --after perf.log --json", "perf.log"),
    ("transport rank.log", "rank.log"),
    ("transport rank.log --json --nics 4", "rank.log"),
    ("lint job.sh", "job.sh"),
    ("lint job.sh --json --site site.yaml", "{job.sh,site.yaml}"),
    ("facts --root node --site twin -o facts.out", "node/{etc/os-release,proc/version,etc/slurm/slurm.conf,*/*,*/*/*}"),
    ("changes facts.json later.json --site lumi", "{facts,later}.json"),
    ("changes facts.json later.json --json --site lumi", "{facts,later}.json"),
    ("masks --topology node.xml", "node.xml"),
    ("binds image --host-root node --site lumi --write plan.out", "node/{*/*,*/*/*,*/*/*/*}"),
    ("binds image --host-root node --site lumi --write plan.yaml", "plan.yaml"),
    ("diff new root", f"{_OUT} {_ROOT}"),
    ("diff new root --json --full", f"{_OUT} {_ROOT}"),
    ("deploy new root --apply", f"{_OUT} {_ROOT}"),
    ("rollback root", _ROOT),
    ("releases root", _ROOT),
    ("releases root --json", _ROOT),
    ("init --from facts.json --name x", "facts.json"),
    ("status root", _ROOT),
    ("validate --resume resumed", _RESUMED),
    ("validate --resume resumed", _STEPS),
    ("validate --resume resumed --json", _STEPS),
    ("validate --more resumed", "resumed/run.json"),
)


@dataclass(frozen=True)
class Bad:
    """A case that went wrong, and how; `seconds` that it took, `mib` that the process had at its peak afterwards."""

    command: str
    file: str
    damage: str
    what: str
    seconds: float
    mib: float


class HangError(BaseException):
    """The time of a case is over."""


def played(seed: int, count: int, processes: int = 1) -> tuple[list[Bad], int]:
    """Play cases in as many processes, at 100 each, one after the other or beside each other; give the bad ones."""
    commands = [[sys.executable, "-m", "tests.support.fuzz", str(seed + at), "100"] for at in range(0, count, 100)]
    bad: list[Bad] = []
    done = 0
    while commands:
        now, commands = commands[:processes], commands[processes:]
        for child in [subprocess.Popen(one, stdout=subprocess.PIPE, text=True) for one in now]:
            out, _ = child.communicate()
            lines = [json.loads(line) for line in out.splitlines()]
            if child.returncode or not lines:
                bad.append(Bad(str(child.args), "", "", f"ended with {child.returncode}", 0, 0))
            bad += [Bad(**line) for line in lines if "command" in line]
            done += sum(line.get("done", 0) for line in lines)
    return bad, done


def cases(seed: int, count: int, top: Path) -> Iterator[Bad]:
    """Play cases in this process, and give those that are bad."""
    choose = random.Random(seed)
    scene = top / "scene"
    _make(scene)
    os.chdir(scene)
    for words, _ in COMMANDS:  # what is loaded later is not read under a case's limits
        _call(words)
    os.chdir(top)
    _fresh(top)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    for _ in range(count):
        _fresh(top)
        words, patterns = choose.choice(COMMANDS)
        files = sorted({path for one in patterns.split() for path in _matching(Path(), one)})
        if not files:
            continue
        path = choose.choice(files)
        damage = _damage(path, choose)
        start = time.monotonic()
        what = _call(words, nobody=damage == "unreadable")
        took = time.monotonic() - start
        before, peak = peak, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        if peak > MOST_MIB and before <= MOST_MIB:
            what = what or f"has taken {peak:.0f} MiB"
        if what:
            yield Bad(words, str(path), damage, what, round(took, 2), round(peak, 1))


def _matching(top: Path, pattern: str) -> Iterator[Path]:
    if (braces := re.search(r"\{([^}]+)\}", pattern)) is None:
        yield from (
            path for path in top.glob(pattern) if path.is_file() or path.is_symlink() or path.name == "releases"
        )
        return
    for one in braces[1].split(","):
        yield from _matching(top, pattern[: braces.start()] + one + pattern[braces.end() :])


def _damage(path: Path, choose: random.Random) -> str:
    """Damage a file, and say how."""
    name = choose.choice([*CONTENTS, "type", "type", "number", *PLACES, "unreadable"])
    if name == "unreadable":
        if not path.is_symlink():
            path.chmod(0)
        return name
    content = path.read_bytes() if path.is_file() and not path.is_symlink() else b""
    shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
    if name in PLACES:
        PLACES[name](path)
    else:
        path.write_bytes(CONTENTS[name](content, choose))
    return name


def _call(words: str, *, nobody: bool = False) -> str:
    """Run a command; give what is wrong with how it ended, or nothing."""
    said = io.StringIO()
    signal.alarm(PATIENCE_S)
    try:
        if nobody and os.geteuid() == 0:
            os.seteuid(NOBODY)
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
            code = main(words.split())
        if code not in range(6):
            return f"exit code {code}"
    except HangError:
        return "hangs: " + traceback.format_exc(limit=-2).replace("\n", " ")[-400:]
    except BaseException:  # this is what is looked for
        return traceback.format_exc(limit=-3).replace("\n", " ")[-700:]
    finally:
        signal.alarm(0)
        os.seteuid(os.getuid())
    return ""


def _fresh(top: Path) -> None:
    """Go into a new copy of the scene, under the same name: a run knows its own."""
    os.chdir(top)
    shutil.rmtree(top / "now", ignore_errors=True)
    shutil.copytree(top / "scene", top / "now", symlinks=True)
    os.chdir(top / "now")


def _make(scene: Path) -> None:
    """Lay out everything that the commands read."""
    scene.mkdir()
    os.chdir(scene)
    (scene / "site.yaml").write_bytes(LOADED.data)
    write_runs(scene / "runs", Maintenance(nodes=4))
    for name, versions in (("facts", BEFORE), ("later", AFTER)):
        write_tree(scene / "node", lumi_node(versions))
        _call(f"facts --root node -o {name}.json")
        shutil.rmtree(scene / "node")
    write_tree(scene / "node", lumi_node(AFTER))
    write_tree(scene / "image", {"/lib64/x": b"", "/usr/lib64/libc.so.6": b"\x7fELF"})
    _call("images --site twin --lock lock.json")
    (scene / "lock.json").exists() or (scene / "lock.json").write_text('{"lumisite_images": 1}')
    _call("binds image --host-root node --site lumi --write plan.yaml")
    (scene / "plan.yaml").exists() or (scene / "plan.yaml").write_text("image: {}\n")
    data = DATA.parent
    for name, source in (
        ("node.xml", data / "nodes/lumi-g.xml"),
        ("report.json", data / "reframe/report-4.10.json"),
        ("perf.log", data / "reframe/Bw.log"),
        ("rank.log", next(path for path in sorted((data / "transport").rglob("*")) if path.is_file())),
    ):
        shutil.copyfile(source, scene / name)
    (scene / "job.sh").write_text(
        "#!/bin/bash\n#SBATCH --nodes=2\n#SBATCH --gpus-per-node=8\n#SBATCH --mem=480G\n#SBATCH --time=10:00\n"
        "export MASTER_PORT=29500\nsrun --het-group=1 -N2 singularity exec x.sif python a.py\n"
    )
    written(scene / "old", tree(OLD, libfabric="1.15.2.0"))
    written(scene / "new", tree(NEW))
    written(scene / "third", tree("2026-07-aaaaaaaaaaaa", libfabric="2.0"))
    _call("deploy old root --apply")
    _call("deploy third root --apply")
    _resumed(scene.parent / "now/resumed", scene / "resumed")


def _resumed(name: Path, folder: Path) -> None:
    """Lay out a run whose job has ended, and whose marks nobody has read."""
    batch = Batch("one", 1, (("nid000001", "nid000002"),))
    asked = replace(an_asked(), lumisite=__version__, image_digest="", folder=str(name), batches=(batch,), baseline=())
    asked = with_specs(replace(asked, specs={}), LOADED)
    create_run(folder, asked.about())
    (plan,) = plans_of(asked, LOADED)
    events = ({"event": "submitting", "attempt": 1}, {"event": "submitted", "id": "7"})
    (folder / "jobs.jsonl").write_text(
        "".join(json.dumps({"run": plan.run, **one, "time": 1.0}) + "\n" for one in events)
    )
    (folder / "series.jsonl").write_text('{"series": "x", "run": "r", "values": [1, 2]}\n')
    (folder / "samples.jsonl").write_bytes(Path("runs/after/samples.jsonl").read_bytes())
    job = folder / "jobs" / plan.run
    for step in (step for group in plan.groups for step in group.steps):
        (job / step.folder / "records").mkdir(parents=True)
        (job / step.folder / "began").write_text("100.0\n")
        (job / step.folder / "exit").write_text("0 200.5\n")
        (job / step.folder / "stderr").write_text("no words\n")
        kept = DATA / f"{step.probe}.json"
        records = json.loads(kept.read_text()) if kept.exists() else []
        for rank in range(step.ranks):
            bare = {
                "rank": rank,
                "local_rank": 0,
                "host": step.nodes[0],
                "node": 0,
                "bytes": 8,
                "pairs": [{"pair": [0, 1]}],
            }
            record = records[rank] if rank < len(records) else bare
            (job / step.folder / "records" / f"{rank}.json").write_text(json.dumps(record))
    (job / "done").write_text("7 0 1000\n")
    (job / "facts.json").write_bytes(Path("facts.json").read_bytes())


def _no_slurm(argv: list[str]) -> subprocess.CompletedProcess[str]:
    raise ToolError(f"{argv[0]} is not on PATH")


def _alarm(*_: object) -> None:
    raise HangError


def run(seed: int, count: int) -> None:
    """Play cases, and print what became of them."""
    signal.signal(signal.SIGALRM, _alarm)
    resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))
    slurm._run = _no_slurm  # type: ignore[assignment]
    quick = functools.partial(Runner, marks_s=0, slurm_s=0, grace_s=0)
    sys.modules["lumisite.cli.validate"].Runner = quick  # type: ignore[attr-defined]
    with tempfile.TemporaryDirectory(prefix="lumisite-fuzz-") as top:
        Path(top).chmod(0o755)
        for bad in cases(seed, count, Path(top)):
            print(json.dumps(asdict(bad)), flush=True)
        os.chdir("/")
    print(json.dumps({"done": count}))


if __name__ == "__main__":
    import lumisite.cli.validate  # noqa: F401 - its runner is made quick

    run(int(sys.argv[1]), int(sys.argv[2]))
