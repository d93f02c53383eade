"""ROCm in the layout of its Core SDK (7.14, 10.0): captured on a node, and compared with the layout of before."""

from __future__ import annotations

import pytest

from lumisite.facts.compare import compare
from lumisite.facts.facts import Facts
from tests.support.captured import facts_of
from tests.support.dict_trees import Link
from tests.support.nodes import NodeFiles, lumi_node
from tests.support.rocm10 import HSA, dpkg_files, rocm_files

OLD: NodeFiles = {
    f"/opt/rocm-7.2.1/lib/{HSA}": rocm_files()[f"/opt/rocm/core-10.0/lib/{HSA}"],
    "/opt/rocm-7.2.1/.info/version": b"7.2.1-81\n",
    "/opt/rocm": Link("rocm-7.2.1"),
}


def node(*parts: NodeFiles) -> Facts:
    files = {path: content for path, content in lumi_node().items() if not path.startswith("/opt/rocm")}
    for part in parts:
        files |= part
    return facts_of(files)


def installed(facts: Facts) -> tuple[tuple[str, ...], str | None]:
    return facts.stacks["rocm"].versions, facts.stacks["rocm"].default


@pytest.mark.parametrize("release", ["7.14.0", "10.1.2"])
def test_a_release_is_read_with_and_without_links(release: str) -> None:
    assert installed(node(rocm_files(release))) == ((release,), release)
    bare = node(rocm_files(release, links=False))
    assert installed(bare) == ((release,), None), "no link names a default"
    series = release.rpartition(".")[0]
    assert bare.loads[HSA] == f"/opt/rocm/core-{series}/lib/{HSA}", "no file tells the loader of that folder"


def test_what_states_the_release_counts_more_than_its_folder() -> None:
    unstated = rocm_files("10.0.0", info=False)
    assert installed(node(unstated)) == (("10.0",), "10.0")
    assert installed(node(unstated, dpkg_files("10.0.1"))) == (("10.0.1",), "10.0.1")
    assert installed(node(rocm_files("10.0.2"), dpkg_files("10.0.1"))) == (("10.0.2",), "10.0.2")
    for text in (b"", b"7.2.4\n", b"unknown\n"):
        odd: NodeFiles = {"/opt/rocm/core-10.0/.info/version": text}
        assert installed(node(unstated, odd)) == (("10.0",), "10.0"), text
    removed = dpkg_files()["/var/lib/dpkg/status"]
    assert isinstance(removed, bytes)
    gone: NodeFiles = {"/var/lib/dpkg/status": removed.replace(b"install ok installed", b"deinstall ok config-files")}
    assert installed(node(unstated, gone)) == (("10.0",), "10.0")


def test_releases_of_both_layouts_stand_side_by_side_in_order() -> None:
    old: NodeFiles = {"/opt/rocm-7.2.1/.info/version": b"7.2.1-81\n", "/opt/rocm-6.10.1/x": b""}
    link: NodeFiles = {"/opt/rocm-10.0.0": Link("/opt/rocm/core-10.0")}  # no second release
    all_three = node(old, rocm_files("7.14.0", links=False), rocm_files("10.0.0"), link)
    assert installed(all_three) == (("6.10.1", "7.2.1", "7.14.0", "10.0.0"), "10.0.0")


@pytest.mark.parametrize(
    ("before", "after", "changes"),
    [
        (OLD, {**rocm_files(), **dpkg_files()}, [("stack", "7.2.1", "10.0.0"), ("default", "7.2.1", "10.0.0")]),
        (OLD, rocm_files(links=False), [("stack", "7.2.1", "10.0.0"), ("default", "7.2.1", None)]),
        # Both share a folder: each library in it changes under its name.
        (rocm_files("10.0.0"), rocm_files("10.0.1"), [("stack", "10.0.0", "10.0.1"), ("default", "10.0.0", "10.0.1")]),
    ],
)
def test_a_step_to_another_release_is_reported_once(
    before: NodeFiles, after: NodeFiles, changes: list[tuple[str, str, str | None]]
) -> None:
    assert [(one.kind, one.before, one.after) for one in compare(node(before), node(after))] == changes
