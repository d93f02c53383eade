"""What a node is beside its devices: memory, kernel, clock, Slurm's task prolog, and limits.

Sources: Documentation/admin-guide/kernel-parameters of Linux (clocksource=, tsc=); slurm.conf(5), systemd.exec(5),
limits.conf(5).
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from lumisite.facts.limits_and_services import read_limits
from lumisite.findings.finding import Severity
from lumisite.machine.host import partition_of_this_job
from lumisite.machine.tree import first_line, small_text
from lumisite.paths import PROLOG, current
from lumisite.release.host.node import HostFinding, Node
from lumisite.vendors import fabrics_of

#: A part of the memory that jobs can be given: the kernel's own share is a little more after an update.
_LEAST_MEMORY = 0.98
_CLOCK = "/sys/devices/system/clocksource/clocksource0/current_clocksource"
#: Sources of the time that take a microsecond or more to read, where the processor's own counter takes some 20 ns.
_SLOW_CLOCKS = ("hpet", "acpi_pm")
#: Memory that a process may lock, in bytes: adapters need all that they send from and receive into. What is less than
#: this is some default, and no decision.
_LEAST_LOCKED_BYTES = 1024**3
_UNITS = {"": 1, "K": 1024, "M": 1024**2, "G": 1024**3, "T": 1024**4}


def memory(node: Node) -> Iterator[HostFinding]:
    """Yield memory that is less than what jobs can be given on nodes of the kind, in the partition that has least."""
    site = node.site
    least = [site.node_kinds[name].memory_mib for name in node.fitting]
    least += [one.memory_mib or 0 for one in site.partitions.values() if one.node_kind in node.fitting]
    given = min(filter(None, least), default=0)
    total = re.search(r"^MemTotal:\s+([0-9]{1,15}) kB", small_text(node.host, "/proc/meminfo") or "", re.MULTILINE)
    if total and int(total[1]) // 1024 < _LEAST_MEMORY * given:
        text = f"{int(total[1]) // 1024} MiB, and jobs can be given {given} MiB on nodes of this kind"
        advice = "`dmidecode -t memory` and `dmesg` show which module is missing"
        yield HostFinding("host-memory", Severity.NODE, text, advice, "memory")


def kernel(node: Node) -> Iterator[HostFinding]:
    """Yield a kernel that is not the platform's."""
    platform = node.platform or node.site.platform
    release, expected = first_line(node.host, "/proc/sys/kernel/osrelease"), node.site.platforms[platform].kernel
    if node.is_compute and expected and release and release != expected:
        text = f"{release}, expected {expected} (platform {platform})"
        advice = "boot the node with the platform's image, or describe its platform, render and deploy"
        yield HostFinding("host-kernel", Severity.FAULT, text, advice, "kernel")


def clock(node: Node) -> Iterator[HostFinding]:
    """Yield a source of the time that is slow to read."""
    source = first_line(node.host, _CLOCK)
    if source in _SLOW_CLOCKS:
        text = f"{source}: reading the time takes a microsecond or more"
        advice = "`dmesg | grep -i tsc` shows why the kernel gave up the processor's counter; reboot the node"
        yield HostFinding("host-clock", Severity.NODE, text, advice, "current_clocksource")


def task_prolog(node: Node) -> Iterator[HostFinding]:
    """Yield a task prolog that Slurm cannot run, or that it lacks though the policy has the helper on without a module.

    The cli_filter would do the same for containers.
    """
    slurm = node.slurm_conf
    if slurm is None:
        return
    conf, prolog = f"{slurm.folder}/slurm.conf", slurm.settings.get("taskprolog", "")
    on = next((line.text for line in node.policy if line.word == "on"), "")
    if prolog.startswith("/") and not node.exists(prolog):
        text, advice = f"TaskProlog={prolog}: no such file", "restore the file, or take the line away: every task fails"
        yield HostFinding("slurm-prolog", node.severity(prolog), text, advice, conf)
    elif on and not prolog and "lua" not in slurm.settings.get("clifilterplugins", ""):
        text = f"no TaskProlog, though the policy has `{on}`: the helper is on only for who loads the module"
        advice = f"add TaskProlog={current(node.site.root, PROLOG)}, and `scontrol reconfigure`"
        yield HostFinding("slurm-prolog", Severity.NODE, text, advice, conf)


def locked_memory(node: Node) -> Iterator[HostFinding]:
    """Yield a limit of locked memory with which adapters cannot be used: of jobs, of slurmd, or of pam_limits."""
    if not fabrics_of(str(node.site.fabric.carrier)):
        return
    stated = read_limits(node.host, node.site)
    of_job = small_text(node.host, "/proc/self/limits") if not node.is_live or partition_of_this_job() else None
    job = re.search(r"^Max locked memory\s+(\S+)", of_job or "", re.MULTILINE)
    slurmd = next(iter(stated.get("slurmd.service LimitMEMLOCK", ())), "").partition(":")[0]
    hard = next(iter(stated.get("* memlock", ())), "").partition(" ")[2]  # the hard limit, else the soft one
    for where, value, expected in (
        ("this job", job[1] if job else "", "memlock unlimited"),
        ("slurmd.service", slurmd, "LimitMEMLOCK=infinity"),
        ("limits.conf", f"{hard}K", "memlock unlimited"),
    ):
        size = re.fullmatch(r"([0-9]{1,15})([KMGT]?)", value)
        if size and int(size[1]) * _UNITS[size[2]] < _LEAST_LOCKED_BYTES:
            text = f"limit {value} in {where}, expected unlimited: libraries cannot register memory with adapters"
            yield HostFinding("host-limit", Severity.NODE, text, f"set {expected}, and restart slurmd", "locked memory")
            return
