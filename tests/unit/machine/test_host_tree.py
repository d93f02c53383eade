"""Links, caches and processors of a host's tree."""

from __future__ import annotations

import os
import re
import shutil
import struct
import subprocess
from pathlib import Path

import pytest

from lumisite.errors import LumisiteError, ToolError
from lumisite.machine.host import DiskTree, open_file
from lumisite.machine.ldcache import conf_directories, read_cache
from lumisite.machine.loader import Loader, Rules, cpu_levels, read_rules
from lumisite.machine.tree import Tree, resolve
from tests.support.dict_trees import DictTree, Files, Link, Memory, write_tree
from tests.support.elves import elf

LDCONFIG = shutil.which("ldconfig", path="/sbin:/usr/sbin:/usr/bin:/bin")
LOADER = Path("/lib64/ld-linux-x86-64.so.2")
needs_ldconfig = pytest.mark.skipif(LDCONFIG is None, reason="ldconfig (glibc) is not installed")
needs_loader = pytest.mark.skipif(not LOADER.exists(), reason=f"{LOADER} (glibc on x86-64) is not here")

LINKS: dict[str, bytes | Link] = {
    "/usr/lib64/libx.so.1": Link("libx.so.1.2"),
    "/usr/lib64/libx.so.1.2": b"x",
    "/lib64": Link("/usr/lib64"),
    "/opt/a/lib": Link("../../../../../usr/lib64"),
    "/opt/gone": Link("/nowhere/else"),
    "/opt/one": Link("two"),
    "/opt/two": Link("/opt/one"),
    "/opt/self": Link("self/x"),
}


@pytest.fixture(params=["dict", "disk"])
def linked(request: pytest.FixtureRequest, tmp_path: Path) -> Tree:
    return DictTree(LINKS) if request.param == "dict" else DiskTree(str(write_tree(tmp_path / "root", LINKS)))


@pytest.mark.parametrize(
    ("path", "real"),
    [
        ("/lib64/libx.so.1", "/usr/lib64/libx.so.1.2"),
        ("/opt/a/lib/libx.so.1", "/usr/lib64/libx.so.1.2"),
        ("/../../lib64/../lib64/./libx.so.1.2", "/usr/lib64/libx.so.1.2"),
        ("/", "/"),
        ("/usr/..", "/"),
    ],
)
def test_links_lead_inside_the_tree(linked: Tree, path: str, real: str) -> None:
    place = resolve(linked, path)
    assert place.path == real
    assert place.entry is not None


@pytest.mark.parametrize(
    ("path", "code", "at"),
    [
        ("/etc/passwd", "path-missing", None),
        ("/opt/gone", "link-broken", "/nowhere"),
        ("/opt/gone/x", "path-missing", "/nowhere"),
        ("/lib64/libgone.so", "path-missing", "/usr/lib64/libgone.so"),
        ("/opt/one", "link-loop", None),
        ("/opt/self", "link-loop", None),
        ("/usr/lib64/libx.so.1/x", "path-through-file", "/usr/lib64/libx.so.1.2"),
        ("/" + "x" * 5000, "path-too-long", None),
    ],
)
def test_a_path_that_leads_nowhere_has_a_code(linked: Tree, path: str, code: str, at: str | None) -> None:
    place = resolve(linked, path)
    assert (place.entry, place.code) == (None, code)
    assert at is None or place.path == at


def test_no_path_leads_out_of_the_tree(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("x")
    root = write_tree(tmp_path / "root", {"/a": Link("../secret"), "/b": Link(str(tmp_path / "secret")), "/c/d": b""})
    for path in ("/a", "/b", "/../secret", "/c/../../secret"):
        assert resolve(DiskTree(str(root)), path).entry is None


def test_what_is_no_file_is_never_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "libpipe.so")
    tree = DiskTree(str(tmp_path))
    rules = Rules(62, ("/",))
    assert [one.code for one in Loader(tree, rules).search("libpipe.so").passed] == ["library-damaged"]
    with pytest.raises(ToolError, match=r"libpipe\.so: cannot read: it is not a file but a pipe"):
        open_file(str(tmp_path / "libpipe.so"))
    with pytest.raises(ToolError, match="No such file or directory"):
        open_file(str(tmp_path / "gone"))


def test_a_file_of_the_kernel_is_read_on_where_it_gives_a_page_at_a_time() -> None:
    source = open_file("/proc/self/smaps")
    assert source.size == 0
    assert len(source.read(0, 20_000)) == 20_000


def test_conf_files_are_included_by_pattern_in_order_and_once() -> None:
    tree = DictTree(
        {
            "/etc/ld.so.conf": b"# first\n/opt/first/ # a note\ninclude ld.so.conf.d/*.conf\nhwcap 0 nosegneg\n/opt/last\nrelative\n",
            "/etc/ld.so.conf.d/b.conf": b"/opt/b=libc6\ninclude /etc/ld.so.conf\n",
            "/etc/ld.so.conf.d/a.conf": Link("/opt/a/ld.conf"),
            "/etc/ld.so.conf.d/.hidden.conf": b"/opt/hidden\n",
            "/etc/ld.so.conf.d/other.txt": b"/opt/other\n",
            "/opt/a/ld.conf": b"\t/opt/a/lib\n/opt/first\n",
        }
    )
    assert conf_directories(tree) == ("/opt/first", "/opt/a/lib", "/opt/b", "/opt/last")


def test_a_copy_of_a_host_with_only_the_folder_of_conf_files_is_read_too() -> None:
    assert conf_directories(DictTree({"/etc/ld.so.conf.d/host.conf": b"/opt/cray/pe/lib64\n"})) == (
        "/opt/cray/pe/lib64",
    )
    assert conf_directories(DictTree({"/etc/hosts": b""})) == ()


def cached_tree(top: Path) -> Path:
    """A tree with libraries for several levels of a CPU and several machines, and where ldconfig shall look."""
    files: dict[str, bytes | Link] = {"/etc/ld.so.conf": b"/opt/cray/lib\n/usr/lib64\n/usr/lib\n"}
    for name in ("liba.so.1", "libb.so.1"):
        files[f"/usr/lib64/{name}"] = elf(name)
    files["/opt/cray/lib/liba.so.1"] = elf("liba.so.1")
    files["/opt/cray/lib/glibc-hwcaps/x86-64-v2/liba.so.1"] = elf("liba.so.1")
    files["/opt/cray/lib/glibc-hwcaps/x86-64-v4/liba.so.1"] = elf("liba.so.1")
    files["/opt/cray/lib/haswell/libb.so.1"] = elf("libb.so.1")  # for a loader before glibc-hwcaps
    files["/usr/lib/libb.so.1"] = elf("libb.so.1", machine=3, bits=32)
    files["/usr/lib/libc.so.1"] = elf("libc.so.1", machine=3, bits=32)
    files["/lib64"], files["/lib"] = Link("usr/lib64"), Link("usr/lib")
    return write_tree(top, files)


@needs_ldconfig
@pytest.mark.parametrize("layout", ["new", "compat"])
def test_the_cache_is_read_as_ldconfig_wrote_it(tmp_path: Path, layout: str) -> None:
    root = cached_tree(tmp_path)
    assert LDCONFIG is not None
    subprocess.run([LDCONFIG, "-X", "-c", layout, "-r", str(root)], check=True, capture_output=True)
    source = open_file(str(root / "etc/ld.so.cache"))
    levels = ("x86-64-v4", "x86-64-v3", "x86-64-v2")
    plain = read_cache(source, 62)
    assert plain["liba.so.1"] == "/opt/cray/lib/liba.so.1"
    assert plain["libb.so.1"] == "/usr/lib64/libb.so.1", "that for another machine is passed over"
    assert "libc.so.1" not in plain
    assert read_cache(source, 62, levels)["liba.so.1"] == "/opt/cray/lib/glibc-hwcaps/x86-64-v4/liba.so.1"
    assert read_cache(source, 62, levels)["libb.so.1"] == "/usr/lib64/libb.so.1"
    assert read_cache(source, 62, levels[1:])["liba.so.1"] == "/opt/cray/lib/glibc-hwcaps/x86-64-v2/liba.so.1"


@needs_ldconfig
def test_a_damaged_cache_is_one_clear_error(tmp_path: Path) -> None:
    root = cached_tree(tmp_path)
    assert LDCONFIG is not None
    subprocess.run([LDCONFIG, "-X", "-r", str(root)], check=True, capture_output=True)
    content = (root / "etc/ld.so.cache").read_bytes()
    for damaged, byte, part in (
        (b"", 0, "header"),
        (content[:60], 0, "table of libraries"),
        (content[:76] + b"\xff" * 4 + content[80:], 2**32 - 1, "name"),
        (content[:32] + struct.pack("<I", 9999) + content[36:], 9999, "extension"),
    ):
        with pytest.raises(LumisiteError) as caught:
            read_cache(Memory("cache", damaged), 62, ("x86-64-v2",))
        finding = caught.value.finding
        assert (finding.code, finding.message.partition(" is ")[0]) == ("file-unreadable", f"{part} at byte {byte}")


def test_a_tree_without_a_cache_is_searched_as_ldconfig_would() -> None:
    tree = DictTree({"/etc/ld.so.conf": b"/opt/cray/lib\n", "/opt/cray/lib/liba.so.1": elf("liba.so.1")})
    assert read_rules(tree, captured=True).directories == ("/opt/cray/lib", "/lib64", "/usr/lib64", "/lib", "/usr/lib")
    assert "/opt/cray/lib" not in read_rules(tree).directories


@needs_loader
def test_the_loader_itself_says_its_directories() -> None:
    rules = read_rules(DiskTree("/"))
    said = subprocess.run([LOADER, "--help"], capture_output=True, text=True, check=True).stdout
    assert list(rules.directories) == re.findall(r"^  (/\S+) \(system search path\)", said, re.M)


@needs_loader
def test_the_loader_knows_the_same_levels_of_this_cpu() -> None:
    output = subprocess.run([LOADER, "--help"], capture_output=True, text=True, check=True).stdout
    assert cpu_levels(DiskTree("/")) == tuple(re.findall(r"(x86-64-v\d) \(supported, searched\)", output))


V2 = "cx16 lahf_lm popcnt pni sse4_1 sse4_2 ssse3"
V3 = "abm avx avx2 bmi1 bmi2 f16c fma movbe xsave"


@pytest.mark.parametrize(
    ("flags", "levels"),
    [
        (f"{V3} {V2}", ("x86-64-v3", "x86-64-v2")),
        (V3, ()),
        (f"avx512f {V2}", ("x86-64-v2",)),
        (None, ("unknown",)),
    ],
)
def test_a_level_counts_only_with_all_below_it(flags: str | None, levels: tuple[str, ...]) -> None:
    files: Files = {"/a": b""} if flags is None else {"/proc/cpuinfo": f"processor\t: 0\nflags\t\t: {flags}\n".encode()}
    assert cpu_levels(DictTree(files), ("unknown",)) == levels
