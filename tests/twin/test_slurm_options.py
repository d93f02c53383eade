"""The options that `lint` knows are those of the Slurm that is installed."""

from __future__ import annotations

import re
from typing import Literal

import pytest

from lumisite.lint.slurm_options import OPTIONS
from tests.twin.cluster import Cluster

pytestmark = [pytest.mark.root, pytest.mark.slurm]


@pytest.mark.parametrize("program", ["sbatch", "srun"])
def test_every_option_that_help_lists_is_known(twin: Cluster, program: Literal["sbatch", "srun"]) -> None:
    listed = set(re.findall(r"(?<![\w-])--([a-z][\w-]*)", twin.run([program, "--help"]).stdout))
    assert {"nodes", "gpus-per-task", "export"} < listed
    assert listed - OPTIONS[program].keys() == set()
