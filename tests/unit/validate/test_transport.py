"""What the logs of NCCL and RCCL show of a run: their forms, good runs and bad ones, and words that break a reader."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from lumisite.cli import main
from lumisite.validate import nccl_log
from lumisite.validate.nccl_log import scan
from lumisite.validate.transport import Expectation, Result, judge
from tests.support.logs import Run

LOGS = {path.stem: path for path in sorted((Path(__file__).parents[2] / "data" / "transport").glob("*.log"))}
#: The codes that each log gives, with the options in its header.
CODES = json.loads((next(iter(LOGS.values())).parent / "codes.json").read_text())
#: These begin with a run that is good.
GOOD_FIRST = (
    "fail-run-time-errors",
    "fail-two-communicators",
    "inconclusive-one-silent",
    "inconclusive-rings-of-an-excerpt",
    "inconclusive-second-communicator",
)
CXI = Expectation("cxi", 4, require_gdr=True)
ON_SOCKETS = Run(network="Socket", provider="", suffix="", plugin=("NET/Plugin: No plugin found (x)",))
Output = pytest.CaptureFixture[str]


def judged(log: bytes | str, expectation: Expectation = CXI, block: int = 1 << 20) -> Result:
    data = log.encode() if isinstance(log, str) else log
    return judge(scan([("log", (data[at : at + block] for at in range(0, len(data), block)))]), expectation)


def codes(result: Result) -> list[str]:
    return [finding.code for finding in result.findings]


# ---- logs of real runs, and runs in the form of real logs


@pytest.mark.parametrize("name", LOGS)
def test_a_log_gives_the_answer_in_its_header(name: str, capsys: Output) -> None:
    text = LOGS[name].read_text()
    options, answer = (text.partition(f"# {key}:")[2].partition("\n")[0].strip() for key in ("options", "answer"))
    code = main(["transport", "--json", str(LOGS[name]), *options.split()])
    found = json.loads(capsys.readouterr().out)
    assert " ".join(found) == "verdict plugin_in_use provider network gdr interfaces processes reasons findings"
    expected = json.loads(answer)
    assert {key: found[key] for key in expected} == expected
    assert name.startswith(found["verdict"]), "the file's name is its answer"
    assert code == {"pass": 0, "fail": 1, "inconclusive": 4}[found["verdict"]]
    assert len(found["reasons"]) == len(found["findings"]) > 0, "every verdict says why"
    assert [finding["code"] for finding in found["findings"]] == CODES[name]
    assert found["verdict"] != "pass" or all(process["verdict"] == "pass" for process in found["processes"])
    for finding in found["findings"]:
        assert finding["severity"] == "info" or re.search("`[^`]+`", finding["advice"]), "there is a command to type"


@pytest.mark.parametrize("name", sorted(LOGS.keys() - {*GOOD_FIRST}))
def test_no_beginning_of_a_log_passes_that_does_not_pass_whole(name: str) -> None:
    """What is not there yet is unknown: a run that is cut short anywhere is inconclusive at best."""
    data = LOGS[name].read_bytes()
    expectation = Expectation("cxi", 4)
    if judged(data, expectation).verdict == "pass":
        return
    lines = data.splitlines(keepends=True)
    for cut in range(len(lines)):
        assert judged(b"".join(lines[:cut]), expectation).verdict != "pass", lines[cut]


@pytest.mark.parametrize(
    ("name", "code", "text"),
    [
        ("inconclusive-no-log", "transport-not-shown", "names a network"),
        ("inconclusive-within-node-only", "transport-not-shown", "one node, so no traffic used the network"),
        ("inconclusive-warned", "transport-note", "warned: NET/OFI Creating new endpoint for domain 0x7f01 failed: "),
        ("fail-no-symbol-of-a-plugin", "transport-wrong-network", "network Socket (NET/Plugin: Failed to find ncclNet"),
        ("fail-ib-errors", "transport-errors", "(status 12): the peer has ended, or nothing reaches it"),
        ("fail-run-time-errors", "transport-errors", "(RC 107, error Transport endpoint is not connected)"),
        ("inconclusive-rings-of-an-excerpt", "transport-unfinished", "a communicator began and did not complete"),
        ("fail-plugin-chose-tcp", "transport-wrong-network", "provider is tcp, expected cxi"),
        ("fail-plugin-does-not-start", "transport-wrong-network", "Socket (Failed to initialize NET plugin Libfabric)"),
        ("fail-two-communicators", "transport-wrong-network", "use different networks: AWS Libfabric, Socket"),
        ("fail-one-adapter-of-four", "transport-nics", "NICs found: 1 (mlx5_0), expected 4"),
        ("pass-expected-roce", "transport-wrong-network", "the network IB, expected cxi"),
    ],
)
def test_a_finding_says_what_the_log_shows(name: str, code: str, text: str) -> None:
    expectation = Expectation("IB" if name in ("fail-ib-errors", "fail-one-adapter-of-four") else "cxi", 4)
    result = judged(LOGS[name].read_bytes(), expectation)
    assert [text in finding.message for finding in result.findings if finding.code == code].count(True) == 1


def test_a_good_run_passes_in_blocks_of_any_size() -> None:
    log = Run().text()
    whole = judged(log)
    assert whole.verdict == "pass"
    assert whole.reasons == (
        "processes: 16, nodes: 2, network AWS Libfabric, provider cxi, NICs 4, GPU Direct RDMA yes",
    )
    for block in (7, 1000, 4096):
        assert judged(log, block=block) == whole


def test_one_rank_on_sockets_among_sixteen_fails_and_is_named_with_each_process_in_a_table(capsys: Output) -> None:
    lines = [line for rank in range(16) for line in (ON_SOCKETS if rank == 7 else Run()).rank_lines(rank)]
    result = judged("\n".join(lines))
    assert (result.verdict, result.plugin_in_use, result.gdr) == ("fail", "no", "no")
    assert (result.provider, result.network) == ("cxi,none", "AWS Libfabric,Socket")
    first = result.findings[0]
    assert (first.code, first.subject) == ("transport-wrong-network", "rank 7 (nid005000:7007)")
    assert first.nodes == ("nid005000",)
    Path("log").write_text("\n".join(lines))
    assert main(["transport", "log", "--expect", "cxi", "--nics", "4"]) == 1
    table = capsys.readouterr().out.partition("\n\nranks")[2].splitlines()[1:]
    assert [" ".join(row.split()) for row in table] == [
        "0,8,15 3 on 2 nodes pass yes cxi AWS Libfabric 4 yes complete",
        "1-6,9-14 12 on 2 nodes pass yes cxi AWS Libfabric 4 unknown complete",
        "7 nid005000:7007 fail no none Socket - no complete",
    ]


def test_one_file_for_each_rank_is_one_run(tmp_path: Path, capsys: Output) -> None:
    names = []
    for rank in range(16):
        path = tmp_path / f"nid{5000 + rank // 8:06}.{7000 + rank}"
        path.write_text("\n".join(Run().rank_lines(rank)) + "\n")
        names.append(str(path))
    assert main(["transport", *names, "--expect", "cxi", "--nics", "4"]) == 0
    assert capsys.readouterr().out.startswith("PASS: ")
    assert main(["transport", *names[:15], "--expect", "cxi", "--json"]) == 4
    (finding,) = json.loads(capsys.readouterr().out)["findings"]
    assert (finding["code"], finding["message"]) == ("transport-not-shown", "1 of 16 ranks are not in the log: 15")


def test_a_process_with_several_gpus_has_several_ranks() -> None:
    lines = []
    for rank in range(16):
        own = f"nid{5000 + rank // 8:06}:{7000 + rank // 8}:{7100 + rank}"
        once = "Bootstrap" if rank % 8 else "nothing"
        lines += [own + line[line.index(" [") :] for line in Run().rank_lines(rank) if once not in line]
    result = judged("\n".join(lines))
    assert result.verdict == "pass", result.reasons
    assert [process.process for process in result.processes] == ["nid005000:7000", "nid005001:7001"]


def in_own_containers(text: str) -> str:
    """As if each rank's container counted its own processes."""
    return re.sub(r":\d+:\d+ \[\d\]", ":1:40 [0]", text)


def test_processes_with_the_same_host_and_pid_are_told_and_not_taken_for_one() -> None:
    result = judged(in_own_containers(Run().text().decode()))
    assert (result.verdict, codes(result)) == ("inconclusive", ["transport-not-shown"])
    files = [
        (str(rank), [in_own_containers("\n".join((ON_SOCKETS if rank == 7 else Run()).rank_lines(rank))).encode()])
        for rank in range(16)
    ]
    result = judge(scan(files), CXI)
    assert [process.rank for process in result.processes] == [*range(16)]
    assert [process.rank for process in result.processes if process.verdict == "fail"] == [7]
    assert result.findings[0].subject == "rank 7 (nid005000:1)"


# ---- how many nodes


@pytest.mark.parametrize("network", ["Socket", "AWS Libfabric", "IB"])
@pytest.mark.parametrize("counted", [False, True])
def test_a_run_on_one_node_shows_nothing_of_its_network(network: str, counted: bool) -> None:
    """Not even that it is the wrong one: no traffic used it. NCCL counts the nodes from 2.20 on."""
    lines = [line for line in replace(ON_SOCKETS, nodes=1, network=network).lines() if "via " not in line]
    if counted:  # one rank alone shows it too
        head = lines[0].partition("Bootstrap")[0]
        lines = [line for line in lines if line.startswith(head)]
        lines.append(f"{head}comm 0x55d0 rank 0 nRanks 8 nNodes 1 localRanks 8 localRank 0 MNNVL 0")
    result = judged("\n".join(lines))
    assert (result.verdict, result.plugin_in_use, result.network) == ("inconclusive", "unknown", network)
    assert codes(result)[0] == "transport-not-shown"
    assert {process.verdict for process in result.processes} == {"pass"}


def test_a_communicator_within_a_node_does_not_make_a_run_one_on_one_node() -> None:
    """Without the lines of channels, the largest communicator alone says how many nodes there are."""
    lines = list(replace(ON_SOCKETS, channels=0).rank_lines(0))
    head = lines[0].partition("Bootstrap")[0]
    lines += [f"{head}comm 0x55d0 rank 0 nRanks 16 nNodes 2 localRanks 8 localRank 0 MNNVL 0"]
    lines += [f"{head}comm 0x66d0 rank 0 nRanks 8 nNodes 1 localRanks 8 localRank 0 MNNVL 0"]
    result = judged("\n".join(lines))
    assert (result.verdict, result.plugin_in_use, codes(result)[0]) == ("fail", "no", "transport-wrong-network")


# ---- a few lines of a log

RANK = "nid005001:7000:7040 [0] NCCL INFO "
OTHER = "nid005002:7001:7041 [1] NCCL INFO "
SOCKET_DEVICE = "n1:7:8 [1] NCCL INFO NET/Socket : Using [0]eth0:10.0.227.37<0>"
#: Lines, and what they show: plugin in use, provider, network, GPU Direct RDMA, interfaces.
FRAGMENTS = {
    "interfaces of sockets": (
        f"{RANK}NET/Socket : Using [0]nmn0:10.252.1.7<0> [1]hsn0:fe80::1%hsn0<0>",
        ("no", "none", "Socket", "no", ["nmn0", "hsn0"]),
    ),
    "a device of sockets": (
        f"{RANK}NET/Socket : GPU Direct RDMA Disabled for HCA 0 'hsn0'",
        ("no", "none", "Socket", "no", ["hsn0"]),
    ),
    "the plugin does not start, and sockets are opened": (
        f"n1:7:8 [1] create_plugin:259 NCCL WARN NET/OFI aws-ofi-nccl initialization failed\n{SOCKET_DEVICE}",
        ("no", "none", "Socket", "no", ["eth0"]),
    ),
    "sockets for the bootstrap, then adapters": (
        f"{RANK}NET/Socket : Using [0]eno1:10.1.1.1<0>\n{RANK}NET/IB : Using [0]mlx5_0:1/IB ; OOB eno1:10.1.1.1<0>",
        ("no", "none", "IB", "unknown", ["mlx5_0"]),
    ),
    "adapters of a plugin over verbs": (
        f"{RANK}NET/Plugin: Loaded net plugin NCCL RDMA Plugin v6 (v6)\n{RANK}NET/IB : Using [0]mlx5_0:1/IB",
        ("unknown", "unknown", "unknown", "unknown", []),
    ),
    "a plugin that is found under its second name": (
        f"{RANK}NET/Plugin: Could not find: librccl-net.so\n{RANK}NET/Plugin: Loaded net plugin Libfabric (v8)",
        ("unknown", "unknown", "unknown", "unknown", []),
    ),
    "devices of a plugin": (
        f"{RANK}NET/AWS Libfabric : GPU Direct RDMA Enabled for HCA 0 'cxi0'",
        ("yes", "unknown", "AWS Libfabric", "unknown", ["cxi0"]),
    ),
    "one process each says one thing": (
        f"{RANK}Using network Libfabric\n{OTHER}NET/OFI Selected provider is efa (found 3 nics)\n{OTHER}Bootstrap: Using e0",
        ("yes", "efa", "Libfabric", "unknown", []),
    ),
    "channels of one rank, one way": (
        f"{RANK}Channel 00/0 : 4092[d6000] -> 0[d6000] [receive] via NET/AWS Libfabric/2/GDRDMA comm 0x9b nRanks 4096",
        ("yes", "unknown", "AWS Libfabric", "yes", []),
    ),
    "channels of one rank, not by GPU Direct": (
        f"{RANK}Ring 00 : 7 -> 8 [receive] via NET/AWS Libfabric/0",
        ("yes", "unknown", "AWS Libfabric", "no", []),
    ),
    "a plugin that finds no provider": (
        "n1:7:8 [1] get_provider:99 NCCL WARN NET/OFI Could not find any optimal provider",
        ("no", "none", "unknown", "unknown", []),
    ),
    "a plugin over sockets": (
        f"{RANK}Using network FastSocket\n{RANK}Channel 00/0 : 0[40] -> 4[40] [send] via NET/FastSocket/0",
        ("yes", "none", "FastSocket", "no", []),
    ),
    "nothing of a network": (f"{RANK}Kernel version: 5.14", ("unknown", "unknown", "unknown", "unknown", [])),
}


@pytest.mark.parametrize("name", FRAGMENTS)
def test_a_fragment_shows_what_it_says_and_proves_nothing(name: str) -> None:
    text, answers = FRAGMENTS[name]
    result = judged(text, Expectation())
    found = (result.plugin_in_use, result.provider, result.network, result.gdr, list(result.interfaces))
    assert found == answers
    asked = (Expectation(), Expectation("cxi"), Expectation("efa", 4, require_gdr=True), Expectation("IB"))
    assert all(judged(text, one).verdict != "pass" for one in asked)


# ---- words that break a reader


def test_a_torn_channel_line_is_no_proof_against_gdr() -> None:
    good = Run().text()
    cut = b"nid005000:7000:97000 [0] NCCL INFO Channel 01/0 : 15[0] -> 0[0] [receive] via NET/AWS Libfabric/1"
    glued = good + cut + b"nid005001:7009:97009 [1] NCCL INFO Setting affinity\n/GDRDMA comm 0x1 nRanks 16\n"
    assert judged(glued).verdict == "pass"
    ended = cut + b"nid005001:7009:97009 [1] NCCL INFO Connected all trees\n"
    assert len(judged(good + ended).processes) == 16  # none is called 1nid005001
    assert judged(good + cut + b" comm 0x1 nRanks 16\n").gdr == "no"


@pytest.mark.parametrize("seed", range(30))
def test_any_bytes_are_read_and_never_pass(seed: int) -> None:
    chance = random.Random(seed)
    log = bytearray(Run(nodes=1, gpus=2).text())
    for _ in range(chance.randrange(1, 200)):
        log[chance.randrange(len(log))] = chance.randrange(256)
    judged(bytes(log))
    noise = chance.randbytes(20000).replace(b"NCCL ", b"")
    assert "no line of NCCL found" in judged(noise).reasons[0]
    assert judged(noise + b"\nNCCL INFO NET/" + noise).verdict == "inconclusive"


def test_logs_that_are_too_large_are_refused(monkeypatch: pytest.MonkeyPatch, capsys: Output) -> None:
    monkeypatch.setattr(nccl_log, "LOG_LIMIT_BYTES", 1000)
    Path("log").write_bytes(Run().text())
    assert main(["transport", "log"]) == 2
    assert "log: the logs have more than 1000 bytes" in capsys.readouterr().err


# ---- warnings and errors


def test_addresses_do_not_make_one_error_many() -> None:
    end = " [0] ofi_process_cq:1033 NCCL WARN NET/OFI Request {} completed with error. RC: 21\n"
    lines = [
        f"nid{5000 + rank // 8:06}:{7000 + rank}:{97000 + rank}" + end.format(hex(4096 * (rank + 1)))
        for rank in range(16)
    ]
    (found,) = (one for one in judged(Run().text() + "".join(lines).encode()).findings if one.code != "transport-fine")
    assert found.subject.endswith("and 12 more")
    assert found.nodes == ()  # it is no fault of some


#: Every log of ROCm 7.0 on LUMI has these, for GCDs 1, 3 and 7; the place in the source stands before or behind.
NO_LOCAL_PATH = (
    "/src/graph/topo.cc:1550 NCCL WARN Could not find any local path from gpu 1 to net\n",
    "NCCL WARN /src/graph/topo.cc:1550 Could not find any local path from gpu 7 to net\n",
)


@pytest.mark.parametrize("text", ["misc/ibvwrap.cc:63 NCCL WARN Failed to open libibverbs.so[.1]\n", *NO_LOCAL_PATH])
def test_a_warning_that_good_runs_begin_with_is_no_cause(text: str) -> None:
    head = "n1:1:2 [0] "
    start = f"{head}NCCL INFO ncclCommInitRank comm 0x1 rank 0 nranks 1 cudaDev 0 busId 1 - Init START\n"
    assert "transport-note" not in codes(judged(head + text + start))
    cause = f"{head}misc/socket.cc:57 NCCL WARN socketProgress: Connection closed by remote peer n2<35187>\n"
    assert "transport-note" in codes(judged(head + text + start + cause))


#: The forms of a request that failed, by the plugin's version and the network, and what is said of it.
FAILED_REQUESTS = {
    "Request 0x7f1 completed with error. RC: 5. Error: Input/output error. Completed length: 0": "reported an error",
    "Request 0x7f2 completed with error. RC: 12. Error: 9 (out of room). Completed length: 0, Request: {}": "no more room",
    "Request 0x7f3 seq 4 completed with error. RC: 113. Flags: 1034. Error: 4 (unknown). Completed length: 0": "nothing reaches it",
    "Request 0x7f4 seq 5 completed with error. RC: 125. Error: 3 (flushed). Completed length: 0": "something else failed first",
    "Request 0x7f5 completed with error. RC: 265. Error: 2 (too long). Completed length: 8": "the same collectives",
    "Request 0x7f6 completed with error. RC: 21. Error: unknown error. Completed length: 0": "EISDIR",
}


@pytest.mark.parametrize("text", FAILED_REQUESTS)
def test_the_code_of_a_failed_request_is_explained(text: str) -> None:
    line = f"nid005001:7008:97008 [0] process_cq:1 NCCL WARN NET/OFI {text}\n"
    result = judged(Run().text() + line.encode())
    (finding,) = (finding for finding in result.findings if finding.code == "transport-errors")
    assert (result.verdict, finding.nodes) == ("fail", ("nid005001",))
    assert f"RC {text.partition('RC: ')[2].partition('.')[0]}," in finding.message
    assert FAILED_REQUESTS[text] in finding.message
    by_another = FAILED_REQUESTS[text] in ("nothing reaches it", "something else failed first")
    assert finding.advice.startswith("find the first error of the run") == by_another


def test_a_device_that_is_refused_is_told_with_what_follows() -> None:
    refused = b"nid005001:7008:97008 [0] net_ib.cc:1 NCCL WARN NET/IB : Unable to open device x_2\n"
    result = judged(Run().text() + refused)
    assert (result.verdict, codes(result)) == ("pass", ["transport-fine", "transport-errors"])
    assert "Unable to open device x_2" in result.findings[1].message
    result = judged(refused + replace(ON_SOCKETS, plugin=("NET/IB : No device found.",)).text())
    assert "Socket (NET/IB : Unable to open device x_2)" in " ".join(result.reasons)


# ---- communicators that were set up, aborted and ended, in the forms of the versions

#: START (empty: the version has none), COMPLETE and the part that both have: NCCL src/init.cc, RCCL src/init.cc.
_ABOUT = "comm {a} rank {r} nranks {n} cudaDev 0 "
FORMS = {
    "nccl 2.14": ("", f"{_ABOUT}busId c1000 - Init COMPLETE"),
    "nccl 2.22": (
        f"ncclCommInitRank {_ABOUT}nvmlDev 0 busId c1000 commId {{c}} - Init START",
        f"ncclCommInitRank {_ABOUT}nvmlDev 0 busId c1000 commId {{c}} - Init COMPLETE",
    ),
    "nccl 2.29": (
        f"[Rank {{r}}] ncclCommInitRank {_ABOUT}nvmlDev 0 busId c1 commId {{c}} - Init START",
        f"ncclCommInitRank {_ABOUT}nvmlDev 0 busId c1 commId {{c}} - Init COMPLETE",
    ),
    "rccl of rocm 6.3": (
        f"ncclCommInitRank {_ABOUT}nvmlDev 0 busId c1000 commId {{c}} - Init START",
        f"ncclCommInitRank {_ABOUT}nvmlDev 0 busId c1 commId {{c}} localSize 224 - Init COMPLETE",
    ),
}
#: Those of communicators made from another one, whose address is {p}.
CHILDREN = {
    "nccl 2.27": "parent {p} splitCount {i} color {k} key {r}{s}- Init {e}",
    "nccl 2.29": "parent {p} childCount {i} color {k} key {r}{s}- Init {e}",
}
END = f"{_ABOUT}busId c1000 - {{how}} COMPLETE"


def log_of(texts: dict[int, list[str]]) -> Result:
    """Judge the lines of each rank in an order that keeps each rank's own, over cxi with all that a pass needs."""
    chance = random.Random(3)
    queues = {rank: list(lines) for rank, lines in texts.items()}
    lines = []
    while queues:
        rank = chance.choice(sorted(queues))
        head = f"nid00{1200 + rank // 2}:{600 + rank}:{900 + rank} [{rank % 2}] NCCL INFO "
        lines.append(head + queues[rank].pop(0))
        if not queues[rank]:
            del queues[rank]
    return judged("\n".join(lines) + "\n", Expectation("cxi", 4))


def start_of(rank: int, world: int) -> list[str]:
    return [
        "NET/OFI Selected Provider is cxi (found 4 nics)",
        "Using network AWS Libfabric",
        "Trees [0] 1/-1/-1->0->-1",
        f"Channel 00/0 : {rank}[c1] -> {(rank + 1) % world}[c1] [send] via NET/AWS Libfabric/0/GDRDMA",
    ]


def run_of(
    form: str, *, how: str = "Destroy", lost: Sequence[int] = (), complete: bool = True, trees: bool = False
) -> Result:
    """Judge a run of four ranks whose communicator ends on all but the `lost` ones."""
    begins, done = FORMS[form]
    texts = {}
    for rank in range(4):
        about = {"a": f"0x7f{rank}a0", "r": rank, "n": 4, "c": "0xd15ea5e", "how": how}
        connected = ["Connected all rings", *["Connected all trees"] * trees]
        lines = [begins, *start_of(rank, 4), *connected, *[done] * complete, *[END] * (rank not in lost)]
        texts[rank] = [line.format(**about) for line in lines if line]
    return log_of(texts)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("complete", [True, False])
def test_what_ended_well_does_not_hang(form: str, complete: bool) -> None:
    """Trees never were connected, and the line that says `Init COMPLETE` may be lost: it was destroyed all the same."""
    result = run_of(form, complete=complete)
    assert result.verdict == "pass", result.reasons
    assert {process.init for process in result.processes} == {"complete"}


@pytest.mark.parametrize("form", FORMS)
def test_rings_without_trees_before_the_setup_completed_are_a_hang(form: str) -> None:
    for trees, init in ((False, "stuck"), (True, "unfinished" if FORMS[form][0] else "complete")):
        result = run_of(form, complete=False, lost=range(4), trees=trees)
        assert {process.init for process in result.processes} == {init}


def test_rings_of_a_communicator_that_is_complete_are_no_hang_of_the_next() -> None:
    """NCCL from 2.22 on connects rings and trees at their first use, each for itself."""
    begins, done = FORMS["nccl 2.22"]
    texts = {}
    for rank in range(2):
        first, second = ({"a": f"0x{turn}{rank}", "r": rank, "n": 2, "c": f"0x{turn}"} for turn in (1, 2))
        before = [begins.format(**first), *start_of(rank, 2), done.format(**first), "Connected all rings"]
        texts[rank] = [*before, begins.format(**second)]
    result = log_of(texts)
    assert ({process.init for process in result.processes}, result.verdict) == ({"unfinished"}, "inconclusive")


def test_what_was_aborted_while_it_was_set_up_is_no_hang_and_the_rank_that_others_gave_up_is_named() -> None:
    result = run_of("nccl 2.22", how="Abort", complete=False)
    assert (result.verdict, codes(result)) == ("inconclusive", ["transport-unfinished"])
    assert {process.init for process in result.processes} == {"aborted"}
    result = run_of("rccl of rocm 6.3", how="Abort", complete=False, lost=(3,))
    found = {finding.message: finding.subject for finding in result.findings}
    assert found["rings are connected, trees never were"] == "rank 3 (nid001201:603)"
    assert found["a communicator was aborted before its setup completed"].startswith("rank 0 (nid001200:600), rank 1")


@pytest.mark.parametrize("form", CHILDREN)
@pytest.mark.parametrize("hung", [(), (3,)])
def test_communicators_made_from_others_are_looked_at_too(form: str, hung: tuple[int, ...]) -> None:
    """Four ranks, split into two pairs by color, twice; of the second time one rank may hang."""
    begins, done = FORMS["nccl 2.22"]
    texts = {}
    for rank in range(4):
        about = {"a": f"0x9{rank}0", "r": rank, "n": 4, "c": "0xfa11", "how": "Destroy"}
        lines = [begins.format(**about), *start_of(rank, 4), done.format(**about)]
        for turn in range(2):
            child = {"a": f"0x9{rank}{1 + turn}", "r": rank // 2, "n": 2, "how": "Destroy"}
            place = {"p": about["a"], "k": rank % 2, "r": rank // 2, "i": turn + 1}
            head = f"ncclCommSplit {_ABOUT}nvmlDev 0 busId c1000 ".format(**child)
            lines += [head + CHILDREN[form].format(**place, e="START", s="")]
            if turn and rank in hung:
                break
            lines += [head + CHILDREN[form].format(**place, e="COMPLETE", s=" "), END.format(**child)]
        texts[rank] = [*lines, END.format(**about)]
    result = log_of(texts)
    assert result.verdict == ("inconclusive" if hung else "pass")
    assert [process.rank for process in result.processes if process.init == "unfinished"] == [*hung]


def test_an_address_that_is_used_again_was_free() -> None:
    """A program that makes and destroys communicators all day: nothing is kept of what has ended."""
    texts: dict[int, list[str]] = {rank: start_of(rank, 2) for rank in range(2)}
    for turn in range(50):
        for rank in range(2):
            about = {"a": f"0x4{rank}", "r": rank, "n": 2, "c": hex(turn + 16), "how": "Destroy"}
            texts[rank] += [text.format(**about) for text in (*FORMS["nccl 2.22"], END)]
    lines = "".join(f"n{rank}:{rank}:9 [0] NCCL INFO {text}\n" for rank in texts for text in texts[rank])
    log = scan([("log", [lines.encode()])])
    assert [process.alive for process in log.processes] == [{}, {}]
    assert judge(log, Expectation("cxi")).verdict == "pass"
