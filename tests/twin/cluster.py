"""A cluster in miniature: a login node with the controller, and compute nodes, on this one machine."""

from __future__ import annotations

import json
import os
import secrets
import shlex
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from lumisite.errors import ResolveError, ToolError
from lumisite.images.sif import find_root
from lumisite.machine.host import open_file
from tests.twin import fence, network, slurm_conf
from tests.twin.cache import remove_tree
from tests.twin.fence import Fence, ProcessId
from tests.twin.host_tree import PLATFORMS, host_tree
from tests.twin.image import image
from tests.twin.network import Host
from tests.twin.node import (
    CONTROLLER_MARK,
    Bind,
    NodePlan,
    as_user,
    first_process,
    start_node,
    write_node,
)
from tests.twin.process import Result, run_or_refuse, run_tool
from tests.twin.roots import DEFAULT_GENERATION, USER, USER_ID, node_root

RUN_DIRECTORY = Path("/run/lumisite-twin")
CHECKOUT = Path(__file__).resolve().parents[2]
LOGIN = "uan01"
MOST_NODES = 8

SHARED = ("scratch", "project", "projappl", "flash", "appl", "users")
"""The file systems that every node sees; a folder of the same name under `Cluster.shared` on this machine."""

SITE_TREE = "/appl/lumisite"
IMAGES = "/appl/images"
EXCHANGE = "/var/lib/twin"
"""Where nodes see `Cluster.exchange`, through which this machine hands them files."""


@dataclass(frozen=True)
class ClusterPlan:
    """What a cluster is asked to be."""

    generation: str = DEFAULT_GENERATION
    nodes: int = 2
    management_rate: str = "300mbit"
    """How fast eth0 sends, in the words of tc-tbf(8)."""
    high_speed_rate: str | None = None
    """How fast each of hsn0 to hsn3 sends, if that is to be limited: so low that no CPU has a part in it."""
    site_tree: Path | None = None
    """A rendered tree that is copied to /appl/lumisite."""
    platform: str | None = tuple(PLATFORMS)[-1]
    """Whose host libraries the nodes have under /opt and /usr/lib64, if any."""
    images: tuple[str, ...] = ("small", "torch")
    """Which images are there, as /appl/images/NAME.sif."""
    cpus: int | None = None
    """CPUs that Slurm believes each node to have, if not those of this machine."""
    gpus: int = slurm_conf.GPUS_PER_NODE
    """GPUs that Slurm believes each node to have."""
    slurm_lines: tuple[str, ...] = ()
    """More lines for slurm.conf."""
    task_prolog: str | None = None
    """A script of the site's own that slurm.conf names as TaskProlog."""
    over: tuple[Path, ...] = ()
    """Root folders that lie over that of the generation, the first on top."""
    etc: tuple[tuple[str, str], ...] = ()
    """More files for /etc on every node: name below /etc, content."""


@dataclass(frozen=True)
class Cluster:
    """A cluster that runs. Everything of it lives below `holder`."""

    id: str
    generation: str
    nodes: tuple[str, ...]
    holder: Fence
    tied: bool = False
    """Whether it ends with the process that started it."""
    checkout: str = ""
    """The folder of the sources that started it."""

    @property
    def directory(self) -> Path:
        """The cluster's folder on this machine; `down` removes it."""
        return RUN_DIRECTORY / self.id

    @property
    def shared(self) -> Path:
        """Where this machine sees the shared file systems: shared/scratch is /scratch on all nodes."""
        return self.directory / "shared"

    @property
    def exchange(self) -> Path:
        """A folder that nodes see, read-only, at /var/lib/twin."""
        return self.directory / "exchange"

    def node_folder(self, node: str) -> Path:
        """Give a node's folder on this machine. Raises `ResolveError` for an unknown node."""
        if node not in (LOGIN, *self.nodes):
            raise ResolveError(f"node {node!r} does not exist (have {', '.join((LOGIN, *self.nodes))})")
        return self.directory / "nodes" / node

    def command(
        self,
        command: str | Sequence[str],
        *,
        node: str = LOGIN,
        user: str = USER,
        environment: Mapping[str, str] | None = None,
        prefix: Sequence[str] = (),
    ) -> list[str]:
        """Give the command line that runs `prefix` and `command` in a login shell on a node."""
        if user not in (USER, "root"):
            raise ResolveError(f"user {user!r} does not exist (have {USER}, root)")
        words = [command] if isinstance(command, str) else ['"$@"', "run", *command]
        inside = ["sh", "-c", 'cd && exec "$@"', "sh", *prefix, "bash", "-lc", *words]
        user_id = USER_ID if user == USER else 0
        first = first_process(self.node_folder(node))
        return fence.enter(first, as_user(inside, user, user_id, environment or {}))

    def run(
        self,
        command: str | Sequence[str],
        *,
        node: str = LOGIN,
        user: str = USER,
        environment: Mapping[str, str] | None = None,
        stdin: str = "",
        timeout_s: float = 900,
    ) -> Result:
        """Run a command in a login shell on a node, by default as the ordinary user on the login node.

        A text is a shell command, a sequence is one command's words. Raises `ToolError` if the node does not
        run, or if the command takes longer than `timeout_s`; it is then ended, with what it started.
        """
        limit = ["timeout", "--kill-after=5", f"{timeout_s:g}"]
        argv = self.command(command, node=node, user=user, environment=environment, prefix=limit)
        began = time.monotonic()
        # Something in the background that keeps the output open must not hold up the tests for ever.
        result = run_tool(argv, stdin=stdin, timeout_s=timeout_s + 15)
        # timeout(1) says 124, or 137 where it had to kill.
        if result.code in (124, 137) and time.monotonic() - began >= timeout_s:
            shown = command if isinstance(command, str) else shlex.join(command)
            raise ToolError(f"{node}: {shown}: not done after {timeout_s:g} s")
        return result


def up(plan: ClusterPlan = ClusterPlan(), *, tied: bool = False) -> Cluster:
    """Start a cluster and wait until its nodes are idle; on any failure nothing of it stays.

    A `tied` cluster also ends when the calling process ends, however that happens. Raises `ResolveError`
    for a plan that cannot be met and `ToolError` if something does not start.
    """
    if not 1 <= plan.nodes <= MOST_NODES:
        raise ResolveError(f"{plan.nodes} nodes: should be 1 to {MOST_NODES}")
    if os.geteuid() != 0:
        raise ToolError("the twin needs root: it makes name spaces and mounts")
    host = (host_tree(plan.platform),) if plan.platform is not None else ()
    roots = (*plan.over, *host, node_root(plan.generation))
    images = {f"{name}.sif": image(name) for name in plan.images}
    identity = f"t{secrets.token_hex(3)}"
    sweep()
    with fence.raised(identity, tied) as (holder, release):
        nodes = tuple(f"nid{number:06}" for number in range(1, plan.nodes + 1))
        cluster = Cluster(identity, plan.generation, nodes, holder, tied, str(CHECKOUT))
        try:
            _make_directory(cluster)
            cluster = replace(cluster, holder=release())
            _save(cluster)
            _fill_directory(cluster, plan)
            _start(cluster, plan, roots, images)
            wait_idle(cluster)
        except BaseException:
            down(cluster)
            raise
    return cluster


def down(cluster: Cluster) -> None:
    """End a cluster and remove its folder; one that has ended already only loses its folder."""
    fence.take_down(cluster.holder, cluster.id)
    _remove(cluster.directory)


@contextmanager
def running(plan: ClusterPlan) -> Iterator[Cluster]:
    """Have a cluster for the length of a block; it ends with this process at the latest."""
    cluster = up(plan, tied=True)
    try:
        yield cluster
    finally:
        down(cluster)


def clusters() -> tuple[Cluster, ...]:
    """Give every cluster that has a folder, running or not, oldest first."""
    if not RUN_DIRECTORY.is_dir():
        return ()
    found = []
    for path in RUN_DIRECTORY.glob("[!.]*/state.json"):
        # It may go while this looks.
        with suppress(FileNotFoundError):
            found.append((path.stat().st_mtime, _load(path)))
    return tuple(cluster for _, cluster in sorted(found, key=lambda pair: pair[0]))


def sweep() -> None:
    """Remove what is left of clusters that ended without `down`; those that run are not touched."""
    for cluster in clusters():
        if not is_running(cluster):
            down(cluster)
    # Killed while its folder was being made or removed: too young ones are still at it.
    for unnamed in RUN_DIRECTORY.glob(".*"):
        with suppress(FileNotFoundError):
            if time.time() - unnamed.stat().st_mtime > 60:
                _remove(unnamed)


def _remove(folder: Path) -> None:
    """Remove a folder of ours; of several processes that want to, one does."""
    claimed = RUN_DIRECTORY / f".{folder.name.lstrip('.')}.{secrets.token_hex(3)}"
    try:
        folder.rename(claimed)
    except FileNotFoundError:
        return
    os.utime(claimed)
    remove_tree(claimed)


def is_running(cluster: Cluster) -> bool:
    """Say whether the process that holds the cluster lives."""
    return fence.is_alive(cluster.holder.maker)


def wait_idle(cluster: Cluster, within_s: float = 300) -> None:
    """Wait until every node is idle. Raises `ToolError` with what Slurm says if they are not in time."""
    deadline = time.monotonic() + within_s
    said = ""
    while time.monotonic() < deadline:
        answer = cluster.run(["sinfo", "--noheader", "--Node", "--partition=small-g", "--format=%N %T"], user="root")
        said = answer.stdout + answer.stderr
        rows = answer.stdout.split()
        if answer.code == 0 and dict(zip(rows[::2], rows[1::2], strict=True)) == dict.fromkeys(cluster.nodes, "idle"):
            return
        time.sleep(0.1)
    raise ToolError(f"nodes are not idle after {within_s:g} s: {' | '.join(said.split(chr(10)))}")


def restart_node(cluster: Cluster, node: str) -> None:
    """Start a node again that was killed, from the folder it was first started from."""
    folder = cluster.node_folder(node)
    host = _hosts(cluster)[(LOGIN, *cluster.nodes).index(node)]
    start_node(NodePlan(cluster.id, host, (), (), {}, usual_rates(cluster, node)), folder, _first(cluster))


def usual_rates(cluster: Cluster, node: str) -> dict[str, str]:
    """Give the rates at which a node's limited interfaces send when nothing is wrong, by the interface's name."""
    rates: dict[str, str] = json.loads((cluster.node_folder(node) / "rates.json").read_text())
    return rates


def _hosts(cluster: Cluster) -> tuple[Host, ...]:
    return tuple(Host(name, number) for number, name in enumerate((LOGIN, *cluster.nodes), start=1))


def _first(cluster: Cluster) -> ProcessId:
    if cluster.holder.first is None:
        raise ToolError(f"cluster {cluster.id} did not get as far as running")
    return cluster.holder.first


def _fill_directory(cluster: Cluster, plan: ClusterPlan) -> None:
    for name in SHARED:
        folder = cluster.shared / name
        folder.mkdir(parents=True)
        folder.chmod(0o1777 if name in ("scratch", "flash") else 0o755)
    for folder in (cluster.shared / "users" / USER, cluster.shared / "project" / "project_462000000"):
        folder.mkdir()
        os.chown(folder, USER_ID, USER_ID)
    cluster.exchange.mkdir()
    (cluster.shared / IMAGES.removeprefix("/")).mkdir()
    if plan.site_tree is not None:
        shutil.copytree(plan.site_tree, cluster.shared / SITE_TREE.removeprefix("/"), symlinks=True)


def _start(cluster: Cluster, plan: ClusterPlan, roots: tuple[Path, ...], images: Mapping[str, Path]) -> None:
    bridges = fence.enter(_first(cluster), ["ip", "-batch", "-"])
    run_or_refuse(bridges, stdin=network.bridge_commands())
    for name, path in images.items():
        _keep_mounted(cluster, name, path)
    binds = [Bind(cluster.shared / name, f"/{name}", writable=True) for name in SHARED]
    binds += [Bind(image, f"{IMAGES}/{name}") for name, image in images.items()]
    binds += [Bind(cluster.exchange, EXCHANGE)]
    etc = _etc(cluster, plan)
    rates = {network.MANAGEMENT: plan.management_rate}
    if plan.high_speed_rate is not None:
        rates |= dict.fromkeys(network.HIGH_SPEED, plan.high_speed_rate)
    for host in _hosts(cluster):
        own = {CONTROLLER_MARK: b""} if host.name == LOGIN else {}
        own["hostname"] = f"{host.name}\n".encode()
        node_plan = NodePlan(cluster.id, host, roots, tuple(binds), etc | own, rates)
        folder = cluster.node_folder(host.name)
        write_node(node_plan, folder)
        (folder / "rates.json").write_text(json.dumps(rates))
        start_node(node_plan, folder, _first(cluster))


def _keep_mounted(cluster: Cluster, name: str, path: Path) -> None:
    """Mount an image where no node sees it: containers share its device, and what one has read of it is read for all."""
    root, _ = find_root(open_file(str(path)))
    place = cluster.directory / "mounted" / name
    place.mkdir(parents=True)
    options = f"ro,loop,offset={root.start},sizelimit={root.size}"
    mount = fence.enter(_first(cluster), ["mount", "-t", "squashfs", "-o", options, str(path), str(place)])
    # A device of another cluster or container has its offset and size a moment after the file; mount(8) refuses then.
    deadline = time.monotonic() + 60
    while "overlapping loop device" in (result := run_tool(mount)).stderr and time.monotonic() < deadline:
        time.sleep(0.1)
    result.check()


def _etc(cluster: Cluster, plan: ClusterPlan) -> dict[str, bytes]:
    cpus = plan.cpus or os.cpu_count() or 1
    lines = plan.slurm_lines
    if plan.cpus is not None:
        lines += ("SlurmdParameters=config_overrides",)
    prolog = {}
    if plan.task_prolog is not None:
        prolog["slurm/task_prolog"] = plan.task_prolog
        lines += ("TaskProlog=/etc/slurm/task_prolog",)
    texts = {
        "slurm/slurm.conf": slurm_conf.slurm_conf(plan.generation, LOGIN, cluster.nodes, cpus, lines, plan.gpus),
        **prolog,
        "slurm/gres.conf": slurm_conf.gres_conf(plan.gpus),
        "slurm/cgroup.conf": slurm_conf.cgroup_conf(plan.generation),
        "hosts": network.hosts_file(_hosts(cluster)),
        # Folders that are not there when a shell starts are left out by Lmod.
        "lmod/.modulespath": f"{SITE_TREE}/current/modules\n/usr/share/lmod/lmod/modulefiles\n",
        **dict(plan.etc),
    }
    return {name: text.encode() for name, text in texts.items()} | {"munge/munge.key": secrets.token_bytes(128)}


def _make_directory(cluster: Cluster) -> None:
    """Make the cluster's folder, which has a state file from its first moment."""
    unnamed = RUN_DIRECTORY / f".{cluster.id}"
    unnamed.mkdir(parents=True)
    (unnamed / "state.json").write_text(_state(cluster))
    unnamed.chmod(0o755)
    unnamed.rename(cluster.directory)


def _save(cluster: Cluster) -> None:
    partial = cluster.directory / "state.json.partial"
    partial.write_text(_state(cluster))
    partial.rename(cluster.directory / "state.json")


def _state(cluster: Cluster) -> str:
    return json.dumps(asdict(cluster), indent=1)


def _load(path: Path) -> Cluster:
    state = json.loads(path.read_text())
    made, first = state["holder"]["maker"], state["holder"]["first"]
    holder = Fence(ProcessId(**made), ProcessId(**first) if first else None)
    return Cluster(
        state["id"], state["generation"], tuple(state["nodes"]), holder, state["tied"], state.get("checkout", "")
    )
