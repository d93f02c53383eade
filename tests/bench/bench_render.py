"""`lumisite render`: the whole process against importing its libraries, against EasyBuild, and on a large site."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from lumisite.site.load import EMBEDDED
from tests.bench.measure import Row, in_turn, peak_mib, seconds

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
        return [against_imports(top), against_easybuild(top), *large_site(top)]


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


def large_site(top: Path) -> list[Row]:
    """A site with 800 and with 1,600 modulefiles, nearly all that a description may have: time, memory, and how time grows."""
    commands = {}
    for count in (800, 1600):
        site = top / f"large{count}.yaml"
        site.write_text(_large_site(count))
        commands[count] = [LUMISITE, "render", "--site", str(site), "--rocm", "6.2"]
    fresh = iter(range(1_000_000))

    def render(count: int) -> float:
        return seconds([*commands[count], "--out", str(top / f"out{next(fresh)}")])

    growth, large, small = in_turn(lambda: render(1600), lambda: render(800), 3)
    peak = peak_mib([*commands[1600], "--out", str(top / "out-peak")])
    return [
        Row("1,600 modulefiles", large, 2, f"800 take {small:.2f} s", unit="s"),
        Row("1,600 / 800 modulefiles", growth, 2.4, "linear is 2.0"),
        Row("memory with 1,600 modulefiles", peak, 200, "peak of the process", unit="MiB"),
    ]


def _large_site(modules: int) -> str:
    text = (EMBEDDED / "twin.yaml").read_text()
    entry = (
        "  module-{n}:\n    template: singularity-CPEbits\n    version: [cpe]\n    summary: module {n}\n"
        "    keywords: [a, b]\n    conflicts: [singularity-bindings]\n"
    )
    return text + "".join(entry.format(n=number) for number in range(modules - 3))


if __name__ == "__main__":
    from tests.bench.measure import table

    print(table(run()))
