"""Build what admins install: the wheel, one file that runs by itself (a zipapp), and an easyconfig.

`python .ci/dist.py [FOLDER]` writes them into FOLDER (default: dist/).
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

import shiv.cli as shiv
from shiv import builder

from lumisite import __version__

TOP = Path(__file__).parent.parent
DIST = Path(sys.argv[1] if len(sys.argv) > 1 else TOP / "dist").absolute()
#: The Pythons for which the one file brings compiled modules; 3.14 has what they do in its library.
PYTHONS = ("3.10", "3.11", "3.12", "3.13")
COMPILED = "backports.zstd"
#: SLES 15 has Python 3.6 as python3: shiv's start runs there, and this then says what is wrong.
PREAMBLE = """\
#!/usr/bin/env python3
import sys
if sys.version_info < (3, 10):
    sys.exit("lumisite needs Python 3.10 or newer, this is %d.%d: python3.11 lumisite.pyz ..." % sys.version_info[:2])
"""
#: What the one file starts with, in place of shiv's two lines: where it cannot unpack itself (no home, a full one, one
#: that is read-only) it does so for this one call. What runs later tells of its own errors.
MAIN = """\
import os, shutil, sys, tempfile
import {module}
try:
    {module}.{fn}()
except (OSError, RuntimeError) as error:
    if "lumisite" in sys.modules:
        raise
    try:
        folder = os.environ["SHIV_ROOT"] = tempfile.mkdtemp(prefix="lumisite-")
    except OSError:
        sys.exit("lumisite: cannot unpack itself: %s (name a folder of your own in SHIV_ROOT)" % error)
    try:
        {module}.{fn}()
    finally:
        shutil.rmtree(folder)
"""


def run(*argv: object) -> None:
    """Run a command of this Python's environment."""
    subprocess.run([sys.executable, "-m", *map(str, argv)], cwd=TOP, check=True)


def main() -> None:
    """Build everything anew."""
    DIST.mkdir(exist_ok=True, parents=True)
    run("docs.share", "build")
    run("hatchling", "build", "--target", "wheel", "--directory", DIST)
    wheel = DIST / f"lumisite-{__version__}-py3-none-any.whl"
    with tempfile.TemporaryDirectory() as folder:
        zipapp(wheel, Path(folder))
    with tarfile.open(DIST / f"lumisite-share-{__version__}.tar.gz", "w:gz") as packed:
        packed.add(TOP / "build/share", "share")
    easyconfig()
    for path in sorted(DIST.iterdir()):
        print(path)


def zipapp(wheel: Path, folder: Path) -> None:
    """Put the wheel and all that it needs into one file, which unpacks itself below ~/.shiv at its first start."""
    pip = ("pip", "--disable-pip-version-check", "--quiet")
    site = folder / "site"
    run(*pip, "install", "--target", site, wheel)
    for python in PYTHONS:
        only = ("--only-binary=:all:", "--no-deps", "--python-version", python)
        run(*pip, "download", *only, "--dest", folder / python, COMPILED)
        for path in (folder / python).glob("*.whl"):
            zipfile.ZipFile(path).extractall(site)  # noqa: S202  # a wheel, which pip has checked
    (folder / "preamble.py").write_text(PREAMBLE)
    builder.MAIN_TEMPLATE = MAIN
    out = ("--output-file", DIST / "lumisite.pyz", "--compressed", "--reproducible")
    argv = ("--site-packages", site, "--console-script", "lumisite", "--preamble", folder / "preamble.py", *out)
    shiv.main(list(map(str, argv)), standalone_mode=False)


def easyconfig() -> None:
    """Write the easyconfig with the sums of its two sources."""
    names = ("lumisite.pyz", f"lumisite-share-{__version__}.tar.gz")
    sums = {name: hashlib.sha256((DIST / name).read_bytes()).hexdigest() for name in names}
    text = (TOP / ".ci/lumisite.eb").read_text()
    for name, value in {"VERSION": __version__, "SUMS": repr([{one: sums[one]} for one in names])}.items():
        text = text.replace(f"@{name}@", value)
    (DIST / f"lumisite-{__version__}.eb").write_text(text)


if __name__ == "__main__":
    main()
