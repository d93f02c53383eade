"""ldd in a started container and the walk in its image say the same of every library of a whole distribution."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence

import pytest

from lumisite.images.sif import open_image
from lumisite.machine.elf import ElfError, read_elf
from lumisite.machine.host import DiskTree
from lumisite.machine.loader import Loader, cpu_levels, read_rules
from lumisite.machine.tree import Tree
from tests.twin.cluster import Cluster
from tests.twin.fixtures import require_twin
from tests.twin.image import image
from tests.unit.machine.test_loader import walked

pytestmark = [pytest.mark.root, pytest.mark.slurm, pytest.mark.apptainer]

Answers = dict[str, set[tuple[str, str | None]]]


@pytest.fixture(autouse=True)
def needed() -> None:
    require_twin()


def libraries_of(tree: Tree, folder: str, depth: int = 0) -> list[str]:
    """Give every file of a tree that is called like a library, has no link to it, and is one for this machine."""
    found = []
    for name in sorted(tree.names(folder)):
        path = f"{folder}/{name}"
        entry = tree.look(path)
        if entry is not None and entry.kind == "directory" and depth < 8:
            found += libraries_of(tree, path, depth + 1)
        elif entry is not None and entry.kind == "file" and re.search(r"\.so[.0-9]*$", name) and is_elf(tree, path):
            found.append(path)
    return found


def is_elf(tree: Tree, path: str) -> bool:
    source = tree.source(path)
    try:
        return source is not None and read_elf(source).bits == 64
    except ElfError:
        return False


def parsed(text: str) -> Answers:
    """Read what ldd says of several files; one that it refuses is left out."""
    answers: Answers = {}
    for part in re.split(r"^(?=/\S+:$)", text, flags=re.M):
        path, _, lines = part.partition(":\n")
        if not path or "not a dynamic executable" in lines or "exited with" in lines:
            continue
        rows = re.findall(r"^\t(?:(\S+) => (not found|/\S+)|(/\S+) \(0x)", lines, re.M)
        answers[path] = {
            (alone.rpartition("/")[2], alone) if alone else (name, None if where == "not found" else where)
            for name, where, alone in rows
        }
    return answers


def agreed(tree: Tree, paths: Sequence[str], answers: Answers) -> int:
    loader = Loader(tree, read_rules(tree, cpu_levels(DiskTree("/"))))
    for path, answer in answers.items():
        assert walked(loader, path) == answer, path
    assert set(answers) <= set(paths)
    return len(answers)


def test_every_library_of_an_image(twin: Cluster) -> None:
    """Read from the SIF without starting it, and asked of ldd in the started container."""
    tree = open_image(str(image("torch"))).tree
    paths = libraries_of(tree, "/usr/lib/x86_64-linux-gnu")
    (twin.exchange / "paths").write_text("\n".join(paths))
    ask = "unset LD_LIBRARY_PATH; xargs ldd </var/lib/twin/paths 2>/dev/null"
    options = "--bind /var/lib/twin /appl/images/torch.sif"
    done = twin.run(f"singularity --quiet exec {options} sh -c {shlex.quote(ask)}", node=twin.nodes[0])
    assert agreed(tree, paths, parsed(done.stdout)) > 0.95 * len(paths) > 450
