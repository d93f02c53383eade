"""`check --host` on the host trees of the twin: silent on the right one, and every break of the other is named."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import yaml

from lumisite.cli import main
from tests.support.sites import site_text
from tests.twin.cluster import ClusterPlan, running
from tests.twin.fence import SCRIPTS
from tests.twin.fixtures import require_twin
from tests.twin.host_tree import host_tree
from tests.twin.image import image
from tests.twin.login_node import LUMISITE, install_lumisite

pytestmark = [pytest.mark.root]


@pytest.fixture(autouse=True)
def _twin() -> None:
    require_twin()


def node(platform: str, top: Path) -> Path:
    """A copy of a platform's tree with the file systems and a runtime."""
    shutil.copytree(host_tree(platform), top, symlinks=True)
    for name in ("scratch", "project", "projappl", "flash", "appl", "usr/bin", "var/spool/slurmd"):
        (top / name).mkdir(parents=True)
    (top / "usr/bin/singularity").write_text("#!/bin/sh\n")
    (top / "usr/bin/singularity").chmod(0o755)
    return top


BREAKS = {
    ("2026-01", "2026-01"): [],
    ("2024-08", "2024-08"): [],
    ("2026-01", "2024-08"): ["/opt/cray/libfabric/1.22.0", "/opt/cray/pe/mpich/8.1.32"],
    ("2024-08", "2026-01"): ["/opt/cray/libfabric/1.15.2.0", "/opt/cray/pe/mpich/8.1.29"],
}


@pytest.mark.parametrize(("release", "platform"), BREAKS)
def test_a_release_fits_its_own_platform_only(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], release: str, platform: str
) -> None:
    out, root = str(tmp_path / "out"), str(tmp_path / "root")
    assert main(["render", "--site", "twin", "--platform", release, "--out", out]) == 0
    assert main(["deploy", out, root, "--apply"]) == 0
    host = node(platform, tmp_path / "host")
    capsys.readouterr()
    expected = BREAKS[release, platform]
    code = main(["check", "twin", "--host", "--root", root, "--host-root", str(host), "--json"])
    assert [fault["path"] for fault in json.loads(capsys.readouterr().out)] == expected
    assert code == (1 if expected else 0)


def test_what_a_stored_plan_binds_is_looked_at_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A plan of the real image, made for one platform: silent on its own host, and on the other each file is named."""
    out, root, plan = (str(tmp_path / name) for name in ("out", "root", "torch.yaml"))
    own = node("2026-01", tmp_path / "own")
    words = ["--site", "twin", "--platform", "2026-01"]
    torch = str(image("torch"))
    planned = ["binds", torch, *words, "--host-root", str(own), "--write", plan]
    assert main([*planned, "--library", "libmpi_gtl_hsa.so.0"]) == 1, "a newer libfabric than the host's is refused"
    document = yaml.safe_load(Path(plan).read_text())
    for line in document["lines"]:
        if line["decision"] == "refuse":
            line["accepted"] = "one node is enough"
    Path(plan).write_text(yaml.safe_dump(document))
    bound = [line for line in document["lines"] if line["decision"] == "bind"]
    assert len(bound) > 2, "the image borrows the network and the GPU layer"
    (tmp_path / "planned.yaml").write_text(site_text(("\nmodules:\n", "\nplans: [torch.yaml]\nmodules:\n")))
    assert main(["render", "--site", str(tmp_path / "planned.yaml"), "--out", out]) == 0
    assert main(["deploy", out, root, "--apply"]) == 0

    def faults(host: Path) -> dict[str, list[str]]:
        capsys.readouterr()
        main(["check", "twin", "--host", "--root", root, "--host-root", str(host), "--json"])
        found: dict[str, list[str]] = {}
        for fault in json.loads(capsys.readouterr().out):
            key = fault["code"] if fault["code"] == "plan-image-changed" else fault["expected"]
            found.setdefault(key, []).append(fault["path"])
        return found

    assert faults(own) == {}
    binds = {line["source"] for line in bound if line["source"] != "/usr/lib64/libcxi.so.1"}
    other = node("2024-08", tmp_path / "other")
    gone = {path for path in binds if not (other / path[1:]).exists()}
    assert gone
    found = faults(other)
    # What is in the folder of a release that is missing follows from that.
    folders = tuple(f"{path}/" for paths in found.values() for path in paths)
    beside = {path for path in gone if not path.startswith(folders)}
    assert beside
    assert set(found["torch.yaml"]) == beside
    at = other / torch[1:]
    at.parent.mkdir(parents=True)
    at.write_bytes(b"another")
    assert faults(other)["plan-image-changed"] == [torch]


CLOCK = "/sys/devices/system/clocksource/clocksource0"
#: What is planted on one node at once, as it hides nothing of each other; what brings it back, if anything does; and the
#: path and the code of the line that names it.
PLANTED = (
    {
        "ip link set hsn2 down": ("ip link set hsn2 up", "hsn2 host-interface"),
        "mount -o remount,noexec /tmp": ("mount -o remount,exec /tmp", "/tmp host-mount"),
        "mount -o remount,bind,ro /scratch": ("mount -o remount,bind,rw /scratch", "/scratch host-mount"),
        "sed 's/^user bind control = yes/user bind control = no/' /etc/apptainer/apptainer.conf >/run/c; mount --bind /run/c /etc/apptainer/apptainer.conf": (
            "umount /etc/apptainer/apptainer.conf",
            "/etc/apptainer/apptainer.conf container-start",
        ),
        "(cat /etc/slurm/slurm.conf; echo TaskProlog=/no/task_prolog) >/run/p; mount --bind /run/p /etc/slurm/slurm.conf": (
            "umount /etc/slurm/slurm.conf",
            "/etc/slurm/slurm.conf slurm-prolog",
        ),
        f"mount -t tmpfs none {CLOCK} && echo hpet >{CLOCK}/current_clocksource": (
            f"umount {CLOCK}",
            "current_clocksource host-clock",
        ),
    },
    {
        "chmod 755 /tmp": ("chmod 1777 /tmp", "/tmp users-shut-out"),
        "cp --preserve=mode /usr/bin/singularity /run/s; : >/run/s; mount --bind /run/s $(readlink -f /usr/bin/singularity)": (
            "umount $(readlink -f /usr/bin/singularity)",
            "/usr/bin/singularity host-runtime",
        ),
        "mount --bind /broken /usr/lib64": ("umount -l /usr/lib64", "/usr/lib64/libcxi.so.1 library-damaged"),
    },
    {
        "mount -o remount,ro /tmp": ("", "/tmp host-mount"),
        "umount -l /flash": ("", "/flash host-mount"),
        "umount -l /scratch && rmdir /scratch && ln -s /pfs/none /scratch": ("", "/scratch host-path"),
        "ip address flush dev hsn1": ("", "hsn1 host-interface"),
        "ip link set hsn3 down && ip link set hsn3 name gone3": ("", "hsn3 host-interface"),
    },
)  # fmt: skip


#: A node laid out as on LUMI in turn: what is done to it, and the line that names it, if any.
BEHIND_LINKS = {
    "mkdir -p /pfs/lustref1 && mount --move /flash /pfs/lustref1 && ln -s /pfs/lustref1/p1 /flash/project_1": "",
    "setsid python3 /var/lib/twin/hung_mount.py /pfs/lustref1 </dev/null >/run/h 2>&1 & until grep h /run/h; do sleep 1; done": (
        "/pfs/lustref1 host-mount"
    ),
    "kill -KILL $(pgrep -f '[h]ung_mount.py'); umount -l /pfs/lustref1; rm /run/h": "",
    "mkdir /elsewhere && mount --move /pfs/lustref1 /elsewhere": ("/flash host-mount"),
    "rm /flash/project_1 && mount --move /elsewhere /flash && rmdir -p /elsewhere /pfs/lustref1 || [ ! -e /pfs ]": "",
}


def names(line: str, fault: str) -> bool:
    """Whether a line of `check --host` has a path and a code."""
    path, _, code = fault.partition(" ")
    return line.startswith(f"{path}: ") and line.endswith(f"[{code}]")


@pytest.mark.slurm
def test_a_fault_of_one_node_is_told_there_with_its_drain_line_and_nowhere_else(tmp_path: Path) -> None:
    with running(ClusterPlan(images=())) as cluster:
        install_lumisite(cluster)
        assert main(["render", "--site", "twin", "--out", str(tmp_path / "out")]) == 0
        assert main(["deploy", str(tmp_path / "out"), str(cluster.shared / "appl/lumisite"), "--apply"]) == 0
        bad, innocent = cluster.nodes
        shutil.copy(SCRIPTS / "hung_mount.py", cluster.exchange)
        check = f"{LUMISITE} check twin --host"
        for node_name in cluster.nodes:
            done = cluster.run(check, node=node_name)
            assert (done.code, done.stdout) == (0, ""), done.stderr
        cluster.run(
            "mkdir /broken && cp -a /usr/lib64/. /broken && : >/broken/libcxi.so.1", node=bad, user="root"
        ).check()
        for plant, line in BEHIND_LINKS.items():
            cluster.run(plant, node=bad, user="root").check()
            done = cluster.run(check, node=bad)
            assert [names(one, line) for one in done.stdout.splitlines()[:1]] == [True] * bool(line), done.stdout
            assert done.code == (5 if line else 0), (plant, done.stdout, done.stderr)
        for plants in PLANTED:
            for plant in plants:
                cluster.run(plant, node=bad, user="root").check()
            done = cluster.run(check, node=bad)
            *told, drain = done.stdout.splitlines()
            for plant, (_, line) in plants.items():
                assert sum(names(one, line) for one in told) == 1, (plant, done.stdout, done.stderr)
            assert (len(told), done.code) == (len(plants), 5), done.stdout
            assert f"scontrol update nodename={bad} state=drain reason='lumisite: " in drain
            assert cluster.run(check, node=innocent).stdout == ""
            for undo in filter(None, (undo for undo, _ in plants.values())):
                cluster.run(undo, node=bad, user="root").check()
