"""Decide from a run's NCCL log whether its traffic went where it should have gone.

A run passes when every process shows that the network plugin carries the traffic, through the expected libfabric
provider, over the expected number of NICs, with no communicator on sockets and with every communicator complete. What
the log does not show is unknown, and unknown is inconclusive, never a pass.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeAlias

from lumisite.text import counted, natural, some
from lumisite.validate.transport.lines import Process, whole_names
from lumisite.validate.transport.log import Log
from lumisite.validate.transport.shown import (
    INTERNAL,
    OVER_SOCKETS,
    Answer,
    ProcessResult,
    Result,
    joined,
    over_sockets,
    seen,
    with_shown,
)
from lumisite.vendors import is_own, words_of_logs

if TYPE_CHECKING:
    from lumisite.validate.lines import GateOutcome

#: How something counts, what it is, and the process that it is about; empty for the run.
Reason: TypeAlias = "tuple[GateOutcome, str, str]"

#: Provider names that are whole though others begin with them.
PROVIDERS = OVER_SOCKETS | {"shm", *words_of_logs().providers}
#: Names shown in a reason before it only counts.
NAMES_SHOWN = 4
#: What is said of a run that never left its node.
WITHIN = "all channels stay within the node, so nothing shows what would carry traffic between nodes"

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
    reasons: list[Reason] = list(run.reasons())
    results = []
    for process in log.processes:
        result = run.result(process)
        own = list(run.reasons_of(process, result))
        reasons += [(verdict, text, str(result)) for verdict, text in own]
        results.append(replace(result, verdict=_worst(verdict for verdict, _ in own)))
    gdr = run.gdr(results)
    if expectation.require_gdr and gdr == "no":
        reasons += [("fail", "no GPU Direct RDMA", str(result)) for result in results if result.gdr == "no"]
    elif expectation.require_gdr and gdr == "unknown":
        reasons.append(("inconclusive", "nothing proves GPU Direct RDMA in both directions", ""))
    verdict = _worst(verdict for verdict, _, _ in reasons)
    summary = [_summary(results, gdr)] if verdict == "pass" else []
    views = [one if run.one_node else seen(process, one) for process, one in zip(log.processes, results, strict=True)]
    told = (*summary, *_told_once(reasons), *run.notes(results))
    return with_shown(verdict, told, gdr, log, views, seen(log.loose, run.result(log.loose)))


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
        self.missing = sorted(set(range(self.world)) - seen)
        self.crossed = any(self.devices.values())
        self.one_node = log.within_nodes and not self.crossed and len(self.devices) == 1 and not self.missing
        self.completes = any(process.init == "complete" for process in self.processes)
        self.known = {name for process in self.processes for name in process.providers}

    def result(self, process: Process) -> ProcessResult:
        """Say what the log shows of a process, before it is judged."""
        plugin = self._plugin(process)
        return ProcessResult(
            process=process.name,
            rank=process.rank,
            host=process.host,
            verdict="pass",
            plugin_in_use=plugin,
            provider="none" if plugin == "no" else ",".join(self._providers(process)) or "unknown",
            network=",".join(process.networks) or "unknown",
            nics=self._nics(process),
            gdr=self._gdr(process),
            init=process.init,
        )

    def _plugin(self, process: Process) -> Answer:
        if not INTERNAL.isdisjoint(process.networks):
            return "no"
        if process.networks:
            return "unknown" if self.one_node else "yes"
        if "failed" in process.told or ("fell back" in process.told and "loaded" not in process.told):
            return "no"
        return "unknown"

    def _providers(self, process: Process) -> list[str]:
        return whole_names(process.providers, PROVIDERS, self.known)

    def _nics(self, process: Process) -> int | None:
        """Give what the plugin or NCCL's own network counted, else how many devices were named or used on the node."""
        if "IB" in process.networks:
            return len(process.adapters) or None
        if process.counted or not process.providers:
            return max(process.counted, default=None)
        return max(len(process.devices), len(self.devices.get(process.host, ()))) or None

    def _gdr(self, process: Process) -> Answer:
        """Judge GPU Direct RDMA of one process: channels first, then the summary of rings, then what says no.

        `Disabled for GPU … / HCA …` is one pair of many: it counts only where no pair is near enough.
        """
        if "Socket" in process.networks or any(map(over_sockets, self._providers(process))):
            return "no"
        told = [channel.gdr for channel in process.channels if channel.gdr is not None]
        if told:
            return "yes" if all(told) else "no"
        if "gdr on" in process.told and not self.one_node:
            return "yes"
        far = "gdr far" in process.told and "gdr near" not in process.told
        return "no" if far or "gdr off" in process.told else "unknown"

    def gdr(self, results: Sequence[ProcessResult]) -> Answer:
        """Judge the run: no process without it, and proof in both directions."""
        if any(result.gdr == "no" for result in results):
            return "no"
        if not self.crossed:
            return "yes" if results and all(result.gdr == "yes" for result in results) else "unknown"
        told = {channel.sends for process in self.processes for channel in process.channels if channel.gdr}
        both_ways = {True, False} <= told or any("gdr on" in process.told for process in self.processes)
        pairs = zip(results, self.processes, strict=True)
        proved = all(result.gdr == "yes" or not process.channels for result, process in pairs)
        return "yes" if both_ways and proved else "unknown"

    def reasons_of(self, process: Process, result: ProcessResult) -> Iterator[tuple[GateOutcome, str]]:
        """Say what keeps a process from passing."""
        if result.plugin_in_use == "no":
            yield from self._own_network(process, result)
        else:
            if result.plugin_in_use == "unknown":
                yield "inconclusive", self._unknown_plugin(process)
            yield from self._wrong_provider(process, result)
            yield from self._wrong_nics(process, result)
        if "broken" in process.told:
            yield "fail", f"the plugin reports errors ({_shortened(process.told['broken'])})"
        if result.init == "stuck":
            yield "fail", "rings are connected and trees never were: communicator setup hangs"
        elif result.init == "unfinished":
            yield "inconclusive", "a communicator began and never completed: it hangs, or the log ends too early"
        elif result.init == "unknown" and self.completes:
            yield "inconclusive", "no communicator completed, while those of other processes did"
        elif result.init == "unknown" and result.plugin_in_use == "yes" and not self.crossed:
            yield "inconclusive", "nothing shows that a communicator was set up"

    def _own_network(self, process: Process, result: ProcessResult) -> Iterator[tuple[GateOutcome, str]]:
        """Say that NCCL's own network is in use, unless that is the right one, over all of its adapters."""
        networks = " and ".join(process.networks)
        if len(process.networks) > 1:
            yield "fail", f"communicators use different networks, {networks}"
        elif networks == "IB" and is_own(self.expectation.provider or ""):
            yield from self._wrong_nics(process, result)
        else:
            verb = "NCCL chose its" if self.one_node else "traffic goes through NCCL's"
            what = f"{verb} own network {networks}" if networks else "the plugin is not in use"
            why = process.told.get("failed") or process.told.get("fell back")
            yield "fail", f"{what} ({_shortened(why)})" if why else what

    def _unknown_plugin(self, process: Process) -> str:
        if self.one_node and process.networks:
            return WITHIN
        if not process.providers and "loaded" not in process.told:
            return "nothing shows which network is used"
        did = f"chose {','.join(sorted(process.providers))}" if process.providers else "was loaded"
        return f"the plugin {did}, but nothing shows that traffic goes through it"

    def _wrong_provider(self, process: Process, result: ProcessResult) -> Iterator[tuple[GateOutcome, str]]:
        """Find what the plugin should not have chosen; where it is not in use in the end, sockets or IB are."""
        expected, providers = self.expectation.provider, self._providers(process)
        if not providers and result.plugin_in_use == "yes":
            names = {name.casefold() for name in process.networks}
            if expected is None or names != {expected.casefold()}:
                networks = " and ".join(process.networks)
                yield "inconclusive", f"network {networks} is in use, but no line names its provider"
        for name in providers:
            if expected is None and over_sockets(name):
                yield "fail", f"the plugin runs over sockets, provider {name}"
            elif expected is not None and expected not in (name, name.partition(";")[0]):
                yield "fail", f"provider is {name}, expected {expected}"

    def _wrong_nics(self, process: Process, result: ProcessResult) -> Iterator[tuple[GateOutcome, str]]:
        expected = self.expectation.nics
        if expected is None or result.nics == expected:
            return
        if process.adapters and "IB" in process.networks:
            names = " ".join(sorted(process.adapters, key=natural))
            yield "fail", f"NCCL uses {counted(len(process.adapters), 'adapter')} ({names}), expected {expected}"
        elif not process.counted and (result.nics is None or result.nics < expected):
            who = "NCCL" if "IB" in process.networks else "the plugin"
            yield "inconclusive", f"nothing shows how many NICs {who} found, expected {expected}"
        else:
            yield "fail", f"the plugin found {result.nics} NICs, expected {expected}"

    def reasons(self) -> Iterator[Reason]:
        """Say what keeps the run as a whole from passing."""
        log = self.log
        if not self.processes:
            what = "the lines of NCCL say nothing of the network" if log.lines else "no line of NCCL found"
            hint = "run with NCCL_DEBUG=INFO, NCCL_DEBUG_SUBSYS=INIT,NET,ENV"
            yield "inconclusive", WITHIN if log.within_nodes else f"{what} ({hint})", ""
        elif log.bare:
            cut = "messages have been cut out of a log: nothing shows how many processes there were"
            yield "inconclusive", cut, ""
        silent = [str(rank) for rank in sorted(log.ends) if not log.ends[rank]]
        if self.crossed and not self.world and (silent or not log.ends):
            which = f": {some(silent, NAMES_SHOWN, ', ')}" if silent else ""
            yield "inconclusive", f"channels lead to ranks that say nothing in the log{which}", ""
        if self.missing:
            shown = ", ".join(map(str, self.missing[:NAMES_SHOWN])) + (", …" if len(self.missing) > NAMES_SHOWN else "")
            hint = "; Ray left repeated lines out, set RAY_DEDUP_LOGS=0" if log.dropped else ""
            yield "inconclusive", f"{len(self.missing)} of {self.world} ranks say nothing in the log: {shown}{hint}", ""

    def notes(self, results: Sequence[ProcessResult]) -> Iterator[str]:
        """Say what does not change the verdict."""
        sockets = next((one.sockets for one in self.processes if "Socket" in one.networks and one.sockets), None)
        if sockets:
            yield f"sockets use {', '.join(sockets)}"
        if self.expectation.provider is None and any("IB" in process.networks for process in self.processes):
            yield "IB is NCCL's own network and no plugin: where it is the right one, say --expect IB"
        for result, told in zip(results, (process.told for process in self.processes), strict=True):
            if "warned" in told and result.init != "complete" and not {"broken", "failed"} & {*told}:
                yield f"{result} warned: {_shortened(told['warned'])}"
                break
        if results and all(result.init == "unknown" for result in results):
            yield "the log does not show whether communicators completed (it has no INIT lines of that)"


def _told_once(reasons: Iterable[Reason]) -> Iterator[str]:
    """Say each thing once, the worst first, with the processes that it is about."""
    alike: dict[tuple[GateOutcome, str], tuple[str, list[str]]] = {}
    for verdict, text, process in reasons:
        alike.setdefault((verdict, _ADDRESS.sub("", text)), (text, []))[1].append(process)
    for _, (text, processes) in sorted(alike.items(), key=lambda one: one[0][0] != "fail"):
        names = [name for name in processes if name]
        yield f"{text}: {some(names, NAMES_SHOWN, ', ')}" if names else text


def _summary(results: Sequence[ProcessResult], gdr: Answer) -> str:
    nodes = len({result.host for result in results})
    nics = {result.nics for result in results}
    counted = f", {nics.pop()} NICs" if len(nics) == 1 and None not in nics else ""
    return (
        f"{len(results)} process{'es' if len(results) > 1 else ''} on {nodes} node{'s' if nodes > 1 else ''}: provider "
        f"{joined(result.provider for result in results)}, network {joined(result.network for result in results)}"
        f"{counted}, GPU Direct RDMA {gdr}"
    )


def _worst(verdicts: Iterable[GateOutcome]) -> GateOutcome:
    found = set(verdicts)
    return "fail" if "fail" in found else "inconclusive" if "inconclusive" in found else "pass"


def _shortened(text: str) -> str:
    """Give a line of the log, or as much of it as a reason has room for."""
    return text if len(text) <= 120 else text[:117] + "…"
