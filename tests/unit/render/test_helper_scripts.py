"""The helper's scripts as they lie in `spank_helpers`: what checkers say of them, and runs by hand with small data."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from lumisite.render import runtimes
from lumisite.render.manifest import MANIFEST
from lumisite.render.render import PROLOG_SCRIPTS, WRAPPER_SCRIPTS
from lumisite.site.load import load_site
from tests.support.prologs import render_files, write_script
from tests.support.wrappers import LAIF, make
from tests.unit.render.test_cli_filter import filtered

ROOM = Path(__file__).parents[3] / "spank_helpers"
DATA = Path(__file__).parents[2] / "data/helper"
SCRIPTS = sorted(ROOM.glob("*.sh"))
TOOLS = Path(sys.executable).parent

#: A part alone uses variables of other parts (SC2154), and sets (SC2034) and defines (SC2329) what others use.
OF_PARTS = "SC2034,SC2154,SC2329"


def finds_nothing(name: str, *words: str) -> None:
    done = subprocess.run([TOOLS / name, *words], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_shellcheck_finds_nothing_in_the_scripts() -> None:
    finds_nothing("shellcheck", "--shell=dash", f"--exclude={OF_PARTS}", *map(str, SCRIPTS))


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.name)
def test_the_scripts_are_formatted(script: Path) -> None:
    finds_nothing("shfmt", "-p", "-d", str(script))
    assert max(map(len, script.read_text().splitlines())) <= 100


@pytest.mark.thorough
@pytest.mark.parametrize("site", ["lumi", "twin"])
def test_nothing_is_found_in_what_is_rendered(site: str, tmp_path: Path) -> None:
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
    release = json.loads(files[MANIFEST])["release"]
    for mark, value in (
        ("@STACK@", "ROCm"),
        ("@RELEASE@", release),
        ("@SITE@", "lumi"),
        ("@ROOT@", "/appl/local/lumisite"),
        ("@SUPPORT@", "LUMI User Support Team"),
        ("@CONTACT@", "https://lumi-supercomputer.eu/user-support/need-help/"),
    ):
        source = source.replace(mark, value)
    assert files[path].startswith(f"{source}\n# ---- the site's data, from lumi.yaml: ")
    assert "#   the same by hand:  echo 'off default' >/appl/local/lumisite/policy\n" in files[path]


def test_the_scripts_have_no_template_marks() -> None:
    for path in ROOM.iterdir():
        assert not re.search(r"\{\{|\{%|\{##", path.read_text()), path


def by_hand(tmp_path: Path, *parts: Path) -> Path:
    script = tmp_path / "script"
    script.write_text("".join(part.read_text() for part in parts))
    return script


@pytest.mark.parametrize("shell", ["dash", "bash"])
def test_the_prolog_runs_by_hand(shell: str, tmp_path: Path) -> None:
    script = by_hand(tmp_path, *(ROOM / name for name in PROLOG_SCRIPTS), DATA / "prolog.sh")
    step = {"SLURM_JOB_ID": "1", "SLURM_STEP_ID": "0", "SLURM_JOB_PARTITION": "gpu", "LUMISITE_VERBOSE": "1"}
    done = subprocess.run([shell, script], env={"PATH": "/bin", **step}, capture_output=True, text=True, check=True)
    lines = done.stdout.splitlines()
    assert done.stderr == ""
    assert "export SINGULARITY_BINDPATH=/:/host" in lines
    assert "export NCCL_DEBUG=WARN" in lines
    assert lines[-1] == "print lumisite: no CPU binding: how many tasks this node has is not known"


@pytest.mark.parametrize("shell", ["dash", "bash"])
def test_the_wrapper_runs_by_hand(shell: str, tmp_path: Path) -> None:
    script = by_hand(tmp_path, *(ROOM / name for name in WRAPPER_SCRIPTS), DATA / "wrapper.sh")
    command = [shell, str(script), "exec", "torch-rocm-6.2.4.sif", "true"]
    step = {"PATH": "/bin", "PWD": "/x", "LUMISITE_VERBOSE": "1", "LUMISITE_DONE": "0.0.0"}
    done = subprocess.run(command, env=step, capture_output=True, text=True, check=True)
    assert done.stdout == "exec torch-rocm-6.2.4.sif true\n"
    assert "lumisite: with the bind /:/host\n" in done.stderr
    assert "lumisite: NCCL_NET=AWS Libfabric\n" in done.stderr


def test_the_filter_runs_by_hand(tmp_path: Path) -> None:
    module = by_hand(tmp_path, ROOM / "cli_filter.lua", DATA / "cli_filter.lua")
    assert filtered("lua5.4", module, argv=["singularity", "exec", "/x/torch-1.sif"])[-1] == "set mpi=pmi2"


# ---- the options of the runtimes


def words_with_options() -> list[list[str]]:
    return [
        *([option, "value", "exec"] for option in runtimes.GLOBAL_VALUED),
        *([action] for action in runtimes.ACTIONS),
        *(["run", flag] for flag in runtimes.ACTION_FLAGS if flag != "--writable"),
        *(["test", option, "value"] for option in runtimes.ACTION_VALUED),
        *(["exec", f"-{letter}", "value"] for letter in runtimes.ACTION_VALUED_LETTERS),
    ]


@pytest.mark.thorough
def test_the_wrapper_steps_over_every_option_that_is_listed(tmp_path: Path) -> None:
    wrapper = make(tmp_path, "dash")
    for words in words_with_options():
        assert wrapper.call(*words, LAIF).environment["SINGULARITY_BINDPATH"] != wrapper.binds, words
