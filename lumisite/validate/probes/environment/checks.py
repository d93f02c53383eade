"""The checks of what a node or a rank has. A new one is a function here, a row of CHECKS, and its codes in probes.yaml.

Each looks at one record: that of a `node` outside of containers, of a `rank` in the container, of the `first` rank of
each node, which records binds and libraries too, or of a rank with `jax`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import PurePosixPath
from typing import Literal, NamedTuple, TypeAlias

from lumisite.findings.catalogue import make_finding
from lumisite.findings.finding import Finding, Value, with_values
from lumisite.machine.masks import MaskError, MaskRequest, cpu_masks, mask_of
from lumisite.site.cpus import CpusetError, format_cpu_list, parse_number_list
from lumisite.site.scalars import TASK
from lumisite.validate.probes.environment.expected import FRAMEWORK, Setup
from lumisite.validate.probes.probe import Record
from lumisite.validate.probes.records import count_in, in_image, rows, table, text, texts, value_at, whole

#: A user's own bind, which every module must leave alone: a file that each node has, at a place of no meaning.
USERS_BIND = "/etc/hostname:/lumisite-probe"
#: Types of file systems that lie on servers, as the kernel names them in /proc/self/mountinfo.
SHARED_TYPES = (
    *("lustre", "nfs", "nfs4", "gpfs", "beegfs", "ceph", "cifs", "smb3"),
    *("9p", "afs", "orangefs", "pvfs2", "wekafs", "dvs"),
)
#: What a program wrote is quoted up to this length.
MOST_QUOTED = 200
#: What the kernel limits softly and hard; of shared memory there is only the size, in KiB.
SHARED_MEMORY = "shared memory"
#: A rank that has less than this part of what the node's step has was limited on the way.
LEAST = 0.9

Kind: TypeAlias = Literal["node", "rank", "first", "jax"]
Cpus: TypeAlias = frozenset[int]


@dataclass(frozen=True)
class NodeRecords:
    """All records of one node: its own, those of its ranks in the container, and of its ranks with JAX.

    `expected_cpus` are the CPUs that each local rank should have, none where the node kind has no table for them, and
    `ranks_in_all` is how many ranks the step has.
    """

    node: Record
    ranks: tuple[Record, ...]
    jax: tuple[Record, ...]
    expected_cpus: Mapping[int, Cpus]
    ranks_in_all: int

    def of_kind(self, kind: Kind) -> tuple[Record, ...]:
        """Return the records that checks of a kind look at."""
        if kind == "first":
            return tuple(record for record in self.ranks if "imports" in record)
        return {"node": (self.node,) if self.node else (), "rank": self.ranks, "jax": self.jax}[kind]

    @cached_property
    def cpus(self) -> Mapping[int, Cpus]:
        """The CPUs of each rank whose record has them, by local rank."""
        return {whole(record, "local_rank"): cpus for record in self.ranks if (cpus := _cpus(record, "cpus"))}


def _cpus(record: Record, key: str) -> Cpus:
    try:
        return frozenset(parse_number_list(text(record, key)))
    except CpusetError:
        return frozenset()


# ---- modules and binds


def check_modules(record: Record, _node: NodeRecords, setup: Setup) -> Iterator[Finding]:
    """Every module loads in a login shell, brings its binds, and leaves nothing behind."""
    if value_at(record, "has_lmod") is not True:
        yield make_finding("module-command-missing")
        return
    variable = setup.bind_variable
    for name, binds in setup.modules.items():
        found = table(record, "modules", name)
        if value_at(found, "load") != 0 or value_at(found, "loaded") is not True:
            yield make_finding("module-not-loaded", name, words=_quote(text(found, "said")))
            continue
        value = text(found, "changes", variable, "after")
        lacking = tuple(bind for bind in binds if bind not in value.split(","))
        if lacking:
            yield make_finding("module-binds-missing", name, variable=variable, missing=lacking, value=value)
        if value_at(found, "unload") != 0 or value_at(found, "still_loaded") is True:
            yield make_finding("module-not-unloaded", name, words=_quote(text(found, "unload_said")))
        for changed, change in table(found, "left").items():
            before, after = (value_at(change, when) for when in ("before", "after"))
            yield make_finding(
                "module-leaves-change",
                name,
                variable=changed,
                before=before if isinstance(before, str) else None,
                after=after if isinstance(after, str) else None,
            )


def _quote(words: str) -> str:
    """Return what a program wrote in one line."""
    return " ".join(words.split())[:MOST_QUOTED]


def check_node_paths(record: Record, _node: NodeRecords, setup: Setup) -> Iterator[Finding]:
    """The node has what containers must find there."""
    for bind in setup.binds:
        if bind.required and value_at(record, "paths", bind.path, "exists") is False:
            yield make_finding("bind-missing", bind.path, why=bind.why, shut=text(record, "paths", bind.path, "shut"))


def check_binds(record: Record, node: NodeRecords, setup: Setup) -> Iterator[Finding]:
    """Each bind is the same file in the container as on the node."""
    if value_at(record, "in_container") is not True:
        yield make_finding("not-in-container")
        return
    for bind in setup.binds:
        if value_at(node.node, "paths", bind.path, "exists") is not True:
            continue
        path = bind.target or bind.path
        module = bind.where if bind.where != TASK else None
        found, expected = text(record, "paths", path, "file"), text(node.node, "paths", bind.path, "file")
        if value_at(record, "paths", path, "exists") is not True:
            yield make_finding("bind-not-in-container", path, module=module, why=bind.why)
        elif found != expected:
            yield make_finding("bind-other-file", path, source=bind.path, module=module, found=found, expected=expected)


def check_libraries(record: Record, _node: NodeRecords, setup: Setup) -> Iterator[Finding]:
    """The framework, the network plugin and libfabric open, and come from where the image's family has them."""
    family = setup.target.family_name
    if error := text(record, "imports", FRAMEWORK, "error"):
        yield make_finding("import-failed", FRAMEWORK, error=error)
    refusals, shut = table(record, "plugins"), next(iter(texts(record, "shut")), None)
    plugins = [name for name in setup.plugin_names if name in setup.origins]
    if plugins and all(refusals.get(name) != "" for name in plugins):
        words = tuple(str(refusals.get(name, "-")) for name in plugins)
        origin = setup.origins[plugins[0]]
        yield make_finding("plugin-not-opened", plugins[0], refusals=words, origin=origin, shut=shut)
    for name, refusal in table(record, "libraries").items():
        if refusal:
            yield make_finding("library-not-opened", name, error=str(refusal), shut=shut)
    for soname, expected in setup.origins.items():
        for row in rows(record, "mapped"):
            path, found = text(row, "path"), "image" if in_image(row) else "host"
            if path.rpartition("/")[2].startswith(soname) and found != expected:
                yield make_finding("library-origin", soname, path=path, found=found, expected=expected, family=family)


# ---- CPUs and GPUs


def check_cpus(record: Record, node: NodeRecords, setup: Setup) -> Iterator[Finding]:
    """Where the node kind has a mask for a rank, the rank has it; where not, it has no reserved CPU."""
    topology, cpus = setup.topology, _cpus(record, "cpus")
    expected = node.expected_cpus.get(whole(record, "local_rank"))
    reserved = cpus & topology.reserved
    binding = text(record, "environment", "SLURM_CPU_BIND") or text(record, "environment", "SLURM_CPU_BIND_TYPE")
    of_user = binding if "mask_cpu:0x" not in binding else None
    if not cpus:
        yield make_finding("cpus-unreadable", cpus=text(record, "cpus"))
    elif expected is not None and cpus != expected:
        numa = {core.numa for core in topology.cores if core.numa is not None and cpus.intersection(core.pu_os)}
        yield make_finding(
            "mask-wrong",
            mask=mask_of(cpus),
            cpus=format_cpu_list(cpus),
            numa=format_cpu_list(numa),
            expected_mask=mask_of(expected),
            expected_cpus=format_cpu_list(expected),
            local_rank=whole(record, "local_rank"),
            kind=topology.name,
            binding=of_user,
        )
    elif expected is None and reserved and cpus != topology.pu_os:
        yield make_finding("mask-reserved", mask=mask_of(cpus), reserved=format_cpu_list(reserved), binding=of_user)


def check_shared_cpus(record: Record, node: NodeRecords, _setup: Setup) -> Iterator[Finding]:
    """No rank shares CPUs with one before it; one that has a wrong mask is named by that already."""
    local, cpus = whole(record, "local_rank"), _cpus(record, "cpus")
    other = next((other for other in sorted(node.cpus) if other < local and node.cpus[other] & cpus), None)
    if other is not None and cpus == node.expected_cpus.get(local, cpus):
        binding = text(record, "environment", "SLURM_CPU_BIND")
        yield make_finding(
            "mask-shared",
            mask=mask_of(cpus),
            shared=format_cpu_list(cpus & node.cpus[other]),
            other=other,
            other_mask=mask_of(node.cpus[other]),
            binding=binding if "mask_cpu:0x" not in binding else None,
        )


def expected_cpus(ranks: Sequence[Record], tasks: int, setup: Setup) -> Mapping[int, Cpus]:
    """Return the CPUs that each local rank of a node should have, none where the node kind has no table for them."""
    if not ranks or not setup.topology.gpus:
        return {}
    granted = _cpus(ranks[0], "granted")
    try:
        answers = cpu_masks(setup.topology, MaskRequest(tasks, cpus=granted & setup.topology.pu_os or None))
    except MaskError:
        return {}
    return {answer.task: frozenset(answer.pu_os) for answer in answers if answer.pu_os}


def check_gpus(record: Record, node: NodeRecords, setup: Setup) -> Iterator[Finding]:
    """Bus ids are those of the platform, in their order, and no rank before it has the same GPU."""
    known = {gpu.pci_bus: gpu.index for gpu in setup.topology.gpus if gpu.pci_bus}
    buses, local, bus = texts(record, "gpus"), whole(record, "local_rank"), _gpu_of(record)
    if bus is None:
        return
    kind = setup.topology.name
    if known and bus not in known:
        yield make_finding("gpu-bus-unknown", bus=bus, kind=kind, expected=tuple(known))
    elif known and len(buses) == len(known) and known[bus] != local % len(known):
        yield make_finding("gpu-order", gpu=local, bus=bus, kind=kind, expected=known[bus])
    earlier = (whole(other, "rank") for other in node.ranks if _gpu_of(other) == bus)
    first = next(earlier, None)
    if first is not None and first != whole(record, "rank"):
        yield make_finding("gpu-shared", bus=bus, other=first)


def _gpu_of(record: Record) -> str | None:
    """Return the bus of a rank's GPU: of several that it sees, programs take the one with their local rank."""
    buses = texts(record, "gpus")
    return buses[whole(record, "local_rank") % len(buses)] if buses else None


# ---- directories


def check_directories(record: Record, _node: NodeRecords, setup: Setup) -> Iterator[Finding]:
    """Each variable leads to a directory on the node itself that only the user can enter."""
    unset = [name for name in setup.directories if value_at(record, "directories", name, "set") is not True]
    if (taken := _taken(record)) and unset:
        yield with_values(taken, {"variables": tuple(unset)})
    for name in setup.directories:
        found = value_at(record, "directories", name)
        if name not in unset:
            yield from _check_directory(name, found, whole(record, "user"), setup)
        elif not taken:
            yield make_finding("directory-unset", name)


def _taken(record: Record) -> Finding | None:
    """Return the finding for a private directory that the task prolog could not use, since it is not the user's own."""
    for entry in rows(record, "private"):
        if value_at(entry, "usable") is False:
            owner, user = whole(entry, "owner"), whole(record, "user")
            # As text: 0 is a user too.
            parent = value_at(entry, "parent") is True
            values = {
                "owner": str(owner) if owner != user and not parent else None,
                "open": text(entry, "mode") if parent else None,
            }
            return with_values(make_finding("private-folder-taken", text(entry, "path"), user=str(user)), values)
    return None


def _check_directory(name: str, found: object, user: int, setup: Setup) -> Iterator[Finding]:
    path, real, kind = text(found, "path"), text(found, "real"), text(found, "mount", "type")
    systems, first = setup.target.site.file_systems, next(iter(setup.target.site.private_places), None)
    values: dict[str, Value] = {
        "path": path,
        "real": real if real != path else None,
        "private": (first.job_folder or first.path) if first else None,
    }

    def wrong(code: str, **more: Value) -> Finding:
        return with_values(make_finding(code, name), {**values, **more})

    target = PurePosixPath(real or path)
    local = tuple(system.path for system in systems if system.kind == "node-local")
    shared = [system.path for system in systems if system.kind == "shared" and target.is_relative_to(system.path)]
    owner, mode = whole(found, "owner"), text(found, "mode")
    if shared or kind in SHARED_TYPES:
        yield wrong("directory-shared", file_system=next(iter(shared), kind))
    elif not any(target.is_relative_to(system) for system in local):
        yield wrong("directory-not-local", local=local)
    elif value_at(found, "exists") is not True or value_at(found, "directory") is not True:
        yield wrong("directory-missing")
    else:
        if owner != user:
            yield wrong("directory-owner", owner=owner, user=user)
        elif mode[-2:] != "00":
            yield wrong("directory-open", mode=mode)
        if refusal := text(found, "writing"):
            yield wrong("directory-not-writable", reason=refusal)


# ---- Python


def check_packages(record: Record, _node: NodeRecords, setup: Setup) -> Iterator[Finding]:
    """No package of ~/.local or PYTHONPATH is found before the image's own."""
    variable = value_at(record, "environment", "PYTHONNOUSERSITE")
    if value_at(record, "user_site_on_path") is True:
        yield make_finding(
            "user-site-active",
            text(record, "user_site"),
            hidden=tuple(texts(record, "hidden")),
            packages=tuple(texts(record, "user_packages")),
        )
    elif setup.shuts_user_site_out and not variable:
        yield make_finding("user-site-open", "PYTHONNOUSERSITE")
    for entry in rows(record, "pythonpath"):
        if hidden := tuple(texts(entry, "hidden")):
            yield make_finding("pythonpath-hides", text(entry, "path"), hidden=hidden)


def check_python(record: Record, _node: NodeRecords, setup: Setup) -> Iterator[Finding]:
    """`python3` is the image's, or that of the environment that the family needs, and has the framework."""
    family, folders = setup.target.family, setup.target.family.prepend_path
    executable = text(record, "executable", "path")
    values: dict[str, Value] = {
        "path": executable,
        "version": text(record, "version"),
        "prefix": text(record, "prefix"),
        "family": setup.target.family_name,
        "activation": family.activation,
    }

    def wrong(code: str, subject: str = "python3", **more: Value) -> Finding:
        return with_values(make_finding(code, subject), {**values, **more})

    if folders and not any(executable.startswith(f"{folder}/") for folder in folders):
        yield wrong("python-not-activated", expected=tuple(folders))
        return
    mounts = [table(record, "executable", mount) for mount in ("mount", "real_mount")]
    outside = [text(mount, "point") for mount in mounts if not in_image(mount)]
    if outside and not folders:
        variable = f"{setup.target.site.runtime.prefix}ENV_PREPEND_PATH"
        yield wrong("python-from-host", mount=outside[0], variable=variable)
        return
    if not text(record, "frameworks", FRAMEWORK, "path"):
        yield wrong("framework-missing", FRAMEWORK)
    for name, found in table(record, "found").items():
        if text(found, "path") and text(found, "real") != text(record, "executable", "real"):
            yield wrong("python-two", name, other=text(found, "path"))


# ---- JAX


def check_jax(record: Record, node: NodeRecords, setup: Setup) -> Iterator[Finding]:
    """Each rank has one device, all count the same number, and a sum over all is right."""
    error, found = text(record, "error"), text(record, "platform")
    ranks, selectors = node.ranks_in_all, tuple(setup.gpu_selectors)
    if error:
        yield make_finding("jax-failed", error=error)
        return
    # JAX names the platform of GPUs by their software, or gpu, by its release.
    if ("cpu" if found == "cpu" else "gpu") != setup.jax_platform:
        yield make_finding("jax-platform", found=found, expected=setup.jax_platform, selectors=selectors)
        return
    for key, expected in (("processes", ranks), ("local_devices", 1), ("devices", ranks)):
        if (count := whole(record, key)) != expected:
            yield make_finding("jax-count", quantity=key, found=count, expected=expected, selectors=selectors)
            return
    total = value_at(record, "sum")
    if total != ranks * (ranks + 1) / 2:
        yield make_finding("jax-sum", found=str(total), expected=ranks * (ranks + 1) / 2, devices=ranks)


def check_limits(record: Record, node: NodeRecords, _setup: Setup) -> Iterator[Finding]:
    """A rank may use as much as the step gave its task: the first limit that is lower, with the names of the others."""
    lower = []
    for name in table(node.node, "granted"):
        found, given = texts(record, "limits", name), texts(node.node, "granted", name)
        # Where the hard limit is lower, the soft one is too.
        kinds = [kind for kind in (1, 0) if len(found) > kind < len(given) and _is_lower(found[kind], given[kind])]
        lower += [(name, kind, found[kind], given[kind]) for kind in kinds[:1]]
    if lower:
        name, kind, value, expected = lower[0]
        which = None if name == SHARED_MEMORY else "hard" if kind else "soft"
        more = tuple(other for other, *_ in lower[1:])
        yield make_finding("rank-limit-lower", name, kind=which, found=value, expected=expected, more=more or None)


def _is_lower(found: str, given: str) -> bool:
    of_rank, of_step = (math.inf if each == "unlimited" else count_in(each) for each in (found, given))
    return of_rank is not None and of_step is not None and of_rank < LEAST * of_step


class Check(NamedTuple):
    """A question of a gate, and the function that answers it for one record of a kind."""

    gate: str
    kind: Kind
    find: Callable[[Record, NodeRecords, Setup], Iterator[Finding]]


CHECKS = (
    Check("modules", "node", check_modules),
    Check("binds", "node", check_node_paths),
    Check("binds", "first", check_binds),
    Check("binds", "first", check_libraries),
    Check("affinity", "rank", check_cpus),
    Check("affinity", "rank", check_shared_cpus),
    Check("affinity", "rank", check_gpus),
    Check("limits", "rank", check_limits),
    Check("miopen", "rank", check_directories),
    Check("usersite", "rank", check_packages),
    Check("conda", "rank", check_python),
    Check("jax", "jax", check_jax),
)
