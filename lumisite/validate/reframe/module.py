"""The ReFrame test module: the probes of `lumisite validate`, one test for each, run and judged by lumisite.

Why one test for each probe, and not one for each job: ReFrame measures nothing of a test whose sanity fails, and a
test's name is what people see. Why the module starts the program `lumisite` and does not import the package: ReFrame
mostly has a virtual environment of its own, and often another Python. So the module is short, never disagrees with the
lumisite that is installed, and both give the same lines: the job's script, its scripts and the judges are the same.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence

from lumisite.site.model import MetricRule, Site
from lumisite.validate.lines import LARGEST, Gate, Sample, line_json
from lumisite.validate.probes.probe import rounded
from lumisite.validate.reframe.cases import OWN_TEST
from lumisite.validate.run.script import JobPlan, validation_of
from lumisite.validate.samples import read_lines
from lumisite.validate.verdict.nodes import job_value

#: What ReFrame writes of a job itself, so the module need not.
_REFRAMES_OWN = ("--job-name=", "--output=")
#: Of the environment that ReFrame was started in only this reaches a job, as with `lumisite validate`.
_EXPORTED = "HOME,USER,LOGNAME,PATH,SHELL,LANG,LC_ALL,TZ,XDG_RUNTIME_DIR,SLURM_CONF"

_TEXT = '''\
# Written by: %(command)s
# Change nothing here: write it anew when the site's description changes.
"""The probes of `lumisite validate` on %(site)s, one test for each.

On a login node, in a folder that all nodes see, with this file as FILE:

    reframe -C SETTINGS -c FILE -r --report-file=reframe.json

SETTINGS has the system and partition `%(system)s`, with the environment `builtin` and the scheduler `slurm` or
`squeue`. What else may be asked of `reframe`:

    -S valid_systems=SYSTEM:PARTITION   where SETTINGS have other names
    -J reservation=R -J account=A       what else to ask of Slurm
    -n %(first)-33sone probe
    --reruns=4                          five jobs of each, as many as a verdict needs
    -S program=/path/to/lumisite        where it is neither beside the Python of ReFrame nor on PATH

The report is a baseline: `lumisite report RUN --baseline reframe.json`, `lumisite verdict --before reframe.json`.
"""

import fnmatch
import json
import subprocess
import sys
from pathlib import Path

import reframe as rfm
from reframe.core.backends import getlauncher
from reframe.core.builtins import run_before, sanity_function, variable
from reframe.core.exceptions import SanityError
from reframe.utility import sanity as sn

# What lumisite is asked.
ASKED = %(asked)s
# Where it runs, in the names of ReFrame's settings.
SYSTEMS = ["%(system)s"]
ENVIRONMENTS = ["builtin"]
TAGS = {"lumisite"}
# What Slurm is asked.
NODES = %(nodes)d
TASKS_PER_NODE = %(tasks)d
OPTIONS = %(options)s
# What --export says is for the job, not for its steps, which must get what the module sets.
BEFORE = ["unset SLURM_EXPORT_ENV"]
KEPT = ["samples.jsonl"]
# What the site expects: a pattern of metrics, the value, and the part of it that is the least. The first that fits.
EXPECTED = %(expected)s
# No value of a metric is larger. Without an expectation, the reference only says whether more is better.
LARGEST = %(largest)s


def reference(name, better, unit):
    """Give the reference of a metric, in ReFrame's terms."""
    fits = (expected for pattern, *expected in EXPECTED if fnmatch.fnmatchcase(name, pattern))
    value, least = next(fits, (None, None))
    if value is None:
        return (0, 0, None, unit) if better == "higher" else (0, None, LARGEST, unit)
    return (value, least - 1, None, unit) if better == "higher" else (value, None, 1 / least - 1, unit)


class %(test)sProbe(rfm.RunOnlyRegressionTest):
    """One probe in one job; lumisite writes the job's script and judges what the job left."""

    probe = variable(str)
    program = variable(str, value="lumisite", loggable=False)
    # What lumisite recorded, line by line: with it the report is as good as lumisite's own file of samples.
    lumisite = variable(str, value="")
    tags = TAGS
    valid_systems = SYSTEMS
    valid_prog_environs = ENVIRONMENTS
    num_tasks = NODES * TASKS_PER_NODE
    num_tasks_per_node = TASKS_PER_NODE
    sourcesdir = None
    executable = "bash"
    prerun_cmds = BEFORE
    keep_files = KEPT

    @run_before("run")
    def write_job(self):
        """Have lumisite write the job's script and what it needs into the stage directory."""
        told = self.ask("--stage", self.stagedir)
        self.executable_opts = ["-l", told["script"]]
        self.job.launcher = getlauncher("local")()
        self.job.options += OPTIONS

    @sanity_function
    def gates_hold(self):
        """Have lumisite judge the job; its hard gates must hold."""
        self.told = self.ask("--judge", self.stagedir, "--job", str(self.job.jobid))
        self.lumisite = self.told["lines"]
        if self.told["verdict"] != "pass":
            raise SanityError("; ".join(self.told["causes"]))
        return True

    @run_before("performance")
    def take_numbers(self):
        """Take the numbers, and what the site expects of them."""
        references = {}
        for name, (value, unit, better) in self.told["performance"].items():
            self.perf_variables[name] = sn.make_performance_function(sn.defer(value), unit)
            references[name] = reference(name, better, unit)
        self.reference = {self.current_partition.fullname: references}

    def ask(self, *words):
        """Start lumisite and give its answer."""
        beside = Path(sys.executable).parent / self.program
        program = str(beside) if beside.is_file() else self.program
        command = [program, "reframe", *ASKED, "--probe", self.probe, *words]
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=False)
        except OSError as error:
            raise SanityError(f"{program}: {error.strerror} (-S program=/path/to/lumisite says where it is)") from None
        try:
            return json.loads(done.stdout)
        except ValueError:
            said = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
            raise SanityError(said[-1]) from None
'''

_CLASS = '''

@rfm.simple_test
class %(class)s(%(test)sProbe):
    """%(sentence)s"""

    probe = "%(probe)s"
'''


def module_text(
    site: Site, plan: JobPlan, options: Sequence[str], system: str, words: Sequence[str], command: str
) -> str:
    """Give the module's text: the same for the same site, options and lumisite.

    `plan` is a job of the suite, `options` what it asks of sbatch, `system` how ReFrame's settings call the system and
    partition, `words` what lumisite is asked with, `command` what was typed.
    """
    validation = validation_of(site)
    probes = {group.steps[0].probe: group.asks for group in plan.groups}
    options = [word for word in options if not word.startswith(_REFRAMES_OWN)]
    values = {
        "command": command,
        "site": site.name,
        "system": system,
        "asked": _table(map(json.dumps, words)),
        "first": _class_name([*probes][-1]),
        "nodes": len(plan.nodes),
        "tasks": validation.tasks_per_node,
        "options": _table(map(json.dumps, [*options, f"--export={_EXPORTED}"]), "[]"),
        "expected": _table(_row(rule) for rule in validation.metrics),
        "largest": f"{LARGEST:g}".replace("+", ""),
        "test": OWN_TEST,
    }
    classes = (
        _CLASS % {"class": _class_name(name), "test": OWN_TEST, "sentence": asks, "probe": name}
        for name, asks in probes.items()
    )
    return _TEXT % values + "".join(classes)


def _class_name(probe: str) -> str:
    return OWN_TEST + probe.capitalize()


def _row(rule: MetricRule) -> str:
    value = None if rule.spec is None or not rule.decides else rule.spec
    return f"({json.dumps(rule.metric)}, {value!r}, {rule.floor!r})"


def _table(rows: Iterable[str], brackets: str = "()") -> str:
    """Write one row a line, as formatters do."""
    found = "".join(f"    {row},\n" for row in rows)
    return f"{brackets[0]}\n{found}{brackets[1]}" if found else brackets


def answer(lines: Sequence[Sample | Gate]) -> dict[str, object]:
    """Give what the module is told of a job, as JSON may have it: whether its gates hold, and the numbers.

    A metric of several nodes has one number, as a verdict has. `lines`, which are lumisite's own, is a text with no `|`
    in it, which cuts the columns of perflogs.
    """
    gates = [line for line in lines if isinstance(line, Gate)]
    states = {gate.verdict for gate in gates}
    texts = [line_json(line) for line in lines]
    recorded = read_lines([("samples.jsonl", [f"{text}\n".encode() for text in texts])])
    return {
        "verdict": "fail" if "fail" in states else "inconclusive" if "inconclusive" in states or not gates else "pass",
        "causes": [_told(gate) for gate in gates if gate.verdict != "pass"]
        or ([] if gates else ["inconclusive: the job left nothing to judge"]),
        "performance": {
            metric: [rounded(job_value(job, series.better)), series.unit, series.better]
            for metric, series in recorded.series.items()
            for job in series.jobs
        },
        "lines": f"[{', '.join(texts)}]".replace("|", "\\u007c"),
    }


def _told(gate: Gate) -> str:
    cause = gate.cause if gate.verdict == "fail" else f"inconclusive: {gate.cause}"
    return f"{cause} ({gate.advice})" if gate.advice else cause
