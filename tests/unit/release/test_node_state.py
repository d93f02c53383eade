"""`check --host`: what is wrong with one node alone, told once, with the line that drains it, and exit code 5."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lumisite.cli import main
from lumisite.machine.host import DiskTree
from lumisite.release.check_host import local_faults, shared_faults
from lumisite.release.check_host_node import Node
from lumisite.site.load import load_site
from tests.support.dict_trees import Files, Link, write_tree
from tests.support.elves import elf
from tests.support.sites import load_text, site_text
from tests.unit.machine.test_reach import FIVE, LUMI
from tests.unit.machine.test_reach import table as lustre
from tests.unit.release.test_node_check import FABRIC, LIBCXI, host, node

Output = pytest.CaptureFixture[str]
PLUGIN = "/opt/cray/aws-ofi-rccl/lib/librccl-net.so"
ROOT = "21 1 0:20 / / rw,relatime - tmpfs rootfs rw\n22 21 0:4 / /proc rw - proc proc rw\n"
SHARED = ("scratch", "project", "projappl", "flash", "appl")
__all__ = ["node"]


def table(*points: str) -> bytes:
    """A mount table as the kernel writes it, with shared file systems at some points."""
    lines = (
        f"{30 + number} 21 0:{number} / {point} rw - lustre 10.0.0.1@o2ib:/x rw" for number, point in enumerate(points)
    )
    return (ROOT + "\n".join(lines) + "\n").encode()


def good() -> dict[str, bytes | Link]:
    """A compute node called nid001 with all file systems and interfaces."""
    net = {f"/sys/class/net/hsn{number}/operstate": b"up\n" for number in range(4)}
    return (
        host()
        | net
        | {
            "/proc/self/mountinfo": table(*(f"/{name}" for name in SHARED)),
            "/etc/hostname": b"nid001\n",
            "/tmp/.keep": b"",
            "/sys/class/net/lo/operstate": b"unknown\n",
            "/var/spool/slurmd/.keep": b"",
        }
    )


def checked(capsys: Output) -> tuple[int, list[dict[str, Any]]]:
    capsys.readouterr()
    code = main(["check", "twin", "--host", "--root", "root", "--host-root", "host", "--json"])
    return code, json.loads(capsys.readouterr().out)


@pytest.fixture
def nid(node: Callable[[Files], Path]) -> Callable[[dict[str, bytes | Link | None]], Path]:
    def write(change: dict[str, bytes | Link | None]) -> Path:
        top = node({path: content for path, content in (good() | change).items() if content is not None})
        (top / "tmp").chmod(0o1777)
        return top

    return write


def test_a_good_node_is_silent(nid: Callable[..., Path], capsys: Output) -> None:
    nid({})
    assert checked(capsys) == (0, [])


ALONE: dict[str, tuple[dict[str, bytes | Link | None], str, str, str]] = {
    "not mounted, but the mount point stands": (
        {"/proc/self/mountinfo": table("/scratch", "/project", "/projappl", "/appl")},
        "/flash",
        "host-mount",
        "mount /flash",
    ),
    "not mounted where a link leads": (
        {"/scratch/.keep": None, "/scratch": Link("/pfs/lustrep1/scratch"), "/pfs/lustrep1/scratch/.keep": b""},
        "/scratch",
        "host-mount",
        "mount /pfs/lustrep1/scratch",
    ),
    "a link to nowhere": (
        {"/scratch/.keep": None, "/scratch": Link("/pfs/lustrep1/scratch")},
        "/scratch",
        "host-path",
        "repair the link",
    ),
    "no mount point": (
        {"/flash/.keep": None},
        "/flash",
        "host-path",
        "if the system was updated",
    ),
    "an interface gone": (
        {"/sys/class/net/hsn2/operstate": None},
        "hsn2",
        "host-interface",
        "lspci",
    ),
    "an interface down": (
        {"/sys/class/net/hsn0/operstate": b"down\n"},
        "hsn0",
        "host-interface",
        "ip link set hsn0 up",
    ),
    "a library gone": ({f"{LIBCXI}.6.0": None, LIBCXI: None}, LIBCXI, "host-path", "restore the path"),
    "a library of zero bytes": (
        {f"{LIBCXI}.6.0": b""},
        LIBCXI,
        "library-damaged",
        "restore",
    ),
    "a library of a library of zero bytes": (
        {"/usr/lib64/libjson-c.so.5": b""},
        "/usr/lib64/libjson-c.so.5",
        "library-damaged",
        "install its package",
    ),
}


def projects(*points: str) -> dict[str, bytes | Link | None]:
    """A node on which the shared paths hold a link for each project, and whose file systems are mounted elsewhere."""
    links = {
        f"/{name}/project_{at}": Link(f"{point}/{name}/p{at}") for name in SHARED for at, point in enumerate(points)
    }
    return {**{f"/{name}/.keep": None for name in SHARED}, **links, "/proc/self/mountinfo": table(*points)}


def test_a_node_whose_shared_paths_hold_links_into_mounts_is_silent(nid: Callable[..., Path], capsys: Output) -> None:
    nid(projects("/pfs/lustrep1", "/pfs/lustrep3"))
    assert checked(capsys) == (0, [])


def test_lumi_s_own_file_systems_are_none_of_the_faults_of_its_node(tmp_path: Path) -> None:
    host = DiskTree(str(write_tree(tmp_path, LUMI | {"/proc/self/mountinfo": lustre(**FIVE)})))
    site = load_site("lumi").site
    assert list(shared_faults(Node(site, host))) == []
    (tmp_path / "pfs/lustrep3/.keep").unlink()
    (tmp_path / "proc/self/mountinfo").write_bytes(lustre(**{name: FIVE[name] for name in FIVE if "p3" not in name}))
    faults = list(shared_faults(Node(site, host)))
    assert {one.at for one in faults} == {"/pfs/lustrep3"}
    assert [one.finding.subject for one in faults] == ["/scratch", "/projappl", "/appl"]


def test_one_mount_that_is_missing_behind_links_is_told_once(nid: Callable[..., Path], capsys: Output) -> None:
    top = nid(projects("/pfs/lustrep1", "/pfs/lustrep3") | {"/proc/self/mountinfo": table("/pfs/lustrep1")})
    (top / "pfs/lustrep3").mkdir(parents=True)
    code, (fault,) = checked(capsys)
    assert (code, fault["path"], fault["remedy"]) == (5, "/scratch", "mount /pfs/lustrep3")
    assert fault["code"] == "host-mount"
    assert "/scratch/project_1" in fault["found"]


def test_a_path_all_of_whose_links_lead_to_one_missing_mount_is_told_once(
    nid: Callable[..., Path], capsys: Output
) -> None:
    change = {"/flash/.keep": None, "/flash/project_1": Link("/pfs/lustref1/flash/project_1")}
    top = nid(change | {"/proc/self/mountinfo": table(*(f"/{name}" for name in SHARED if name != "flash"))})
    (top / "pfs/lustref1").mkdir(parents=True)
    code, (fault,) = checked(capsys)
    assert (code, fault["path"], fault["remedy"]) == (5, "/flash", "mount /pfs/lustref1")


@pytest.mark.parametrize("case", ALONE)
def test_what_only_this_node_can_have_is_told_once_with_its_drain_line(
    nid: Callable[..., Path], capsys: Output, case: str
) -> None:
    change, path, found, remedy = ALONE[case]
    nid(change)
    code, (fault,) = checked(capsys)
    assert (fault["path"], fault["code"]) == (path, found)
    assert remedy in fault["remedy"]
    drain = f"scontrol update nodename=nid001 state=drain reason='lumisite: {path}'"
    assert (code, fault["drain"]) == (5, drain)
    main(["check", "twin", "--host", "--root", "root", "--host-root", "host"])
    assert capsys.readouterr().out.splitlines()[1:] == [
        f"to drain this node, if others of its kind pass (command is not executed): {drain}"
    ]


@pytest.mark.parametrize(
    ("path", "mode", "right"), [("/tmp", 0o755, "chmod 1777 /tmp"), ("/flash", 0o700, "chmod o+x")]
)
def test_a_folder_that_users_may_not_use_is_the_nodes(
    nid: Callable[..., Path], capsys: Output, path: str, mode: int, right: str
) -> None:
    (nid({}) / path[1:]).chmod(mode)
    code, (fault,) = checked(capsys)
    assert (code, fault["path"]) == (5, path)
    assert right in fault["remedy"]


def test_a_local_folder_that_was_never_for_users_is_not_to_be_opened_to_all(tmp_path: Path) -> None:
    (tmp_path / "local").mkdir(mode=0o755)
    site = load_text(site_text(("{path: /tmp, kind: node-local,", "{path: /local, kind: node-local,"))).site
    node = Node(site, DiskTree(str(tmp_path)))
    (fault,) = local_faults(node)
    assert (fault.finding.code, fault.finding.subject) == ("users-shut-out", "/local")
    write_tree(tmp_path, {"/proc/self/mountinfo": (ROOT + "40 21 0:9 / /local ro - ext4 /dev/sda1 rw\n").encode()})
    assert [one.finding.code for one in local_faults(Node(site, node.host))] == ["host-mount"]


def test_software_may_be_mounted_read_only_and_the_data_of_projects_may_not(
    nid: Callable[..., Path], capsys: Output
) -> None:
    mounts = table(*(f"/{name}" for name in SHARED)).replace(b"/appl rw - lustre", b"/appl ro - lustre")
    nid({"/proc/self/mountinfo": mounts})
    assert checked(capsys) == (0, [])
    Path("host/proc/self/mountinfo").write_bytes(mounts.replace(b"/project rw", b"/project ro"))
    code, (fault,) = checked(capsys)
    assert (code, fault["path"], fault["remedy"]) == (5, "/project", "mount -o remount,rw /project")


def test_a_read_only_tmp_is_the_nodes(nid: Callable[..., Path], capsys: Output) -> None:
    nid({"/proc/self/mountinfo": table(*(f"/{name}" for name in SHARED)) + b"90 21 0:9 / /tmp ro - tmpfs tmp rw\n"})
    code, (fault,) = checked(capsys)
    assert (code, fault["path"], fault["code"]) == (5, "/tmp", "host-mount")


SYSTEM: dict[str, tuple[dict[str, bytes | Link | None], list[tuple[str, str]]]] = {
    "an update of one library": (
        {f"{LIBCXI}.6.0": None, f"{LIBCXI}.7.0": elf("libcxi.so.1")},
        [(LIBCXI, "host-path")],
    ),
    "half an update": (
        {
            f"{LIBCXI}.6.0": elf("libcxi.so.1", verdef=["LIBCXI_1.5"]),
            f"{FABRIC}.29.0": elf(
                "libfabric.so.1", ["libcxi.so.1"], verneed={"libcxi.so.1": ["LIBCXI_1.5", "LIBCXI_1.6"]}
            ),
        },
        [(LIBCXI, "host-library")],
    ),
    "a plugin where only modules lead, built for a newer libfabric": (
        {
            f"{FABRIC}.29.0": elf("libfabric.so.1", verdef=["FABRIC_1.4", "FABRIC_1.5"]),
            PLUGIN: elf("librccl-net.so", ["libfabric.so.1"], verneed={"libfabric.so.1": ["FABRIC_1.6"]}),
        },
        [(FABRIC, "host-library")],
    ),
    "a libfabric of the same SONAME, older than what Cray MPICH was linked to": (
        {
            "/opt/cray/pe/mpich/8.1.32/lib/libmpi.so.12": elf(
                "libmpi.so.12", ["libfabric.so.1"], verneed={"libfabric.so.1": ["FABRIC_1.3", "FABRIC_1.7"]}
            ),
            f"{FABRIC}.29.0": elf("libfabric.so.1", verdef=["FABRIC_1.0", "FABRIC_1.3"]),
        },
        [(FABRIC, "host-library")],
    ),
    "the stack is another one": (
        {
            FABRIC: None,
            f"{FABRIC}.29.0": None,
            "/opt/cray/libfabric/2.0.1/lib64/libfabric.so.1": elf("libfabric.so.1"),
        },
        [("/opt/cray/libfabric/1.22.0", "host-path")],
    ),
}


@pytest.mark.parametrize("case", SYSTEM)
def test_what_the_whole_system_may_have_drains_no_node(nid: Callable[..., Path], capsys: Output, case: str) -> None:
    change, expected = SYSTEM[case]
    nid(change)
    code, faults = checked(capsys)
    assert [(one["path"], one["code"]) for one in faults] == expected
    assert code == 1
    assert not any("drain" in one for one in faults)


def test_with_a_fault_of_the_system_the_exit_code_is_not_that_of_a_node(
    nid: Callable[..., Path], capsys: Output
) -> None:
    nid({f"{LIBCXI}.6.0": elf("libcxi.so.2"), "/sys/class/net/hsn2/operstate": None})
    code, faults = checked(capsys)
    assert code == 1
    assert [("drain" in one, one["path"]) for one in faults] == [(False, LIBCXI), (True, "hsn2")]


@pytest.mark.parametrize(
    "lacking",
    [
        {f"/sys/class/net/hsn{number}/operstate": None for number in range(4)} | {"/var/spool/slurmd/.keep": None},
        {"/proc/self/mountinfo": None},
        {"/proc/self/mountinfo": b"damaged\n\xff - \n"},
        {"/proc/self/mountinfo": b"30 21 0:1 / /home rw - ext4 /dev/sda rw\n"},
        {"/sys/class/net/hsn1/operstate": b"unknown\n"},
    ],
)
def test_what_cannot_be_known_is_not_said(
    nid: Callable[..., Path], capsys: Output, lacking: dict[str, bytes | Link | None]
) -> None:
    nid(lacking)
    assert checked(capsys) == (0, [])


def test_the_file_system_that_holds_the_release_is_told_where_it_is_not_mounted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Output
) -> None:
    monkeypatch.chdir(tmp_path)
    write_tree(tmp_path / "host", good() | {"/proc/self/mountinfo": table("/scratch")})
    site = site_text(("root: /appl/lumisite", "root: /appl/no-such-place"))
    Path("site.yaml").write_text(site)
    assert main(["check", "site.yaml", "--host", "--host-root", "host"]) == 5
    out = capsys.readouterr().out
    assert re.search(r"^/appl: .*\[host-mount\]$", out, re.MULTILINE)
    assert "state=drain" in out


def test_a_folder_that_is_shut_is_told_by_its_mode_to_users_too(
    nid: Callable[..., Path], capsys: Output, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A user sees nothing below it: that is not gone, and libraries that stand there are not missing."""
    (nid({}) / "opt/cray").chmod(0o700)
    look = DiskTree.look
    monkeypatch.setattr(
        DiskTree, "look", lambda tree, path: None if path.startswith("/opt/cray/") else look(tree, path)
    )
    code, (fault,) = checked(capsys)
    assert (code, fault["remedy"]) == (5, "chmod o+x /opt/cray")
    assert fault["code"] == "users-shut-out"
    assert "/opt/cray has mode 0700" in fault["found"]


@pytest.mark.parametrize("root", [True, False])
@pytest.mark.parametrize("path", [f"{FABRIC}.29.0", "/usr/lib64/libjson-c.so.5", f"{LIBCXI}.6.0"])
def test_a_library_that_users_may_not_read_is_told_by_its_mode(
    nid: Callable[..., Path], capsys: Output, monkeypatch: pytest.MonkeyPatch, path: str, *, root: bool
) -> None:
    """Bound, needed by what is bound, or asked for by a family; as root, who may read it, and as a user."""
    (nid({}) / path[1:]).chmod(0o600)
    source = DiskTree.source
    if not root:
        monkeypatch.setattr(DiskTree, "source", lambda tree, at: None if at == path else source(tree, at))
    code, (fault,) = checked(capsys)
    assert (code, fault["code"], fault["remedy"]) == (5, "users-shut-out", f"chmod o+r {path}")
