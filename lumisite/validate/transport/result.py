"""What a log shows: the answer to each question, with the line that gives it; the verdict is made in `judge`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal, TypeAlias

from lumisite.findings import writers
from lumisite.findings.finding import Finding
from lumisite.text import natural
from lumisite.validate.transport.lines import LogLine, ProcessLog
from lumisite.validate.transport.log import Log

if TYPE_CHECKING:
    from lumisite.validate.lines import GateOutcome

Answer: TypeAlias = Literal["yes", "no", "unknown"]

#: libfabric providers that run over the kernel's TCP or UDP: the plugin is in use and the fabric is not.
OVER_SOCKETS = frozenset({"tcp", "sockets", "udp", "net"})
#: NCCL's own networks: where one of these is used no plugin carries traffic.
INTERNAL = frozenset({"Socket", "IB"})
#: How networks are named that use the adapters of `NET/IB : Using`, plugins among them (`IBext_v8`).
OVER_VERBS = ("IB", "UCX")


@dataclass(frozen=True)
class ProcessResult:
    """One process, judged by itself."""

    process: str
    rank: int | None
    host: str
    verdict: GateOutcome
    plugin_in_use: Answer
    provider: str
    network: str
    nics: int | None
    gdr: Answer
    init: str

    def __str__(self) -> str:
        """Return the process's name, with its rank if that is known."""
        return self.process if self.rank is None else f"rank {self.rank} ({self.process})"


@dataclass(frozen=True)
class Result:
    """The verdict of a run, and what its log shows; `evidence` has the line that gives each answer, if any does."""

    verdict: GateOutcome
    plugin_in_use: Answer
    provider: str
    network: str
    gdr: Answer
    interfaces: tuple[str, ...]
    processes: tuple[ProcessResult, ...]
    findings: tuple[Finding, ...]
    evidence: dict[str, LogLine | None] = field(compare=False)

    @property
    def reasons(self) -> tuple[str, ...]:
        """Each finding as a sentence."""
        return tuple(writers.sentence(finding) for finding in self.findings)


def with_opened(process: ProcessLog, proved: ProcessResult) -> ProcessResult:
    """Return what is proved of a process with the network whose devices it opened.

    NCCL opens networks in an order, plugins, IB, sockets, and stops at the first one that works (`src/plugin/net.cc`):
    the one that was opened last is in use, even if no line says so.
    """
    if process.networks or not (name := _opened_last(process)):
        return proved
    if name not in INTERNAL:
        return replace(proved, plugin_in_use="yes", network=name)
    gdr: Answer = "no" if name == "Socket" else proved.gdr
    return replace(proved, plugin_in_use="no", provider="none", network=name, gdr=gdr)


def _opened_last(process: ProcessLog) -> str:
    """Return the network that was opened last; NCCL before 2.8 opens sockets for its bootstrap in any case."""
    plugins = sorted(process.opened - INTERNAL)
    if plugins:
        return plugins[0]
    if "IB" in process.opened:
        by_plugin = process.providers or "loaded" in process.messages
        return "" if by_plugin else "IB"
    gave_up = {"failed", "fell back"} & {*process.messages}
    return "Socket" if "Socket" in process.opened and (gave_up or not process.providers) else ""


def join_results(
    verdict: GateOutcome,
    findings: Sequence[Finding],
    gdr: Answer,
    log: Log,
    results: Sequence[ProcessResult],
) -> Result:
    """Join what processes show; `gdr` is what is proved of the run."""
    plugins = {result.plugin_in_use for result in results}
    plugin: Answer = "no" if "no" in plugins else "yes" if "yes" in plugins else "unknown"
    answers = {result.gdr for result in results}
    if "no" in answers:
        gdr = "no"
    elif not any(result.init == "complete" for result in results) and "yes" in answers:
        # Where communicators completed, channels of one direction only are a log that has lost some.
        gdr = "yes"
    result = Result(
        verdict=verdict,
        plugin_in_use=plugin,
        provider=joined(result.provider for result in results),
        network=joined(result.network for result in results),
        gdr=gdr,
        interfaces=_interfaces(zip(log.processes, results, strict=True)),
        processes=tuple(results),
        findings=tuple(findings),
        evidence={},
    )
    return replace(result, evidence=dict(_evidence(log, result)))


def _evidence(log: Log, result: Result) -> Iterator[tuple[str, LogLine | None]]:
    """Yield for each answer the best line: channels, then what says what is used, then what was opened."""

    def first(*facts: tuple[str, str]) -> LogLine | None:
        return next((log.evidence[fact] for fact in facts if fact in log.evidence), None)

    names = sorted(result.network.split(","), key=lambda name: name not in INTERNAL)
    network = first(*((what, name) for name in names for what in ("channel", "used", "opened")))
    gave_up = first(("message", "failed"), ("message", "fell back"))
    carried = network if result.plugin_in_use == "yes" or names[0] in INTERNAL else gave_up
    providers = result.provider.split(",")
    provider = carried if "none" in providers else first(*(("providers", name) for name in providers))
    over = provider if any(map(over_sockets, providers)) else carried
    gdr = {
        "yes": first(("gdr", "True"), ("message", "gdr on")),
        "no": first(("gdr", "False"), ("message", "gdr off"), ("message", "gdr far")) or over,
    }.get(result.gdr)
    devices = ((what, name) for name in result.interfaces for what in ("devices", "adapters", "sockets"))
    yield "plugin_in_use", None if result.plugin_in_use == "unknown" else carried
    yield "provider", provider
    yield "network", network
    yield "gdr", gdr
    yield "interfaces", first(*devices)


def _interfaces(pairs: Iterable[tuple[ProcessLog, ProcessResult]]) -> tuple[str, ...]:
    """Return the devices of the networks in use; the bootstrap interface is not among them."""
    names: dict[str, None] = {}
    for process, result in pairs:
        networks = {*result.network.split(",")} - {"unknown"}
        if networks - INTERNAL or not networks:
            names.update(dict.fromkeys(sorted(process.devices, key=natural)))
        if any(name.startswith(OVER_VERBS) for name in networks):
            names.update(dict.fromkeys(sorted(process.adapters, key=natural)))
        if "Socket" in networks or any(map(over_sockets, process.providers)):
            names.update(process.sockets)
    return tuple(names)


def over_sockets(provider: str) -> bool:
    """Return whether a provider runs over sockets: `tcp` and `tcp;ofi_rxm` alike."""
    return not OVER_SOCKETS.isdisjoint(provider.split(";"))


def joined(names: Iterable[str]) -> str:
    """Return all names that processes have; a process of which nothing is known adds nothing."""
    return ",".join(sorted({part for name in names for part in name.split(",")} - {"unknown"})) or "unknown"
