"""Commands about the images of a site: `images`."""

from __future__ import annotations

import argparse
import os
import posixpath
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from lumisite.cli.parser import add_host_option, add_json_option, add_site_option, check_host_root, say, write_whole

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from lumisite.cli.parser import Commands
    from lumisite.facts.drift import Change
    from lumisite.images.digest import Kind
    from lumisite.images.inventory import Image, Reading
    from lumisite.images.lock import Lock
    from lumisite.site.model import Site
    from lumisite.site.plans import LoadedPlan


def add_commands(commands: Commands) -> None:
    """Add `images`."""
    images = commands.add_parser(
        "images",
        help="where each image alias points, what it carries, and what moved",
        description="Print the images of the site, or those given: where each name leads, family, size, digest, and "
        "the versions inside. Images are read, never run. Exit 1 when an image cannot be used; with --check, when one "
        "differs from the lock.",
    )
    images.add_argument(
        "paths", nargs="*", metavar="DIR|FILE", help="images, or directories of them (default: those of the site)"
    )
    add_site_option(images)
    add_host_option(images)
    images.add_argument("--lock", metavar="FILE", help="write what is found to a lock; with --check, compare with it")
    images.add_argument(
        "--check", action="store_true", help="say what moved, changed, broke, vanished, is new, or has a stale plan"
    )
    images.add_argument(
        "--digest",
        choices=("header", "whole"),
        help="what to take of a file: `header` sees every new build and reads little, `whole` reads everything "
        "(default: header; with --check, as the lock)",
    )
    images.add_argument(
        "--systems", metavar="FILE", help="write cotainr's systems.json with the file behind each base image, only"
    )
    add_json_option(images)
    images.set_defaults(call=run_images)


def run_images(arguments: argparse.Namespace) -> int:
    """List, lock, check, or write cotainr's systems."""
    from lumisite.errors import ResolveError
    from lumisite.images.inventory import Reading
    from lumisite.site.load import load_plans, load_site

    if arguments.check and not arguments.lock:
        raise ResolveError("--check: needs --lock FILE, a lock that `lumisite images --lock FILE` wrote")
    if arguments.systems and (arguments.paths or arguments.lock or arguments.json or arguments.digest):
        raise ResolveError("--systems: goes with --site and --host-root only; it reads the base images of the site")
    check_host_root(arguments.host_root)
    loaded = load_site(arguments.site)
    site = loaded.site
    progress = _progress if sys.stderr.isatty() else None
    reading = Reading(
        site, site.platforms[site.platform].rocm, arguments.digest or "header", arguments.host_root, progress
    )
    given = tuple(map(_absolute, arguments.paths))
    if arguments.systems:
        return _systems(reading, arguments.systems)
    if arguments.check:
        plans = load_plans(loaded)
        return _check(reading, given, arguments.lock, arguments.digest, plans, as_json=arguments.json)
    return _list(reading, given, arguments.lock, as_json=arguments.json)


def _list(reading: Reading, given: Sequence[str], file: str | None, *, as_json: bool) -> int:
    from dataclasses import asdict

    from lumisite.images.lock import format_lock, lock_of

    if file is not None:
        _read_lock(file, reading.site, to_replace=True)  # before the images are read, which may take an hour
    images = _read(reading, given)
    if as_json:
        _print_json([asdict(image) for image in images])
    else:
        _print(line for image in images for line in _lines(image))
    broken = sum(bool(image.fault) for image in images)
    say(f"{_count(len(images))}, {f'{broken} cannot be used' if broken else 'all can be read'}")
    if file is not None:
        _write(file, format_lock(lock_of(reading.site.name, reading.digest, given, images)))
    return 1 if broken else 0


def _check(
    reading: Reading,
    given: Sequence[str],
    file: str,
    kind: Kind | None,
    plans: Sequence[LoadedPlan],
    *,
    as_json: bool,
) -> int:
    from dataclasses import asdict, replace

    from lumisite.errors import ResolveError
    from lumisite.facts.drift import compare_images

    lock = _read_lock(file, reading.site)
    if lock is None:
        raise ResolveError(f"--lock: {file} is not there (`lumisite images --lock {file}` writes it)")
    if kind not in (None, lock.digest):
        raise ResolveError(f"--digest: {file} has digests of kind {lock.digest}, which {kind} cannot be compared with")
    images = _read(replace(reading, digest=lock.digest), given or lock.given)
    patterns = {one.file: one.plan.paths for one in plans}
    changes = compare_images(lock, images, reading.site, given, patterns, _stale(reading, images, plans))
    if as_json:
        _print_json([asdict(change) for change in changes])
    else:
        _print(line for change in changes for line in _change_lines(change))
    verdict = f"{len(changes)} differ from {file}" if changes else f"all as in {file}"
    say(f"{_count(len(images))}, {verdict}")
    return 1 if changes else 0


def _stale(reading: Reading, images: Sequence[Image], plans: Sequence[LoadedPlan]) -> dict[str, tuple[str, ...]]:
    """Give the plans of each image that were made for another file; a lock of whole digests has none to compare."""
    from lumisite.images.digest import digest_of
    from lumisite.machine.host import open_file
    from lumisite.render.plan_images import plan_summaries, stale_plans

    found = {}
    known = plan_summaries(plans)
    for image in images if known else ():
        digest = image.digest
        if digest is None or image.target is None:
            continue
        if not digest.startswith("header:"):
            digest = digest_of(open_file(reading.on_disk(image.target)), "header")
        if stale := stale_plans(known, (image.path, image.target), digest):
            found[image.path] = stale
    return found


def _systems(reading: Reading, file: str) -> int:
    from lumisite.errors import ResolveError
    from lumisite.images.cotainr import base_images, pin_systems
    from lumisite.images.inventory import Wanted, read_inventory
    from lumisite.images.load_lock import read_lock_file

    site = reading.site
    if site.images is None or not site.images.cotainr:
        raise ResolveError(f"--systems: site {site.name} names no system of cotainr (add images.cotainr to it)")
    images = read_inventory(reading, [Wanted(path) for path in base_images(site)])
    pinned = pin_systems(site, images, read_lock_file(Path(file)), file)
    for note in pinned.notes:
        say(note)
    _write(file, pinned.text)
    return 0


def _read(reading: Reading, given: Sequence[str]) -> tuple[Image, ...]:
    from lumisite.errors import ResolveError
    from lumisite.images.inventory import read_inventory, site_images, wanted_of

    site = reading.site
    wanted = wanted_of(given, reading.tree) if given else site_images(site)
    if not wanted:
        raise ResolveError(f"images: site {site.name} names no directory of images (add images.folders, or give some)")
    return read_inventory(reading, wanted)


def _progress(path: str, size: int, done: int) -> None:
    end = "\n" if done >= size else "\r"
    print(f"{posixpath.basename(path)}: {done / 1e9:.1f} of {size / 1e9:.1f} GB", end=end, file=sys.stderr, flush=True)


def _read_lock(file: str, site: Site, *, to_replace: bool = False) -> Lock | None:
    """Read a lock; one that is replaced must be a lock of this site, so that no other file is lost."""
    from lumisite.errors import LumisiteError
    from lumisite.images.load_lock import read_lock_file
    from lumisite.images.lock import parse_lock

    content = read_lock_file(Path(file))
    try:
        return None if content is None else parse_lock(content, file, site.name)
    except LumisiteError as error:
        if to_replace:
            raise LumisiteError(f"{error}; it is not replaced") from None
        raise


def _write(file: str, text: str) -> None:
    written = write_whole(Path(file), text.encode())
    say(f"{file}: {'written' if written else 'is the same already'}")


def _absolute(path: str) -> str:
    """Give a path from the root on; `..` is left to the file system, as a link may stand before it."""
    joined = posixpath.join(os.getcwd(), path)  # noqa: PTH109 - a Path would drop what the user typed
    return joined if ".." in joined.split("/") else posixpath.normpath(joined)


def _lines(image: Image) -> Iterator[str]:
    from lumisite.errors import shown
    from lumisite.images.contents import version_lines

    yield shown(image.path)
    yield from (f"    -> {shown(link)}" for link in image.links)
    if image.fault:
        yield f"    cannot be used: {shown(image.fault)}"
        return
    size = f"; {image.size / 1e6:,.0f} MB" if image.size is not None else ""
    digest = f"; {image.digest[: image.digest.index(':') + 13]}" if image.digest is not None else ""
    yield f"    {image.family} ({image.why}){size}{digest}"
    yield f"    {', '.join(version_lines(image.versions)) or 'no version found in it'}"
    yield from (f"    {note}" for note in image.notes)


def _change_lines(change: Change) -> Iterator[str]:
    from lumisite.errors import shown

    yield f"{change.kind:8}  {shown(change.path)}"
    yield from (f"    {shown(line)}" for line in change.what)
    touched = [
        f"{name} {', '.join(values)}"
        for name, values in (
            ("family", change.families),
            ("modules", change.modules),
            ("plans", change.plans),
            ("used by", change.used_by),
        )
        if values
    ]
    if touched:
        yield f"    touches {'; '.join(touched)}"


def _count(number: int) -> str:
    return f"{number} image{'' if number == 1 else 's'}"


def _print(lines: Iterator[str]) -> None:
    for line in lines:
        print(line)


def _print_json(document: object) -> None:
    import json

    print(json.dumps(document, indent=2))
