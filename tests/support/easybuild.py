"""EasyBuild from PyPI, with Debian's Lmod."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

#: How it is called.
EB = ("eb", "--allow-use-as-root-and-accept-consequences", "--modules-tool=Lmod", "--module-syntax=Lua")


def environment_of_easybuild() -> Mapping[str, str]:
    """Install EasyBuild into an environment of its own, once; give the variables by which it is found, and Lmod."""
    cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "lumisite" / "easybuild"
    if not (cache / "bin" / "eb").exists():
        subprocess.run([sys.executable, "-m", "venv", str(cache)], check=True)
        subprocess.run([str(cache / "bin" / "pip"), "install", "--quiet", "easybuild"], check=True)
    return {
        **os.environ,
        "PATH": f"{cache / 'bin'}:{os.environ['PATH']}",
        "LMOD_CMD": "/usr/share/lmod/lmod/libexec/lmod",
    }
