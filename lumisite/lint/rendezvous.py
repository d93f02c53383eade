"""How ranks find each other: ports, hosts and the rendezvous."""

from __future__ import annotations

import re
from collections.abc import Iterator

from lumisite.lint.job import BadLine, Job, bad_line, variables_in
from lumisite.lint.options import usable_cores

_CUTTING = re.compile(
    r"\$\{SLURM_(?:JOB_|STEP_)?NODELIST[^}\w]|NODELIST.*\|\s*(?:cut|sed|awk|tr|grep|perl|python\w*)\b|"
    r"^\$\{?SLURM_(?:JOB_|STEP_)?NODELIST\}?$",
    re.DOTALL,
)
_PORT_OPTION = r"--(?:master[-_]port|main[-_]process[-_]port|rdzv[-_]endpoint)"


def fixed_port(job: Job) -> Iterator[BadLine]:
    """A fixed port, which another job may have where nodes are shared."""
    partitions = (job.site.partitions[name] for name in job.partitions if name in job.site.partitions)
    # No other job is on the node where the job requests all of its cores, or has it exclusively.
    cores = max((usable_cores(kind) for kind in job.allocation.node_kinds(job.site) if kind.gpus), default=0)
    alone = all(partition.whole_nodes for partition in partitions) or "exclusive" in job.allocation.merged
    alone |= 0 < cores <= job.allocation.cores_per_node[1]
    for line, port in () if alone else (*_set_ports(job), *_ports_of_options(job)):
        if port != "0":
            yield bad_line(line, port)


def _set_ports(job: Job) -> Iterator[tuple[int, str]]:
    """MASTER_PORT as a number, or with one for where it is not set before; a number to count from is not the port."""
    settings = tuple(job.settings_of("MASTER_PORT"))
    counted = any("$(" in setting.value for setting in settings)
    for setting in () if counted else settings:
        if found := re.fullmatch(r"(\d+)|\$\{\w+:?[-=](\d+)\}", job.resolved(setting.value)):
            yield setting.line, found[1] or found[2]
    for word in job.words:
        if found := re.fullmatch(r"\$\{MASTER_PORT:?=(\d+)\}", word.value):
            yield word.line, found[1]


def _ports_of_options(job: Job) -> Iterator[tuple[int, str]]:
    """The port in options of a launcher; where it is that of MASTER_PORT, the line that sets this is found."""
    for value, line in job.option_values(_PORT_OPTION):
        found = re.fullmatch(r"(?:.*[^:]:)?([1-9]\d*)", job.resolved(value))
        if found and "MASTER_PORT" not in value:
            yield line, found[1]


def rdzv_literal(job: Job) -> Iterator[BadLine]:
    """A variable that reaches the launcher as it is written."""
    for value, line in job.option_values(r"--rdzv[-_](?:id|endpoint)"):
        if escaped := re.search(r"\\(\$\{?\w+\}?)", value):
            yield bad_line(line, escaped[1])


def nodelist(job: Job) -> Iterator[BadLine]:
    """The first node by cutting the list, which holds for one node only."""
    if (nodes := job.allocation.merged.get("nodes")) and nodes.value == "1":
        return
    settings = {setting.name: setting for setting in job.settings}
    hosts = [value for value, _ in job.option_values(r"--(?:rdzv[-_]endpoint|master[-_]addr)")]
    named = [settings[name] for value in hosts for name in variables_in(value) if name in settings]
    for setting in (*job.settings_of("MASTER_ADDR"), *named):
        via = re.fullmatch(r"\$\{?(\w+)\}?", setting.value)
        made = settings.get(via[1], setting) if via else setting
        if "scontrol" not in made.value and _CUTTING.search(made.value):
            yield bad_line(made.line, made.name)
