"""`lumisite validate` as a test of ReFrame 4: its gates must pass, its metrics are the performance variables.

On a login node, in a folder that all nodes see:

    reframe -C SETTINGS -c lumisite_reframe.py -r -S site=lumi -S options='--account=project_1'
"""

import json
from pathlib import Path

import reframe as rfm
from reframe.core.builtins import run_before, sanity_function, variable
from reframe.core.exceptions import SanityError
from reframe.utility import sanity as sn


@rfm.simple_test
class LumisiteValidate(rfm.RunOnlyRegressionTest):
    """One job with all probes."""

    site = variable(str, value="lumi")
    options = variable(str, value="")
    valid_systems = ["*"]
    valid_prog_environs = ["*"]
    sourcesdir = None
    local = True  # lumisite submits the job itself, and waits for it
    executable = "lumisite"

    @run_before("run")
    def choose_options(self):
        """Measure with one job, below the stage directory."""
        self.executable_opts = ["validate --jobs 1 --json", f"--site {self.site}", f"--out {self.stagedir}/run"]
        self.executable_opts.append(self.options)

    @sanity_function
    def gates_pass(self):
        """Fail with the causes that lumisite names, or with its error."""
        out, err = (Path(self.stagedir, sn.evaluate(file)).read_text() for file in (self.stdout, self.stderr))
        if not out:
            raise SanityError(err)
        self.verdict = json.loads(out)["verdict"]
        causes = [
            ": ".join(filter(None, (gate["gate"], one["location"], one["cause"])))
            for gate in self.verdict["gates"]
            for one in gate["causes"]
        ]
        causes += [f"{slow['node']} is slow: {slow['metric']}" for slow in self.verdict["slow_nodes"]]
        if causes:
            raise SanityError("; ".join(causes))
        return True

    @run_before("performance")
    def take_metrics(self):
        """Take the metrics of the run."""
        for one in self.verdict["metrics"]:
            self.perf_variables[one["metric"]] = sn.make_performance_function(sn.defer(one["after"]), one["unit"])
