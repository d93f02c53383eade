"""What the user's own variables do to jobs and containers, where no entry of the site description is about them."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from dataclasses import replace

from lumisite.findings.finding import Finding, Severity
from lumisite.site.model import Site
from lumisite.site.partner_options import missing_partners
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
    from lumisite.lint.rule_table import lint_job, read_script  # most shells export none of these

    exports = [f"export {name}={shlex.quote(value)}" for name, value in short.items()]
    head = ["#!/bin/bash", f"#SBATCH --partition={partition}", f"#SBATCH --nodes={nodes}"]
    start = f"srun -N{nodes} -n{nodes} {site.command} exec image.sif python3 train.py"
    script = "\n".join([*head, *exports, start, ""]).encode()
    for found in lint_job(read_script(script, "", site), "", only=_AS_IN_SCRIPT):
        yield replace(found, place=None)
