"""From off to observe, canary, act and off: the commands of the page, typed by an admin on the twin's login node."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator

import pytest

from tests.support.consoles import find_blocks, find_commands, matches
from tests.twin.cluster import SITE_TREE, Cluster, ClusterPlan, running
from tests.twin.fixtures import require_twin
from tests.twin.helper_site import deploy_site, start_system_log
from tests.twin.login_node import install_command
from tests.twin.roots import USER_ID
from tests.twin.test_helper_steps import FILTER, install_filter
from tests.twin.test_transcripts import DOCS, END, WIDE, with_output

pytestmark = [pytest.mark.root, pytest.mark.slurm, pytest.mark.apptainer, pytest.mark.lmod]

PAGE = DOCS / "how-to/switch-on-step-by-step.md"


@pytest.fixture
def site() -> Iterator[Cluster]:
    """A site with a cli_filter, a system log on each node, and lumisite on the admin's PATH."""
    require_twin()
    config = ("lumisite.yaml", "site: twin\nroot: /appl/lumisite\n")
    lines, etc = ("CliFilterPlugins=cli_filter/lua",), (("slurm/cli_filter.lua", FILTER), config)
    with running(ClusterPlan(images=("small",), slurm_lines=lines, etc=etc)) as cluster:
        deploy_site(cluster, {"modules:\n": "journal: syslog\nmodules:\n"})
        install_command(cluster)
        install_filter(cluster)
        for folder, _, names in os.walk(cluster.shared / SITE_TREE.removeprefix("/")):
            for path in (folder, *(f"{folder}/{name}" for name in names)):
                os.chown(path, USER_ID, USER_ID, follow_symlinks=False)  # who types is the admin
        (cluster.shared / "scratch/log").mkdir()
        for node in cluster.nodes:
            start_system_log(cluster, node, f"/scratch/log/{node}")
        yield cluster


def test_the_page_is_what_an_admin_sees(site: Cluster, pytestconfig: pytest.Config) -> None:
    text = PAGE.read_text()
    commands = [command for block in find_blocks(text) if "policy" in block.words for command in find_commands(block)]
    script = "cd /scratch; exec 2>&1\n" + "".join(f"{command.text}\necho {shlex.quote(END)}\n" for command in commands)
    printed = site.run(script, environment=WIDE, timeout_s=300).stdout.split(f"{END}\n")[:-1]
    actual = [[line.rstrip() for line in one.splitlines()] for one in printed]
    if pytestconfig.getoption("--update-golden"):
        PAGE.write_text(with_output(text, actual, "policy"))
    by_mode = [lines for command, lines in zip(commands, actual, strict=True) if command.text.startswith("srun")]
    assert by_mode == [["not set"] * 2, ["hsn0"] * 2, ["not set"] * 2]
    for command, lines in zip(commands, actual, strict=True):
        assert matches(command.expected, lines), f"$ {command.text}\n" + "\n".join(lines)
