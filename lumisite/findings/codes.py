"""The codes of findings, each with its meaning: a code stands for one kind of thing that a reader would do."""

from __future__ import annotations

from collections.abc import Mapping

CODES: Mapping[str, str] = {
    # The site description
    #
    # Images and binds
    #
    # Scripts of users (`lint`)
    #
    # Logs (`transport`)
    #
    # This node (`check --host`)
    #
    # Releases: render, deploy, rollback, status, policy
    #
    # What a maintenance changed (`changes`)
    #
    # Nodes and settings of a run (`validate`)
    #
    # Slurm and the jobs of a run (`validate`)
    "job-progress": "what a job does while it is well",
    "job-done": "all steps of a job have run",
    "sbatch-refused": "sbatch did not take a job: its account, partition or options",
    "job-waits": "a job waits its turn",
    "job-over-limit": "a job waits, as a limit of the account, user or QOS is reached",
    "job-cannot-start": "a job never starts as it was submitted",
    "job-nodes-away": "a job waits for nodes that are out of service",
    "job-nodes-completing": "a job waits for nodes on which the job before does not end",
    "job-module-failed": "the deployed module does not load in a job",
    "job-step-lost": "Slurm did not start a step, however often it was tried",
    "job-node-lost": "Slurm ended a job because of a node that it took out of service",
    "job-time-limit": "a job reached its time limit",
    "job-cancelled": "somebody cancelled a job",
    "job-forgotten": "Slurm does not know a job any more",
    "job-failed": "a job ended before all its steps had run",
    "job-results-missing": "a job ended and left no results that can be read",
    "job-changed": "what a job measured was changed while the run went on",
    "step-skipped": "a step was not run because of what was found before it",
    "records-unreadable": "what ranks wrote cannot be judged",
    "slurm-setting": "a setting of slurm.conf prevents or changes what the site counts on",
    "slurm-silent": "Slurm does not answer",
    "variable-set": "a variable was set before lumisite ran, or is left out of jobs",
    #
    # Numbers (`verdict`, `report`)
    #
}
