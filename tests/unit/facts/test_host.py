"""What a host lost beside its libraries and devices: each planted change is one finding with what it touches."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from lumisite.facts.capture import capture
from lumisite.facts.compare import compare
from lumisite.facts.facts import Facts
from lumisite.facts.report import make_report
from lumisite.findings.finding import Severity
from lumisite.machine.host import DiskTree
from tests.support.breaks import LUMI, facts_of
from tests.support.breaks.row import Plant
from tests.support.dict_trees import Link, write_tree
from tests.support.elves import elf, loader_cache
from tests.support.nodes import AFTER, NEW_KERNEL, lumi_node

ROOT = "/appl/local/lumisite/current/spank"
CORE = "/opt/cray/pe/lmod/modulefiles/core"
CONFIG, CXI = f"/boot/config-{NEW_KERNEL}", "/usr/lib64/libcxi.so.1.6.0"
OPTIONS = b"CONFIG_64BIT=y\nCONFIG_DMABUF_MOVE_NOTIFY=y\nCONFIG_PCI_P2PDMA=y\nCONFIG_USERFAULTFD=y\nCONFIG_USER_NS=y\n"
NIC = "/sys/devices/pci0000:00/0000:00:01.1/0000:ca:00.0"
UNIT, UNITS = "/usr/lib/systemd/system/slurmd.service", "/usr/lib/systemd/system"
FILTER = f"""-- the site's own
local done, ours = pcall(dofile, "{ROOT}/cli_filter.lua")
function slurm_cli_setup_defaults(options, early) return slurm.SUCCESS end
"""
PROLOG = "#!/bin/sh\n# one\necho 'print # of tasks'  # why\n[ -n \"${X#y}\" ] && echo export X=1\n"
MOUNTS = "20 1 0:20 / / rw - xfs /dev/a rw\n21 20 0:21 / /sys/fs/cgroup rw - {}\n"
LIMITS = b"* - memlock unlimited\n@staff - nproc 4000\n"
RUNNING = "/sys/fs/cgroup/system.slice/system-cxi_rh.slice/cxi_rh@cxi{}.service/cgroup.procs"
BASE: Plant = {
    "/etc/ld.so.conf": b"include /etc/ld.so.conf.d/*.conf\n/opt/site/lib\n",
    "/etc/ld.so.conf.d/cray.conf": b"/opt/cray/pe/lib64\n",
    "/opt/cray/pe/lib64/x": b"",
    "/opt/site/lib/libx.so.1": elf("libx.so.1"),
    "/etc/ld.so.cache": loader_cache({"libx.so.1": "/opt/site/lib/libx.so.1", "libcxi.so.1": "/usr/lib64/libcxi.so.1"}),
    CONFIG: OPTIONS,
    **{f"{NIC}/current_link_{name}": value for name, value in (("speed", b"16.0 GT/s PCIe\n"), ("width", b"16\n"))},
    UNIT: b"[Service]\nType=notify\nLimitMEMLOCK=infinity\nMemoryMax=infinity\n",
    "/etc/slurm/slurm.conf": b"TaskProlog=/etc/slurm/prolog.sh\nCliFilterPlugins=cli_filter/lua\n",
    "/etc/slurm/cli_filter.lua": FILTER.encode(),
    "/etc/slurm/prolog.sh": PROLOG.encode(),
    "/proc/self/mountinfo": MOUNTS.format("cgroup2 cgroup2 rw").encode(),
    "/etc/profile.d/lmod.sh": b'export LMOD_SYSTEM_DEFAULT_MODULES="init-lumi:PrgEnv-cray"\nmodule load --silent perf\n',
    "/etc/profile.d/rc.sh": b"export LMOD_MODULERCFILE=/appl/rc.lua\n",
    "/appl/rc.lua": b"-- nothing yet\n",
    f"{CORE}/gcc/.modulerc.lua": b'module_version("gcc/13.2", "default")\n',
    "/etc/security/limits.conf": LIMITS,
    "/usr/bin/cxi_rh": b"x",
    f"{UNITS}/cxi_rh@.service": b"",
    "/etc/systemd/system/multi-user.target.wants/cxi_rh@cxi0.service": Link(f"{UNITS}/cxi_rh@.service"),
    **{RUNNING.format(number): b"1\n" for number in range(4)},
    "/users/eve/libcxi.so.1": lumi_node()[CXI],
    "/users/eve/mnt/x": b"",
}


def node(plant: Plant) -> Facts:
    return facts_of(lumi_node(AFTER, {**BASE, **plant}))


#: What is planted; kind and subject of the one change; what it touches.
CHANGES: Mapping[str, tuple[Plant, tuple[str, str], tuple[str, str] | None]] = {
    "the loader's folder left out": (
        {"/etc/ld.so.conf": b"/opt/site/lib\n"},
        ("loader", "/opt/cray/pe/lib64"),
        ("module", "singularity-CPEbits"),
    ),
    "a folder that only the cache has": (
        {"/etc/ld.so.conf": b"include /etc/ld.so.conf.d/*.conf\n"},
        ("loader", "/opt/site/lib"),
        None,
    ),
    "a library in every program": ({"/etc/ld.so.preload": b"/usr/lib64/libtrace.so\n"}, ("loader", "/etc/ld.so.preload"), None),
    "cgroups of version 1": (
        {"/proc/self/mountinfo": (MOUNTS.format("tmpfs tmpfs ro") + "22 21 0:22 / /sys/fs/cgroup/cpuset rw - cgroup c rw\n").encode()},
        ("cgroup", "cgroups"),
        ("mask", "lumi-g"),
    ),
    "modules of every user": (
        {"/etc/profile.d/lmod.sh": b"export LMOD_SYSTEM_DEFAULT_MODULES=PrgEnv-cray\nmodule load perf\n"},
        ("module-path", "LMOD_SYSTEM_DEFAULT_MODULES"),
        None,
    ),
    "a module that login loads": (
        {"/etc/profile.d/lmod.sh": b"export LMOD_SYSTEM_DEFAULT_MODULES=init-lumi:PrgEnv-cray\n"},
        ("module-path", "module load"),
        None,
    ),
    "a hidden default": (
        {f"{CORE}/gcc/.modulerc.lua": b'module_version("gcc/13.2", "default")\nhide_version("gcc/13.2")\n'},
        ("module-default", f"{CORE}/gcc"),
        None,
    ),
    "a version that is hidden in Tcl": (
        {f"{CORE}/papi/.modulerc": b"#%Module\nmodule-hide --soft papi/7.1\n"},
        ("module-default", f"{CORE}/papi"),
        None,
    ),
    "a default that the site hides": (
        {"/etc/lmod/modulerc.lua": b'-- ours\nhide_version("papi/7.1")\n'},
        ("module-default", "/etc/lmod/modulerc.lua"),
        None,
    ),
    "a version that a file of Lmod's variable hides": (
        {"/appl/rc.lua": b'hide_version("papi/7.1")\n'},
        ("module-default", "/appl/rc.lua"),
        None,
    ),
    "no cli_filter": ({"/etc/slurm/cli_filter.lua": None}, ("slurm-conf", "cli_filter.lua"), ("helper", "spank/cli_filter.lua")),
    "a cli_filter without ours": (
        {"/etc/slurm/cli_filter.lua": FILTER.replace("local done", "-- local done").encode()},
        ("slurm-conf", "cli_filter.lua"),
        ("helper", "spank/cli_filter.lua"),
    ),
    "no userfaultfd": (
        {CONFIG: OPTIONS.replace(b"CONFIG_USERFAULTFD=y", b"# CONFIG_USERFAULTFD is not set")},
        ("kernel-config", "kernel configuration"),
        ("setting", "FI_MR_CACHE_MONITOR"),
    ),
    "a narrow link": ({f"{NIC}/current_link_width": b"8\n"}, ("nic", "cxi1"), None),
    "less memory for slurmd": ({UNIT: BASE[UNIT].replace(b"MemoryMax=infinity", b"MemoryMax=8G")}, ("limits", "slurmd.service MemoryMax"), ("site", "partitions")),  # type: ignore[union-attr]
    "no retries": ({"/usr/bin/cxi_rh": None, f"{UNITS}/cxi_rh@.service": None}, ("service", "cxi_rh"), ("site", "fabric.interfaces")),
    "a masked service": ({"/etc/systemd/system/cxi_rh@.service": Link("/dev/null"), "/dev/null": b""}, ("service", "cxi_rh"), None),
    "a service that died": ({RUNNING.format(2): None}, ("service", "cxi_rh"), None),
    "a TaskProlog that runs something": (
        {"/etc/slurm/prolog.sh": PROLOG.replace("${X#y}", "${X#z}").encode()},
        ("slurm-conf", "TaskProlog"),
        ("helper", "spank/task_prolog"),
    ),
}  # fmt: skip
FAULTS = (
    "the loader's folder left out", "a folder that only the cache has", "a library in every program",
    "cgroups of version 1", "no cli_filter", "a cli_filter without ours", "no userfaultfd", "no retries",
    "a masked service", "a service that died",
)  # fmt: skip
HARMLESS: Mapping[str, Plant] = {
    "comments in the TaskProlog": {"/etc/slurm/prolog.sh": PROLOG.replace("one", "two, three").replace("# why", "# so").encode()},
    "comments in the cli_filter": {"/etc/slurm/cli_filter.lua": FILTER.replace("-- the", "--[[ a\n b ]]\n  -- the").encode()},
    "a limit of one user": {"/etc/security/limits.conf": LIMITS + b"eve hard nproc 10\neve - memlock 1\n"},
    "a user's own sshfs": {
        "/proc/self/mountinfo": (MOUNTS.format("cgroup2 cgroup2 rw") + "30 20 0:30 / /users/eve/mnt rw,nosuid,nodev - fuse.sshfs eve@home: rw,user_id=1000,group_id=1000\n").encode()
    },
    "a folder more": {"/etc/ld.so.conf.d/new.conf": b"/opt/new/lib\n", "/opt/new/lib/x": b""},
    "a package less": {"/etc/ld.so.conf": b"include /etc/ld.so.conf.d/*.conf\n", "/opt/site/lib/libx.so.1": None},
}  # fmt: skip


@pytest.mark.parametrize("name", CHANGES)
def test_a_planted_change_is_one_finding_in_both_directions(name: str) -> None:
    plant, expected, touched = CHANGES[name]
    report = make_report(node({}), node(plant), LUMI)
    assert [(change.kind, change.subject) for change in report.changes] == [expected]
    (change,) = report.changes
    assert touched is None or touched in {(touch.what, touch.name) for touch in change.touches}
    assert (change.severity is Severity.FAULT) == (name in FAULTS)
    assert [(back.kind, back.subject) for back in compare(node(plant), node({}))] == [expected]


@pytest.mark.parametrize("name", HARMLESS)
def test_what_means_the_same_is_silent(name: str) -> None:
    assert compare(node({}), node(HARMLESS[name])) == compare(node(HARMLESS[name]), node({})) == ()


@pytest.mark.parametrize("place", ["usr/lib64/libcxi.so.1.6.0", "usr/lib64", "usr"])
def test_a_library_that_everybody_may_replace_is_a_fault(place: str, tmp_path: Path) -> None:
    tops = [write_tree(tmp_path / side, lumi_node(AFTER, BASE)) for side in ("before", "after")]
    (tops[1] / place).chmod(0o777)
    before, after = (capture(DiskTree(str(top)), LUMI).facts for top in tops)
    changes = {change.subject: change for change in compare(before, after) if change.kind == "library-rights"}
    assert changes[CXI].after == f"{'library' if place.endswith('0') else 'folder'} of mode 0777"
    assert changes[CXI].severity is Severity.FAULT
    assert {change.kind for change in compare(before, after)} == {"library-rights"}
    assert compare(after, after) == ()


def test_a_library_that_a_user_can_replace_is_named_with_where_it_is() -> None:
    found = compare(node({}), node({"/usr/lib64/libcxi.so.1": Link("/users/eve/libcxi.so.1"), CXI: None}))
    assert [(change.kind, change.subject, change.severity) for change in found] == [
        ("library", "libcxi.so.1", Severity.DOUBT),
        ("library-rights", "/users/eve/libcxi.so.1", Severity.FAULT),
    ]


def test_a_lost_list_of_folders_is_a_change_and_a_new_one_is_none() -> None:
    include: Plant = {"/etc/ld.so.conf": b"include /etc/ld.so.conf.d/*.conf\n", "/etc/ld.so.cache": None}
    before, after = node(include), node({**include, "/etc/ld.so.conf": None})
    assert [(change.kind, change.subject) for change in compare(before, after)] == [("loader", "/etc/ld.so.conf")]
    assert compare(after, before) == ()
