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
    #
    # Numbers (`verdict`, `report`)
    #
}
