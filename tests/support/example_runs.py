"""Two runs, before and after a maintenance, as folders: what `lumisite report` is shown and tested on.

`python -m tests.support.example_runs FOLDER` writes those that the pages show.
"""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from lumisite.facts.facts import Facts, Named, Releases, format_facts
from lumisite.validate.lines import Gate, Sample, line_json

DAY_S = 86400
START = 1_768_000_000
SETS = (("nid005001", "nid005002"), ("nid005003", "nid005004"), ("nid005005", "nid005006"))
SIZES = ("1MiB", "8MiB", "128MiB", "512MiB", "4GiB")


@dataclass(frozen=True)
class Maintenance:
    """What came of the maintenance: rates between nodes times `network`, a slow node, a gate that fails."""

    network: float = 1.0
    slow_node: str = ""
    failed_gate: str = ""
    nodes: int = 40


#: What the pages show: rates between nodes are 15 % lower, and one node is slow by itself.
SHOWN = Maintenance(network=0.85, slow_node="nid005009", nodes=12)


def write_runs(top: Path, came: Maintenance) -> tuple[Path, Path]:
    """Write both folders; give the one from before and the one from after."""
    before, after = top / "before", top / "after"
    _write(before, START, range(10), Maintenance(nodes=came.nodes), "1.15.2.0", random.Random(1))
    _write(after, START + 20 * DAY_S, range(10), came, "1.22.0", random.Random(2))
    return before, after


def capture_of(libfabric: str) -> Facts:
    """Give the little that a capture needs for its libfabric to be compared."""
    place = "/opt/cray/libfabric"
    return Facts(
        site="lumi",
        products={place: Releases((libfabric,))},
        paths={
            f"{place}/{version}": Named("directory" if version == libfabric else "none")
            for version in ("1.15.2.0", "1.22.0")
        },
    )


def _write(folder: Path, start: int, jobs: range, came: Maintenance, libfabric: str, chance: random.Random) -> None:
    folder.mkdir(parents=True)
    platform = {"before": "2024-08"}.get(folder.name, "2026-01")
    about = {"site": "lumi", "platform": platform, "image": "/appl/x.sif", "image_digest": "sha256:0a", "spec": "1f"}
    (folder / "run.json").write_text(json.dumps(about))
    (folder / "facts.json").write_text(format_facts(capture_of(libfabric)))
    lines = []
    for job in jobs:
        nodes, time = SETS[job % 3], start + job * DAY_S // 3
        run = f"{folder.name}-{job}"
        lines += [line_json(gate) for gate in _gates(run, nodes, time, came)]
        lines += [line_json(sample) for sample in _samples(run, nodes, time, came, chance)]
    for repeat in range(3):
        lines += [line_json(sample) for sample in _nodes(f"{folder.name}-n{repeat}", start, came, chance)]
    (folder / "samples.jsonl").write_text("".join(f"{line}\n" for line in lines))


def _gates(run: str, nodes: tuple[str, ...], time: int, came: Maintenance) -> Iterator[Gate]:
    for name in ("binds", "transport"):
        if name == came.failed_gate:
            cause, advice = "rank 3 used sockets: no <plugin> & no 'cxi'", "bind the host's libfabric"
            yield Gate(name, "fail", cause, advice, run, nodes, time, 3)
        else:
            yield Gate(name, "pass", "", "", run, nodes, time)


def _samples(run: str, nodes: tuple[str, ...], time: int, came: Maintenance, chance: random.Random) -> Iterator[Sample]:
    def sample(metric: str, value: float, unit: str) -> Sample:
        noisy = float(f"{value * chance.lognormvariate(0, 0.01):.5g}")
        return Sample(metric, noisy, "higher", run, nodes, time, unit, "sha256:0a", "1f")

    for place, size in enumerate(SIZES):
        for shape, top, factor in (("1n", 125.0, 1.0), ("2n", 90.0, came.network)):
            name = f"collectives/all_reduce_busbw/{size}/{shape}"
            yield sample(name, factor * top * (1 - 0.5 ** (place + 1)), "GB/s")
    for model, speed in (("comm", 1.0), ("compute", 0.5)):
        for shape, rate, factor in (("1g", 520.0, 1.0), ("1n", 4000.0, 1.0), ("2n", 7600.0, came.network)):
            yield sample(f"ddp/samples_per_s/{model}/{shape}", factor * speed * rate, "1/s")


def _nodes(run: str, time: int, came: Maintenance, chance: random.Random) -> Iterator[Sample]:
    for number in range(came.nodes):
        node = f"nid{5001 + number:06}"
        factor = 0.85 if node == came.slow_node else 1.0
        value = float(f"{chance.lognormvariate(5, 0.01) * factor:.5g}")
        yield Sample("nodes/gemm_tflops/1g", value, "higher", run, (node,), time, "TFLOP/s", "sha256:0a", "1f")


if __name__ == "__main__":
    write_runs(Path(sys.argv[1]), SHOWN)
