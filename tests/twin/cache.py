"""What takes long to build is built once, outside the checkout, and is either whole or absent.

An entry is a directory named after what it is and after a hash of everything that went into it. It is built
under another name and renamed when it is done, so a build that is killed leaves nothing that looks like one.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from lumisite.errors import ToolError
from tests.twin.process import run_or_refuse


def cache_directory() -> Path:
    """Name the folder of all entries: LUMISITE_CACHE, else XDG_CACHE_HOME, else /var/cache or ~/.cache."""
    if chosen := os.environ.get("LUMISITE_CACHE"):
        return Path(chosen)
    if base := os.environ.get("XDG_CACHE_HOME"):
        return Path(base) / "lumisite"
    return Path("/var/cache/lumisite") if os.geteuid() == 0 else Path.home() / ".cache" / "lumisite"


def entry_key(inputs: Mapping[str, object]) -> str:
    """Hash the inputs of an entry; the same inputs in another order give the same key."""
    return hashlib.sha256(json.dumps(inputs, sort_keys=True).encode()).hexdigest()[:12]


def cached(name: str, inputs: Mapping[str, object], build: Callable[[Path], None]) -> Path:
    """Give the entry `name` for these inputs, built by `build(directory)` if it is not there yet.

    A second process that wants the same entry waits for the first. Raises `ToolError` when a tool fails.
    """
    folder = cache_directory()
    entry = folder / f"{name}-{entry_key(inputs)}"
    if entry.is_dir():
        return entry
    folder.mkdir(parents=True, exist_ok=True)
    with _locked(folder / f"{entry.name}.lock"):
        if entry.is_dir():
            return entry
        partial = folder / f"{entry.name}.partial"
        remove_tree(partial)
        partial.mkdir(mode=0o755)
        began = time.monotonic()
        say(f"building {name} (once, kept in {folder})")
        try:
            build(partial)
        except BaseException:
            remove_tree(partial)
            raise
        partial.chmod(0o755)
        partial.rename(entry)
        say(f"built {name} in {time.monotonic() - began:.0f} s")
    return entry


def build_tool(argv: Sequence[str], *, cwd: Path | None = None) -> str:
    """Run a tool that builds a root and give its stdout. Raises `ToolError` if it fails.

    It has mount and process name spaces that end with this process: whatever it mounts or leaves running is
    gone when either of the two ends or is killed.
    """
    fence = ["setpriv", "--pdeathsig", "KILL", "--"]
    fence += ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
    return run_or_refuse([*fence, *argv], cwd=cwd)


def remove_tree(path: Path) -> None:
    """Remove a folder of ours if it is there; refuse when something is mounted below it."""
    if not path.exists():
        return
    mounted = [line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    below = [point for point in mounted if Path(point).is_relative_to(path)]
    if below:
        raise ToolError(f"cannot remove {path}: {below[0]} is mounted there (unmount it first)")
    shutil.rmtree(path)


def say(message: str) -> None:
    """Tell the person in front of the screen what takes the time."""
    print(f"twin: {message}", file=sys.stderr, flush=True)


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"waiting for another process that builds {path.stem}")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield
