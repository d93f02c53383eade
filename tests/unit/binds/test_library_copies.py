"""Which of two copies is the newer, and what is never bound."""

from __future__ import annotations

import pytest

from lumisite.binds.copies import compare
from lumisite.binds.never_bound import is_never_bound
from lumisite.machine.loader import Found, Loader, read_rules
from tests.support.dict_trees import DictTree
from tests.support.elves import elf


def found(file: str, *verdef: str) -> Found:
    loaded = Loader(DictTree({f"/{file}": elf("x", verdef=verdef)}), read_rules(DictTree({}))).search(f"/{file}").found
    assert loaded is not None
    return loaded


@pytest.mark.parametrize(
    ("image", "host_copy", "relation"),
    [
        (found("x.so.1", "A_1", "A_2"), found("x.so.1", "A_1"), "newer"),
        (found("x.so.1", "A_1"), found("x.so.1", "A_1"), "same"),
        (found("x.so.1", "A_1"), found("x.so.1", "A_1", "A_2"), "older"),
        (found("x.so.1", "A_1", "B_1"), found("x.so.1", "A_1", "C_1"), "different"),
        (found("x.so.1", "A_1", "X_PRIVATE_9"), found("x.so.1", "A_1", "X_PRIVATE_3"), "same"),
        (found("x.so.1"), found("x.so.1", "A_1"), "older"),
        (found("x.so.1.10.0"), found("x.so.1.9.2"), "newer"),
        (found("x.so.1.2"), found("x.so.1.2"), "same"),
        (found("x.so.1.2", "A_1"), found("x.so.1.3"), "older"),
        (found("x.so.1"), found("x.so.1.3"), "unknown"),
    ],
)
def test_two_copies_are_compared_by_symbol_versions_then_by_their_files(
    image: Found, host_copy: Found, relation: str
) -> None:
    assert compare(image, host_copy)[0] == relation


def test_the_parts_of_the_c_library_are_known() -> None:
    inside = "ld-linux-x86-64.so.2 ld-linux-aarch64.so.1 libc.so.6 libm.so.6 libpthread.so.0 libdl.so.2 librt.so.1 libresolv.so.2 libnss_files.so.2 libgcc_s.so.1 libstdc++.so.6"
    outside = "libcxi.so.1 libcrypt.so.1 libgomp.so.1 libcurl.so.4 libmpi.so.12 libnl-3.so.200 libcap.so.2 libdlb.so.1 ldmud.so.1"
    assert all(is_never_bound(name) for name in inside.split())
    assert not any(is_never_bound(name) for name in outside.split())
