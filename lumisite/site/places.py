"""What a description says of the places where users' private caches go on a node, and what cannot be right in it."""

from __future__ import annotations

from lumisite.site.decode import Faults
from lumisite.site.entries import FileSystem
from lumisite.site.model import Site
from lumisite.site.scalars import TASK


def place_faults(site: Site) -> Faults:
    """Only node-local file systems have private caches, and settings that name a directory have a place for it."""
    for index, one in enumerate(site.file_systems):
        yield from ((f"file_systems[{index}].{key}", message) for key, message in _of_file_system(one))
    local = [one.path for one in site.file_systems if one.kind == "node-local"]
    right = f"`writable` or `job_folder` of {' or '.join(local) or 'a node-local one'} would be right"
    for index, setting in enumerate(() if site.private_places else site.settings):
        if setting.directory is not None and setting.where == TASK:
            what = f"{setting.name} wants a private directory, and no file system says that users can make one in it"
            yield f"settings[{index}].directory", f"{what} ({right})"


def _of_file_system(one: FileSystem) -> Faults:
    if one.kind == "shared":
        for key in ("writable", "job_folder", "in_memory", "cache_mib"):
            if getattr(one, key):
                yield key, f"{one.path} is shared by all nodes (kind: node-local would be right)"
        return
    if one.cache_mib is not None and not one.writable:
        yield "cache_mib", f"no private caches stay in {one.path} (`writable: yes` would be right)"
    elif one.cache_mib == 0:
        yield "cache_mib", "0 MiB hold no cache (1024 would be right)"
    folder = one.job_folder or ""
    if folder.startswith("/") and not folder.startswith(f"{one.path.rstrip('/')}/"):
        yield "job_folder", f"{folder} is not below {one.path}"
