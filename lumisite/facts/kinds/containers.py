"""What makes a container start at all: the starter, FUSE, user namespaces, and what the runtime's configuration allows.

Sources: the structure `File` and the parser beside it, in `pkg/util/apptainerconf` of Apptainer 1 and
`pkg/util/singularityconf` of SingularityCE 4: names are in lower case, of one value the first line counts, a comment
has a line of its own; user_namespaces(7); selinux(8); apparmor.d(5).
"""

from __future__ import annotations

import posixpath
import re
import stat
from collections.abc import Iterator
from typing import NamedTuple

from lumisite.facts.change import Change, joined, only_in
from lumisite.facts.facts import Facts
from lumisite.facts.kind import ChangeKind, Differences, helper_touches, texts_of
from lumisite.machine.ldcache import config_lines, glob
from lumisite.machine.tree import Tree, content_of, first_line, head_of, names_of, resolve, small_text
from lumisite.render.runtimes import RUNTIMES
from lumisite.site.model import Site

_LARGEST_PROGRAM_BYTES = 256 * 1024 * 1024
_SCRIPT = re.compile(
    rf"^[^#\n]*?(?:^|[\s\"'=])((?:/[^\s\"'$]*/)?(?:{'|'.join(RUNTIMES)}))[\"']?\s+[\"']?\$[@*]", re.MULTILINE
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
        yield Change("runtime-config-gone", old[_FILE], old[_FILE], None)
        return
    for side, other in ((old, new), (new, old)):
        if _FILE not in side and other.get("bind path") == _BOUND:
            side["bind path"] = _BOUND
    for name in sorted((old.keys() | new.keys()) - {_FILE}):
        was, now = (side.get(name, _default(name)) for side in (old, new))
        if was != now and was is not None and now is not None:
            code = "runtime-directive-forbids" if _forbids(name, was, now) else "runtime-directive-changed"
            yield Change(code, name, was or "none", now or "none", {"file": new.get(_FILE, "")})


def _forbids(name: str, was: str, now: str) -> bool:
    """Return whether containers that started before may not start, or lack what they need."""
    if name.startswith("limit container "):
        gone, _ = only_in(was.split(", "), now.split(", "))
        return bool(now) and bool(gone)
    if _default(name) in _WORDS and now not in _WORDS:
        return True  # the runtime refuses the whole file
    return now in ("no", "minimal") and _NEEDED.fullmatch(name) is not None


# Starter, helpers, FUSE and user namespaces

_TOOLS = {
    "squashfuse": ("squashfuse_ll", "squashfuse"), "fuse-overlayfs": ("fuse-overlayfs",),
    "fusermount": ("fusermount3", "fusermount"), "newuidmap": ("newuidmap",),
}  # fmt: skip
_FOLDERS = ("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin")
STARTER, _FUSE, _SPACES, _SELINUX, _CONFIG = (
    "setuid starter",
    "/dev/fuse",
    "user namespaces",
    "SELinux",
    "configuration",
)
_GOOD = {"present", "setuid root", "open to users", "allowed", "permissive", "disabled", "of root alone"}
#: What a capture without a value says nothing of.
_UNKNOWN = {_SPACES, _SELINUX, _CONFIG}
#: Settings that are reported as user namespaces where they decide.
USERNS_SYSCTLS = {"kernel.unprivileged_userns_clone": "0", "kernel.apparmor_restrict_unprivileged_userns": "1"}


def read_start(tree: Tree, site: Site) -> dict[str, str]:
    """Return the state of each thing without which containers do not start."""
    home, found = find_runtime(tree, site), dict[str, str | None]()
    for path in starters(tree, home):
        if posixpath.basename(path) == "starter-suid":
            found[STARTER] = _setuid(tree, resolve(tree, path).path)
    for label, names in _TOOLS.items():
        folders = (f"{home.top}/libexec/{home.name}/bin", f"{home.top}/bin", *_FOLDERS)
        paths = [path for name in names for folder in folders if _is_file(tree, path := f"{folder}/{name}")]
        modes = {path: _mode(tree, path) for path in paths}
        runs = (path for path, mode in modes.items() if mode is None or mode & 0o111)
        found[label] = next(runs, None) or next(
            (f"mode {mode:04o}" for mode in modes.values() if mode is not None), None
        )
    if resolve(tree, _FUSE).entry is not None:
        mode = _mode(tree, _FUSE)
        found[_FUSE] = "present" if mode is None else "open to users" if mode & 0o6 == 0o6 else f"mode {mode:04o}"
    if home.config is not None and (mode := _mode(tree, home.config)) is not None:
        is_safe = not mode & 0o22 and not _other_owner(tree, home.config)
        found[_CONFIG] = "of root alone" if is_safe else _other_owner(tree, home.config) or f"mode {mode:04o}"
    found |= {_SPACES: _user_namespaces(tree, home), _SELINUX: _selinux(tree)}
    return {name: state for name, state in found.items() if state is not None and state.isprintable()}


def starters(tree: Tree, home: Home) -> Iterator[str]:
    """Yield the programs by which the runtime starts containers."""
    for folder in ("libexec", "lib", "lib/*"):
        yield from glob(tree, f"{home.top}/{folder}/{home.name}/bin/starter*")


def _setuid(tree: Tree, path: str) -> str:
    from lumisite.machine.host import mount_of, mounts_of  # comparing needs nothing that looks at a node

    mode = _mode(tree, path)
    if mode is None:
        return "present"
    if (mount := mount_of(mounts_of(tree), path)) is not None and "nosuid" in mount.options:
        return "mounted nosuid"
    if not mode & stat.S_ISUID:
        return "not setuid"
    return _other_owner(tree, path) or ("setuid root" if mode & stat.S_IXOTH else f"mode {mode:04o}")


def _mode(tree: Tree, path: str) -> int | None:
    """Return permission bits; `None` in a tree that has none."""
    mode: int | None = getattr(tree, "mode", lambda _: None)(resolve(tree, path).path)
    return mode


def _other_owner(tree: Tree, path: str) -> str:
    """Return an owner who is not that of the whole tree, which a user may have copied."""
    owner, top = (getattr(tree, "owner", lambda _: None)(one) for one in (resolve(tree, path).path, "/"))
    return "" if owner in (None, top) else f"owned by uid {owner}"


def _is_file(tree: Tree, path: str) -> bool:
    entry = resolve(tree, path).entry
    return entry is not None and entry.kind == "file"


def _user_namespaces(tree: Tree, home: Home) -> str | None:
    """Return whether users may make them, else the setting that forbids it."""
    closed = {"user.max_user_namespaces": "0", **USERNS_SYSCTLS}
    values = {name: first_line(tree, f"/proc/sys/{name.replace('.', '/')}") for name in closed}
    if not any(values.values()):  # a copy without /proc: what is set at boot counts
        files = [path for folder in ("/usr/lib", "/run", "/etc") for path in glob(tree, f"{folder}/sysctl.d/*.conf")]
        lines = (line.partition("=") for line in config_lines(tree, [*files, "/etc/sysctl.conf"], small_text))
        stated = {name.strip(" -").replace("/", "."): value.strip() for name, _, value in lines}
        values = {name: stated.get(name) for name in closed}
    if not any(values.values()):
        return None
    causes = [name for name, value in closed.items() if values[name] == value]
    if causes and "apparmor" in causes[0] and _has_profile(tree, home):
        return "allowed"
    return f"{causes[0]} = {closed[causes[0]]}" if causes else "allowed"


def _has_profile(tree: Tree, home: Home) -> bool:
    """Return whether a profile of AppArmor allows the runtime what others may not."""
    folder = "/etc/apparmor.d"
    names = {*names_of(tree, folder)} - {*names_of(tree, f"{folder}/disable")}
    texts = (small_text(tree, f"{folder}/{name}") or "" for name in names)
    return any(f"/{home.name}" in text and re.search(r"^\s*userns\b", text, re.MULTILINE) for text in texts)


def _selinux(tree: Tree) -> str | None:
    if enforce := first_line(tree, "/sys/fs/selinux/enforce"):
        return "enforcing" if enforce == "1" else "permissive"
    config = re.search(r"^\s*SELINUX\s*=\s*(\w+)", small_text(tree, "/etc/selinux/config") or "", re.MULTILINE)
    return config and config[1].lower()


def is_same_start(was: str | None, now: str | None) -> bool:
    """Return whether containers start by it as before: both states are good, or one tree has no modes."""
    return was == now or (None not in (was, now) and ("present" in (was, now) or (_is_good(was) and _is_good(now))))


def _is_good(state: str | None) -> bool:
    return state is not None and (state in _GOOD or state.startswith("/"))


def start_follows(change: Change, differences: Differences) -> bool:
    """Follow from the runtime, which came or went with all that it has; what one capture does not know is no change."""
    if change.subject in _UNKNOWN and (change.after is None or (change.before is None and _is_good(change.after))):
        return True
    codes = differences.codes("runtime")
    return not codes.isdisjoint(("runtime-gone", "runtime-new")) and change.subject not in (_FUSE, _SPACES, _SELINUX)


def userns_follows(change: Change, differences: Differences) -> bool:
    """Follow, as a setting of the kernel, from user namespaces that it closes or opens."""
    return change.subject in USERNS_SYSCTLS and _SPACES in differences.subjects("container-start")


KINDS = (
    ChangeKind("runtime-directive", compare_directives, helper_touches("spank/bin"), start_follows, read_directives),
)
