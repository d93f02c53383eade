"""Plans of random images and hosts: what is carried out loads what is planned."""

from __future__ import annotations

import random

from hypothesis import assume, example, given
from hypothesis import strategies as st

from lumisite.binds.closure import closure
from lumisite.binds.never_bound import is_never_bound
from lumisite.images.environment import library_path
from lumisite.machine.loader import Loaded, Loader, read_rules, walk
from tests.support.closures import FABRIC, sides
from tests.support.dict_trees import DictTree, Link
from tests.support.elves import elf

NAMES = [f"lib{letter}.so.1" for letter in "pqrxyz"]
GLIBC = ["GLIBC_2.2.5", "GLIBC_2.30", "GLIBC_2.34", "GLIBC_2.38"]


def random_sides(
    choose: random.Random, *, versions: bool = True
) -> tuple[dict[str, bytes | Link], dict[str, bytes | Link]]:
    """A host whose libraries need each other and an image that has some of them, newer, older or of another build."""
    levels = {name: choose.randrange(4) if versions else 0 for name in NAMES}

    def library(name: str, level: int, glibc: int) -> bytes:
        needed = choose.sample(NAMES, choose.randrange(3))
        verneed = {
            one: [f"V_{choose.randrange(levels[one]) + 1}"] for one in needed if levels[one] and choose.random() < 0.7
        }
        verneed["libc.so.6"] = GLIBC[: choose.randrange(glibc) + 1][-1:] if versions else GLIBC[:1]
        verdef = [f"V_{number + 1}" for number in range(level)] + (
            ["W_1"] if versions and choose.random() < 0.1 else []
        )
        return elf(name, [*needed, "libc.so.6"], verneed=verneed, verdef=verdef)

    on_host: dict[str, bytes | Link] = {"/lib64/libc.so.6": elf("libc.so.6", verdef=GLIBC)}
    in_image: dict[str, bytes | Link] = {"/lib64/libc.so.6": elf("libc.so.6", verdef=GLIBC[: choose.randrange(1, 5)])}
    for name in NAMES:
        if choose.random() < 0.85:
            folder = choose.choice(["/lib64", "/usr/lib64", FABRIC])
            on_host[f"{folder}/{name}"] = library(name, levels[name], 4)
        if choose.random() < 0.4:
            in_image[f"{choose.choice(['/lib64', '/usr/lib64'])}/{name}"] = library(
                name, choose.randrange(5) if versions else 0, 1
            )
    if choose.random() < 0.5:
        in_image["/.singularity.d/env/10-x.sh"] = f"export LD_LIBRARY_PATH={FABRIC}".encode()
    return on_host, in_image


@given(st.integers(0, 2**32), st.lists(st.sampled_from(NAMES), min_size=1, max_size=3, unique=True), st.booleans())
def test_a_plan_that_is_carried_out_loads_exactly_what_it_says(seed: int, roots: list[str], module: bool) -> None:
    """Put the bound files into the image and ask its loader, which the real loader agrees with."""
    on_host, in_image = random_sides(random.Random(seed))
    before = sides(on_host, in_image, binds=(FABRIC,) if module else ())
    lines = closure(roots, before)
    assert set(roots) <= {line.library for line in lines}
    assert not any(line.decision == "bind" and is_never_bound(line.library) for line in lines)
    bound = {line.library: line for line in lines if line.decision == "bind"}
    after = dict(in_image)
    if module:
        after.update({path: content for path, content in on_host.items() if path.startswith(FABRIC)})
    after.update({line.target: on_host[line.source] for line in bound.values() if line.target and line.source})
    tree = DictTree(after)
    loader = Loader(tree, read_rules(tree, library_path=library_path(tree)[0]))
    for name, line in bound.items():
        one = loader.search(name).found
        assert one is not None
        assert after[one.path] == on_host[str(line.source)], f"the loader finds another {name}"
        assert_loads(loader, Loaded(name, one), set(bound))


def assert_loads(loader: Loader, root: Loaded, bound: set[str]) -> None:
    """Everything that a bound library needs directly is there, and has the versions that it needs."""
    for need in walk(loader, [root]):
        if need.requester is root or (need.requester is not None and need.requester.name in bound):
            assert need.loaded is not None, f"{need.name} is not found for {need.requester}"
            wanted = need.requester.found.info.verneed.get(need.name, ())
            had = need.loaded.found.info.verdef
            assert not had or set(wanted) <= set(had), f"{need.name} lacks {set(wanted) - set(had)}"


def reached(loader: Loader, root: str) -> set[str]:
    """The names that a library needs, itself or through others."""
    names: set[str] = set()
    wanted = [root]
    while wanted:
        found = loader.search(wanted.pop()).found
        new = [] if found is None else [name for name in found.info.needed if name not in names]
        names.update(new)
        wanted += new
    return names


@given(st.integers(0, 2**32), st.lists(st.sampled_from(NAMES), min_size=2, max_size=4, unique=True))
@example(151198578, ["liby.so.1", "libz.so.1"])
def test_more_roots_never_take_a_library_away(seed: int, roots: list[str]) -> None:
    on_host, in_image = random_sides(random.Random(seed), versions=False)
    loader = sides(on_host, in_image).host
    # A root that another root needs, itself or through others, tells what the image's copy of that other one was built
    # without.
    assume(not any(roots[-1] in reached(loader, root) for root in roots[:-1]))
    assume(not set(roots[:-1]) & reached(loader, roots[-1]))
    fewer = closure(roots[:-1], sides(on_host, in_image))
    more = {line.library: line for line in closure(roots, sides(on_host, in_image))}
    for line in fewer:
        assert more[line.library].decision == line.decision or line.library == roots[-1]
