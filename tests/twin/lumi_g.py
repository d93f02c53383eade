"""A virtual LUMI-G node: 64 cores in 4 NUMA domains, with a real Slurm of its own, in software emulation.

One socket stands for each CCD, so that the last-level caches are LUMI's: eight groups of eight cores. With
one thread per core the CPU numbers are LUMI's too. With two threads they are not: here siblings are
neighbours (0 and 1), on LUMI the second threads are 64 to 127. So masks that are derived from the topology
can be judged with two threads, but LUMI's own table cannot. (QEMU 7.2; KVM is not used.)
"""

from __future__ import annotations

import io
import os
import secrets
import shutil
import subprocess
import tarfile
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from lumisite.errors import ResolveError, ToolError
from tests.twin import network, slurm_conf
from tests.twin.cache import cached
from tests.twin.fence import SCRIPTS
from tests.twin.network import Host
from tests.twin.packages import open_archive
from tests.twin.process import Result, run_or_refuse
from tests.twin.roots import DEFAULT_GENERATION, USER, node_root

NODE = Host("nid005001", 1)
SOCKETS = 8
CORES_PER_SOCKET = 8
NUMA_DOMAINS = 4
KERNEL_SUITE = "bookworm"
"""Its kernel boots here in about fifteen seconds."""
LEFT_OUT = ("usr/bin/apptainer", "usr/lib/x86_64-linux-gnu/apptainer", "usr/lib/cni")
"""What of the node root the node does without: containers, two fifths of all that its kernel has to unpack."""
BOOT_CPU_S, BOOT_S = 90, 900
FIRST_WORDS = "all CPUs run"
"""What guest_init.sh says first."""


@dataclass(frozen=True)
class GuestRun:
    """What the commands in the guest left, in their order, and the files that they put into /tmp/out."""

    results: tuple[Result, ...]
    files: Mapping[str, bytes]


def lumi_g(
    command: str, *, threads: int = 1, files: Mapping[str, str] | None = None, timeout_s: float = 3600
) -> Result:
    """Boot the node, run one shell command there as the ordinary user, and give its result."""
    return lumi_g_all([command], threads=threads, files=files, timeout_s=timeout_s).results[0]


def lumi_g_all(
    commands: Sequence[str],
    *,
    threads: int = 1,
    files: Mapping[str, str] | None = None,
    slurm_lines: tuple[str, ...] = (),
    timeout_s: float = 3600,
) -> GuestRun:
    """Boot the node once and run shell commands there, one after the other, as the ordinary user.

    `files` are put into the guest: absolute path, content; executable where they start with #!. What
    commands write to /tmp/out comes back. `threads` is 1 or 2 per core. Raises `ToolError` if the node does
    not get as far as running the commands, or takes longer than `timeout_s` in all.
    """
    if threads not in (1, 2):
        raise ResolveError(f"{threads} threads per core: should be 1 or 2")
    machine = _machine()
    with tempfile.TemporaryDirectory(prefix="lumi-g-") as work:
        extra = Path(work) / "extra"
        _write_extra(extra, commands, files or {}, slurm_lines, threads)
        initramfs = Path(work) / "initramfs"
        shutil.copy(machine / "root.cpio", initramfs)
        _append_archive(extra, initramfs)
        console, channel = Path(work) / "console", Path(work) / "channel"
        argv = _qemu(machine / "vmlinuz", initramfs, console, channel, threads)
        # On a busy machine the kernel has been seen to stop for ever while it starts its CPUs.
        if not _boot(argv, console, timeout_s):
            _boot(argv, console, timeout_s)
        sent = channel.read_bytes() if channel.exists() else b""
        said = console.read_text(errors="replace")
    return _read(sent, commands, said)


def _boot(argv: Sequence[str], console: Path, timeout_s: float) -> bool:
    """Run the machine to its end; say whether it got as far as running all CPUs within one of both limits."""
    console.write_text("")
    began = time.monotonic()
    tied = ["setpriv", "--pdeathsig", "KILL", "--", *argv]
    # It warns of each CPU feature that it does not emulate, for each CPU.
    with subprocess.Popen(tied, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as guest:
        try:
            while guest.poll() is None and time.monotonic() - began < timeout_s:
                alive = FIRST_WORDS in console.read_text(errors="replace")
                if not alive and (_cpu_s(guest.pid) > BOOT_CPU_S or time.monotonic() - began > BOOT_S):
                    return False
                with suppress(subprocess.TimeoutExpired):
                    guest.wait(0.2)
        finally:
            guest.kill()
    return True


def _cpu_s(pid: int) -> float:
    """Give the CPU time of a process of ours that has not been waited for."""
    user, system = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


def _machine() -> Path:
    """Give the folder of the kernel and of the node root as an initramfs."""
    root = node_root(DEFAULT_GENERATION)

    def build(work: Path) -> None:
        archive = open_archive(KERNEL_SUITE, root, work / "apt")
        package = archive.download(archive.first_dependency("linux-image-cloud-amd64"))
        run_or_refuse(["dpkg-deb", "--extract", str(package), str(work / "kernel")])
        shutil.move(next((work / "kernel/boot").glob("vmlinuz-*")), work / "vmlinuz")
        for folder in ("kernel", "apt"):
            shutil.rmtree(work / folder)
        (work / "root.cpio").touch()
        _append_archive(root, work / "root.cpio", LEFT_OUT)

    inputs = {"version": 1, "root": root.parent.name, "kernel": KERNEL_SUITE, "left out": LEFT_OUT}
    return cached("lumi-g", inputs, build)


def _write_extra(
    extra: Path, commands: Sequence[str], files: Mapping[str, str], lines: tuple[str, ...], threads: int
) -> None:
    shape = f"Sockets={SOCKETS} CoresPerSocket={CORES_PER_SOCKET} ThreadsPerCore={threads}"
    cpus = SOCKETS * CORES_PER_SOCKET * threads
    conf = slurm_conf.slurm_conf(DEFAULT_GENERATION, NODE.name, [NODE.name], cpus, lines)
    contents = {
        "/init": (SCRIPTS / "guest_init.sh").read_text(),
        "/etc/hostname": f"{NODE.name}\n",
        "/etc/own-address": NODE.address(),
        "/etc/guest-user": USER,
        "/etc/hosts": network.hosts_file([NODE]),
        "/etc/munge/munge.key": secrets.token_hex(64),
        "/etc/slurm/slurm.conf": conf.replace(f"CPUs={cpus}", shape),
        "/etc/slurm/gres.conf": slurm_conf.gres_conf(),
        "/etc/slurm/cgroup.conf": slurm_conf.cgroup_conf(DEFAULT_GENERATION),
        **{f"/commands/{number:04}": command for number, command in enumerate(commands)},
        **files,
    }
    for name, content in contents.items():
        path = extra / name.removeprefix("/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
        path.chmod(0o755 if content.startswith("#!") else 0o644)


def _append_archive(tree: Path, archive: Path, left_out: Sequence[str] = ()) -> None:
    """Append a tree as an initramfs; of several in one file the kernel takes the later one's files."""
    script = 'to=$1; shift; find . "$@" -print0 | cpio --null --create --format=newc --quiet >>"$to"'
    prune = [word for path in left_out for word in ("-path", f"./{path}", "-prune", "-o")]
    run_or_refuse(["sh", "-c", script, "sh", str(archive.resolve()), *prune], cwd=tree)


def _qemu(kernel: Path, initramfs: Path, console: Path, channel: Path, threads: int) -> list[str]:
    cpus = SOCKETS * CORES_PER_SOCKET * threads
    # Without the other vendor's name the kernel asks a feature that is not emulated (TOPOEXT) for the
    # threads of a core and the groups under an L3, and finds neither.
    model = ["-cpu", "EPYC-Rome,vendor=GenuineIntel", "-M", "q35", "-m", "4G"]
    # One thread for all 64 CPUs: hardly slower than many on two cores, and other tests get the other core.
    argv = ["qemu-system-x86_64", "-accel", "tcg,thread=single,tb-size=512", *model]
    argv += ["-smp", f"{cpus},sockets={SOCKETS},cores={CORES_PER_SOCKET},threads={threads}"]
    for domain in range(NUMA_DOMAINS):
        argv += ["-object", f"memory-backend-ram,id=m{domain},size=1G"]
        argv += ["-numa", f"node,nodeid={domain},memdev=m{domain}"]
    for socket in range(SOCKETS):
        argv += ["-numa", f"cpu,node-id={socket * NUMA_DOMAINS // SOCKETS},socket-id={socket}"]
    words = "console=ttyS0 quiet lpj=10000000 tsc=reliable no_timer_check panic=1 "
    # What emulation pays dearly for, and nothing here asks for: page tables that change with each system call, pages that
    # are zeroed twice, pages that move between NUMA domains, and a watchdog for each CPU.
    words += "mitigations=off init_on_alloc=0 randomize_kstack_offset=off numa_balancing=disable nowatchdog audit=0 "
    # Until its clock is chosen, each CPU ticks though it is idle, which is all that 128 of them come to: guest_init.sh
    # starts them. Without domains of the scheduler none is made anew for each; tasks still go where they are bound to.
    words += f"maxcpus=1 isolcpus=domain,1-{cpus - 1}"
    argv += ["-kernel", str(kernel), "-initrd", str(initramfs), "-append", words]
    argv += ["-display", "none", "-no-reboot", "-nic", "none"]
    return [*argv, "-serial", f"file:{console}", "-serial", f"file:{channel}"]


def _read(sent: bytes, commands: Sequence[str], said: str) -> GuestRun:
    try:
        with tarfile.open(fileobj=io.BytesIO(sent), mode="r:gz") as tar:
            members = [member for member in tar.getmembers() if member.isfile()]
            found = {
                member.name.removeprefix("./"): content.read()
                for member in members
                if (content := tar.extractfile(member)) is not None
            }
    except (tarfile.TarError, EOFError, OSError) as broken:
        words = " | ".join(said.strip().splitlines()[-8:])
        raise ToolError(f"the LUMI-G node sent no result ({broken}): {words}") from broken
    if "failure" in found:
        raise ToolError(f"Slurm of the LUMI-G node did not start: {found['failure'].decode(errors='replace')}")
    results = tuple(_result(found, number, command) for number, command in enumerate(commands))
    prefix = "out/"
    return GuestRun(
        results, {name.removeprefix(prefix): data for name, data in found.items() if name.startswith(prefix)}
    )


def _result(found: Mapping[str, bytes], number: int, command: str) -> Result:
    out, err = (found[f"{number:04}.{end}"].decode(errors="replace") for end in ("out", "err"))
    return Result((command,), int(found[f"{number:04}.code"]), out, err)
