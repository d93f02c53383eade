"""The wheel that `make dist` builds, installed on a machine with nothing but Python."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from lumisite import __version__
from tests.twin.cache import cached, remove_tree
from tests.twin.roots import bootstrap

pytestmark = pytest.mark.root

TOP = Path(__file__).parents[2]
#: Debian's releases, and their Python.
SUITES = {"bookworm": "3.11", "trixie": "3.13"}
LUMI = "site-out/MANIFEST.json"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel as `make dist` builds it, which tries it on this machine too."""
    folder = tmp_path_factory.mktemp("dist")
    output_of(sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(folder), cwd=TOP)
    (built,) = folder.glob("*.whl")
    return built


def output_of(*argv: str, cwd: Path) -> str:
    done = subprocess.run(argv, cwd=cwd, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def bare_machine(suite: str) -> Path:
    """Return a root that has Python and nothing that it needs not."""

    def build(partial: Path) -> None:
        bootstrap(suite, ("python3-minimal", "libpython3-stdlib"), partial / "tree")
        remove_tree(partial / "tree/var/lib/apt")

    return cached(f"bare-python-{suite}", {"version": 1}, build) / "tree"


@pytest.mark.parametrize("suite", SUITES)
def test_the_wheel_and_what_it_names_is_all_that_a_machine_with_python_needs(
    suite: str, wheel: Path, tmp_path: Path
) -> None:
    home = tmp_path / "home"
    home.mkdir()
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet", "install")
    for_suite = (
        "--no-compile",
        "--only-binary=:all:",
        "--python-version",
        SUITES[suite],
        "--target",
        str(home / "installed"),
    )
    output_of(*pip, *for_suite, str(wheel), cwd=tmp_path)
    inside = (
        f'mount --bind {home} "$1/mnt" && exec chroot "$1" '
        'env -i HOME=/mnt PATH=/usr/bin:/bin PYTHONPATH=/mnt/installed sh -c "cd /mnt && $2"'
    )
    command = "python3 -m lumisite render --rocm 6.2 && python3 -m lumisite --version"
    done = output_of("unshare", "--mount", "sh", "-c", inside, "sh", str(bare_machine(suite)), command, cwd=tmp_path)
    commit = output_of("git", "rev-parse", "--short=12", "HEAD", cwd=TOP).strip()
    assert done.endswith(f"{LUMI}\nlumisite {__version__} (commit {commit})\n")
    assert (home / LUMI).is_file()
