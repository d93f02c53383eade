"""The container runtime: its program, what it starts containers with, and its configuration."""

from __future__ import annotations

import hashlib
import posixpath
from collections.abc import Iterator

from lumisite.facts.change import Change, Touched
from lumisite.facts.context import Context
from lumisite.facts.facts import Facts, Program
from lumisite.facts.kind import ChangeKind, Differences, helper_touches
from lumisite.facts.kinds.containers import STARTER, find_runtime, starters
from lumisite.machine.ldcache import config_lines
from lumisite.machine.tree import Tree, digest_of, small_text
from lumisite.site.model import Site

#: Beside the configuration: who may run what, and the libraries that come with GPUs.
_LISTS = ("capability.json", "ecl.toml", "nvliblist.conf", "rocmliblist.conf")
_LARGEST_STARTER_BYTES = 64 * 1024 * 1024


def compare_runtime(before: Facts, after: Facts) -> Iterator[Change]:
    """Yield a change where the program is another one; what one capture could not read of it does not count."""
    old, new = before.runtime, after.runtime
    if old.real is None or new.real is None:
        if old.real != new.real:
            code = "runtime-new" if old.real is None else "runtime-gone"
            yield Change(code, new.real or old.real or "", _text(old), _text(new))
        return
    same_digest = old.sha256 == new.sha256 or None in (old.sha256, new.sha256)
    if (old.real, old.size_bytes, old.package) != (new.real, new.size_bytes, new.package) or not same_digest:
        yield Change("runtime-changed", new.real, _text(old), _text(new))


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


def read_files(tree: Tree, site: Site) -> dict[str, str]:
    """Return the digests of what the runtime starts containers with, and of its lists without comments."""
    home, found = find_runtime(tree, site), {}
    folder = posixpath.dirname(home.config or f"/etc/{home.name}/{home.name}.conf")
    for path in (f"{folder}/{file}" for file in _LISTS):
        if lines := "\n".join(config_lines(tree, [path], small_text)):
            found[path] = f"sha256 {hashlib.sha256(lines.encode()).hexdigest()[:12]}"
    for path in starters(tree, home):
        if digest := digest_of(tree, path, _LARGEST_STARTER_BYTES):
            found[path] = f"sha256 {digest[:12]}"
    return {path: mark for path, mark in found.items() if path.isprintable()}


def file_follows(change: Change, differences: Differences) -> bool:
    """Follow from the program, which has them, or from a starter that is reported as such."""
    is_starter = change.subject.endswith("/starter-suid") and STARTER in differences.subjects("container-start")
    return is_starter or bool(differences.by_kind.get("runtime"))


KINDS = (ChangeKind("runtime", compare_runtime, runtime_touches),)
