"""A machine of many nodes that is played: Slurm, and what the ranks of each step leave.

One node has a link that is down, one is slow, one is lost while it trains, some jobs begin late, and some marks arrive
late.
"""

from __future__ import annotations

import io
import json
import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import replace
from pathlib import Path
from typing import Any

from lumisite.cli.validate import print_run
from lumisite.findings.finding import Finding
from lumisite.validate.probes.communicators.judge import GROUPS
from lumisite.validate.run.folder import Run, create_run
from lumisite.validate.run.node_sets import machine_sets
from lumisite.validate.run.plan import plans_of
from lumisite.validate.run.request import RunRequest
from lumisite.validate.run.runner import Runner
from tests.support.node_records import healthy_node
from tests.support.played_slurm import PlayedJob, PlayedSlurm, drive
from tests.support.requests import a_request
from tests.support.sites import load_text, site_text

TASKS = 8
#: The twin's nodes share CPUs and memory, which these do not.
_SHARED = [line for line in site_text().splitlines(keepends=True) if "of one machine}" in line]
MACHINE = load_text(site_text(("tasks_per_node: 1\n", f"tasks_per_node: {TASKS}\n"), *((line, "") for line in _SHARED)))
#: All but `environment`, whose records are the same for each rank of each site.
PROBES = ("transport", "communicators", "collectives", "ddp", "pairs")
#: After so many rounds nothing comes any more.
MOST_ROUNDS = 20_000
#: Rounds that a straggler waits for its nodes, and after which a late mark is there.
WAITS, LATE = 30, 1


class PlayedMachine(PlayedSlurm):
    """A Slurm whose jobs wait for their nodes."""

    def __init__(self, names: Sequence[str], slow: str, down_link: str, lost: str) -> None:
        super().__init__(names)
        self.slow, self.down_link, self.lost = slow, down_link, lost
        self.most_jobs, self.rounds = 0, 0
        self.waits, self.late = Counter[str](), Counter[str]()
        self.chance = random.Random(1)
        self.noise = {name: 1 + abs(self.chance.gauss(0, 0.01)) for name in names}

    def submit(self, script: str) -> str:
        name = super().submit(script)
        job = self.jobs[name]
        job.state, number = "PENDING", int(job.folder.name.rpartition("-")[2])
        self.waits[name], self.late[name] = WAITS * (number % 10 == 3), LATE * (number % 5 == 1)
        self.most_jobs = max(self.most_jobs, sum(each.is_live for each in self.jobs.values()))
        return name

    def go_on(self) -> None:
        self.rounds += 1
        assert self.rounds < MOST_ROUNDS, "the driver waits for what does not come"
        super().go_on()
        busy = {node for job in self.jobs.values() if job.state == "RUNNING" for node in job.nodes}
        for job in self.jobs.values():
            if job.state == "PENDING":
                self.waits[job.id] -= 1
                usable = all(self.nodes[node] == "idle" for node in job.nodes) and busy.isdisjoint(job.nodes)
                if self.waits[job.id] < 0 and usable:
                    job.state = "RUNNING"
                    busy |= {*job.nodes}
            elif job.state == "COMPLETED":
                self.late[job.id] -= 1
                if self.late[job.id] == -1:
                    job.done()

    def _end_job(self, job: PlayedJob) -> None:
        job.state = "COMPLETED"

    def _is_lost(self, job: PlayedJob, ended: int) -> bool:
        if not job.steps[ended].startswith("ddp") or self.lost not in job.nodes or self.nodes[self.lost] != "idle":
            return False
        job.state, self.nodes[self.lost] = "NODE_FAIL", "down"
        return True

    def _records(self, step: str, nodes: tuple[str, ...]) -> Iterator[tuple[str, str]]:
        """Yield the files of a step, with their text: one of records for each node, and one of reports."""
        probe, label = step.split("-")[:2]
        if probe == "node":
            for rank, node in enumerate(nodes):
                record = self.node(node, rank) if step.count("-") == 1 else {"host": node, "rank": rank, "files": {}}
                yield f"{rank}.json", json.dumps(record)
            return
        hosts = nodes if label == f"{len(nodes)}n" else nodes[:1]
        tasks = 1 if label == "1g" else TASKS
        make: Callable[..., dict[str, object]] = getattr(self, probe)
        for at, node in enumerate(hosts):
            of_node = json.dumps(make(step, node, at, hosts))[1:]
            lines = []
            for rank in range(at * tasks, (at + 1) * tasks):
                ranks = tasks * len(hosts)
                head = {"host": node, "rank": rank, "local_rank": rank % tasks, "tasks": ranks, "world_size": ranks}
                lines.append(f"\n{json.dumps(head)[:-1]}, {of_node}\n")
            name = node if tasks > 1 else "0"
            yield f"{name}.jsonl" if tasks > 1 else "0.json", "".join(lines)
            yield f"{name}.at", json.dumps({"host": node, "rank": at, "phase": "leaving", "time": 1})

    def node(self, name: str, rank: int) -> dict[str, object]:
        record = healthy_node(name)
        record.update(rank=rank, now=1000.0)
        for place, interface in enumerate(record["interfaces"].values()):
            interface["addresses"] = f"10.{int(name[1:]) >> 8}.{int(name[1:]) & 255}.{place + 1}/16 "
        if name == self.down_link:
            record["interfaces"]["hsn1"]["state"] = "down"
        return record

    def transport(self, step: str, *_: object) -> dict[str, object]:
        slow, fast = (2000, 10) if step.endswith("control") else (10, 2000)
        return {"moved": 1000, "sent": {"eth0": slow, "hsn0": fast}}

    def communicators(self, *_: object) -> dict[str, object]:
        return {"groups": [{"make_s": 0.2, "first_s": 1.0, "wrong": 0}] * GROUPS}

    def collectives(self, *_: object) -> dict[str, object]:
        rows = [
            {"collective": name, "asked": size, "bytes": size, "times_s": [size / 1e9] * 8, "wrong": 0}
            for name in ("all_reduce", "all_gather", "reduce_scatter")
            for size in (1 << power for power in range(16, 25))
        ]
        return {"collectives": rows}

    def ddp(self, *_: object) -> dict[str, object]:
        times = [round(0.1 + self.chance.random() / 1000, 9) for _ in range(45)]
        model: dict[str, object] = {"batch": 8, "total_s": sum(times), "step_s": times, "alone_s": times}
        model["gradient"] = {"own": 1.0, "exchanged": 1.0, "digest": "d"}
        return {"models": {"comm": model, "compute": model}}

    def pairs(self, _step: str, node: str, at: int, hosts: tuple[str, ...]) -> dict[str, object]:
        slower = self.noise[node] * (1.5 if node == self.slow else 1)
        alone = {"width": 100, "bytes": 1000, "product_s": [1e-3 * slower] * 5, "copy_s": [1e-6 * slower] * 5}
        count = len(hosts)
        ring = {(min(at, other), max(at, other)) for other in ((at + 1) % count, (at - 1) % count)}
        times = {"bytes": 1 << 20, "all_reduce_s": [0.01] * 5, "there_and_back_s": [0.02] * 5}
        return {"node": at, "alone": alone, "pairs": [{"pair": list(pair), **times} for pair in sorted(ring)]}


def machine_of(nodes: int) -> PlayedMachine:
    """Return a machine in which three nodes are bad, none of them the first of its set, which is in another one too."""
    names = tuple(f"n{number:04}" for number in range(1, nodes + 1))
    return PlayedMachine(names, names[nodes // 2 + 1], names[nodes // 3 + 2], names[nodes // 4 + 1])


def request_of(machine: PlayedMachine, folder: Path, size: int, *, divided: bool = True) -> RunRequest:
    """Return the request to validate all of a machine, or its first nodes in one job."""
    names = tuple(machine.nodes)
    sets = tuple(machine_sets(names, size)) if divided else (names[:size],)
    return replace(
        a_request(),
        folder=str(folder),
        stamp="20260122T100000-017",
        jobs=len(sets),
        node_sets=sets,
        probes=PROBES,
        step_nodes=size if divided else None,
    )


def validate(request: RunRequest, reports: list[Finding], *, again: bool = False) -> dict[str, Any]:
    """Run what is requested, or go on with it, and return the result that is printed."""
    folder = Path(request.folder)
    run, printed = Run(folder) if (folder / "run.json").exists() else create_run(request), io.StringIO()
    plans = plans_of(request, MACHINE)
    drive(Runner(run, MACHINE.site, request, plans, reports.append, marks_s=0, slurm_s=0, grace_s=0), again=again)
    with redirect_stdout(printed), redirect_stderr(io.StringIO()):
        code = print_run(run, request, MACHINE, None, as_json=True)
    return {**json.loads(printed.getvalue()), "exit_code": code}
