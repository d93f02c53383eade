"""The rendered scripts of a site like LUMI, under each shell that may be /bin/sh."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.prologs import SHELLS, Script, lay_out, lumi_like_files, shell_command
from tests.support.tools import tool
from tests.support.wrappers import Wrapper, make


@pytest.fixture(params=SHELLS)
def shell(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def prolog(shell: str, tmp_path: Path) -> Script:
    """The task prolog; the cgroup that the kernel tells of is a file of the test's."""
    path = lay_out(tmp_path, lumi_like_files()) / "task_prolog"
    text = path.read_text()
    for kernels, ours in (("/proc/self/cpuset", f"{tmp_path}/cpuset"), ("/sys/fs/cgroup", f"{tmp_path}/cgroup")):
        assert kernels in text
        text = text.replace(kernels, ours)
    path.write_text(text)
    (tmp_path / "cpuset").write_text("/\n")
    return Script(tuple(shell_command(shell, tmp_path)), path)


@pytest.fixture
def wrapper(shell: str, tmp_path: Path) -> Wrapper:
    return make(tmp_path, shell)


@pytest.fixture(params=("lua5.3", "lua5.4"))
def lua(request: pytest.FixtureRequest) -> str:
    return tool(request.param)
