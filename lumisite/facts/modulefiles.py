"""Modules: the folders that they are searched in, what login loads, and the default versions.

Sources: Lmod's manual, "Marked a Version as Default", "Hidden Modules" and "How to use a Default set of modules".
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Iterator

from lumisite.facts.reading import Texts
from lumisite.machine.ldcache import glob
from lumisite.machine.tree import Tree, is_under, names_of, resolve, small_text
from lumisite.site.model import Site
from lumisite.vendors import all_vendors

#: Where modules of distributions are, and the lists of folders that Lmod and Modules start with.
_ROOTS = ("/opt/modulefiles", "/etc/modulefiles", "/usr/share/modulefiles")
_LISTS = (
    "/etc/lmod/modulespath", "/etc/lmod/.modulespath", "/usr/share/lmod/lmod/init/.modulespath",
    "/usr/share/Modules/init/.modulespath", "/etc/environment-modules/modulespath",
)  # fmt: skip
_DEEPEST = 8
#: What marks a default, in the order of Lmod.
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
_FOLDER = re.compile(r"(?<![\w$})/])/[\w./+-]+")
_LOGIN_FILES = (
    "/etc/profile", "/etc/profile.local", "/etc/profile.d/*.sh", "/etc/bash.bashrc", "/etc/bash.bashrc.local",
    "/etc/bashrc", "/etc/environment",
)  # fmt: skip
#: What every user has loaded: Lmod's variable, those of vendors' start-up files, and commands.
_DEFAULTS = re.compile(
    r"^[^#\n]*?(?:\b(LMOD_SYSTEM_DEFAULT_MODULES|LMOD_MODULERCFILE|MODULERCFILE|default_prgenv|init_module_list)="
    r"(\"[^\"\n]*\"|'[^'\n]*'|[^\s;]*)|\bmodule (?:--\S+ )*(?:load|add|try-load|swap) +([\w./+ -]+))",
    re.MULTILINE,
)
_MODULE = re.compile(r"[\w./][\w./+-]*")


def _known(tree: Tree) -> list[str]:
    """Return the folders of vendors and distributions, and of the lists that Lmod and Modules start with."""
    lines = (line.strip() for path in _LISTS for line in (small_text(tree, path) or "").splitlines())
    listed = (folder for line in lines if line.startswith("/") for folder in glob(tree, line))
    return [*(folder for vendor in all_vendors() for folder in vendor.module_folders), *_ROOTS, *listed]


def read_module_paths(tree: Tree, _: Site) -> Texts:
    """Return the folders of modules that exist, those of login files too, and the modules that these load."""
    used = [folder for text in _login_texts(tree) for line in _USED.findall(text) for folder in _FOLDER.findall(line)]
    folders = sorted({folder.rstrip("/") for folder in (*_known(tree), *used)})
    entries = {folder: resolve(tree, folder).entry for folder in folders}
    there = [folder for folder, entry in entries.items() if entry and entry.kind == "directory"]
    return {**{folder: ["folder of MODULEPATH"] for folder in there}, **_at_login(tree)}


def _at_login(tree: Tree) -> Texts:
    """Return the modules that login files load, by the variable or the command that does it."""
    found: dict[str, dict[str, None]] = {}
    for name, value, loaded in (loads for text in _login_texts(tree) for loads in _DEFAULTS.findall(text)):
        words = re.split(r"[\s:;\"']+", (loaded or value).strip().strip("\"'"))
        found.setdefault(name or "module load", {}).update(dict.fromkeys(filter(_MODULE.fullmatch, words)))
    return {name: list(modules) for name, modules in found.items()}


def _login_texts(tree: Tree) -> list[str]:
    """Return the files that login shells read, those of vendors too."""
    patterns = (*_LOGIN_FILES, *(pattern for vendor in all_vendors() for pattern in vendor.login_files))
    return [small_text(tree, path) or "" for pattern in patterns for path in glob(tree, pattern)]


def read_module_defaults(tree: Tree, site: Site) -> Texts:
    """Return what each folder of modulefiles marks as default and hides, but for the site's own root."""
    at_login = _at_login(tree)
    rc_files = [*(path for pattern in _RC_FILES for path in glob(tree, pattern))]
    rc_files += [path for name in _RC_VARIABLES for path in at_login.get(name, ())]
    found = {path: _hidden(tree, [path]) for path in rc_files}
    waiting = [(root, _DEEPEST) for root in dict.fromkeys(_known(tree)) if not is_under(root, site.root)]
    for folder, depth in waiting:  # which grows
        names = names_of(tree, folder)
        hidden = _hidden(tree, (f"{folder}/{name}" for name in names if "modulerc" in name))
        found[folder] = [*_marked(tree, folder, names), *hidden]
        below = [f"{folder}/{name}" for name in names if depth and not name.startswith(".")]
        inner = [path for path in below if (entry := tree.look(path)) is not None and entry.kind == "directory"]
        waiting += [(path, depth - 1) for path in inner]
    return found


def _marked(tree: Tree, folder: str, names: list[str]) -> Iterator[str]:
    """Yield the default of one folder, by the mark that Lmod takes first."""
    if "default" in names and (link := resolve(tree, f"{folder}/default")).links:
        yield posixpath.basename(link.path).removesuffix(".lua")
        return
    for name in _MARKS:
        text = small_text(tree, f"{folder}/{name}") or "" if name in names else ""
        if marks := sorted({(first or second).removesuffix(".lua") for first, second in _MARKED.findall(text)}):
            yield from marks
            return


def _hidden(tree: Tree, paths: Iterable[str]) -> list[str]:
    """Return which versions some files hide, which are no defaults any more."""
    texts = [small_text(tree, path) or "" for path in paths]
    return sorted({f"{posixpath.basename(name)} is hidden" for text in texts for name in _HIDDEN.findall(text)})
