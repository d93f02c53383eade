"""What a run is to do: decided once, kept in its run.json, and all that `--resume` needs."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field

from lumisite.errors import ResolveError, SiteError
from lumisite.findings.finding import Finding, Severity
from lumisite.site.json_file import decode_values, parse_json

#: Options of `validate` that a request keeps under their own names, and that the commands to type next have again.
KEPT_OPTIONS = ("account", "reservation", "limit")


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
    backend: str
    partition: str
    folder: str
    site_file: str
    site_digest: str
    stamp: str
    jobs: int
    node_sets: tuple[tuple[str, ...], ...]
    specs: Mapping[str, str]
    """The short hash of what is measured, by the folder of its steps."""
    probes: tuple[str, ...] = ()
    account: str | None = None
    reservation: str | None = None
    sbatch: tuple[str, ...] = ()
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

    def about(self) -> dict[str, object]:
        """Return run.json."""
        spec = hashlib.sha256(json.dumps(sorted(self.specs.items())).encode()).hexdigest()[:12]
        return asdict(self) | {"spec": spec}


def parse_request(data: bytes, file: str) -> RunRequest:
    """Parse run.json; `file` names it in messages. Raises `ResolveError`."""
    try:
        return decode_values(parse_json(data, file), RunRequest, file, (_faults,))
    except SiteError as error:
        raise ResolveError(error.finding) from None


def _faults(request: RunRequest) -> Iterator[Finding]:
    if not request.node_sets:
        yield Finding("value-wrong", Severity.FAULT, "names no nodes", "start a new run", subject="node_sets")
