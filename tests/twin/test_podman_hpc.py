"""Modules for podman-hpc in the real one (of PyPI), with Debian's podman and podman-hpc's own hook.

podman-hpc's default storage is an overlay of a user's own, which is no matter here: it is switched off, and the hook, the only
one of its defaults that a module needs, is given in podman's own configuration.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.support.sites import load_text, site_text
from tests.twin.cache import build_tool, cached
from tests.twin.lmod import render

pytestmark = [pytest.mark.root]

VERSION = "1.2.2"
HOSTILE = "100% of $5 {a} \"b\" 'c' \\d, `e` ümläut"
PROBE = "/lumisite-probe"

# A machine with both generations of control groups, as in many CI systems, is one that crun does not take.
_START = """
mount -t cgroup2 none /sys/fs/cgroup
mkdir -p "$1" && mount --bind "$2" "$1"
shift 2
exec "$@"
"""


def tools() -> Path:
    """Give podman-hpc, as pip unpacks it."""
    return cached("podman-hpc", {"version": VERSION}, _install) / "lib"


def _install(partial: Path) -> None:
    where = ["--target", str(partial / "lib")]
    build_tool([sys.executable, "-m", "pip", "install", "--quiet", *where, f"podman-hpc=={VERSION}"])


@pytest.fixture
def room(tmp_path: Path) -> Path:
    missing = [tool for tool in ("podman", "crun", "busybox", "unshare") if shutil.which(tool) is None]
    if os.geteuid() != 0 or missing:
        pytest.skip(f"real podman needs root, and {', '.join(missing) or 'nothing else'} (.ci/packages installs it)")
    lib, hook = tools(), {"PYTHONPATH": str(tools()), "PATH": os.environ["PATH"]}
    files = {
        "containers.conf": (
            '[containers]\ndefault_ulimits = ["nofile=1024:1024", "nproc=2000:2000"]\nnetns = "host"\ncgroups = "disabled"\n'
            f'[engine]\ncgroup_manager = "cgroupfs"\nhooks_dir = ["{tmp_path}/hooks"]\n'
        ),
        "storage.conf": f'[storage]\ndriver = "vfs"\ngraphroot = "{tmp_path}/graph"\nrunroot = "{tmp_path}/run"\n',
        "podman_hpc.yaml": "use_default_args: false\n",
        "hooks/02-hook_tool.json": json.dumps(
            {
                "version": "1.0.0",
                "hook": {
                    "path": sys.executable,
                    "args": ["python3", str(lib / "bin/hook_tool")],
                    "env": [f"{name}={value}" for name, value in hook.items()],
                },
                "when": {"annotations": {"podman_hpc.hook_tool": "true"}},
                "stages": ["prestart"],
            }
        ),
        "host/file": "of the host\n",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    image = tmp_path / "image"
    (image / "bin").mkdir(parents=True)
    shutil.copy(Path(str(shutil.which("busybox"))).resolve(), image / "bin/busybox")
    for name in ("sh", "env", "cat"):
        (image / "bin" / name).symlink_to("busybox")
    subprocess.run(["tar", "cf", str(tmp_path / "image.tar"), "-C", str(image), "."], check=True)
    run(tmp_path, "podman", "import", "--quiet", str(tmp_path / "image.tar"), "tiny").check_returncode()
    return tmp_path


def run(room: Path, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a command in a mount name space of its own."""
    variables: Mapping[str, str] = {
        "PATH": f"{tools() / 'bin'}:{os.environ['PATH']}",
        "HOME": str(room),
        "USER": "root",
        "LANG": "C.UTF-8",
        "PYTHONPATH": str(tools()),
        "CONTAINERS_CONF": str(room / "containers.conf"),
        "CONTAINERS_STORAGE_CONF": str(room / "storage.conf"),
        "PODMANHPC_CONFIG_FILE": str(room / "podman_hpc.yaml"),
        "PODMANHPC_MODULES_DIR": str(room / "out/podman-hpc/modules.d"),
        "SQUASH_DIR": str(room / "squash"),
        **environment,
    }
    start = ["unshare", "--mount", "sh", "-c", _START, "room", PROBE, str(room / "host")]
    return subprocess.run([*start, *words], env=variables, capture_output=True, text=True, timeout=120, check=False)


def podman_hpc(room: Path, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return run(room, sys.executable, str(tools() / "bin/podman-hpc"), *words, **environment)


@pytest.fixture
def tree(room: Path) -> Path:
    yaml = json.dumps(HOSTILE)
    changes = (
        (
            "    prefix: SINGULARITY\n",
            "    prefix: SINGULARITY\n    emit: podman-hpc\n    arguments: [--env=OF_THE_SITE=1]\n",
        ),
        (
            "binds:\n",
            f"binds:\n  - {{path: {PROBE}, target: /inside/probe, where: singularity-CPEbits, why: w, source: here}}\n",
        ),
        (
            "settings:\n",
            f"settings:\n  - {{name: HOSTILE, value: {yaml}, exact: yes, why: w, source: here}}\n",
        ),
    )
    return render(room / "out", load_text(site_text(*changes)))


def test_a_container_gets_what_the_module_says_and_what_the_task_has(room: Path, tree: Path) -> None:
    hook = ("--annotation", "podman_hpc.hook_tool=true", "--env", f"PODMANHPC_MODULES_DIR={tree}/podman-hpc/modules.d")
    inside = "env; cat /inside/probe/file"
    # As the task prolog leaves it: one variable is the task's, another is not set.
    task = {"MASTER_ADDR": "nid001"}
    done = podman_hpc(room, "run", "--rm", "--singularity-ai-bindings", *hook, "tiny", "sh", "-c", inside, **task)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert {
        f"HOSTILE={HOSTILE}",
        "OF_THE_SITE=1",
        "MASTER_ADDR=nid001",
        "NCCL_SOCKET_IFNAME=hsn0,hsn1,hsn2,hsn3",
    } <= set(lines)
    assert lines[-1] == "of the host"
    assert "MASTER_PORT" not in done.stdout
    without = podman_hpc(room, "run", "--rm", *hook, "tiny", "sh", "-c", inside, **task)
    assert "HOSTILE" not in without.stdout
    assert "MASTER_ADDR" not in without.stdout
    assert without.returncode != 0, "nothing is bound without the module"


def test_help_names_each_module_and_two_versions_at_once_are_warned_of(room: Path, tree: Path) -> None:
    told = podman_hpc(room, "run", "--help")
    for name in ("ai-bindings", "ai-bindings-25-03-rocm6-2", "ai-bindings-24-03", "cpebits", "userfilesystems"):
        assert f"--singularity-{name}" in told.stdout.split(), told.stderr
    assert "Everything that AI containers need on the twin" in " ".join(told.stdout.split())
    both = ("--singularity-ai-bindings", "--singularity-ai-bindings-24-03")
    done = podman_hpc(room, "run", "--rm", *both, "tiny", "sh", "-c", "env")
    assert "cannot be used together" in done.stderr
    assert done.returncode == 0
