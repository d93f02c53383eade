"""What a container cannot start without on a node: the runtime, its configuration, Slurm's task prolog, and limits.

Sources: apptainer.conf of Apptainer 1.4 and singularity.conf of SingularityCE 4 for the directives and their defaults;
user_namespaces(7); slurm.conf(5); systemd.exec(5), limits.conf(5), proc(5).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from lumisite.facts.kernel import read_limits, sysctls
from lumisite.facts.runtime import find_runtime, is_wrapper, read_directives, starters
from lumisite.findings.finding import Finding, Severity
from lumisite.machine.host import mount_of, partition_of_this_job
from lumisite.machine.tree import is_under, names_of, resolve, small_text
from lumisite.paths import PROLOG, current
from lumisite.release.node import ENTER, READ, HostFault, Node, users_shut_out
from lumisite.release.policy import PolicyLine
from lumisite.vendors import fabrics_of

_SETUID = 0o4000
#: Directives that containers of the release's modules cannot do without.
_NEEDED = ("user bind control", "allow container sif", "mount dev", "mount proc", "mount sys")
_PROGRAMS = ("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin")
#: What closes user namespaces where it is 0, with a value that opens them.
_SPACES = {"user.max_user_namespaces": 15000, "kernel.unprivileged_userns_clone": 1}
#: Memory that a process may lock, in bytes: adapters need all that they send from and receive into. What is less than
#: this is some default, and no decision.
_LEAST_LOCKED_BYTES = 1024**3
_UNITS = {"": 1, "K": 1024, "M": 1024**2, "G": 1024**3, "T": 1024**4}


def start_faults(node: Node, policy: tuple[PolicyLine, ...]) -> Iterator[HostFault]:
    """Yield what keeps containers from starting, or the helper from being called, as `policy` has it."""
    runtime = list(_runtime_faults(node))
    yield from runtime
    if not runtime and node.site.runtime.executable is not None:
        yield from _container_faults(node)
    yield from _slurm_faults(node, policy)
    yield from _limit_faults(node)


def _runtime_faults(node: Node) -> Iterator[HostFault]:
    command, path = node.site.command, node.site.runtime.executable
    if path is None:  # a module may bring it
        return
    program = resolve(node.host, path)
    is_file = program.entry is not None and program.entry.kind == "file"
    closed = users_shut_out(node.host, path, program.path, READ | ENTER if is_file else 0, command)
    source = node.host.source(program.path) if is_file else None
    wrong, advice = "", f"correct `runtimes.{command}.executable` and deploy again"
    severity = Severity.FAULT
    if not is_file and not closed:
        wrong, advice = "not an executable file", f"install it, or {advice}"
    elif is_wrapper(node.host, node.site, program.path):
        wrong = f"leads to {program.path}, the wrapper of lumisite"
    elif source is not None and source.size == 0:
        wrong, advice, severity = "empty", "install it again", Severity.NODE
    if wrong:
        text = f"{wrong}; needed by {command}"
        yield HostFault(Finding("host-runtime", severity, text, advice, subject=path), program.path, command)
    elif closed:
        yield closed


def _container_faults(node: Node) -> Iterator[HostFault]:
    """Yield what forbids to start containers, to mount their images, or to bind what modules bind."""
    host, home = node.host, find_runtime(node.host, node.site)
    directives = {name: words[0] for name, words in read_directives(host, node.site).items()}
    path = str(node.site.runtime.executable)
    for name in _NEEDED:
        if directives.get(name) in ("no", "minimal"):
            text = f"`{name} = {directives[name]}`: containers start without what modules bind, or not at all"
            yield HostFault(Finding("container-start", Severity.NODE, text, f"set `{name} = yes`", str(home.config)))
    programs = list(starters(host, home))
    setuid = [program for program in programs if program.endswith("-suid") and _is_setuid(node, program)]
    if directives.get("allow setuid") == "no":
        setuid = []
    spaces = sysctls(host, _SPACES)
    closed = [name for name, value in spaces.items() if value == "0"]
    if not setuid and closed:
        text = f"no way to start a container: no usable setuid starter, and no user namespaces ({closed[0]} = 0)"
        advice = f"install the setuid starter, or `sysctl -w {closed[0]}={_SPACES[closed[0]]}`"
        yield HostFault(Finding("container-start", Severity.NODE, text, advice, path))
        return
    if setuid and _kernel_mounts(home.name, directives):
        return
    lacking = ["/dev/fuse"] if names_of(host, "/dev") and resolve(host, "/dev/fuse").entry is None else []
    folders = (f"{home.top}/libexec/{home.name}/bin", *_PROGRAMS)
    tools = (f"{folder}/{name}" for folder in folders for name in ("squashfuse_ll", "squashfuse"))
    if programs and not any(resolve(host, tool).entry for tool in tools):
        lacking.append("squashfuse")
    if lacking:
        text = f"{' and '.join(lacking)} missing, without which {home.name} mounts no image here"
        yield HostFault(
            Finding(
                "container-start", Severity.NODE, text, "`modprobe fuse` makes /dev/fuse; squashfuse is a package", path
            )
        )


def _is_setuid(node: Node, path: str) -> bool:
    """Return whether a starter runs as root: by its mode, its owner, and the mount that it is on."""
    mode, owner = node.host.mode(path), node.host.owner(path)
    mount = mount_of(node.mounts, resolve(node.host, path).path)
    is_root = not node.is_live or owner == 0  # in a copy, files belong to who has copied them
    return bool(mode and mode & _SETUID and is_root) and not (mount and "nosuid" in mount.options)


def _kernel_mounts(runtime: str, directives: Mapping[str, str]) -> bool:
    """Return whether the setuid starter has the kernel mount images; else FUSE does.

    Apptainer does so by default only where it limits whose images are run.
    """
    if runtime != "apptainer":
        return directives.get("allow kernel squashfs") != "no"
    allowed = directives.get("allow setuid-mount squashfs", "iflimited")
    return allowed == "yes" or (allowed == "iflimited" and any(name.startswith("limit ") for name in directives))


# Slurm


def _slurm_faults(node: Node, policy: tuple[PolicyLine, ...]) -> Iterator[HostFault]:
    """Yield a task prolog that Slurm cannot run, or that it lacks though the policy has the helper on without a module.

    The cli_filter would do the same for containers.
    """
    slurm = node.slurm_conf
    if slurm is None:
        return
    conf, prolog = f"{slurm.folder}/slurm.conf", slurm.settings.get("taskprolog", "")
    if prolog.startswith("/") and resolve(node.host, prolog).entry is None:
        advice = "restore the file, or take the line away: every task fails"
        shared = [system.path for system in node.site.file_systems if system.kind == "shared"]
        severity = Severity.FAULT if any(is_under(prolog, path) for path in shared) else Severity.NODE
        yield HostFault(Finding("slurm-prolog", severity, f"TaskProlog={prolog}: no such file", advice, conf))
    on = [line for line in policy if line.word == "on"]
    if on and not prolog and "lua" not in slurm.settings.get("clifilterplugins", ""):
        text = f"no TaskProlog, though the policy has `{on[0].text}`: the helper is on only for who loads the module"
        advice = f"add TaskProlog={current(node.site.root, PROLOG)}, and `scontrol reconfigure`"
        yield HostFault(Finding("slurm-prolog", Severity.NODE, text, advice, conf))


# Limits


def _limit_faults(node: Node) -> Iterator[HostFault]:
    """Yield a limit of locked memory with which adapters cannot be used: of jobs, of slurmd, or of pam_limits."""
    if not fabrics_of(str(node.site.fabric.carrier)):
        return
    limits = {"slurmd.service": "LimitMEMLOCK=infinity"}
    found: dict[str, str] = {}
    if not node.is_live or partition_of_this_job():
        text = small_text(node.host, "/proc/self/limits") or ""
        if of_job := re.search(r"^Max locked memory\s+(\S+)", text, re.MULTILINE):
            found["this job"] = of_job[1]
    stated = read_limits(node.host, node.site)
    if words := stated.get("slurmd.service LimitMEMLOCK"):
        found["slurmd.service"] = words[0].partition(":")[0]
    if words := stated.get("* memlock"):
        kib = words[0].partition(" ")[2]  # the hard limit, else the soft one
        found["limits.conf"] = f"{kib}K" if kib.isdecimal() else "infinity"
    for where, value in found.items():
        size = re.fullmatch(r"([0-9]{1,15})([KMGT]?)", value)
        if size and int(size[1]) * _UNITS[size[2]] < _LEAST_LOCKED_BYTES:
            text = f"limit {value} in {where}, expected unlimited: libraries cannot register memory with adapters"
            advice = f"set {limits.get(where, 'memlock unlimited')}, and restart slurmd"
            yield HostFault(Finding("host-limit", Severity.NODE, text, advice, "locked memory"))
            return
