"""The request of a run of the twin."""

from __future__ import annotations

from lumisite.site.load import load_site
from lumisite.validate.run.plan import site_digest, with_specs
from lumisite.validate.run.request import Batch, RunRequest

LOADED = load_site("twin")
FIRST = Batch("one", 5, (("n1", "n2"), ("n3", "n4")), ("collectives",))


def a_request() -> RunRequest:
    request = RunRequest(
        lumisite="1",
        site="twin",
        platform="2026-01",
        purpose="validate",
        image="/appl/images/torch.sif",
        image_digest="d",
        started="2026-01-22T10:00:00Z",
        backend="gloo",
        partition="standard-g",
        folder="/scratch/run",
        site_file="twin",
        site_digest=site_digest(LOADED),
        batches=(FIRST,),
        specs={},
        sbatch=("--qos=x",),
        before=("/scratch/before.jsonl",),
    )
    return with_specs(request, LOADED)
