"""Environments of Python that scripts activate, outside and inside of containers."""

from __future__ import annotations

import re
from collections.abc import Iterator

from lumisite.lint.job import BadLine, Job, bad_line
from lumisite.render.runtimes import RUNTIMES

_CONDA_ACTIVE = re.compile(
    r"(?:\S*(?:conda|mamba) activate|(?:source|\.) (?:\S*(?:conda|mamba|forge)\S*/bin/)?activate)(?!\S) ?(?P<name>\S*)"
    r"|\S*(?:conda|mamba) deactivate"
)
_CONDA = re.compile(r"(?<!\\)\$\{?WITH_CONDA\b")


def with_conda(job: Job) -> Iterator[BadLine]:
    """`$WITH_CONDA` in what a container gets, or in the batch script itself, expanded by the shell outside."""
    if not any(family.activation == "with-conda" for family in job.site.families.values()):
        return
    scripted = [command for command in job.commands if command.names_any("srun", "bash", "sh", *RUNTIMES)]
    known = set(map(id, scripted))
    values = " ".join(value for command in scripted for value in command.values)
    expanded = set(re.findall(r"(?<!\\)\$\{?(\w+)", values))
    for command in (command for command in job.commands if command.spot == "batch"):
        starts_job = job.directives and command.values[:1] and _CONDA.match(command.values[0])
        words = [*command.documents, *(word for name, word in command.assignments if name in expanded)]
        words += command.words if id(command) in known or starts_job else ()
        for word in words:
            for _, line in word.matches(_CONDA):
                yield bad_line(line, "$WITH_CONDA")


def host_conda(job: Job) -> Iterator[BadLine]:
    """A conda environment of the host that is active when a container starts, which does not have it."""
    active: tuple[str, int] | None = None
    for command in job.commands:
        text = " ".join(command.values)
        if command.spot == "batch" and (found := _CONDA_ACTIVE.match(text)):
            active = (found["name"] or "base", command.line) if found["name"] is not None else None
        starts = command.names_any(*RUNTIMES) and not {"exec", "run"}.isdisjoint(command.values)
        if active and starts and not {"-e", "--cleanenv", "--containall", "-C"}.intersection(command.values):
            yield bad_line(active[1], active[0], runtime=job.site.command)
            return
