"""Arguments and options that several commands have."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from lumisite.cli.output import QUIET
from lumisite.errors import ResolveError

if TYPE_CHECKING:
    from lumisite.images.lock import LoadedLock
    from lumisite.site.load import LoadedSite

Decorator = Callable[[Any], Any]

#: A path, and a name that may be a path: of an image, or `-` for standard input. What opens it reports what is wrong.
PATH = click.Path(readable=False, path_type=Path)
FILE_NAME = click.Path(readable=False, allow_dash=True)
COUNT = click.IntRange(1, 10_000)
#: What the help of `--site` has as the default, beside an option of this name.
CHOSEN = "LUMISITE_SITE, the loaded module, or /etc/lumisite.yaml"
OR_EXAMPLE = f"{CHOSEN}; else lumi as an example"
OR_NONE = f"{CHOSEN}; else none"

json_option = click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
out_option = click.option("-o", "--out", metavar="FILE", type=PATH, help="Write to FILE (default: standard output).")
image_change_option = click.option(
    "--allow-image-change", is_flag=True, help="Compare samples of different images: the image is what is tested."
)
host_root_option = click.option(
    "--host-root", metavar="DIR", default="/", help="The host's root, or a copy (default: /)."
)
root_argument = click.argument("root", metavar="ROOT", type=PATH, help="The deployment root.")
platform_option = click.option("--platform", metavar="P", help="A platform of the site (default: its current one).")


def site_option(default: str = CHOSEN) -> Decorator:
    """Add `--site`."""
    text = f"The site: the name of an embedded one, or a YAML file (default: {default})."
    return click.option("--site", metavar="NAME|FILE", default="", help=text)


def quiet_option() -> click.Option:
    """Return `--quiet`, which is accepted before the command and after it."""

    def set_quiet(context: click.Context, _: click.Parameter, given: bool) -> None:
        if given:
            context.meta[QUIET] = True

    text = "Print no notes and no progress, only errors."
    return click.Option(["-q", "--quiet"], is_flag=True, expose_value=False, callback=set_quiet, help=text)


def one_of(**values: object) -> None:
    """Refuse two options of which only one may be given; raises `ResolveError`."""
    given = [f"--{name.replace('_', '-')}" for name, value in values.items() if value]
    if len(given) > 1:
        raise ResolveError(f"{given[1]}: not with {given[0]} (give one of them)")


def selection_options(function: Any) -> Any:
    """Add the options for the platform and the releases, of which there may be several."""
    use = "A release of a stack: 12.8 is its newest 12.8.x, `all` every supported one; several times."
    options = [
        click.option("--use", metavar="STACK=V", multiple=True, help=use),
        *(
            click.option(f"--{stack}", metavar="V", multiple=True, help=f"The same as --use {stack}=V.")
            for stack in ("rocm", "cpe")
        ),
        platform_option,
    ]
    for option in reversed(options):
        function = option(function)
    return function


def requested_releases(use: Sequence[str], **short: Sequence[str]) -> dict[str, list[str]]:
    """Return the releases that options name, by stack, of which some have an option; raises `ResolveError`."""
    releases = {stack: list(versions) for stack, versions in short.items() if versions}
    for text in use:
        stack, sign, version = text.partition("=")
        if not sign or not stack:
            raise ResolveError(f"--use: {text!r} is no stack with its release (NAME=12.8 would be right)")
        releases.setdefault(stack, []).append(version)
    return releases


def require_directory(root: str, option: str = "--host-root") -> None:
    """Refuse the root of a host that is no directory; raises `ResolveError`."""
    if not Path(root).is_dir():
        raise ResolveError(f"{option}: {root!r} is no directory (the root of a host, or of a copy of one)")


def load_lock(loaded: LoadedSite) -> LoadedLock | None:
    """Load the lock that the site names; without one, no reader of images is imported."""
    if loaded.site.images is None or loaded.site.images.lock is None:
        return None
    from lumisite.images import lock

    return lock.load_lock(loaded)
