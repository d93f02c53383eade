"""`check --host`: a node by the site description and the release that is deployed there.

What is checked of the node itself is one table, `CHECKS`, a function a check; what the release hands to containers is
in `check_host_paths`. Sources: Documentation/ABI/stable/sysfs-devices-system-cpu and sysfs-class-net of Linux; RFC 2863
(operstate); Documentation/admin-guide/kernel-parameters (clocksource=, tsc=); slurm.conf(5), systemd.exec(5),
limits.conf(5).
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from lumisite.errors import ResolveError
from lumisite.facts.node_files import read_limits
from lumisite.findings.finding import Finding, Severity
from lumisite.machine.host import PCI_DRIVERS, DiskTree, has_address, mount_of, partition_of_this_job, silent_paths
from lumisite.machine.ldcache import glob
from lumisite.machine.reach import reach
from lumisite.machine.tree import first_line, is_under, names_of, resolve, small_text
from lumisite.paths import PROLOG, current
from lumisite.release.check_host_node import ENTER, WRITE, HostFault, Node, of_node
from lumisite.release.check_host_paths import ReleasePaths
from lumisite.release.check_host_runtime import container_faults, runtime_faults
from lumisite.release.policy import Policy, read_policy
from lumisite.release.root import existing_root, inspect_release
from lumisite.release.tree import RenderedTree
from lumisite.release.trust import root_doubts
from lumisite.render.manifest import NO_MANIFEST, Manifest, is_rendered_from
from lumisite.render.plan_images import other_images
from lumisite.site.entries import FileSystem
from lumisite.site.kinds import NO_GPUS
from lumisite.site.load import LoadedSite
from lumisite.site.model import Site
from lumisite.text import drain_command, printable, some, suggestion
from lumisite.vendors import fabrics_of, gpu_of

# ---------------------------------------------------------------- file systems

#: How long a file system may take to answer, in seconds.
SILENT_S = 10.0


def silent_faults(node: Node) -> Iterator[HostFault]:
    """Yield the file systems of this very node that do not answer: whoever looks at one waits for ever."""
    users: dict[str, str] = {system.path: system.why for system in node.site.file_systems}
    for system in node.site.file_systems if node.is_live else ():
        found = reach(node.host, node.mounts, system.path)
        users |= {point: system.why for point in (found.points if found else ()) if point != system.path}
    for path in silent_paths([*users], SILENT_S) if node.is_live else ():
        text = f"no answer within {SILENT_S:g} s, and nothing else was checked"
        yield _of_mount(path, text, "look into `dmesg` for its client, and mount it again", path, users[path])


def shared_faults(node: Node) -> Iterator[HostFault]:
    """Yield the shared file systems that users do not reach, or not as far as links lead, or that are read-only.

    One with software alone may be that.
    """
    site = node.site
    folders = [site.root, *(str(folder.path) for folder in (site.images.folders if site.images else ()))]
    for system in site.file_systems:
        found = reach(node.host, node.mounts, system.path) if system.kind == "shared" else None
        has_software = any(is_under(path, system.path) for path in folders)
        for point, mount in found.points.items() if found else ():
            if mount.read_only and not has_software:
                yield _read_only(system, point)
        if not found or not (system.where or is_under(site.root, system.path)):
            continue
        for folder, link in found.missing.items():
            text = f"no file system is mounted at {folder}, where {link} leads"
            yield _of_mount(system.path, text, f"mount {folder}", folder, system.why)
        if not found.points and not found.missing and resolve(node.host, found.real).entry is not None:
            text = f"no file system is mounted at {found.real}, it is a folder of this node's root file system"
            yield _of_mount(system.path, text, f"mount {found.real}", found.real, system.why)


def local_faults(node: Node) -> Iterator[HostFault]:
    """Yield the file systems for private caches to which users cannot write, or from which nothing can be run."""
    for system in node.site.file_systems:
        folder = resolve(node.host, system.path)
        if not system.writable or folder.entry is None:
            continue
        mount = mount_of(node.mounts, folder.path)
        if mount is not None and mount.read_only:
            yield _read_only(system, mount.point)
        elif mount is not None and "noexec" in mount.options:
            text = "mounted noexec: what frameworks compile there does not load"
            yield _of_mount(system.path, text, f"mount -o remount,exec {mount.point}", mount.point, system.why)
        elif fault := node.shut_out(system.path, folder.path, WRITE | ENTER, system.why):
            advice = f"chmod 1777 {fault.at}" if fault.at == folder.path else fault.finding.advice
            yield replace(fault, finding=replace(fault.finding, advice=advice, severity=Severity.NODE))


def _read_only(system: FileSystem, point: str) -> HostFault:
    text, advice = f"mounted read-only at {point}", f"mount -o remount,rw {point}"
    return _of_mount(system.path, text, advice, point, system.why)


def _of_mount(path: str, text: str, advice: str, at: str, needed_by: str) -> HostFault:
    return replace(of_node("host-mount", path, f"{text}; needed for {needed_by}", advice), at=at, needed_by=needed_by)


# ---------------------------------------------------------------- the kind, and GPUs


def gpu_faults(node: Node) -> Iterator[HostFault]:
    """Yield the GPUs that a node lacks which is of a kind in everything else."""
    usable = {gpu.bus for gpu in node.gpus if gpu.usable}
    kinds = {name: kind for name, kind in node.fitting.items() if kind.gpus not in ("", NO_GPUS)}
    if not node.has_pci or not kinds or (len(kinds) < len(node.fitting) and not usable):
        return  # or it is as of a kind without GPUs
    name, kind = next(iter(kinds.items()))
    count = int(kind.gpus.split()[0])
    # Addresses before and after an update; with others the node is of no kind.
    known = next((buses for buses in reversed(kind.buses) if usable.issubset(buses)), None if kind.buses else ())
    if known is None or len(usable) >= count:
        return
    gone = sorted({*known} - {gpu.bus for gpu in node.gpus})
    idle = [gpu.bus for gpu in node.gpus if not gpu.usable]
    parts = [f"{len(usable)} of {count} GPUs of kind {name} can be used"]
    parts += [f"not on the PCI bus: {some(gone, 8, ' ')}"] if gone else []
    parts += [f"without a driver: {some(idle, 8, ' ')}"] if idle else []
    advice = "`lspci` and `dmesg` show which GPU is missing"
    if idle and all(resolve(node.host, f"{PCI_DRIVERS}/{driver}").entry is None for driver in node.drivers):
        parts[1:] = [f"{node.drivers[0]} is not loaded"]
        advice = f"`modprobe {node.drivers[0]}`; `dmesg` shows why it is not loaded"
    yield of_node("host-gpus", "GPUs", "; ".join(parts), advice)


def kind_faults(node: Node) -> Iterator[HostFault]:
    """Yield how a node differs from each kind that it may be; its tasks get no CPU masks then."""
    if any(gpu_faults(node)):
        return
    differing = {
        name: [*(kind.differences(node.facts) if node.has_pci else kind.cpu_differences(node.facts))]
        for name, kind in node.kinds.items()
    }
    if differing and all(differing.values()):
        texts = [f"{name} ({'; '.join(differences)})" for name, differences in differing.items()]
        text = f"this node differs from every described kind: {', '.join(texts)}; its tasks get no CPU masks"
        advice = "if such nodes are expected, describe their kind, render and deploy; otherwise repair this one"
        yield HostFault(Finding("node-of-no-kind", Severity.FAULT, text, advice, "node kind"))


def gpu_device_faults(node: Node) -> Iterator[HostFault]:
    """Yield the device files without which no program can use the GPUs; a copy without /dev says nothing of them."""
    usable = len({gpu.bus for gpu in node.gpus if gpu.usable})
    if not usable or not node.site.gpu_vendor or not names_of(node.host, "/dev"):
        return
    vendor = gpu_of(node.site.gpu_vendor)
    advice = f"`udevadm trigger` makes it again; `dmesg | grep {vendor.drivers[0]}` shows what its driver says"
    if resolve(node.host, vendor.control).entry is None:
        yield of_node("host-device", vendor.control, "missing; no program can use the GPUs", advice)
    found = len(glob(node.host, vendor.devices[-1]))
    if found < usable:
        yield of_node("host-device", vendor.devices[-1], f"{found} files for {usable} GPUs", advice)


# ---------------------------------------------------------------- the high-speed network

_NET = "/sys/class/net"
#: What Linux calls an interface that can be used; some drivers never say more than `unknown`.
_UP = ("up", "unknown", "")


def adapter_faults(node: Node) -> Iterator[HostFault]:
    """Yield the adapters, and the device files for them, that a node of a known kind lacks.

    Where as many interfaces are missing with them, those are reported.
    """
    fabrics = fabrics_of(str(node.site.fabric.carrier))
    if not fabrics or len(node.fitting) != 1 or not names_of(node.host, _NET):
        return
    kind = node.site.node_kinds[next(iter(node.fitting))]
    present = [name for fabric in fabrics for name in names_of(node.host, fabric.folder)]
    named = [*map(str, node.site.fabric.adapters if kind.adapters is None else kind.adapters)]
    expected = len(named or kind.nics)
    found = [name for name in present if name in named] if named else present
    lost = sum(resolve(node.host, f"{_NET}/{nic.interface}").entry is None for nic in kind.nics)
    advice = "`lspci -k` shows whether an adapter is recognised, and which driver it has; `dmesg` shows what that says"
    if expected and not present:
        text = f"none of {fabrics[0].title} in {fabrics[0].folder}, expected {expected}: no driver has them"
        yield of_node("host-device", "adapters", text, advice)
    elif expected - len(found) > lost:
        text = f"{len(found)} adapters, expected {expected} (this node has {some(present, 8, ', ')})"
        yield of_node("host-device", "adapters", text, advice)
    patterns = [pattern for fabric in fabrics for pattern in fabric.devices]
    devices = len({path for pattern in patterns for path in glob(node.host, pattern)})
    if present and patterns and names_of(node.host, "/dev") and devices < min(len(found), expected):
        text = f"{devices} files for {len(found)} adapters; libraries cannot open them"
        yield of_node("host-device", patterns[0], text, "`lsmod` shows whether the driver's module for users is loaded")


def interface_faults(node: Node) -> Iterator[HostFault]:
    """Yield high-speed interfaces that are missing on a node of a known kind, down, without address, or slow."""
    names = names_of(node.host, _NET)
    present = [name for name in node.site.fabric.interfaces if name in names]
    without_adapters = any(fault.finding.subject == "adapters" for fault in adapter_faults(node))
    if names and (present or node.is_compute) and not without_adapters:
        for name in sorted(_expected_interfaces(node, present).difference(names)):
            text = f"missing (this node has {some(sorted(names), 8, ', ')})"
            yield of_node("host-interface", name, text, "`lspci` and `dmesg` show whether its adapter is recognised")
    states = {name: first_line(node.host, f"{_NET}/{name}/operstate") or "" for name in present}
    for name, state in states.items():
        if state not in _UP:
            advice = f"check its cable and switch port, then `ip link set {name} up`"
            yield of_node("host-interface", name, f"{state}, expected up", advice)
        elif node.is_live and not has_address(name):
            advice = f"`ip address show {name}` shows its state; assign its address"
            yield of_node("host-interface", name, "no address", advice)
    yield from _link_faults(node, [name for name, state in states.items() if state != "down"])


def _expected_interfaces(node: Node, present: Sequence[str]) -> frozenset[str]:
    """Return the interfaces of the node's kind; where that is not known, the fewest of a kind that has these."""
    kinds = node.fitting or node.site.node_kinds
    nics = [frozenset(nic.interface for nic in node.site.node_kinds[name].nics) for name in kinds]
    known = [interfaces for interfaces in nics if len(nics) == 1 or interfaces.issuperset(present)]
    # A kind of which no interface is described may have any number of them.
    return min(known, key=len) if known and all(nics) else frozenset()


def _link_faults(node: Node, names: Sequence[str]) -> Iterator[HostFault]:
    """Yield the interfaces with less speed or MTU than is described, else than most of the node's others have."""
    rows = (
        ("speed", node.site.fabric.speed_mbit, "{} Mbit/s", "`ethtool {}` shows what was negotiated"),
        ("mtu", node.site.fabric.mtu, "MTU {}", "ip link set {} mtu {}"),
    )
    for file, stated, text, advice in rows:
        texts = {name: first_line(node.host, f"{_NET}/{name}/{file}") or "" for name in names}
        found = {name: int(text) for name, text in texts.items() if re.fullmatch("[1-9][0-9]{0,8}", text)}
        usual, count = Counter(found.values()).most_common(1)[0] if found else (0, 0)
        expected = stated or (usual if 2 * count > len(found) else 0)
        for name, actual in found.items():
            if actual < expected:
                message = f"{text.format(actual)}, expected {text.format(expected)}"
                yield of_node("host-interface", name, message, advice.format(name, expected))


# ---------------------------------------------------------------- memory, kernel and clock

#: A part of the memory that jobs can be given: the kernel's own share is a little more after an update.
_LEAST_MEMORY = 0.98
_CLOCK = "/sys/devices/system/clocksource/clocksource0/current_clocksource"
#: Sources of the time that take a microsecond or more to read, where the processor's own counter takes some 20 ns.
_SLOW_CLOCKS = ("hpet", "acpi_pm")


def memory_faults(node: Node) -> Iterator[HostFault]:
    """Yield memory that is less than what jobs can be given on nodes of the kind, in the partition that has least."""
    site = node.site
    least = [site.node_kinds[name].memory_mib for name in node.fitting]
    least += [one.memory_mib or 0 for one in site.partitions.values() if one.node_kind in node.fitting]
    given = min(filter(None, least), default=0)
    total = re.search(r"^MemTotal:\s+([0-9]{1,15}) kB", small_text(node.host, "/proc/meminfo") or "", re.MULTILINE)
    if total and int(total[1]) // 1024 < _LEAST_MEMORY * given:
        text = f"{int(total[1]) // 1024} MiB, and jobs can be given {given} MiB on nodes of this kind"
        advice = "`dmidecode -t memory` and `dmesg` show which module is missing"
        yield of_node("host-memory", "memory", text, advice)


def kernel_faults(node: Node) -> Iterator[HostFault]:
    """Yield a kernel that is not the platform's."""
    platform = node.platform or node.site.platform
    release, expected = first_line(node.host, "/proc/sys/kernel/osrelease"), node.site.platforms[platform].kernel
    if node.is_compute and expected and release and release != expected:
        text = f"{release}, expected {expected} (platform {platform})"
        advice = "boot the node with the platform's image, or describe its platform, render and deploy"
        yield HostFault(Finding("host-kernel", Severity.FAULT, text, advice, "kernel"))


def clock_faults(node: Node) -> Iterator[HostFault]:
    """Yield a source of the time that is slow to read."""
    clock = first_line(node.host, _CLOCK)
    if clock in _SLOW_CLOCKS:
        text = f"{clock}: reading the time takes a microsecond or more"
        advice = "`dmesg | grep -i tsc` shows why the kernel gave up the processor's counter; reboot the node"
        yield of_node("host-clock", "current_clocksource", text, advice)


# ---------------------------------------------------------------- Slurm and limits


def prolog_faults(node: Node) -> Iterator[HostFault]:
    """Yield a task prolog that Slurm cannot run, or that it lacks though the policy has the helper on without a module.

    The cli_filter would do the same for containers.
    """
    slurm = node.slurm_conf
    if slurm is None:
        return
    conf, prolog = f"{slurm.folder}/slurm.conf", slurm.settings.get("taskprolog", "")
    if prolog.startswith("/") and resolve(node.host, prolog).entry is None:
        advice = "restore the file, or take the line away: every task fails"
        text = f"TaskProlog={prolog}: no such file"
        yield HostFault(Finding("slurm-prolog", node.severity(prolog), text, advice, conf))
    on = [line for line in node.policy if line.word == "on"]
    if on and not prolog and "lua" not in slurm.settings.get("clifilterplugins", ""):
        text = f"no TaskProlog, though the policy has `{on[0].text}`: the helper is on only for who loads the module"
        advice = f"add TaskProlog={current(node.site.root, PROLOG)}, and `scontrol reconfigure`"
        yield of_node("slurm-prolog", conf, text, advice)


#: Memory that a process may lock, in bytes: adapters need all that they send from and receive into. What is less than
#: this is some default, and no decision.
_LEAST_LOCKED_BYTES = 1024**3
_UNITS = {"": 1, "K": 1024, "M": 1024**2, "G": 1024**3, "T": 1024**4}


def limit_faults(node: Node) -> Iterator[HostFault]:
    """Yield a limit of locked memory with which adapters cannot be used: of jobs, of slurmd, or of pam_limits."""
    stated = read_limits(node.host, node.site)
    of_job = small_text(node.host, "/proc/self/limits") if not node.is_live or partition_of_this_job() else None
    job = re.search(r"^Max locked memory\s+(\S+)", of_job or "", re.MULTILINE)
    slurmd = next(iter(stated.get("slurmd.service LimitMEMLOCK", ())), "").partition(":")[0]
    hard = next(iter(stated.get("* memlock", ())), "").partition(" ")[2]  # the hard limit, else the soft one
    rows = (
        ("this job", job[1] if job else "", "memlock unlimited"),
        ("slurmd.service", slurmd, "LimitMEMLOCK=infinity"),
        ("limits.conf", f"{hard}K", "memlock unlimited"),
    )
    for where, value, right in rows if fabrics_of(str(node.site.fabric.carrier)) else ():
        size = re.fullmatch(r"([0-9]{1,15})([KMGT]?)", value)
        if size and int(size[1]) * _UNITS[size[2]] < _LEAST_LOCKED_BYTES:
            text = f"limit {value} in {where}, expected unlimited: libraries cannot register memory with adapters"
            yield of_node("host-limit", "locked memory", text, f"set {right}, and restart slurmd")
            return


#: All that is checked of a node, beside what a release binds, in the order in which it is reported.
CHECKS: Sequence[Callable[[Node], Iterator[HostFault]]] = (
    shared_faults,
    local_faults,
    gpu_faults,
    kind_faults,
    gpu_device_faults,
    adapter_faults,
    interface_faults,
    memory_faults,
    kernel_faults,
    clock_faults,
    runtime_faults,
    container_faults,
    prolog_faults,
    limit_faults,
)


# ---------------------------------------------------------------- all of them


@dataclass(frozen=True)
class Checked:
    """What is wrong with a node and the release that is deployed (empty: none), after how many checks.

    `notes` are no faults, `pending` is what a new release would change; `drain` is the command that drains the node,
    where something is wrong with it alone.
    """

    release: str
    faults: Sequence[HostFault]
    notes: Sequence[Finding] = ()
    pending: Sequence[Finding] = ()
    checks: int = 0
    drain: str | None = None

    @property
    def findings(self) -> list[Finding]:
        """The faults as findings."""
        return [fault.finding for fault in self.faults]


def check_release(
    loaded: LoadedSite, root_path: Path | None, host: DiskTree, release: RenderedTree | None = None
) -> Checked:
    """Check a host by a site and the deployed `release` of a root (default: the site's), which is read if not given.

    Before anything is deployed, the host is checked by the site alone. Raises `ResolveError` when the release is not of
    this site.
    """
    checked, node = _checked(loaded, root_path, host, release)
    faults = list(checked.faults)
    if node.name is None:  # no node that Slurm could drain
        faults = [replace(fault, finding=_of_system(fault.finding)) for fault in faults]
    reasons = dict.fromkeys(fault.finding.subject for fault in faults if fault.finding.severity is Severity.NODE)
    drain = drain_command([node.name], ", ".join(reasons)) if node.name and reasons else None
    notes = [*checked.notes, *(fault.finding for fault in faults if fault.finding.severity is Severity.INFO)]
    faults = [fault for fault in faults if fault.finding.severity is not Severity.INFO]
    return replace(checked, faults=faults, notes=notes, drain=drain)


def _of_system(finding: Finding) -> Finding:
    return replace(finding, severity=Severity.FAULT) if finding.severity is Severity.NODE else finding


def _checked(
    loaded: LoadedSite, root_path: Path | None, host: DiskTree, release: RenderedTree | None
) -> tuple[Checked, Node]:
    site, path = loaded.site, root_path or Path(loaded.site.root)
    node = Node(site, host)
    if root_path is None and not os.path.lexists(path):
        # Where the file system that holds the release is not mounted, that is the cause.
        unmounted = list(shared_faults(node))
        if any(is_under(site.root, fault.finding.subject) for fault in unmounted):
            return Checked("", unmounted), node
    faults = list(map(HostFault, root_doubts(path))) if path.exists() else []
    if faults and not os.access(path, os.R_OK | os.X_OK, effective_ids=True):
        return Checked("", faults), node
    root = existing_root(path) if root_path is not None or path.exists() else None
    policy = read_policy(path) or Policy(())
    faults += [HostFault(fault) for fault in policy.faults]
    if release is None and root is not None and root.current:
        release = inspect_release(root, root.current)
    if release is None:
        found, checks = check_node(replace(node, policy=policy.lines), NO_MANIFEST)
        text = "no release is deployed, so the node is checked by the site description alone"
        note = Finding("not-deployed", Severity.INFO, text, f"lumisite deploy OUT {path} --apply", str(path))
        return Checked("", [*faults, *found], [note], checks=checks), node
    name, manifest = release.path.name, release.manifest
    faults += [HostFault(replace(fault, subject=str(release.path / fault.subject))) for fault in release.faults]
    if not manifest.release:
        return Checked(name, faults), node
    _require_same_site(site, manifest)
    found, checks = check_node(replace(node, platform=manifest.platform, policy=policy.lines), manifest)
    text = f"changed since release {name} was rendered"
    pending = [Finding("not-deployed", Severity.INFO, text, subject=loaded.file)]
    current = is_rendered_from(manifest, loaded)
    return Checked(name, [*faults, *found], pending=[] if current else pending, checks=checks), node


def check_node(node: Node, manifest: Manifest) -> tuple[list[HostFault], int]:
    """Check a node, or a copy of its tree; without a release (`NO_MANIFEST`) by the site description alone.

    Returns the faults, by path, and how many checks there were. Of several faults at one path, the first one counts:
    not also what is below it, or needs it.
    """
    if silent := list(silent_faults(node)):
        return silent, len(node.site.file_systems)
    node = replace(node)  # reads the mounts once more, with what an automounter has mounted for that
    paths = ReleasePaths(node, manifest)
    unmounted = list(shared_faults(node))
    found = [fault for check in CHECKS if check is not shared_faults for fault in check(node)]
    found += [*paths.faults(), *map(HostFault, other_images(manifest.plans, node.host))]
    found = [fault for fault in found if not any(is_under(fault.at, lost.at) for lost in unmounted)]
    first: dict[object, HostFault] = {}
    for fault in (*unmounted, *found):
        finding = fault.finding
        key = fault.at or (finding.code, finding.subject, finding.message)
        kept = first.setdefault(key, fault).finding.subject
        if kept != finding.subject and is_under(kept, finding.subject):
            first[key] = fault
    faults = sorted(first.values(), key=lambda fault: (fault.finding.subject, fault.finding.code))
    return faults, len(paths.parts) + len(paths.needed_libraries) + len(CHECKS)


def _require_same_site(site: Site, manifest: Manifest) -> None:
    if manifest.site != site.name:
        text = f"{manifest.release}: release of site {printable(manifest.site)}, not of {site.name}"
        raise ResolveError(f"{text} (name its site with --site)")
    stated: list[tuple[str, str, Collection[str]]] = [("platform", manifest.platform, site.platforms)]
    for stack, versions in manifest.stacks.items():
        releases = site.stacks[stack].releases if stack in site.stacks else ()
        stated += [(f"{stack} release", version, releases) for version in versions]
    for kind, name, known in stated:
        if name not in known:
            text = f"{manifest.release}: for {kind} {printable(name)}, which the site description does not have"
            advice = f"{suggestion(name, known)}; render the description as it is now, and deploy it"
            raise ResolveError(f"{text} ({advice})")
