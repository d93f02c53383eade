"""CDI devices in real containers: Debian's podman, and podman-hpc (of PyPI) and a module of its kind on top of it.

podman-hpc's default storage is an overlay of a user's own, which is no matter here: it is switched off.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from lumisite.cli import main
from tests.support.sites import load_text
from tests.twin.cache import build_tool, cached
from tests.twin.lmod import render

pytestmark = [pytest.mark.root]

VERSION = "1.2.2"
HOSTILE = "100% of $5 {a} \"b\" 'c' \\d, `e` ümläut"

# A machine with both generations of control groups, as in many CI systems, is one that crun does not take. The node has
# an adapter, whose device reads as /dev/zero does, and a folder /etc/cdi, which leads to the files of a deployed release.
_START = """
set -e
mount -t cgroup2 none /sys/fs/cgroup
mount -t tmpfs tmpfs "$1/layers"
mount -t tmpfs tmpfs /run # podman's own, with paths short enough for a socket, or it waits 20 s for the end of a container
mkdir -m 700 /run/root /run/diver
chown 2000:2000 /run/diver
for top in etc dev; do
    mkdir "$1/layers/$top" "$1/layers/$top-work" "$1/layers/$top-all"
    mount -t overlay overlay -o "lowerdir=/$top,upperdir=$1/layers/$top,workdir=$1/layers/$top-work" "$1/layers/$top-all"
done
for below in shm pts; do mount --rbind "/dev/$below" "$1/layers/dev-all/$below"; done
mount --rbind "$1/layers/etc-all" /etc
mount --rbind "$1/layers/dev-all" /dev
mknod /dev/cxi0 c 1 5
chmod 666 /dev/cxi0 /dev/null
echo 'diver:x:2000:2000::/:/bin/sh' >>/etc/passwd
mkdir -p /etc/cdi
[ -z "$2" ] || ln -s "$2"/current/cdi/*.json /etc/cdi/
shift 2
"$@" || exit # and not exec: the first process here has to bury what has lost its parent
"""

SITE = """
lumisite: 2
name: reef
title: Reef
root: /opt/lumisite
support: {{name: Reef, contact: reef}}
stacks: {{}}
runtimes:
  podman: {{emit: cdi, variant: 4.3, source: here}}
fabric: {{interfaces: [hsn0], carrier: cxi, source: here}}
file_systems:
  - {{path: '{top}/scratch', kind: shared, where: reef-files, why: work, source: here}}
platform: 2026-01
platforms: {{2026-01: {{since: 2026-01-21, os: Debian, source: here}}}}
node_kinds: {{cpu: {{memory_mib: 1000, l3: [{{cores: 0, numa: 0}}], nics: [{{interface: hsn0, numa: 0}}], source: here}}}}
partitions: {{all: {{node_kind: cpu, whole_nodes: yes, source: here}}}}
families:
  tiny: {{title: tiny, paths: ['*'], modules: [reef-files], plugin: none, why: all, source: here}}
binds:
  - {{path: '{top}/host', target: /inside/probe, options: ro, where: task, why: a probe, source: here}}
  - {{path: /lacking, where: task, required: no, why: only some nodes have it, source: here}}
settings:
  - {{name: HOSTILE, value: {hostile}, exact: yes, why: what a shell reads, source: here}}
  - {{name: NCCL_NET_GDR_LEVEL, value: PHB, when: {{nodes: several}}, why: several nodes, source: here}}
  - {{name: MASTER_ADDR, computed: master-address, why: the first node, source: here}}
modules:
  reef-files: {{template: singularity-userfilesystems, version: [platform], summary: all, helper: yes}}
"""
#: All that a container shows: its variables, what is bound, and a byte of the adapter's device.
LOOK = (
    "env; cat /inside/probe/file {top}/scratch/file; head -c1 /dev/cxi0 | tr '\\0' z; echo; echo x >/inside/probe/file"
)


#: Who starts containers: root, and an ordinary user without root's rights, as on HPC sites.
USERS = {"root": 0, "diver": 2000}


def tools() -> Path:
    """Give podman-hpc, as pip unpacks it."""
    return cached("podman-hpc", {"version": VERSION}, _install) / "lib"


def _install(partial: Path) -> None:
    where = ["--target", str(partial / "lib")]
    build_tool([sys.executable, "-m", "pip", "install", "--quiet", *where, f"podman-hpc=={VERSION}"])


@pytest.fixture(scope="module")
def room() -> Iterator[Path]:
    """Make a node with an image `tiny`, for root and for a user, and with a deployed release."""
    missing = [tool for tool in ("podman", "crun", "busybox", "unshare") if shutil.which(tool) is None]
    if os.geteuid() != 0 or missing:
        pytest.skip(f"real podman needs root, and {', '.join(missing) or 'nothing else'} (.ci/packages installs it)")
    with tempfile.TemporaryDirectory(prefix="lumisite-cdi-") as name:
        _furnish(Path(name))
        yield Path(name)


def _furnish(room: Path) -> None:
    room.chmod(0o755)
    files = {
        "containers.conf": (
            '[containers]\ndefault_ulimits = ["nofile=1024:1024", "nproc=2000:2000"]\nnetns = "host"\n'
            'cgroups = "disabled"\n[engine]\ncgroup_manager = "cgroupfs"\nlock_type = "file"\n'
        ),
        "podman_hpc.yaml": "use_default_args: false\n",
        "host/file": "of the host\n",
        "scratch/file": "of scratch\n",
        "layers/empty": "",
    }
    for user in USERS:
        top = room / f"of-{user}"
        files[f"of-{user}/storage.conf"] = (
            f'[storage]\ndriver = "vfs"\ngraphroot = "{top}/graph"\nrunroot = "{top}/run"\n'
            '[storage.options]\nignore_chown_errors = "true"\n'
        )
    for name, text in files.items():
        (room / name).parent.mkdir(exist_ok=True)
        (room / name).write_text(text)
    image = room / "image"
    (image / "bin").mkdir(parents=True)
    shutil.copy(Path(str(shutil.which("busybox"))).resolve(), image / "bin/busybox")
    for name in ("sh", "env", "cat", "head", "tr"):
        (image / "bin" / name).symlink_to("busybox")
    subprocess.run(["tar", "cf", str(room / "image.tar"), "-C", str(image), "."], check=True)
    for user, number in USERS.items():
        os.chown(room / f"of-{user}", number, number)
        (room / f"of-{user}").chmod(0o700)
        run(room, "podman", "import", "--quiet", str(room / "image.tar"), "tiny", user=user).check_returncode()
    render(room / "out", load_text(SITE.format(top=room, hostile=json.dumps(HOSTILE))))
    assert main(["deploy", str(room / "out"), str(room / "root"), "--apply"]) == 0


def run(room: Path, *words: str, user: str = "root", **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a command on the node."""
    variables: Mapping[str, str] = {
        "PATH": f"{tools() / 'bin'}:{os.environ['PATH']}",
        "HOME": str(room / f"of-{user}"),
        "USER": user,
        "XDG_RUNTIME_DIR": f"/run/{user}",
        "LANG": "C.UTF-8",
        "PYTHONPATH": str(tools()),
        "CONTAINERS_CONF": str(room / "containers.conf"),
        "CONTAINERS_STORAGE_CONF": str(room / f"of-{user}/storage.conf"),
        "PODMANHPC_CONFIG_FILE": str(room / "podman_hpc.yaml"),
        "PODMANHPC_MODULES_DIR": str(room / "modules.d"),
        "SQUASH_DIR": str(room / "squash"),
        **environment,
    }
    deployed = room / "root" if (room / "root").exists() else ""
    # A user's podman leaves a process behind whose mounts the next one would take; it ends with its name space.
    apart = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
    start = [*apart, "sh", "-c", _START, "room", str(room), str(deployed)]
    become = ["setpriv", f"--reuid={USERS[user]}", f"--regid={USERS[user]}", "--clear-groups"] if USERS[user] else []
    return subprocess.run(
        [*start, *become, *words], cwd="/", env=variables, capture_output=True, text=True, timeout=120, check=False
    )


def look(room: Path, *words: str, user: str = "root", **environment: str) -> subprocess.CompletedProcess[str]:
    """Start a container by a command that ends with its options, and look around in it."""
    return run(room, *words, "tiny", "sh", "-c", LOOK.format(top=room), user=user, **environment)


@pytest.mark.parametrize("user", USERS)
def test_a_container_finds_binds_devices_and_variables_with_the_device_and_not_without(room: Path, user: str) -> None:
    done = look(room, "podman", "run", "--rm", "--device=reef/tiny=cpu", user=user)
    lines = done.stdout.splitlines()
    assert {f"HOSTILE={HOSTILE}", "LUMISITE_DEVICE=reef/tiny=cpu"} <= set(lines), done.stderr
    assert lines[-3:] == ["of the host", "of scratch", "z"]
    assert "Read-only file system" in done.stderr
    assert "NCCL_NET_GDR_LEVEL" not in done.stdout
    assert (room / "host/file").read_text() == "of the host\n"
    without = look(room, "podman", "run", "--rm", user=user)
    assert "HOSTILE" not in without.stdout
    assert "of " not in without.stdout
    for path in ("/inside/probe/file", f"{room}/scratch/file", "/dev/cxi0"):
        assert re.search(rf"{path}\W+No such file", without.stderr)


def test_the_options_that_env_prints_start_a_container(room: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The variables of the task come along, by name; a container for several nodes has what they need."""
    (room / "site.yaml").write_text(SITE.format(top=room, hostile=json.dumps(HOSTILE)))
    words = ["env", "tiny", "--site", str(room / "site.yaml"), "--runtime", "podman", "--nodes", "2", "--json"]
    capsys.readouterr()
    assert main(words) == 0
    told = json.loads(capsys.readouterr().out)
    done = look(room, "podman", "run", "--rm", *told["options"], MASTER_ADDR="nid001")
    found = set(done.stdout.splitlines())
    said = {f"{name}={one['value']}" for name, one in told["variables"].items() if one["by"] == "device"}
    assert "NCCL_NET_GDR_LEVEL=PHB" in said
    assert said | {"MASTER_ADDR=nid001"} <= found, done.stderr


def test_podman_refuses_a_device_that_no_file_has_or_whose_path_the_node_lacks(room: Path) -> None:
    assert run(room, "podman", "run", "--rm", "--device=reef/tiny=gpu", "tiny", "true").returncode != 0
    (room / "scratch").rename(room / "elsewhere")
    done = run(room, "podman", "run", "--rm", "--device=reef/tiny=cpu", "tiny", "true")
    (room / "elsewhere").rename(room / "scratch")
    assert done.returncode != 0
    assert f"{room}/scratch" in done.stderr


def test_a_value_of_the_device_wins_over_one_of_the_command_line(room: Path) -> None:
    """As the pages say: a user who wants another one sets it inside."""
    done = look(room, "podman", "run", "--rm", "--device=reef/tiny=cpu", "--env=HOSTILE=mine", "--env=OTHER=mine")
    assert {f"HOSTILE={HOSTILE}", "OTHER=mine"} <= set(done.stdout.splitlines())


def test_podman_hpc_takes_the_device_as_an_option_and_from_the_module_of_two_lines_on_its_page(room: Path) -> None:
    page = Path(__file__).parents[2] / "docs/how-to/containers-by-device.md"
    (module,) = re.findall(r"```yaml\n(name: .*?)```", page.read_text(), re.DOTALL)
    (room / "modules.d").mkdir(exist_ok=True)
    (room / "modules.d/site.yaml").write_text(module.replace("hpc.example.org/pytorch=gpu", "reef/tiny=cpu"))
    hpc = (sys.executable, str(tools() / "bin/podman-hpc"), "run", "--rm")
    for words in (("--device=reef/tiny=cpu", "--env=MASTER_ADDR"), ("--site",)):
        lines = look(room, *hpc, *words, MASTER_ADDR="nid001").stdout.splitlines()
        assert {f"HOSTILE={HOSTILE}", "MASTER_ADDR=nid001"} <= set(lines), words
        assert lines[-3:] == ["of the host", "of scratch", "z"], words
    assert "HOSTILE" not in look(room, *hpc).stdout
