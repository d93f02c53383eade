"""The ReFrame test module: the probes of `lumisite validate`, one test for each, run and judged by lumisite.

Why one test for each probe, and not one for each job: ReFrame measures nothing of a test whose sanity fails, and a
test's name is what people see. Why the module starts the program `lumisite` and does not import the package: ReFrame
mostly has a virtual environment of its own, and often another Python. So the module is short, never disagrees with the
lumisite that is installed, and both give the same lines: the job's script, its scripts and the judges are the same.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from lumisite.findings.catalogue import make_finding
from lumisite.findings.writers import message
from lumisite.site.model import Site
from lumisite.validate.lines import LARGEST, Gate, Sample, line_json
from lumisite.validate.probes.probe import rounded
from lumisite.validate.run.script import JobPlan, validation_of
from lumisite.validate.run.slurm import KEPT
from lumisite.validate.samples import read_lines
from lumisite.validate.verdict.nodes import job_value

#: How the module's tests are called, before the probe's name.
TEST = "Lumisite"
#: Options of sbatch that ReFrame writes itself.
_WRITTEN_BY_REFRAME = ("--job-name=", "--output=")


def module_text(
    site: Site, plan: JobPlan, options: Sequence[str], system: str, words: Sequence[str], command: str
) -> str:
    """Return the module's text: the same for the same site, options and lumisite.

    `plan` is a job of the suite, `options` are those for sbatch, `system` is the name of system and partition in
    ReFrame's settings, `words` are the options of `lumisite reframe` that the module repeats, `command` what was typed.
    """
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("lumisite.validate.reframe", "."),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,  # noqa: S701  # not HTML: it writes Python
    )
    environment.filters["py"] = json.dumps
    validation = validation_of(site)
    options = [word for word in options if not word.startswith(_WRITTEN_BY_REFRAME)]
    return environment.get_template("lumisite_probes.py.j2").render(
        command=command,
        site=site.name,
        system=system,
        words=words,
        nodes=len(plan.nodes),
        tasks=validation.tasks_per_node,
        # Of the environment that ReFrame was started in only this reaches a job, as with `lumisite validate`.
        options=[*options, f"--export={','.join(KEPT)}"],
        rules=validation.metrics,
        largest=f"{LARGEST:g}".replace("+", ""),
        test=TEST,
        probes={group.steps[0].probe: group.question for group in plan.groups},
    )


def answer(lines: Sequence[Sample | Gate]) -> dict[str, object]:
    """Return the verdict on a job, its causes and its numbers, as JSON for the module.

    A metric of several nodes has one number, as a verdict has.
    """
    gates = [line for line in lines if isinstance(line, Gate)]
    states = {gate.verdict for gate in gates}
    recorded = read_lines([("samples.jsonl", [f"{line_json(line)}\n".encode() for line in lines])])
    return {
        "verdict": "fail" if "fail" in states else "inconclusive" if "inconclusive" in states or not gates else "pass",
        "causes": [_cause(gate) for gate in gates if gate.verdict != "pass"]
        or ([] if gates else [f"inconclusive: {message(make_finding('nothing-measured'))}"]),
        "performance": {
            metric: [rounded(job_value(job, series.better)), series.unit, series.better]
            for metric, series in recorded.series.items()
            for job in series.jobs
        },
    }


def _cause(gate: Gate) -> str:
    cause = gate.cause if gate.verdict == "fail" else f"inconclusive: {gate.cause}"
    return f"{cause} ({gate.advice})" if gate.advice else cause
