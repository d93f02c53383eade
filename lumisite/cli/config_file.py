"""The configuration file, for what would be typed each time: the site, and its deployment root."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from lumisite.site.decode import decode, key
from lumisite.site.read import read_file
from lumisite.site.scalars import Name, RootPath
from lumisite.site.yaml import MAX_BYTES

#: The file of all users of a machine. A user's own file comes before it, key by key.
OF_THE_MACHINE = Path("/etc/lumisite.yaml")


@dataclass(frozen=True)
class Config:
    """What a configuration file may say."""

    site: Name = key("The site: an embedded one by its name, or the file of its description.", default=Name(""))
    root: RootPath | None = key("The deployment root of `status`.", default=None)


def config_paths() -> tuple[Path, ...]:
    """Return where configuration files may be, the one that counts first."""
    home = os.environ.get("XDG_CONFIG_HOME") or (f"{os.environ['HOME']}/.config" if os.environ.get("HOME") else "")
    return (*((Path(home) / "lumisite.yaml",) if home.startswith("/") else ()), OF_THE_MACHINE)


def configured_site() -> tuple[str, Path] | None:
    """Return the site that a configuration file names, and that file; raises `SiteError` for one with faults.

    A relative path of a description begins at the file that names it.
    """
    for path, config in _configs():
        if config.site:
            beside = path.parent / config.site
            return (str(beside) if "/" in config.site or beside.is_file() else config.site), path
    return None


def configured_root() -> Path | None:
    """Return the deployment root of the configuration files; raises `SiteError` for one with faults."""
    return next((Path(config.root) for _, config in _configs() if config.root is not None), None)


def _configs() -> list[tuple[Path, Config]]:
    return [
        (path, decode(read_file(path, MAX_BYTES), Config, file=str(path))) for path in config_paths() if path.is_file()
    ]
