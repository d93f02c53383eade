"""Slurm's files about one node are compared by meaning: one finding for one cause, with what it touches."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from lumisite.facts.compare import compare
from lumisite.facts.facts import Facts
from lumisite.facts.report import ChangeReport, make_report
from lumisite.facts.slurm import is_named
from tests.support.breaks import LUMI, facts_of
from tests.support.dict_trees import Link
from tests.support.nodes import AFTER, lumi_node

CONF = """\
ClusterName=lumi
PrologFlags=Contain,X11
TaskPlugin=task/affinity,task/cgroup
SelectTypeParameters=CR_Core_Memory,CR_CORE_DEFAULT_DIST_BLOCK
NodeName=DEFAULT Sockets=1 CoresPerSocket=64 \\
   ThreadsPerCore=2 RealMemory=500000
NodeName=nid[001000-001999] Gres=gpu:mi250:4 CpuSpecList=1
NodeName=uan1,nid[005000-005100] Gres=gpu:mi250:8 CpuSpecList=0,8,16
"""
CGROUP = "ConstrainCores=yes\nConstrainDevices=yes\nConstrainRAMSpace=yes\n"
CORES = ("48-55", "56-63", "16-23", "24-31", "0-7", "8-15", "32-39", "40-47")
GRES = [f"Name=gpu Type=mi250 File=/dev/dri/renderD{128 + at} Cores={cores}" for at, cores in enumerate(CORES)]
PLUGINS = "required /opt/one.so\noptional /opt/two.so x=1\n"
CONFIGURED = {"slurm": CONF, "cgroup": CGROUP, "gres": "\n".join(GRES), "plugstack": PLUGINS}
PROLOG = ("helper", "spank/task_prolog")
MASK, GPUS = ("mask", "lumi-g"), ("site", "node_kinds.lumi-g")


def node(folder: str = "/etc/slurm", /, **changes: str | None) -> Facts:
    """Capture a node with Slurm's files, some of them others."""
    texts = {f"{folder}/{name}.conf": text for name, text in {**CONFIGURED, **changes}.items() if text is not None}
    files: dict[str, bytes | Link | None] = {path: text.encode() for path, text in texts.items()}
    return facts_of(lumi_node(AFTER, files))


def report(before: Facts, after: Facts) -> ChangeReport:
    return make_report(before, after, LUMI)


Touches = set[tuple[str, str]]
#: What is planted, by file; the code and subject of the one change, and what it touches.
CHANGES: Mapping[str, tuple[dict[str, str | None], tuple[str, str], Touches]] = {
    "no flags of the prolog": (
        {"slurm": CONF.replace("PrologFlags=Contain,X11\n", "")},
        ("slurm-conf", "PrologFlags"),
        {PROLOG},
    ),
    "reserved CPUs": (
        {"slurm": CONF.replace("0,8,16", "0-1,8,16")},
        ("slurm-conf", "NodeName"),
        {MASK, ("site", "node_kinds.lumi-g")},
    ),
    "defaults of nodes": (
        {"slurm": CONF.replace("500000", "250000")},
        ("slurm-conf", "NodeName"),
        {("site", "node_kinds.lumi-g")},
    ),
    "no cgroup.conf": ({"cgroup": None}, ("slurm-conf", "cgroup.conf"), {PROLOG, MASK, GPUS}),
    "devices are free": (
        {"cgroup": CGROUP.replace("Devices=yes", "Devices=no")},
        ("slurm-conf", "cgroup.conf"),
        {PROLOG, GPUS},
    ),
    "GPUs in another order": (
        {"gres": "\n".join([*GRES[4:], *GRES[:4]])},
        ("slurm-conf", "gres.conf"),
        {PROLOG, MASK, GPUS},
    ),
}
HARMLESS: Mapping[str, dict[str, str | None]] = {
    "case, order and spaces": {
        "slurm": CONF.replace("PrologFlags=Contain,X11", "prologflags = x11,Contain # as before")
        .replace("task/affinity,task/cgroup", "TASK/cgroup,task/affinity")
        .replace("CpuSpecList=0,8,16", "cpuspeclist=16,0,8")
        .replace("CR_Core_Memory,CR_CORE_DEFAULT_DIST_BLOCK", '"CR_Core_Default_Dist_Block,cr_core_memory"'),
        "cgroup": "constraindevices=YES\n\nConstrainRAMSpace=yes\nCONSTRAINCORES = yes # cores\n",
        "plugstack": PLUGINS.replace("required", "REQUIRED ").replace("\n", "\n\n# next\n"),
    },
    "another node": {"slurm": CONF.replace("CpuSpecList=1\n", "CpuSpecList=1-5\n")},
    "one line for this node alone": {
        "gres": "\n".join(f"NodeName=nid[005000-005010] {line}".replace("0-7", "0-3,4-7") for line in GRES)
        + "\nNodeName=nid001000 Name=gpu File=/dev/dri/renderD128\n"
    },
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_change_of_slurms_files_is_one_finding(name: str) -> None:
    files, change, touched = CHANGES[name]
    found = report(node(), node(**files)).changes
    assert [(one.kind, one.subject) for one in found] == [change]
    assert touched <= {(touch.what, touch.name) for touch in found[0].touches}


@pytest.mark.parametrize("name", HARMLESS)
def test_another_spelling_is_no_change(name: str) -> None:
    assert HARMLESS[name].items() != CONFIGURED.items()
    assert compare(node(), node(**HARMLESS[name])) == ()


def test_what_changed_is_a_value() -> None:
    def texts(name: str) -> tuple[str | None, str | None]:
        (change,) = compare(node(), node(**CHANGES[name][0]))
        return change.before, change.after

    assert texts("reserved CPUs") == ("CpuSpecList=0,8,16", "CpuSpecList=0-1,8,16")
    assert texts("devices are free") == ("constraindevices=yes", "constraindevices=no")
    before, after = map(str, texts("GPUs in another order"))
    assert before.startswith("cores=48-55 file=/dev/dri/renderD128 name=gpu type=mi250, ")
    assert after.startswith("cores=0-7 file=/dev/dri/renderD132 name=gpu type=mi250, ")


def test_files_beside_a_slurm_conf_that_is_elsewhere_are_read() -> None:
    one, other = (node(slurm=None, plugstack=None, cgroup=text) for text in (CGROUP, "ConstrainCores=yes\n"))
    (change,) = compare(one, other)
    assert (change.before, change.after) == (
        "constraindevices=yes, constrainramspace=yes",
        None,
    )


@pytest.mark.parametrize(
    ("host", "names", "is_one"),
    [
        ("nid001500", "nid[001000-001999,3],login1", True),
        ("nid1500", "nid[001000-001999]", False),
        ("nid3", "login1,nid[1-5]", True),
        ("nid03", "nid[1-5]", False),
        ("nid10", "nid[8-12]", True),
        ("a1b2", "a[1-3]b[2-4]", True),
        ("a4b2", "a[1-3]b[2-4]", False),
        ("nid1", "nid[", False),
        ("nid1", "nid[x-y,]", False),
    ],
)
def test_lists_of_hosts(host: str, names: str, is_one: bool) -> None:
    assert is_named(host, names) is is_one
