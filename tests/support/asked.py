"""What a run of the twin was asked."""

from __future__ import annotations

from lumisite.site.load import load_site
from lumisite.validate.run.asked import Asked, Batch
from lumisite.validate.run.plan import site_digest, with_specs

LOADED = load_site("twin")
FIRST = Batch("one", 5, (("n1", "n2"), ("n3", "n4")), ("collectives",))


def an_asked() -> Asked:
    asked = Asked(
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
        baseline=("/scratch/before.jsonl",),
    )
    return with_specs(asked, LOADED)
