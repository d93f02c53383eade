"""What a run is to do: decided once, kept in its run.json, and all that `--resume` needs."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from lumisite.errors import ResolveError, SiteError
from lumisite.findings.finding import Finding, Severity
from lumisite.site.json_file import decode_values, parse_json


@dataclass(frozen=True)
class RunRequest:
    """What a run is to do: `jobs` on `node_sets` in turn, named by `stamp`; without `probes` they run all."""

    lumisite: str
    site: str
    platform: str
    purpose: str
    image: str
    image_digest: str
    started: str
    partition: str
    folder: str
    site_file: str
    site_digest: str
    stamp: str
    jobs: int
    node_sets: tuple[tuple[str, ...], ...]
    probes: tuple[str, ...] = ()
    sbatch: tuple[str, ...] = ()
    """What sbatch gets beside what follows from the site."""
    limit: int | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    """What is set in all steps."""
    before: tuple[str, ...] = ()
    into: str | None = None
    step_nodes: int | None = None
    """Into jobs of how many nodes a machine is divided, each of which is measured once."""

    @property
    def nodes(self) -> tuple[str, ...]:
        """All nodes, in the order in which they were chosen."""
        return tuple(dict.fromkeys(node for nodes in self.node_sets for node in nodes))


def request_json(request: RunRequest) -> str:
    """Return run.json."""
    return json.dumps(vars(request), indent=1) + "\n"


def parse_request(data: bytes, file: str) -> RunRequest:
    """Parse run.json; `file` names it in messages. Raises `ResolveError`."""
    try:
        return decode_values(parse_json(data, file), RunRequest, file, (_faults,))
    except SiteError as error:
        raise ResolveError(error.finding) from None


def _faults(request: RunRequest) -> Iterator[Finding]:
    if not request.node_sets:
        yield Finding("value-wrong", Severity.FAULT, "names no nodes", "start a new run", subject="node_sets")
