from __future__ import annotations

import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lumisite.machine.masks import MaskError, MaskRequest, TaskMask, cpu_masks, mask_of, mask_tables
from lumisite.machine.topology import Core, Gpu, Topology
from lumisite.site.cpu_list import parse_number_list
from tests.unit.machine.test_topology import LUMI_G, only_numa

# The masks that LUMI publishes for a whole LUMI-G node: user guide, "Distribution and binding", and for two
# threads of each core the affinity check of LUMI's ReFrame tests.
PUBLISHED = [
    "0xfe000000000000",
    "0xfe00000000000000",
    "0xfe0000",
    "0xfe000000",
    "0xfe",
    "0xfe00",
    "0xfe00000000",
    "0xfe0000000000",
]
PUBLISHED_BOTH_THREADS = [
    "0xfe00000000000000fe000000000000",
    "0xfe00000000000000fe00000000000000",
    "0xfe00000000000000fe0000",
    "0xfe00000000000000fe000000",
    "0xfe00000000000000fe",
    "0xfe00000000000000fe00",
    "0xfe00000000000000fe00000000",
    "0xfe00000000000000fe0000000000",
]
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


def test_a_whole_node_with_8_tasks_gets_the_published_masks() -> None:
    assert [answer.mask for answer in ask(8)] == PUBLISHED
    assert [answer.gpus for answer in ask(8)] == [(gpu,) for gpu in range(8)]


def test_both_threads_give_the_published_masks_too() -> None:
    assert [answer.mask for answer in ask(8, threads=2)] == PUBLISHED_BOTH_THREADS


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


def test_fewer_granted_cores_than_tasks_on_them_give_none() -> None:
    for answer in ask(2, cpus="1", gpus="4"):
        assert answer.mask is None
        assert [*answer.why] == ["2 tasks share the 1 cores of L3 0 that may be used"]


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


def test_a_task_with_more_gpus_on_an_l3_gets_more_of_it() -> None:
    cores = tuple(Core(number, (number,), number // 12, 0) for number in range(24))
    node = Topology("node", cores, (*(Gpu(index, "", 0, 0) for index in range(3)), Gpu(3, "", 0, 1)))
    assert [answer.cpus for answer in cpu_masks(node, MaskRequest(2))] == ["0-7", "8-23"]


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


def test_two_threads_need_cores_that_have_two() -> None:
    node = replace(LUMI_G, cores=tuple(replace(core, pu_os=core.pu_os[:1]) for core in LUMI_G.cores))
    with pytest.raises(MaskError, match="no core has 2 threads"):
        cpu_masks(node, MaskRequest(8, threads=2))


def test_tables_hold_every_count_that_has_an_answer() -> None:
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


@given(nodes(), st.integers(1, 3), st.integers(1, 2))
def test_tasks_at_the_same_place_get_the_same_number_of_cores(node: Topology, each: int, threads: int) -> None:
    try:
        answers = cpu_masks(node, MaskRequest(each * len(node.gpus), threads))
    except MaskError:
        return
    sizes: dict[tuple[int | None, int | None], set[int]] = {}
    for answer in answers:
        gpu = node.gpus[answer.gpus[0]] if answer.gpus else None
        if gpu is not None:
            sizes.setdefault((gpu.numa, gpu.l3), set()).add(len(answer.pu_os))
    assert all(len(of_place) == 1 for of_place in sizes.values())
