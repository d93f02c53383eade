"""Where a library is found: by rules, and as the real loader finds it."""

from __future__ import annotations

import random
import re
import subprocess
from pathlib import Path

import pytest

from lumisite.machine.host import DiskTree
from lumisite.machine.loader import Loaded, Loader, Rules, Search, cpu_levels, read_rules, walk
from tests.support.dict_trees import DictTree, Link, write_tree
from tests.support.elves import elf

LOADER = Path("/lib64/ld-linux-x86-64.so.2")
needs_loader = pytest.mark.skipif(not LOADER.exists(), reason=f"{LOADER} (glibc on x86-64) is not here")


def found(files: dict[str, bytes | Link], name: str, rules: Rules, requester: Loaded | None = None) -> Search:
    return Loader(DictTree(files), rules).search(name, requester)


def test_a_library_for_another_machine_is_passed_over() -> None:
    files: dict[str, bytes | Link] = {
        "/a/libx.so": elf("libx.so", machine=3, bits=32),
        "/b/libx.so": elf("libx.so", machine=183),
        "/c/libx.so": elf("libx.so"),
    }
    answer = found(files, "libx.so", Rules(62, ("/a", "/b", "/c")))
    assert answer.found is not None
    assert answer.found.path == "/c/libx.so"
    assert [(one.subject, one.message) for one in answer.passed] == [
        ("/a/libx.so", "is for another machine (i386, 32 bits, little-endian)"),
        ("/b/libx.so", "is for another machine (AArch64, 64 bits, little-endian)"),
    ]


def test_a_damaged_library_ends_the_search_as_in_the_loader() -> None:
    files: dict[str, bytes | Link] = {"/a/libx.so": b"", "/b/libx.so": elf("libx.so")}
    answer = found(files, "libx.so", Rules(62, ("/a", "/b")))
    assert answer.found is None
    assert answer.trouble is not None
    assert (answer.trouble.code, answer.trouble.subject) == ("library-damaged", "/a/libx.so")


def asking(
    runpath: str | None = None, rpath: str | None = None, *, nodeflib: bool = False, by: Loaded | None = None
) -> Loaded:
    """An object that needs libraries, and the one that loaded it."""
    content = elf("asking.so", runpath=runpath, rpath=rpath, nodeflib=nodeflib)
    one = found({"/asking.so": content}, "/asking.so", Rules(62, ())).found
    assert one is not None
    return Loaded("asking.so", one, by)


def test_an_rpath_serves_those_below_it_unless_they_have_a_runpath() -> None:
    files: dict[str, bytes | Link] = {"/opt/libx.so": elf("libx.so")}
    above = asking(rpath="/opt")
    assert found(files, "libx.so", Rules(62, ()), asking(by=above)).found is not None
    assert found(files, "libx.so", Rules(62, ()), asking(runpath="/else", by=above)).found is None
    assert found(files, "libx.so", Rules(62, ()), asking(by=asking(runpath="/opt"))).found is None, "not inherited"
    assert found(files, "libx.so", Rules(62, ()), asking(rpath="/opt", runpath="/else")).found is None, "RUNPATH wins"


def test_who_wants_no_default_directories_gets_none_not_even_through_the_cache() -> None:
    files: dict[str, bytes | Link] = {"/lib64/libx.so": elf("libx.so"), "/opt/liby.so": elf("liby.so")}
    rules = Rules(62, ("/lib64",), cache={"libx.so": "/lib64/libx.so", "liby.so": "/opt/liby.so"})
    assert found(files, "libx.so", rules, asking()).found is not None
    assert found(files, "libx.so", rules, asking(nodeflib=True)).found is None
    assert found(files, "liby.so", rules, asking(nodeflib=True)).found is not None


def test_a_dangling_link_is_passed_over_and_named() -> None:
    files: dict[str, bytes | Link] = {"/a/libx.so": Link("/opt/gone.so"), "/a/liby.so": Link("liby.so")}
    answer = found(files, "libx.so", Rules(62, ("/a",)))
    assert [(one.code, one.subject, one.message) for one in answer.passed] == [
        ("link-broken", "/a/libx.so", "leads to /opt, which is not there"),
    ]
    (loop,) = found(files, "liby.so", Rules(62, ("/a",))).passed
    assert (loop.message, loop.subject) == ("is a loop of links", "/a/liby.so")


def random_tree(choose: random.Random, top: str) -> tuple[dict[str, bytes | Link], list[str]]:
    """Libraries that need each other, with search paths of every kind, in folders with every kind of obstacle."""
    folders = [f"/d{number}" for number in range(4)] + ["/d1/glibc-hwcaps/x86-64-v3", "/d2/glibc-hwcaps/x86-64-v2"]
    folders += [f"/lib/{choose.choice(['x86_64-linux-gnu', '../lib64'])}", "/p/x86_64"]
    names = [f"lib{letter}.so" for letter in "pqrstu"]

    def search_path() -> str | None:
        if choose.random() < 0.4:
            return None
        forms = ["$ORIGIN", "${ORIGIN}/../d2", "$ORIGIN/link/../d3", f"{top}/d{choose.randrange(4)}", f"{top}/nowhere/"]
        forms += [
            f"{top}/$LIB",
            f"{top}/${{LIB}}/",
            "$ORIGINAL",
            f"{top}/$LIBX",
            "${ORIGIN",
            f"{top}/d1//",
        ]
        return ":".join(choose.sample(forms, choose.randrange(1, 5)))

    files: dict[str, bytes | Link] = {}
    for folder in folders:
        for name in choose.sample(names, choose.randrange(2, 6)):
            soname = choose.choice([name, name, name + ".1", None])
            by_path = [f"{top}/d1/libp.so", "$ORIGIN/libq.so", "$ORIGIN/../d2/libr.so", f"{top}/d9/libx.so"]
            needed = choose.sample([*names, "libp.so.1", "libgone.so", *by_path], choose.randrange(4))
            foreign = choose.random() < 0.1
            files[f"{folder}/{name}"] = elf(
                soname,
                needed,
                rpath=search_path(),
                runpath=search_path() if choose.random() < 0.5 else None,
                nodeflib=choose.random() < 0.1,
                machine=3 if foreign else 62,
                bits=32 if foreign else 64,
            )
        if choose.random() < 0.5:
            files[f"{folder}/link"] = Link(choose.choice(["../d3", "../d0", "nowhere", "link"]))
        if choose.random() < 0.3:
            files.setdefault(f"{folder}/libgone.so", Link(choose.choice(["../d0/libp.so", "gone"])))
    files["/main"] = elf(None, names, rpath=search_path(), runpath=search_path() if choose.random() < 0.5 else None)
    return files, choose.sample(["/d0", "/d1", "/d2", "/d3/", "/$LIB", "/nowhere"], choose.randrange(4))


@needs_loader
def test_the_real_loader_agrees_on_random_trees(tmp_path: Path) -> None:
    """RPATH, RUNPATH, LD_LIBRARY_PATH, $ORIGIN and its like, hwcaps, links, paths, other machines, SONAMEs, all mixed."""
    choose = random.Random(7)
    tree = DiskTree("/")
    cpu = cpu_levels(tree)
    loaded = missed = 0
    for number in range(40):
        top = str(tmp_path / str(number))
        files, path = random_tree(choose, top)
        write_tree(Path(top), files)
        library_path = tuple(top + one for one in path)
        loader = Loader(tree, read_rules(tree, cpu, library_path))
        main = f"{top}/main"
        mine = walked(loader, main)
        assert mine == answers_of_the_real_loader(main, ":".join(library_path)), f"{main} with {library_path}"
        loaded += sum(1 for one in mine if one[1])
        missed += sum(1 for one in mine if not one[1])
    assert loaded > 100
    assert missed > 50


def walked(loader: Loader, path: str) -> set[tuple[str, str | None]]:
    start = loader.search(path).found
    assert start is not None, path
    needs = walk(loader, [Loaded(path, start)])
    objects = {(need.loaded.name, need.loaded.found.path) for need in needs if need.loaded is not None}
    missing = {(need.name, None) for need in needs if need.loaded is None}
    return {(name.rpartition("/")[2], path) for name, path in objects | missing}


def answers_of_the_real_loader(path: str, library_path: str) -> set[tuple[str, str | None]]:
    environment = {"LD_TRACE_LOADED_OBJECTS": "1", "LD_LIBRARY_PATH": library_path}
    done = subprocess.run([LOADER, path], capture_output=True, text=True, env=environment, check=True)
    lines = re.findall(r"^\t(?:(\S+) => (not found|\S+)|(/\S+) \(0x)", done.stdout, re.M)
    return {
        (alone.rpartition("/")[2], alone)
        if alone
        else (name.rpartition("/")[2], None if target == "not found" else target)
        for name, target, alone in lines
    }
