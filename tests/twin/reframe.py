"""ReFrame on the twin's login node, from its wheels, with settings for the twin's Slurm.

The twin has no accounting database, so ReFrame asks squeue. Observed with 4.10.4: of a job that ends within the two
seconds before its first look that back-end knows no nodes (`None`), and never an exit code.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from tests.twin.cache import cached
from tests.twin.cluster import EXCHANGE, Cluster
from tests.twin.image import install_wheels
from tests.twin.login_node import LUMISITE, let_python_compile

#: ReFrame and all that it imports; polars, nine tenths of the size, only serves a database of results.
WHEELS = (
    "reframe-hpc==4.10.4",
    "archspec==0.2.7",
    "argcomplete==3.7.2",
    "attrs==26.1.0",
    "certifi==2026.10.18",
    "charset-normalizer==3.5.2",
    "clustershell==1.10.1",
    "fasteners==0.20",
    "idna==3.20",
    "jinja2==3.1.6",
    "jsonschema==4.26.0",
    "jsonschema-specifications==2025.9.1",
    "lxml==6.1.3",
    "markupsafe==3.0.4",
    "pyyaml==6.0.3",
    "referencing==0.37.0",
    "requests==2.34.2",
    "rpds-py==2026.9.1",
    "semver==3.1.1",
    "tabulate==0.10.0",
    "typing-extensions==4.16.0",
    "urllib3==2.8.0",
)
PLACE = "/appl/admin/reframe"
SETTINGS = f"{EXCHANGE}/reframe_settings.py"
REFRAME = f"PATH={EXCHANGE}:$PATH PYTHONPATH={PLACE} python3 {PLACE}/bin/reframe --nocolor -C {SETTINGS}"

_SETTINGS = """\
site_configuration = {
    "systems": [
        {
            "name": "twin",
            "hostnames": ["uan01"],
            "partitions": [
                {"name": "standard-g", "scheduler": "squeue", "launcher": "srun", "environs": ["builtin"]},
            ],
        },
    ],
}
"""


def install_reframe(cluster: Cluster) -> None:
    """Put ReFrame where the login node finds it (`REFRAME` runs it there, with a lumisite on PATH)."""
    shutil.copytree(_installed(), cluster.shared / PLACE.removeprefix("/"))
    let_python_compile(cluster, PLACE)
    (cluster.exchange / "reframe_settings.py").write_text(_SETTINGS)
    program = cluster.exchange / "lumisite"
    program.write_text(f'#!/bin/sh\nexec env {LUMISITE} "$@"\n')
    program.chmod(0o755)


def _installed() -> Path:
    """Give ReFrame in a folder, installed if need be (seconds, needs the network)."""
    return cached("reframe", {"wheels": WHEELS}, lambda partial: install_wheels(WHEELS, partial / "python")) / "python"
