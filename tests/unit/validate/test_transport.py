from __future__ import annotations

import json
import random
import re
from dataclasses import replace
from pathlib import Path

import pytest

from lumisite.cli import main
from lumisite.validate import nccl_log
from lumisite.validate.nccl_log import scan
from lumisite.validate.transport import Expectation, Result, judge
from tests.support.logs import Run

LOGS = sorted((Path(__file__).parents[2] / "data" / "transport").glob("*.log"))
#: The codes that each log gives, with the options in its header.
CODES = json.loads((LOGS[0].parent / "codes.json").read_text())
#: These begin with a run that is good.
GOOD_FIRST = (
    "fail-run-time-errors",
    "fail-two-communicators",
    "inconclusive-one-silent",
    "inconclusive-rings-of-an-excerpt",
    "inconclusive-second-communicator",
)
CXI = Expectation("cxi", 4, require_gdr=True)
Output = pytest.CaptureFixture[str]


def judged(log: bytes, expectation: Expectation = CXI, block: int = 1 << 20) -> Result:
    return judge(scan([("log", (log[at : at + block] for at in range(0, len(log), block)))]), expectation)


def codes(result: Result) -> list[str]:
    return [finding.code for finding in result.findings]


def header(path: Path, name: str) -> str:
    return path.read_text().partition(f"# {name}:")[2].partition("\n")[0].strip()


@pytest.mark.parametrize("path", LOGS, ids=lambda path: path.stem)
def test_a_log_gives_the_answer_in_its_header(path: Path, capsys: Output) -> None:
    code = main(["transport", "--json", str(path), *header(path, "options").split()])
    found = json.loads(capsys.readouterr().out)
    assert list(found) == [
        "verdict",
        "plugin_in_use",
        "provider",
        "network",
        "gdr",
        "interfaces",
        "processes",
        "reasons",
        "findings",
    ]
    expected = json.loads(header(path, "answer"))
    assert {key: found[key] for key in expected} == expected
    assert path.stem.startswith(found["verdict"]), "the file's name is its answer"
    assert code == {"pass": 0, "fail": 1, "inconclusive": 4}[found["verdict"]]
    assert len(found["reasons"]) == len(found["findings"]) > 0, "every verdict says why"
    assert [finding["code"] for finding in found["findings"]] == CODES[path.stem]
    assert found["verdict"] != "pass" or all(process["verdict"] == "pass" for process in found["processes"])


@pytest.mark.parametrize("path", [path for path in LOGS if path.stem not in GOOD_FIRST], ids=lambda path: path.stem)
def test_no_beginning_of_a_log_passes_that_does_not_pass_whole(path: Path) -> None:
    """What is not there yet is unknown: a run that is cut short anywhere is inconclusive at best."""
    data = path.read_bytes()
    expectation = Expectation("cxi", 4)
    if judged(data, expectation).verdict == "pass":
        return
    lines = data.splitlines(keepends=True)
    for cut in range(len(lines)):
        assert judged(b"".join(lines[:cut]), expectation).verdict != "pass", lines[cut]


def test_one_rank_on_sockets_among_sixteen_fails_and_is_named() -> None:
    good, bad = (
        Run(),
        replace(Run(), network="Socket", provider="", suffix="", plugin=("NET/Plugin: No plugin found (x)",)),
    )
    ranks = ["\n".join((bad if rank == 7 else good).rank_lines(rank)) for rank in range(16)]
    result = judged("\n".join(ranks).encode())
    assert result.verdict == "fail"
    assert (result.plugin_in_use, result.gdr) == ("no", "no")
    assert (result.provider, result.network) == ("cxi,none", "AWS Libfabric,Socket")
    assert [process.process for process in result.processes if process.verdict == "fail"] == ["nid005000:7007"]
    assert codes(result)[0] == "transport-wrong-network"
    assert (result.findings[0].subject, result.findings[0].nodes) == ("rank 7 (nid005000:7007)", ("nid005000",))
    assert result.processes[0].verdict == "pass"


def test_a_good_run_passes_in_blocks_of_any_size() -> None:
    log = Run().text()
    whole = judged(log)
    assert whole.verdict == "pass"
    assert whole.reasons == (
        "processes: 16, nodes: 2, network AWS Libfabric, provider cxi, NICs 4, GPU Direct RDMA yes",
    )
    for block in (7, 1000, 4096):
        assert judged(log, block=block) == whole


def test_a_torn_channel_line_is_no_proof_against_gdr() -> None:
    good = Run().text()
    cut = b"nid005000:7000:97000 [0] NCCL INFO Channel 01/0 : 15[0] -> 0[0] [receive] via NET/AWS Libfabric/1"
    glued = good + cut + b"nid005001:7009:97009 [1] NCCL INFO Setting affinity\n/GDRDMA comm 0x1 nRanks 16\n"
    assert judged(glued).verdict == "pass"
    ended = cut + b"nid005001:7009:97009 [1] NCCL INFO Connected all trees\n"
    assert len(judged(good + ended).processes) == 16  # none is called 1nid005001
    assert judged(good + cut + b" comm 0x1 nRanks 16\n").gdr == "no"


def test_one_file_for_each_rank_is_one_run(tmp_path: Path, capsys: Output) -> None:
    run = Run()
    names = []
    for rank in range(16):
        path = tmp_path / f"nid{5000 + rank // 8:06}.{7000 + rank}"
        path.write_text("\n".join(run.rank_lines(rank)) + "\n")
        names.append(str(path))
    assert main(["transport", *names, "--expect", "cxi", "--nics", "4"]) == 0
    assert capsys.readouterr().out.startswith("PASS: ")
    assert main(["transport", *names[:15], "--expect", "cxi", "--json"]) == 4
    (finding,) = json.loads(capsys.readouterr().out)["findings"]
    assert finding["code"] == "transport-not-shown"
    assert finding["message"] == "1 of 16 ranks are not in the log: 15"


def test_a_process_with_several_gpus_has_several_ranks() -> None:
    lines = []
    for rank in range(16):
        own = f"nid{5000 + rank // 8:06}:{7000 + rank // 8}:{7100 + rank}"
        once = "Bootstrap" if rank % 8 else "nothing"
        lines += [own + line[line.index(" [") :] for line in Run().rank_lines(rank) if once not in line]
    result = judged("\n".join(lines).encode())
    assert result.verdict == "pass", result.reasons
    assert [process.process for process in result.processes] == ["nid005000:7000", "nid005001:7001"]


@pytest.mark.parametrize("arguments", [["--nics", "0"], ["--nics", "four"], ["--site", "nowhere"], []])
def test_wrong_use_is_exit_2(arguments: list[str], tmp_path: Path, capsys: Output) -> None:
    (tmp_path / "log").write_bytes(b"")
    assert main(["transport", *(["log", *arguments] if arguments else [])]) == 2
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("seed", range(30))
def test_any_bytes_are_read_and_never_pass(seed: int) -> None:
    chance = random.Random(seed)
    log = bytearray(Run(nodes=1, gpus=2).text())
    for _ in range(chance.randrange(1, 200)):
        log[chance.randrange(len(log))] = chance.randrange(256)
    judged(bytes(log))
    noise = chance.randbytes(20000).replace(b"NCCL ", b"")
    assert judged(noise + b"\nNCCL INFO NET/" + noise).verdict == "inconclusive"


def test_logs_that_are_too_large_are_refused(monkeypatch: pytest.MonkeyPatch, capsys: Output) -> None:
    monkeypatch.setattr(nccl_log, "LOG_LIMIT_BYTES", 1000)
    Path("log").write_bytes(Run().text())
    assert main(["transport", "log"]) == 2
    assert "log: the logs have more than 1000 bytes" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "code", "text"),
    [
        ("inconclusive-within-node-only", "transport-not-shown", "one node, so no traffic used the network"),
        (
            "inconclusive-warned",
            "transport-note",
            "warned: NET/OFI Creating new endpoint for domain 0x7f01 failed: Invalid argument",
        ),
        ("fail-no-symbol-of-a-plugin", "transport-wrong-network", "network Socket (NET/Plugin: Failed to find ncclNet"),
        ("fail-ib-errors", "transport-errors", "(status 12): the peer has ended, or nothing reaches it"),
        (
            "fail-run-time-errors",
            "transport-errors",
            "not delivered (RC 107, error Transport endpoint is not connected)",
        ),
        ("inconclusive-rings-of-an-excerpt", "transport-unfinished", "a communicator began and did not complete"),
        ("fail-plugin-chose-tcp", "transport-wrong-network", "provider is tcp, expected cxi"),
        ("fail-plugin-does-not-start", "transport-wrong-network", "Socket (Failed to initialize NET plugin Libfabric)"),
        ("fail-two-communicators", "transport-wrong-network", "use different networks: AWS Libfabric, Socket"),
        ("fail-one-adapter-of-four", "transport-nics", "NICs found: 1 (mlx5_0), expected 4"),
    ],
)
def test_a_finding_says_what_the_log_shows(name: str, code: str, text: str) -> None:
    path = next(path for path in LOGS if path.stem == name)
    result = judged(path.read_bytes(), Expectation("IB" if "ib" in name or "adapter" in name else "cxi", 4))
    assert [text in finding.message for finding in result.findings if finding.code == code].count(True) == 1


def test_ib_is_a_fast_network_and_not_another_one_that_is_wanted() -> None:
    log = next(path for path in LOGS if path.stem == "pass-expected-ib").read_bytes()
    assert judged(log, Expectation()).verdict == judged(log, Expectation("IB")).verdict == "pass"
    result = judged(log, Expectation("cxi"))
    assert (result.verdict, codes(result)) == ("fail", ["transport-wrong-network"])
    assert "the network IB, expected cxi" in result.findings[0].message


def test_lines_that_say_nothing_of_a_network_are_lines_all_the_same() -> None:
    lines = b"n1:1:2 [0] NCCL INFO Kernel version: 5.14\n"
    assert "names a network" in judged(lines).reasons[0]
    assert "no line of NCCL found" in judged(b"training begins\n").reasons[0]


@pytest.mark.parametrize("network", ["Socket", "AWS Libfabric", "IB"])
@pytest.mark.parametrize("counted", [False, True])
def test_a_run_on_one_node_shows_nothing_of_its_network(network: str, counted: bool) -> None:
    """Not even that it is the wrong one: no traffic used it. NCCL counts the nodes from 2.20 on."""
    run = replace(Run(nodes=1), network=network, provider="", plugin=("NET/Plugin: No plugin found (x)",))
    lines = [line for line in run.lines() if "via " not in line]
    if counted:  # one rank alone shows it too
        head = lines[0].partition("Bootstrap")[0]
        lines = [line for line in lines if line.startswith(head)]
        lines.append(f"{head}comm 0x55d0 rank 0 nRanks 8 nNodes 1 localRanks 8 localRank 0 MNNVL 0")
    result = judged("\n".join(lines).encode())
    assert (result.verdict, result.plugin_in_use, result.network) == ("inconclusive", "unknown", network)
    assert codes(result)[0] == "transport-not-shown"
    assert {process.verdict for process in result.processes} == {"pass"}


def test_a_communicator_within_a_node_does_not_make_a_run_one_on_one_node() -> None:
    """Without the lines of channels, the largest communicator alone says how many nodes there are."""
    run = replace(Run(), channels=0, network="Socket", provider="", plugin=("NET/Plugin: No plugin found (x)",))
    lines = list(run.rank_lines(0))
    head = lines[0].partition("Bootstrap")[0]
    lines += [f"{head}comm 0x55d0 rank 0 nRanks 16 nNodes 2 localRanks 8 localRank 0 MNNVL 0"]
    lines += [f"{head}comm 0x66d0 rank 0 nRanks 8 nNodes 1 localRanks 8 localRank 0 MNNVL 0"]
    result = judged("\n".join(lines).encode())
    assert (result.verdict, result.plugin_in_use, codes(result)[0]) == ("fail", "no", "transport-wrong-network")


def test_a_plugin_that_is_found_under_its_second_name_is_no_fallback() -> None:
    plugin = ("NET/Plugin: Could not find: librccl-net.so", "NET/Plugin: Loaded net plugin Libfabric (v8)")
    lines = [line for line in Run(plugin=plugin, channels=0).lines() if "Using network" not in line]
    result = judged("\n".join(lines).encode(), Expectation("cxi"))
    assert (result.verdict, result.plugin_in_use, codes(result)) == (
        "inconclusive",
        "unknown",
        ["transport-not-shown"],
    )


def test_addresses_do_not_make_one_error_many() -> None:
    end = " [0] ofi_process_cq:1033 NCCL WARN NET/OFI Request {} completed with error. RC: 21\n"
    log = (
        Run().text()
        + "".join(
            f"nid{5000 + rank // 8:06}:{7000 + rank}:{97000 + rank}" + end.format(hex(4096 * (rank + 1)))
            for rank in range(16)
        ).encode()
    )
    found = [finding for finding in judged(log).findings if finding.code == "transport-errors"]
    assert len(found) == 1
    assert found[0].subject.endswith("and 12 more")
    assert found[0].nodes == ()  # it is no fault of some


#: Every log of ROCm 7.0 on LUMI has these, for GCDs 1, 3 and 7; the place in the source stands before or behind.
NO_LOCAL_PATH = (
    b"/src/graph/topo.cc:1550 NCCL WARN Could not find any local path from gpu 1 to net\n",
    b"NCCL WARN /src/graph/topo.cc:1550 Could not find any local path from gpu 7 to net\n",
)


@pytest.mark.parametrize("text", [b"misc/ibvwrap.cc:63 NCCL WARN Failed to open libibverbs.so[.1]\n", *NO_LOCAL_PATH])
def test_a_warning_that_good_runs_begin_with_is_no_cause(text: bytes) -> None:
    head = b"n1:1:2 [0] "
    nag = head + text
    start = head + b"NCCL INFO ncclCommInitRank comm 0x1 rank 0 nranks 1 cudaDev 0 busId 1 - Init START\n"
    assert "transport-note" not in codes(judged(nag + start))
    cause = head + b"misc/socket.cc:57 NCCL WARN socketProgress: Connection closed by remote peer n2<35187>\n"
    assert "transport-note" in codes(judged(nag + start + cause))


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


def test_a_device_that_is_refused_is_told_with_what_follows() -> None:
    head = "nid005001:7008:97008 [0] "
    refused = f"{head}net_ib.cc:1 NCCL WARN NET/IB : Unable to open device x_2\n".encode()
    result = judged(Run().text() + refused)
    assert (result.verdict, codes(result)) == ("pass", ["transport-fine", "transport-errors"])
    assert "Unable to open device x_2" in result.findings[1].message
    bad = replace(Run(), network="Socket", provider="", suffix="", plugin=("NET/IB : No device found.",))
    result = judged(refused + bad.text())
    assert "Socket (NET/IB : Unable to open device x_2)" in " ".join(result.reasons)


def in_own_containers(text: str) -> str:
    """As if each rank's container counted its own processes."""
    return re.sub(r":\d+:\d+ \[\d\]", ":1:40 [0]", text)


def test_processes_with_the_same_host_and_pid_are_told_and_not_taken_for_one() -> None:
    result = judged(in_own_containers(Run().text().decode()).encode())
    assert (result.verdict, codes(result)) == ("inconclusive", ["transport-not-shown"])
    good, bad = (
        Run(),
        replace(Run(), network="Socket", provider="", suffix="", plugin=("NET/Plugin: No plugin found (x)",)),
    )
    files = [
        (str(rank), [in_own_containers("\n".join((bad if rank == 7 else good).rank_lines(rank))).encode()])
        for rank in range(16)
    ]
    result = judge(scan(files), CXI)
    assert [process.rank for process in result.processes] == [*range(16)]
    assert [process.rank for process in result.processes if process.verdict == "fail"] == [7]
    assert result.findings[0].subject == "rank 7 (nid005000:1)"


def test_the_table_has_each_process(capsys: Output) -> None:
    good, bad = (
        Run(),
        replace(Run(), network="Socket", provider="", suffix="", plugin=("NET/Plugin: No plugin found (x)",)),
    )
    lines = [line for rank in range(16) for line in (bad if rank == 7 else good).rank_lines(rank)]
    Path("log").write_text("\n".join(lines))
    assert main(["transport", "log", "--expect", "cxi", "--nics", "4"]) == 1
    table = capsys.readouterr().out.partition("\n\nranks")[2].splitlines()[1:]
    assert [" ".join(row.split()) for row in table] == [
        "0,8,15 3 on 2 nodes pass yes cxi AWS Libfabric 4 yes complete",
        "1-6,9-14 12 on 2 nodes pass yes cxi AWS Libfabric 4 unknown complete",
        "7 nid005000:7007 fail no none Socket - no complete",
    ]
