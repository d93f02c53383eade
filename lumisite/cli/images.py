"""`images`: the images of a site, and the lock of them."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from itertools import chain
from pathlib import Path

import click

from lumisite.cli.commands import Command
from lumisite.cli.options import FILE_NAME, host_root_option, json_option, require_directory, site_option
from lumisite.cli.output import print_note, print_result, progress, write_whole
from lumisite.cli.site_choice import required_site
from lumisite.errors import LumisiteError, ResolveError
from lumisite.findings.writers import line, message
from lumisite.images.inventory import NamedImage, Reading, read_inventory, usual_folders
from lumisite.images.lock import Lock, format_lock, missing_lock, parse_lock, read_optional
from lumisite.images.lock_changes import LockChange, compare_images
from lumisite.images.versions import version_lines
from lumisite.site.load import LoadedSite, load_site
from lumisite.site.model import Site
from lumisite.text import counted, printable


@click.command(cls=Command)
@click.argument(
    "paths",
    metavar="[DIR|FILE]...",
    nargs=-1,
    type=FILE_NAME,
    help="Images, or directories of them (default: the site's).",
)
@site_option()
@host_root_option
@click.option("--lock", metavar="FILE", type=FILE_NAME, help="Write a lock; with --check, compare with it.")
@click.option("--check", is_flag=True, help="Print what moved, changed, broke, vanished or is new.")
@json_option
def command(
    paths: tuple[str, ...],
    site: str,
    host_root: str,
    lock: str | None,
    check: bool,
    as_json: bool,
) -> int:
    """Print the images of the site, or those given: where each name leads, family, size, digest, versions inside.

    Images are read, never run. Exit 1 when an image cannot be used; with --check, when one differs from the lock.
    """
    if check and not lock:
        raise ResolveError("--check: needs --lock FILE, a lock that `lumisite images --lock FILE` wrote")
    require_directory(host_root)
    loaded = load_site(required_site(site))
    requested = tuple(map(os.path.abspath, paths))
    with progress("images") as report:
        reading = Reading(loaded.site, host_root, report)
        if check and lock:
            return _check(lock, loaded, reading, requested, as_json=as_json)
        return _list(lock, reading, requested, as_json=as_json)


def _list(file: str | None, reading: Reading, requested: tuple[str, ...], *, as_json: bool) -> int:
    site = reading.site.name
    # Before the images are read, which may take minutes: no other file is lost.
    if file is not None and (content := read_optional(Path(file))) is not None:
        try:
            parse_lock(content, file, site)
        except LumisiteError as error:
            raise LumisiteError(f"{error}; it is not replaced") from None
    images = _read(reading, requested)
    lines = chain.from_iterable(_lines(reading.site, image) for image in images)
    print_result(list(map(_as_json, images)), lines, as_json=as_json)
    broken = sum(image.fault is not None for image in images)
    print_note(f"{counted(len(images), 'image')}, {f'{broken} cannot be used' if broken else 'all can be read'}")
    if file is not None:
        lock = Lock(site, tuple(sorted(requested)), {image.path: image.locked for image in images})
        written = write_whole(Path(file), format_lock(lock).encode())
        print_note(f"{file}: {'written' if written else 'is the same already'}")
    return 1 if broken else 0


def _check(file: str, loaded: LoadedSite, reading: Reading, requested: tuple[str, ...], *, as_json: bool) -> int:
    content = read_optional(Path(file))
    if content is None:
        raise ResolveError(missing_lock(file))
    lock = parse_lock(content, file, loaded.site.name)
    images = _read(reading, requested or lock.given)
    changes = compare_images(lock, images, loaded.site, requested)
    print_result(list(map(asdict, changes)), chain.from_iterable(map(_change_lines, changes)), as_json=as_json)
    print_note(f"{counted(len(images), 'image')}, {f'{len(changes)} differ from' if changes else 'all as in'} {file}")
    return 1 if changes else 0


def _read(reading: Reading, requested: Sequence[str]) -> tuple[NamedImage, ...]:
    if requested:
        return read_inventory(reading, usual_folders(requested, reading.tree))
    site = reading.site
    folders = site.images.folders if site.images is not None else ()
    if not folders:
        raise ResolveError(f"images: site {site.name} names no directory of images (add images.folders, or give some)")
    return read_inventory(reading, [(folder.path, folder.patterns) for folder in folders])


def _lines(site: Site, image: NamedImage) -> Iterator[str]:
    locked = image.locked
    yield printable(image.path)
    yield from (f"    -> {printable(link)}" for link in locked.links)
    if image.fault is not None:
        yield f"    cannot be used: {line(image.fault)}"
        return
    size = f"; {locked.size / 1e6:,.0f} MB" if locked.size is not None else ""
    digest = f"; {locked.digest[: locked.digest.index(':') + 13]}" if locked.digest is not None else ""
    why = "" if image.why is None else message(image.why)
    yield f"    {why}{size}{digest}"
    yield f"    {', '.join(version_lines(site, image.versions)) or 'no version found in it'}"
    yield from (f"    {line(note)}" for note in image.notes)


def _as_json(image: NamedImage) -> dict[str, object]:
    return asdict(image.locked) | {
        "path": image.path,
        "why": "" if image.why is None else message(image.why),
        "versions": {name: asdict(version) for name, version in image.versions.items()},
        "notes": list(map(line, image.notes)),
        "fault": "" if image.fault is None else line(image.fault),
    }


def _change_lines(change: LockChange) -> Iterator[str]:
    yield f"{change.kind:8}  {printable(change.path)}"
    yield from (f"    {printable(what)}" for what in change.what)
