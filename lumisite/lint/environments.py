"""Environments of Python that scripts activate or fill, outside and inside of containers."""

from __future__ import annotations

import re
from collections.abc import Iterator

from lumisite.lint.job import BadLine, Job, bad_line
from lumisite.render.runtimes import RUNTIMES

#: What makes an environment of Python that takes what pip installs.
_ENVIRONMENT = re.compile(r"(?:^|/)(?:venv|virtualenv)$|^(?!.*(?:conda|mamba|forge)).*/bin/activate\b")
#: What has pip install elsewhere: options of its own or of a container that can be written, or another pip.
_ELSEWHERE = re.compile(
    r"^--(?:target|prefix|root|dry-run|python|overlay|writable|fakeroot|home|no-home)\b|^-[tH]$|/pip3?$"
)
_CONDA_ACTIVE = re.compile(
    r"(?:\S*(?:conda|mamba) activate|(?:source|\.) (?:\S*(?:conda|mamba|forge)\S*/bin/)?activate)(?!\S) ?(?P<name>\S*)"
    r"|\S*(?:conda|mamba) deactivate"
)
_CONDA = re.compile(r"(?<!\\)\$\{?WITH_CONDA\b")


def with_conda(job: Job) -> Iterator[BadLine]:
    """`$WITH_CONDA` in what a container gets, or in the batch script itself, expanded by the shell outside."""
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


def pip_in_job(job: Job) -> Iterator[BadLine]:
    """`pip install` that ends in the home directory, where all images and later jobs find it."""
    started = job.directives or any(step.command for step in job.steps)
    owned = any(_ENVIRONMENT.search(value) for command in job.commands for value in command.values)
    settled = owned or any(job.settings_of("PYTHONUSERBASE", "PIP_TARGET", "PIP_PREFIX", "VIRTUAL_ENV"))
    for command in job.commands if started and not settled else ():
        words = command.words_after("pip", "pip3") or ()
        contained = command.spot == "container" or command.names_any(*RUNTIMES)
        elsewhere = any(map(_ELSEWHERE.search, command.values))
        if words and words[0].value == "install" and not elsewhere and (contained or "--user" in command.values):
            yield bad_line(words[0].line, "pip install", runtime=job.site.command)


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
