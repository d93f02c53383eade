"""Cases at the edges: a wrong type at any key of a description, outputs that are full or closed, and signals.

`python -m tests.support.fuzz_edges SEED COUNT` plays cases and tells those that are bad. A case follows from its seed.
"""

from __future__ import annotations

import functools
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import yaml

from lumisite.errors import LumisiteError
from lumisite.site.load import EMBEDDED, parse_site

#: What stands in the place of a value.
_WRONG: list[Any] = [
    *([], {}, None, "", "x", ["x"], [[]], [{}], {"x": []}, {"x": {"y": "z"}}, [None], "={settings}", "={x}", "={"),
    *("9" * 30, "-1", "\u202e", "a\nb", "x" * 5000, {"": ""}, {"x" * 300: "y"}, "0-8191", "[", "*", "$(id)"),
]
_PYTHON = [sys.executable, "-c", "from lumisite.__main__ import run; run()"]
#: Commands that print, and those that write a file of this name.
_COMMANDS = (
    "check lumi",
    "why rocm --site lumi --rocm 6.2",
    "why NCCL_NET --site lumi",
    "env x.sif --site lumi --json",
    "--version",
    "--help",
    "no-such-command",
    "check no-such-site",
    "status nowhere --all",
    "facts --root / --site lumi",
    "facts --root / --site lumi -o out",
    "init --help",
)
_WAYS = (">/dev/full", ">&-", "2>/dev/full", "2>&-", ">&- 2>&-", ">/dev/full 2>&1", "<&-", "<&- >&- 2>&-", "| true")
_OLD = "of yesterday\n"


def _places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    if path:
        yield path
    children = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, child in children:
        yield from _places(child, (*path, key))


@functools.cache
def _description(name: str) -> tuple[str, list[tuple[Any, ...]]]:
    whole = yaml.load((EMBEDDED / f"{name}.yaml").read_text(), Loader=yaml.BaseLoader)
    return json.dumps(whole), list(_places(whole))


def wrong_type(choose: random.Random) -> str:
    """Put something of another type at a key of a description; return what is wrong with the answer."""
    name = choose.choice(sorted(path.stem for path in EMBEDDED.glob("*.yaml")))
    text, places = _description(name)
    whole = json.loads(text)
    path, wrong = choose.choice(places), choose.choice(_WRONG)
    place = whole
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = wrong
    try:
        parse_site(json.dumps(whole).encode(), Path("site.yaml"))
    except LumisiteError as error:
        return "" if str(error).startswith("site.yaml:") else f"{name} {path} {wrong!r:.60}: {error!s:.200}"
    except Exception as error:  # this is what is looked for
        return f"{name} {path} {wrong!r:.60}: {error!r:.200}"
    return ""


def output(choose: random.Random) -> str:
    """Run a command whose output is full, closed or gone."""
    words, way = choose.choice(_COMMANDS), choose.choice(_WAYS)
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "out").write_text(_OLD)
        line = f"{sys.executable} -m lumisite {words} {way}; exit ${{PIPESTATUS[0]}}"
        done = subprocess.run(
            ["bash", "-c", line], cwd=folder, env=_environment(), capture_output=True, timeout=120, check=False
        )
        return _bad(f"{words} {way}", done.returncode, done.stderr, Path(folder), range(6))


def interrupt(choose: random.Random) -> str:
    """Send a signal at any moment to a command that writes a file."""
    words = choose.choice([one for one in _COMMANDS if one.startswith(("facts", "check", "why"))])
    number = choose.choice([signal.SIGINT, signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE])
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "out").write_text(_OLD)
        process = subprocess.Popen(
            ["env", "--default-signal", *_PYTHON[:1], "-X", "importtime", *_PYTHON[1:], *words.split()],
            cwd=folder,
            env=_environment(),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )
        assert process.stderr is not None
        for line in process.stderr:  # what comes before is Python's own start
            if b"lumisite.__main__" in line:
                break
        time.sleep(choose.uniform(0, choose.choice([0.02, 0.1, 0.6])))
        process.send_signal(number)
        _, err = process.communicate(timeout=120)
        err = b"\n".join(line for line in err.splitlines() if not line.startswith(b"import time:"))
        allowed = {*range(6), 130, -number}
        return _bad(f"{words}, signal {number}", process.returncode, err, Path(folder), allowed)


def _environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2]), "LUMISITE_SITE": "lumi"}


def _bad(what: str, code: int, err: bytes, folder: Path, allowed: Any) -> str:
    """Return what is wrong with an answer and with the file that it wrote, or should have left."""
    if code not in allowed:
        return f"{what}: exit code {code}: {err[-300:]!r}"
    if b"Traceback" in err or b"Exception ignored" in err:
        return f"{what}: {err[-500:]!r}"
    text = (folder / "out").read_text()
    if text != _OLD:
        try:
            json.loads(text)
        except ValueError:
            return f"{what}: leaves {len(text)} letters that are half of a file"
    return ""


#: Of each hundred cases, how many are of each kind: processes take a hundred times as long.
KINDS: dict[str, tuple[Callable[[random.Random], str], int]] = {
    "wrong types": (wrong_type, 80),
    "outputs": (output, 10),
    "signals": (interrupt, 10),
}


def played(seed: int, count: int) -> dict[str, list[str]]:
    """Play cases; return what is wrong, by kind."""
    wrong: dict[str, list[str]] = {name: [] for name in KINDS}
    names = [name for name, (_, share) in KINDS.items() for _ in range(share)]
    for case in range(seed, seed + count):
        choose = random.Random(case)
        name = names[case % len(names)]
        if what := KINDS[name][0](choose):
            wrong[name].append(f"case {case}: {what}")
            print(wrong[name][-1], file=sys.stderr, flush=True)
    return wrong


if __name__ == "__main__":
    found = played(*map(int, sys.argv[1:3]))
    print(", ".join(f"{name}: {len(cases)} bad" for name, cases in found.items()))
