"""An entry of the cache is whole or absent, and is built once."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from lumisite.errors import ResolveError, ToolError
from tests.twin.cache import cached, entry_key
from tests.twin.roots import node_root

CHECKOUT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("LUMISITE_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_an_entry_is_built_once() -> None:
    builds: list[Path] = []
    entries = {cached("thing", {"a": 1}, builds.append) for _ in range(3)}
    assert len(builds) == 1
    assert len(entries) == 1


def test_other_inputs_are_another_entry() -> None:
    assert cached("thing", {"a": 1}, lambda _: None) != cached("thing", {"a": 2}, lambda _: None)


def test_the_order_of_inputs_does_not_matter() -> None:
    assert entry_key({"a": 1, "b": 2}) == entry_key({"b": 2, "a": 1})


def test_a_failed_build_leaves_no_entry(cache: Path) -> None:
    def fail(partial: Path) -> None:
        (partial / "half").touch()
        raise ToolError("no")

    with pytest.raises(ToolError):
        cached("thing", {}, fail)
    assert [path.suffix for path in cache.iterdir()] == [".lock"]


KILLED = """
import sys
from tests.twin.cache import cached

def build(partial):
    (partial / "half").touch()
    print("building", flush=True)
    sys.stdin.read()

cached("thing", {}, build)
"""


def test_a_killed_build_is_not_taken_for_an_entry(cache: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(CHECKOUT)}
    with subprocess.Popen(
        [sys.executable, "-c", KILLED], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment
    ) as builder:
        assert builder.stdout is not None
        assert builder.stdout.readline() == b"building\n"
        builder.send_signal(signal.SIGKILL)
    assert any(cache.glob("thing-*.partial"))
    entry = cached("thing", {}, lambda partial: (partial / "whole").touch())
    assert [path.name for path in entry.iterdir()] == ["whole"]
    assert not any(cache.glob("thing-*.partial"))


def test_an_unknown_generation_names_the_known_ones() -> None:
    with pytest.raises(ResolveError, match=r"'buster' does not exist \(have bookworm, trixie, sid\)"):
        node_root("buster")
