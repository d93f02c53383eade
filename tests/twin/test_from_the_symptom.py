"""Three broken jobs of users, from what they print to their cause, with nothing but the commands of the page.

The blocks ```` ```console fault=NAME ```` of the page are typed on the login node while the fault is there, one shell for
each; what they print is compared with the page. Where each walk ends is asserted by codes and values.
"""

from __future__ import annotations

import importlib.util
import json
import re
import shlex
import shutil
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from lumisite.validate.lines import Gate
from lumisite.validate.run.folder import SAMPLES, lines_of
from tests.support.consoles import find_blocks, find_commands, matches
from tests.twin import faults
from tests.twin.cluster import Cluster, ClusterPlan, running
from tests.twin.fence import SCRIPTS
from tests.twin.fixtures import require_twin
from tests.twin.helper_site import deploy_site
from tests.twin.login_node import install_command
from tests.twin.roots import USER_ID
from tests.twin.test_transcripts import DOCS, END, WIDE, with_output

pytestmark = [pytest.mark.root, pytest.mark.slurm, pytest.mark.apptainer, pytest.mark.lmod]

PAGE = DOCS / "how-to/from-an-error-to-its-cause.md"
WORK = "scratch/work"
#: A cut copy keeps so much: the header of the image, and none of the tables at its end.
CUT_BYTES = 300_000_000


@pytest.fixture(scope="module")
def site() -> Iterator[Cluster]:
    """A site as users have it: modules deployed, lumisite on PATH, and the site named for all."""
    require_twin()
    config = ("lumisite.yaml", "site: twin\nroot: /appl/lumisite\n")
    with running(ClusterPlan(images=("torch",), etc=(config,))) as cluster:
        deploy_site(cluster)
        install_command(cluster)
        work = cluster.shared / WORK
        work.mkdir()
        shutil.chown(work, USER_ID, USER_ID)
        shutil.copy(SCRIPTS / "meet.py", work / "train.py")
        yield cluster


def interface_down(cluster: Cluster) -> AbstractContextManager[None]:
    return faults.interface_down(cluster, "nid000002", "hsn0")


@contextmanager
def image_cut(cluster: Cluster) -> Iterator[None]:
    """As a copy that was broken off leaves it, such as by a quota."""
    cluster.run(f"head -c {CUT_BYTES} /appl/images/torch.sif >/{WORK}/torch.sif").check()
    try:
        yield
    finally:
        (cluster.shared / WORK / "torch.sif").unlink()


@contextmanager
def packages_of_another_python(cluster: Cluster) -> Iterator[None]:
    """As a user has it who installed packages with the Python of the host, and exports where they are at login."""
    found = importlib.util.find_spec("numpy")
    assert found is not None
    assert found.origin is not None
    packages = cluster.shared / "scratch/packages"
    shutil.copytree(Path(found.origin).parent, packages / "numpy")
    for path in packages.rglob("*.cpython-*.so"):
        path.rename(path.with_name(re.sub(r"\.cpython-\d+-", ".cpython-310-", path.name)))
    profile = cluster.shared / "users/lumiuser/.bash_profile"
    before = profile.read_text()
    profile.write_text(f"{before}export PYTHONPATH=/scratch/packages\n")
    try:
        yield
    finally:
        profile.write_text(before)
        shutil.rmtree(packages)


def end_of_network(cluster: Cluster, printed: list[str]) -> None:
    (run,) = re.findall(r"^/\S+-validate$", "\n".join(printed), re.MULTILINE)
    bad = [line for line in lines_of(cluster.shared / run[1:] / SAMPLES) if isinstance(line, Gate)]
    bad = [gate for gate in bad if gate.verdict != "pass"]
    assert [(gate.code, gate.values["subject"], gate.nodes) for gate in bad] == [
        ("interface-down", "hsn0", ("nid000002",))
    ]


def end_of_image(cluster: Cluster, printed: list[str]) -> None:
    assert printed[-1].count("[image-cut]") == 1
    assert "torch.sif" in printed[-1]


def end_of_variable(cluster: Cluster, printed: list[str]) -> None:
    found = cluster.run(f"cd /{WORK}; lumisite env /appl/images/torch.sif --json").check().stdout
    named = [(one["code"], one["subject"], one["value"]) for one in json.loads(found)["harmful"]]
    assert named == [("variable-in-containers", "PYTHONPATH", "/scratch/packages")]
    # Without it, the same job runs.
    assert printed[-1].splitlines() == ["rank 0 sees 2", "rank 1 sees 2"]


@dataclass(frozen=True)
class Walk:
    """A fault, the symptom that the job's own output must lead to first, a code that the walk ends at, and its end."""

    fault: Callable[[Cluster], AbstractContextManager[None]]
    symptom: str
    code: str
    end: Callable[[Cluster, list[str]], None]


WALKS = {
    "network": Walk(interface_down, "peer-unreachable", "interface-down", end_of_network),
    "image": Walk(image_cut, "container-image-unreadable", "image-cut", end_of_image),
    "variable": Walk(packages_of_another_python, "user-packages", "variable-in-containers", end_of_variable),
}


def test_the_page_has_these_walks() -> None:
    words = [word for block in find_blocks(PAGE.read_text()) for word in block.words]
    assert words == [f"fault={name}" for name in WALKS]


@pytest.mark.parametrize("name", WALKS)
def test_a_broken_job_ends_at_its_cause(site: Cluster, name: str, pytestconfig: pytest.Config) -> None:
    walk, text = WALKS[name], PAGE.read_text()
    blocks = [block for block in find_blocks(text) if f"fault={name}" in block.words]
    commands = [command for block in blocks for command in find_commands(block)]
    begin = f"cd /{WORK}; module load singularity-AI-bindings; exec 2>&1\n"
    script = begin + "".join(f"{command.text}\necho {shlex.quote(END)}\n" for command in commands)
    with walk.fault(site):
        printed = site.run(script, environment=WIDE).stdout.split(f"{END}\n")[:-1]
        records: list[dict[str, Any]] = json.loads(site.run(f"lumisite why - --json </{WORK}/job.out").check().stdout)
        walk.end(site, printed)
    # The text is what the job printed, and the command that is typed next is of the cause that has the code.
    assert records[0]["symptom"] == walk.symptom
    (cause,) = [cause for cause in records[0]["causes"] if walk.code in cause["codes"]]
    typed = [command.text for command in commands]
    assert any(command.startswith(cause["run"].partition(" IMAGE")[0].partition(" NODES")[0]) for command in typed)
    actual = [[line.rstrip() for line in one.splitlines()] for one in printed]
    if pytestconfig.getoption("--update-golden"):
        PAGE.write_text(with_output(text, actual, f"fault={name}"))
    for command, lines in zip(commands, actual, strict=True):
        assert matches(command.expected, lines), f"$ {command.text}\n" + "\n".join(lines)
