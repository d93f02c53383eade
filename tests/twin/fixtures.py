"""Clusters for tests. One is shared by the whole run: a test undoes what it does to it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator

import pytest

from tests.twin.cluster import Cluster, ClusterPlan, running

TOOLS = ("mmdebstrap", "unshare", "nsenter", "setpriv", "ip", "tc", "gcc")


def require_twin(*more_tools: str) -> None:
    """Skip the test and say what is missing, if this machine cannot hold a twin."""
    if os.geteuid() != 0:
        pytest.skip("the twin needs root: it makes name spaces and mounts")
    missing = [tool for tool in (*TOOLS, *more_tools) if shutil.which(tool) is None]
    if missing:
        pytest.skip(f"the twin needs {', '.join(missing)} (.ci/packages installs them)")


@pytest.fixture(scope="session")
def twin() -> Iterator[Cluster]:
    """Have a cluster of the default generation with two nodes and both images."""
    require_twin()
    with running(ClusterPlan()) as cluster:
        yield cluster
