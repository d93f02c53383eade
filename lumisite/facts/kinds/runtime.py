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

from lumisite.facts.change import Change, Touched, joined, only_in
from lumisite.facts.context import Context
from lumisite.facts.facts import Facts, Program
from lumisite.facts.kind import DOUBT, FAULT, INFO, ChangeKind, Differences, helper_touches, texts_of
from lumisite.facts.kinds.node import sysctls
from lumisite.facts.kinds.reading import file_mark, mode_of, printable_only, text_mark, values_of
from lumisite.machine.ldcache import glob
from lumisite.machine.tree import Tree, content_of, head_of, resolve, small_text
from lumisite.render.runtimes import RUNTIMES
from lumisite.site.model import Site

# The program


def compare_runtime(before: Facts, after: Facts) -> Iterator[Change]:
    """Yield a change where the program is another one; what one capture could not read of it does not count."""
    old, new = before.runtime, after.runtime
    if old.real is None or new.real is None:
        if old.real != new.real:
            yield Change(new.real or old.real or "", _text(old), _text(new))
        return
    same_digest = old.sha256 == new.sha256 or None in (old.sha256, new.sha256)
    if (old.real, old.size_bytes, old.package) != (new.real, new.size_bytes, new.package) or not same_digest:
        users = (("changed", f"Container runtime: {_text(old)} -> {_text(new)}."),)
        yield Change(new.real, _text(old), _text(new), users=users)


def _text(program: Program) -> str | None:
    if program.real is None:
        return None
    name = program.package or f"{program.real}, {program.size_bytes} bytes"
    return f"{name}, sha256 {program.sha256[:12]}" if program.sha256 else name


def runtime_touches(change: Change, context: Context) -> Iterator[Touched]:
    """Yield the variant that the site states, and the wrapper."""
    site = context.site
    yield Touched("site", f"runtimes.{site.command}.variant", f"states {site.runtime.variant}")
    yield from helper_touches("spank/bin")(change, context)


# Which runtime that is

_LARGEST_PROGRAM_BYTES = 256 * 1024 * 1024
_SCRIPT = re.compile(
    rf"^[^#\n]*?(?:^|[\s\"'=])((?:/[^\s\"'$]*/)?(?:{'|'.join(RUNTIMES)}))[\"']?\s+[\"']?\$[@*]", re.MULTILINE
)


class Home(NamedTuple):
    """The `name` that the runtime which really runs has for itself, the `top` of its folders, and its configuration."""

    name: str
    top: str
    config: str | None


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
        content = content_of(tree, real, _LARGEST_PROGRAM_BYTES) or b""
        named = [name for name in configs if f"/{name}/{name}.conf".encode() in content]
        known = [*named, *known] if len(named) == 1 else known
    name = next((name for name in known if name in configs), known[0] if known else site.command)
    return Home(name, top, configs.get(name))


# What a container does not start without

_SELINUX = "SELinux"
#: Settings of the kernel that close user namespaces.
_SPACES = (
    "kernel.apparmor_restrict_unprivileged_userns", "kernel.unprivileged_userns_clone", "user.max_user_namespaces",
)  # fmt: skip
_TOOLS = {
    "squashfuse": ("squashfuse_ll", "squashfuse"), "fuse-overlayfs": ("fuse-overlayfs",),
    "fusermount": ("fusermount3", "fusermount"), "newuidmap": ("newuidmap",),
}  # fmt: skip
_FOLDERS = ("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin")
_STARTER, _CONFIG = "setuid starter", "configuration"
#: What comes and goes with the runtime; the other programs are packages of their own.
_OWN = (_STARTER, _CONFIG, "squashfuse", "fuse-overlayfs")
#: Beside the configuration: who may run what, and the libraries that come with GPUs.
_BESIDE = ("capability.json", "ecl.toml", "nvliblist.conf", "rocmliblist.conf")


def read_start(tree: Tree, site: Site) -> dict[str, str]:
    """Return the rights of the starter, of programs and of the configuration, and what the kernel closes."""
    home = find_runtime(tree, site)
    programs = {_STARTER: [path for path in starters(tree, home) if path.endswith("/starter-suid")]}
    for label, names in _TOOLS.items():
        folders = (f"{home.top}/libexec/{home.name}/bin", f"{home.top}/bin", *_FOLDERS)
        programs[label] = [f"{folder}/{name}" for name in names for folder in folders]
    found = {label: _rights(tree, paths) for label, paths in programs.items()}
    found[_CONFIG] = _rights(tree, [home.config] if home.config else [])
    spaces = sysctls(tree, _SPACES)
    if spaces.get(_SPACES[-1], "0") != "0":
        spaces[_SPACES[-1]] = "some"  # their number follows the memory of the node
    return printable_only({**found, **spaces, **values_of(tree, {_SELINUX: "/sys/fs/selinux/enforce"})})


def starters(tree: Tree, home: Home) -> Iterator[str]:
    """Yield the programs by which the runtime starts containers."""
    for folder in ("libexec", "lib", "lib/*"):
        yield from glob(tree, f"{home.top}/{folder}/{home.name}/bin/starter*")


def _rights(tree: Tree, paths: Iterable[str]) -> str:
    """Return the rights of the first file that users may run, else of the first; empty where there is none."""
    from lumisite.machine.host import mount_of, mounts_of  # comparing needs nothing that looks at a node

    entries = {path: resolve(tree, path) for path in paths}
    modes = {at.path: mode_of(tree, path) for path, at in entries.items() if at.entry and at.entry.kind == "file"}
    best = next((path for path, mode in modes.items() if mode is None or mode & 0o111), next(iter(modes), None))
    if best is None:
        return ""
    mode = modes[best]
    if mode is None:
        return "present"
    text = f"mode {mode:04o}"
    # A user may have copied the whole tree.
    owner, top = (getattr(tree, "owner", lambda _: None)(path) for path in (best, "/"))
    mount = mount_of(mounts_of(tree), best)
    text += "" if owner in (None, top) else f", owned by uid {owner}"
    return text + (", mounted nosuid" if mount is not None and "nosuid" in mount.options else "")


def start_follows(change: Change, differences: Differences) -> bool:
    """Follow from the runtime, which came or went with all that it has, or from its configuration, which went."""
    if change.subject == _CONFIG and None in (change.before, change.after):
        return True
    is_own = change.kind == "runtime-directive" or change.subject in _OWN
    return is_own and differences.came_or_went("runtime")


def read_files(tree: Tree, site: Site) -> dict[str, str]:
    """Return the digests of what the runtime starts containers with, of its lists, and of its profiles of AppArmor."""
    home = find_runtime(tree, site)
    folder = posixpath.dirname(home.config or f"/etc/{home.name}/{home.name}.conf")
    profiles = [f"/etc/apparmor.d/{part}*{home.name}*" for part in ("", "disable/")]
    texts = [*(f"{folder}/{file}" for file in _BESIDE), *(path for pattern in profiles for path in glob(tree, pattern))]
    marks = {path: text_mark(tree, path) for path in texts}
    return printable_only(marks | {path: file_mark(tree, path) for path in starters(tree, home)})


def file_follows(change: Change, differences: Differences) -> bool:
    """Follow, as a starter, from the program, which it comes with, or from its rights; lists and profiles are apart."""
    name = posixpath.basename(change.subject)
    is_reported = name == "starter-suid" and _STARTER in differences.subjects("container-start")
    return (
        is_reported
        or differences.came_or_went("runtime")
        or (name.startswith("starter") and bool(differences.by_kind.get("runtime")))
    )


# What the configuration allows

_DIRECTIVE = re.compile(r"^[ \t]*([a-zA-Z _-]+)=(.*)$", re.MULTILINE)
#: Directives with several values, in no order; without any, nothing is limited or bound.
_LISTS = ("limit container ", "allow net", "bind path")
_DEFAULTS = {
    "mount hostfs": "no", "shared loop devices": "no", "sif fuse": "no", "oci mode": "no", "enable overlay": "try",
    "allow setuid-mount extfs": "no", "allow setuid-mount squashfs": "iflimited", "user bind control": "yes",
    "tmp sandbox": "yes", "systemd cgroups": "yes", "max loop devices": "256", "sessiondir max size": "64",
    "image driver": "", "memory fs type": "tmpfs", "root default capabilities": "full",
}  # fmt: skip
_ON = ("allow ", "config ", "enable ", "mount ")
_OFF = ("always use ", "use ")
_WORDS = {"yes", "no", "try", "driver", "minimal", "iflimited"}
#: What containers of this site cannot do without.
_NEEDED = re.compile(
    r"allow (setuid|container (sif|squashfs|dir)|kernel squashfs|setuid-mount squashfs)|user bind control"
    r"|mount (dev|proc|sys)"
)
_FILE = "configuration file"
#: What the runtime binds where there is no file that says it.
_BOUND = "/etc/hosts, /etc/localtime"


def read_directives(tree: Tree, site: Site) -> dict[str, str]:
    """Return the directives that differ from what the runtime does without them, and the file that has them."""
    config = find_runtime(tree, site).config
    text = None if config is None else small_text(tree, config)
    if config is None or text is None:
        return {}
    stated: dict[str, list[str]] = {}
    for name, value in _DIRECTIVE.findall(text):
        if value.strip():
            stated.setdefault(name.strip(), []).extend(part.strip() for part in value.split(","))
    found = {
        name: joined(sorted({*values})) if name.startswith(_LISTS) else values[0] for name, values in stated.items()
    }
    kept = {name: value for name, value in found.items() if value and value != _default(name)}
    return {_FILE: config, **{name: value for name, value in sorted(kept.items()) if (name + value).isprintable()}}


def _default(name: str) -> str | None:
    """Return what the runtime does where a directive is absent; `None` for one that is not known here."""
    if name.startswith(_LISTS):
        return ""
    return _DEFAULTS.get(name, "yes" if name.startswith(_ON) else "no" if name.startswith(_OFF) else None)


def compare_directives(before: Facts, after: Facts) -> Iterator[Change]:
    """Yield a change for each directive of another meaning, or for the whole file where it went."""
    old, new = map(dict, texts_of("runtime-directive", before, after))
    if _FILE in old and _FILE not in new:
        advice = "install the runtime's package again"
        yield Change(old[_FILE], old[_FILE], None, "configuration is gone", severity=FAULT, advice=advice)
        return
    for side, other in ((old, new), (new, old)):
        if _FILE not in side and other.get("bind path") == _BOUND:
            side["bind path"] = _BOUND
    for name in sorted((old.keys() | new.keys()) - {_FILE}):
        was, now = (side.get(name, _default(name)) for side in (old, new))
        if was != now and was is not None and now is not None:
            was, now, is_fault = was or "none", now or "none", _forbids(name, was, now)
            message = f"{was} -> {now}" + (f" in {new[_FILE]}" if _FILE in new else "")
            advice = f"set it to {was}, or try one image of each family" if is_fault else ""
            yield Change(name, was, now, message, severity=FAULT if is_fault else DOUBT, advice=advice)


def _forbids(name: str, was: str, now: str) -> bool:
    """Return whether containers that started before may not start, or lack what they need."""
    if name.startswith("limit container "):
        gone, _ = only_in(was.split(", "), now.split(", "))
        return bool(now) and bool(gone)
    if _default(name) in _WORDS and now not in _WORDS:
        return True  # the runtime refuses the whole file
    return now in ("no", "minimal") and _NEEDED.fullmatch(name) is not None


_TRY = "try one image of each family"
KINDS = (
    ChangeKind("runtime", compare_runtime, runtime_touches, _TRY, (DOUBT, FAULT, INFO), "container runtime"),
    ChangeKind(
        "runtime-directive",
        compare_directives,
        helper_touches("spank/bin"),
        _TRY,
        follows=start_follows,
        read=read_directives,
    ),
)
