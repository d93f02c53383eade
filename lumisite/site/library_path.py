"""Where the loader in a container finds the host's libraries that a family's images need first.

A bind may have them under another path than the host: of `{path: /opt/net, target: /host/opt/net}` the library path
must name what is below `/host`.
"""

from __future__ import annotations

from pathlib import PurePosixPath

from lumisite.site.entries import HostPath
from lumisite.site.ledger import Situation, judge_conditions
from lumisite.site.model import Site
from lumisite.site.scalars import TASK


def host_folders(site: Site, platform: str, family: str) -> tuple[str, ...]:
    """Return the directories of a platform's host that the loader of a family's images must search first."""
    libraries = site.platforms[platform].libraries
    return tuple(f"{libraries[name]}/lib64" for name in site.families[family].library_path)


def library_path(site: Site, platform: str, family: str) -> tuple[str, ...]:
    """Return these directories as the container has them; one that no bind covers is under its own path."""
    folders = host_folders(site, platform, family)
    inside = (path for folder in folders for path in folders_inside(site, platform, family, folder) or [folder])
    return tuple(dict.fromkeys(inside))


def host_libfabric(site: Site, platform: str, family: str | None) -> tuple[str, ...] | None:
    """Return where a container of a family has the host's libfabric, `None` where the platform does not name it.

    Without a family the container has what all modules bind.
    """
    folder = site.platforms[platform].libraries.get("libfabric")
    return None if folder is None else tuple(folders_inside(site, platform, family, f"{folder}/lib64"))


def host_path(site: Site, path: str) -> str:
    """Return the path on the host of what binds have in the container, the path itself where none does."""
    known = (bind for bind in site.host_paths.values() if bind.where is not None and bind.target is not None)
    covering = [bind for bind in known if _is_under(path, str(bind.target))]
    bind = max(covering, key=lambda bind: len(str(bind.target)), default=None)
    return path if bind is None else _moved(path, str(bind.target), bind.path)


def folders_inside(site: Site, platform: str, family: str | None, folder: str) -> list[str]:
    """Return where binds of a family's modules (default: of all) and of tasks have a directory of the host.

    That is one path where some bind always applies (of several the most specific), else all that are possible.
    """
    modules = {*site.modules} if family is None else {*site.loaded_with(site.families[family].modules)}
    situation = Situation(platform, family=family)
    sure: list[HostPath] = []
    possible: list[HostPath] = []
    for bind in site.host_paths.values():
        if bind.where in (*modules, TASK) and _is_under(folder, bind.path):
            applies, _ = judge_conditions(bind.when, situation)
            possible += [] if applies is False else [bind]
            sure += [bind] if applies else []
    most_specific = sorted(sure or possible, key=lambda bind: -len(bind.path))
    return [_moved(folder, bind.path, bind.target or bind.path) for bind in most_specific[: 1 if sure else None]]


def _is_under(path: str, top: str) -> bool:
    return PurePosixPath(path).is_relative_to(top)


def _moved(path: str, top: str, to: str) -> str:
    return str(PurePosixPath(to) / PurePosixPath(path).relative_to(top))
