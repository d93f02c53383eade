"""Ask Ray to run something on all of its nodes; ends with a line `RAN` of JSON."""

# mypy: disable-error-code="import-not-found"
# Ray is in the image that this runs in, not where this is checked.

import json
import socket
import time

import ray

ray.init(address="auto", log_to_driver=False)


@ray.remote(num_cpus=1, scheduling_strategy="SPREAD")  # type: ignore[untyped-decorator]
def where() -> str:
    time.sleep(2)
    return socket.gethostname()


while len(ray.nodes()) < 2:
    time.sleep(1)
ran = sorted(set(ray.get([where.remote() for _ in range(4)])))
print("RAN " + json.dumps({"ran": ran, "alive": sum(node["Alive"] for node in ray.nodes())}), flush=True)
