"""The container runtime: its program, what it starts containers with, and what its configuration states.

Sources: the structure `File` and the parser beside it, in `pkg/util/apptainerconf` of Apptainer 1 and
`pkg/util/singularityconf` of SingularityCE 4: names are in lower case, of one value the first line counts, a comment
has a line of its own; user_namespaces(7).
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from lumisite.facts.change import DOUBT, FAULT, Words
from lumisite.facts.facts import Facts, Program
from lumisite.facts.kernel import sysctls
from lumisite.facts.reading import LARGEST_FILE_BYTES, Texts, file_mark, mode_of, owner_of, text_mark, values_of
from lumisite.facts.releases import package_version
from lumisite.findings.finding import Severity
from lumisite.machine.ldcache import glob
from lumisite.machine.mounts import mount_of, mounts_of
from lumisite.machine.tree import Tree, digest_of, is_under, resolve, small_text
from lumisite.render.runtimes import RUNTIMES
from lumisite.site.model import Site

_PACKAGES = ("apptainer", "singularity-ce", "singularity-container")
#: Settings of the kernel that close user namespaces.
_SPACES = (
    "kernel.apparmor_restrict_unprivileged_userns", "kernel.unprivileged_userns_clone", "user.max_user_namespaces",
)  # fmt: skip
_TOOLS = {
    "squashfuse": ("squashfuse_ll", "squashfuse"), "fuse-overlayfs": ("fuse-overlayfs",),
    "fusermount": ("fusermount3", "fusermount"), "newuidmap": ("newuidmap",),
}  # fmt: skip
PROGRAM_FOLDERS = ("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin")
#: Where the configuration is.
FOLDERS = tuple(f"{top}/{name}" for top in ("/etc", "/usr/local/etc") for name in RUNTIMES)
#: Beside the configuration: who may run what, and the libraries that come with GPUs.
_BESIDE = ("capability.json", "ecl.toml", "nvliblist.conf", "rocmliblist.conf")


class Home(NamedTuple):
    """The `name` that the runtime which really runs has for itself, the `top` of its folders, and its configuration."""

    name: str
    top: str
    config: str | None


def is_wrapper(tree: Tree, site: Site, path: str) -> bool:
    """Return whether a real path is lumisite's own wrapper, which a loaded module puts before the runtime."""
    return is_under(path, resolve(tree, site.root).path) or is_under(path, site.root)


def read_program(tree: Tree, site: Site) -> Program:
    """Return what files tell of the container runtime; of lumisite's wrapper nothing, for it is none."""
    program = resolve(tree, site.runtime.executable or "/")
    if program.entry is None or program.entry.kind != "file" or is_wrapper(tree, site, program.path):
        return Program()
    packages = ((name, package_version(tree, name)) for name in _PACKAGES)
    package = next((f"{name} {version}" for name, version in packages if version), None)
    digest = digest_of(tree, program.path, LARGEST_FILE_BYTES)
    return Program(program.path, package, digest)


def program_of(facts: Facts) -> Mapping[str, Words]:
    """Return what of the program is compared: its file, package and digest."""
    program = facts.runtime
    marks = (program.package, program.sha256 and f"sha256 {program.sha256[:12]}")
    return {"container runtime": (program.real, *filter(None, marks))} if program.real else {}


def find_runtime(tree: Tree, site: Site) -> Home:
    """Return the runtime behind the command of the site: a link of the old name may lead to another one."""
    real = resolve(tree, site.runtime.executable or f"/usr/bin/{site.command}").path
    top = posixpath.dirname(posixpath.dirname(real))
    folders = dict.fromkeys(("/etc" if top == "/usr" else f"{top}/etc", "/etc", "/usr/local/etc"))
    known = [name for name in (posixpath.basename(real), site.command, *RUNTIMES) if name in RUNTIMES]
    for name in known:
        for path in (f"{folder}/{name}/{name}.conf" for folder in folders):
            if resolve(tree, path).entry is not None:
                return Home(name, top, path)
    return Home(known[0], top, None)


# What a container does not start without


def read_start(tree: Tree, site: Site) -> Texts:
    """Return starters and programs with their rights, what is beside the configuration, and what the kernel closes."""
    home = find_runtime(tree, site)
    programs = {"setuid starter": [path for path in starters(tree, home) if path.endswith("/starter-suid")]}
    for label, names in _TOOLS.items():
        folders = (f"{home.top}/libexec/{home.name}/bin", f"{home.top}/bin", *PROGRAM_FOLDERS)
        programs[label] = [f"{folder}/{name}" for name in names for folder in folders]
    programs["configuration"] = [home.config] if home.config else []
    spaces = sysctls(tree, _SPACES)
    if spaces.get(_SPACES[-1], "0") != "0":
        spaces[_SPACES[-1]] = "some"  # their number follows the memory of the node
    found = {label: list(_rights(tree, paths)) for label, paths in programs.items()}
    found |= {name: [value] for name, value in spaces.items()}
    found |= {path: [file_mark(tree, path)] for path in starters(tree, home)}
    folder = posixpath.dirname(home.config or f"/etc/{home.name}/{home.name}.conf")
    profiles = [f"/etc/apparmor.d/{part}*{home.name}*" for part in ("", "disable/")]
    texts = [*(f"{folder}/{file}" for file in _BESIDE), *(path for pattern in profiles for path in glob(tree, pattern))]
    found |= {path: [text_mark(tree, path)] for path in texts}
    return found | values_of(tree, {"SELinux": "/sys/fs/selinux/enforce"})


def starters(tree: Tree, home: Home) -> Iterator[str]:
    """Yield the programs by which the runtime starts containers."""
    for folder in ("libexec", "lib", "lib/*"):
        yield from glob(tree, f"{home.top}/{folder}/{home.name}/bin/starter*")


def _rights(tree: Tree, paths: Iterable[str]) -> Iterator[str]:
    """Yield the rights of the first file that users may run, else of the first; nothing where there is none."""
    entries = {path: resolve(tree, path) for path in paths}
    modes = {at.path: mode_of(tree, path) for path, at in entries.items() if at.entry and at.entry.kind == "file"}
    best = next((path for path, mode in modes.items() if mode is None or mode & 0o111), next(iter(modes), None))
    if best is None:
        return
    mode = modes[best]
    yield "present" if mode is None else f"mode {mode:04o}"
    if (owner := owner_of(tree, best)) is not None:
        yield f"owned by uid {owner}"
    mount = mount_of(mounts_of(tree), best)
    if mount is not None and "nosuid" in mount.options:
        yield "mounted nosuid"


# What the configuration allows

_DIRECTIVE = re.compile(r"^[ \t]*([a-zA-Z _-]+)=(.*)$", re.MULTILINE)
#: Directives with several values, in no order; without any, nothing is limited or bound.
_LISTS = ("limit container ", "allow net", "bind path")
_DEFAULTS = {
    "mount hostfs": "no", "shared loop devices": "no", "sif fuse": "no", "oci mode": "no", "enable overlay": "try",
    "allow setuid-mount extfs": "no", "allow setuid-mount squashfs": "iflimited", "user bind control": "yes",
    "tmp sandbox": "yes", "systemd cgroups": "yes", "max loop devices": "256", "sessiondir max size": "64",
    "image driver": "none", "memory fs type": "tmpfs", "root default capabilities": "full",
}  # fmt: skip
_ON = ("allow ", "config ", "enable ", "mount ")
_OFF = ("always use ", "use ")
#: What containers of this site cannot do without.
_NEEDED = re.compile(
    r"allow (setuid|container (sif|squashfs|dir)|kernel squashfs|setuid-mount squashfs)|user bind control"
    r"|mount (dev|proc|sys)"
)


def read_directives(tree: Tree, site: Site) -> Texts | None:
    """Return the directives that the configuration states, one of one value by its first line; `None` without one."""
    config = find_runtime(tree, site).config
    if config is None:
        return None
    stated: Texts = {}
    for name, value in _DIRECTIVE.findall(small_text(tree, config) or ""):
        if value.strip():
            stated.setdefault(name.strip(), []).extend(part.strip() for part in value.split(","))
    return {name: sorted({*words}) if name.startswith(_LISTS) else words[:1] for name, words in stated.items()}


def default_of(name: str) -> Words | None:
    """Return what the runtime does where a directive is absent; `None` for one that is not known here."""
    if name.startswith(_LISTS):
        return ()
    default = _DEFAULTS.get(name, "yes" if name.startswith(_ON) else "no" if name.startswith(_OFF) else None)
    return None if default is None else (default,)


def directive_severity(name: str, old: Words, new: Words) -> Severity:
    """Return a fault where containers that started before may not start, or lack what they need."""
    if name.startswith("limit container "):
        return FAULT if new and (not old or not {*old} <= {*new}) else DOUBT
    return FAULT if new and new[0] in ("no", "minimal") and _NEEDED.fullmatch(name) else DOUBT
