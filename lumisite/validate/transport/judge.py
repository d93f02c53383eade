"""Decide from a run's NCCL log whether its traffic went where it should have gone.

A run passes when every process shows that the network plugin carries the traffic, through the expected libfabric
provider, over the expected number of NICs, with no communicator on sockets and with every communicator complete. What
the log does not show is unknown, and unknown is inconclusive, never a pass.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING

from lumisite.findings.catalogue import make_finding
from lumisite.findings.finding import Finding, Severity, with_values
from lumisite.text import natural, some
from lumisite.validate.transport.communicators import left_behind
from lumisite.validate.transport.lines import ProcessLog
from lumisite.validate.transport.log import Log
from lumisite.validate.transport.result import (
    INTERNAL,
    Answer,
    ProcessResult,
    Result,
    join_results,
    joined,
    over_sockets,
    with_opened,
)
from lumisite.vendors import is_built_in

if TYPE_CHECKING:
    from lumisite.validate.lines import GateOutcome

#: Processes that a finding names before it only counts them.
MOST_PROCESSES = 4
#: Ranks that a finding lists.
MOST_RANKS = 1000

#: What differs between lines that say the same.
_ADDRESS = re.compile("0x[0-9a-f]+")


@dataclass(frozen=True)
class Expectation:
    """What should carry the traffic; None: any provider but those over sockets, any number of NICs.

    `provider` is libfabric's name (`verbs`); for a network without libfabric its own name does (`IB`, which also
    carries `RoCE`, `UCX`).
    """

    provider: str | None = None
    nics: int | None = None
    require_gdr: bool = False


def judge(log: Log, expectation: Expectation) -> Result:
    """Apply the rule to all processes of a run."""
    run = _Run(log, expectation)
    faults = list(run.findings())
    results = []
    for process in log.processes:
        result = run.result(process)
        opened = result if run.one_node else with_opened(process, result)
        judged = _with_network(run.findings_of(process, result), opened.network)
        found = [replace(finding, subject=str(result)) for finding in judged]
        faults += found
        results.append(replace(result, verdict=_outcome(found)))
    gdr = run.gdr(results)
    if expectation.require_gdr and gdr == "no":
        faults += [make_finding("transport-no-gdr", str(result)) for result in results if result.gdr == "no"]
    elif expectation.require_gdr and gdr == "unknown":
        faults.append(make_finding("transport-gdr-unproved"))
    verdict = _outcome(faults)
    summary = [_summary(results, gdr)] if verdict == "pass" else []
    findings = (*summary, *_merged(faults), *run.notes(results))
    views = results
    if not run.one_node:
        views = [with_opened(process, result) for process, result in zip(log.processes, results, strict=True)]
    return join_results(verdict, findings, gdr, log, views)


class _Run:
    """The processes of a run, and what each is judged against. `devices`: those that channels use, by host."""

    def __init__(self, log: Log, expectation: Expectation) -> None:
        self.log, self.processes, self.expectation = log, log.processes, expectation
        self.devices: dict[str, set[int]] = {}
        for process in self.processes:
            self.devices.setdefault(process.host, set()).update(channel.device for channel in process.channels)
        self.world = max((process.world for process in self.processes), default=0)
        seen = {rank for process in self.processes if process.world == self.world for rank in process.ranks}
        #: The ranks of the largest communicator that the log does not have.
        self.missing = self.world - len(seen)
        self.first_missing = tuple(islice((rank for rank in range(self.world) if rank not in seen), MOST_RANKS))
        self.left_behind = dict(self._left_behind())
        self.crossed = any(self.devices.values())
        self.one_node = log.within_nodes and not self.crossed and len(self.devices) == 1 and not self.missing
        self.completed = sum(process.init == "complete" for process in self.processes)

    def result(self, process: ProcessLog) -> ProcessResult:
        """Return what the log shows of a process, before it is judged."""
        plugin = self._plugin(process)
        return ProcessResult(
            process=process.name,
            rank=process.rank,
            host=process.host,
            verdict="pass",
            plugin_in_use=plugin,
            provider="none" if plugin == "no" else ",".join(sorted(process.providers)) or "unknown",
            network=",".join(process.networks) or "unknown",
            nics=self._nics(process),
            gdr=self._gdr(process),
            init=process.init,
        )

    def _plugin(self, process: ProcessLog) -> Answer:
        if not INTERNAL.isdisjoint(process.networks):
            return "no"
        if process.networks:
            return "unknown" if self.one_node else "yes"
        gave_up = "fell back" in process.messages and "loaded" not in process.messages
        return "no" if gave_up or "failed" in process.messages else "unknown"

    def _nics(self, process: ProcessLog) -> int | None:
        """Return what the plugin or NCCL counted, else how many devices were named or used on the node."""
        if "IB" in process.networks:
            return len(process.adapters) or None
        if process.counted or not process.providers:
            return max(process.counted, default=None)
        return max(len(process.devices), len(self.devices.get(process.host, ()))) or None

    def _gdr(self, process: ProcessLog) -> Answer:
        """Judge GPU Direct RDMA of one process: channels first, then the summary of rings, then what says no.

        `Disabled for GPU … / HCA …` is one pair of many: it counts only where no pair is near enough.
        """
        if "Socket" in process.networks or any(map(over_sockets, process.providers)):
            return "no"
        on_channels = [channel.gdr for channel in process.channels]
        if on_channels:
            return "yes" if all(on_channels) else "no"
        if "gdr on" in process.messages and not self.one_node:
            return "yes"
        far = "gdr far" in process.messages and "gdr near" not in process.messages
        return "no" if far or "gdr off" in process.messages else "unknown"

    def gdr(self, results: Sequence[ProcessResult]) -> Answer:
        """Judge the run: no process without it, and proof in both directions."""
        if any(result.gdr == "no" for result in results):
            return "no"
        if not self.crossed:
            return "yes" if results and all(result.gdr == "yes" for result in results) else "unknown"
        directions = {channel.sends for process in self.processes for channel in process.channels if channel.gdr}
        both_ways = {True, False} <= directions or any("gdr on" in process.messages for process in self.processes)
        pairs = zip(results, self.processes, strict=True)
        proved = all(result.gdr == "yes" or not process.channels for result, process in pairs)
        return "yes" if both_ways and proved else "unknown"

    def findings_of(self, process: ProcessLog, result: ProcessResult) -> Iterator[Finding]:
        """Yield what keeps a process from passing."""
        if result.plugin_in_use == "no":
            yield from self._without_plugin(process, result)
        else:
            if result.plugin_in_use == "unknown":
                yield self._network_unknown(process)
            yield from self._wrong_provider(process, result)
            yield from self._wrong_nics(process, result)
        if "broken" in process.messages:
            yield make_finding("transport-plugin-errors", line=process.messages["broken"])
        if process.name in self.left_behind:
            yield self.left_behind[process.name]
        elif result.init == "stuck":
            yield make_finding("transport-setup-stuck")
        elif result.init == "aborted":
            yield make_finding("transport-setup-aborted")
        elif result.init == "unfinished":
            yield make_finding("transport-setup-unfinished")
        elif result.init == "unknown" and self.completed:
            yield make_finding("transport-setup-not-seen", completed=self.completed)
        elif result.init == "unknown" and result.plugin_in_use == "yes" and not self.crossed:
            yield make_finding("transport-setup-not-seen")

    def _without_plugin(self, process: ProcessLog, result: ProcessResult) -> Iterator[Finding]:
        """Yield that NCCL's own network is in use, unless that is the right one, over all of its adapters."""
        networks = tuple(process.networks)
        if len(networks) > 1:
            yield make_finding("transport-mixed-networks", networks=networks)
        elif networks == ("IB",) and is_built_in(self.expectation.provider or ""):
            yield from self._wrong_nics(process, result)
        else:
            code = "transport-own-network-one-node" if self.one_node and networks else "transport-own-network"
            line = process.messages.get("failed") or process.messages.get("fell back") or ""
            yield make_finding(code, networks=networks, line=line)

    def _network_unknown(self, process: ProcessLog) -> Finding:
        if self.one_node and process.networks:
            return make_finding("transport-one-node")
        providers, line = tuple(sorted(process.providers)), process.messages.get("loaded", "")
        return make_finding("transport-network-unknown", providers=providers, line=line)

    def _wrong_provider(self, process: ProcessLog, result: ProcessResult) -> Iterator[Finding]:
        """Yield what the plugin should not have chosen; where it is not in use in the end, sockets or IB are."""
        expected, providers = self.expectation.provider, sorted(process.providers)
        if not providers and result.plugin_in_use == "yes":
            names = {name.casefold() for name in process.networks}
            if expected is None or names != {expected.casefold()}:
                yield make_finding("transport-provider-unknown", networks=tuple(process.networks))
        for name in providers:
            if expected is None and over_sockets(name):
                yield make_finding("transport-over-sockets", provider=name)
            elif expected is not None and expected not in (name, name.partition(";")[0]):
                yield make_finding("transport-provider-wrong", provider=name, expected=expected)

    def _wrong_nics(self, process: ProcessLog, result: ProcessResult) -> Iterator[Finding]:
        expected = self.expectation.nics
        if expected is None or result.nics == expected:
            return
        adapters = tuple(sorted(process.adapters, key=natural)) if "IB" in process.networks else ()
        if not adapters and not process.counted and (result.nics is None or result.nics < expected):
            yield make_finding("transport-nics-unknown", expected=expected)
        else:
            yield make_finding("transport-nics-wrong", nics=result.nics, adapters=adapters, expected=expected)

    def findings(self) -> Iterator[Finding]:
        """Yield what keeps the run as a whole from passing."""
        log = self.log
        if not self.processes and log.within_nodes:
            yield make_finding("transport-one-node")
        elif not self.processes:
            yield make_finding("transport-no-network-lines" if log.lines else "transport-no-log")
        ray = "RAY_DEDUP_LOGS=0" if log.dropped else ""
        if self.crossed and not self.world:
            yield make_finding("transport-ranks-missing", ray=ray, subsystems="INIT,NET,ENV")
        if self.missing:
            ranks = self.first_missing
            yield make_finding("transport-ranks-missing", missing=self.missing, world=self.world, ranks=ranks, ray=ray)

    def _left_behind(self) -> Iterator[tuple[str, Finding]]:
        """Yield the processes in which a communicator has not ended that has ended in others."""
        if self.log.torn:
            return
        found: dict[str, Finding] = {}
        for communicator, members in left_behind(self.log.communicators):
            names = sorted({name for _, name, _ in members}, key=natural)
            if names and not found.keys() >= {*names}:
                finding = make_finding(
                    "transport-not-ended",
                    communicator=communicator.label,
                    world=communicator.world,
                    ended=sum(communicator.members.values()),
                    ranks=tuple(sorted(rank for rank, _, _ in members)[:MOST_RANKS]),
                    process=names[0],
                )
                found.update({name: finding for name in names if name not in found})
        yield from found.items()

    def notes(self, results: Sequence[ProcessResult]) -> Iterator[Finding]:
        """Yield what does not change the verdict."""
        with_sockets = (process for process in self.processes if "Socket" in process.networks and process.sockets)
        if process := next(with_sockets, None):
            yield make_finding("transport-interfaces", interfaces=tuple(process.sockets))
        if self.expectation.provider is None and any("IB" in process.networks for process in self.processes):
            yield make_finding("transport-ib-is-own")
        for result, process in zip(results, self.processes, strict=True):
            messages = process.messages
            if "warned" in messages and result.init != "complete" and not {"broken", "failed"} & {*messages}:
                yield make_finding("transport-warned", str(result), line=messages["warned"])
                break
        if results and all(result.init == "unknown" for result in results):
            yield make_finding("transport-setup-not-logged")


def _with_network(findings: Iterable[Finding], network: str) -> Iterator[Finding]:
    """Yield the findings; that nothing shows the network is said only where no answer names one."""
    for finding in findings:
        if finding.code == "transport-network-unknown" and network != "unknown":
            yield make_finding("transport-network-opened", network=network)
        else:
            yield finding


def _merged(faults: Iterable[Finding]) -> Iterator[Finding]:
    """Yield each finding once, the worst first, with the processes that it is about."""
    alike: dict[tuple[str, str], list[Finding]] = {}
    for finding in sorted(faults, key=lambda finding: finding.severity is not Severity.FAULT):
        same = _ADDRESS.sub("", repr(sorted(finding.values.items())))
        alike.setdefault((finding.code, same), []).append(finding)
    for finding, *others in alike.values():
        if names := tuple(other.subject for other in (finding, *others) if other.subject):
            yield with_values(replace(finding, subject=some(names, MOST_PROCESSES, ", ")), {"processes": names})
        else:
            yield finding


def _summary(results: Sequence[ProcessResult], gdr: Answer) -> Finding:
    nics = {result.nics for result in results}
    return make_finding(
        "transport-as-expected",
        processes=len(results),
        count=len({result.host for result in results}),
        provider=joined(result.provider for result in results),
        network=joined(result.network for result in results),
        nics=nics.pop() if len(nics) == 1 else None,
        gdr=gdr,
    )


def _outcome(findings: Iterable[Finding]) -> GateOutcome:
    severities = {finding.severity for finding in findings}
    if Severity.FAULT in severities:
        return "fail"
    return "inconclusive" if Severity.DOUBT in severities else "pass"
