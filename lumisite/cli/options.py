"""Arguments and options that several commands have."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem

from lumisite.errors import ResolveError

if TYPE_CHECKING:
    from lumisite.images.lock import LoadedLock
    from lumisite.site.load import LoadedSite

Decorator = Callable[[Any], Any]


class PathType(click.ParamType["Path | str"]):
    """A path as it was typed, which a shell completes: what opens it reports what is wrong with it."""

    name = "path"

    def __init__(self, kind: type[Path] | type[str]) -> None:
        self._kind = kind

    def convert(self, value: Any, *_: Any) -> Path | str:
        """Return the path."""
        return self._kind(value)

    def shell_complete(self, _: click.Context, __: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """Leave the completion to the shell."""
        return [CompletionItem(incomplete, type="file")]


#: A path, and a name that may be a path: of an image, or `-` for standard input.
PATH, FILE_NAME = PathType(Path), PathType(str)
COUNT = click.IntRange(1, 10_000)


def together(*decorators: Decorator) -> Decorator:
    """Return one decorator that adds options in the order given."""

    def decorate(function: Any) -> Any:
        for decorator in reversed(decorators):
            function = decorator(function)
        return function

    return decorate


def one_of(**values: object) -> None:
    """Refuse two options of which only one may be given; raises `ResolveError`."""
    given = [f"--{name.replace('_', '-')}" for name, value in values.items() if value]
    if len(given) > 1:
        raise ResolveError(f"{given[1]}: not with {given[0]} (give one of them)")


json_option = click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
out_option = click.option("-o", "--out", metavar="FILE", type=PATH, help="Write to FILE (default: standard output).")
image_change_option = click.option(
    "--allow-image-change", is_flag=True, help="Compare samples of different images: the image is what is tested."
)


def site_option(default: str = "LUMISITE_SITE, the module that is loaded, or a configuration file") -> Decorator:
    """Add `--site`."""
    text = f"The site: the name of an embedded one, or a YAML file (default: {default})."
    return click.option("--site", metavar="NAME|FILE", default="", help=text)


site_or_example_option = site_option(
    "LUMISITE_SITE, the module that is loaded, or a configuration file; else lumi as an example"
)
host_root_option = click.option(
    "--host-root", metavar="DIR", default="/", help="The host's root, or a copy (default: /)."
)
root_argument = click.argument("root", metavar="ROOT", type=PATH, help="The deployment root.")
platform_option = click.option(
    "--platform",
    metavar="P",
    help="The system release: a platform of the site description (default: its current one).",
)


def _release_options(text: str, *, multiple: bool) -> Decorator:
    short = [
        click.option(f"--{stack}", metavar="V", multiple=multiple, help=f"The same as --use {stack}=V.")
        for stack in ("rocm", "cpe")
    ]
    return together(click.option("--use", metavar="STACK=V", multiple=True, help=text), platform_option, *short)


#: The platform and releases, of which there may be several.
selection_options = _release_options(
    "A release of a stack of the site; 12.8 means its newest 12.8.x. May be given several times; `all` means every "
    "release that is supported, or the newest of each series that the platform's driver supports (default: the "
    "platform's own).",
    multiple=True,
)
#: The platform and one release of a stack.
one_release_options = _release_options("A release of a stack (default: the platform's own).", multiple=False)
lock_option = click.option(
    "--lock",
    metavar="FILE",
    type=PATH,
    help="A lock of the site's images (`lumisite images --lock`): what it knows of an image counts more than the "
    "image's name (default: the one that the site names).",
)
plan_option = click.option(
    "--plan",
    "plan_files",
    metavar="FILE",
    type=PATH,
    multiple=True,
    help="A reviewed plan of an image, beside those that the site names; may be given several times.",
)


def requested_releases(use: Sequence[str], **short: str | Sequence[str] | None) -> dict[str, list[str]]:
    """Return the releases that options name, by stack, of which some have an option; raises `ResolveError`."""
    releases = {
        stack: [versions] if isinstance(versions, str) else list(versions)
        for stack, versions in short.items()
        if versions
    }
    for text in use:
        stack, sign, version = text.partition("=")
        if not sign or not stack:
            raise ResolveError(f"--use: {text!r} is no stack with its release (NAME=12.8 would be right)")
        releases.setdefault(stack, []).append(version)
    return releases


def real_path(name: str | Path) -> Path:
    """Return a path without links. Links in a circle stay, for what opens the path to report."""
    return Path(os.path.realpath(name))


def require_directory(root: str, name: str = "--host-root") -> None:
    """Refuse the root of a host that is no directory; raises `ResolveError`."""
    if not Path(root).is_dir():
        raise ResolveError(f"{name}: {root!r} is no directory (the root of a host, or of a copy of one)")


def load_lock(loaded: LoadedSite, file: Path | None) -> LoadedLock | None:
    """Load the lock that an option or the site names; without one, no reader of images is imported."""
    images = loaded.site.images
    if file is None and (images is None or images.lock is None):
        return None
    from lumisite.images import lock

    return lock.load_lock(loaded, file)
