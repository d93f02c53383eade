"""`lumisite render`: the whole process against importing its libraries, and against EasyBuild."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from tests.bench.measure import Row, in_turn, seconds

#: How EasyBuild is called.
EB = ("eb", "--allow-use-as-root-and-accept-consequences", "--modules-tool=Lmod", "--module-syntax=Lua")
LUMISITE = str(Path(sys.executable).parent / "lumisite")
RECIPE = """
easyblock = 'Bundle'
name = 'singularity-AI-bindings'
version = '24.03'
homepage = 'https://example.org'
description = 'Binds for AI containers'
toolchain = SYSTEM
modextravars = {'SINGULARITY_BIND': '/opt/cray,/usr/lib64/libcxi.so.1,/pfs,/scratch,/projappl,/project,/flash,/appl'}
modluafooter = "conflict('singularity-bindings')"
moduleclass = 'tools'
"""


def run() -> list[Row]:
    """Measure everything of this module."""
    with tempfile.TemporaryDirectory() as scratch:
        top = Path(scratch)
        return [against_imports(top), against_easybuild(top)]


def against_imports(top: Path) -> Row:
    """The whole process against the import of its libraries."""
    render = [LUMISITE, "render", "--rocm", "6.2", "--out", str(top / "out")]
    imports = [sys.executable, "-c", "import click, jinja2, yaml, cattrs, packaging.version"]
    ratio, ours, theirs = in_turn(lambda: seconds(render), lambda: seconds(imports), 15)
    detail = f"render {ours * 1000:.0f} ms, import of its libraries {theirs * 1000:.0f} ms"
    return Row("render / import of its libraries", ratio, 2.5, detail)


def environment_of_easybuild() -> Mapping[str, str]:
    """Install EasyBuild into an environment of its own, once; return the variables by which it and Lmod are found."""
    cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "lumisite" / "easybuild"
    if not (cache / "bin" / "eb").exists():
        subprocess.run([sys.executable, "-m", "venv", str(cache)], check=True)
        subprocess.run([str(cache / "bin" / "pip"), "install", "--quiet", "easybuild"], check=True)
    return {
        **os.environ,
        "PATH": f"{cache / 'bin'}:{os.environ['PATH']}",
        "LMOD_CMD": "/usr/share/lmod/lmod/libexec/lmod",
    }


def against_easybuild(top: Path) -> Row:
    """EasyBuild writing one equal module against lumisite writing a whole tree."""
    (top / "recipe").mkdir()
    recipe = top / "recipe" / "singularity-AI-bindings-24.03.eb"
    recipe.write_text(RECIPE)
    build = [*EB, "--module-only", "--force", f"--prefix={top / 'eb'}", str(recipe)]
    environment = environment_of_easybuild()
    render = [LUMISITE, "render", "--rocm", "6.2", "--out", str(top / "out")]
    ratio, theirs, ours = in_turn(lambda: seconds(build, environment), lambda: seconds(render), 7)
    detail = f"eb --module-only {theirs * 1000:.0f} ms, render {ours * 1000:.0f} ms"
    return Row("EasyBuild / render", ratio, 5, detail, at_least=True)
