"""Write the records beside this file anew, as root: `python -m tests.data.gates.make`.

Each was left by the scripts of lumisite/validate/probes in real steps: on an untouched twin of two nodes (Slurm 24.11,
Apptainer 1.4, PyTorch 2.6), and `environment-lumi-g.json` on the virtual LUMI-G node. The present ones were put
together from those of earlier scripts.
"""

from __future__ import annotations

import json
import secrets
import shlex
import shutil
from collections.abc import Sequence
from pathlib import Path

from lumisite.site.load import load_site
from lumisite.validate.probes.probe import OUT, PROBES, Record, Srun, scripts
from lumisite.validate.probes.records import finished
from lumisite.validate.probes.suite import choose_probes
from lumisite.validate.run.folder import read_records
from tests.support.prologs import render_files
from tests.support.records import target_of
from tests.twin.cluster import Cluster, ClusterPlan, running
from tests.twin.helper_site import LOAD, deploy_site
from tests.twin.lumi_g import lumi_g_all


def main() -> None:
    """Write all of them."""
    with running(ClusterPlan(images=("torch",))) as cluster:
        deploy_site(cluster)
        save("environment", records_of_environment(cluster))
    files = {f"/opt/{name}": scripts()[name].read_text() for name in ("environment.py", "lumisite_record.py")}
    files["/opt/prolog"] = render_files(load_site("lumi"), rocm=("6.2",))["spank/task_prolog"]
    command = "srun -p standard-g -n8 --task-prolog=/opt/prolog python3 /opt/environment.py /tmp/out"
    records = lumi_g_all([command], files=files).files.items()
    save("environment-lumi-g", [json.loads(data) for _, data in sorted(records)])


def save(name: str, records: Sequence[Record]) -> None:
    """Write the records of one probe."""
    text = json.dumps(records, indent=1, sort_keys=True)
    (Path(__file__).parent / f"{name}.json").write_text(f"{text}\n")


def records_of_environment(cluster: Cluster) -> list[Record]:
    """Run all parts of the probe by plain srun, as the runner does in a job, and give their records, each with the name of its part."""
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


if __name__ == "__main__":
    main()
