"""Conditions about the release in an image hold where a lock has it; a name tells no release."""

from __future__ import annotations

from pathlib import Path

import pytest

from lumisite.images.lock import LoadedLock, Lock, LockedImage
from lumisite.render.render import render_tree
from lumisite.render.templates import load_templates
from lumisite.site.selection import resolve_selection
from tests.support.prologs import ROOT, SHELLS, lay_out, lumi_like, shell_command, write_script
from tests.support.wrappers import RUNTIME, Wrapper

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
    expected = {
        "/x/lumi-multitorch-full-u24r72f23.sif": unknown,
        "/y/ten.sif": new,
        "/y/seven.sif": new,
        "/y/six.sif": old,
        "/y/other.sif": unknown,
    }
    found = {image: wrapper.call("exec", image, "x").environment for image in expected}
    assert {image: (one.get("SINCE_7"), one.get("BEFORE_7")) for image, one in found.items()} == expected
    said = wrapper.call("exec", "/y/ten.sif", "x", LUMISITE_VERBOSE="all").stderr
    assert ", ROCm 10.0\n" in said
