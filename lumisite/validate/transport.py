"""Decide from the NCCL logs of a run whether its traffic went where it should have gone.

A run passes when every process shows that a fast network carries its traffic: by libfabric's provider where a plugin
for libfabric is in use, by the name of the network elsewhere, over the expected number of NICs, with no communicator on
sockets and with every communicator complete. What the logs do not show is unknown, and unknown is inconclusive, never a
pass; of a run on one node they show nothing about the network between nodes.
"""

from __future__ import annotations

import errno
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING, Literal, TypeAlias

from lumisite.findings.finding import Finding, Severity
from lumisite.findings.writers import sentence
from lumisite.site.cpu_list import format_cpu_list
from lumisite.text import natural, some
from lumisite.validate.nccl_log import Log, Process
from lumisite.vendors import is_built_in

if TYPE_CHECKING:
    from lumisite.validate.lines import GateOutcome

Answer: TypeAlias = Literal["yes", "no", "unknown"]

#: libfabric providers that run over the kernel's TCP or UDP: the plugin is in use and the fabric is not.
OVER_SOCKETS = frozenset({"tcp", "udp", "net"})
#: NCCL's own networks: where one of these is used no plugin carries traffic.
INTERNAL = frozenset({"Socket", "IB"})
#: How the networks of plugins for libfabric are called; others have no provider.
_OF_LIBFABRIC = re.compile("libfabric|ofi", re.IGNORECASE)
#: Processes that a finding names before it only counts them, and missing ranks that it lists.
MOST_PROCESSES, MOST_RANKS = 4, 1000
#: What differs between lines that say the same.
_ADDRESS = re.compile("0x[0-9a-f]+")

LOG_MORE = "run with `NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,NET,ENV`"
FIRST_ERROR = 'find the first error of the run with `grep -n "NCCL WARN" LOG`'

#: The code of data that was not delivered: from libfabric (fi_errno(3)), and the status of InfiniBand (ibv_poll_cq(3)).
_REQUEST_CODE = re.compile(r"RC: (-?\d+)(?:\.(?: Flags: -?\d+\.)? Error: ([^.]{1,60}))?")
_STATUS_CODE = re.compile(r"with (?:error|status)[ =](\d+)")
#: What codes mean. A peer that is gone may have ended by itself, so that its own error comes first.
_GONE = "the peer has ended, or nothing reaches it"
_FOLLOWS = "it was given up because something else failed first"
_FULL = "the network device has no more room for requests"
_REQUEST_MEANINGS: Mapping[int, str] = {
    **dict.fromkeys((errno.ENOTCONN, errno.ECONNRESET, errno.ECONNABORTED, errno.ESHUTDOWN), _GONE),
    **dict.fromkeys((errno.ETIMEDOUT, errno.EHOSTUNREACH, errno.EHOSTDOWN, errno.ENETUNREACH), _GONE),
    **dict.fromkeys((errno.ENOMEM, errno.ENOBUFS, errno.ENOSPC, 268), _FULL),
    **dict.fromkeys((errno.EACCES, errno.EPERM), "the device refused it"),
    errno.EIO: "the network device reported an error",
    errno.ENOSYS: "the provider does not have this function",
    errno.ECANCELED: _FOLLOWS,
    265: "a message was longer than the space for it: ranks did not call the same collectives",
    266: "the peer's memory was not registered any more",
    269: "the receiver was not ready",
}
_STATUS_MEANINGS: Mapping[int, str] = {
    4: "memory was not registered on this side",
    5: _FOLLOWS,
    9: "the peer did not accept the request",
    10: "the peer's memory was not registered any more",
    11: "the peer could not do it",
    12: _GONE,
    13: "the receiver was not ready",
}


@dataclass(frozen=True)
class Expectation:
    """What should carry the traffic; None: any fast network, any number of NICs.

    `provider` is libfabric's name (`verbs`); for a network without libfabric its own name does (`IB`, which also
    carries `RoCE`, `UCX`).
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
    """The verdict of a run, and what its logs show."""

    verdict: GateOutcome
    plugin_in_use: Answer
    provider: str
    network: str
    gdr: Answer
    interfaces: tuple[str, ...]
    processes: tuple[ProcessResult, ...]
    findings: tuple[Finding, ...]

    @property
    def reasons(self) -> tuple[str, ...]:
        """Each finding as a sentence."""
        return tuple(map(sentence, self.findings))


def judge(log: Log, expectation: Expectation) -> Result:
    """Apply the rule to all processes of a run."""
    run = _Run(log, expectation)
    faults: list[Finding] = []
    results: list[ProcessResult] = []
    for process in log.processes:
        result = run.result(process)
        nodes = (process.host,)
        found = [replace(one, subject=str(result), nodes=nodes) for one in run.findings_of(process, result)]
        faults += found
        results.append(replace(result, verdict=_outcome(found)))
    gdr = _join_answers(result.gdr for result in results)
    if expectation.require_gdr and not run.one_node:
        faults += run.findings_of_gdr(results, gdr)
    faults = [*run.findings(faults), *faults]
    verdict = _outcome(faults)
    provider = joined(result.provider for result in results)
    network = joined(result.network for result in results)
    notes = list(run.notes(results))
    if verdict == "pass":
        notes.insert(0, _summary(results, provider, network, gdr))
    return Result(
        verdict=verdict,
        plugin_in_use=_join_answers(result.plugin_in_use for result in results),
        provider=provider,
        network=network,
        gdr=gdr,
        interfaces=_interfaces(zip(log.processes, results, strict=True)),
        processes=tuple(results),
        findings=tuple(_merged([*faults, *notes], {process.host for process in log.processes})),
    )


class _Run:
    """The processes of a run, and what each is judged against."""

    def __init__(self, log: Log, expectation: Expectation) -> None:
        self.log, self.processes, self.expectation = log, log.processes, expectation
        #: The devices that channels between nodes use, by host.
        self.devices: dict[str, set[int]] = {}
        for process in self.processes:
            self.devices.setdefault(process.host, set()).update(channel.device for channel in process.channels)
        self.crossed = any(self.devices.values())
        self.world = max((process.world for process in self.processes), default=0)
        largest = [process for process in self.processes if process.world == self.world]
        seen = {rank for process in largest for rank in process.ranks}
        #: The ranks of the largest communicator that the logs do not have.
        self.missing = self.world - len(seen)
        self.first_missing = list(islice((rank for rank in range(self.world) if rank not in seen), MOST_RANKS))
        counted = max((process.nodes for process in largest), default=0)
        complete = log.within_nodes if not self.world else not self.missing
        #: No traffic used the network: a communicator says that it has one node, or all its ranks are on one.
        self.one_node = not self.crossed and (counted == 1 or (not counted and len(self.devices) == 1 and complete))
        self.completed = sum(process.init == "complete" for process in self.processes)

    def result(self, process: Process) -> ProcessResult:
        """Return what the logs show of a process, before it is judged."""
        networks = _networks(process)
        plugin: Answer = "unknown"
        if not self.one_node and networks:
            plugin = "no" if INTERNAL & {*networks} else "yes"
        elif not networks and _gave_up(process):
            plugin = "no"
        return ProcessResult(
            process=process.name,
            rank=process.rank,
            host=process.host,
            verdict="pass",
            plugin_in_use=plugin,
            provider=_provider(process, networks, plugin),
            network=",".join(networks) or "unknown",
            nics=self._nics(process, networks),
            gdr=self._gdr(process, networks),
            init=process.init,
        )

    def _nics(self, process: Process, networks: Sequence[str]) -> int | None:
        """Return what the plugin or NCCL counted, else how many devices were named or used on the node."""
        if process.counted:
            return max(map(int, process.counted))
        if over_sockets(networks):
            return None
        named = process.devices if process.providers else process.adapters
        return max(len(named), len(self.devices[process.host])) or None

    def _gdr(self, process: Process, networks: Sequence[str]) -> Answer:
        """Judge GPU Direct RDMA of one process: channels first, then the summary of rings, then what says no.

        `Disabled for GPU … / HCA …` is one pair of many: it counts only where no pair is near enough.
        """
        if over_sockets(networks) or over_sockets(process.providers):
            return "no"
        if process.channels:
            return "yes" if all(channel.gdr for channel in process.channels) else "no"
        if "gdr on" in process.messages and not self.one_node:
            return "yes"
        far = "gdr far" in process.messages and "gdr near" not in process.messages
        return "no" if far or "gdr off" in process.messages else "unknown"

    def findings_of_gdr(self, results: Sequence[ProcessResult], gdr: Answer) -> Iterator[Finding]:
        """Yield what is wrong where GPU Direct RDMA is required: it needs proof in both directions."""
        directions = {channel.sends for process in self.processes for channel in process.channels if channel.gdr}
        both_ways = {True, False} <= directions or any("gdr on" in process.messages for process in self.processes)
        advice = "see with `lumisite env IMAGE` what is set for GPU Direct RDMA"
        for process, result in zip(self.processes, results, strict=True):
            if result.gdr == "no" and (process.networks or result.network == "unknown"):
                text, nodes = "no GPU Direct RDMA", (result.host,)
                yield Finding("transport-no-gdr", Severity.FAULT, text, advice, str(result), nodes)
        if gdr == "unknown" or (gdr == "yes" and not both_ways and self.crossed):
            yield _not_shown("nothing proves GPU Direct RDMA in both directions")

    def findings_of(self, process: Process, result: ProcessResult) -> Iterator[Finding]:
        """Yield what keeps a process from passing."""
        if not (self.one_node and process.networks):
            yield from self._of_network(process, result)
        if line := process.messages.get("broken"):
            yield _undelivered(line)
        if process.shared:
            yield Finding(
                "transport-not-shown",
                Severity.DOUBT,
                "several processes have this host and pid, as in containers that number their own processes, so their "
                "lines cannot be separated",
                "give each rank a log of its own, `srun sh -c 'NCCL_DEBUG_FILE=nccl.$SLURM_PROCID exec COMMAND'`",
            )
        yield from self._setup(process, result)

    def _of_network(self, process: Process, result: ProcessResult) -> Iterator[Finding]:
        """Yield what is wrong with the network of a process, or not known of it."""
        networks = process.networks
        if len(networks) > 1 and INTERNAL & {*networks}:
            advice = "compare what both were started with, by `lumisite env IMAGE` and `lumisite lint SCRIPT`"
            yield _wrong_network(f"communicators use different networks: {', '.join(networks)}", advice)
        elif over_sockets(networks) or (not networks and _gave_up(process)):
            yield _without_plugin(process, networks)
        elif not networks:
            yield _unknown_network(process, result)
            yield from self._wrong_providers(process)
        else:
            yield from self._wrong_carrier(process, networks)
            yield from self._wrong_nics(process, result)

    def _wrong_carrier(self, process: Process, networks: Sequence[str]) -> Iterator[Finding]:
        """Yield that the network in use is not the expected one; it is no socket of NCCL's."""
        expected = self.expectation.provider
        names = {name.casefold() for name in networks}
        if any(map(_OF_LIBFABRIC.search, networks)):
            yield from self._wrong_providers(process)
            if not process.providers and (expected is None or expected.casefold() not in names):
                yield _not_shown(f"network {', '.join(networks)} is in use, but no line names its provider")
            return
        of_adapters = expected and is_built_in(expected) and ("IB" in networks or process.adapters)
        if expected and expected.casefold() not in names and not of_adapters:
            yield _without_plugin(process, networks, expected)

    def _wrong_providers(self, process: Process) -> Iterator[Finding]:
        expected = self.expectation.provider
        advice = "see with `lumisite binds IMAGE` whether the host's libfabric and its libraries are bound"
        for name in sorted(process.providers):
            text = ""
            if expected is None and over_sockets([name]):
                text = f"the plugin runs over sockets (provider {name})"
            elif expected is not None and expected not in (name, name.partition(";")[0]):
                text = f"provider is {name}, expected {expected}"
            if text:
                yield _wrong_network(text, advice)

    def _wrong_nics(self, process: Process, result: ProcessResult) -> Iterator[Finding]:
        expected = self.expectation.nics
        if expected is None or result.nics == expected:
            return
        named = [] if process.counted else sorted(process.adapters, key=natural)
        if not named and not process.counted and (result.nics is None or result.nics < expected):
            yield _not_shown(f"nothing shows how many NICs are used, expected {expected}")
        else:
            which = f" ({some(named, 8, ', ')})" if named else ""
            text = f"NICs found: {result.nics}{which}, expected {expected}"
            yield Finding("transport-nics", Severity.FAULT, text, "see on the nodes which are up, with `ip -br link`")

    def _setup(self, process: Process, result: ProcessResult) -> Iterator[Finding]:
        """Yield what is wrong with the communicators of a process."""
        fast = process.networks and not over_sockets(process.networks)
        if result.init == "stuck":
            advice = "`unset NCCL_NET_GDR_LEVEL` in the job script, or try `export NCCL_MAX_NCHANNELS=4`"
            yield Finding("transport-unfinished", Severity.FAULT, "rings are connected, trees never were", advice)
        elif result.init == "aborted":
            yield _unfinished("a communicator was aborted before its setup completed", FIRST_ERROR)
        elif result.init == "unfinished":
            advice = "see with `squeue --me` whether the job still runs, and with `tail LOG` what these did last"
            yield _unfinished("a communicator began and did not complete", advice)
        elif result.init == "unknown" and (self.completed or (fast and not self.crossed | self.one_node)):
            others = f", those of {self.completed} other processes did" if self.completed else " in the log"
            yield _not_shown(f"no communicator completed{others}")

    def findings(self, faults: Sequence[Finding]) -> Iterator[Finding]:
        """Yield what keeps the run as a whole from passing, beside the faults of processes."""
        doubt, log = Severity.DOUBT, self.log
        if (self.one_node and not faults) or (not self.processes and log.within_nodes):
            names = joined(name for process in self.processes for name in process.networks)
            chosen = "" if names == "unknown" else f" ({names})"
            text = f"the run has one node, so no traffic used the network that NCCL chose{chosen}"
            yield Finding("transport-not-shown", doubt, text, "run on two nodes, `srun --nodes=2`")
        elif not self.processes:
            form = "(`HOST:PID:TID [GPU] NCCL INFO …`) names a network" if log.lines else "found"
            yield _not_shown(f"no line of NCCL {form}")
        if self.crossed and not self.world:
            yield _not_shown("the log does not say how many ranks there were")
        if self.missing:
            ranks = format_cpu_list(self.first_missing) + ("…" if self.missing > MOST_RANKS else "")
            text = f"{self.missing} of {self.world} ranks are not in the log: {ranks}"
            yield _not_shown(text, "give the logs of all ranks, `lumisite transport nccl.*`")

    def notes(self, results: Sequence[ProcessResult]) -> Iterator[Finding]:
        """Yield what does not change the verdict."""
        for process, result in zip(self.processes, results, strict=True):
            if line := process.messages.get("refused"):
                text, advice = f"a device could not be opened ({line})", "compare /dev in the container with the node's"
                yield Finding("transport-errors", Severity.INFO, text, advice, str(result))
            if "Socket" in process.networks and process.sockets and not self.one_node:
                yield _note(f"sockets use {', '.join(process.sockets)}", str(result))
        for process, result in zip(self.processes, results, strict=True):
            messages = process.messages
            if "warned" in messages and result.init != "complete" and not {"broken", "failed"} & {*messages}:
                yield _note(f"warned: {messages['warned']}", str(result))
                break
        if results and all(result.init == "unknown" for result in results):
            yield _note("the log does not show whether communicators completed")


def _note(text: str, subject: str = "") -> Finding:
    return Finding("transport-note", Severity.INFO, text, subject=subject)


def _unfinished(text: str, advice: str) -> Finding:
    return Finding("transport-unfinished", Severity.DOUBT, text, advice)


def _not_shown(text: str, advice: str = LOG_MORE) -> Finding:
    return Finding("transport-not-shown", Severity.DOUBT, text, advice)


def _wrong_network(text: str, advice: str) -> Finding:
    return Finding("transport-wrong-network", Severity.FAULT, text, advice)


def _gave_up(process: Process) -> bool:
    """Return whether a process says that it has no plugin, and not that it loaded one later."""
    messages = process.messages
    return "failed" in messages or ("fell back" in messages and "loaded" not in messages)


def _networks(process: Process) -> list[str]:
    """Return the networks in use; where no line says so, the one that was opened last.

    NCCL opens networks in an order, plugins, IB, sockets, and stops at the first one that works (`src/plugin/net.cc`).
    """
    if process.networks:
        return process.networks
    plugins = sorted(process.opened - INTERNAL)
    if plugins:
        return plugins[:1]
    if "IB" in process.opened:
        # A plugin for the same adapters names them in the same words.
        return [] if process.providers or "loaded" in process.messages else ["IB"]
    sockets = "Socket" in process.opened and (_gave_up(process) or not process.providers)
    return ["Socket"] if sockets else []


def _provider(process: Process, networks: Sequence[str], plugin: Answer) -> str:
    """Return libfabric's provider, `none` where the traffic does not go through libfabric."""
    if plugin == "no" or (networks and not any(map(_OF_LIBFABRIC.search, networks))):
        return "none"
    return ",".join(sorted(process.providers)) or "unknown"


def _without_plugin(process: Process, networks: Sequence[str], expected: str = "") -> Finding:
    """Return that another network than the plugin's is in use, with the line that says why."""
    text = f"traffic goes through the network {', '.join(networks)}" if networks else "the plugin is not in use"
    if expected:
        text += f", expected {expected}"
    line = next((process.messages[kind] for kind in ("refused", "failed", "fell back") if kind in process.messages), "")
    text += f" ({line})" if line else ""
    advice = "compare the libraries in the container with `lumisite binds IMAGE`, and its /dev with the node's"
    return _wrong_network(text, advice)


def _unknown_network(process: Process, result: ProcessResult) -> Finding:
    """Return that no line says which network communicators use, with what was chosen or opened."""
    seen = ", ".join(sorted(process.providers)) or process.messages.get("loaded", "")
    if result.network != "unknown":
        seen = f"the one opened last is {result.network}"
    return _not_shown("no line says which network is used" + (f" ({seen})" if seen else ""))


def _undelivered(line: str) -> Finding:
    """Return that data was not delivered, with its code and what that means."""
    advice = "look at the links of these nodes with `ip -s link`, and run `lumisite validate --nodelist NODES`"
    meaning, what = "", line
    if found := _REQUEST_CODE.search(line):
        number = abs(int(found[1]))
        name = errno.errorcode.get(number, "")
        meaning = _REQUEST_MEANINGS.get(number, name)
        what = f"RC {found[1]}" + (f", error {found[2]}" if found[2] else "")
    elif found := _STATUS_CODE.search(line):
        meaning = _STATUS_MEANINGS.get(int(found[1]), "")
        what = f"status {found[1]}"
    if meaning in (_FOLLOWS, _GONE):
        advice = f"{FIRST_ERROR}; {advice}"
    text = f"data was not delivered ({what})" + (f": {meaning}" if meaning else "")
    return Finding("transport-errors", Severity.FAULT, text, advice)


def _interfaces(pairs: Iterable[tuple[Process, ProcessResult]]) -> tuple[str, ...]:
    """Return the devices of the networks in use; the bootstrap interface is not among them."""
    names: dict[str, None] = {}
    for process, result in pairs:
        networks = {*result.network.split(",")} - {"unknown"}
        if networks - INTERNAL or not networks:
            names.update(dict.fromkeys(sorted(process.devices, key=natural)))
        if networks - {"Socket"} and not any(map(_OF_LIBFABRIC.search, networks)):
            names.update(dict.fromkeys(sorted(process.adapters, key=natural)))
        if over_sockets(networks) or over_sockets(process.providers):
            names.update(process.sockets)
    return tuple(names)


def _merged(findings: Iterable[Finding], hosts: set[str]) -> Iterator[Finding]:
    """Yield each finding once, the worst first, with the processes that it is about, and nodes unless all are."""
    order = (Severity.FAULT, Severity.DOUBT, Severity.INFO)
    alike: dict[tuple[str, str], list[Finding]] = {}
    for finding in sorted(findings, key=lambda finding: order.index(finding.severity)):
        alike.setdefault((finding.code, _ADDRESS.sub("", finding.message)), []).append(finding)
    for group in alike.values():
        names = [finding.subject for finding in group if finding.subject]
        nodes = {node for finding in group for node in finding.nodes}
        where = tuple(sorted(nodes, key=natural)) if nodes != hosts else ()
        yield replace(group[0], subject=some(names, MOST_PROCESSES, ", "), nodes=where)


def _summary(results: Sequence[ProcessResult], provider: str, network: str, gdr: Answer) -> Finding:
    hosts, nics = {result.host for result in results}, {result.nics for result in results} - {None}
    text = f"processes: {len(results)}, nodes: {len(hosts)}, network {network}"
    text += f", provider {provider}" if provider != "none" else ""
    text += f", NICs {nics.pop()}" if len(nics) == 1 else ""
    return Finding("transport-fine", Severity.INFO, f"{text}, GPU Direct RDMA {gdr}")


def _outcome(findings: Iterable[Finding]) -> GateOutcome:
    severities = {finding.severity for finding in findings}
    if Severity.FAULT in severities:
        return "fail"
    return "inconclusive" if Severity.DOUBT in severities else "pass"


def _join_answers(answers: Iterable[Answer]) -> Answer:
    found = {*answers}
    return "no" if "no" in found else "yes" if "yes" in found else "unknown"


def over_sockets(names: Iterable[str]) -> bool:
    """Return whether networks or providers are over sockets: `Socket`, `FastSocket`, `tcp` and `tcp;ofi_rxm` alike."""
    parts = {part for name in names for part in name.casefold().split(";")}
    return not OVER_SOCKETS.isdisjoint(parts) or any("socket" in part for part in parts)


def joined(names: Iterable[str]) -> str:
    """Return all names that processes have; a process of which nothing is known adds nothing."""
    return ",".join(sorted({part for name in names for part in name.split(",")} - {"unknown"})) or "unknown"
