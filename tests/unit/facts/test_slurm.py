"""Slurm's files about one node are compared by meaning: one finding for one cause, with what it touches."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from lumisite.facts.compare import compare
from lumisite.facts.facts import Facts
from lumisite.facts.report import make_report
from lumisite.findings.finding import Severity
from tests.support.captured import LUMI, Plant, node_with
from tests.support.elves import elf

CONF = """\
ClusterName=lumi
PrologFlags=Contain,X11
TaskProlog=/etc/slurm/prolog.sh
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
PLUGINS = "required /opt/one.so\noptional spank_lua.so x=1\n"
FILTER = """-- the site's own
local done, ours = pcall(dofile, "/appl/local/lumisite/current/spank/cli_filter.lua")
function slurm_cli_setup_defaults(options, early) return slurm.SUCCESS end
"""
SCRIPT = "#!/bin/sh\n# one\necho 'print # of tasks'  # why\n[ -n \"${X#y}\" ] && echo export X=1\n"
BASE = {
    "slurm.conf": CONF,
    "cgroup.conf": CGROUP,
    "gres.conf": "\n".join(GRES),
    "plugstack.conf": "include plugstack.conf.d/*.conf\n",
    "plugstack.conf.d/site.conf": PLUGINS,
    "cli_filter.lua": FILTER,
    "prolog.sh": SCRIPT,
}
PROLOG, HELPER_FILTER = ("helper", "spank/task_prolog"), ("helper", "spank/cli_filter.lua")
MASK, KIND = ("mask", "lumi-g"), ("site", "node_kinds.lumi-g")


def node(changes: Mapping[str, str | None], more: Plant | None = None) -> Facts:
    """Capture a node with Slurm's files, some of them others."""
    texts = {f"/etc/slurm/{name}": text for name, text in {**BASE, **changes}.items() if text is not None}
    library = {"/usr/lib64/slurm/spank_lua.so": elf("spank_lua.so")}
    return node_with({path: text.encode() for path, text in texts.items()}, library, more or {})


#: What is planted, by file; the subject of the one change, its values, and what it touches.
Row = tuple[Mapping[str, str | None], str, tuple[str | None, str | None] | None, set[tuple[str, str]]]
CHANGES: Mapping[str, Row] = {
    "no flags of the prolog": ({"slurm.conf": CONF.replace("PrologFlags=Contain,X11\n", "")}, "PrologFlags", ("contain,x11", None), {PROLOG}),
    "reserved CPUs": ({"slurm.conf": CONF.replace("0,8,16", "0-1,8,16")}, "NodeName", ("CpuSpecList=0,8,16", "CpuSpecList=0-1,8,16"), {MASK, KIND}),
    "a node that is not named any more": ({"slurm.conf": CONF.replace(",nid[005000-005100]", "")}, "NodeName", None, {MASK, KIND}),
    "no cgroup.conf": ({"cgroup.conf": None}, "cgroup.conf", None, {PROLOG, MASK, KIND}),
    "GPUs in another order": ({"gres.conf": "\n".join([*GRES[4:], *GRES[:4]])}, "gres.conf", None, {PROLOG, MASK, KIND}),
    "a plugin less": ({"plugstack.conf.d/site.conf": PLUGINS.splitlines()[1]}, "plugstack.conf", ("required /opt/one.so", None), {PROLOG}),
    "a TaskProlog that runs something": ({"prolog.sh": SCRIPT.replace("${X#y}", "${X#z}")}, "TaskProlog", None, {PROLOG}),
    "a cli_filter without ours": ({"cli_filter.lua": FILTER.replace("local done", "-- local done")}, "cli_filter.lua", None, {HELPER_FILTER}),
}  # fmt: skip
#: The same in another spelling: case, order, spaces, comments, and lines for this node or for others.
SAME_CONF = (
    CONF.replace("PrologFlags=Contain,X11", "prologflags = x11,Contain # as before")
    .replace("task/affinity,task/cgroup", "TASK/cgroup,task/affinity")
    .replace("CpuSpecList=0,8,16", "cpuspeclist=16,0,8")
    .replace("CR_Core_Memory,CR_CORE_DEFAULT_DIST_BLOCK", '"CR_Core_Default_Dist_Block,cr_core_memory"')
    .replace("CpuSpecList=1\n", "CpuSpecList=1-5\n")
)
SAME_GRES = [f"NodeName=nid[005000-005010] {line}".replace("0-7", "0-3,4-7") for line in GRES]
SAME = {
    "slurm.conf": SAME_CONF,
    "cgroup.conf": "constraindevices=YES\n\nConstrainRAMSpace=yes\nCONSTRAINCORES = yes # cores\n",
    "gres.conf": "\n".join([*SAME_GRES, "NodeName=nid001000 Name=gpu File=/dev/dri/renderD128\n"]),
    "plugstack.conf.d/site.conf": PLUGINS.replace("required", "REQUIRED ").replace("\n", "\n\n# next\n"),
    "cli_filter.lua": FILTER.replace("-- the", "--[[ a\n b ]]\n  -- the"),
    "prolog.sh": SCRIPT.replace("one", "two, three").replace("# why", "# so"),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_change_of_slurms_files_is_one_finding(name: str) -> None:
    files, subject, values, touched = CHANGES[name]
    (change,) = make_report(node({}), node(files), LUMI).changes
    assert (change.kind, change.subject) == ("slurm-conf", subject)
    assert values in (None, (change.before, change.after))
    assert touched <= {(touch.what, touch.name) for touch in change.touches}
    assert (change.severity is Severity.FAULT) == ("cli_filter" in name)
    assert [one.subject for one in compare(node(files), node({}))] == [subject]


def test_another_spelling_is_no_change() -> None:
    assert SAME.items().isdisjoint(BASE.items())
    assert compare(node({}), node(SAME)) == ()


def test_a_plugin_that_was_built_anew_is_named() -> None:
    rebuilt = node({}, {"/usr/lib64/slurm/spank_lua.so": b"other"})
    assert [one.subject for one in compare(node({}), rebuilt)] == ["plugstack.conf"]


def test_files_beside_a_slurm_conf_that_is_elsewhere_are_read() -> None:
    elsewhere = dict.fromkeys(BASE)
    one, other = (node({**elsewhere, "cgroup.conf": text}) for text in (CGROUP, "ConstrainCores=yes\n"))
    (change,) = compare(one, other)
    assert (change.before, change.after) == ("constraindevices=yes, constrainramspace=yes", None)
