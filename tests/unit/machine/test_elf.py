from __future__ import annotations

import random
import re
import struct
import subprocess
from pathlib import Path

import pytest

from lumisite.machine.elf import ElfError, ElfInfo, read_elf
from tests.support.damaged import mutated
from tests.support.dict_trees import Memory
from tests.support.elves import elf
from tests.support.tools import tool

DATA = Path(__file__).parents[2] / "data" / "elf"
LIBRARIES = sorted(path for path in DATA.rglob("*") if path.is_file() and path.suffix != ".sh")
OF_64_BITS = [path for path in LIBRARIES if path.name != "lib32.so.1"]


def read(path: Path) -> ElfInfo:
    return read_elf(Memory(str(path), path.read_bytes()))


def parsed(content: bytes) -> ElfInfo:
    return read_elf(Memory("x.so", content))


def test_a_library_is_read_with_all_that_the_loader_asks_of_it() -> None:
    assert read(DATA / "after" / "libfabric.so.1") == ElfInfo(
        machine=62,
        bits=64,
        endianness="little",
        soname="libfabric.so.1",
        needed=("libcxi.so.1", "libjson-c.so.5", "libc.so.6"),
        verneed={"libc.so.6": ("GLIBC_2.34",), "libcxi.so.1": ("LIBCXI_1.5",), "libjson-c.so.5": ("JSONC_0.14",)},
        verdef=("FABRIC_1.0", "FABRIC_1.4", "FABRIC_1.5", "FABRIC_1.7"),
    )


def test_search_paths_and_flags_are_read() -> None:
    assert read(DATA / "odd" / "librunpath.so.1").runpath == "$ORIGIN/../private:/opt/$LIB/${PLATFORM}"
    old = read(DATA / "odd" / "librpath.so.1")
    assert (old.rpath, old.runpath, old.nodeflib) == ("/opt/old", None, True)


def test_of_another_class_or_byte_order_only_the_machine_is_read() -> None:
    assert read(DATA / "odd" / "lib32.so.1") == ElfInfo(3, 32, "little")
    assert parsed(elf("liba.so.1", ["libb.so.2"], machine=21, order=">")) == ElfInfo(21, 64, "big")
    assert parsed(elf("liba.so.1", ["libb.so.2"], machine=20, bits=32, order=">")) == ElfInfo(20, 32, "big")


def test_versions_that_the_loader_can_do_without_are_left_out() -> None:
    info = parsed(elf("a", ["b"], verneed={"b": ["B_1", "B_2"]}, weak=["B_2"]))
    assert info.verneed == {"b": ("B_1",)}


def binutils(name: str, *words: str | Path) -> dict[str, str]:
    """Give what readelf or objdump prints of each file. Both are needed: readelf prints every symbol with its version."""
    output = subprocess.run([tool(name), *words], capture_output=True, text=True, check=True).stdout
    header = r"^File: (.*)$" if name == "readelf" else r"^(.*):     file format .*$"
    parts = re.split(header, output, flags=re.M)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def same_as_binutils(paths: list[Path]) -> int:
    """Compare SONAME, NEEDED, search paths and versions of libraries with what binutils read."""
    dynamic = binutils("readelf", "--wide", "--dynamic", *paths)
    versions = binutils("objdump", "--private-headers", *paths)
    for path in paths:
        info = read(path)
        tags = [(tag, text) for tag, text in re.findall(r"\((\w+)\) .*\[(.*)\]", dynamic[str(path)]) if tag in TAGS]
        mine = [("NEEDED", name) for name in info.needed]
        mine += [("SONAME", info.soname or ""), ("RPATH", info.rpath or ""), ("RUNPATH", info.runpath or "")]
        assert sorted(tags) == sorted(tag for tag in mine if tag[1]), path
        needs, defines = versions_of(versions[str(path)])
        assert needs == {(file, version) for file, names in info.verneed.items() for version in names}, path
        assert defines == set(info.verdef), path
    return len(paths)


TAGS = ("NEEDED", "SONAME", "RPATH", "RUNPATH")


def versions_of(text: str) -> tuple[set[tuple[str, str]], set[str]]:
    needs = set()
    file = ""
    for name, flags, version in re.findall(r"required from (.*):$|^    0x[0-9a-f]{8} 0x(..) \d\d (.*)$", text, re.M):
        file = name or file
        if version and not int(flags, 16) & 2:  # a weak one
            needs.add((file, version))
    return needs, set(re.findall(r"^\d+ 0x0[02] 0x[0-9a-f]{8} (\S+)", text, re.M))


def test_binutils_agree_on_the_committed_libraries() -> None:
    assert same_as_binutils(OF_64_BITS) > 20


def patched(content: bytes, offset: int, layout: str, *values: int) -> bytes:
    return content[:offset] + struct.pack(layout, *values) + content[offset + struct.calcsize(layout) :]


PLAIN = elf("liba.so.1", ["libb.so.2"], verneed={"libb.so.2": ["B_1"]}, verdef=["A_1"])
DYNAMIC = PLAIN.index(struct.pack("<qQ", 1, 1))  # the first tag: NEEDED, string 1
DAMAGED = {
    "empty": (b"", 0, "e_ident"),
    "a linker script": (b"/* GNU ld script */", 0, "e_ident"),
    "class 9": (patched(PLAIN, 4, "B", 9), 0, "e_ident"),
    "cut in the header": (PLAIN[:40], 16, "header"),
    "an object file": (patched(PLAIN, 16, "<H", 1), 16, "e_type"),
    "program headers of another size": (patched(PLAIN, 54, "<H", 57), 54, "e_phentsize"),
    "cut in the program headers": (PLAIN[:100], 64, "program headers"),
    "no end of the dynamic section": (patched(PLAIN, len(PLAIN) - 16, "<q", 7), DYNAMIC, "PT_DYNAMIC"),
    "a name beyond the names": (patched(PLAIN, DYNAMIC + 8, "<Q", 9999), None, "DT_NEEDED"),
    "a name that is no text": (elf("a", [b"lib\xff.so"]), None, "DT_NEEDED"),
    "versions of form 2": (
        PLAIN.replace(struct.pack("<HHI", 1, 1, 21), struct.pack("<HHI", 2, 1, 21)),
        None,
        "DT_VERNEED",
    ),
}


@pytest.mark.parametrize("damage", DAMAGED)
def test_damage_is_one_finding_with_the_byte_and_the_part(damage: str) -> None:
    content, byte, part = DAMAGED[damage]
    with pytest.raises(ElfError) as caught:
        parsed(content)
    finding = caught.value.finding
    assert (finding.code, finding.subject) == ("library-damaged", "x.so")
    assert finding.message.startswith(f"cannot be loaded: {part} at byte {'' if byte is None else f'{byte} '}")
    assert "\n" not in str(caught.value)


def test_a_static_program_needs_nothing() -> None:
    assert parsed(elf(kind=2)[:64] + bytes(112)).needed == ()


def test_a_thousand_damaged_libraries_give_errors_and_no_traceback() -> None:
    choose = random.Random(0)
    contents = [path.read_bytes() for path in LIBRARIES]
    refused = 0
    for _ in range(1000):
        try:
            parsed(mutated(choose.choice(contents), choose))
        except ElfError:
            refused += 1
    assert refused > 300
