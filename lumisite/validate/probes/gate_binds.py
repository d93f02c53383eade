"""Judge the `binds` probe: what containers see of each node, and which communication libraries a program gets."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from lumisite.validate.probes.findings import (
    Fault,
    Finding,
    JobShape,
    Record,
    by_rank,
    counted,
    findings,
    in_image,
    missing,
    rows,
    table,
    text,
    value_at,
)

GATE = "binds"


@dataclass(frozen=True)
class ExpectedBind:
    """A host path, where it stands in the container, and who binds it."""

    path: str
    target: str
    by: str
    required: bool
    why: str


@dataclass(frozen=True)
class ExpectedBinds:
    """What the image's family needs; `plugins` are file names of which one must open, empty where none is used.

    `library_from` says for a SONAME whether it must come from the image or the host; `imports` are the frameworks.
    """

    binds: tuple[ExpectedBind, ...]
    family: str
    imports: tuple[str, ...]
    plugins: tuple[str, ...]
    plugin_from: Literal["image", "host"]
    library_from: Mapping[str, Literal["image", "host"]]


def judge_binds(records: Sequence[Record], expected: ExpectedBinds, job: JobShape) -> tuple[Finding, ...]:
    """Judge the records of the nodes (`part` host) and of the containers on them (`part` container)."""
    hosts = {text(record, "host"): record for record in records if text(record, "part") == "host"}
    inside = by_rank(record for record in records if text(record, "part") == "container")
    faults = missing(list(hosts.values()), job, each="node", what="the look at the node itself")
    for node in job.nodes:
        faults += [Fault(cause, advice, node) for cause, advice in _of_host(hosts.get(node, {}), expected)]
    explained = {fault.node for fault in faults}
    faults += [
        fault
        for fault in missing(inside, job, each="node", what="the container")
        # A runtime that misses the source of a bind does not start, and that has been told.
        if fault.node not in explained
    ]
    for record in inside:
        node = text(record, "host")
        found = (*_of_container(record, hosts.get(node, {}), expected), *_of_libraries(record, expected))
        faults += [Fault(cause, advice, node) for cause, advice in found]
    passed = f"{counted(len(expected.binds), 'bind')} are the host's own on {counted(len(job.nodes), 'node')}"
    return findings(GATE, faults, f"{passed}; {_said(inside, expected)}", job)


def _of_host(record: Record, expected: ExpectedBinds) -> Iterator[tuple[str, str]]:
    for bind in expected.binds:
        if bind.required and value_at(record, "paths", bind.path, "exists") is False:
            yield (
                f"the node lacks {bind.path}, which containers need ({bind.why})",
                f"drain the node until {bind.path} is there; or take it out of the site's binds if it is gone for good",
            )


def _of_container(record: Record, host: Record, expected: ExpectedBinds) -> Iterator[tuple[str, str]]:
    if value_at(record, "in_container") is not True:
        yield "the probe ran outside a container", "start it as `srun … singularity exec IMAGE …`"
        return
    for bind in expected.binds:
        there = value_at(host, "paths", bind.path, "exists") is True
        if not there:
            continue
        inside = table(record, "paths", bind.target)
        by = f"the module {bind.by}" if bind.by != "task" else "the srun helper"
        advice = f"load {bind.by}" if bind.by != "task" else "see LUMISITE_VERBOSE=1 srun …; is LUMISITE=off set?"
        if value_at(inside, "exists") is not True:
            yield f"{bind.target} is on the node but not in the container, though {by} binds it ({bind.why})", advice
        elif text(inside, "file") != text(host, "paths", bind.path, "file"):
            met, right = text(inside, "file"), text(host, "paths", bind.path, "file")
            cause = f"{bind.target} in the container is another file ({met}) than the host's {bind.path} ({right})"
            yield f"{cause}, though {by} binds it", advice


def _of_libraries(record: Record, expected: ExpectedBinds) -> Iterator[tuple[str, str]]:
    for name in expected.imports:
        told = text(record, "imports", name)
        if told.startswith("error: "):
            yield f"{name} cannot be imported: {told[7:]}", f"use an image with {name}, or repair this one"
    refusals = table(record, "plugins")
    if expected.plugins and all(refusals.get(name) != "" for name in expected.plugins):
        words = "; ".join(str(refusals.get(name, "not tried")) for name in expected.plugins)
        advice = f"family {expected.family} has it from the {expected.plugin_from}: see `lumisite binds IMAGE`"
        yield f"no OFI plugin opens, so the traffic falls back to TCP: {words}", advice
    elif expected.plugins:
        yield from _wrong_origins(record, dict.fromkeys(expected.plugins, expected.plugin_from), expected)
    for name in expected.library_from:
        refusal = text(record, "libraries", name)
        if refusal:
            yield f"{name} does not open: {refusal}", "see `lumisite binds IMAGE` for what the image lacks"
    yield from _wrong_origins(record, expected.library_from, expected)


def _wrong_origins(
    record: Record, wanted: Mapping[str, Literal["image", "host"]], expected: ExpectedBinds
) -> Iterator[tuple[str, str]]:
    for soname, place in wanted.items():
        for path, met in _mapped(record):
            if path.rpartition("/")[2].startswith(soname) and met != place:
                yield (
                    f"{soname} is {path} from the {met}; family {expected.family} needs it from the {place}",
                    "see LD_LIBRARY_PATH inside the container, and `lumisite binds IMAGE`",
                )


def _mapped(record: Record) -> Iterator[tuple[str, Literal["image", "host"]]]:
    """Give each library in use and where it comes from."""
    for row in rows(record, "mapped"):
        yield text(row, "path"), "image" if in_image(row) else "host"


def _said(records: Sequence[Record], expected: ExpectedBinds) -> str:
    """Say which libraries carry the traffic; those of a framework that uses none are told all the same."""
    told = {
        f"{path.rpartition('/')[2]} from the {met} ({path})"
        for record in records
        for path, met in _mapped(record)
        if any(word in path.rpartition("/")[2] for word in ("rccl", "nccl", "libfabric", "libcxi"))
    }
    return ("in use: " + ", ".join(sorted(told))) if told else "no library of the network is in use"
