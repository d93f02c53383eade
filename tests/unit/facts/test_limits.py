"""Limits of resources and mounts: a change that ranks get is one finding, another spelling of the same is none."""

from __future__ import annotations

import json
from collections.abc import Mapping

import pytest

from lumisite.facts.compare import compare
from lumisite.facts.facts import Facts, format_facts, parse_facts
from lumisite.facts.report import make_report
from lumisite.findings.finding import Severity
from tests.support.breaks import LUMI, facts_of
from tests.support.breaks.row import Plant
from tests.support.dict_trees import Link
from tests.support.nodes import AFTER, lumi_node

LIMITS, MORE = "/etc/security/limits.conf", "/etc/security/limits.d/90-hpc.conf"
UNIT, DROP_IN = "/usr/lib/systemd/system/slurmd.service", "/etc/systemd/system/slurmd.service.d/50-site.conf"
SYSTEMD = "/etc/systemd/system.conf"
MOUNTS = "/proc/self/mountinfo"
TABLE = """\
20 1 0:20 / / rw,relatime shared:1 - overlay overlay rw,lowerdir=/a
21 20 0:21 / /dev/shm rw,nosuid,nodev shared:2 - tmpfs tmpfs rw,size=263907320k,inode64
22 20 0:22 / /tmp rw,nosuid,nodev shared:3 - tmpfs tmpfs rw,size=131953660k,nr_inodes=1048576,inode64
23 20 0:23 / /pfs/lustrep1 rw,noatime - lustre 10.0.0.1@o2ib:/lustrep1 rw,checksum,flock,nouser_xattr,lazystatfs
24 20 0:24 / /pfs/lustrep2 rw,noatime - lustre 10.0.0.1@o2ib:/lustrep2 rw,checksum,flock,nouser_xattr,lazystatfs
25 20 0:25 / /flash rw - lustre 10.0.0.2@o2ib:/flash rw,localflock
26 20 0:26 / /srv rw - ext4 /dev/sda1 rw
"""
BASE: dict[str, bytes] = {
    LIMITS: b"* soft memlock unlimited\n* hard memlock unlimited\n* - stack 300000 # KiB\nroot - nofile 100\n",
    MORE: b"@users - nofile 131072\n",
    UNIT: b"[Service]\nDelegate=yes\nLimitNOFILE=131072\nLimitMEMLOCK=infinity\nLimitSTACK=infinity\n",
    DROP_IN: b"[Service]\nLimitNOFILE=262144\n",
    SYSTEMD: b"[Manager]\n#DefaultLimitNPROC=1\nDefaultLimitNPROC=100000\n",
    MOUNTS: TABLE.encode(),
    "/flash/x": b"",
}


def node(plant: Plant | None = None) -> Facts:
    files: dict[str, bytes | Link | None] = {**BASE, **(plant or {})}
    return facts_of(lumi_node(AFTER, files))


def mounted(old: str, new: str) -> Plant:
    assert old in TABLE
    return {MOUNTS: TABLE.replace(old, new).encode()}


#: What is planted; the code and the subject of the one change, and the text after.
CHANGES: Mapping[str, tuple[Plant, tuple[str, str], str | None]] = {
    "less memory to lock": (
        {LIMITS: BASE[LIMITS].replace(b"hard memlock unlimited", b"hard memlock 64")},
        ("limits", "* memlock"),
        "hard 64",
    ),
    "no file of the site": ({MORE: None}, ("limits", "@users nofile"), None),
    "the unit": (
        {UNIT: BASE[UNIT].replace(b"LimitMEMLOCK=infinity", b"LimitMEMLOCK=64M")},
        ("limits", "slurmd.service LimitMEMLOCK"),
        "64M",
    ),
    "a drop-in that counts later": (
        {"/run/systemd/system/slurmd.service.d/60-x.conf": b"[Service]\nLimitSTACK=8M:infinity\n"},
        ("limits", "slurmd.service LimitSTACK"),
        "8M:infinity",
    ),
    "/tmp without programs": (
        mounted("/tmp rw,", "/tmp rw,noexec,"),
        ("mounts", "/tmp"),
        "noexec",
    ),
    "/tmp on a disk": (
        mounted("tmpfs tmpfs rw,size=131953660k,nr_inodes=1048576", "xfs /dev/nvme0n1 rw"),
        ("mounts", "/tmp"),
        "xfs",
    ),
    "read-only after an error": (
        mounted("/pfs/lustrep2 rw", "/pfs/lustrep2 ro"),
        ("mounts", "/pfs/lustrep2"),
        "ro",
    ),
    "no locks": (
        mounted("lustrep1 rw,checksum,flock,", "lustrep1 rw,checksum,"),
        ("mounts", "/pfs/lustrep1"),
        None,
    ),
    "not mounted": (
        mounted(TABLE.splitlines(keepends=True)[3], ""),
        ("mounts", "/pfs/lustrep1"),
        None,
    ),
}
HARMLESS: Mapping[str, Plant] = {
    "another order of limits": {
        LIMITS: b"# all\n*\t-  memlock   unlimited\n* hard stack 300000\n* soft stack 300000\nroot - memlock 1\n",
        MORE: b"@users soft nofile 131072\n@users hard nofile 131072\n@users - core 0\n",
    },
    "another order of the unit": {
        UNIT: b"[Unit]\nDescription=x\n[Service]\n LimitSTACK = infinity\nLimitMEMLOCK=infinity\nDelegate=Yes\n",
        DROP_IN: b"[Service]\nLimitNOFILE=1\nLimitNOFILE=262144\n",
    },
    "options in another order": mounted("rw,checksum,flock,nouser_xattr,lazystatfs", "lazystatfs,flock,checksum,rw"),
    "a little less memory": mounted("size=263907320k", "size=263100000k"),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_change_of_limits_or_mounts_is_one_finding(name: str) -> None:
    plant, change, after = CHANGES[name]
    (found,) = make_report(node(), node(plant), LUMI).changes
    assert (found.kind, found.subject, found.after) == (*change, after)
    assert ("site", "partitions") in {(touch.what, touch.name) for touch in found.touches}


@pytest.mark.parametrize("name", HARMLESS)
def test_another_spelling_is_no_change(name: str) -> None:
    assert compare(node(), node(HARMLESS[name])) == ()


def test_what_a_limit_and_a_mount_touch() -> None:
    def touched(name: str) -> set[tuple[str, str]]:
        (change,) = make_report(node(), node(CHANGES[name][0]), LUMI).changes
        return {(touch.what, touch.name) for touch in change.touches}

    assert ("setting", "FI_MR_CACHE_MONITOR") in touched("the unit")
    assert ("module", "singularity-userfilesystems") in touched("read-only after an error")
    for name in ("read-only after an error", "not mounted", "no locks"):
        (change,) = compare(node(), node(CHANGES[name][0]))
        assert change.severity is Severity.FAULT


def test_an_automounter_mounts_and_unmounts_by_itself() -> None:
    automatic = f"{TABLE}30 20 0:30 / /scratch rw - autofs /etc/auto.x rw\n"
    used = f"{automatic}31 30 0:31 / /scratch/p1 rw - lustre 10.0.0.1@o2ib:/p1 rw,flock\n"
    one, other = (node({MOUNTS: text.encode(), "/scratch": None, "/scratch/x": b""}) for text in (automatic, used))
    assert compare(one, other) == compare(other, one) == ()


def test_what_one_capture_does_not_have_is_unknown() -> None:
    document = json.loads(format_facts(node()))
    for part in ("limits", "mounts"):
        del document["texts"][part]
    old, new = parse_facts(json.dumps(document).encode(), "old.json"), node({**CHANGES["the unit"][0], MOUNTS: b"\n"})
    assert compare(old, node()) == compare(node(), old) == compare(old, new) == ()
    assert [change.kind for change in compare(node(), new)] == ["limits"]
