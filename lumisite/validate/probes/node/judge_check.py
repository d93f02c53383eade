"""Judge what `check --host` says on each node (job_check.sh): each node by itself, by site description and release.

What half of the nodes or all have is a fault of the release or the system, not of each node. Of a node on which the
check did not run, no fault is concluded.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from lumisite.findings.finding import Finding, Severity, place_severity
from lumisite.machine.tree import is_under
from lumisite.paths import CURRENT, RELEASES
from lumisite.text import some
from lumisite.validate.probes.outcome import DRAIN, Located
from lumisite.validate.probes.probe import CHECK, COMMON, NAMED_NODES, TEXT, Record, Srun
from lumisite.validate.probes.records import rows, text

#: What the step is called.
CHECKED = "check"
#: Without a TaskProlog the helper is on for who loads the module, as the jobs of a run do.
_CHOICE = "slurm-prolog"
#: Severities of the check that condemn the node or the release.
_CONDEMNING = (Severity.NODE.value, Severity.FAULT.value)


def check_of_node() -> Srun:
    """Return the srun in which each node is checked: before any module, by the Python that started the run."""
    return Srun("node_check.sh", ("sh", "-c", TEXT), (CHECK,), (COMMON,), each="node", name=CHECKED, bare=True)


def checked_nodes(checks: Mapping[str, Record], known: Sequence[Located], release: str) -> Iterator[Located]:
    """Yield what the check found on nodes, but for what follows from what is `known` of the node already.

    `checks` are records by node, `release` is the link to the release in force.
    """
    reported: dict[str, list[str]] = {}
    for entry in known:
        subject = entry.finding.subject
        # Several interfaces, or `mount options of /tmp`.
        paths = [word for word in subject.split() if word.startswith("/")]
        reported.setdefault(entry.node, []).extend([*subject.split(", "), *paths])
    answered = {name: list(_faults(check)) for name, check in checks.items() if not _why_not(check)}
    counts = Counter(_key(fault) for faults in answered.values() for fault in faults)
    for name, faults in answered.items():
        for fault in faults:
            severity = place_severity(counts[_key(fault)], len(answered))
            if severity is Severity.FAULT and text(fault, "code") == _CHOICE:
                continue
            if not any(_is_same(fault, subject, release) for subject in reported.get(name, ())):
                yield Located(_finding(fault, severity), name)


def unchecked(checks: Mapping[str, Record], nodes: Sequence[str]) -> str:
    """Return on which of some nodes the check did not run, and why; empty where it ran on all."""
    why = {name: _why_not(checks.get(name)) for name in nodes}
    lacking = [name for name in nodes if why[name]]
    if not lacking:
        return ""
    return f"`check --host` did not run on {some(lacking, NAMED_NODES, ', ')}: {why[lacking[0]]}"


def _why_not(check: Record | None) -> str:
    if check is None:
        return "no answer"
    if check.get("faults") is not None:
        return ""
    return "its time was over" if check.get("code") == 124 else text(check, "words") or "no answer"


def _faults(check: Record) -> Iterator[Record]:
    """Yield what condemns a node or the release."""
    for fault in rows(check, "faults"):
        if fault["severity"] in _CONDEMNING:
            yield fault


def _key(fault: Record) -> tuple[str, str]:
    return text(fault, "path"), text(fault, "code")


def _finding(fault: Record, severity: Severity) -> Finding:
    advice = text(fault, "remedy") + (DRAIN if severity is Severity.NODE else "")
    path, code = text(fault, "path"), text(fault, "code")
    return Finding("node-check", severity, text(fault, "found"), advice, subject=path, cause=code)


def _is_same(fault: Record, subject: str, release: str) -> bool:
    """Return whether a fault is that of a subject: the same, below or above it, or needed by one of these."""
    path, needed_by = text(fault, "path"), text(fault, "expected")
    # The check names files of a release by the release's own folder.
    folder = f"{release.removesuffix(CURRENT)}{RELEASES}/"
    if is_under(path, folder.rstrip("/")):
        path = f"{release}/{path.removeprefix(folder).partition('/')[2]}".rstrip("/")
    if not subject.startswith("/"):
        return path == subject
    places = [place for place in (path, needed_by) if place.startswith("/")]
    return any(is_under(place, subject) or is_under(subject, place) for place in places)
