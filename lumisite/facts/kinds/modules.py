"""Modules: the folders that they are in, and their default versions."""

from __future__ import annotations

import posixpath
import re
from collections import Counter
from collections.abc import Iterable, Iterator

from lumisite.facts.change import Change, Touched, only_in
from lumisite.facts.context import Context
from lumisite.facts.facts import Facts
from lumisite.facts.kind import DOUBT, INFO, ChangeKind, Differences, compare_texts, parts_of, texts_of
from lumisite.facts.kinds.paths import is_below
from lumisite.facts.kinds.reading import printable_only
from lumisite.machine.ldcache import glob
from lumisite.machine.tree import Tree, names_of, resolve, small_text
from lumisite.site.model import Site
from lumisite.vendors import all_vendors

#: Where modules of distributions are, and the lists of folders that Lmod and Modules start with.
_MODULE_ROOTS = ("/opt/modulefiles", "/etc/modulefiles", "/usr/share/modulefiles")
_MODULE_LISTS = (
    "/etc/lmod/modulespath", "/etc/lmod/.modulespath", "/usr/share/lmod/lmod/init/.modulespath",
    "/usr/share/Modules/init/.modulespath", "/etc/environment-modules/modulespath",
)  # fmt: skip
_MOST_MODULE_FOLDERS, _DEEPEST = 2000, 8
#: What marks a default, in the order of Lmod ("Marked a Version as Default" of its manual).
_MARKS = (".modulerc.lua", ".modulerc", ".version")
_MARKED = re.compile(
    r"^\s*(?:module[-_]version[ \t(]+[\"']?([^\s\"',]+)[\"']?[ \t,]+[^\n]*\bdefault\b"
    r"|set\s+ModulesVersion\s+[\"{]?([^\s\"}]+))",
    re.MULTILINE,
)
#: What Lmod and Modules read for all folders, and the variables that name one more.
_RC_FILES = ("/etc/lmod/*modulerc*", "/usr/share/lmod/etc/*modulerc*", "/etc/environment-modules/*modulerc*")
_RC_VARIABLES = ("LMOD_MODULERCFILE", "MODULERCFILE")
_HIDDEN = re.compile(
    r"^\s*(?:hide[-_](?:version|modulefile)|module[-_]hide|hide)\b[^\n#]*?[\s({\"'=]([\w./+-]*\d[\w./+-]*)",
    re.MULTILINE,
)
#: Lines of login files that put folders in front of users, and the folders in them.
_USED = re.compile(r"^[^#\n]*(?:\bMODULEPATH=|\bmodule use\b)[^\n]*", re.MULTILINE)
_LOGIN_FILES = (
    "/etc/profile", "/etc/profile.local", "/etc/profile.d/*.sh", "/etc/bash.bashrc", "/etc/bash.bashrc.local",
    "/etc/bashrc", "/etc/environment",
)  # fmt: skip
#: What every user has loaded: Lmod's variable, those of vendors' start-up files, and commands (Lmod's manual, "How to
#: use a Default set of modules").
_DEFAULTS = re.compile(
    r"^[^#\n]*?(?:\b(LMOD_SYSTEM_DEFAULT_MODULES|LMOD_MODULERCFILE|MODULERCFILE|default_prgenv|init_module_list)="
    r"(\"[^\"\n]*\"|'[^'\n]*'|[^\s;]*)|\bmodule (?:--\S+ )*(?:load|add|try-load|swap) +([\w./+ -]+))",
    re.MULTILINE,
)
_MODULE = re.compile(r"[\w./][\w./+-]*")
_FOLDER = re.compile(r"(?<![\w$})/])/[\w./+-]+")


# The folders that modules are searched in


def _listed(tree: Tree) -> Iterator[str]:
    """Yield each folder of the lists that Lmod and Modules start with."""
    lines = (line.strip() for path in _MODULE_LISTS for line in (small_text(tree, path) or "").splitlines())
    yield from (folder for line in lines if line.startswith("/") for folder in glob(tree, line))


def _known() -> list[str]:
    return [*(folder for vendor in all_vendors() for folder in vendor.module_folders), *_MODULE_ROOTS]


def read_module_paths(tree: Tree, site: Site) -> dict[str, str]:
    """Return the folders of modules that exist: those of lists and login files, of vendors and distributions."""
    texts = (small_text(tree, path) or "" for path in glob(tree, "/etc/profile.d/*.sh"))
    used = [folder for text in texts for line in _USED.findall(text) for folder in _FOLDER.findall(line)]
    folders = {folder.rstrip("/"): resolve(tree, folder) for folder in (*_known(), *_listed(tree), *used)}
    found = (folder for folder, at in folders.items() if at.entry is not None and at.entry.kind == "directory")
    kept = sorted(folder for folder in found if folder.isprintable() and not is_below(folder, (site.root,)))
    return printable_only({"MODULEPATH": ", ".join(kept), **_loaded_at_login(tree)})


def _loaded_at_login(tree: Tree) -> dict[str, str]:
    """Return the modules that login files load, by the variable or the command that does it."""
    found: dict[str, dict[str, None]] = {}
    patterns = (*_LOGIN_FILES, *(pattern for vendor in all_vendors() for pattern in vendor.login_files))
    for path in (path for pattern in patterns for path in glob(tree, pattern)):
        for name, value, loaded in _DEFAULTS.findall(small_text(tree, path) or ""):
            words = re.split(r"[\s:;\"']+", (loaded or value).strip().strip("\"'"))
            found.setdefault(name or "module load", {}).update(dict.fromkeys(filter(_MODULE.fullmatch, words)))
    return {name: ", ".join(modules) for name, modules in found.items()}


def module_path_follows(change: Change, differences: Differences) -> bool:
    """Follow from a folder that went with a file system, a link or a folder above it."""
    gone = differences.subjects("dangling", "path") | differences.unmounted
    return all(is_below(folder, gone) for folder in (*parts_of(change.before), *parts_of(change.after)))


def module_path_touches(change: Change, context: Context) -> Iterator[Touched]:
    """Yield the modules of the site, which users load beside these, and what names a folder."""
    for folder in parts_of(change.before):
        yield from context.all_naming(folder)
    yield from module_default_touches(change, context)


# Default versions of modules


def read_module_defaults(tree: Tree, site: Site) -> dict[str, str]:
    """Return the version that each folder of modulefiles marks as default.

    The site's own root is left out, as each file of a release is known by its digest.
    """
    waiting = [
        (root, _DEEPEST) for root in dict.fromkeys((*_known(), *_listed(tree))) if not root.startswith(f"{site.root}/")
    ]
    found: dict[str, str] = {}
    at_login = _loaded_at_login(tree)
    named = (path for name in _RC_VARIABLES for path in at_login.get(name, "").split(", "))
    for path in (*(path for pattern in _RC_FILES for path in glob(tree, pattern)), *filter(None, named)):
        found[path] = ", ".join(_hidden(tree, [path]))
    for _ in range(_MOST_MODULE_FOLDERS):
        if not waiting:
            break
        folder, depth = waiting.pop(0)
        names = [name for name in names_of(tree, folder) if name.isprintable()]
        marked = [mark.removesuffix(".lua") for mark in _marked(tree, folder, names)]
        hidden = _hidden(tree, (f"{folder}/{name}" for name in names if "modulerc" in name))
        if marked or hidden:
            found[folder] = ", ".join([*([" ".join(marked)] if marked else []), *hidden])
        below = [f"{folder}/{name}" for name in names if depth and not name.startswith(".")]
        folders = [path for path in below if (entry := tree.look(path)) is not None and entry.kind == "directory"]
        waiting += [(path, depth - 1) for path in folders]
    return printable_only(found)


def _marked(tree: Tree, folder: str, names: list[str]) -> list[str]:
    """Return the default of one folder, by the mark that Lmod takes first."""
    if "default" in names and (link := resolve(tree, f"{folder}/default")).links:
        return [posixpath.basename(link.path)]
    for name in _MARKS:
        text = small_text(tree, f"{folder}/{name}") or "" if name in names else ""
        if marks := sorted({first or second for first, second in _MARKED.findall(text)}):
            return marks
    return []


def _hidden(tree: Tree, paths: Iterable[str]) -> list[str]:
    """Return which versions some files hide, which are no defaults any more ("Hidden Modules" of Lmod's manual)."""
    texts = [small_text(tree, path) or "" for path in paths]
    return sorted({f"{posixpath.basename(name)} is hidden" for text in texts for name in _HIDDEN.findall(text)})


def _moved(before: Facts, after: Facts) -> dict[str, str]:
    """Return the folders of modules that are elsewhere now, by where they were: the only ones of their name."""
    gone, come = only_in(*(facts.plain.get("module-default", {}) for facts in (before, after)))
    names = Counter(map(posixpath.basename, gone)), Counter(map(posixpath.basename, come))
    elsewhere = {posixpath.basename(folder): folder for folder in come}
    alone = (folder for folder in gone if all(count[posixpath.basename(folder)] == 1 for count in names))
    return {folder: elsewhere[posixpath.basename(folder)] for folder in alone}


def _roots(old: str, new: str) -> tuple[str, str]:
    """Return the two folders without what is the same at the end of both."""
    while posixpath.basename(old) == posixpath.basename(new) != "":
        old, new = posixpath.dirname(old), posixpath.dirname(new)
    return old, new


def compare_module_defaults(before: Facts, after: Facts) -> Iterator[Change]:
    """Yield a change for each module with another default, and one for each folder that moved with its modules."""
    moved = _moved(before, after)
    old, new = texts_of("module-default", before, after)
    yield from compare_texts({moved.get(at, at): marks for at, marks in old.items()}, new)
    for was, now in sorted({_roots(was, now) for was, now in moved.items()}):
        advice = "compare `module avail` on a login node, and correct the site's login files or Lmod's modulespath"
        yield Change(was, was, now, paths=(was, now), severity=DOUBT, advice=advice)


def module_default_follows(change: Change, differences: Differences) -> bool:
    """Follow from a folder that is not searched any more, or is new."""
    for path in differences.by_kind.get("module-path", ()):
        gone, come = parts_of(path.before), parts_of(path.after)
        if change.paths:
            return is_below(change.subject, gone) or is_below(str(change.after), come)
        if is_below(change.subject, come if change.before is None else gone if change.after is None else ()):
            return True
    return False


def module_default_touches(change: Change, context: Context) -> Iterator[Touched]:
    """Yield the defaults that the site states: without a version users get another release."""
    for stack in context.site.host_stacks:
        if stack in context.old.stacks:
            key = f"platforms.{context.was}.stacks.{stack}.default"
            yield Touched("site", key, f"states {context.old.defaults[stack]}")


KINDS = (
    ChangeKind(
        "module-default",
        compare_module_defaults,
        module_default_touches,
        "check what job scripts load without a version",
        (INFO, INFO, INFO),
        follows=module_default_follows,
        read=read_module_defaults,
    ),
)
