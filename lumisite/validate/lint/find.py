"""Find known-bad lines in users' job scripts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from lumisite.release.explain import references
from lumisite.site.evidence import harms
from lumisite.site.images import has_plugin
from lumisite.site.model import NodeKind, Site
from lumisite.site.settings import depends_on_image
from lumisite.validate import InputError
from lumisite.validate.lint.job import Job
from lumisite.validate.lint.machine import Harmful, Machine
from lumisite.validate.lint.rules import RULES
from lumisite.validate.lint.shell import parse_script

#: A job script is no longer than this.
SIZE_LIMIT_BYTES = 1 << 20


@dataclass(frozen=True, order=True)
class Finding:
    """A bad line: why, and what would be right; `source` is where this is known from."""

    file: str
    line: int
    rule: str
    reason: str
    right: str
    source: str

    def __str__(self) -> str:
        """Give `file:line: reason (right line)`."""
        return f"{self.file}:{self.line}: {self.reason} ({self.right})"


def lint_script(data: bytes, name: str, machine: Machine) -> tuple[Finding, ...]:
    """Judge one script, by line. Raises `InputError` for what is no text."""
    if len(data) > SIZE_LIMIT_BYTES or b"\0" in data:
        raise InputError(f"{name}: is not a script (text of at most {SIZE_LIMIT_BYTES >> 20} MiB would be right)")
    script = Job(parse_script(data.decode("utf-8", "replace")))
    return tuple(sorted({finding for job in script.jobs for finding in _findings(job, name, machine)}))


def _findings(job: Job, name: str, machine: Machine) -> Iterator[Finding]:
    machine_fields = {"gpu_order": machine.gpu_order, "cores_per_task": str(machine.cores_per_task)}
    for rule in RULES:
        for line, fields in rule.find(job, machine):
            filled = {**machine_fields, **fields}
            texts = (text.format(**filled) for text in (rule.reason, rule.right, rule.source))
            yield Finding(name, line, rule.id, *texts)


def machine_of(site: Site) -> Machine:
    """Take from a site description what rules must know."""
    cores = {name: _cores(kind) for name, kind in site.node_kinds.items() if kind.gpus}
    kinds = [site.node_kinds[name] for name in cores]
    return Machine(
        site=site,
        partitions=frozenset(site.partitions),
        gpu_cores={name: cores[one.node_kind] for name, one in site.partitions.items() if one.node_kind in cores},
        shared=frozenset(name for name, one in site.partitions.items() if not one.whole_nodes),
        gpu_order=_gpu_order(kinds[0]) if kinds else "0",
        cores_per_task=min((_cores(kind) // len(kind.gpus) for kind in kinds), default=1),
        libraries=tuple(site.platforms[site.platform].libraries.values()),
        harmful=_harmful(site),
    )


def _harmful(site: Site) -> tuple[Harmful, ...]:
    """Take the values that do harm from the evidence of the settings ledger."""
    without_plugin = tuple(name for name in site.families if not has_plugin(site, name))
    return tuple(
        Harmful(
            name=harm.setting.name,
            value=pattern,
            nodes=harm.evidence.when.nodes,
            rocm=harm.evidence.when.rocm,
            families=without_plugin if harm.evidence.when.plugin is False else harm.evidence.when.family,
            reason=harm.evidence.what or harm.setting.why,
            right=_instead(site, harm.setting.name),
            source="; ".join(map(str, references(site, harm.evidence.source))) or harm.evidence.source,
            applies_to_unknown_image=harm.evidence.unknown_images,
        )
        for harm in harms(site)
        for pattern in harm.patterns
    )


def _instead(site: Site, name: str) -> str:
    """Give the line that would be right: what the ledger sets whatever the image, else nothing."""
    values = [
        setting.value
        for setting in site.settings
        if setting.name == name and setting.value is not None and not depends_on_image(setting.when)
    ]
    return f"export {name}={values[0]}" if values else f"unset {name}"


def _cores(kind: NodeKind) -> int:
    return sum(len(set(group.cores).difference(kind.reserved or ())) for group in kind.l3)


def _gpu_order(kind: NodeKind) -> str:
    """List the GPUs in the order of the cores next to them, as `--gpu-bind=map` wants them for tasks in that order."""
    places = [(gpu.l3 if gpu.l3 is not None else gpu.numa, index) for index, gpu in enumerate(kind.gpus)]
    return ",".join(str(index) for _, index in sorted(places))
