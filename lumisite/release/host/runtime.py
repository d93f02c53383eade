"""What a container cannot start without on a node: the runtime, its configuration, and a way to mount its image.

Sources: apptainer.conf of Apptainer 1.4 and singularity.conf of SingularityCE 4 for the directives and their defaults;
user_namespaces(7).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from lumisite.facts.kernel import sysctls
from lumisite.facts.runtime import PROGRAM_FOLDERS, Home, find_runtime, is_wrapper, read_directives, starters
from lumisite.findings.finding import Severity
from lumisite.machine.mounts import mount_of
from lumisite.machine.tree import names_of, resolve
from lumisite.release.host.node import ENTER, READ, HostFinding, Node

_SETUID = 0o4000
#: Directives that containers of the release's modules cannot do without.
_NEEDED = ("user bind control", "allow container sif", "mount dev", "mount proc", "mount sys")
#: What closes user namespaces where it is 0, with a value that opens them.
_SPACES = {"user.max_user_namespaces": 15000, "kernel.unprivileged_userns_clone": 1}


def runtime(node: Node) -> Iterator[HostFinding]:
    """Yield a runtime that cannot be run; else what forbids it to start containers, or to bind what modules bind."""
    if node.site.runtime.executable is None:  # a module may bring it
        return
    if unfit := _unfit_program(node, node.site.runtime.executable):
        yield unfit
        return
    home = find_runtime(node.host, node.site)
    directives = {name: words[0] for name, words in (read_directives(node.host, node.site) or {}).items()}
    for name in _NEEDED:
        if directives.get(name) in ("no", "minimal"):
            text = f"`{name} = {directives[name]}`: containers start without what modules bind, or not at all"
            yield _of_start(str(home.config), text, f"set `{name} = yes`")
    yield from _ways_to_start(node, node.site.runtime.executable, home, directives)


def _unfit_program(node: Node, path: str) -> HostFinding | None:
    """Return that the program is not there, cannot be run, is empty, or is lumisite's own wrapper."""
    command = node.site.command
    program = resolve(node.host, path)
    is_file = program.entry is not None and program.entry.kind == "file"
    advice, severity = f"correct `runtimes.{command}.executable` and deploy again", Severity.FAULT
    if is_file and is_wrapper(node.host, node.site, program.path):
        text = f"leads to {program.path}, the wrapper of lumisite"
    elif closed := node.shut_out(path, program.path, READ | ENTER if is_file else 0, command):
        return closed
    elif not is_file:
        text, advice = "not an executable file", f"install it, or {advice}"
    elif (source := node.host.source(program.path)) is not None and source.size == 0:
        text, advice, severity = "empty", "install it again", Severity.NODE
    else:
        return None
    text = f"{text}; needed by {command}"
    return HostFinding("host-runtime", severity, text, advice, path, at=program.path, needed_by=command)


def _ways_to_start(node: Node, path: str, home: Home, directives: Mapping[str, str]) -> Iterator[HostFinding]:
    """Yield that neither a setuid starter nor user namespaces start containers, or that nothing mounts their images."""
    programs = list(starters(node.host, home))
    allowed = directives.get("allow setuid") != "no"
    has_setuid = allowed and any(_is_setuid(node, program) for program in programs if program.endswith("-suid"))
    closed = [name for name, value in sysctls(node.host, _SPACES).items() if value == "0"]
    if not has_setuid and closed:
        text = f"no way to start a container: no usable setuid starter, and no user namespaces ({closed[0]} = 0)"
        yield _of_start(path, text, f"install the setuid starter, or `sysctl -w {closed[0]}={_SPACES[closed[0]]}`")
        return
    if has_setuid and _kernel_mounts(home.name, directives):
        return
    lacking = ["/dev/fuse"] if names_of(node.host, "/dev") and not node.exists("/dev/fuse") else []
    folders = (f"{home.top}/libexec/{home.name}/bin", *PROGRAM_FOLDERS)
    tools = (f"{folder}/{name}" for folder in folders for name in ("squashfuse_ll", "squashfuse"))
    if programs and not any(map(node.exists, tools)):
        lacking.append("squashfuse")
    if lacking:
        text = f"{' and '.join(lacking)} missing, without which {home.name} mounts no image here"
        yield _of_start(path, text, "`modprobe fuse` makes /dev/fuse; squashfuse is a package")


def _is_setuid(node: Node, path: str) -> bool:
    """Return whether a starter runs as root: by its mode, its owner, and the mount that it is on."""
    mode, owner = node.host.mode(path), node.host.owner(path)
    mount = mount_of(node.mounts, resolve(node.host, path).path)
    is_root = not node.is_live or owner == 0  # in a copy, files belong to who has copied them
    return bool(mode and mode & _SETUID and is_root) and not (mount and "nosuid" in mount.options)


def _kernel_mounts(name: str, directives: Mapping[str, str]) -> bool:
    """Return whether the setuid starter has the kernel mount images; else FUSE does, in Apptainer by default."""
    if name == "apptainer":
        return directives.get("allow setuid-mount squashfs") == "yes"
    return directives.get("allow kernel squashfs") != "no"


def _of_start(subject: str, text: str, advice: str) -> HostFinding:
    return HostFinding("container-start", Severity.NODE, text, advice, subject)
