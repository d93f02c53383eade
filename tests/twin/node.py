"""One node: its folder on this machine, its start, and commands inside it."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import stat
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from lumisite.errors import ToolError
from tests.twin import fence, network
from tests.twin.fence import ProcessId
from tests.twin.network import Host
from tests.twin.process import run_or_refuse

_FOR_ALL = stat.S_IFCHR | 0o666
#: The mode and the major and minor number of what /dev has. An ordinary user needs /dev/fuse, which is root's alone on
#: most machines; the GPUs have no driver, and are there for Slurm to hand out; images are mounted from loop devices.
DEVICES = {
    "null": (_FOR_ALL, 1, 3),
    "zero": (_FOR_ALL, 1, 5),
    "full": (_FOR_ALL, 1, 7),
    "random": (_FOR_ALL, 1, 8),
    "urandom": (_FOR_ALL, 1, 9),
    "tty": (_FOR_ALL, 5, 0),
    "fuse": (_FOR_ALL, 10, 229),
    **{f"dri/renderD{128 + gpu}": (_FOR_ALL, 1, 3) for gpu in range(8)},
    "loop-control": (stat.S_IFCHR | 0o660, 10, 237),
    **{f"loop{number}": (stat.S_IFBLK | 0o660, 7, number) for number in range(32)},
}

CONTROLLER_MARK = "lumisite-twin-controller"


@dataclass(frozen=True)
class Bind:
    """A folder or file of this machine that a node sees at `target`."""

    source: Path
    target: str
    writable: bool = False


@dataclass(frozen=True)
class NodePlan:
    """Everything that a node's start reads.

    `lower`: root folders, the first wins; `etc`: files by name,
    those that start with #! executable.
    """

    cluster: str
    host: Host
    lower: tuple[Path, ...]
    binds: tuple[Bind, ...]
    etc: Mapping[str, bytes]
    rates: Mapping[str, str]
    """How fast interfaces send that are limited, by name."""


def write_node(plan: NodePlan, folder: Path) -> None:
    """Write the folder that `start_node` reads; it holds the node's devices too, as its copy is quicker than its making."""
    folder.mkdir(parents=True)
    for script in ("start_node.sh", "node_init.sh", "boot.sh"):
        shutil.copy(fence.SCRIPTS / script, folder)
    (folder / "root").write_text(":".join(map(str, plan.lower)))
    rows = (f"{'rw' if bind.writable else 'ro'} {bind.source} {bind.target}\n" for bind in plan.binds)
    (folder / "binds").write_text("".join(rows))
    (folder / "links.batch").write_text(network.link_commands(plan.host, "@PID@"))
    (folder / "addresses").write_text(network.address_commands(plan.host))
    for name, (mode, major, minor) in DEVICES.items():
        path = folder / "dev" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        os.mknod(path, mode, os.makedev(major, minor))
        path.chmod(stat.S_IMODE(mode))
    for name, content in plan.etc.items():
        path = folder / "etc" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        path.chmod(0o755 if content.startswith(b"#!") else 0o644)


def start_node(plan: NodePlan, folder: Path, holder: ProcessId) -> None:
    """Start a node below the fence `holder`, from its folder, and limit its interfaces."""
    start = f'cd "{folder}" && exec sh start_node.sh {plan.cluster} {plan.host.name}'
    run_or_refuse(fence.enter(holder, ["sh", "-c", start]))
    try:
        first = fence.find_first("/run/boot.sh", plan.cluster, plan.host.name, within_s=300)
    except ToolError as late:
        said = " | ".join((folder / "console.log").read_text(errors="replace").splitlines()[-8:])
        raise ToolError(f"node {plan.host.name} did not start: {said or late}") from late
    (folder / "first.json").write_text(json.dumps(asdict(first)))
    limits = "; ".join(shlex.join(network.throttle_command(name, rate)) for name, rate in plan.rates.items())
    run_or_refuse(fence.enter(first, ["sh", "-ec", limits]))


def first_process(folder: Path) -> ProcessId:
    """Give a node's first process. Raises `ToolError` if the node does not run."""
    try:
        first = ProcessId(**json.loads((folder / "first.json").read_text()))
    except FileNotFoundError:
        first = None
    if first is None or not fence.is_alive(first):
        raise ToolError(f"node {folder.name} does not run")
    return first


def as_user(argv: Sequence[str], user: str, user_id: int, environment: Mapping[str, str]) -> list[str]:
    """Give the command that runs `argv` with a clean environment as a user, in its home."""
    clean = {
        "HOME": "/root" if user_id == 0 else f"/users/{user}",
        "USER": user,
        "LOGNAME": user,
        "SHELL": "/bin/bash",
        "LANG": "C.UTF-8",
        "TERM": "dumb",
        # What Lmod takes where it can ask nobody; else each of thousands of calls asks two programs.
        "LMOD_TERM_WIDTH": "80",
        "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        **environment,
    }
    become = ["setpriv", f"--reuid={user_id}", f"--regid={user_id}", "--init-groups"]
    return [*become, "env", "-i", *(f"{name}={value}" for name, value in clean.items()), *argv]
