"""What a host has beside its libraries: kernel, devices, loader, modules, limits, mounts, services.

Each planted change is one finding with what it touches, in both directions; another spelling of the same is none.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from lumisite.facts.capture import capture
from lumisite.facts.compare import compare
from lumisite.facts.facts import Facts, format_facts, parse_facts
from lumisite.facts.report import make_report
from lumisite.findings.finding import Severity
from lumisite.machine.host import DiskTree
from tests.support.captured import LUMI, Plant, node_with, together
from tests.support.dict_trees import Link, write_tree
from tests.support.elves import elf, loader_cache
from tests.support.nodes import AFTER, NEW_KERNEL, lumi_node

CONFIG, CXI = f"/boot/config-{NEW_KERNEL}", "/usr/lib64/libcxi.so.1.6.0"
OPTIONS = b"CONFIG_64BIT=y\nCONFIG_DMABUF_MOVE_NOTIFY=y\nCONFIG_PCI_P2PDMA=y\nCONFIG_USERFAULTFD=y\nCONFIG_USER_NS=y\n"
COMMAND_LINE = b"BOOT_IMAGE=/boot/a root=/dev/sda1 iommu=pt nosmt isolcpus=0,8 crashkernel=1G spire_join_token=s3cr3t\n"
CPU, HUGE = "/sys/devices/system/cpu", "/sys/kernel/mm/hugepages/hugepages-2048kB"
GOVERNORS = [f"{CPU}/cpu{number}/cpufreq/scaling_governor" for number in range(128)]
NIC = "/sys/devices/pci0000:00/0000:00:01.1/0000:ca:00.0"
MTU = "/sys/devices/pci0000:00/0000:00:01.1/0000:c2:00.0/net/hsn0/mtu"
RUNNING = "/sys/fs/cgroup/system.slice/system-cxi_rh.slice/cxi_rh@cxi{}.service/cgroup.procs"
PARAMETERS = "/sys/module/amdgpu/parameters"
CORE, LIB64, MPICH = "/opt/cray/pe/lmod/modulefiles/core", "/opt/cray/pe/lib64", "/opt/cray/pe/mpich"
PATHS, LOGIN, SITE = "/etc/lmod/modulespath", "/etc/profile.d/lmod.sh", "/usr/local/modules"
LOADED = b'export LMOD_SYSTEM_DEFAULT_MODULES="init-lumi:PrgEnv-cray"\nmodule load --silent perf\n'
USED = b'export MODULEPATH="/appl/modules:$MODULEPATH"\n# module use /srv/old\n'
LIMITS, MORE, MOUNTS = "/etc/security/limits.conf", "/etc/security/limits.d/90-hpc.conf", "/proc/self/mountinfo"
LIMIT_LINES = b"* soft memlock unlimited\n* hard memlock unlimited\n* - stack 300000 # KiB\nroot - nofile 100\n"
UNITS = "/usr/lib/systemd/system"
UNIT, DROP_IN = f"{UNITS}/slurmd.service", "/etc/systemd/system/slurmd.service.d/50-site.conf"
UNIT_LINES = b"[Service]\nDelegate=yes\nLimitNOFILE=131072\nLimitMEMLOCK=infinity\nMemoryMax=infinity\n"
TABLE = """\
20 1 0:20 / / rw,relatime shared:1 - overlay overlay rw,lowerdir=/a
21 20 0:21 / /dev/shm rw,nosuid,nodev shared:2 - tmpfs tmpfs rw,size=263907320k,inode64
22 20 0:22 / /tmp rw,nosuid,nodev shared:3 - tmpfs tmpfs rw,size=131953660k,nr_inodes=1048576,inode64
23 20 0:23 / /pfs/lustrep1 rw,noatime - lustre 10.0.0.1@o2ib:/lustrep1 rw,checksum,flock,nouser_xattr,lazystatfs
24 20 0:24 / /pfs/lustrep2 rw,noatime - lustre 10.0.0.1@o2ib:/lustrep2 rw,checksum,flock,nouser_xattr,lazystatfs
25 20 0:25 / /flash rw - lustre 10.0.0.2@o2ib:/flash rw,localflock
26 20 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw
"""
BASE: Plant = {
    # the kernel and its devices
    CONFIG: OPTIONS,
    "/proc/cmdline": COMMAND_LINE,
    "/proc/sys/vm/unprivileged_userfaultfd": b"1\n",
    f"{HUGE}/nr_hugepages": b"512\n",
    f"{HUGE}/surplus_hugepages": b"0\n",
    f"{HUGE}/nr_overcommit_hugepages": b"64\n",
    "/sys/kernel/mm/transparent_hugepage/enabled": b"always [madvise] never\n",
    **dict.fromkeys(GOVERNORS, b"performance\n"),
    f"{PARAMETERS}/noretry": b"-1\n",
    "/sys/module/cxi_ss1/version": b"1.0.3\n",
    "/sys/module/loop/srcversion": b"CCCC\n",
    MTU: b"9000\n",
    f"{NIC}/current_link_speed": b"16.0 GT/s PCIe\n",
    f"{NIC}/current_link_width": b"16\n",
    **{f"/dev/cxi{number}": b"" for number in range(4)},
    "/dev/kfd": b"",
    "/dev/xpmem": b"",
    "/sys/module/xpmem/refcnt": b"0\n",
    # the loader and links to libraries
    "/etc/ld.so.conf": b"include /etc/ld.so.conf.d/*.conf\n/opt/site/lib\n",
    "/etc/ld.so.conf.d/cray.conf": f"{LIB64}\n".encode(),
    "/opt/site/lib/libx.so.1": elf("libx.so.1"),
    "/etc/ld.so.cache": loader_cache({"libx.so.1": "/opt/site/lib/libx.so.1", "libcxi.so.1": "/usr/lib64/libcxi.so.1"}),
    f"{LIB64}/libmpi_gtl_hsa.so.0": Link(f"{MPICH}/8.1.32/gtl/lib/libmpi_gtl_hsa.so.0"),
    # modules
    PATHS: b"# as installed\n/usr/local/modules\n/usr/local/more*/all\n",
    "/etc/profile.d/zz-site.sh": USED,
    LOGIN: LOADED,
    "/etc/profile.d/rc.sh": b"export LMOD_MODULERCFILE=/appl/rc.lua\n",
    "/appl/rc.lua": b"-- nothing yet\n",
    f"{CORE}/cray-mpich/.version": b'#%Module\nset ModulesVersion "8.1.32"\n',
    f"{CORE}/gcc/.modulerc.lua": b'module_version("gcc/13.2", "default")\n',
    f"{CORE}/papi/default": Link("7.1.lua"),
    f"{CORE}/papi/7.1.lua": b"",
    **{f"{path}/x/1.lua": b"" for path in (SITE, "/usr/local/more1/all", "/appl/modules", "/srv/old")},
    # limits, mounts, services
    LIMITS: LIMIT_LINES,
    MORE: b"@users - nofile 131072\n",
    UNIT: UNIT_LINES,
    DROP_IN: b"[Service]\nLimitNOFILE=262144\n",
    "/etc/systemd/system.conf": b"[Manager]\n#DefaultLimitNPROC=1\nDefaultLimitNPROC=100000\n",
    MOUNTS: TABLE.encode(),
    "/flash/x": b"",
    "/users/eve/mnt/x": b"",
    "/usr/bin/cxi_rh": b"x",
    f"{UNITS}/cxi_rh@.service": b"",
    "/etc/systemd/system/multi-user.target.wants/cxi_rh@cxi0.service": Link(f"{UNITS}/cxi_rh@.service"),
    **{RUNNING.format(number): b"1\n" for number in range(4)},
}


def node(plant: Plant) -> Facts:
    return node_with(BASE, plant)


def mounted(old: str, new: str) -> dict[str, bytes]:
    assert old in TABLE
    return {MOUNTS: TABLE.replace(old, new).encode()}


def changed(lines: bytes, old: bytes, new: bytes) -> bytes:
    assert old in lines
    return lines.replace(old, new)


CGROUPS_1 = "26 20 0:26 / /sys/fs/cgroup rw - tmpfs tmpfs rw\n27 26 0:27 / /sys/fs/cgroup/cpuset rw - cgroup c rw\n"
Row = tuple[Plant, tuple[str, str], tuple[str, str] | None]
#: What is planted; kind and subject of the one change; what it touches. First those that are faults.
FAULTS: Mapping[str, Row] = {
    "no KFD": ({"/dev/kfd": None}, ("device", "/dev/kfd"), ("helper", "spank/bin")),
    "a cxi device less": ({"/dev/cxi3": None}, ("device", "/dev/cxi"), None),
    "no userfaultfd": ({CONFIG: changed(OPTIONS, b"FAULTFD=y", b"FAULTFD=n")}, ("kernel-config", "kernel configuration"), ("setting", "FI_MR_CACHE_MONITOR")),
    "the loader's folder left out": ({"/etc/ld.so.conf": b"/opt/site/lib\n"}, ("loader", LIB64), ("module", "singularity-CPEbits")),
    "a folder that only the cache has": ({"/etc/ld.so.conf": b"include /etc/ld.so.conf.d/*.conf\n"}, ("loader", "/opt/site/lib"), None),
    "a library in every program": ({"/etc/ld.so.preload": b"/usr/lib64/libtrace.so\n"}, ("loader", "/etc/ld.so.preload"), None),
    "cgroups of version 1": (mounted(TABLE.splitlines(keepends=True)[-1], CGROUPS_1), ("cgroup", "cgroups"), ("mask", "lumi-g")),
    "read-only after an error": (mounted("/pfs/lustrep2 rw", "/pfs/lustrep2 ro"), ("mounts", "/pfs/lustrep2"), ("module", "singularity-userfilesystems")),
    "no locks": (mounted("lustrep1 rw,checksum,flock,", "lustrep1 rw,checksum,"), ("mounts", "/pfs/lustrep1"), ("site", "partitions")),
    "not mounted": (mounted(TABLE.splitlines(keepends=True)[3], ""), ("mounts", "/pfs/lustrep1"), ("site", "partitions")),
    "no retries": ({"/usr/bin/cxi_rh": None, f"{UNITS}/cxi_rh@.service": None}, ("service", "cxi_rh"), ("site", "fabric.interfaces")),
    "a masked service": ({"/etc/systemd/system/cxi_rh@.service": Link("/dev/null"), "/dev/null": b""}, ("service", "cxi_rh"), None),
    "a service that died": ({RUNNING.format(2): None}, ("service", "cxi_rh"), None),
}  # fmt: skip
CHANGES: Mapping[str, Row] = {
    "a parameter of a module": ({f"{PARAMETERS}/noretry": b"1\n"}, ("module-parameter", "amdgpu.noretry"), None),
    "fewer huge pages": ({f"{HUGE}/nr_hugepages": b"0\n"}, ("kernel-setting", "hugepages-2048kB"), None),
    "one slow CPU": ({GOVERNORS[9]: b"powersave\n"}, ("kernel-setting", "scaling_governor"), None),
    "MTU": ({MTU: b"1500\n"}, ("interface", "hsn0"), ("setting", "NCCL_SOCKET_IFNAME")),
    "a narrow link": ({f"{NIC}/current_link_width": b"8\n"}, ("nic", "cxi1"), None),
    "lib64 led elsewhere": ({f"{LIB64}/libmpi_gtl_hsa.so.0": Link(f"{MPICH}/9.0.1/gtl/lib/libmpi_gtl_hsa.so.0")}, ("links", LIB64), ("module", "singularity-CPEbits")),
    "a folder of modules that is gone": ({f"{SITE}/x/1.lua": None}, ("module-path", SITE), ("site", "platforms.2026-01.stacks.cpe.default")),
    "another pattern": ({PATHS: b"/usr/local/modules\n"}, ("module-path", "/usr/local/more1/all"), None),
    "another login file": ({"/etc/profile.d/zz-more.sh": b"module use /srv/old\n"}, ("module-path", "/srv/old"), None),
    "modules of every user": ({LOGIN: changed(LOADED, b"init-lumi:", b"")}, ("module-path", "LMOD_SYSTEM_DEFAULT_MODULES"), None),
    "a module that login loads": ({LOGIN: LOADED.splitlines()[0]}, ("module-path", "module load"), None),
    "a hidden default": ({f"{CORE}/gcc/.modulerc.lua": b'module_version("gcc/13.2", "default")\nhide_version("gcc/13.2")\n'}, ("module-default", f"{CORE}/gcc"), None),
    "a version that is hidden in Tcl": ({f"{CORE}/papi/.modulerc": b"#%Module\nmodule-hide --soft papi/7.1\n"}, ("module-default", f"{CORE}/papi"), None),
    "a default that the site hides": ({"/etc/lmod/modulerc.lua": b'-- ours\nhide_version("papi/7.1")\n'}, ("module-default", "/etc/lmod/modulerc.lua"), None),
    "a version that a file of Lmod's variable hides": ({"/appl/rc.lua": b'hide_version("papi/7.1")\n'}, ("module-default", "/appl/rc.lua"), None),
    "default by .version": ({f"{CORE}/cray-mpich/.version": b"#%Module1.0\nset  ModulesVersion 9.0.1\n"}, ("module-default", f"{CORE}/cray-mpich"), ("site", "platforms.2026-01.stacks.cpe.default")),
    "default by link": ({f"{CORE}/papi/default": Link("7.2.lua"), f"{CORE}/papi/7.2.lua": b""}, ("module-default", f"{CORE}/papi"), None),
    "less memory to lock": ({LIMITS: changed(LIMIT_LINES, b"hard memlock unlimited", b"hard memlock 64")}, ("limits", "* memlock"), ("site", "partitions")),
    "the unit": ({UNIT: changed(UNIT_LINES, b"MEMLOCK=infinity", b"MEMLOCK=64M")}, ("limits", "slurmd.service LimitMEMLOCK"), ("setting", "FI_MR_CACHE_MONITOR")),
    "a drop-in that counts later": ({"/run/systemd/system/slurmd.service.d/60-x.conf": b"[Service]\nLimitSTACK=8M:infinity\n"}, ("limits", "slurmd.service LimitSTACK"), None),
    "/tmp without programs": (mounted("/tmp rw,", "/tmp rw,noexec,"), ("mounts", "/tmp"), ("site", "partitions")),
}  # fmt: skip
OTHER_ORDER = mounted("rw,checksum,flock,nouser_xattr,lazystatfs", "lazystatfs,flock,checksum,rw")[MOUNTS]
SSHFS = b"30 20 0:30 / /users/eve/mnt rw,nosuid,nodev - fuse.sshfs eve@home: rw,user_id=1000,group_id=1000\n"
HARMLESS: Mapping[str, Plant] = {
    "another boot": {"/proc/cmdline": b"BOOT_IMAGE=/boot/b  nosmt root=UUID=12 crashkernel=1G isolcpus=0,8 iommu=pt spire_join_token=x nid=5001\n"},
    "pages beyond the pool": {f"{HUGE}/nr_hugepages": b"530\n", f"{HUGE}/surplus_hugepages": b"18\n", f"{HUGE}/free_hugepages": b"1\n"},
    "a parameter that this build has": {f"{PARAMETERS}/new_in_this_build": b"4\n"},
    "a folder more for the loader": {"/etc/ld.so.conf.d/new.conf": b"/opt/new/lib\n", "/opt/new/lib/x": b""},
    "a package less": {"/etc/ld.so.conf": b"include /etc/ld.so.conf.d/*.conf\n", "/opt/site/lib/libx.so.1": None},
    "the list of module folders in another order": {PATHS: b"/usr/local/more1/all\n\n/usr/local/modules/\n"},
    "login files that say the same": {"/etc/profile.d/zz-site.sh": b'# more\nMODULEPATH="$MODULEPATH:/appl/modules:/usr/local/none"\nPATH=/srv/old:$PATH\n'},
    "limits in another order, and of one user": {LIMITS: b"# all\n*\t-  memlock   unlimited\n* hard stack 300000\n* soft stack 300000\neve hard nproc 10\n", MORE: b"@users soft nofile 131072\n@users hard nofile 131072\n@users - core 0\n"},
    "the unit in another order": {UNIT: b"[Service]\n MemoryMax = infinity\nLimitMEMLOCK=infinity\nDelegate=Yes\n", DROP_IN: b"[Service]\nLimitNOFILE=1\nLimitNOFILE=262144\n"},
    "options in another order, a little less memory, and a mount of a user": {MOUNTS: changed(OTHER_ORDER, b"size=263907320k", b"size=263100000k") + SSHFS},
}  # fmt: skip


@pytest.mark.parametrize("name", [*FAULTS, *CHANGES])
def test_a_planted_change_is_one_finding_in_both_directions(name: str) -> None:
    plant, expected, touched = {**FAULTS, **CHANGES}[name]
    (change,) = make_report(node({}), node(plant), LUMI).changes
    assert (change.kind, change.subject) == expected
    assert touched is None or touched in {(touch.what, touch.name) for touch in change.touches}
    assert (change.severity is Severity.FAULT) == (name in FAULTS)
    assert [(back.kind, back.subject) for back in compare(node(plant), node({}))] == [expected]


def test_what_means_the_same_is_silent() -> None:
    other = node(together(HARMLESS))
    assert compare(node({}), other) == compare(other, node({})) == ()


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("a cxi device less", ("4 files", "3 files")),
        ("one slow CPU", ("performance", "performance (127), powersave (1)")),
        ("/tmp without programs", (None, "noexec")),
        ("not mounted", ("lustre, flock, rw", None)),
    ],
)
def test_a_change_has_the_values_before_and_after(name: str, values: tuple[str | None, str | None]) -> None:
    (change,) = compare(node({}), node({**FAULTS, **CHANGES}[name][0]))
    assert (change.before, change.after) == values


def test_a_capture_holds_no_secret() -> None:
    assert "s3cr3t" not in format_facts(node({}))


def test_an_automounter_mounts_and_unmounts_by_itself() -> None:
    automatic = f"{TABLE}30 20 0:30 / /scratch rw - autofs /etc/auto.x rw\n"
    used = f"{automatic}31 30 0:31 / /scratch/p1 rw - lustre 10.0.0.1@o2ib:/p1 rw,flock\n"
    one, other = (node({MOUNTS: text.encode(), "/scratch": None, "/scratch/x": b""}) for text in (automatic, used))
    assert compare(one, other) == compare(other, one) == ()


def test_what_one_capture_does_not_have_is_unknown() -> None:
    document = json.loads(format_facts(node({})))
    for part in ("limits", "mounts"):
        del document["texts"][part]
    old, new = parse_facts(json.dumps(document).encode(), "old.json"), node({**CHANGES["the unit"][0], MOUNTS: b"\n"})
    assert compare(old, node({})) == compare(node({}), old) == compare(old, new) == ()
    assert [change.kind for change in compare(node({}), new)] == ["limits"]


def test_a_lost_list_of_folders_is_a_change_and_a_new_one_is_none() -> None:
    include: Plant = {"/etc/ld.so.conf": b"include /etc/ld.so.conf.d/*.conf\n", "/etc/ld.so.cache": None}
    before, after = node(include), node({**include, "/etc/ld.so.conf": None})
    assert [(change.kind, change.subject) for change in compare(before, after)] == [("loader", "/etc/ld.so.conf")]
    assert compare(after, before) == ()


# Rights, which only a tree on disk has


@pytest.fixture(name="tops")
def _tops(tmp_path: Path) -> list[Path]:
    return [write_tree(tmp_path / side, lumi_node(AFTER, BASE)) for side in ("before", "after")]


@pytest.mark.parametrize("place", ["usr/lib64/libcxi.so.1.6.0", "usr"])
def test_a_library_that_everybody_may_replace_is_a_fault(place: str, tops: list[Path]) -> None:
    (tops[1] / place).chmod(0o777)
    before, after = (capture(DiskTree(str(top)), LUMI).facts for top in tops)
    changes = {change.subject: change for change in compare(before, after)}
    assert changes[CXI].after == f"{'library' if place.endswith('0') else 'folder'} of mode 0777"
    assert changes[CXI].severity is Severity.FAULT
    assert {change.kind for change in changes.values()} == {"library-rights"}


def test_a_library_that_a_user_can_replace_is_named_with_where_it_is() -> None:
    eve = "/users/eve/libcxi.so.1"
    moved: Plant = {"/usr/lib64/libcxi.so.1": Link(eve), CXI: None, eve: lumi_node()[CXI]}
    assert [(change.kind, change.subject, change.severity) for change in compare(node({}), node(moved))] == [
        ("library", "libcxi.so.1", Severity.DOUBT),
        ("library-rights", eve, Severity.FAULT),
    ]


def test_rights_of_devices_are_compared(tops: list[Path]) -> None:
    for top in tops:
        for device in (top / "dev").iterdir():
            device.chmod(0o666)
    (tops[1] / "dev/cxi2").chmod(0o660)
    (change,) = compare(*(capture(DiskTree(str(top)), LUMI).facts for top in tops))
    assert (change.kind, change.subject, change.before, change.after) == ("device", "/dev/cxi", None, "mode 0660")
