"""The request of a run of the twin."""

from __future__ import annotations

from lumisite.site.load import load_site
from lumisite.validate.run.plan import site_digest
from lumisite.validate.run.request import RunRequest

LOADED = load_site("twin")


def a_request() -> RunRequest:
    return RunRequest(
        lumisite="1",
        site="twin",
        platform="2026-01",
        purpose="validate",
        image="/appl/images/torch.sif",
        image_digest="d",
        started="2026-01-22T10:00:00Z",
        partition="standard-g",
        folder="/scratch/run",
        site_file="twin",
        site_digest=site_digest(LOADED),
        stamp="one",
        jobs=5,
        node_sets=(("n1", "n2"), ("n3", "n4")),
        probes=("collectives",),
        sbatch=("--qos=x",),
        before=("/scratch/before.jsonl",),
    )
