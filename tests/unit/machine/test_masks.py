from __future__ import annotations

import re
import subprocess
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lumisite.machine.masks import MaskError, MaskRequest, TaskMask, cpu_masks, mask_of, mask_tables
from lumisite.machine.topology import Core, Gpu, Topology, recognise, topology_of
from lumisite.site.cpu_list import parse_number_list
from lumisite.site.load import EMBEDDED
from tests.support.lumi_g import LUMI_G, PUBLISHED, PUBLISHED_BOTH_THREADS
from tests.support.sites import load_text
from tests.support.tools import tool
from tests.unit.machine.test_topology import only_numa

SIXTEEN = "49-51,52-54,57-59,60-62,17-19,20-22,25-27,28-30,1-3,4-6,9-11,12-14,33-35,36-38,41-43,44-46"


def ask(tasks: int, threads: int = 1, cpus: str | None = None, gpus: str | None = None) -> tuple[TaskMask, ...]:
    return cpu_masks(LUMI_G, request(tasks, threads, cpus, gpus))


def request(tasks: int, threads: int = 1, cpus: str | None = None, gpus: str | None = None) -> MaskRequest:
    return MaskRequest(
        tasks,
        threads,
        None if cpus is None else frozenset(parse_number_list(cpus)),
        None if gpus is None else parse_number_list(gpus),
    )


def lists(answers: tuple[TaskMask, ...]) -> list[str | None]:
    return [answer.cpus for answer in answers]


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        (request(1), ["1-7,9-15,17-23,25-31,33-39,41-47,49-55,57-63"]),
        (request(2), ["17-23,25-31,49-55,57-63", "1-7,9-15,33-39,41-47"]),
        (request(4), ["49-55,57-63", "17-23,25-31", "1-7,9-15", "33-39,41-47"]),
        (request(4, gpus="0-3"), ["49-55", "57-63", "17-23", "25-31"]),
        (request(2, cpus="1-7,9-12", gpus="4,5"), ["1-7", "9-12"]),
        (request(1, cpus="1-7,9-15", gpus="4"), ["1-7"]),
        (request(1, cpus="0-15,64-79"), ["1-7,9-15"]),
        (request(1, threads=2, cpus="0-5,65-68", gpus="4"), ["1-4,65-68"]),
        (request(1, cpus="113-119", gpus="0"), ["113-119"]),
    ],
    ids=str,
)
def test_tasks_get_the_granted_cores_of_their_gpus(asked: MaskRequest, expected: list[str]) -> None:
    assert [answer.cpus for answer in cpu_masks(LUMI_G, asked)] == expected


def test_gpus_are_dealt_out_in_blocks() -> None:
    assert [[answer.gpus for answer in ask(tasks)] for tasks in (1, 4)] == [
        [tuple(range(8))],
        [(0, 1), (2, 3), (4, 5), (6, 7)],
    ]
    assert [answer.gpus for answer in ask(16)] == [(task // 2,) for task in range(16)]


def test_16_tasks_get_3_cores_each_two_tasks_to_a_gpu() -> None:
    assert ",".join(cpus or "" for cpus in lists(ask(16))) == SIXTEEN
    assert ask(16, threads=2)[0].cpus == "49-51,113-115"


def test_the_order_of_the_granted_gpus_is_the_order_of_the_tasks() -> None:
    answers = ask(8, gpus="4,5,2,3,6,7,0,1")
    assert lists(answers) == ["1-7", "9-15", "17-23", "25-31", "33-39", "41-47", "49-55", "57-63"]
    assert [answer.gpus[0] for answer in answers] == [4, 5, 2, 3, 6, 7, 0, 1]


def test_granted_siblings_alone_are_no_core_with_two_threads() -> None:
    (answer,) = ask(1, threads=2, cpus="113-119", gpus="0")
    assert answer.cpus is None
    (why,) = answer.why
    assert why.startswith("no core of L3 6 with 2 threads is among the granted CPUs 113-119 that")


def test_a_task_whose_gpus_cores_are_not_granted_gets_no_mask_and_the_reason() -> None:
    near, far = ask(2, cpus="49-55", gpus="0,4")
    assert near.mask == "0xfe000000000000"
    assert (far.mask, far.cpus, far.pu_os) == (None, None, ())
    (why,) = far.why
    among = "no core of L3 0 is among the granted CPUs 49-55 that tasks may use"
    assert why == f"{among} (its CPUs are 0-7,64-71)"


def test_a_granted_but_reserved_core_is_not_given() -> None:
    (answer,) = ask(1, cpus="0,8", gpus="4")
    assert answer.mask is None
    (answer,) = ask(1, cpus="0,64,8")
    assert answer.mask is None
    (why,) = answer.why
    assert why == "no core of node kind lumi-g is among the granted CPUs 0,8,64 that tasks may use"


def test_a_node_with_gpus_known_by_numa_domain_shares_it_evenly() -> None:
    node = replace(only_numa(LUMI_G), gpus=tuple(replace(gpu, l3=None) for gpu in LUMI_G.gpus))
    assert [answer.cpus for answer in cpu_masks(node, MaskRequest(8))] == [
        "48-55", "56-63", "16-23", "24-31", "0-7", "8-15", "32-39", "40-47",
    ]  # fmt: skip
    assert [answer.cpus for answer in cpu_masks(node, MaskRequest(4))] == ["48-63", "16-31", "0-15", "32-47"]
    assert [answer.cpus for answer in cpu_masks(node, request(1, gpus="0"))] == ["48-63"]
    assert [answer.cpus for answer in cpu_masks(node, request(2, cpus="48-52", gpus="0,1"))] == ["48-49", "50-51"]


def test_a_numa_domain_is_shared_by_l3_first_so_that_no_task_needs_two() -> None:
    cores = tuple(Core(number, (number,), number % 2, 0) for number in range(8))
    node = Topology("node", cores, (Gpu(0, "", 0, None), Gpu(1, "", 0, None)))
    assert [answer.cpus for answer in cpu_masks(node, MaskRequest(2))] == ["0,2,4,6", "1,3,5,7"]


def test_cores_near_another_gpus_l3_are_not_shared_out_with_the_domain() -> None:
    node = replace(
        LUMI_G,
        gpus=(Gpu(0, "", 3, 6), Gpu(1, "", 3, None), Gpu(2, "", 1, 2), Gpu(3, "", 1, 3), Gpu(4, "", 1, None)),
    )
    answers = cpu_masks(node, MaskRequest(5))
    assert [answer.cpus for answer in answers] == ["49-55", "57-63", "17-23", "25-31", None]
    (why,) = answers[4].why
    assert why == "NUMA domain 1 has no core that is not near another GPU"


def test_several_gpus_on_one_l3_share_it() -> None:
    cores = tuple(Core(number, (number,), 0, 0) for number in range(9))
    node = Topology("node", cores, tuple(Gpu(index, "", 0, 0) for index in range(4)))
    assert [answer.cpus for answer in cpu_masks(node, MaskRequest(4))] == ["0-1", "2-3", "4-5", "6-7"]
    assert [answer.cpus for answer in cpu_masks(node, MaskRequest(2))] == ["0-3", "4-7"]
    assert [answer.cpus for answer in cpu_masks(node, MaskRequest(8))] == [str(cpu) for cpu in range(8)]


def test_a_gpu_with_an_unknown_place_gets_no_mask() -> None:
    node = replace(LUMI_G, gpus=tuple(Gpu(index, "", None, None) for index in range(2)))
    assert {why for answer in cpu_masks(node, MaskRequest(2)) for why in answer.why} == {
        "where the GPU is attached is not known"
    }
    (answer,) = cpu_masks(node, MaskRequest(1))
    assert answer.mask == "0xfefefefefefefefe"
    assert [*answer.why] == ["the only task, 56 cores that tasks may use"]


def test_a_node_without_gpus_has_an_answer_for_one_task_only() -> None:
    node = replace(LUMI_G, gpus=())
    assert cpu_masks(node, MaskRequest(1))[0].mask == "0xfefefefefefefefe"
    with pytest.raises(MaskError, match="the node has no GPU"):
        cpu_masks(node, MaskRequest(2))


@pytest.mark.parametrize(
    ("asked", "sentence"),
    [
        (request(0), "0 tasks on a node (give 1 task or more)"),
        (request(8, threads=3), "no core has 3 threads that tasks may use"),
        (
            request(3),
            "3 tasks cannot share 8 GPUs evenly (start 1, 2, 4, 8 tasks or a multiple of 8, or name one GPU for each task, such as --gpus 0,1,2)",
        ),
        (request(12), "12 tasks cannot share 8 GPUs evenly (start 1, 2, 4, 8 tasks or a multiple of 8)"),
        (request(64), "64 tasks for the 56 cores that tasks may use"),
        (request(1, gpus="8"), "GPU 8: not on node kind lumi-g, whose GPUs are 0-7"),
        (request(1, gpus=""), "are not named once each (name each GPU once and at least one"),
        (MaskRequest(2, gpus=(1, 1)), "the granted GPUs of node kind lumi-g are not named once each"),
        (request(1, cpus="120-129"), "CPU 128-129: not on node kind lumi-g, whose CPUs are 0-127"),
        (request(1, cpus=""), "the list of granted CPUs is empty"),
    ],
)
def test_a_question_without_a_sound_answer_is_refused(asked: MaskRequest, sentence: str) -> None:
    with pytest.raises(MaskError, match=re.escape(sentence)):
        cpu_masks(LUMI_G, asked)


def test_tables_hold_every_count_that_has_an_answer_and_the_published_masks() -> None:
    tables = mask_tables(LUMI_G)
    assert sorted(tables) == [(tasks, threads) for tasks in (1, 2, 4, 8, 16) for threads in (1, 2)]
    assert [answer.mask for answer in tables[8, 1]] == PUBLISHED
    assert [answer.mask for answer in tables[8, 2]] == PUBLISHED_BOTH_THREADS
    three = replace(LUMI_G, gpus=LUMI_G.gpus[:3])
    assert sorted(mask_tables(three)) == [(1, 1), (1, 2)], "39 cores near no GPU"
    lost = replace(LUMI_G, gpus=tuple(replace(gpu, l3=None, numa=None) for gpu in LUMI_G.gpus))
    assert sorted(mask_tables(lost)) == [(1, 1), (1, 2)]
    one_lost = (Gpu(0, "", None, None), LUMI_G.gpus[1])
    assert sorted(mask_tables(replace(LUMI_G, gpus=one_lost))) == [(1, 1), (1, 2)]


UNIVERSITY = (EMBEDDED / "university.yaml").read_text()


def described(l3: str, gpus: str, buses: Sequence[str] = ()) -> Topology:
    """A node as a site description has it."""
    node = f"node:\n    memory_mib: 500000\n    l3: [{l3}]\n    gpus: [{gpus}]\n    source: INVENTED\n"
    site = load_text(UNIVERSITY.replace("node_kinds:\n", f"node_kinds:\n  {node}")).site
    return topology_of("node", site.node_kinds["node"], buses)


def superchips(number: int, cores: int) -> Topology:
    """Processor and GPU in one: each NUMA domain is a package with one GPU."""
    l3 = [f"{{cores: {cores * at}-{cores * (at + 1) - 1}, numa: {at}, package: {at}}}" for at in range(number)]
    return described(", ".join(l3), ", ".join(f"{{l3: {at}, numa: {at}}}" for at in range(number)))


#: Nodes as they are built elsewhere; each for hwloc too, which cuts the cores of each package into as many runs of
#: neighbours as there are GPUs.
MACHINES = {
    # CSCS: four GH200 superchips with 72 cores each.
    "gh200": (superchips(4, 72), "pack:4 core:72 pu:1", ["0-71", "72-143", "144-215", "216-287"]),
    # Job scripts for Viper-GPU: two MI300A with 24 cores each.
    "mi300a": (superchips(2, 24), "pack:2 core:24 pu:1", ["0-23", "24-47"]),
    # `nvidia-smi topo -m` of a DGX H100: GPUs 0 to 3 on cores 0-51, the others on 52-103; an adapter for each GPU.
    "dgx-h100": (
        described(
            "{cores: 0-51, numa: 0, package: 0}, {cores: 52-103, numa: 1, package: 1}",
            ", ".join(["{numa: 0}"] * 4 + ["{numa: 1}"] * 4),
        ),
        "pack:2 core:52 pu:1",
        ["0-12", "13-25", "26-38", "39-51", "52-64", "65-77", "78-90", "91-103"],
    ),
}


@pytest.mark.parametrize("machine", MACHINES)
def test_nodes_of_other_sites_are_cut_as_hwloc_distrib_cuts_them(machine: str) -> None:
    node, synthetic, expected = MACHINES[machine]
    assert [answer.cpus for answer in cpu_masks(node, MaskRequest(len(expected)))] == expected
    command = [tool("hwloc-distrib"), "-i", synthetic, "--taskset", str(len(expected))]
    masks = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
    assert [mask_of(parse_number_list(cpus)) for cpus in expected] == masks


#: CINECA, "Booster Section": one Xeon 8358 with an L3 for all, two domains; four GPUs and adapters on the first.
ONE_CACHE = described(
    "{cores: 0-15, numa: 0, package: 0, cache: 0}, {cores: 16-31, numa: 1, package: 0, cache: 0}",
    ", ".join(["{numa: 0}"] * 4),
    ("1a", "5a", "8a", "da"),
)


def test_a_node_with_cores_near_no_gpu_has_no_masks() -> None:
    """They would idle: half of the node here."""
    with pytest.raises(MaskError, match="16 cores that tasks may use are near no GPU"):
        cpu_masks(ONE_CACHE, MaskRequest(4))
    assert list(mask_tables(ONE_CACHE)) == [(1, 1)]
    part = MaskRequest(2, cpus=frozenset(range(8)), gpus=(0, 1))
    assert [answer.cpus for answer in cpu_masks(ONE_CACHE, part)] == ["0-3", "4-7"]


def test_a_node_of_one_cache_and_two_domains_is_recognised() -> None:
    """As hwloc shows it: one L3 with all cores, and the GPUs on the first domain."""
    cores = tuple(Core(core, (core,), 0, core // 16) for core in range(32))
    seen = Topology("node", cores, tuple(replace(gpu, l3=None) for gpu in ONE_CACHE.gpus))
    assert recognise(seen, [ONE_CACHE]) is not None
    by_domain = replace(seen, cores=tuple(replace(core, l3=core.numa) for core in cores))
    assert recognise(by_domain, [ONE_CACHE]) is None


@st.composite
def nodes(draw: st.DrawFn) -> Topology:
    """Draw a node: NUMA domains with L3s with cores with threads, some reserved, GPUs at any kind of place."""
    numas, l3s, size = draw(st.integers(1, 4)), draw(st.integers(1, 3)), draw(st.integers(1, 9))
    count = numas * l3s * size
    threads = draw(st.integers(1, 2))
    with_l3 = draw(st.booleans())
    cores = tuple(
        Core(
            n, tuple(n + thread * count for thread in range(threads)), n // size if with_l3 else None, n // size // l3s
        )
        for n in range(count)
    )
    places = st.tuples(st.sampled_from(["l3", "numa", "nowhere"]), st.integers(0, numas * l3s - 1))
    gpus = []
    for index, (place, l3) in enumerate(draw(st.lists(places, max_size=8))):
        known = place == "l3" and with_l3
        gpus.append(Gpu(index, "", None if place == "nowhere" else l3 // l3s, l3 if known else None))
    reserved = draw(st.sets(st.integers(0, count * threads - 1), max_size=count // 2))
    return Topology("a drawn node", cores, tuple(gpus), frozenset(reserved))


@st.composite
def questions(draw: st.DrawFn) -> tuple[Topology, MaskRequest]:
    node = draw(nodes())
    cpus = draw(st.none() | st.sets(st.sampled_from(sorted(node.pu_os)), min_size=1))
    indexes = [gpu.index for gpu in node.gpus]
    gpus = draw(st.none() | st.lists(st.sampled_from(indexes), min_size=1, unique=True)) if indexes else None
    tasks = draw(st.sampled_from([1, 2, 3, 4, 6, 8, 12, 16, len(indexes) or 1, len(gpus or indexes) or 1]))
    return node, MaskRequest(
        tasks, draw(st.integers(1, 2)), None if cpus is None else frozenset(cpus), None if gpus is None else tuple(gpus)
    )


@given(questions())
def test_masks_are_disjoint_inside_what_is_allowed_and_of_whole_cores(question: tuple[Topology, MaskRequest]) -> None:
    node, asked = question
    try:
        answers = cpu_masks(node, asked)
    except MaskError:
        return
    assert [answer.task for answer in answers] == list(range(asked.tasks))
    given_out = [pu for answer in answers for pu in answer.pu_os]
    assert len(given_out) == len(set(given_out))
    assert set(given_out) <= (node.pu_os - node.reserved) & (asked.cpus or node.pu_os)
    owner = {pu: answer.task for answer in answers for pu in answer.pu_os}
    for core in node.cores:
        given_here = [pu for pu in core.pu_os if pu in owner]
        assert len(given_here) in (0, asked.threads)
        assert len({owner[pu] for pu in given_here}) <= 1
    for answer in answers:
        assert answer.why
        assert (answer.mask is None) == (answer.cpus is None) == (not answer.pu_os)
        if answer.mask is not None and answer.cpus is not None:
            assert parse_number_list(answer.cpus) == answer.pu_os
            assert mask_of(answer.pu_os) == answer.mask


@given(questions())
def test_no_core_of_a_mask_is_near_another_tasks_gpu_only(question: tuple[Topology, MaskRequest]) -> None:
    node, asked = question
    try:
        answers = cpu_masks(node, asked)
    except MaskError:
        return
    if asked.tasks == 1 and len(asked.gpus or node.gpus) == len(node.gpus):
        return  # the only task of a node has it all

    def near(gpu: Gpu, core: Core) -> bool:
        return gpu.l3 == core.l3 if gpu.l3 is not None else gpu.numa == core.numa

    core_of = {pu: core for core in node.cores for pu in core.pu_os}
    for answer in answers:
        own = [node.gpus[index] for index in answer.gpus]
        cores = [core_of[pu] for pu in answer.pu_os]
        far = [core for core in cores if not any(near(gpu, core) for gpu in own)]
        assert not any(near(gpu, core) for gpu in node.gpus for core in far)
        if cores and not far:  # then each GPU of the task has at least one core near it
            assert all(any(near(gpu, core) for core in cores) for gpu in own)
