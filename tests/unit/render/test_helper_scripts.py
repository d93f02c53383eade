"""The helper's scripts as they lie in `spank_helpers`: what checkers say of them, and runs by hand with small data."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from lumisite.render.manifest import MANIFEST
from lumisite.render.render import PROLOG_SCRIPTS, WRAPPER_SCRIPTS
from lumisite.site.load import load_site
from tests.support.prologs import render_files, write_script
from tests.unit.render.test_cli_filter import filtered

ROOM = Path(__file__).parents[3] / "spank_helpers"
DATA = Path(__file__).parents[2] / "data/helper"
TOOLS = Path(sys.executable).parent


def finds_nothing(name: str, *words: str) -> None:
    done = subprocess.run([TOOLS / name, *words], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.thorough
@pytest.mark.parametrize("site", ["lumi", "twin"])
def test_checkers_find_nothing_in_what_is_rendered(site: str, tmp_path: Path) -> None:
    """Without an exception; `dash` is POSIX with the tests -O, -k, -ef and -nt, which all shells have."""
    files = render_files(load_site(site), rocm=["all"], cpe=["all"])
    for name in ("spank/task_prolog", "spank/bin/singularity"):
        script = write_script(tmp_path / name, files[name])
        finds_nothing("shellcheck", str(script))
        finds_nothing("shfmt", "-p", "-d", str(script))
        assert max(len(line) for line in files[name].splitlines() if " " in line.strip()) <= 100


@pytest.mark.parametrize(
    ("path", "names"), [("spank/task_prolog", PROLOG_SCRIPTS), ("spank/bin/singularity", WRAPPER_SCRIPTS)]
)
def test_a_rendered_script_is_its_parts_as_they_are_and_then_the_data(path: str, names: tuple[str, ...]) -> None:
    files, source = render_files(load_site("lumi")), "\n".join((ROOM / name).read_text() for name in names)
    assert not re.search(r"\{\{|\{%|\{##", source), "marks of a template"
    for mark, value in (
        ("@STACK@", "ROCm"),
        ("@RELEASE@", json.loads(files[MANIFEST])["release"]),
        ("@SITE@", "lumi"),
        ("@ROOT@", "/appl/local/lumisite"),
        ("@SUPPORT@", "LUMI User Support Team"),
        ("@CONTACT@", "https://lumi-supercomputer.eu/user-support/need-help/"),
    ):
        source = source.replace(mark, value)
    assert files[path].startswith(f"{source}\n# ---- the site's data, from lumi.yaml: ")
    assert "#   the same by hand:  echo 'off default' >/appl/local/lumisite/policy\n" in files[path]


def test_the_scripts_run_by_hand_with_small_data(tmp_path: Path) -> None:
    def ran(names: tuple[str, ...], *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
        parts = [*(ROOM / name for name in names), DATA / names[0]]
        (tmp_path / names[0]).write_text("".join(part.read_text() for part in parts))
        command = ["dash", str(tmp_path / names[0]), *words]
        given = {"PATH": "/bin", "LUMISITE_VERBOSE": "1", **environment}
        return subprocess.run(command, env=given, capture_output=True, text=True, check=True)

    done = ran(PROLOG_SCRIPTS, SLURM_JOB_ID="1", SLURM_STEP_ID="0", SLURM_JOB_PARTITION="gpu")
    assert {"export SINGULARITY_BINDPATH=/:/host", "export NCCL_DEBUG=WARN"} <= set(done.stdout.splitlines())
    assert done.stdout.endswith("print lumisite: no CPU binding: how many tasks this node has is not known\n")
    done = ran(WRAPPER_SCRIPTS, "exec", "torch-rocm-6.2.4.sif", "true", PWD="/x", LUMISITE_DONE="0.0.0")
    assert done.stdout == "exec torch-rocm-6.2.4.sif true\n"
    assert "lumisite: with the bind /:/host\nlumisite: NCCL_NET=AWS Libfabric\n" in done.stderr
    module = tmp_path / "filter.lua"
    module.write_text("".join((folder / "cli_filter.lua").read_text() for folder in (ROOM, DATA)))
    assert filtered("lua5.4", module, argv=["singularity", "exec", "/x/torch-1.sif"])[-1] == "set mpi=pmi2"
