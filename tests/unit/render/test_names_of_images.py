"""The wrapper and lumisite read the same release from the name of an image, whatever the name."""

from __future__ import annotations

import itertools
import subprocess
from pathlib import Path

import pytest

from lumisite.images.lock import LoadedLock, Lock, LockedImage
from lumisite.render.helper_settings import number_of
from lumisite.render.render import render_tree
from lumisite.render.templates import load_templates
from lumisite.site.images import release_by_name
from lumisite.site.selection import resolve_selection
from tests.support.prologs import ROOT, SHELLS, lay_out, lumi_like, shell_command, write_script
from tests.support.wrappers import RUNTIME, Wrapper

WRAPPER_SH = Path(__file__).parents[3] / "spank_helpers/wrapper.sh"
PARTS = ("0", "1", "6", "06", "10", "14", "100", "999", "1000", "")
ENDS = ("", ".sif", "f21m50t210.sif", "-7.2", "_x", "..")
#: What stands behind the family's pattern: digits alone, dotted numbers of one to four parts, and what is no release.
SAID = (
    *map(str, range(1100)),
    *("00", "01", "0010", "1000", "10000"),
    *(".".join(parts) for count in (2, 3, 4) for parts in itertools.product(PARTS, repeat=count)),
    *(f"{digits}{end}" for digits in ("70", "72", "100", "101", "110", "714", "6.2.4", "7.14", "10.0") for end in ENDS),
    *("x", "$(id)", "7 0", "-7.0", "v7.0"),
)
READ = """
. "$1"
after=$2
shift 2
for ls_file; do
	ls_version='' ls_behind=${ls_file##$after}
	ls_read_version
	printf '%s\\n' "$ls_version"
done
"""


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize("after", ["*-u[0-9][0-9]r", "*-rocm-"])
def test_both_read_the_same_release(shell: str, after: str, tmp_path: Path) -> None:
    begin = "/x/a-rocm-b-u24r" if after.endswith("r") else "/x/a-u24r70-rocm-"
    names = [f"{begin}{said}" for said in SAID]
    command = [*shell_command(shell, tmp_path), "-c", READ, "sh", str(WRAPPER_SH), after, *names]
    said = subprocess.run(command, capture_output=True, text=True, check=True)
    known = (release_by_name(after, name) for name in names)
    expected = ["" if release is None else number_of(release) for release in known]
    assert said.stderr == ""
    assert dict(zip(names, said.stdout.splitlines(), strict=True)) == dict(zip(names, expected, strict=True))


@pytest.mark.parametrize(
    ("said", "release"),
    [
        ("70", "7.0"),
        ("72", "7.2"),
        ("100", "10.0"),
        ("101", "10.1"),
        ("110", None),
        ("624", None),
        ("714", None),
        ("1000", None),
        ("7.14", "7.14"),
        ("10.0.0", "10.0.0"),
    ],
)
def test_digits_are_read_where_they_can_be_one_release_only(said: str, release: str | None) -> None:
    known = release_by_name("*-u[0-9][0-9]r", f"/x/lumi-multitorch-full-u26r{said}f23.sif")
    assert (None if known is None else str(known)) == release


#: A setting for releases from 7.0 on, and one for those before.
LEDGER = """
settings:
  - {name: SINCE_7, value: 'yes', when: {stacks: {rocm: '>=7.0'}}, why: test, source: UG}
  - {name: BEFORE_7, value: 'yes', when: {stacks: {rocm: '<7.0'}}, why: test, source: UG}
"""


def with_conditions(folder: Path, shell: str, read: dict[str, str]) -> Wrapper:
    """Give a wrapper of a release with LEDGER, and a lock of images whose ROCm releases were read."""
    loaded = lumi_like(
        ("\nsettings:\n", LEDGER), ("executable: /usr/bin/singularity", f"executable: {ROOT}/runtime/singularity")
    )
    images = {path: LockedImage(versions={"rocm": release}) for path, release in read.items()}
    known = LoadedLock(Lock("lumi", (), images), "images.lock.json", b"")
    files = render_tree(loaded, resolve_selection(loaded.site, rocm=["6.2"]), load_templates(), lock=known)
    lay_out(folder, {path: file.text for path, file in files.items()})
    write_script(folder / "runtime/singularity", RUNTIME)
    return Wrapper(tuple(shell_command(shell, folder)), folder)


@pytest.mark.parametrize("shell", SHELLS)
def test_conditions_hold_for_ten(shell: str, tmp_path: Path) -> None:
    read = {"/y/ten.sif": "10.0.0", "/y/seven.sif": "7.14.0", "/y/six.sif": "6.4.4"}
    wrapper = with_conditions(tmp_path, shell, read)
    new, old, unknown = ("yes", None), (None, "yes"), (None, None)
    names = {"r64": old, "r72": new, "r100": new, "r101": new, "r714": unknown, "r1000": unknown}
    expected = {f"/x/lumi-multitorch-full-u26{said}f23.sif": one for said, one in names.items()}
    expected |= {"/y/ten.sif": new, "/y/seven.sif": new, "/y/six.sif": old, "/y/other.sif": unknown}
    found = {image: wrapper.call("exec", image, "x").environment for image in expected}
    assert {image: (one.get("SINCE_7"), one.get("BEFORE_7")) for image, one in found.items()} == expected
    said = wrapper.call("exec", "/x/lumi-multitorch-full-u26r100f23.sif", "x", LUMISITE_VERBOSE="all").stderr
    assert ", ROCm 10.0\n" in said
