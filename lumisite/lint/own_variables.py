"""What the user's own variables do to jobs and containers, where no entry of the site description is about them."""

from __future__ import annotations

import itertools
import os
import shlex
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace

from lumisite.findings.finding import Finding, Severity
from lumisite.site.model import Site
from lumisite.site.pairs import missing_partners
from lumisite.site.software import PREFIXES
from lumisite.text import printable

#: What every program, or every one of a language, reads when it starts: ld.so(8), python(1), perlrun(1). bash passes
#: over a BASH_ENV that is not there, and module systems set it for everybody.
_READ_AT_START = ("LD_PRELOAD", "LD_AUDIT", "PYTHONPATH", "PYTHONHOME", "PYTHONSTARTUP", "PERL5LIB", "PERL5OPT")
#: What the runtime sets for containers, whatever the host has; `PREFIXENV_NAME` replaces it there.
_SET_BY_RUNTIME = ("LD_LIBRARY_PATH", "PATH")
#: Of what lint finds in a job script, what the same value does that a shell exports.
_AS_IN_SCRIPT = ("wrong-interface", "local-master")
#: No list of interfaces and no address is longer, in characters.
_MOST_VALUE = 1000


def judge_own_variables(site: Site, partition: str, nodes: int, variables: Mapping[str, str]) -> Iterator[Finding]:
    """Yield what of these variables breaks jobs, or may break programs in containers."""
    yield from _as_in_a_script(site, partition, nodes, variables)
    for need in missing_partners(site, variables, {}):
        if need.variable:
            subject = f"{need.variable}={variables[need.variable]}"
            yield Finding("missing-partner", Severity.DOUBT, need.why, need.partner, subject=subject)
    known = _bound_by_modules(site, variables)
    for prefix in PREFIXES:
        for name in (f"{prefix}_BIND", f"{prefix}_BINDPATH"):
            yield from _missing_binds(name, variables.get(name, ""), known)
    in_containers = [
        *_READ_AT_START,
        *(f"{prefix}ENV_{name}" for prefix in PREFIXES for name in (*_READ_AT_START, *_SET_BY_RUNTIME)),
    ]
    for name in in_containers:
        if value := variables.get(name):
            # ld.so(8), Environment; NumPy's documentation, Troubleshooting ImportError; seen with Apptainer 1.4.
            yield Finding(
                "value-may-harm",
                Severity.INFO,
                f"set to {printable(value)} in this shell, and every program in the container reads it when it starts",
                f"unset {name}, and start the job again; where the error is gone, correct what sets it "
                "(~/.bashrc, a module, the job script)",
                name,
            )


def _as_in_a_script(site: Site, partition: str, nodes: int, variables: Mapping[str, str]) -> Iterator[Finding]:
    """Judge variables as a job script that exports them, on these nodes."""
    names = dict.fromkeys(setting.name for setting in site.settings)
    values = {name: variables[name] for name in names if name in variables}
    short = {name: value for name, value in values.items() if value.isprintable() and len(value) <= _MOST_VALUE}
    if not short:
        return
    from lumisite.lint.rules import lint_job, read_script  # most shells export none of these

    exports = [f"export {name}={shlex.quote(value)}" for name, value in short.items()]
    head = ["#!/bin/bash", f"#SBATCH --partition={partition}", f"#SBATCH --nodes={nodes}"]
    start = f"srun -N{nodes} -n{nodes} {site.command} exec image.sif python3 train.py"
    script = "\n".join([*head, *exports, start, ""]).encode()
    for found in lint_job(read_script(script, "", site), "", only=_AS_IN_SCRIPT):
        yield replace(found, place=None)


def _bound_by_modules(site: Site, variables: Mapping[str, str]) -> Collection[str]:
    """Return what no user has put into the list of binds: the modules that are loaded say so, and the site does."""
    loaded = [value.split(",") for name, value in variables.items() if name.startswith("LUMISITE_BINDS_")]
    of_site = (*(bind.path for bind in site.binds), *(mount.path for mount in site.file_systems))
    return {*itertools.chain(*loaded), *map(str, of_site)}


def _missing_binds(name: str, value: str, known: Collection[str]) -> Iterator[Finding]:
    """Yield the sources in a list of binds (`SOURCE[:TARGET[:OPTIONS]],...`) that are unknown, and not on this node."""
    for bind in value.split(","):
        source = bind.partition(":")[0]
        if source.startswith("/") and source not in known and not os.path.lexists(source):
            # Apptainer's documentation, Bind Paths and Mounts
            path = printable(source)
            message = f"binds {path}, which does not exist on this node: no container starts here"
            advice = f"remove {path} from {name}, or make it; a path that only compute nodes have is fine"
            yield Finding("task-path", Severity.DOUBT, message, advice, name)
