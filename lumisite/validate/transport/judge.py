"""Decide from a run's NCCL or RCCL log whether its traffic went where it should have gone.

A run passes when every process shows that the network plugin carries the traffic, through the expected libfabric
provider, over the expected number of NICs, with no communicator on sockets and with every communicator complete. What
the log does not show is unknown, and unknown is inconclusive, never a pass.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from lumisite.validate.transport.findings import NAMES_SHOWN, Finding, Verdict, named, reasons_of, shortened
from lumisite.validate.transport.log import Log, Process
from lumisite.validate.transport.setup import setup_of, warned

if TYPE_CHECKING:
    from typing import TypeAlias

Answer: TypeAlias = Literal["yes", "no", "unknown"]

#: libfabric providers that run over the kernel's TCP or UDP: the plugin is in use and the fabric is not.
OVER_SOCKETS = frozenset({"tcp", "sockets", "udp", "net"})
#: Provider names that are whole though others begin with them.
PROVIDERS = OVER_SOCKETS | {"cxi", "efa", "verbs", "psm", "psm2", "psm3", "opx", "shm", "gni"}
#: NCCL's own networks: where one of these is used no plugin carries traffic.
INTERNAL = frozenset({"Socket", "IB"})
#: How networks are named that use the adapters of `NET/IB : Using`, plugins among them (`IBext_v8`).
OVER_VERBS = ("IB", "UCX")
#: What is said of a run that never left its node.
WITHIN = "all channels stay within the node, so nothing shows what would carry traffic between nodes"


@dataclass(frozen=True)
class Expectation:
    """What should carry the traffic; None: any provider but those over sockets, any number of NICs.

    `provider` is libfabric's name (`cxi`); for a network without libfabric its own name does (`IB`, `UCX`).
    """

    provider: str | None = None
    nics: int | None = None
    require_gdr: bool = False


@dataclass(frozen=True)
class ProcessResult:
    """One process, judged by itself."""

    process: str
    rank: int | None
    host: str
    verdict: Verdict
    plugin_in_use: Answer
    provider: str
    network: str
    nics: int | None
    gdr: Answer
    init: str


@dataclass(frozen=True)
class Result:
    """The verdict of a run; the fields are those of the command's JSON."""

    verdict: Verdict
    plugin_in_use: Answer
    provider: str
    network: str
    gdr: Answer
    interfaces: tuple[str, ...]
    processes: tuple[ProcessResult, ...]
    reasons: tuple[str, ...]


def judge(log: Log, expectation: Expectation) -> Result:
    """Apply the rule to all processes of a run."""
    processes = log.processes
    run = _run_of(log, expectation)
    found: list[Finding] = list(_run_findings(log, run))
    results = []
    for process in processes:
        own = list(_process_findings(process, run))
        found += own
        results.append(_result(process, run, _worst(finding.verdict for finding in own)))
    plugin = _all_of(result.plugin_in_use for result in results)
    gdr = _run_gdr(results, run)
    if expectation.require_gdr and gdr != "yes":
        found += _gdr_findings(gdr, results)
    verdict = _worst(finding.verdict for finding in found)
    reasons = (*reasons_of(found), *_notes(log, run))
    if verdict == "pass":
        reasons = (_summary(results, gdr), *reasons)
    return Result(
        verdict=verdict,
        plugin_in_use=plugin,
        provider=_joined(result.provider for result in results),
        network=_joined(result.network for result in results),
        gdr=gdr,
        interfaces=_interfaces(processes),
        processes=tuple(results),
        reasons=reasons,
    )


@dataclass(frozen=True)
class _Run:
    """What a process is judged against. `devices`: the network devices that channels use, by host."""

    processes: tuple[Process, ...]
    expectation: Expectation
    crossed: bool
    one_node: bool
    completes: bool
    known: frozenset[str]
    devices: Mapping[str, frozenset[int]]

    def provider(self, process: Process) -> tuple[str, ...]:
        """Give the providers of a process without torn names."""
        return tuple(name for name in process.providers if name in PROVIDERS or not self._torn(name))

    def _torn(self, name: str) -> bool:
        return any(other != name and other.startswith(name) for other in self.known)

    def nics(self, process: Process) -> int | None:
        """Give what the plugin counted, else how many devices were named or used on the node."""
        if process.nics is not None or not process.providers:
            return process.nics
        return max(len(process.devices), len(self.devices.get(process.host, ()))) or None


def _run_of(log: Log, expectation: Expectation) -> _Run:
    processes = log.processes
    devices: dict[str, set[int]] = {}
    for process in processes:
        devices.setdefault(process.host, set()).update(channel.device for channel in process.channels)
    crossed = any(devices.values())
    return _Run(
        processes=processes,
        expectation=expectation,
        crossed=crossed,
        one_node=log.within_nodes and not crossed and len(devices) == 1 and not _missing(processes),
        completes=any(setup_of(process) == "complete" for process in processes),
        known=frozenset(name for process in processes for name in process.providers),
        devices={host: frozenset(used) for host, used in devices.items()},
    )


def _plugin(process: Process, run: _Run) -> Answer:
    internal = INTERNAL.intersection(process.networks)
    if internal:
        return "no"
    if process.networks:
        return "unknown" if run.one_node else "yes"
    if process.failed or (process.fell_back and not process.loaded):
        return "no"
    return "unknown"


def _provider(process: Process, run: _Run) -> str:
    if _plugin(process, run) == "no":
        return "none"
    return ",".join(run.provider(process)) or "unknown"


def _over_sockets(provider: str) -> bool:  # `tcp` and `tcp;ofi_rxm` alike
    return not OVER_SOCKETS.isdisjoint(provider.split(";"))


def _gdr(process: Process, run: _Run) -> Answer:
    """Judge GPU Direct RDMA of one process: channels first, then RCCL's summary, then what says that it is off."""
    if "Socket" in process.networks or any(map(_over_sockets, run.provider(process))):
        return "no"
    told = [channel.gdr for channel in process.channels if channel.gdr is not None]
    if told:
        return "yes" if all(told) else "no"
    if process.pxn_gdr and not run.one_node:
        return "yes"
    return "no" if process.gdr_off or process.gdr_far else "unknown"


def _run_gdr(results: Sequence[ProcessResult], run: _Run) -> Answer:
    """Judge the run: no process without it, and proof in both directions."""
    if any(result.gdr == "no" for result in results):
        return "no"
    if run.crossed:
        pairs = zip(results, run.processes, strict=True)
        deciding = [result for result, process in pairs if process.channels or result.gdr == "yes"]
        told = {channel.sends for process in run.processes for channel in process.channels if channel.gdr}
        both_ways = len(told) == 2 or any(process.pxn_gdr for process in run.processes)
        return "yes" if both_ways and all(result.gdr == "yes" for result in deciding) else "unknown"
    return "yes" if results and all(result.gdr == "yes" for result in results) else "unknown"


def _process_findings(process: Process, run: _Run) -> Iterator[Finding]:
    for verdict, text in (*_plugin_findings(process, run), *_nic_findings(process, run), *_init_findings(process, run)):
        yield Finding(verdict, text, named(process.name, process.rank))


def _plugin_findings(process: Process, run: _Run) -> Iterator[tuple[Verdict, str]]:
    plugin = _plugin(process, run)
    expected = run.expectation.provider
    networks = " and ".join(process.networks)
    if plugin == "no":
        if len(process.networks) > 1:
            yield "fail", f"communicators use different networks, {networks}"
        elif process.networks != ("IB",) or (expected or "").casefold() != "ib":
            why = process.failed or process.fell_back
            verb = "NCCL chose its" if run.one_node else "traffic goes through NCCL's"
            what = f"{verb} own network {networks}" if networks else "the plugin is not in use"
            yield "fail", f"{what} ({shortened(why)})" if why else what
    elif plugin == "unknown":
        yield "inconclusive", _unknown_plugin(process, run)
        yield from _wrong_providers(process, run)
    else:
        yield from _provider_findings(process, run)


def _unknown_plugin(process: Process, run: _Run) -> str:
    if run.one_node and process.networks:
        return WITHIN
    if process.providers:
        return f"the plugin chose {','.join(process.providers)}, but nothing shows that traffic goes through it"
    if process.loaded:
        return "the plugin was loaded, but nothing shows that traffic goes through it"
    return "nothing shows which network is used"


def _provider_findings(process: Process, run: _Run) -> Iterator[tuple[Verdict, str]]:
    expected = run.expectation.provider
    providers = run.provider(process)
    networks = " and ".join(process.networks)
    if not providers:
        if expected is None or {expected.casefold()} != {name.casefold() for name in process.networks}:
            yield "inconclusive", f"network {networks} is in use, but no line names its provider"
        return
    yield from _wrong_providers(process, run)


def _wrong_providers(process: Process, run: _Run) -> Iterator[tuple[Verdict, str]]:
    """Find what the plugin should not have chosen; where the plugin is not in use in the end, sockets or IB are."""
    expected = run.expectation.provider
    for name in run.provider(process):
        if expected is None:
            if _over_sockets(name):
                yield "fail", f"the plugin runs over sockets, provider {name}"
        elif expected not in (name, name.partition(";")[0]):
            yield "fail", f"provider is {name}, expected {expected}"


def _nic_findings(process: Process, run: _Run) -> Iterator[tuple[Verdict, str]]:
    expected = run.expectation.nics
    if expected is None or _plugin(process, run) == "no":
        return
    nics = run.nics(process)
    if process.nics is None and (nics is None or nics < expected):
        yield "inconclusive", f"nothing shows how many NICs the plugin found, expected {expected}"
    elif nics != expected:
        yield "fail", f"the plugin found {nics} NICs, expected {expected}"


def _init_findings(process: Process, run: _Run) -> Iterator[tuple[Verdict, str]]:
    if process.broken:
        yield "fail", f"the plugin reports errors ({shortened(process.broken)})"
    init = setup_of(process)
    if init == "stuck":
        yield "fail", "rings are connected and trees never were: communicator setup hangs"
    elif init == "unfinished":
        yield "inconclusive", "a communicator began and never completed: it hangs, or the log ends too early"
    elif init == "unknown" and run.completes:
        yield "inconclusive", "no communicator completed, while those of other processes did"
    elif init == "unknown" and _plugin(process, run) == "yes" and not run.crossed:
        yield "inconclusive", "nothing shows that a communicator was set up"


def _run_findings(log: Log, run: _Run) -> Iterator[Finding]:
    if not run.processes:
        yield Finding("inconclusive", _nothing_told(log))
        return
    if log.bare:
        yield Finding(
            "inconclusive", "messages have been cut out of a log: nothing shows how many processes there were"
        )
    missing = _missing(run.processes)
    if missing:
        world = max(process.world for process in run.processes)
        shown = ", ".join(map(str, missing[:NAMES_SHOWN])) + (", …" if len(missing) > NAMES_SHOWN else "")
        hint = "; Ray left repeated lines out, set RAY_DEDUP_LOGS=0" if log.dropped else ""
        yield Finding("inconclusive", f"{len(missing)} of {world} ranks say nothing in the log: {shown}{hint}")


def _nothing_told(log: Log) -> str:
    if log.within_nodes:
        return WITHIN
    what = "the lines of NCCL or RCCL say nothing of the network" if log.lines else "no line of NCCL or RCCL found"
    return f"{what} (run with NCCL_DEBUG=INFO, NCCL_DEBUG_SUBSYS=INIT,NET,ENV)"


def _missing(processes: Sequence[Process]) -> list[int]:
    """List the ranks of the largest communicator that the log does not have."""
    world = max((process.world for process in processes), default=0)
    seen = {rank for process in processes if process.world == world for rank in process.ranks}
    return sorted(set(range(world)) - seen)


def _gdr_findings(gdr: Answer, results: Sequence[ProcessResult]) -> list[Finding]:
    if gdr == "no":
        return [
            Finding("fail", "no GPU Direct RDMA", named(result.process, result.rank))
            for result in results
            if result.gdr == "no"
        ]
    return [Finding("inconclusive", "nothing proves GPU Direct RDMA in both directions")]


def _notes(log: Log, run: _Run) -> Iterator[str]:
    """Say what does not change the verdict."""
    for process in run.processes:
        if "Socket" in process.networks and process.sockets:
            yield f"sockets use {', '.join(process.sockets)}"
            break
    if run.expectation.provider is None and any("IB" in process.networks for process in run.processes):
        yield "IB is NCCL's own network and no plugin: where it is the right one, say --expect IB"
    for process in run.processes:
        if why := warned(process):
            yield f"{named(process.name, process.rank)} warned: {shortened(why)}"
            break
    if run.processes and all(setup_of(process) == "unknown" for process in run.processes):
        yield "the log does not show whether communicators completed (it has no INIT lines of that)"


def _result(process: Process, run: _Run, verdict: Verdict) -> ProcessResult:
    return ProcessResult(
        process=process.name,
        rank=process.rank,
        host=process.host,
        verdict=verdict,
        plugin_in_use=_plugin(process, run),
        provider=_provider(process, run),
        network=",".join(process.networks) or "unknown",
        nics=run.nics(process),
        gdr=_gdr(process, run),
        init=setup_of(process),
    )


def _summary(results: Sequence[ProcessResult], gdr: Answer) -> str:
    nodes = len({result.host for result in results})
    nics = {result.nics for result in results}
    counted = f", {nics.pop()} NICs" if len(nics) == 1 and None not in nics else ""
    return (
        f"{len(results)} process{'es' if len(results) > 1 else ''} on {nodes} node{'s' if nodes > 1 else ''}: provider "
        f"{_joined(result.provider for result in results)}, network {_joined(result.network for result in results)}"
        f"{counted}, GPU Direct RDMA {gdr}"
    )


def _interfaces(processes: Iterable[Process]) -> tuple[str, ...]:
    """List the devices of the networks in use; the bootstrap interface is not among them."""
    names: dict[str, None] = {}
    for process in processes:
        slow = "Socket" in process.networks or any(map(_over_sockets, process.providers))
        own = [*process.devices] if set(process.networks) - INTERNAL or not process.networks else []
        own += process.adapters if any(name.startswith(OVER_VERBS) for name in process.networks) else ()
        own += process.sockets if slow else ()
        names.update(dict.fromkeys(own))
    return tuple(names)


def _worst(verdicts: Iterable[Verdict]) -> Verdict:
    found = set(verdicts)
    return "fail" if "fail" in found else "inconclusive" if "inconclusive" in found else "pass"


def _all_of(answers: Iterable[Answer]) -> Answer:
    found = set(answers)
    return "no" if "no" in found else "yes" if found == {"yes"} else "unknown"


def _joined(names: Iterable[str]) -> str:
    return ",".join(sorted({part for name in names for part in name.split(",")})) or "unknown"
