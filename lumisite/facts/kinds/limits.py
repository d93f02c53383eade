"""What the system limits for each process of a job (ulimit).

Sources: limits.conf(5), systemd.exec(5), systemd.unit(5), systemd-system.conf(5).
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator

from lumisite.facts.change import Change, Touched
from lumisite.facts.context import Context
from lumisite.facts.kinds.paths import is_below
from lumisite.machine.ldcache import glob
from lumisite.machine.tree import Tree, small_text
from lumisite.site.model import Site

_SIZES, _COUNTS = ("as", "data", "memlock", "stack"), ("nofile", "nproc")
_ITEMS = (*_SIZES, *_COUNTS)
#: What a unit sets, and system.conf for all units.
_ASSIGNED = re.compile(r"^[ \t]*(?:Default)?(Limit[A-Z]+|Delegate|TasksMax)[ \t]*=(.*)$", re.MULTILINE)
#: Where units are, what counts most first; drop-ins of all of them count, by their names.
_UNITS = (
    "/etc/systemd/system",
    "/run/systemd/system",
    "/usr/local/lib/systemd/system",
    "/usr/lib/systemd/system",
    "/lib/systemd/system",
)
_NO_LIMIT = ("-1", "unlimited", "infinity")


def read_limits(tree: Tree, _: Site) -> dict[str, str] | None:
    """Return the limits of pam_limits by domain and item, and those of slurmd, which its jobs inherit."""
    found: dict[str, dict[str, str]] = {}
    for path in ("/etc/security/limits.conf", *glob(tree, "/etc/security/limits.d/*.conf")):
        for line in (small_text(tree, path) or "").splitlines():
            words = line.partition("#")[0].split()
            if len(words) == 4 and words[0] != "root" and words[2] in _ITEMS:
                kinds = ("soft", "hard") if words[1] == "-" else (words[1],)
                limits = dict.fromkeys(kinds, _limit(words[2], words[3], unit=1024))
                found[f"{words[0]} {words[2]}"] = found.get(f"{words[0]} {words[2]}", {}) | limits
    texts = {name: "; ".join(f"{kind} {kinds[kind]}" for kind in sorted(kinds)) for name, kinds in found.items()}
    texts |= _slurmd_limits(tree)
    if any(is_below(path, {"/etc/security", *_UNITS}) for path in getattr(tree, "unreadable", {})):
        return None
    return {name: text for name, text in texts.items() if (name + text).isprintable()}


def _limit(item: str, value: str, unit: int) -> str:
    """Return a limit in one spelling: sizes in KiB."""
    number = re.fullmatch(r"([0-9]{1,18})([KMGTPE]?)B?", value.upper())
    if value.lower() in _NO_LIMIT or not number:
        return "unlimited" if value.lower() in _NO_LIMIT else value
    scaled = int(number[1]) * 1024 ** " KMGTPE".index(number[2] or " ")
    return f"{scaled * unit // 1024} KiB" if item in _SIZES else str(scaled)


def _slurmd_limits(tree: Tree) -> dict[str, str]:
    """Return the limits of slurmd's unit with its drop-ins, else the defaults of systemd."""
    units = (f"{top}/slurmd.service" for top in _UNITS)
    unit = next((path for path in units if small_text(tree, path) is not None), None)
    if unit is None:
        return {}
    # Of drop-ins with the same name, the one in the first of the folders counts.
    paths = [path for top in reversed(_UNITS) for path in glob(tree, f"{top}/slurmd.service.d/*.conf")]
    drop_ins = {posixpath.basename(path): path for path in paths}
    defaults = ("/etc/systemd/system.conf", *glob(tree, "/etc/systemd/system.conf.d/*.conf"))
    stated: dict[str, str] = {}
    for path in (*defaults, unit, *(drop_ins[name] for name in sorted(drop_ins))):
        stated |= dict(_ASSIGNED.findall(small_text(tree, path) or ""))
    found = {}
    for key, value in ((key, text.strip()) for key, text in stated.items()):
        item = key.removeprefix("Limit").lower()
        if item in _ITEMS and value:
            sides = [_limit(item, side, unit=1) for side in value.split(":")]
            found[f"slurmd.service {key}"] = f"hard {sides[-1]}; soft {sides[0]}"
        elif not key.startswith("Limit") and value:
            found[f"slurmd.service {key}"] = value.lower()
    return found


def limit_touches(change: Change, context: Context) -> Iterator[Touched]:
    """Yield the ranks of all jobs, and for memory that is locked the settings about memory of the network."""
    yield Touched("site", "partitions", f"ranks on the node get {change.subject}")
    if change.subject.lower().endswith("memlock"):
        yield from context.settings_called("MR_CACHE|REGISTER|HUGE|_HP$", change.subject)
