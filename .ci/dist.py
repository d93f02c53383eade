"""Build the wheel that admins install, and try it in an environment of its own.

`python .ci/dist.py [FOLDER]` writes it into FOLDER (default: dist/).
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

from lumisite import __version__

TOP = Path(__file__).parent.parent
DIST = Path(sys.argv[1] if len(sys.argv) > 1 else TOP / "dist").absolute()


def main() -> None:
    """Build the wheel, install it, and render with it."""
    DIST.mkdir(exist_ok=True, parents=True)
    wheel = DIST / f"lumisite-{__version__}-py3-none-any.whl"
    run(sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", DIST, cwd=TOP)
    with tempfile.TemporaryDirectory() as folder:
        python = f"{folder}/venv/bin/python"
        run(sys.executable, "-m", "venv", f"{folder}/venv", cwd=folder)
        run(python, "-m", "pip", "--disable-pip-version-check", "--quiet", "install", wheel, cwd=folder)
        run(f"{folder}/venv/bin/lumisite", "render", "--site", "lumi", cwd=folder)
        run(f"{folder}/venv/bin/lumisite", "--version", cwd=folder)
    print(wheel)


def run(*argv: object, cwd: Path | str) -> None:
    """Run a command; raises `CalledProcessError` where it fails."""
    subprocess.run(list(map(str, argv)), cwd=cwd, check=True)


if __name__ == "__main__":
    main()
