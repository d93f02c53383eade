"""Arguments that several commands have."""

from __future__ import annotations

from pathlib import Path

from lumisite.cli.parser import About, Arguments, number_to

COUNT = {"type": number_to(10_000, "not a")}
PATH = {"type": Path}
#: What chooses releases.
SELECTION: Arguments = {
    "--use STACK=V...": "release of a stack of the site; 12.8 means its newest 12.8.x. May be given several times; "
    "`all` means every release that is supported, or the newest of each series that the platform's driver supports "
    "(default: the platform's own)",
    "--rocm V...": "the same as --use rocm=V",
    "--platform P": "what the machine was after which maintenance (default: the current one)",
    "--cpe V...": "the same as --use cpe=V",
}
#: Short forms where one release of a stack is meant: a list too, as where there may be several.
ONE_RELEASE: Arguments = {
    "--cpe V": About("the same as --use cpe=V", {"nargs": 1, "default": []}),
    "--rocm V": About("the same as --use rocm=V", {"nargs": 1, "default": []}),
}
#: What is known of images.
INPUTS: Arguments = {
    "--plan FILE...": About(
        "a reviewed plan of an image, beside those that the site names; may be given several times",
        PATH,
    ),
    "--lock FILE": About(
        "a lock of the site's images (`lumisite images --lock`): what it knows of an image counts more than the "
        "image's name (default: the one that the site names)",
        PATH,
    ),
}
#: What `validate`, `baseline` and `reframe` have in common.
OTHER_IMAGES: Arguments = {
    "--jax-image FILE": "image with JAX, for the probe jax (default: none)",
    "--wrapper DIR": "environment of the container wrapper, for the probe wrapper (default: none)",
}
JOBS: Arguments = {
    "--nodes N": About("nodes of each job (default: the site's)", COUNT),
    "--node-sets N": About("disjoint sets of nodes (default: 2)", COUNT),
    "--nodelist NODES": "only these nodes, in Slurm's notation",
    "--avoid NODES": "not these nodes, in Slurm's notation",
    "--probe NAME...": "only this one; several times",
    "--partition P": "partition (default: the site's)",
    "--account A": "account for sbatch",
    "--reservation R": "reservation for sbatch; its nodes are used",
    "--sbatch OPTION...": "one more option for sbatch",
    "--limit SECONDS": About("longest time of one step of a probe (default: by back-end)", COUNT),
    "--image FILE": "container image (default: the site's)",
}
EMPTY = {"default": ""}
#: For commands that take an example where no site is named or known.
SITE_OR_EXAMPLE: Arguments = {
    "--site NAME|FILE": About(
        "the site: the name of an embedded one, or a YAML file (default: LUMISITE_SITE, else the embedded one that "
        "this machine is known as, else lumi as an example)",
        EMPTY,
    ),
}
HOST_ROOT = About("the host's root, or a copy (default: /)", {"default": "/"})
#: What other commands have too, each by how it is typed.
SHARED: Arguments = {
    "--site NAME|FILE": About(
        "the site: the name of an embedded one, or a YAML file (default: LUMISITE_SITE, else the embedded one that "
        "this machine is known as)",
        EMPTY,
    ),
    "--host-root DIR": HOST_ROOT,
    "--host-root --root DIR": HOST_ROOT,
    "--platform P": "what the machine is (default: the site's current platform)",
    "out OUT": About("a tree that `lumisite render` wrote", PATH),
    "root ROOT": About("the deployment root", PATH),
    "--details": "show every change and the diff of the files, on a terminal by PAGER",
    "--full": "show the whole diff of every file",
    "--dry-run": "print the jobs' scripts and submit nothing; needs no Slurm",
    "--json": "print the result as JSON",
    "-o --output FILE": "write to FILE (default: standard output)",
    **{name: JOBS[name] for name in ("--nodes N", "--probe NAME...", "--image FILE")},
}
RUN_FOLDER: Arguments = {
    "--site NAME|FILE": SHARED["--site NAME|FILE"],
    "--out RUN": "folder of the run, on a file system that all nodes see",
    "--resume RUN": "go on with a run that was interrupted",
}


def shared(*typed: str) -> Arguments:
    """Give some of them."""
    return {one: SHARED[one] for one in typed}
