"""What makes a container start at all: each planted change is one finding, by its meaning and not by its text."""

from __future__ import annotations

from pathlib import Path

import pytest

from lumisite.facts.capture import capture
from lumisite.facts.compare import compare
from lumisite.facts.facts import Facts
from lumisite.facts.report import make_report
from lumisite.findings.finding import Severity
from lumisite.machine.host import DiskTree
from tests.support.captured import LUMI, Plant, node_with
from tests.support.dict_trees import Link, write_tree
from tests.support.nodes import AFTER, lumi_node

CONF = "/etc/singularity/singularity.conf"
OTHER_CONF = "/etc/apptainer/apptainer.conf"
SUID = "/usr/libexec/singularity/bin/starter-suid"
PROFILE = b"profile singularity /usr/libexec/singularity/bin/starter{,-suid} flags=(unconfined) {\n  userns,\n}\n"
SPACES, RESTRICT = "/proc/sys/user/max_user_namespaces", "/proc/sys/kernel/apparmor_restrict_unprivileged_userns"
STATED = b"""# allow setuid = no
bind path = /etc/hosts
user bind control = yes
limit container paths = /appl, /pfs
allow setuid = yes
bind path = /opt
"""
BASE: Plant = {
    CONF: STATED,
    SUID: b"starter",
    "/usr/bin/squashfuse_ll": b"x",
    "/usr/bin/fusermount3": b"x",
    "/dev/fuse": b"",
    "/etc/singularity/ecl.toml": b"activated = false\n",
    SPACES: b"2061374\n",
    RESTRICT: b"0\n",
    "/sys/fs/selinux/enforce": b"0",
}


def facts_of(*plants: Plant) -> Facts:
    return node_with(BASE, *plants)


def found(before: Facts, after: Facts) -> list[tuple[str, str, str | None, str | None]]:
    return [(one.kind, one.subject, one.before, one.after) for one in compare(before, after)]


def stated(old: bytes, new: bytes) -> Plant:
    assert old in STATED
    return {CONF: STATED.replace(old, new)}


@pytest.mark.parametrize(
    ("plant", "change"),
    [
        (stated(b"control = yes", b"control = no"), ("runtime-directive", "user bind control", "yes", "no")),
        (stated(b"= /appl, /pfs", b"=/appl"), ("runtime-directive", "limit container paths", "/pfs", None)),
        (stated(b"limit container paths = /appl, /pfs\n", b""), ("runtime-directive", "limit container paths", "/appl, /pfs", None)),
        ({CONF: STATED + b"mount hostfs = yes\n"}, ("runtime-directive", "mount hostfs", "no", "yes")),
        ({CONF: None}, ("container-start", "configuration", "present", None)),
        ({"/usr/bin/squashfuse_ll": None}, ("container-start", "squashfuse", "present", None)),
        ({"/dev/fuse": None}, ("device", "/dev/fuse", "1 file", None)),
        ({SPACES: b"0\n"}, ("container-start", "user.max_user_namespaces", "some", "0")),
        ({"/sys/fs/selinux/enforce": b"1"}, ("container-start", "SELinux", "0", "1")),
    ],
)  # fmt: skip
def test_a_planted_change_is_one_finding_and_is_undone_as_one(plant: Plant, change: tuple[str, ...]) -> None:
    node, after = facts_of(), facts_of(plant)
    assert found(node, after) == [change]
    report = make_report(node, after, LUMI)
    assert ("helper", "spank/bin") in {(touch.what, touch.name) for touch in report.changes[0].touches}
    (back,) = found(after, node)
    assert back == (change[0], change[1], change[3], change[2])


@pytest.mark.parametrize(
    "conf",
    [
        b"limit container paths = /pfs\nbind path = /opt,/etc/hosts\n  limit container paths=/appl\n",
        STATED
        + b"\n# mount hostfs = yes\nmount hostfs = no\nenable overlay = try\ndownload part size = 7 # no default is known\n",
        STATED + b"user bind control = no\n# the first counts\n",
    ],
)
def test_what_means_the_same_is_silent(conf: bytes) -> None:
    more: Plant = {SPACES: b"514000\n", "/usr/libexec/singularity/bin/squashfuse_ll": b"x"}
    not_the_sites: Plant = {OTHER_CONF: b"user bind control = no\n", "/usr/libexec/apptainer/bin/starter-suid": b"x"}
    assert found(facts_of(), facts_of({CONF: conf}, more, not_the_sites)) == []


@pytest.mark.parametrize(
    ("plant", "severity"),
    [
        (stated(b"control = yes", b"control = no"), Severity.FAULT),
        (stated(b"= /appl, /pfs", b"= /appl"), Severity.FAULT),
        (stated(b"limit container paths = /appl, /pfs\n", b""), Severity.DOUBT),
        ({CONF: STATED + b"mount hostfs = yes\n"}, Severity.DOUBT),
    ],
)
def test_what_stops_containers_that_started_before_is_a_fault(plant: Plant, severity: Severity) -> None:
    (change,) = compare(facts_of(), facts_of(plant))
    assert change.severity is severity


def test_the_configuration_of_the_runtime_that_a_link_leads_to_counts() -> None:
    both: Plant = {"/usr/bin/singularity": Link("apptainer"), "/usr/bin/apptainer": b"\x7fELF", OTHER_CONF: b"mount tmp = yes\n"}  # fmt: skip
    change = ("runtime-directive", "user bind control", "yes", "no")
    assert found(facts_of(both), facts_of(both, {OTHER_CONF: b"user bind control = no\n"})) == [change]
    assert found(facts_of(both), facts_of(both, {CONF: b"user bind control = no\n"})) == []


@pytest.mark.parametrize("folder", ["/etc/apparmor.d", "/etc/apparmor.d/disable"])
def test_a_profile_of_apparmor_is_compared(folder: str) -> None:
    restricted: Plant = {RESTRICT: b"1\n", "/etc/apparmor.d/lumisite": PROFILE}
    (change,) = found(facts_of(restricted), facts_of(restricted, {f"{folder}/singularity": PROFILE}))
    assert change[:2] == ("container-start", f"{folder}/singularity")


def test_rights_are_compared_where_the_tree_has_them(tmp_path: Path) -> None:
    rights = {
        SUID: ((0o4755, 0o4750), ("container-start", "setuid starter")),
        "/dev/fuse": ((0o666, 0o600), ("device", "/dev/fuse")),
        "/usr/bin/squashfuse_ll": ((0o755, 0o644), ("container-start", "squashfuse")),
        CONF: ((0o644, 0o666), ("container-start", "configuration")),
    }
    sides: list[Facts] = []
    for side in (0, 1):
        top = write_tree(tmp_path / str(side), lumi_node(AFTER, BASE))
        for path, (modes, _) in rights.items():
            (top / path[1:]).chmod(modes[side])
        sides.append(capture(DiskTree(str(top)), LUMI).facts)
    changes = {change for change in found(*sides) if change[0] != "unreadable"}
    assert changes == {(*what, *(f"mode {mode:04o}" for mode in modes)) for modes, what in rights.values()}


def test_a_starter_of_another_owner_or_on_a_nosuid_mount_has_no_rights(tmp_path: Path) -> None:
    class Owned(DiskTree):
        def owner(self, path: str) -> int | None:
            return 1000 if path == SUID else 0

    mounts = b"20 1 0:1 / / rw,relatime - ext4 /dev/a rw\n21 20 0:2 / /usr rw,nosuid - ext4 /dev/b rw\n"
    states: list[tuple[str, ...]] = []
    for tree, plant in ((DiskTree, {}), (Owned, {}), (DiskTree, {"/proc/self/mountinfo": mounts})):
        top = write_tree(tmp_path / str(len(states)), lumi_node(AFTER, {**BASE, **plant}))
        (top / SUID[1:]).chmod(0o4755)
        states.append(capture(tree(str(top)), LUMI).facts.texts["container-start"]["setuid starter"])
    assert states == [("mode 4755",), ("mode 4755", "owned by uid 1000"), ("mode 4755", "mounted nosuid")]


def test_a_lost_runtime_and_a_new_one_hide_only_what_is_their_own() -> None:
    runtime = ("runtime", "container runtime")
    gone: Plant = {"/usr/bin/singularity": None, SUID: None}
    other: Plant = {**gone, "/usr/bin/fusermount3": None}
    updated: Plant = {"/usr/bin/singularity": b"newer", "/etc/singularity/ecl.toml": b"activated = true\n"}
    assert [one[:2] for one in found(facts_of(), facts_of(gone))] == [runtime]
    assert [one[:2] for one in found(facts_of(), facts_of(other))] == [runtime, ("container-start", "fusermount")]
    assert ("container-start", "/etc/singularity/ecl.toml") in [one[:2] for one in found(facts_of(), facts_of(updated))]
