"""Judge `binds`: what containers see of each node, and which communication libraries a program gets."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Literal, TypeAlias

from lumisite.site.entries import HostPath
from lumisite.site.ledger import decide
from lumisite.site.scalars import TASK
from lumisite.text import counted
from lumisite.validate.probes.probe import Expected, Line, Part, Plan, Record, Target, each, probe
from lumisite.validate.probes.ranks import Fault, Said, judge_records, missing, tell
from lumisite.validate.probes.records import in_image, rows, table, text, value_at

Origin: TypeAlias = Literal["image", "host"]

#: The file name under which NCCL looks for a network plugin, and what has its interface after a name of its own
#: (src/plugin/net.cc of NCCL, 2.18 to 2.27).
PLUGIN = "libnccl-net.so"
FABRIC = "libfabric.so.1"
#: The framework by which libraries come into use, as in a user's program.
FRAMEWORK = "torch"


@probe("What the modules bind is there in the container, and the right libraries are used.")
def binds(target: Target) -> Plan:
    """Give the probe: what the node has is recorded outside of the container, as compute nodes need no Python."""
    bound, origins, plugins = host_paths(target), library_origins(target), plugin_names(target)
    inside = (
        *each("path", dict.fromkeys(bind.target or bind.path for bind in bound)),
        *each("import", [FRAMEWORK]),
        *each("plugin", [name for name in origins if name in plugins]),
        *each("library", [name for name in origins if name not in plugins]),
        *each("carrier", target.carriers),
    )
    host = Part("binds_host.sh", ("sh",), tuple(dict.fromkeys(bind.path for bind in bound)), each="node", name="host")
    container = target.alone("binds.py", *inside, each="node", name="container")
    return (host, container), judge_records(partial(_judge, target))


def host_paths(target: Target) -> list[HostPath]:
    """Give what the family's modules and the helper bind."""
    decision = decide(target.site, target.situation)
    return [bind for place in (*target.family.modules, TASK) for bind in decision.bound_by(place)]


def plugin_names(target: Target) -> list[str]:
    """Give the names under which a network plugin may be found, as the vendor's library looks for them."""
    own = [f"{target.gpu.collectives.library}-net.so"] if target.gpu else []
    return list(dict.fromkeys([*own, PLUGIN]))


def library_origins(target: Target) -> dict[str, Origin]:
    """Say for each network library whether it must come from the image or the host.

    Of the plugin's names one must open. It is only judged where libraries carry traffic: gloo needs none of them.
    """
    family = target.family
    if target.plan.backend != "nccl" or family.plugin in (None, "none"):
        return {}
    plugin: Origin = "image" if family.plugin == "in-image" else "host"
    fabric = (FABRIC,) if plugin == "image" else ()
    plugins = plugin_names(target)
    host: dict[str, Origin] = {name: "host" for name in family.libraries if name not in plugins}
    return {**dict.fromkeys((*plugins, *fabric), plugin), **host}


def _judge(target: Target, records: Sequence[Record], expected: Expected) -> list[Line]:
    """Judge the records of the nodes (`part` host) and of the containers on them (`part` container)."""
    bound, origins = host_paths(target), library_origins(target)
    hosts = {text(record, "host"): record for record in records if text(record, "part") == "host"}
    inside = [record for record in records if text(record, "part") == "container"]
    faults = missing(hosts.values(), expected, "the look at the node itself")
    faults += [Fault(*said, node) for node in expected.nodes for said in _of_host(hosts.get(node, {}), bound)]
    explained = {fault.node for fault in faults}
    # A runtime that misses the source of a bind does not start, and that has been told.
    faults += [one for one in missing(inside, expected, "the container") if one.node not in explained]
    for record in inside:
        node = text(record, "host")
        faults += [Fault(*said, node) for said in _of_container(record, hosts.get(node, {}), bound)]
        faults += [Fault(*said, node) for said in _of_libraries(record, origins, target)]
    passed = f"{counted(len(bound), 'bind')} are the host's own on {counted(len(expected.nodes), 'node')}"
    return tell(faults, f"{passed}; {_in_use(inside, target.carriers)}", expected)


def _of_host(record: Record, bound: Sequence[HostPath]) -> Iterator[Said]:
    for bind in bound:
        if bind.required and value_at(record, "paths", bind.path, "exists") is False:
            yield (
                f"the node lacks {bind.path}, which containers need ({bind.why})",
                f"drain the node until {bind.path} is there; or take it out of the site's binds if it is gone for good",
            )


def _of_container(record: Record, host: Record, bound: Sequence[HostPath]) -> Iterator[Said]:
    if value_at(record, "in_container") is not True:
        yield "the probe ran outside a container", "start it as `srun … singularity exec IMAGE …`"
        return
    for bind in bound:
        if value_at(host, "paths", bind.path, "exists") is not True:
            continue
        target = bind.target or bind.path
        by, advice = "the srun helper", "see LUMISITE_VERBOSE=1 srun …; is LUMISITE=off set?"
        if bind.where != TASK:
            by, advice = f"the module {bind.where}", f"load {bind.where}"
        met, right = text(record, "paths", target, "file"), text(host, "paths", bind.path, "file")
        if value_at(record, "paths", target, "exists") is not True:
            yield f"{target} is on the node but not in the container, though {by} binds it ({bind.why})", advice
        elif met != right:
            cause = f"{target} in the container is another file ({met}) than the host's {bind.path} ({right})"
            yield f"{cause}, though {by} binds it", advice


def _of_libraries(record: Record, origins: Mapping[str, Origin], target: Target) -> Iterator[Said]:
    family, told = target.family_name, text(record, "imports", FRAMEWORK)
    if told.startswith("error: "):
        yield f"{FRAMEWORK} cannot be imported: {told[7:]}", f"use an image with {FRAMEWORK}, or repair this one"
    refusals = table(record, "plugins")
    plugins = [name for name in plugin_names(target) if name in origins]
    if plugins and all(refusals.get(name) != "" for name in plugins):
        words = "; ".join(str(refusals.get(name, "not tried")) for name in plugins)
        advice = f"family {family} has it from the {origins[plugins[0]]}: see `lumisite binds IMAGE`"
        yield f"no OFI plugin opens, so the traffic falls back to TCP: {words}", advice
    for name, refusal in table(record, "libraries").items():
        if refusal:
            yield f"{name} does not open: {refusal}", "see `lumisite binds IMAGE` for what the image lacks"
    for soname, place in origins.items():
        for path, name, met in _mapped(record):
            if name.startswith(soname) and met != place:
                yield (
                    f"{soname} is {path} from the {met}; family {family} needs it from the {place}",
                    "see LD_LIBRARY_PATH inside the container, and `lumisite binds IMAGE`",
                )


def _mapped(record: Record) -> Iterator[tuple[str, str, Origin]]:
    """Give each library in use by its path and its name, and where it comes from."""
    for row in rows(record, "mapped"):
        path = text(row, "path")
        yield path, path.rpartition("/")[2], "image" if in_image(row) else "host"


def _in_use(records: Sequence[Record], carriers: Sequence[str]) -> str:
    """Say which libraries carry the traffic; those of a framework that uses none are told all the same."""
    told = {
        f"{name} from the {met} ({path})"
        for record in records
        for path, name, met in _mapped(record)
        if any(word in name for word in ("nccl", "libfabric", *carriers))
    }
    return ("in use: " + ", ".join(sorted(told))) if told else "no library of the network is in use"
