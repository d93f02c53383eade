"""Random roots with a cache, hwcaps and included files: the walk finds what the real loader finds there."""

from __future__ import annotations

import os
import random
import re
import subprocess
from pathlib import Path

import pytest

from lumisite.machine.host import DiskTree
from lumisite.machine.loader import Loader, cpu_levels, read_rules
from tests.support.dict_trees import Link, write_tree
from tests.support.elves import elf
from tests.twin.fixtures import require_twin
from tests.unit.machine.test_loader import walked

pytestmark = [pytest.mark.root]

LOADER = "/lib64/ld-linux-x86-64.so.2"
NAMES = [f"lib{letter}.so.1" for letter in "pqrstuvw"]
FOLDERS = ("/opt/a", "/opt/b", "/opt/c/lib", "/lib/x86_64-linux-gnu", "/usr/lib/x86_64-linux-gnu", "/lib")
HWCAPS = [f"glibc-hwcaps/x86-64-v{level}" for level in (2, 3, 4)]


def random_root(choose: random.Random) -> dict[str, bytes | Link]:
    files: dict[str, bytes | Link] = {LOADER: Path(LOADER).read_bytes(), "/main": elf(None, NAMES)}
    for name in NAMES:
        for _ in range(choose.randrange(1, 4)):
            folder = "/".join((choose.choice(FOLDERS), choose.choice(["", "", *HWCAPS]), name)).replace("//", "/")
            soname = choose.choice([name, name, name, "libother.so.2"])
            files[folder] = elf(soname, choose.sample(NAMES, choose.randrange(3)), nodeflib=choose.random() < 0.1)
    loop = "include ld.so.conf.d/*.conf\ninclude ld.so.conf\n"
    included = choose.choice(["include /etc/ld.so.conf.d/*.conf\n", loop, ""])
    own = choose.choice(["/opt/a\n", "/opt/c/lib # x\n\t/opt/b\n", "/opt/b=libc6\n"])
    return files | {
        "/etc/ld.so.conf": (included + own).encode(),
        "/etc/ld.so.conf.d/x.conf": b"/opt/b\n",
        "/etc/ld.so.conf.d/y.conf": b"include ../ld.so.conf.d/x.conf\n/nowhere\n",
        "/etc/ld.so.conf.d/.hidden.conf": b"/opt/c/lib\n",
    }


def asked(root: Path) -> set[tuple[str, str | None]]:
    """Ask the loader in the root what its program would load."""
    command = [LOADER, "/main"]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=True,
        env={"LD_TRACE_LOADED_OBJECTS": "1"},
        preexec_fn=lambda: os.chroot(root),
    )
    found = re.findall(r"^\t(?:(\S+) => (not found|\S+)|(/\S+) \(0x)", done.stdout, re.M)
    return {
        (alone.rpartition("/")[2], alone) if alone else (name, None if where == "not found" else where)
        for name, where, alone in found
    }


def test_the_loader_of_each_root_agrees(tmp_path: Path) -> None:
    require_twin("ldconfig")
    choose = random.Random(11)
    cpu = cpu_levels(DiskTree("/"))
    found = missed = 0
    for number in range(60):
        root = write_tree(tmp_path / str(number), random_root(choose))
        (root / LOADER[1:]).chmod(0o755)
        if choose.random() < 0.7:
            subprocess.run(["ldconfig", "-X", "-r", str(root)], check=True, capture_output=True)
        tree = DiskTree(str(root))
        mine = walked(Loader(tree, read_rules(tree, cpu)), "/main")
        assert mine == asked(root), root
        found += sum(path is not None for _, path in mine)
        missed += sum(path is None for _, path in mine)
    assert found > 200
    assert missed > 30
