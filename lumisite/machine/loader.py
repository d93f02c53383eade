"""Find libraries as the dynamic loader of a tree would, without running it.

Sources: ld.so(8) of man-pages 6.03 for the order; glibc 2.36 for what it leaves open: `elf/dl-load.c` (a candidate for
another machine is passed over, a damaged one ends the search). Relative directories in search paths depend on the
working directory and are passed over. So are $ORIGIN in LD_LIBRARY_PATH, which is the folder of the program, and
$PLATFORM, which only old libraries have. The subdirectories for processors that glibc had before glibc-hwcaps
(`haswell`, `tls`) hold nothing today and are not looked into.
"""

from __future__ import annotations

import itertools
import posixpath
import re
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from lumisite.findings.finding import Finding, Severity
from lumisite.machine.elf import ElfError, ElfInfo, read_elf
from lumisite.machine.ldcache import CACHE, conf_directories, read_cache
from lumisite.machine.tree import ResolvedPath, Tree, file_of, names_of, opened_by, resolve, text_of

#: The path of the loader of each machine, by `e_machine`.
INTERPRETERS = {62: "/lib64/ld-linux-x86-64.so.2", 183: "/lib/ld-linux-aarch64.so.1"}
MACHINES = {3: "i386", 21: "ppc64", 22: "s390", 40: "arm", 62: "x86-64", 183: "AArch64", 243: "RISC-V"}
_X86_64 = 62
_TOKEN = re.compile(r"\$(?:\{(ORIGIN|LIB)\}|(ORIGIN|LIB)\b)")
_BY_CACHE = "through its cache"
_USUAL_DIRECTORIES = ("/lib64", "/usr/lib64", "/lib", "/usr/lib")
_MULTIARCH = {62: "x86_64-linux-gnu", 183: "aarch64-linux-gnu"}
_LARGEST_INTERPRETER_BYTES = 4 * 1024 * 1024
#: What the flags of /proc/cpuinfo must hold for each level of the x86-64 psABI, on top of the one before.
_LEVELS = {
    "x86-64-v2": "cx16 lahf_lm popcnt pni sse4_1 sse4_2 ssse3",
    "x86-64-v3": "abm avx avx2 bmi1 bmi2 f16c fma movbe xsave",
    "x86-64-v4": "avx512bw avx512cd avx512dq avx512f avx512vl",
}


@dataclass(frozen=True)
class Rules:
    """What one loader goes by: `directories` are its built-in ones, `cache` maps names to paths.

    `levels` are those of this CPU that it looks for in glibc-hwcaps, best first; `lib` is what `$LIB` stands for.
    """

    machine: int = _X86_64
    directories: tuple[str, ...] = _USUAL_DIRECTORIES
    cache: Mapping[str, str] = field(default_factory=dict)
    library_path: tuple[str, ...] = ()
    levels: tuple[str, ...] = ()
    lib: str = "lib64"
    interpreter: str | None = None


@dataclass(frozen=True)
class Found:
    """A library that the loader would take: the `path` that it opens, the `real` file, and `how` it got there."""

    path: str
    real: str
    info: ElfInfo
    how: str = ""


@dataclass(frozen=True)
class Search:
    """The result of a search: what was `found`, or `trouble` that ends it, and the candidates `passed` over."""

    found: Found | None
    trouble: Finding | None = None
    passed: tuple[Finding, ...] = ()

    @property
    def closed(self) -> tuple[str, ...]:
        """The files and folders among those passed over which this user may not read or enter."""
        return tuple(finding.subject for finding in self.passed if finding.code == "path-closed")


@dataclass(frozen=True)
class Loaded:
    """An object in a process: the `name` that it was first asked for by, and the object that asked."""

    name: str
    found: Found
    parent: Loaded | None = None

    @property
    def file(self) -> str:
        """The name of its file, or of a link to it."""
        return posixpath.basename(self.name)


@dataclass(frozen=True)
class Need:
    """One NEEDED entry, or a root without `requester`: what serves it, or the failed search."""

    name: str
    requester: Loaded | None
    loaded: Loaded | None
    search: Search

    @property
    def library(self) -> str:
        """The SONAME of what is needed, which some objects need by its path."""
        soname = None if self.loaded is None else self.loaded.found.info.soname
        return soname or posixpath.basename(self.name)

    @property
    def user(self) -> str:
        """The name of what needs it."""
        return "nothing" if self.requester is None else self.requester.file


@dataclass(frozen=True)
class Loader:
    """The dynamic loader of a tree. What it has read it keeps, as one answer asks for the same files many times."""

    tree: Tree
    rules: Rules
    _seen: dict[str, Search] = field(default_factory=dict)
    _folders: dict[str, ResolvedPath] = field(default_factory=dict)
    _paths: dict[tuple[str, str], Sequence[str]] = field(default_factory=dict)

    def search(self, name: str, requester: Loaded | None = None) -> Search:
        """Find a library for an object that needs it, or for a program that opens it by name."""
        passed: dict[tuple[str, str], Finding] = {}
        for path, how in self._candidates(name, requester):
            answer = self._judged(path)
            passed |= {(finding.code, finding.subject): finding for finding in answer.passed}
            if answer.trouble:
                return Search(None, answer.trouble, tuple(passed.values()))
            if answer.found is not None:
                return Search(replace(answer.found, how=how), None, tuple(passed.values()))
        return Search(None, None, tuple(passed.values()))

    @cached_property
    def names(self) -> frozenset[str]:
        """The names of all files in the directories of a program's search path, or in the cache."""
        folders = (*self.rules.library_path, *self.rules.directories)
        return frozenset(self.rules.cache).union(*(names_of(self.tree, path, None) for path in folders))

    def _candidates(self, name: str, requester: Loaded | None) -> Iterator[tuple[str, str]]:
        if "/" in name:
            origin = posixpath.dirname(requester.found.path) if requester else ""
            yield from ((path, "by its path") for path in self._expand([name], origin))
            return
        for directories, how in self._directories(requester):
            for directory in directories:
                for level in self.rules.levels:
                    yield posixpath.join(directory, "glibc-hwcaps", level, name), how
                yield posixpath.join(directory, name), how
            if how == _BY_CACHE and name in self.rules.cache:
                path = self.rules.cache[name]
                is_default = posixpath.dirname(path) in self.rules.directories
                if not (requester and requester.found.info.nodeflib and is_default):
                    yield path, how

    def _directories(self, requester: Loaded | None) -> Iterator[tuple[Sequence[str], str]]:
        info = requester.found.info if requester else None
        loaded = requester if info and info.runpath is None else None
        while loaded is not None:
            if loaded.found.info.rpath and loaded.found.info.runpath is None:
                yield self._path_of(loaded, loaded.found.info.rpath), f"through the RPATH of {loaded.name}"
            loaded = loaded.parent
        known = (path for path in self.rules.library_path if "ORIGIN" not in path)
        yield self._expand(known, ""), "through LD_LIBRARY_PATH"
        if requester and info and info.runpath:
            yield self._path_of(requester, info.runpath), f"through the RUNPATH of {requester.name}"
        yield (), _BY_CACHE
        if not (info and info.nodeflib):
            yield self.rules.directories, "in a default directory"

    def _path_of(self, requester: Loaded, text: str) -> Sequence[str]:
        key = text, posixpath.dirname(requester.found.path)
        found = self._paths.get(key)
        return found or self._paths.setdefault(key, self._expand(text.split(":"), key[1]))

    def expanded(self, name: str, requester: Loaded) -> str:
        """Return a name as its requester means it: `$ORIGIN/liba.so` of two requesters may be two files."""
        return (self._path_of(requester, name) or (name,))[0] if name.startswith("$") else name

    def _expand(self, texts: Iterable[str], origin: str) -> tuple[str, ...]:
        tokens = {"ORIGIN": origin, "LIB": self.rules.lib}
        expanded = (_TOKEN.sub(lambda match: tokens[match[1] or match[2]], text) for text in texts)
        return tuple(text.rstrip("/") or "/" for text in expanded if text.startswith("/"))

    def _judged(self, path: str) -> Search:
        if path not in self._seen:
            self._seen[path] = self._try(path)
        return self._seen[path]

    def _try(self, path: str) -> Search:
        """Judge one candidate: absent, found, passed over, or the end of the search."""
        resolved = self._resolve(path)
        if resolved.entry is None:
            folder = posixpath.dirname(resolved.path)
            if command := opened_by(self.tree, folder):
                return _closed(folder, f"may not be entered ({command})")
            return Search(None, None, () if resolved.code == "path-missing" else (resolved.finding(path),))
        if resolved.entry.kind != "file":
            advice = "restore the file, or install its package again"
            return _passed(Finding("library-damaged", Severity.FAULT, "is no file", advice, path))
        source = self.tree.source(resolved.path)
        if source is None:
            command = opened_by(self.tree, resolved.path)
            return _closed(path, f"may not be read ({command})" if command else "may not be read")
        try:
            info = read_elf(source)
        except ElfError as error:
            return Search(None, replace(error.finding, subject=path))
        if (info.machine, info.bits, info.endianness) != (self.rules.machine, 64, "little"):
            name = MACHINES.get(info.machine, info.machine)
            message = f"is for another machine ({name}, {info.bits} bits, {info.endianness}-endian)"
            advice = "install the package for this machine"
            return _passed(Finding("library-damaged", Severity.FAULT, message, advice, path))
        return Search(Found(path, resolved.path, info))

    def _resolve(self, path: str) -> ResolvedPath:
        """Follow the links of a path; most candidates are not there, in folders that were looked up before."""
        folder, _, name = path.rpartition("/")
        resolved = self._folders.get(folder)
        if resolved is None:
            resolved = self._folders[folder] = resolve(self.tree, folder)
        if resolved.entry is None:
            # A link at the end of the folder's path is in the middle of this one.
            code = "path-missing" if resolved.code == "link-broken" else resolved.code
            return resolved._replace(code=code, links=())
        if resolved.entry.kind == "directory":
            return resolve(self.tree, name, resolved.path)
        return resolve(self.tree, path)


def _closed(path: str, message: str) -> Search:
    advice = "open it as its owner or root"
    return _passed(Finding("path-closed", Severity.FAULT, message, advice, path))


def _passed(finding: Finding) -> Search:
    return Search(None, None, (finding,))


@dataclass
class ProcessObjects:
    """The objects of one process, as they come: each with all that it needs, breadth first, before the next is opened.

    An object that is already there serves everyone who asks for its name or SONAME.
    """

    loader: Loader
    needs: list[Need] = field(default_factory=list)
    by_name: dict[str, Loaded] = field(default_factory=dict)
    _by_file: dict[str, Loaded] = field(default_factory=dict)
    _waiting: deque[Loaded] = field(default_factory=deque)

    def __post_init__(self) -> None:
        interpreter = self.loader.rules.interpreter
        found = None if interpreter is None else self.loader.search(interpreter).found
        if found is not None:
            name = found.info.soname or posixpath.basename(found.path)
            self.by_name[name] = Loaded(name, found)

    def load(self, roots: Iterable[Loaded | Need]) -> None:
        """Load objects at once, as those that a program is linked with; roots that failed are passed on."""
        for root in roots:
            if isinstance(root, Need):
                loaded = None if root.loaded is None else self.by_name.get(root.name) or self._enter(root.loaded)
                self.needs.append(Need(root.name, None, loaded, root.search))
            else:
                self._enter(root)
        while self._waiting:
            self._load_needed(self._waiting.popleft())

    def dlopen(self, name: str, caller: Loaded | None = None) -> Loaded | None:
        """Return a library that an object opens at run time, by name or path; `None` where there is none."""
        expanded = name if caller is None else self.loader.expanded(name, caller)
        if expanded not in self.by_name:
            search = self.loader.search(name, caller)
            if search.found is None:
                return None
            # The search path of the caller finds it, and is none of what it needs itself.
            self.load([Loaded(expanded, search.found)])
        return self.by_name[expanded]

    def needs_of(self, start: Loaded) -> tuple[Need, ...]:
        """Return what an object of the process needs, itself or through others."""
        found, waiting = [], [start]
        for requester in waiting:
            for need in (need for need in self.needs if need.requester is requester):
                found.append(need)
                if need.loaded is not None and need.loaded not in waiting:
                    waiting.append(need.loaded)
        return tuple(found)

    def _enter(self, loaded: Loaded) -> Loaded:
        known = self._by_file.setdefault(loaded.found.real, loaded)
        self.by_name[loaded.name] = known
        if known is loaded:
            self.by_name.setdefault(loaded.found.info.soname or loaded.name, loaded)
            self._waiting.append(loaded)
        return known

    def _load_needed(self, requester: Loaded) -> None:
        for name in requester.found.info.needed:
            expanded = self.loader.expanded(name, requester)
            served = self.by_name.get(expanded)
            if served is not None:
                self.needs.append(Need(name, requester, served, Search(served.found)))
                continue
            search = self.loader.search(name, requester)
            loaded = None if search.found is None else self._enter(Loaded(expanded, search.found, requester))
            self.needs.append(Need(name, requester, loaded, search))


def walk(loader: Loader, roots: Iterable[Loaded | Need]) -> tuple[Need, ...]:
    """Load roots and all that they need into one process, in the loader's order; roots that failed are passed on."""
    process = ProcessObjects(loader)
    process.load(roots)
    return tuple(process.needs)


def cpu_levels(tree: Tree, unknown: tuple[str, ...] = ()) -> tuple[str, ...]:
    """Return the levels of the x86-64 psABI that the CPU of a tree has by its /proc/cpuinfo, best first.

    They are those in `unknown` where that file is missing.
    """
    found = re.search(r"^flags\s*:(.*)$", text_of(tree, "/proc/cpuinfo") or "", re.M)
    if found is None:
        return unknown
    flags = set(found[1].split())
    return tuple(itertools.takewhile(lambda level: flags.issuperset(_LEVELS[level].split()), _LEVELS))[::-1]


def read_rules(
    tree: Tree, levels: tuple[str, ...] = (), library_path: Sequence[str] = (), *, captured: bool = False
) -> Rules:
    """Read what the loader of a tree goes by; raises a `LumisiteError` when its cache is damaged.

    Its built-in directories, and whether it knows `levels` of the CPU, are read in the loader's own file; without one,
    x86-64 and the directories of Debian or of others are assumed. `captured` is for a host that may be copied in part:
    without a cache it is searched as if ldconfig had just run, and without a loader in the directories of all
    distributions.
    """
    machine, interpreter, content = _find_interpreter(tree)
    directories = _built_in(content) or _usual(tree, machine, everywhere=captured)
    known = levels if machine == _X86_64 and (b"glibc-hwcaps" in content or not content) else ()
    source = file_of(tree, CACHE)
    cache: Mapping[str, str] = {}
    more: tuple[str, ...] = ()
    if source is not None:
        cache = read_cache(source, machine, known)
    elif captured:
        more = tuple(path for path in conf_directories(tree) if path not in directories)
    return Rules(
        machine=machine,
        directories=more + directories,
        cache=cache,
        library_path=tuple(library_path),
        levels=known,
        lib=directories[0].removeprefix("/usr").lstrip("/"),
        interpreter=interpreter,
    )


def _find_interpreter(tree: Tree) -> tuple[int, str | None, bytes]:
    """Return the machine of a tree, the path of its loader and that file's content."""
    for machine, path in INTERPRETERS.items():
        source = file_of(tree, path)
        try:
            if source is not None and read_elf(source).machine == machine:
                return machine, path, source.read(0, _LARGEST_INTERPRETER_BYTES)
        except ElfError:
            continue
    return _X86_64, None, b""


def _built_in(interpreter: bytes) -> tuple[str, ...]:
    """Find the loader's list of directories in its file: names one behind the other, each with a `/` at its end."""
    listed = re.compile(rb"(?:/[!-~]{1,200}/\0){2,}")
    at = interpreter.find(b"/\0/")
    while at >= 0:
        match = listed.match(interpreter, interpreter.rfind(b"\0", 0, at) + 1)
        names = [name.decode() for name in match[0].split(b"\0") if name] if match else []
        if names and all("lib" in name for name in names):
            return tuple(posixpath.normpath(name) for name in names)
        at = interpreter.find(b"/\0/", max(at + 1, match.end() if match else 0))
    return ()


def _usual(tree: Tree, machine: int, *, everywhere: bool) -> tuple[str, ...]:
    debian = tuple(f"{top}/{_MULTIARCH[machine]}" for top in ("/lib", "/usr/lib"))
    if resolve(tree, debian[1]).entry is None and resolve(tree, debian[0]).entry is None:
        return _USUAL_DIRECTORIES
    return (*debian, *(_USUAL_DIRECTORIES if everywhere else _USUAL_DIRECTORIES[2:]))
