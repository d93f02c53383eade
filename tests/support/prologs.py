"""Run rendered helper scripts for real, under each shell that may be /bin/sh, in a made-up Slurm step."""

from __future__ import annotations

import functools
import os
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from lumisite.render.render import render_tree
from lumisite.render.templates import load_templates
from lumisite.site.load import EMBEDDED, LoadedSite, load_site
from lumisite.site.selection import resolve_selection
from tests.support.kernels import DRIVER, be_node, kernel_files, seen_in
from tests.support.sites import load_text
from tests.support.tools import tool

#: `make unit` is content with the shells of Debian and of LUMI.
SHELLS = ("dash", "bash", pytest.param("busybox", marks=pytest.mark.thorough))
#: Where an environment is hostile, and what depends on it is the shell.
EVERY_SHELL = (*SHELLS, pytest.param("ksh", marks=pytest.mark.thorough))

#: What Slurm sets for task 3 of a step with 8 tasks on each of two whole LUMI-G nodes.
STEP = {
    "PATH": "/usr/bin:/bin",
    "SLURM_JOB_ID": "1234567",
    "SLURM_JOB_UID": str(os.getuid()),
    "SLURM_STEP_ID": "0",
    "SLURM_PROCID": "3",
    "SLURM_LOCALID": "3",
    "SLURM_NODEID": "0",
    "SLURM_STEP_NUM_NODES": "2",
    "SLURM_NNODES": "2",
    "SLURM_STEP_NODELIST": "nid[005124-005125]",
    "SLURM_GTIDS": "0,1,2,3,4,5,6,7",
    "SLURM_JOB_PARTITION": "standard-g",
    "SLURM_CPUS_ON_NODE": "128",
    "SLURM_CPU_BIND": "quiet,mask_cpu:0x0000000000000001,0x0000000000000002",
    "SLURMD_NODENAME": "nid005124",
}


def shell_command(shell: str, folder: Path) -> list[str]:
    """Return the command for a shell as `#!/bin/sh` starts it: bash by the name sh, which makes it POSIX-minded."""
    found = tool(shell)
    if shell == "busybox":
        return [found, "sh"]
    link = folder / f"as-{shell}" / "sh"
    if not link.exists():
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(found)
    return [str(link)]


def render_files(loaded: LoadedSite, **options: Sequence[str] | str) -> dict[str, str]:
    selection = resolve_selection(loaded.site, **options)  # type: ignore[arg-type]
    return {path: file.text for path, file in render_tree(loaded, selection, load_templates()).items()}


@dataclass(frozen=True)
class Ran:
    """What a prolog did: `lines` are its whole stdout."""

    status: int
    stdout: str
    stderr: str

    @property
    def lines(self) -> list[str]:
        return self.stdout.split("\n")[:-1] if self.stdout else []

    @property
    def exports(self) -> dict[str, str]:
        """Variables as Slurm would set them, line by line: the value is the rest of the line, verbatim."""
        return {name: value for name, value in self._changes.items() if value is not None}

    @property
    def unsets(self) -> list[str]:
        return [name for name, value in self._changes.items() if value is None]

    @property
    def _changes(self) -> dict[str, str | None]:
        found: dict[str, str | None] = {}
        for line in self.lines:
            verb, _, rest = line.partition(" ")
            name, _, value = rest.partition("=")
            if verb in ("export", "unset"):
                found[name] = value if verb == "export" else None
        return found

    @property
    def prints(self) -> list[str]:
        return [line.removeprefix("print ") for line in self.lines if line.startswith("print ")]

    def task_environment(self, before: Mapping[str, str]) -> dict[str, str]:
        """What the task has after the prolog, when it had `before` it."""
        after = {**before, **self.exports}
        return {name: value for name, value in after.items() if name not in self.unsets}


@dataclass(frozen=True)
class Script:
    """A script on disk and the shell that runs it."""

    command: tuple[str, ...]
    path: Path

    def run(self, environment: Mapping[str, str], *, timeout_s: float = 30) -> Ran:
        done = subprocess.run(
            [*self.command, str(self.path)],
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=timeout_s,
        )
        return Ran(done.returncode, os.fsdecode(done.stdout), os.fsdecode(done.stderr))

    def step(self, **changes: str | None) -> Ran:
        """Run in the step above with some variables set otherwise, or taken away (`None`)."""
        merged: dict[str, str | None] = {**STEP, **changes}
        return self.run({name: value for name, value in merged.items() if value is not None})


def write_script(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return path


def is_root() -> bool:
    return os.geteuid() == 0


#: Stands in the rendered test site for the directory of the test.
ROOT = "/lumisite-test-root"

#: What the test site has otherwise than LUMI: places that a test can make, and one shared file system that any `/` has.
_CHANGES = (
    ("path: /tmp,", f"path: {ROOT}/tmp,"),
    ("path: /scratch,", "path: /usr,"),
    ("path: /projappl,", f"path: {ROOT}/projappl,"),
    ("path: /opt/cray\n", f"path: {ROOT}/opt/cray\n"),
    ("path: /usr/lib64/libcxi.so.1\n", f"path: {ROOT}/libcxi.so.1\n"),
    ("path: /var/spool/slurmd\n", f"path: {ROOT}/spool\n"),
    ("    - {path: /appl/local/containers/tested-containers,", f"    - {{path: {ROOT}/images,"),
)


def lumi_like(*more: tuple[str, str]) -> LoadedSite:
    text = (EMBEDDED / "lumi.yaml").read_text()
    for old, new in (*_CHANGES, *more):
        assert old in text, f"lumi.yaml has no {old!r}"
        text = text.replace(old, new, 1)
    return load_text(text)


@functools.cache
def lumi_like_files(*rocm: str) -> dict[str, str]:
    return render_files(lumi_like(), rocm=rocm or ("6.2",))


@functools.cache
def _drivers() -> dict[str, str]:
    files = kernel_files(load_site("lumi").site, "lumi-g")
    return {path: text for path, text in files.items() if path.startswith(DRIVER)}


def lay_out(folder: Path, files: Mapping[str, str]) -> Path:
    """Write rendered files and what they look at on a LUMI-G node; return the directory of the scripts."""
    (folder / "spank/bin").mkdir(parents=True, exist_ok=True)
    for path, text in files.items():
        if path.endswith("bin/apptainer"):
            with suppress(FileExistsError):
                (folder / path).symlink_to(text)
        elif path.startswith("spank/"):
            script = text if path.endswith(".lua") else seen_in(folder, text)
            write_script(folder / path, script.replace(ROOT, str(folder)))
    be_node(folder, _drivers())
    for name in ("projappl", "opt/cray", "spool"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    (folder / "libcxi.so.1").touch()
    (folder / "tmp").mkdir(exist_ok=True)
    (folder / "tmp").chmod(0o1777)
    return folder / "spank"
