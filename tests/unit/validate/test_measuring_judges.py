"""The judges of what measures: every way in which numbers must not be believed."""

from __future__ import annotations

import runpy
from dataclasses import replace

import pytest

from lumisite.site.load import load_site
from lumisite.site.scalars import Name
from lumisite.site.software import Fabric
from lumisite.validate.lines import Sample
from lumisite.validate.probes.collectives.judge import collectives
from lumisite.validate.probes.ddp.judge import ddp
from lumisite.validate.probes.pairs.judge import pairs
from lumisite.validate.probes.probe import Record, scripts
from lumisite.validate.probes.transport.judge import judge as judge_transport
from lumisite.validate.probes.transport.judge import transport
from tests.support.ranks import NODES, ended, expected, gate_of, rank, values
from tests.support.records import target_of

LUMI, TWIN = load_site("lumi").site.fabric, load_site("twin").site.fabric


# ---- what holds of every probe's ranks


def model(own: float = 1.0, exchanged: float = 1.5, digest: str = "d", slow: float = 1.0) -> dict[str, object]:
    times = [0.1 * slow, 0.1 * slow, 0.2 * slow, 0.1 * slow]
    gradient = {"own": own, "exchanged": exchanged, "digest": digest}
    numbers = {"batch": 8, "total_s": sum(times)}
    return {**numbers, "step_s": times, "alone_s": [0.06] * 4, "gradient": gradient}


GOOD = [rank(0, models={"comm": model(1.0)}), rank(1, models={"comm": model(2.0, slow=2.0)})]


def changed(number: int, **more: object) -> list[Record]:
    return [{**record, **more} if record["rank"] == number else record for record in GOOD]


def at(number: int, phase: str, time: float) -> dict[str, object]:
    return {"host": NODES[number], "rank": number, "phase": phase, "time": time}


RESET = {"error": "RuntimeError: [gloo] Connection closed by peer", "error_at": "training", "error_time": 30.4}
BOOM = {"error": "ValueError: no such device", "error_at": "training", "error_time": 32.0}
AT_WORK = [at(0, "training", 30.0), at(1, "training", 30.0)]
SURVIVOR = [{**GOOD[0], **RESET}, AT_WORK[1]]
TASK = ("srun: error: nid000001: task 0: ", "srun: error: nid000002: task 1: ")
MEMORY = "slurmstepd: error: Detected 1 oom_kill event in StepId=7.4."


@pytest.mark.parametrize(
    ("records", "exit_code", "code", "cause"),
    [
        (changed(1, world_size=1), 0, "ranks-count",
         "1 ranks worked together where 2 should (1 on each node; reported: nid000001: 1, nid000002: 1)"),
        (changed(1, **BOOM), 1, "rank-failed", "rank 1 on nid000002: failed while training: ValueError: no such device"),
        ([], 124, "step-hung", "p-2n: not done after 60 s"),
        ([], 1, "step-failed", "srun ended with exit code 1: the last words"),
        (GOOD[:1], 0, "record-missing", "rank 1 on nid000002: no record is left: it did not start, or was ended"),
    ],
)  # fmt: skip
def test_ranks_that_did_not_finish_are_named(records: list[Record], exit_code: int, code: str, cause: str) -> None:
    gate = gate_of(list(ddp(target_of("twin")).judge([ended(records, exit_code)], expected("ddp"))))
    assert (gate.verdict, gate.code, gate.text) == ("fail", code, cause)


@pytest.mark.parametrize(
    ("records", "stderr", "code", "cause", "nodes"),
    [
        # A survivor's words are no cause, in whatever order srun has the lines.
        (SURVIVOR, (TASK[0] + "Exited with exit code 1", TASK[1] + "Killed"), "rank-failed", "training: Killed", (1,)),
        (SURVIVOR, (TASK[1] + "Terminated",), "rank-failed", ": Terminated", (1,)),
        # The others were sent a signal because one ended.
        (AT_WORK, (TASK[0] + "Terminated", TASK[1] + "Killed"), "rank-failed", "rank 1 on nid000002: ended", (1,)),
        (AT_WORK, (TASK[1] + "Killed", TASK[0] + "Segmentation fault"), "rank-failed", ": Segmentation fault", (0,)),
        # One that lived on, or had not begun, when another had an error of its own.
        ([SURVIVOR[0], at(1, "training", 31.2)], (TASK[1] + "Killed",), "rank-failed", "Connection closed", (0, 1)),
        (SURVIVOR[:1], (TASK[1] + "Killed",), "rank-failed", "Connection closed", (0, 1)),
        (AT_WORK, (MEMORY, TASK[1] + "Killed"), "rank-failed", "killed while training: out of memory (Killed)", (1,)),
        # Memory was out on the way of another that ended by itself.
        (AT_WORK, (MEMORY, TASK[1] + "Aborted"), "rank-failed", ": Aborted", (1,)),
        # srun gives 137 where one rank failed and it killed the others.
        (AT_WORK, ("the last words",), "step-failed", "srun ended with exit code 137: the last words", (0, 1)),
    ],
)
def test_the_rank_that_ended_first_is_the_cause(
    records: list[Record], stderr: tuple[str, ...], code: str, cause: str, nodes: tuple[int, ...]
) -> None:
    left = replace(ended(records, 137), seconds=9.0, stderr=stderr)
    gate = gate_of(list(ddp(target_of("twin")).judge([left], expected("p"))))
    assert (gate.verdict, gate.code) == ("fail", code)
    assert cause in gate.text
    assert gate.nodes == tuple(NODES[node] for node in nodes)


@pytest.mark.parametrize(
    ("other", "rank", "nodes"),
    [
        # One rank has an error of its own, whoever of the others noticed first that it is gone.
        ((RESET, BOOM), 1, NODES[1:]),
        # All have the same, or nothing but words on each other: no node is picked out.
        ((BOOM, BOOM), 0, NODES),
        (({}, RESET), 1, NODES),
    ],
)
def test_an_error_of_one_rank_is_that_of_its_node(
    other: tuple[Record, Record], rank: int, nodes: tuple[str, ...]
) -> None:
    records: list[Record] = [{**record, **error} for record, error in zip(GOOD, other, strict=True)]
    gate = gate_of(list(ddp(target_of("twin")).judge([ended(records, 1)], expected("ddp"))))
    assert (gate.code, gate.rank, gate.nodes) == ("rank-failed", rank, nodes)
    assert bool(gate.asked) == (nodes != NODES)


# ---- ddp


def test_training_gives_its_speed_by_the_slowest_rank() -> None:
    found = values(list(ddp(target_of("twin")).judge([ended(list(GOOD))], expected("ddp"))))
    assert found["ddp/samples_per_s/comm/2n"] == pytest.approx(8 * 2 * 4 / 1.0)
    assert 0.2 < found["ddp/step_time_p90_s/comm/2n"] < 0.4
    assert found["ddp/exposed_communication/comm/2n"] == pytest.approx(0.7)


def exchanges(*of_ranks: tuple[float, float, str]) -> list[Record]:
    """Give the records of four ranks on two nodes: each one's own gradient, what it was after, and its digest."""
    return [rank(at, 2, 4, models={"comm": model(*values)}) for at, values in enumerate(of_ranks)]


@pytest.mark.parametrize(
    ("records", "message", "nodes", "ranks"),
    [
        (exchanges((1, 3, "a"), (2, 3, "a"), (4, 3, "a"), (5, 3, "b")), "rank 3 is not that of rank 0", NODES[1:], "3"),
        (exchanges((1, 3, "a"), (2, 9, "b"), (4, 3, "c"), (5, 3, "d")), "rank 1 is not that of rank 0", NODES[:1], "1"),
        (exchanges((1, 3, "a"), (2, 3, "a"), (4, 3, "b"), (5, 3, "b")), "rank 2 is not that of rank 0", NODES, ""),
        (
            exchanges(*[(own, 50, "a") for own in (1, 2, 5, 4)]),
            "comm: the exchanged gradient is 50, the mean",
            NODES,
            "",
        ),
    ],
)
def test_gradients_that_do_not_agree_fail_give_no_numbers_and_name_the_rank(
    records: list[Record], message: str, nodes: tuple[str, ...], ranks: str
) -> None:
    lines = list(ddp(target_of("twin")).judge([ended(records, tasks=2)], expected("ddp", 2)))
    gate = gate_of(lines)
    assert len(lines) == 1
    assert (gate.code, gate.nodes, gate.values.get("ranks", "")) == ("results-wrong", nodes, ranks)
    assert message in gate.text


# ---- collectives


def collective(wrong: int = 0, seconds: float = 0.01) -> list[dict[str, object]]:
    return [{"collective": "all_reduce", "asked": 1 << 20, "bytes": 1 << 20, "times_s": [seconds] * 3, "wrong": wrong}]


def test_bus_bandwidth_follows_the_published_formula_and_the_slowest_rank() -> None:
    records: list[Record] = [rank(0, collectives=collective()), rank(1, collectives=collective(seconds=0.02))]
    found = values(collectives(target_of("twin")).judge([ended(records)], expected("collectives")))
    assert found == {"collectives/all_reduce_busbw/1MiB/2n": pytest.approx((1 << 20) / 0.02 / 1e9)}


@pytest.mark.parametrize(("wrong", "nodes"), [((0, 3), NODES[1:]), ((3, 3), NODES)])
def test_wrong_sums_fail_give_no_numbers_and_name_the_node_unless_all_have_them(
    wrong: tuple[int, int], nodes: tuple[str, ...]
) -> None:
    records: list[Record] = [rank(at, collectives=collective(count)) for at, count in enumerate(wrong)]
    lines = collectives(target_of("twin")).judge([ended(records)], expected("collectives"))
    assert (gate_of(lines).code, gate_of(lines).nodes) == ("results-wrong", nodes)
    assert "all_reduce: 3 wrong values at 1MiB on rank " in gate_of(lines).text
    assert not values(lines)


# ---- pairs


def test_each_node_and_each_pair_gives_its_best_repeat() -> None:
    """What disturbs a node for some repeats does not count."""
    alone = {"width": 100, "bytes": 1000, "product_s": [2e-3, 1e-3, 3e-3], "copy_s": [2e-6, 3e-6, 1e-6]}
    pair = {
        "pair": [0, 1],
        "bytes": 1 << 20,
        "all_reduce_s": [0.01, 0.02, 0.02],
        "there_and_back_s": [0.02, 0.02, 0.04],
    }
    other = {**pair, "all_reduce_s": [0.03, 0.01, 0.015]}
    records: list[Record] = [rank(0, node=0, alone=alone, pairs=[pair]), rank(1, node=1, alone=alone, pairs=[other])]
    lines = pairs(target_of("twin")).judge([ended(records)], expected("pairs"))
    assert gate_of(lines).text == "2 nodes measured alone and in pairs"
    per_node = [line for line in lines if isinstance(line, Sample) and line.metric == "pairs/gemm/1n"]
    assert [line.nodes for line in per_node] == [NODES[:1], NODES[1:]]
    found = values(lines)
    assert found["pairs/gemm/1n"] == pytest.approx(2 * 100**3 / 1e-3 / 1e12)
    assert found["pairs/copy_bw/1n"] == pytest.approx(2 * 1000 / 1e-6 / 1e9)
    # A repeat is as slow as its slower rank: 30, 20 and 20 ms.
    assert found["pairs/all_reduce_busbw/1MiB/2n"] == pytest.approx((1 << 20) / 0.02 / 1e9)
    assert found["pairs/send_recv_bw/1MiB/2n"] == pytest.approx(2 * (1 << 20) / 0.02 / 1e9)


@pytest.mark.parametrize("nodes", range(2, 12))
def test_every_node_is_in_two_pairs_and_once_in_a_round(nodes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(scripts()["rank.py"].parent))  # as where it runs
    rounds = runpy.run_path(str(scripts()["pairs.py"]))["rounds"](nodes)
    for pairing in rounds:
        members = [node for pair in pairing for node in pair]
        assert len(members) == len(set(members))
    everyone = [node for pairing in rounds for pair in pairing for node in pair]
    assert {everyone.count(node) for node in range(nodes)} == ({2} if nodes > 2 else {1})


# ---- transport over gloo


def carried(*sent: tuple[int, int]) -> list[Record]:
    """The records of two nodes by what they sent over eth0 and hsn0; both the same where one is given."""
    return [
        rank(number, moved=1000, sent={"eth0": eth0, "hsn0": hsn0, "hsn1": 0})
        for number, (eth0, hsn0) in enumerate(sent * (2 // len(sent)))
    ]


RIGHT, WRONG = (9, 1000), (1000, 9)


@pytest.mark.parametrize(
    ("sent", "forced", "verdict", "code", "nodes", "cause"),
    [
        ([RIGHT], WRONG, "pass", "transport-fine", NODES, "carried the bytes of nid000001, nid000002"),
        ([WRONG], WRONG, "fail", "transport-wrong-network", NODES, "nid000001: eth0 sent 0.0 of 0.0 MB, expected hsn0"),
        ([WRONG, RIGHT], WRONG, "fail", "transport-wrong-network", NODES[:1], "nid000001: eth0 sent"),
        ([RIGHT, WRONG], WRONG, "fail", "transport-wrong-network", NODES[1:], "nid000002: eth0 sent"),
        ([(10, 20)], WRONG, "inconclusive", "transport-not-shown", NODES, "nid000001: the interfaces sent"),
        # The control has to fail, or shows nothing.
        (
            [RIGHT],
            RIGHT,
            "inconclusive",
            "transport-not-shown",
            NODES,
            "with GLOO_SOCKET_IFNAME=eth0 the step does not",
        ),
        ([RIGHT], None, "inconclusive", "step-failed", NODES, ""),
    ],
)
def test_the_interfaces_counters_tell_and_the_control_must_fail(
    sent: list[tuple[int, int]],
    forced: tuple[int, int] | None,
    verdict: str,
    code: str,
    nodes: tuple[str, ...],
    cause: str,
) -> None:
    control = ended(carried(forced), GLOO_SOCKET_IFNAME="eth0") if forced else ended([], 1)
    gate = gate_of(judge_transport(TWIN, "gloo", [ended(carried(*sent)), control], expected("transport")))
    assert (gate.verdict, gate.code, gate.nodes) == (verdict, code, nodes)
    assert cause in gate.text


def test_the_control_is_forced_onto_the_wrong_network() -> None:
    assert [part.environment for part in transport(target_of("lumi")).sruns] == [(), (("NCCL_NET", "Socket"),)]
    (_plain, control) = transport(target_of("twin")).sruns
    assert control.environment == (("GLOO_SOCKET_IFNAME", "eth0"),)


# ---- transport over NCCL and RCCL

GOOD_LOG = """\
{host}:{pid}:{pid} [0] NCCL INFO NET/OFI Selected provider is cxi, fabric is cxi (found 4 nics)
{host}:{pid}:{pid} [0] NCCL INFO Using network AWS Libfabric
{host}:{pid}:{pid} [0] NCCL INFO ncclCommInitRank comm 0x1 rank {rank} nranks 2 cudaDev 0 busId c1000 - Init START
{host}:{pid}:{pid} [0] NCCL INFO Channel 00/0 : 0[0] -> 1[0] [send] via NET/AWS Libfabric/0/GDRDMA
{host}:{pid}:{pid} [0] NCCL INFO Channel 00/0 : 1[0] -> 0[0] [receive] via NET/AWS Libfabric/0/GDRDMA
{host}:{pid}:{pid} [0] NCCL INFO Connected all rings
{host}:{pid}:{pid} [0] NCCL INFO Connected all trees
{host}:{pid}:{pid} [0] NCCL INFO ncclCommInitRank comm 0x1 rank {rank} nranks 2 cudaDev 0 busId c1000 - Init COMPLETE
"""
SOCKET_LOG = GOOD_LOG.replace("AWS Libfabric", "Socket").partition("\n")[2].replace("/GDRDMA", "")
NO_GDR_LOG = GOOD_LOG.replace("/GDRDMA", "")


def logged(text: str) -> list[Record]:
    return [rank(n, log=text.format(host=NODES[n], pid=100 + n, rank=n), interfaces={}) for n in (0, 1)]


@pytest.mark.parametrize(
    ("fabric", "plain", "control", "verdict", "code"),
    [
        (LUMI, GOOD_LOG, SOCKET_LOG, "pass", "transport-fine"),
        (LUMI, SOCKET_LOG, SOCKET_LOG, "fail", "transport-wrong-network"),
        (LUMI, GOOD_LOG, GOOD_LOG, "inconclusive", "transport-not-shown"),
        (LUMI, "", SOCKET_LOG, "inconclusive", "transport-not-shown"),
        # GPU Direct RDMA counts where the site requires it.
        (LUMI, NO_GDR_LOG, SOCKET_LOG, "pass", "transport-fine"),
        (replace(LUMI, require_gdr=True), NO_GDR_LOG, SOCKET_LOG, "fail", "transport-no-gdr"),
    ],
)
def test_the_librarys_log_tells_and_the_control_must_fail(
    fabric: Fabric, plain: str, control: str, verdict: str, code: str
) -> None:
    steps = [ended(logged(plain)), ended(logged(control), NCCL_NET="Socket")]
    gate = gate_of(judge_transport(fabric, "nccl", steps, expected("transport")))
    assert (gate.verdict, gate.code) == (verdict, code), gate.text


def test_the_adapters_of_the_nodes_kind_are_counted() -> None:
    lumi = load_site("lumi").site
    kinds = {name: replace(kind, adapters=(Name("a"), Name("b"))) for name, kind in lumi.node_kinds.items()}
    judge = transport(target_of(replace(lumi, node_kinds=kinds))).judge
    steps = [ended(logged(GOOD_LOG)), ended(logged(SOCKET_LOG), NCCL_NET="Socket")]
    gate = gate_of(judge(steps, expected("transport")))
    assert (gate.verdict, gate.code) == ("fail", "transport-nics")
    assert "NICs found: 4, expected 2" in gate.text


@pytest.mark.parametrize("host", [NODES[1], "login"])
def test_the_node_whose_rank_is_on_sockets_is_named_if_it_is_one_of_the_job(host: str) -> None:
    good, bad = logged(GOOD_LOG)[0], logged(SOCKET_LOG)[1]
    records: list[Record] = [good, {**bad, "log": SOCKET_LOG.format(host=host, pid=101, rank=1)}]
    gate = gate_of(judge_transport(LUMI, "nccl", [ended(records)], expected("transport")))
    assert (gate.verdict, gate.code) == ("fail", "transport-wrong-network")
    assert gate.nodes == ((host,) if host in NODES else NODES)
