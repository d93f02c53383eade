"""No change hides another one that is not really inside of it: mounts, runtimes, devices, links, closed folders."""

from __future__ import annotations

from dataclasses import replace

import pytest

from lumisite.facts.compare import compare
from lumisite.facts.facts import Facts
from tests.support.breaks import LUMI, facts_of
from tests.support.breaks.row import Plant
from tests.support.dict_trees import Link
from tests.support.nodes import AFTER, lumi_node

POINTS = {
    "/dev/shm": "tmpfs",
    "/tmp": "tmpfs",
    "/var/tmp": "xfs",
    **{str(system.path): "lustre" for system in LUMI.file_systems if str(system.path) != "/scratch"},
    "/appl": "lustre",
    "/appl/local": "nfs",
    "/pfs": "lustre",
}
LUSTRE = {"flash": "/flash", "pfs": "/pfs"}
MOUNTS = "/proc/self/mountinfo"
BASE: Plant = {
    **{f"{point}/.here": b"" for point in POINTS},
    "/dev/kfd": b"",
    "/usr/bin/fusermount3": b"x",
    "/etc/singularity/ecl.toml": b"activated = false\n",
}
#: Three faults below `/` that no lost mount explains, the third in one of two file systems.
OTHERS: Plant = {"/usr/lib64/libcxi.so.1": None, "/usr/lib64/libcxi.so.1.6.0": None, "/dev/kfd": None}


def table(lost: str = "", read_only: str = "", top: str = "/") -> Plant:
    rows = [(top, "overlay"), *POINTS.items()]
    lines = [
        f"{number} 1 0:{number} / {point} {'ro' if point == read_only else 'rw'} - {kind} server rw\n"
        for number, (point, kind) in enumerate(rows, 20)
        if point != lost
    ]
    return {MOUNTS: "".join(lines).encode()}


def node(*plants: Plant) -> Facts:
    planted: dict[str, bytes | Link | None] = {}
    for plant in (BASE, *plants):
        planted |= plant
    return facts_of(lumi_node(AFTER, planted))


def found(before: Facts, after: Facts) -> set[tuple[str, str]]:
    return {(change.kind, change.subject) for change in compare(before, after)}


@pytest.mark.parametrize("point", POINTS)
def test_a_file_system_that_is_not_mounted_hides_nothing_below_the_root(point: str) -> None:
    read_only = LUSTRE["pfs" if point == "/flash" else "flash"]
    healthy, broken = node(table()), node(table(read_only=read_only), OTHERS)
    planted = found(healthy, broken)
    assert planted >= {("library-missing", "libcxi.so.1"), ("device", "/dev/kfd"), ("mounts", read_only)}
    unmounted = node(table(point, read_only), OTHERS)
    assert found(healthy, unmounted) == planted | {("mounts", point)}
    assert found(unmounted, healthy) == found(broken, healthy) | {("mounts", point)}
    assert found(healthy, node(table(point))) == found(node(table(point)), healthy) == {("mounts", point)}


def test_a_lost_runtime_and_a_new_one_hide_only_what_is_their_own() -> None:
    healthy = node({"/usr/libexec/singularity/bin/starter-suid": b"x"})
    gone: Plant = {"/usr/bin/singularity": None, "/usr/libexec/singularity/bin/starter-suid": None}
    assert found(healthy, node(gone)) == {("runtime", "container runtime")}
    other = node(gone, {"/usr/bin/fusermount3": None})
    assert found(healthy, other) == {("runtime", "container runtime"), ("container-start", "fusermount")}
    updated = node({"/usr/bin/singularity": b"newer", "/etc/singularity/ecl.toml": b"activated = true\n"})
    assert ("container-start", "/etc/singularity/ecl.toml") in found(node(), updated)


def test_a_folder_that_users_may_not_read_hides_only_what_is_read_there() -> None:
    closed = {"/users/one": "chmod o+rx /users/one"}
    healthy = node()
    after = node({"/etc/os-release": b"PRETTY_NAME=x\n", "/flash/.here": None})
    after = replace(after, unreadable=closed)
    assert found(healthy, after) == {
        ("unreadable", "/users/one"),
        ("os", "operating system"),
        ("path", "/flash"),
    }
    shut = replace(after, unreadable={"/flash": "x"})
    assert found(healthy, shut) == {("unreadable", "/flash"), ("os", "operating system")}


def test_a_closed_folder_in_a_list_does_not_hide_the_others() -> None:
    tops = ("/appl/modules", "/srv/modules", "/opt/modules")
    folders: Plant = {f"{top}/x/1.lua": b"" for top in tops}
    login: Plant = {"/etc/profile.d/site.sh": f"export MODULEPATH={':'.join(tops)}\n".encode()}
    healthy, after = node(folders, login), node(login)
    closed = [{"/srv": "x"}, dict.fromkeys(("/srv", "/appl/modules", "/opt/modules"), "x")]
    seen = [found(healthy, replace(after, unreadable=one)) for one in closed]
    assert ("module-path", "MODULEPATH") in seen[0]
    assert {kind for kind, _ in seen[1]} == {"unreadable"}


def test_a_folder_of_modules_that_is_gone_does_not_hide_another_one() -> None:
    folders: Plant = {f"{top}/x/1.lua": b"" for top in ("/appl/modules", "/srv/modules")}
    login: Plant = {"/etc/profile.d/site.sh": b"export MODULEPATH=/appl/modules:/srv/modules\n"}
    healthy = node(table(), folders, login)
    both = node(table("/appl"), login)
    assert found(healthy, both) == {("mounts", "/appl"), ("module-path", "MODULEPATH")}
    assert found(healthy, node(table("/appl"), login, {"/srv/modules/x/1.lua": b""})) == {("mounts", "/appl")}


def test_a_node_that_slurm_conf_does_not_name_any_more_is_reported() -> None:
    lines = [b"NodeName=nid005001 CPUs=128\nNodeName=nid005002 CPUs=64\n", b"NodeName=nid005002 CPUs=64\n"]
    one, other = (node({"/etc/slurm/slurm.conf": text}) for text in lines)
    assert ("slurm-conf", "NodeName") in found(one, other)


def test_an_option_more_of_a_mount_hides_nothing_below_it() -> None:
    one, other = table(), {MOUNTS: table()[MOUNTS].replace(b" /tmp rw -", b" /tmp rw,noexec -")}  # type: ignore[union-attr]
    lines: Plant = {"/etc/ld.so.conf": b"/tmp/lib\n", "/tmp/lib/x": b""}
    lost: Plant = {"/etc/ld.so.conf": b"", "/etc/ld.so.conf.d/x.conf": b"/tmp/lib\n"}
    assert found(node(one, lines), node(other, lines, lost)) == {("mounts", "/tmp"), ("loader", "/tmp/lib")}
