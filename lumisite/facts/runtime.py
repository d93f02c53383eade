"""The container runtime: its program, what it starts containers with, and its configuration by meaning.

Sources: the structure `File` and the parser beside it, in `pkg/util/apptainerconf` of Apptainer 1 and
`pkg/util/singularityconf` of SingularityCE 4: names are in lower case, of one value the first line counts, a comment
has a line of its own; user_namespaces(7).
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from lumisite.facts.change import DOUBT, FAULT, Change, joined, only_in
from lumisite.facts.facts import Facts, Program
from lumisite.facts.installed import package_version
from lumisite.facts.kernel import sysctls
from lumisite.facts.reading import LARGEST_FILE_BYTES, Texts, file_mark, mode_of, owner_of, text_mark, values_of
from lumisite.machine.host import mount_of, mounts_of
from lumisite.machine.ldcache import glob
from lumisite.machine.tree import Tree, content_of, digest_of, head_of, is_under, resolve, size_of, small_text
from lumisite.render.runtimes import RUNTIMES
from lumisite.site.model import Site

_PACKAGES = ("apptainer", "singularity-ce", "singularity-container")
_SCRIPT = re.compile(
    rf"^[^#\n]*?(?:^|[\s\"'=])((?:/[^\s\"'$]*/)?(?:{'|'.join(RUNTIMES)}))[\"']?\s+[\"']?\$[@*]", re.MULTILINE
)
#: Settings of the kernel that close user namespaces.
_SPACES = (
    "kernel.apparmor_restrict_unprivileged_userns", "kernel.unprivileged_userns_clone", "user.max_user_namespaces",
)  # fmt: skip
_TOOLS = {
    "squashfuse": ("squashfuse_ll", "squashfuse"), "fuse-overlayfs": ("fuse-overlayfs",),
    "fusermount": ("fusermount3", "fusermount"), "newuidmap": ("newuidmap",),
}  # fmt: skip
_FOLDERS = ("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin")
STARTER, CONFIG = "setuid starter", "configuration"
#: What comes and goes with the runtime; the other programs are packages of their own.
OWN = (STARTER, CONFIG, "squashfuse", "fuse-overlayfs")
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
    return Program(program.path, size_of(tree, program.path), package, digest)


def find_runtime(tree: Tree, site: Site) -> Home:
    """Return the runtime behind the command of the site: a link or a script of the old name may lead to another one."""
    real = resolve(tree, site.runtime.executable or f"/usr/bin/{site.command}").path
    head = (head_of(tree, real, 4096) or b"").decode("utf-8", "replace")
    if head.startswith("#!") and (script := _SCRIPT.search(head)):
        real = resolve(tree, posixpath.join(posixpath.dirname(real), script[1])).path
    top, names = posixpath.dirname(posixpath.dirname(real)), [posixpath.basename(real), site.command, *RUNTIMES]
    folders = dict.fromkeys(("/etc" if top == "/usr" else f"{top}/etc", "/etc", "/usr/local/etc"))
    known = [name for name in dict.fromkeys(names) if name in RUNTIMES]
    configs = {
        name: path
        for name in known
        for path in [f"{folder}/{name}/{name}.conf" for folder in folders][::-1]
        if resolve(tree, path).entry is not None
    }
    if len(configs) > 1:  # the program names its own file
        content = content_of(tree, real, LARGEST_FILE_BYTES) or b""
        named = [name for name in configs if f"/{name}/{name}.conf".encode() in content]
        known = [*named, *known] if len(named) == 1 else known
    name = next((name for name in known if name in configs), known[0] if known else site.command)
    return Home(name, top, configs.get(name))


# What a container does not start without


def read_start(tree: Tree, site: Site) -> Texts:
    """Return the rights of the starter, of programs and of the configuration, and what the kernel closes."""
    home = find_runtime(tree, site)
    programs = {STARTER: [path for path in starters(tree, home) if path.endswith("/starter-suid")]}
    for label, names in _TOOLS.items():
        folders = (f"{home.top}/libexec/{home.name}/bin", f"{home.top}/bin", *_FOLDERS)
        programs[label] = [f"{folder}/{name}" for name in names for folder in folders]
    programs[CONFIG] = [home.config] if home.config else []
    spaces = sysctls(tree, _SPACES)
    if spaces.get(_SPACES[-1], "0") != "0":
        spaces[_SPACES[-1]] = "some"  # their number follows the memory of the node
    found = {label: list(_rights(tree, paths)) for label, paths in programs.items()}
    found |= {name: [value] for name, value in spaces.items()}
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


def read_files(tree: Tree, site: Site) -> Texts:
    """Return the digests of what the runtime starts containers with, of its lists, and of its profiles of AppArmor."""
    home = find_runtime(tree, site)
    folder = posixpath.dirname(home.config or f"/etc/{home.name}/{home.name}.conf")
    profiles = [f"/etc/apparmor.d/{part}*{home.name}*" for part in ("", "disable/")]
    texts = [*(f"{folder}/{file}" for file in _BESIDE), *(path for pattern in profiles for path in glob(tree, pattern))]
    found = {path: [text_mark(tree, path)] for path in texts}
    return found | {path: [file_mark(tree, path)] for path in starters(tree, home)}


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
_WORDS = {"yes", "no", "try", "driver", "minimal", "iflimited"}
#: What containers of this site cannot do without.
_NEEDED = re.compile(
    r"allow (setuid|container (sif|squashfs|dir)|kernel squashfs|setuid-mount squashfs)|user bind control"
    r"|mount (dev|proc|sys)"
)
FILE = "configuration file"


def read_directives(tree: Tree, site: Site) -> Texts:
    """Return the directives that the configuration states, one of one value by its first line, and the file itself."""
    config = find_runtime(tree, site).config
    text = None if config is None else small_text(tree, config)
    if config is None or text is None:
        return {}
    stated: Texts = {}
    for name, value in _DIRECTIVE.findall(text):
        if value.strip():
            stated.setdefault(name.strip(), []).extend(part.strip() for part in value.split(","))
    found = {name: sorted({*words}) if name.startswith(_LISTS) else words[:1] for name, words in stated.items()}
    return {FILE: [config], **found}


def _default(name: str) -> str | None:
    """Return what the runtime does where a directive is absent; `None` for one that is not known here."""
    if name.startswith(_LISTS):
        return "none"
    return _DEFAULTS.get(name, "yes" if name.startswith(_ON) else "no" if name.startswith(_OFF) else None)


def compare_directives(before: Facts, after: Facts) -> Iterator[Change]:
    """Yield a change for each directive of another meaning, or for the whole file where it went."""
    if not all("runtime-directive" in facts.texts for facts in (before, after)):
        return
    old, new = (facts.texts["runtime-directive"] for facts in (before, after))
    if FILE in old and FILE not in new:
        advice, config = "install the runtime's package again", old[FILE][0]
        yield Change(config, config, None, "configuration is gone", severity=FAULT, advice=advice)
        return
    for name in sorted((old.keys() | new.keys()) - {FILE}):
        was, now = (joined(side.get(name, ())) or _default(name) for side in (old, new))
        if was != now and was is not None and now is not None:
            is_fault = _forbids(name, was, now)
            message = f"{was} -> {now}" + (f" in {new[FILE][0]}" if FILE in new else "")
            advice = f"set it to {was}, or try one image of each family" if is_fault else ""
            yield Change(name, was, now, message, severity=FAULT if is_fault else DOUBT, advice=advice)


def _forbids(name: str, was: str, now: str) -> bool:
    """Return whether containers that started before may not start, or lack what they need."""
    if name.startswith("limit container "):
        gone, _ = only_in(was.split(", "), now.split(", "))
        return now != "none" and bool(gone)
    if _default(name) in _WORDS and now not in _WORDS:
        return True  # the runtime refuses the whole file
    return now in ("no", "minimal") and _NEEDED.fullmatch(name) is not None
