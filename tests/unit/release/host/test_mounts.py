"""`check --host`: file systems and interfaces of one node, each fault once, with the line that drains it, and code 5."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from lumisite.cli import main
from lumisite.machine.host import DiskTree
from tests.support.dict_trees import Link, write_tree
from tests.support.elves import elf
from tests.support.sites import site_text
from tests.support.twin_hosts import LIBCXI, MOUNTED, SHARED, compute_node, mount_table
from tests.unit.release.conftest import Check, Node

Changes = Mapping[str, bytes | Link | None]
Change = Callable[[Changes], Path]
MOUNTS = "/proc/self/mountinfo"


@pytest.fixture
def nid(node: Node) -> Change:
    """Return what writes the compute node nid001 with some changes."""

    def write(changes: Changes) -> Path:
        files = {**compute_node(), **changes}
        return node({path: content for path, content in files.items() if content is not None})

    return write


def projects(*points: str) -> Changes:
    """A node on which the shared paths hold a link for each project, and whose file systems are mounted elsewhere."""
    links = {
        f"/{name}/project_{at}": Link(f"{point}/{name}/p{at}") for name in SHARED for at, point in enumerate(points)
    }
    return {**{f"/{name}/.keep": None for name in SHARED}, **links, MOUNTS: mount_table(*points)}


SILENT: Mapping[str, Changes] = {
    "as described": {},
    "links into mounts": projects("/pfs/lustrep1", "/pfs/lustrep3"),
    "software mounted read-only": {MOUNTS: mount_table(*MOUNTED, read_only="/appl")},
    # What cannot be known is not said.
    "no interface, on no compute node": {
        **{f"/sys/class/net/hsn{number}/operstate": None for number in range(4)},
        "/var/spool/slurmd/.keep": None,
    },
    "no mount table": {MOUNTS: None},
    "a damaged mount table": {MOUNTS: b"damaged\n\xff - \n"},
    "a driver that never says up": {"/sys/class/net/hsn1/operstate": b"unknown\n"},
}


@pytest.mark.parametrize("case", SILENT)
def test_a_good_node_is_silent(nid: Change, check: Check, case: str) -> None:
    nid(SILENT[case])
    assert check() == (0, [])


#: What is planted, and of the one finding its path, code, and a part of its remedy.
FAULTS: Mapping[str, tuple[Changes, str, str, str]] = {
    "not mounted, but the mount point stands": (
        {MOUNTS: mount_table("/scratch", "/project", "/projappl", "/appl")},
        *("/flash", "host-mount", "mount /flash"),
    ),
    "not mounted where a link leads": (
        {"/scratch/.keep": None, "/scratch": Link("/pfs/lustrep1/scratch"), "/pfs/lustrep1/scratch/.keep": b""},
        *("/scratch", "host-mount", "mount /pfs/lustrep1/scratch"),
    ),
    "mounted read-only": (
        {MOUNTS: mount_table(*MOUNTED, read_only="/project")},
        *("/project", "host-mount", "mount -o remount,rw /project"),
    ),
    "a read-only /tmp": (
        {MOUNTS: mount_table(*MOUNTED, more="90 21 0:9 / /tmp ro - tmpfs tmp rw\n")},
        *("/tmp", "host-mount", "mount -o remount,rw /tmp"),
    ),
    "a /tmp without programs": (
        {MOUNTS: mount_table(*MOUNTED, more="90 21 0:9 / /tmp rw,noexec - tmpfs tmp rw\n")},
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
}


@pytest.mark.parametrize("case", FAULTS)
def test_what_only_this_node_can_have_is_one_finding_with_its_drain_line(
    nid: Change, check: Check, capsys: pytest.CaptureFixture[str], case: str
) -> None:
    changes, path, found, remedy = FAULTS[case]
    nid(changes)
    code, (fault,) = check()
    assert (fault["path"], fault["code"], remedy in fault["remedy"]) == (path, found, True)
    drain = f"scontrol update nodename=nid001 state=drain reason='lumisite: {path}'"
    assert (code, fault["drain"]) == (5, drain)
    main(["check", "twin", "--host", "--root", "root", "--host-root", "host"])
    assert capsys.readouterr().out.splitlines()[1:] == [
        f"to drain this node, if others of its kind pass (command is not executed): {drain}"
    ]


def test_one_mount_that_is_missing_behind_links_is_one_finding(nid: Change, check: Check) -> None:
    top = nid({**projects("/pfs/lustrep1", "/pfs/lustrep3"), MOUNTS: mount_table("/pfs/lustrep1")})
    (top / "pfs/lustrep3").mkdir(parents=True)
    code, (fault,) = check()
    assert (code, fault["code"], fault["path"]) == (5, "host-mount", "/scratch")
    assert fault["remedy"] == "mount /pfs/lustrep3"
    assert "/scratch/project_1" in fault["found"]


def test_with_a_fault_of_the_system_the_exit_code_is_not_that_of_a_node(nid: Change, check: Check) -> None:
    nid({f"{LIBCXI}.6.0": elf("libcxi.so.2"), "/sys/class/net/hsn2/operstate": None})
    code, faults = check()
    assert code == 1
    assert [("drain" in fault, fault["path"]) for fault in faults] == [(False, LIBCXI), (True, "hsn2")]


@pytest.mark.parametrize(
    ("path", "mode", "remedy"), [("/tmp", 0o755, "chmod 1777 /tmp"), ("/flash", 0o700, "chmod o+x /flash")]
)
def test_a_folder_that_users_may_not_use_is_the_nodes(
    nid: Change, check: Check, path: str, mode: int, remedy: str
) -> None:
    (nid({}) / path[1:]).chmod(mode)
    code, (fault,) = check()
    assert (code, fault["path"], fault["remedy"]) == (5, path, remedy)


def test_to_a_user_too_a_folder_that_is_shut_is_not_gone(
    nid: Change, check: Check, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A user sees nothing below it."""
    (nid({}) / "opt/cray").chmod(0o700)
    look = DiskTree.look
    monkeypatch.setattr(
        DiskTree, "look", lambda tree, path: None if path.startswith("/opt/cray/") else look(tree, path)
    )
    code, (fault,) = check()
    assert (code, fault["code"], fault["remedy"]) == (5, "users-shut-out", "chmod o+x /opt/cray")


def test_the_file_system_that_holds_the_release_is_named_where_it_is_not_mounted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_tree(tmp_path / "host", compute_node() | {MOUNTS: mount_table("/scratch")})
    Path("site.yaml").write_text(site_text(("root: /appl/lumisite", "root: /appl/no-such-place")))
    assert main(["check", "site.yaml", "--host", "--host-root", "host"]) == 5
    out = capsys.readouterr().out
    assert re.search(r"^/appl: .*\[host-mount\]$", out, re.MULTILINE)
    assert "state=drain" in out
