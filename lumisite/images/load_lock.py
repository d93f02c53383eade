"""The edge that reads the lock of a site's images."""

from __future__ import annotations

from pathlib import Path

from lumisite.errors import ToolError, refused
from lumisite.images.lock import LARGEST_LOCK_BYTES, LoadedLock, parse_lock
from lumisite.site.load import LoadedSite


def _own_lock(loaded: LoadedSite) -> Path | None:
    """Give the place of the lock that a site names, beside its own file."""
    images = loaded.site.images
    return None if images is None or images.lock is None else loaded.directory / images.lock


def load_lock(loaded: LoadedSite, asked: Path | None) -> LoadedLock | None:
    """Read the lock that is asked for, else the site's own; errors name the file.

    Raises `ToolError`, or `LumisiteError` for a lock that is damaged or of another site.
    """
    path = asked or _own_lock(loaded)
    if path is None:
        return None
    content = read_lock_file(path)
    if content is None:
        raise ToolError(f"cannot read {path}: it is not there (`lumisite images --lock {path}` writes it)")
    return LoadedLock(parse_lock(content, str(path), loaded.site.name), path.name, content)


def read_lock_file(path: Path) -> bytes | None:
    """Give what a lock's file holds, `None` where there is none."""
    try:
        if path.exists() and not path.is_file():
            raise ToolError(f"cannot read {path}: it is not a file")
        if path.stat().st_size > LARGEST_LOCK_BYTES:
            raise ToolError(f"cannot read {path}: it has {path.stat().st_size} bytes (at most {LARGEST_LOCK_BYTES})")
        return path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise refused("read", error) from None
    except ValueError as error:  # a NUL in the name
        raise ToolError(f"cannot read {str(path)!r}: {error}") from None
