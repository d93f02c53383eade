"""What a container cannot start without on a node: the runtime, its configuration, and a way to mount its image.

Sources: apptainer.conf of Apptainer 1.4 and singularity.conf of SingularityCE 4 for the directives and their defaults;
user_namespaces(7).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from lumisite.facts.node_files import sysctls
from lumisite.facts.runtime import PROGRAM_FOLDERS, find_runtime, is_wrapper, read_directives, starters
from lumisite.findings.finding import Finding, Severity
from lumisite.machine.host import mount_of
from lumisite.machine.tree import names_of, resolve
from lumisite.release.check_host_node import ENTER, READ, HostFault, Node, of_node

_SETUID = 0o4000
#: Directives that containers of the release's modules cannot do without.
_NEEDED = ("user bind control", "allow container sif", "mount dev", "mount proc", "mount sys")
#: What closes user namespaces where it is 0, with a value that opens them.
_SPACES = {"user.max_user_namespaces": 15000, "kernel.unprivileged_userns_clone": 1}


def runtime_faults(node: Node) -> Iterator[HostFault]:
    """Yield a container runtime that is not there, cannot be run, is empty, or is lumisite's own wrapper."""
    command, path = node.site.command, node.site.runtime.executable
    if path is None:  # a module may bring it
        return
    program = resolve(node.host, path)
    is_file = program.entry is not None and program.entry.kind == "file"
    source = node.host.source(program.path) if is_file else None
    wrong, advice, severity = "", f"correct `runtimes.{command}.executable` and deploy again", Severity.FAULT
    closed = node.shut_out(path, program.path, READ | ENTER if is_file else 0, command)
    if is_file and is_wrapper(node.host, node.site, program.path):
        wrong = f"leads to {program.path}, the wrapper of lumisite"
    elif closed:
        yield closed
    elif not is_file:
        wrong, advice = "not an executable file", f"install it, or {advice}"
    elif source is not None and source.size == 0:
        wrong, advice, severity = "empty", "install it again", Severity.NODE
    if wrong:
        finding = Finding("host-runtime", severity, f"{wrong}; needed by {command}", advice, path)
        yield HostFault(finding, program.path, command)


def container_faults(node: Node) -> Iterator[HostFault]:
    """Yield what forbids to start containers, to mount their images, or to bind what modules bind."""
    if node.site.runtime.executable is None or any(runtime_faults(node)):
        return
    host, home = node.host, find_runtime(node.host, node.site)
    directives = {name: words[0] for name, words in (read_directives(host, node.site) or {}).items()}
    path = str(node.site.runtime.executable)
    for name in _NEEDED:
        if directives.get(name) in ("no", "minimal"):
            text = f"`{name} = {directives[name]}`: containers start without what modules bind, or not at all"
            yield of_node("container-start", str(home.config), text, f"set `{name} = yes`")
    programs = list(starters(host, home))
    allowed = directives.get("allow setuid") != "no"
    has_setuid = allowed and any(_is_setuid(node, program) for program in programs if program.endswith("-suid"))
    closed = [name for name, value in sysctls(host, _SPACES).items() if value == "0"]
    if not has_setuid and closed:
        text = f"no way to start a container: no usable setuid starter, and no user namespaces ({closed[0]} = 0)"
        advice = f"install the setuid starter, or `sysctl -w {closed[0]}={_SPACES[closed[0]]}`"
        yield of_node("container-start", path, text, advice)
        return
    if has_setuid and _kernel_mounts(home.name, directives):
        return
    lacking = ["/dev/fuse"] if names_of(host, "/dev") and resolve(host, "/dev/fuse").entry is None else []
    folders = (f"{home.top}/libexec/{home.name}/bin", *PROGRAM_FOLDERS)
    tools = (f"{folder}/{name}" for folder in folders for name in ("squashfuse_ll", "squashfuse"))
    if programs and not any(resolve(host, tool).entry for tool in tools):
        lacking.append("squashfuse")
    if lacking:
        text = f"{' and '.join(lacking)} missing, without which {home.name} mounts no image here"
        yield of_node("container-start", path, text, "`modprobe fuse` makes /dev/fuse; squashfuse is a package")


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
