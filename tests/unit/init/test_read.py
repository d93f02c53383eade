"""No value without a mark that was not read, and none that was read elsewhere: over all made-up clusters.

A value counts as read where its words stand in what the nodes answered that its `source` names, or in what Slurm did.
A mark is `confirmed: no`, or a comment with `guessed:` or `QUESTION:` above the value or above what it is in.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import pytest
import yaml

from lumisite.facts.facts import format_facts
from lumisite.init.answer import NodeAnswer
from lumisite.init.describe import Seen, describe_site
from lumisite.init.node import Node, node_of
from lumisite.init.slurm import read_cluster
from tests.support.dict_trees import Files, Link
from tests.support.nodes import lumi_node
from tests.unit.init.answers import CONFIG, LUMI_G, mounts, node, partition, slurm, small, stacked, told
from tests.unit.init.test_describe import h100, written

#: Keys whose values are lumisite's own words, or its names for what stands elsewhere in the file.
OWN = {
    *("lumisite", "title", "why", "where", "source", "confirmed", "prefix", "emit", "gpu", "found", "platform"),
    *("whole_nodes", "node_kind", "required", "kinds", "kind", "writable", "in_memory"),
}  # fmt: skip
OWN_BLOCKS = ("modules",)
#: Keys whose values nobody can read: they are concluded, so they always have a mark.
CONCLUDED = {"root", "since", "runs", "supported", "reserved", "carrier", "interfaces", "management", "host_suffix"}
ALL = partition("all") + partition("gpu", "EXCLUSIVE", "64") + partition("standard-g")
LINES = node("n1", gres="gpu:h100:2") + LUMI_G.replace("Partitions=standard-g", "Partitions=all")


@dataclass(frozen=True)
class Made:
    """A made-up cluster: what Slurm answers, the nodes by their kinds, and the login node."""

    nodes: dict[str, Node]
    lines: str = node("n1")
    login: Node | None = None

    @property
    def seen(self) -> Seen:
        login = self.login or small(host={"/proc/sys/kernel/hostname": b"login1\n"})
        cluster = read_cluster(slurm(ALL, self.lines))
        addresses = {"n1": "10.1.0.1", "n1-ib0": "10.2.0.1"}
        images = {"/shared": ("/shared/images",)}
        find = lambda tops: tuple(image for one in tops for image in images.get(one, ()))  # noqa: E731
        return Seen("skerry", "2026-11-22", cluster, login, self.nodes, addresses.get, find)


def login(**kinds: str) -> Node:
    return small(m=mounts({}, **kinds), host={"/proc/sys/kernel/hostname": b"login1\n", "/output/HOME": b"/users/a"})


def captured(one: Node) -> Node:
    """The node as its facts file has it."""
    return Node(one.facts, NodeAnswer("facts"))


def oneapi() -> Node:
    device = "/sys/devices/pci0000:00/0000:29:00.0"
    files: dict[str, bytes | Link] = {f"{device}/class": b"0x038000", f"{device}/vendor": b"0x8086"}
    files |= {"/sys/bus/pci/devices/0000:29:00.0": Link(device), "/sys/module/xe/srcversion": b"1AB\n"}
    return small(files=files | {"/opt/intel/oneapi/compiler/2025.0/x": b"", f"{device}/local_cpulist": b"0-1\n"})


def cuda(*folders: str, default: str = "", driver: bytes = b"570.172.08\n") -> Node:
    """A node with GPUs that has nothing of CUDA but these folders."""
    known = {path: one for path, one in H100_FILES.items() if not path.startswith("/usr/local/cuda")}
    files: dict[str, bytes | Link] = {f"/usr/local/cuda-{one}/x": b"" for one in folders}
    files |= {"/usr/local/cuda": Link(default)} if default else {}
    return small(files={**known, **files, "/sys/module/nvidia/version": driver})


def gpus_without_place() -> Node:
    """Two NUMA domains, and GPUs of which the kernel does not say where they are."""
    lost = {path: one for path, one in H100_FILES.items() if not path.endswith(("numa_node", "local_cpulist"))}
    domains: Files = {f"/sys/devices/system/node/node{at}/cpulist": f"{at}\n".encode() for at in (0, 1)}
    return small(files=lost, domains=domains)


H100_FILES: dict[str, bytes | Link] = {
    **{path: "\n".join(lines).encode() for path, lines in h100().answer.files.items()},
    **{path: Link(to) for path, to in h100().answer.links.items()},
}
SHARED = mounts({}, users="nfs4", shared="lustre", local="xfs", tmp="tmpfs")
ROCE = stacked({"bond0": ("ens1", "ens2"), "bond0.7": ("bond0",)}, "bond0.7", adapter="mlx5_bond_0")
CLUSTERS = {
    "lumi-g": Made({"mi250": node_of(told(lumi_node()), "lumi", [])}, LUMI_G),
    "infiniband": Made({"h100": h100()}, node("n1", gres="gpu:h100:2")),
    "oneapi": Made({"max": oneapi()}, node("n1", gres="gpu:max:1")),
    "two vendors": Made({"mi250": node_of(told(lumi_node()), "lumi", []), "h100": h100()}, LINES),
    "no answer": Made({}, node("n1", cores=4, threads=2, gres="gpu:h100:2", special=" CoreSpecCount=1")),
    "no answer, nothing reserved": Made({}, node("n1", cores=4, threads=2)),
    "facts": Made({"mi250": captured(node_of(told(lumi_node()), "lumi", []))}, LUMI_G, login(shared="lustre")),
    "file systems": Made({"cpu": small(m=SHARED)}, node("n1"), login(users="nfs4", shared="lustre", old="nfs")),
    "no Slurm": Made({"cpu": small(m=SHARED, ram={"/proc/meminfo": b"MemTotal: 8000000 kB\n"})}, ""),
    "links of defaults": Made({"h100": cuda("12.4", "12.8", default="/usr/local/cuda-12.4")}, node("n1", gres="gpu:h100:2")),
    "unplaced GPUs": Made({"h100": gpus_without_place()}, node("n1", gres="gpu:h100:2")),
    "no GPUs": Made({"h100": small()}, node("n1", gres="gpu:h100:2")),
    "RoCE over a VLAN on a bond": Made({"cpu": small(net=ROCE)}),
    "RoCE over a VLAN on a bond, of facts": Made({"cpu": captured(small(net=ROCE))}),
    "NFS of an unknown name": Made({"cpu": small(m=mounts({}, data="nfs5", shared="lustre"))}, login=login(data="nfs5")),
    "a folder cuda-12": Made({"h100": cuda("12")}, node("n1", gres="gpu:h100:2")),
    "a folder cuda-12 beside a release": Made({"h100": cuda("12", "12.4")}, node("n1", gres="gpu:h100:2")),
}  # fmt: skip


def words_of(text: str) -> set[str]:
    """Give the words of an answer; numbers of lists are written out."""
    ranges = (range(int(one), int(end) + 1) for one, end in re.findall(r"\b(\d{1,3})-(\d{1,3})\b", text))
    return {*re.findall(r"[\w.:+@-]+|[^\s\w]", text), *(str(number) for one in ranges for number in one)} | {
        word for part in re.findall(r"[\w.+@:-]+", text) for word in re.split(r"[-_/,:]", part)
    }


def answer_of(one: Node) -> str:
    files = "\n".join(f"{path}\n" + "\n".join(lines) for path, lines in one.answer.files.items())
    links = "\n".join(f"{path} {to}" for path, to in one.answer.links.items())
    return "\n".join([files, links, *one.answer.folders, "" if one.answer.files else format_facts(one.facts)])


@dataclass(frozen=True)
class Leaf:
    """A value of the file, by its keys; `sources` are what it and all that it is in name as such, the nearest first."""

    keys: tuple[str, ...]
    value: str
    sources: tuple[str, ...]


def unmarked(text: str) -> Iterator[Leaf]:
    """Give the values that have no mark."""
    lines = text.split("\n")

    def is_marked(key: yaml.Node, value: yaml.Node) -> bool:
        """A question is about what is in one line, not about all that a block holds."""
        marks = "guessed|QUESTION" if value.start_mark.line == key.start_mark.line else "guessed"
        above = key.start_mark.line - 1
        while lines[above].lstrip().startswith("# "):
            if re.match(rf" *# ({marks}): ", lines[above]):
                return True
            above -= 1
        return False

    def walk(one: Any, keys: tuple[str, ...], sources: tuple[str, ...]) -> Iterator[Leaf]:
        if isinstance(one, yaml.MappingNode):
            table = {key.value: value for key, value in one.value}
            sources = (table["source"].value, *sources) if "source" in table else sources
            is_open = "confirmed" in table and table["confirmed"].value == "no"
            for key, value in one.value:
                if not is_marked(key, value) and not (is_open and isinstance(value, yaml.ScalarNode)):
                    yield from walk(value, (*keys, key.value), sources)
        elif isinstance(one, yaml.SequenceNode):
            for value in one.value:
                yield from walk(value, keys, sources)
        else:
            yield Leaf(keys, one.value, sources)

    yield from walk(yaml.compose(text, Loader=yaml.BaseLoader), (), ())


def is_linked(made: Made, release: str) -> bool:
    """Whether a link of a node names a release as the default."""
    links = [to for one in made.nodes.values() for to in one.answer.links.values()]
    facts = [stack.default or "" for one in made.nodes.values() for stack in one.facts.stacks.values()]
    return any(text.endswith(release) for text in (*links, *facts))


def not_read(made: Made, text: str) -> list[Leaf]:
    """Give the values that have no mark, and that were not read where their source says."""
    seen = made.seen
    answers = {one.name: words_of(answer_of(one)) for one in (seen.login, *seen.nodes.values())}
    answers[seen.login.name] |= words_of("\n".join(seen.images(["/shared"])))
    of_slurm = words_of(CONFIG + ALL + made.lines)
    found = []
    for leaf in unmarked(text):
        if leaf.keys[-1] in CONCLUDED or (leaf.keys[-1] == "default" and not is_linked(made, leaf.value)):
            found.append(leaf)
            continue
        if (
            leaf.keys[0] == "node_kinds"
            and leaf.keys[-1] != "source"
            and "of Slurm" in leaf.sources[0]
            and leaf.keys[-1] != "memory_mib"
        ):
            found.append(leaf)  # nobody looked where they are
        if leaf.keys[-1] in OWN or leaf.keys[0] in OWN_BLOCKS or "{fabric" in leaf.value:
            continue
        source = leaf.sources[0] if leaf.sources else "Slurm"
        known = set().union(*(words for name, words in answers.items() if re.search(rf"\b{name}\b", source)))
        known |= of_slurm if "lurm" in source else set()
        mine = re.findall(r"[\w.:+@-]+", leaf.value)
        parts = {part for word in mine for part in ([word] if word in known else re.split(r"[-,:_]", word))}
        if not parts <= known | {""}:
            found.append(leaf)
    return found


@pytest.mark.parametrize("name", CLUSTERS)
def test_no_value_without_a_mark_that_was_not_read(name: str) -> None:
    made = CLUSTERS[name]
    written(made.seen)  # which has no faults
    assert not_read(made, describe_site(made.seen).text) == []


def test_this_finds_what_was_not_read() -> None:
    made = CLUSTERS["file systems"]
    text = describe_site(made.seen).text
    for old, new, key in (
        ("path: /local", "path: /locale", "path"),
        ("memory_mib: 2000", "memory_mib: 2001", "memory_mib"),
        ("slurm: 24.11.5", "slurm: 24.11.6", "slurm"),
    ):
        assert old in text
        confirmed = text.replace("confirmed: no", "confirmed: yes")
        assert key in {leaf.keys[-1] for leaf in not_read(made, confirmed.replace(old, new))}
    # What is read on one node is not read on another one.
    elsewhere = text.replace("source: 'here: read on n1, 2026", "source: 'here: read on login1, 2026")
    assert {leaf.value for leaf in not_read(made, elsewhere)} >= {"/local", "/tmp"}
    assert not_read(made, re.sub("# (guessed|QUESTION):", "# note:", text))


@pytest.mark.parametrize("name", ["NFS of an unknown name", "file systems"])
def test_no_mount_for_users_vanishes(name: str) -> None:
    made = CLUSTERS[name]
    text = describe_site(made.seen).text
    points = {
        line.split()[4]
        for one in (made.seen.login, *made.nodes.values())
        for line in one.answer.lines("/proc/self/mountinfo")
    }
    paths = {one["path"] for one in written(made.seen)["file_systems"]}
    asked = set(re.findall(r"^# QUESTION: (\S+) \(", text, re.MULTILINE))
    assert points == paths | asked
    assert paths & asked == set()


def test_a_folder_with_the_first_digits_of_a_release_is_none() -> None:
    text = describe_site(CLUSTERS["a folder cuda-12"].seen).text
    assert "stacks: {}\n" in text
    assert "12.0" not in text
    assert "# QUESTION: which release of CUDA is /usr/local/cuda-12 on n1? The name does not say\n" in text
    assert "# QUESTION: which releases of CUDA do images have? n1 has nvidia 570.172.08, and no release was" in text
    beside = CLUSTERS["a folder cuda-12 beside a release"]
    assert written(beside.seen)["stacks"]["cuda"]["releases"].keys() == {"12.4"}
    assert "which release of CUDA is /usr/local/cuda-12 on n1?" in describe_site(beside.seen).text
    # As packages of Debian have it, a link to the release.
    files = {**H100_FILES, "/usr/local/cuda-12": Link("/usr/local/cuda-12.8")}
    one = Made({"h100": small(files=files)}, node("n1", gres="gpu:h100:2"))
    assert "which release" not in describe_site(one.seen).text


@pytest.mark.parametrize(
    ("name", "code"),
    [("no GPUs", "gpus-differ"), ("unplaced GPUs", "gpus-unplaced")],
)
def test_gpus_that_the_kernel_does_not_show_are_a_question(name: str, code: str) -> None:
    text, value = describe_site(CLUSTERS[name].seen).text, written(CLUSTERS[name].seen)
    assert re.search(rf"    # QUESTION: n1: .* \[{code}\]\n    gpus: \[\]\n", text)
    assert "gpu_bus_ids" not in next(iter(value["platforms"].values()))
    assert value["stacks"] == {}


def test_a_runtime_of_the_login_node_is_a_question_for_compute_nodes() -> None:
    path: Files = {"/output/apptainer path": b"/usr/bin/apptainer", "/proc/sys/kernel/hostname": b"login1\n"}
    text = describe_site(replace(CLUSTERS["file systems"].seen, login=small(path=path))).text
    assert "  # QUESTION: is it on compute nodes too? It was found on login1\n  apptainer:\n" in text
    assert "executable: /usr/bin/apptainer\n" in text
    assert text.partition("  apptainer:")[2].partition("source: ")[2].startswith("'here: read on login1, ")
