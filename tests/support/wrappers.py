"""The wrapper, run for real under a shell, with a runtime that writes down what it is given."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.support.prologs import ROOT, STEP, lay_out, lumi_like, render_files, shell_command, write_script

#: Stands for the real runtime: writes down the arguments and the environment that it was given.
RUNTIME = f"""#!{sys.executable} -SEs
import os, sys
here = os.path.dirname(os.path.abspath(sys.argv[0]))
open(here + "/arguments", "wb").write(b"".join(os.fsencode(word) + b"\\0" for word in sys.argv[1:]))
open(here + "/environment", "wb").write(open("/proc/self/environ", "rb").read())
"""

CPE = "LUMISITE_BINDS_SINGULARITY_CPEBITS"
USERS = "LUMISITE_BINDS_SINGULARITY_USERFILESYSTEMS"

#: What a task has after the module and the prolog, which leaves to the wrapper what the image decides.
TASK = {
    **STEP,
    "LUMISITE_STACK": "25.03-rocm6.2",
    "LUMISITE_DONE": "1234567.0.3",
    "LUMISITE_STEP": "25.03-rocm6.2/several/gpu/lumi-g",
    "LUMISITE_EXPORTS": ";NCCL_CROSS_NIC=1;",
    "LUMISITE_PRIVATE": "/private",
    "NCCL_CROSS_NIC": "1",
    "SINGULARITY_BINDPATH": f"/mine,/usr,{ROOT}/opt/cray,{ROOT}/libcxi.so.1,/sbin,/other",
    CPE: f"{ROOT}/opt/cray,{ROOT}/libcxi.so.1",
    USERS: "/usr",
    "LUMISITE_BINDS_TASK": "/sbin",
}

LUMI_PYTORCH = "/appl/local/containers/sif-images/lumi-pytorch-rocm-6.2.4-python-3.12-pytorch-v2.7.1.sif"
CONDA = "/scratch/me/lumi-pytorch-rocm-6.1.3-python-3.12-pytorch-v2.4.1.sif"
LAIF = "/appl/local/laifs/containers/lumi-multitorch-latest.sif"


@dataclass(frozen=True)
class Call:
    """What the real runtime was given."""

    arguments: list[str]
    environment: dict[str, str]
    stderr: str

    @property
    def binds(self) -> list[str]:
        return self.environment["SINGULARITY_BINDPATH"].split(",")


@dataclass(frozen=True)
class Wrapper:
    """The wrapper, its shell, and the place of the real runtime."""

    shell: tuple[str, ...]
    folder: Path

    @property
    def path(self) -> Path:
        return self.folder / "spank/bin/singularity"

    @property
    def runtime(self) -> Path:
        return self.folder / "runtime/singularity"

    def start(self, *arguments: str, environment: dict[str, str]) -> subprocess.CompletedProcess[bytes]:
        return subprocess.run(
            [*self.shell, str(self.path), *arguments], env=environment, capture_output=True, timeout=20, check=False
        )

    def call(self, *arguments: str, **changes: str | None) -> Call:
        merged: dict[str, str | None] = {**TASK, **changes}
        given = {name: text.replace(ROOT, str(self.folder)) for name, text in merged.items() if text is not None}
        done = self.start(*arguments, environment=given)
        assert done.returncode == 0, done.stderr
        assert done.stdout == b""
        return self.seen(os.fsdecode(done.stderr))

    @property
    def binds(self) -> str:
        """The list of binds of a task, as it is before the wrapper."""
        return TASK["SINGULARITY_BINDPATH"].replace(ROOT, str(self.folder))

    def seen(self, stderr: str = "") -> Call:
        words = os.fsdecode((self.runtime.parent / "arguments").read_bytes()).split("\0")[:-1]
        pairs = os.fsdecode((self.runtime.parent / "environment").read_bytes()).split("\0")[:-1]
        environment = dict(pair.split("=", 1) for pair in pairs)
        return Call(words, environment, stderr)


#: The real runtime is in the folder of the test.
RUNTIME_THERE = ("executable: /usr/bin/singularity", f"executable: {ROOT}/runtime/singularity")
FILES = render_files(lumi_like(RUNTIME_THERE), rocm=("6.2", "7.0"))


def make(folder: Path, shell: str, files: Mapping[str, str] = FILES) -> Wrapper:
    lay_out(folder, files)
    write_script(folder / "runtime/singularity", RUNTIME)
    write_script(folder / "runtime/apptainer", RUNTIME)
    return Wrapper(tuple(shell_command(shell, folder)), folder)


#: Arguments that a shell would take apart.
ODD = [
    "",
    " ",
    "a b",
    "new\nline\n",
    "'",
    '"',
    "\\",
    "$(reboot)",
    "`id`",
    "*",
    "--",
    "-",
    "ü\udcff",
    "\n",
    "!",
    "[",
    "=",
]
