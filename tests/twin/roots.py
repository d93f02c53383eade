"""Root file systems of the nodes: one for each Slurm generation, from Debian's own packages.

bookworm has Slurm 22.05 and Lmod 8.6, trixie 24.11 and 8.7, sid 26.05 and 8.7 (observed in November 2026).
Apptainer exists in sid only; its package is installed into all three.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from lumisite.errors import ResolveError
from tests.twin.cache import build_tool, cached, remove_tree
from tests.twin.packages import open_archive
from tests.twin.process import run_or_refuse

RECIPE_VERSION = 1
"""Counts the changes of the steps below, which the key of a root cannot see."""

USER = "lumiuser"
USER_ID = 2000
"""The ordinary user of every root, with a primary group of the same number."""
HOME = f"/users/{USER}"
"""Its home is on a shared file system, as on LUMI."""

NODE_PACKAGES = (
    "ca-certificates",
    "containernetworking-plugins",
    "fuse3",
    "hwloc-nox",
    "iproute2",
    "libseccomp2",
    "libsqlite3-0",
    "lmod",
    "lua5.4",
    "munge",
    "numactl",
    "procps",
    "python3",
    "slurm-client",
    "slurm-wlm-basic-plugins",
    "slurmctld",
    "slurmd",
    "squashfs-tools",
    "squashfuse",
    "uidmap",
    "util-linux",
)

# Documentation is a fifth of a root and nobody reads it there.
LEFT_OUT = ("/usr/share/doc/*", "/usr/share/man/*", "/usr/share/locale/*", "/usr/share/info/*")


@dataclass(frozen=True)
class RootRecipe:
    """What goes into the node root of one generation."""

    suite: str
    packages: tuple[str, ...]
    newer_libc_from: str | None = None
    """Suite of libc6, where the generation's own is older than what Apptainer's package wants."""


RECIPES: Mapping[str, RootRecipe] = {
    "bookworm": RootRecipe("bookworm", NODE_PACKAGES, newer_libc_from="trixie"),
    "trixie": RootRecipe("trixie", NODE_PACKAGES),
    "sid": RootRecipe("sid", NODE_PACKAGES),
}

DEFAULT_GENERATION = "trixie"


def node_root(generation: str = DEFAULT_GENERATION) -> Path:
    """Give the root directory of a generation, built if need be (half a minute, needs root and the network).

    Nobody writes into it: nodes lay an overlay over it. Raises `ResolveError` for a generation that does not
    exist and `ToolError` if the build fails.
    """
    recipe = RECIPES.get(generation)
    if recipe is None:
        raise ResolveError(f"generation {generation!r} does not exist (have {', '.join(RECIPES)})")
    inputs = {
        "version": RECIPE_VERSION,
        "user": [USER, USER_ID, HOME],
        "left_out": LEFT_OUT,
        **asdict(recipe),
    }
    return cached(f"root-{generation}", inputs, lambda partial: _build(recipe, partial)) / "root"


def bootstrap(suite: str, packages: tuple[str, ...], root: Path, options: tuple[str, ...] = ()) -> None:
    """Unpack a minimal Debian `suite` with `packages` and what they depend on into `root`."""
    left_out = [f"--dpkgopt=path-exclude={pattern}" for pattern in LEFT_OUT]
    build_tool(
        [
            "mmdebstrap",
            "--mode=root",
            "--variant=minbase",
            # sid's index has been seen past its date.
            '--aptopt=Acquire::Check-Valid-Until "false"',
            f"--include={','.join(packages)}",
            *left_out,
            *options,
            suite,
            str(root),
        ]
    )


def _build(recipe: RootRecipe, partial: Path) -> None:
    root = partial / "root"
    packages, options = recipe.packages, tuple[str, ...]()
    if recipe.newer_libc_from is not None:
        packages += tuple(f"{name}/{recipe.newer_libc_from}" for name in ("libc6", "libc-bin", "base-files"))
        options = _second_suite(recipe.suite, recipe.newer_libc_from)
    bootstrap(recipe.suite, packages, root, options)
    archive = open_archive("sid", root, partial / "apt")
    package = archive.download("apptainer")
    package.rename(root / "apptainer.deb")
    build_tool(["chroot", str(root), "dpkg", "--install", "/apptainer.deb"])
    (root / "apptainer.deb").unlink()
    remove_tree(partial / "apt")
    _add_user(root)


def _second_suite(suite: str, newer: str) -> tuple[str, ...]:
    """Let single packages, asked for by name, come from a newer suite."""
    pin = rf"Package: *\nPin: release n={newer}\nPin-Priority: 100\n"
    copy = f"sed -n 's/ {suite} / {newer} /p' sources.list >sources.list.d/newer.list"
    hooks = (copy, f'printf "{pin}" >preferences.d/newer')
    return tuple(f'--setup-hook=cd "$1"/etc/apt && {hook}' for hook in hooks)


def _add_user(root: Path) -> None:
    chroot = ["chroot", str(root)]
    run_or_refuse([*chroot, "groupadd", "--gid", str(USER_ID), USER])
    who = ["--uid", str(USER_ID), "--gid", str(USER_ID), "--home-dir", HOME, "--shell", "/bin/bash"]
    run_or_refuse([*chroot, "useradd", *who, USER])
