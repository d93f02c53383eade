"""The twin by hand: python -m tests.twin up | run | shell | down | status | lumi-g."""

from __future__ import annotations

import argparse
import os
import shlex
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from lumisite.errors import LumisiteError, ResolveError
from tests.twin import cluster as twin
from tests.twin.cache import say
from tests.twin.cluster import LOGIN, Cluster, ClusterPlan
from tests.twin.host_tree import PLATFORMS
from tests.twin.login_node import install_command
from tests.twin.roots import DEFAULT_GENERATION, RECIPES, USER


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; 0 fine, 2 usage, 3 the machine refused, else the exit code of the command inside."""
    arguments = _parser().parse_args(argv)
    try:
        code: int = arguments.call(arguments)
    except LumisiteError as error:
        print(f"twin: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        say("interrupted")
        return 130
    return code


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.twin", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)

    up = commands.add_parser("up", help="start a cluster with lumisite on it; prints its id")
    up.add_argument("--generation", choices=tuple(RECIPES), default=DEFAULT_GENERATION)
    up.add_argument("--nodes", type=int, default=2, help="compute nodes, 1 to 8 (default: 2)")
    up.add_argument("--site", type=Path, metavar="TREE", help="a rendered tree for /appl/lumisite")
    up.add_argument("--platform", choices=tuple(PLATFORMS), default=tuple(PLATFORMS)[-1], help="host libraries")
    up.set_defaults(call=_up)

    run = commands.add_parser("run", help="run a command in a cluster; its exit code is the result")
    _add_place(run)
    run.add_argument("words", nargs="+", metavar="CMD")
    run.set_defaults(call=_run)

    shell = commands.add_parser("shell", help="open a login shell in a cluster")
    _add_place(shell)
    shell.set_defaults(call=_shell)

    down = commands.add_parser("down", help="end what was started by hand from this checkout; clear up after the dead")
    down.add_argument("--id", help="only this cluster")
    down.set_defaults(call=_down)

    status = commands.add_parser("status", help="list the clusters of this machine")
    status.set_defaults(call=_status)

    lumi_g = commands.add_parser("lumi-g", help="run a command on the virtual LUMI-G node, under its own Slurm")
    lumi_g.add_argument("--threads", type=int, choices=(1, 2), default=1, help="per core (default: 1)")
    lumi_g.add_argument("--out", type=Path, metavar="DIR", help="where the files go that it leaves in /tmp/out")
    lumi_g.add_argument("words", nargs="+", metavar="CMD")
    lumi_g.set_defaults(call=_lumi_g)
    return parser


def _add_place(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--id", help="the cluster (default: the youngest that was started by hand from this checkout)")
    parser.add_argument("--node", default=LOGIN, help=f"where (default: the login node, {LOGIN})")
    parser.add_argument("--root", action="store_true", help=f"as root, not as {USER}")


def _up(arguments: argparse.Namespace) -> int:
    began = time.monotonic()
    plan = ClusterPlan(arguments.generation, arguments.nodes, site_tree=arguments.site, platform=arguments.platform)
    cluster = twin.up(plan)
    install_command(cluster)
    say(f"up in {time.monotonic() - began:.1f} s: {LOGIN} and {', '.join(cluster.nodes)}")
    print(cluster.id)
    return 0


def _run(arguments: argparse.Namespace) -> int:
    words = arguments.words
    command = words[0] if len(words) == 1 else words
    return _replace_by(_chosen(arguments.id).command(command, node=arguments.node, user=_user(arguments)))


def _shell(arguments: argparse.Namespace) -> int:
    cluster = _chosen(arguments.id)
    return _replace_by(cluster.command("exec bash -li", node=arguments.node, user=_user(arguments)))


def _down(arguments: argparse.Namespace) -> int:
    if arguments.id is None:
        by_hand = [cluster for cluster in twin.clusters() if not cluster.tied]
        chosen = list(filter(_is_ours, by_hand))
        for cluster in by_hand:
            if cluster not in chosen:
                say(f"{cluster.id} was started from {cluster.checkout} and stays (down --id {cluster.id} ends it)")
    else:
        chosen = [_chosen(arguments.id)]
    for cluster in chosen:
        twin.down(cluster)
        say(f"{cluster.id} is down")
    twin.sweep()
    return 0


def _status(_: argparse.Namespace) -> int:
    for cluster in twin.clusters():
        state = "running" if twin.is_running(cluster) else "dead"
        owner = "a program's" if cluster.tied else "by hand"
        print(f"{cluster.id}  {state}  {owner}  {cluster.generation}  {LOGIN} {' '.join(cluster.nodes)}")
    return 0


def _lumi_g(arguments: argparse.Namespace) -> int:
    from tests.twin.lumi_g import lumi_g_all

    words = arguments.words
    done = lumi_g_all([words[0] if len(words) == 1 else shlex.join(words)], threads=arguments.threads)
    for name, data in done.files.items() if arguments.out is not None else ():
        path = arguments.out / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    result = done.results[0]
    sys.stdout.write(result.stdout)
    sys.stderr.write(result.stderr)
    return result.code


def _chosen(identity: str | None) -> Cluster:
    known = twin.clusters()
    if identity is not None:
        for cluster in known:
            if cluster.id == identity:
                return cluster
        have = ", ".join(cluster.id for cluster in known) or "none"
        raise ResolveError(f"cluster {identity!r} does not exist (have {have})")
    running = [c for c in known if twin.is_running(c) and not c.tied and _is_ours(c)]
    if not running:
        raise ResolveError("no cluster runs: start one with `make twin`")
    return running[-1]


def _is_ours(cluster: Cluster) -> bool:
    return cluster.checkout == str(twin.CHECKOUT)


def _user(arguments: argparse.Namespace) -> str:
    return "root" if arguments.root else USER


def _replace_by(argv: Sequence[str]) -> int:
    sys.stdout.flush()
    os.execvp(argv[0], list(argv))


if __name__ == "__main__":
    sys.exit(main())
