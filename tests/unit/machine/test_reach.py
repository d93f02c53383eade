"""What users reach through a path, by the mount table and the links of a node, in each way that sites lay it out."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from lumisite.machine.host import DiskTree
from lumisite.machine.mounts import mounts_of
from lumisite.machine.reach import reach
from tests.support.dict_trees import Files, Link, write_tree

ROOT = "21 1 0:20 / / rw,relatime - overlay overlay rw\n"


def table(**mounts: str) -> bytes:
    """A mount table as the kernel writes it, of `path=kind`, where `_` stands for a slash."""
    lines = (
        f"{number} 21 0:{number} / {point.replace('_', '/')} rw - {kind} server:/x rw"
        for number, (point, kind) in enumerate(mounts.items(), 30)
    )
    return (ROOT + "\n".join(lines) + "\n").encode()


#: LUMI, as public listings have it. `lfs df -h` gives /pfs/lustref1 as a mount point, and there are four more Lustre
#: file systems (Lumi-supercomputer/LUMI-training-materials docs/2day-20260422/203-Lustre.md); `df` of a project's folder
#: in /scratch gives /pfs/lustrep1. A project's folder is a link of root's: `/scratch/project_465002906 ->
#: /pfs/lustrep3/scratch/project_465002906`, and so in /project and /flash (alazzaro/cug26_containers_tutorial
#: demo/README.md). `/appl -> /pfs/lustrep3/appl` (CSCfi/hpc-container-wrapper issue 6), of which each of the five has a
#: copy (Lumi-supercomputer/LUMI-SoftwareStack scripts/sync_appl_lumi.sh).
LUMI: dict[str, bytes | Link] = {
    **{f"/pfs/{name}/.keep": b"" for name in ("lustrep1", "lustrep2", "lustrep3", "lustrep4", "lustref1")},
    **{
        f"/{area}/project_{number}": Link(f"/pfs/{fs}/{area}/project_{number}")
        for area, number, fs in (
            *(
                (area, number, fs)
                for area in ("scratch", "projappl")
                for number, fs in ((1, "lustrep1"), (2, "lustrep3"))
            ),
            ("project", 1, "lustrep1"),
            ("flash", 1, "lustref1"),
            ("flash", 2, "lustref1"),
        )
    },
    "/appl": Link("/pfs/lustrep3/appl"),
    "/users/alice": Link("/pfs/lustrep2/users/alice"),
}
FIVE = {f"_pfs_{name}": "lustre" for name in ("lustrep1", "lustrep2", "lustrep3", "lustrep4", "lustref1")}
LUMI_REACHES = {
    "/pfs": {f"/pfs/{name}" for name in ("lustrep1", "lustrep2", "lustrep3", "lustrep4", "lustref1")},
    "/scratch": {"/pfs/lustrep1", "/pfs/lustrep3"},
    "/projappl": {"/pfs/lustrep1", "/pfs/lustrep3"},
    "/project": {"/pfs/lustrep1"},
    "/flash": {"/pfs/lustref1"},
    "/appl": {"/pfs/lustrep3"},
    "/users": {"/pfs/lustrep2"},
}


def test_lumi(tmp_path: Path) -> None:
    host = DiskTree(str(write_tree(tmp_path, LUMI | {"/proc/self/mountinfo": table(**FIVE)})))
    for path, points in LUMI_REACHES.items():
        found = reach(host, mounts_of(host), path)
        assert found
        assert (set(found.points), found.missing) == (points, {}), path


LAYOUTS: dict[str, tuple[Files, dict[str, str], set[str]]] = {
    # the node, its mounts, and what is reached through /data
    "a mount point": ({"/data/.keep": b""}, {"_data": "nfs4"}, {"/data"}),
    "a link to a link": ({"/data": Link("/a"), "/a": Link("lustre/x")}, {"_lustre": "lustre"}, {"/lustre"}),
    "mounts below": ({"/data/a/.keep": b""}, {"_data_a": "lustre", "_data_b_c": "nfs"}, {"/data/a", "/data/b/c"}),
    "an automounter below": ({"/data/.keep": b""}, {"_data_home": "autofs"}, {"/data/home"}),
    "a link into an automounter": ({"/data/a": Link("/net/server/a")}, {"_net": "autofs"}, {"/net"}),
    "links into two": (
        {"/data/a": Link("/l1/a"), "/data/b": Link("../l2/b"), "/data/c": Link("/l1/c")},
        {"_l1": "lustre", "_l2": "lustre"},
        {"/l1", "/l2"},
    ),
    "the link of a project that is gone": ({"/data/a": Link("/l1/none")}, {"_l1": "lustre"}, {"/l1"}),
    "a link to a file system of earlier": ({"/data/a": Link("/old/x"), "/data/b": Link("/l/b")}, {"_l": "nfs"}, {"/l"}),
    "a link into the root file system": (
        {"/data/README": Link("/etc/motd"), "/etc/motd": b"", "/data/a": Link("/l/a")},
        {"_l": "nfs"},
        {"/l"},
    ),
    "a loop of links": (
        {"/data/a": Link("b"), "/data/b": Link("a"), "/data/c": Link("/l/a")},
        {"_l": "nfs"},
        {"/l"},
    ),
    "nothing is mounted": ({"/data/.keep": b""}, {"_l": "nfs"}, set()),
    "a neighbour's name": ({"/data/.keep": b""}, {"_data2": "nfs"}, set()),
    "a user's own mounts": ({"/data/.keep": b""}, {"_data_x": "fuse.squashfuse", "_data_y": "tmpfs"}, set()),
    "links into the memory of the node": ({"/data/a": Link("/run/a")}, {"_run": "tmpfs"}, set()),
    "not there": ({"/etc/motd": b""}, {"_l": "nfs"}, set()),
}


@pytest.mark.parametrize("case", LAYOUTS)
def test_each_layout(tmp_path: Path, case: str) -> None:
    files, mounts, points = LAYOUTS[case]
    host = DiskTree(str(write_tree(tmp_path, {**files, "/proc/self/mountinfo": table(**mounts)})))
    found = reach(host, mounts_of(host), "/data")
    assert found
    assert (set(found.points), found.missing) == (points, {})


def test_a_mount_that_links_lead_to_is_missing_where_its_mount_point_is_an_empty_folder(tmp_path: Path) -> None:
    lost = {"_pfs_lustrep3": "lustre"}
    write_tree(tmp_path, LUMI | {"/proc/self/mountinfo": table(**{k: v for k, v in FIVE.items() if k not in lost})})
    (tmp_path / "pfs/lustrep3/.keep").unlink()
    host = DiskTree(str(tmp_path))
    found = {path: reach(host, mounts_of(host), path) for path in LUMI_REACHES}
    assert {path: one.missing for path, one in found.items() if one and one.missing} == {
        "/scratch": {"/pfs/lustrep3": "/scratch/project_2"},
        "/projappl": {"/pfs/lustrep3": "/projappl/project_2"},
        "/appl": {"/pfs/lustrep3": "/appl"},
    }


def test_a_folder_that_may_not_be_read_is_not_taken_for_an_empty_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_tree(tmp_path, {"/data/a": Link("/shut"), "/shut/.keep": b"", "/proc/self/mountinfo": table(_l="nfs")})
    really = os.scandir

    def refused(path: str) -> object:
        if str(path).endswith("/shut"):
            raise PermissionError(13, "Permission denied", path)
        return really(path)

    monkeypatch.setattr(os, "scandir", refused)
    host = DiskTree(str(tmp_path))
    found = reach(host, mounts_of(host), "/data")
    assert found
    assert found.missing == {}


def test_where_the_mounts_are_not_known_nothing_is_said(tmp_path: Path) -> None:
    host = DiskTree(str(write_tree(tmp_path, {"/data/.keep": b""})))
    assert reach(host, mounts_of(host), "/data") is None
    assert reach(host, (), "/") is None


def test_a_root_file_system_that_nodes_share_is_where_its_folders_are_mounted(tmp_path: Path) -> None:
    shared = ROOT.replace("overlay overlay", "nfs server:/root").encode()
    host = DiskTree(str(write_tree(tmp_path, {"/data/.keep": b"", "/proc/self/mountinfo": shared})))
    found = reach(host, mounts_of(host), "/data")
    assert found
    assert list(found.points) == ["/"]
