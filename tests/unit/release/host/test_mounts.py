"""`check --host`: mounts, interfaces and modes of one node, each told once, with the line that drains it, and code 5."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from lumisite.cli import main
from lumisite.machine.host import DiskTree
from lumisite.release.host.mounts import cache_mounts, shared_mounts
from lumisite.release.host.node import Node as CheckedNode
from lumisite.site.load import load_site
from tests.support.dict_trees import Link, write_tree
from tests.support.elves import elf
from tests.support.sites import load_text, site_text
from tests.support.twin_hosts import FABRIC, LIBCXI, SHARED, host
from tests.unit.machine.test_reach import FIVE, LUMI
from tests.unit.machine.test_reach import table as lustre
from tests.unit.release.conftest import Check, Node

Changes = Mapping[str, bytes | Link | None]
ROOT = "21 1 0:20 / / rw,relatime - tmpfs rootfs rw\n22 21 0:4 / /proc rw - proc proc rw\n"


def table(*points: str, read_only: str = "") -> bytes:
    """A mount table as the kernel writes it, with shared file systems at some points."""
    lines = (
        f"{30 + number} 21 0:{number} / {point} {'ro' if point == read_only else 'rw'} - lustre 10.0.0.1@o2ib:/x rw"
        for number, point in enumerate(points)
    )
    return (ROOT + "\n".join(lines) + "\n").encode()


MOUNTED = tuple(f"/{name}" for name in SHARED)


def good() -> dict[str, bytes | Link]:
    """A compute node called nid001 with all file systems and interfaces."""
    return {
        **host(),
        **{f"/sys/class/net/hsn{number}/operstate": b"up\n" for number in range(4)},
        "/sys/class/net/lo/operstate": b"unknown\n",
        "/proc/self/mountinfo": table(*MOUNTED),
        "/etc/hostname": b"nid001\n",
        "/var/spool/slurmd/.keep": b"",
    }


Change = Callable[[Changes], Path]


@pytest.fixture
def nid(node: Node) -> Change:
    def write(change: Changes) -> Path:
        return node({path: content for path, content in {**good(), **change}.items() if content is not None})

    return write


def projects(*points: str) -> Changes:
    """A node on which the shared paths hold a link for each project, and whose file systems are mounted elsewhere."""
    links = {
        f"/{name}/project_{at}": Link(f"{point}/{name}/p{at}") for name in SHARED for at, point in enumerate(points)
    }
    return {**{f"/{name}/.keep": None for name in SHARED}, **links, "/proc/self/mountinfo": table(*points)}


SILENT: Mapping[str, Changes] = {
    "as described": {},
    "links into mounts": projects("/pfs/lustrep1", "/pfs/lustrep3"),
    "software mounted read-only": {"/proc/self/mountinfo": table(*MOUNTED, read_only="/appl")},
    # What cannot be known is not said.
    "no interface, on no compute node": {
        **{f"/sys/class/net/hsn{number}/operstate": None for number in range(4)},
        "/var/spool/slurmd/.keep": None,
    },
    "no mount table": {"/proc/self/mountinfo": None},
    "a damaged mount table": {"/proc/self/mountinfo": b"damaged\n\xff - \n"},
    "a driver that never says up": {"/sys/class/net/hsn1/operstate": b"unknown\n"},
}


@pytest.mark.parametrize("case", SILENT)
def test_a_good_node_is_silent(nid: Change, check: Check, case: str) -> None:
    nid(SILENT[case])
    assert check() == (0, [])


#: What is planted, and of the one finding its path, code, and a part of its remedy.
ALONE: Mapping[str, tuple[Changes, str, str, str]] = {
    "not mounted, but the mount point stands": (
        {"/proc/self/mountinfo": table("/scratch", "/project", "/projappl", "/appl")},
        *("/flash", "host-mount", "mount /flash"),
    ),
    "not mounted where a link leads": (
        {"/scratch/.keep": None, "/scratch": Link("/pfs/lustrep1/scratch"), "/pfs/lustrep1/scratch/.keep": b""},
        *("/scratch", "host-mount", "mount /pfs/lustrep1/scratch"),
    ),
    "mounted read-only": (
        {"/proc/self/mountinfo": table(*MOUNTED, read_only="/project")},
        *("/project", "host-mount", "mount -o remount,rw /project"),
    ),
    "a read-only /tmp": (
        {"/proc/self/mountinfo": table(*MOUNTED) + b"90 21 0:9 / /tmp ro - tmpfs tmp rw\n"},
        *("/tmp", "host-mount", "mount -o remount,rw /tmp"),
    ),
    "a /tmp without programs": (
        {"/proc/self/mountinfo": table(*MOUNTED) + b"90 21 0:9 / /tmp rw,noexec - tmpfs tmp rw\n"},
        *("/tmp", "host-mount", "mount -o remount,exec /tmp"),
    ),
    "a link to nowhere": (
        {"/scratch/.keep": None, "/scratch": Link("/pfs/lustrep1/scratch")},
        *("/scratch", "host-path", "repair the link"),
    ),
    "no mount point": ({"/flash/.keep": None}, "/flash", "host-path", "if the system was updated"),
    "an interface gone": ({"/sys/class/net/hsn2/operstate": None}, "hsn2", "host-interface", "lspci"),
    "an interface down": (
        {"/sys/class/net/hsn0/operstate": b"down\n"},
        *("hsn0", "host-interface", "ip link set hsn0 up"),
    ),
    "a library gone": ({f"{LIBCXI}.6.0": None, LIBCXI: None}, LIBCXI, "host-path", "restore the path"),
    "a library of zero bytes": ({f"{LIBCXI}.6.0": b""}, LIBCXI, "library-damaged", "restore"),
}


@pytest.mark.parametrize("case", ALONE)
def test_what_only_this_node_can_have_is_told_once_with_its_drain_line(
    nid: Change, check: Check, capsys: pytest.CaptureFixture[str], case: str
) -> None:
    change, path, found, remedy = ALONE[case]
    nid(change)
    code, (fault,) = check()
    assert (fault["path"], fault["code"]) == (path, found)
    assert remedy in fault["remedy"]
    drain = f"scontrol update nodename=nid001 state=drain reason='lumisite: {path}'"
    assert (code, fault["drain"]) == (5, drain)
    main(["check", "twin", "--host", "--root", "root", "--host-root", "host"])
    assert capsys.readouterr().out.splitlines()[1:] == [
        f"to drain this node, if others of its kind pass (command is not executed): {drain}"
    ]


def test_lumi_s_own_file_systems_are_none_of_the_faults_of_its_node(tmp_path: Path) -> None:
    at = DiskTree(str(write_tree(tmp_path, LUMI | {"/proc/self/mountinfo": lustre(**FIVE)})))
    site = load_site("lumi").site
    assert list(shared_mounts(CheckedNode(site, at))) == []
    (tmp_path / "pfs/lustrep3/.keep").unlink()
    (tmp_path / "proc/self/mountinfo").write_bytes(lustre(**{name: FIVE[name] for name in FIVE if "p3" not in name}))
    faults = list(shared_mounts(CheckedNode(site, at)))
    assert {one.at for one in faults} == {"/pfs/lustrep3"}
    assert [one.subject for one in faults] == ["/scratch", "/projappl", "/appl"]


def test_one_mount_that_is_missing_behind_links_is_told_once(nid: Change, check: Check) -> None:
    top = nid({**projects("/pfs/lustrep1", "/pfs/lustrep3"), "/proc/self/mountinfo": table("/pfs/lustrep1")})
    (top / "pfs/lustrep3").mkdir(parents=True)
    code, (fault,) = check()
    assert (code, fault["code"], fault["path"], fault["remedy"]) == (
        *(5, "host-mount", "/scratch"),
        "mount /pfs/lustrep3",
    )
    assert "/scratch/project_1" in fault["found"]


@pytest.mark.parametrize(
    ("path", "mode", "remedy"), [("/tmp", 0o755, "chmod 1777 /tmp"), ("/flash", 0o700, "chmod o+x /flash")]
)
def test_a_folder_that_users_may_not_use_is_the_nodes(
    nid: Change, check: Check, path: str, mode: int, remedy: str
) -> None:
    (nid({}) / path[1:]).chmod(mode)
    code, (fault,) = check()
    assert (code, fault["path"], fault["remedy"]) == (5, path, remedy)


def test_a_local_folder_that_is_closed_is_one_finding(tmp_path: Path) -> None:
    (tmp_path / "local").mkdir(mode=0o755)
    site = load_text(site_text(("{path: /tmp, kind: node-local,", "{path: /local, kind: node-local,"))).site
    found = [(one.code, one.subject) for one in cache_mounts(CheckedNode(site, DiskTree(str(tmp_path))))]
    assert found == [("users-shut-out", "/local")]


SYSTEM: Mapping[str, tuple[Changes, tuple[str, str]]] = {
    "an update of one library": (
        {f"{LIBCXI}.6.0": None, f"{LIBCXI}.7.0": elf("libcxi.so.1")},
        (LIBCXI, "host-path"),
    ),
    "the release of libfabric is another one": (
        {
            FABRIC: None,
            f"{FABRIC}.29.0": None,
            "/opt/cray/libfabric/2.0.1/lib64/libfabric.so.1": elf("libfabric.so.1"),
        },
        ("/opt/cray/libfabric/1.22.0", "host-path"),
    ),
}


@pytest.mark.parametrize("case", SYSTEM)
def test_what_the_whole_system_may_have_drains_no_node(nid: Change, check: Check, case: str) -> None:
    change, expected = SYSTEM[case]
    nid(change)
    code, (fault,) = check()
    assert (fault["path"], fault["code"], code, "drain" in fault) == (*expected, 1, False)


def test_with_a_fault_of_the_system_the_exit_code_is_not_that_of_a_node(nid: Change, check: Check) -> None:
    nid({f"{LIBCXI}.6.0": elf("libcxi.so.2"), "/sys/class/net/hsn2/operstate": None})
    code, faults = check()
    assert code == 1
    assert [("drain" in one, one["path"]) for one in faults] == [(False, LIBCXI), (True, "hsn2")]


def test_the_file_system_that_holds_the_release_is_told_where_it_is_not_mounted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    write_tree(tmp_path / "host", good() | {"/proc/self/mountinfo": table("/scratch")})
    Path("site.yaml").write_text(site_text(("root: /appl/lumisite", "root: /appl/no-such-place")))
    assert main(["check", "site.yaml", "--host", "--host-root", "host"]) == 5
    out = capsys.readouterr().out
    assert re.search(r"^/appl: .*\[host-mount\]$", out, re.MULTILINE)
    assert "state=drain" in out


def test_a_folder_that_is_shut_is_told_by_its_mode_to_users_too(
    nid: Change, check: Check, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A user sees nothing below it: that is not gone."""
    (nid({}) / "opt/cray").chmod(0o700)
    look = DiskTree.look
    monkeypatch.setattr(
        DiskTree, "look", lambda tree, path: None if path.startswith("/opt/cray/") else look(tree, path)
    )
    code, (fault,) = check()
    assert (code, fault["code"], fault["remedy"]) == (5, "users-shut-out", "chmod o+x /opt/cray")
