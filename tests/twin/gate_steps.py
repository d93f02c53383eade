"""Run the probe `environment` on a cluster by plain srun, as the runner does in a job, and give what it recorded."""

from __future__ import annotations

import secrets
import shlex
import shutil

from lumisite.validate.probes.probe import OUT, PROBES, Record, Srun, scripts
from lumisite.validate.probes.records import finished
from lumisite.validate.probes.suite import choose_probes
from lumisite.validate.run.folder import read_records
from tests.support.records import target_of
from tests.twin.cluster import Cluster
from tests.twin.helper_site import LOAD


def records_of_environment(cluster: Cluster) -> list[Record]:
    """Run all parts of the probe, and give their records, each with the name of its part."""
    (probe,) = choose_probes(target_of("twin"), ["environment"])
    return [record for part in probe.sruns for record in _run_part(cluster, part)]


def _run_part(cluster: Cluster, part: Srun) -> list[Record]:
    place = f"/scratch/run-{secrets.token_hex(3)}"
    folder = cluster.shared / place[1:]
    (folder / "probes").mkdir(parents=True)
    (folder / "records").mkdir()
    (folder / "records").chmod(0o777)
    for script in part.files:
        shutil.copy(scripts()[script], folder / "probes" / script)
    words = [word.replace(PROBES, f"{place}/probes").replace(OUT, f"{place}/records") for word in part.words]
    srun = f"srun --kill-on-bad-exit=0 -p standard-g -N{len(cluster.nodes)} --ntasks-per-node=1"
    cluster.run(f"{LOAD}; {srun} {shlex.join(words)}").check()
    return [{**record, "part": part.name} for record in finished(read_records(folder / "records"))]
