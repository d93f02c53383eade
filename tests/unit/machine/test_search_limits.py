"""Large libraries: many that are needed, many folders of a search path, and names all over a file."""

from __future__ import annotations

import pytest

from lumisite.machine import elf as elf_reader
from lumisite.machine.elf import ElfError, read_elf
from lumisite.machine.loader import Loaded, Loader, Rules, walk
from tests.support.dict_trees import DictTree, Memory
from tests.support.elves import elf


def loaded(needed: int, folders: int) -> int:
    """Return how many libraries a program with a long search path needs, as the loader found them."""
    runpath = ":".join(f"/r{number:04}" for number in range(folders))
    names = [f"libn{number:05}.so" for number in range(needed)]
    tree = DictTree({"/lib64/libtop.so": elf("libtop.so", names, runpath=runpath)})
    loader = Loader(tree, Rules())
    top = loader.search("libtop.so")
    assert top.found is not None
    return len(walk(loader, [Loaded("libtop.so", top.found)]))


def test_a_build_with_many_folders_is_searched() -> None:
    assert loaded(500, 100) == 500


def test_names_that_are_strewn_over_a_file_are_read_up_to_a_number(monkeypatch: pytest.MonkeyPatch) -> None:
    names = [f"lib{number}{'x' * 4000}.so" for number in range(40)]
    content = elf("libtop.so", names)
    assert len(read_elf(Memory("x", content)).needed) == 40
    monkeypatch.setattr(elf_reader, "MOST_FETCHES", 20)
    with pytest.raises(ElfError) as refused:
        read_elf(Memory("x", content))
    assert refused.value.finding.code == "library-damaged"
