"""Write the records beside this file anew, as root: `python -m tests.data.gates.make`.

Each was left by the scripts of lumisite/validate/probes in real steps: on an untouched twin of two nodes (Slurm 24.11,
Apptainer 1.4, PyTorch 2.6), and `environment-lumi-g.json` on the virtual LUMI-G node. The present ones were put
together from those of earlier scripts.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from lumisite.site.load import load_site
from lumisite.validate.probes.probe import Record, scripts
from tests.support.prologs import render_files
from tests.twin.cluster import ClusterPlan, running
from tests.twin.gate_steps import records_of_environment
from tests.twin.helper_site import deploy_site
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


if __name__ == "__main__":
    main()
