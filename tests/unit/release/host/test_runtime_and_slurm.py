"""`check --host` names what a container cannot start without, before a release is deployed too."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from lumisite.cli import main
from lumisite.findings.finding import Severity
from lumisite.machine.host import DiskTree
from lumisite.release.host.node import Node
from lumisite.release.host.runtime import runtime
from lumisite.release.host.system import locked_memory, task_prolog
from lumisite.release.policy import PolicyLine
from tests.support.captured import LUMI
from tests.support.dict_trees import write_tree
from tests.support.sites import site_text
from tests.support.twin_hosts import MOUNTED, compute_node, mount_table

STARTER = "/usr/libexec/singularity/bin/starter-suid"
CONF, SLURM_CONF = "/etc/singularity/singularity.conf", "/etc/slurm/slurm.conf"
PROLOG = "/appl/local/lumisite/current/spank/task_prolog"
SPACES = "/proc/sys/user/max_user_namespaces"
UNIT = "/usr/lib/systemd/system/slurmd.service"
LIMITS = "Limit                     Soft Limit           Hard Limit           Units\nMax locked memory         {0}            {0}            bytes\n"
#: A node with SingularityCE that has a setuid starter, and with Slurm.
GOOD: Mapping[str, str] = {
    "/usr/bin/singularity": "\x7fELF",
    "/usr/libexec/singularity/bin/starter": "",
    STARTER: "",
    CONF: "allow setuid = yes\nuser bind control = yes\nmount dev = yes\n",
    "/dev/fuse": "",
    "/usr/bin/squashfuse_ll": "",
    SPACES: "2059000\n",
    PROLOG: "#!/bin/sh\n",
    SLURM_CONF: f"NodeName=nid[1-9] CPUs=4\nTaskProlog={PROLOG}\nPartitionName=a Nodes=ALL\n",
    UNIT: "[Service]\nLimitMEMLOCK=infinity\n",
    "/proc/self/limits": LIMITS.format("unlimited"),
}
NO_BIT = "as a package manager leaves it that drops rights"
ON = (PolicyLine("on", "partition", "dev-g"), PolicyLine("off"))


def node(top: Path, changes: Mapping[str, str | None], policy: tuple[PolicyLine, ...] = ON) -> Node:
    files = {path: text for path, text in {**GOOD, **changes}.items() if text is not None}
    write_tree(top, {path: text.encode() for path, text in files.items()})
    for path in ("usr/bin/singularity", STARTER[1:]):
        if (top / path).exists():
            (top / path).chmod(0o4755 if path in STARTER and files[STARTER] != NO_BIT else 0o755)
    return Node(LUMI, DiskTree(str(top)), policy=policy)


def found(top: Path, changes: Mapping[str, str | None]) -> list[str]:
    at = node(top, changes)
    findings = [*runtime(at), *task_prolog(at), *locked_memory(at)]
    return [f"{one.code} {one.subject}: {one.message}" for one in findings]


START = "container-start /usr/bin/singularity: "
NO_WAY = f"{START}no way to start a container: no usable setuid starter, and no user namespaces"
NO_MOUNT = f"{START}{{}} missing, without which singularity mounts no image here"
FORBIDDEN = f"container-start {CONF}: `{{}}`: containers start without what modules bind, or not at all"
LOCKED = "host-limit locked memory: limit {}, expected unlimited: libraries cannot register memory with adapters"
NO_PROLOG = "no TaskProlog, though the policy has `on partition dev-g`: the helper is on only for who loads the module"
UNIT_LIMITS = "/etc/systemd/system/slurmd.service.d/limits.conf"

#: What is planted, and the only line that names it; without a setuid starter where `~` begins the name.
FAULTS: Mapping[str, tuple[Mapping[str, str | None], str]] = {
    "~no namespaces": ({SPACES: "0\n"}, f"{NO_WAY} (user.max_user_namespaces = 0)"),
    "setuid is not allowed, and no namespaces": (
        {CONF: "allow setuid = no\n", SPACES: None, "/proc/sys/kernel/unprivileged_userns_clone": "0\n"},
        f"{NO_WAY} (kernel.unprivileged_userns_clone = 0)",
    ),
    "a starter that is not setuid, and no namespaces": (
        {STARTER: NO_BIT, SPACES: "0\n"},
        f"{NO_WAY} (user.max_user_namespaces = 0)",
    ),
    "~no FUSE and no squashfuse": (
        {"/dev/fuse": None, "/dev/null": "", "/usr/bin/squashfuse_ll": None},
        NO_MOUNT.format("/dev/fuse and squashfuse"),
    ),
    "images by FUSE alone": (
        {CONF: "allow kernel squashfs = no\n", "/usr/bin/squashfuse_ll": None},
        NO_MOUNT.format("squashfuse"),
    ),
    "no binds": ({CONF: "user bind control = no\n"}, FORBIDDEN.format("user bind control = no")),
    "few devices": ({CONF: "mount dev = minimal\n"}, FORBIDDEN.format("mount dev = minimal")),
    "no program": (
        {"/usr/bin/singularity": None},
        "host-runtime /usr/bin/singularity: not an executable file; needed by singularity",
    ),
    "an empty program": (
        {"/usr/bin/singularity": ""},
        "host-runtime /usr/bin/singularity: empty; needed by singularity",
    ),
    "no task prolog": (
        {SLURM_CONF: "NodeName=nid[1-9] CPUs=4\nTaskEpilog=/x\n"},
        f"slurm-prolog {SLURM_CONF}: {NO_PROLOG}",
    ),
    "a task prolog that went": ({PROLOG: None}, f"slurm-prolog {SLURM_CONF}: TaskProlog={PROLOG}: no such file"),
    "a limit of this job": ({"/proc/self/limits": LIMITS.format("65536    ")}, LOCKED.format("65536 in this job")),
    "a limit of slurmd": ({UNIT_LIMITS: "[Service]\nLimitMEMLOCK=64K\n"}, LOCKED.format("64K in slurmd.service")),
    "a limit of users": (
        {"/etc/security/limits.d/90.conf": "*  soft  memlock  32\n*  hard  memlock  64\n"},
        LOCKED.format("64K in limits.conf"),
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_what_keeps_containers_from_starting_is_one_finding(tmp_path: Path, name: str) -> None:
    changes, line = FAULTS[name]
    assert found(tmp_path, {**changes, **({STARTER: None} if name.startswith("~") else {})}) == [line]


HEALTHY: Mapping[str, Mapping[str, str | None]] = {
    "as it is": {},
    "namespaces and FUSE alone": {STARTER: None},
    "a setuid starter alone": {SPACES: "0\n", "/dev/fuse": None, "/usr/bin/squashfuse_ll": None, "/dev/null": ""},
    "the cli_filter instead": {SLURM_CONF: "NodeName=nid1\nCliFilterPlugins=cli_filter/lua\n"},
    "a copy with little in it": dict.fromkeys(path for path in GOOD if path != "/usr/bin/singularity"),
    "limits for one user": {
        "/etc/security/limits.conf": "@guests hard memlock 64\nroot hard memlock 64\n* - nofile 9\n"
    },
}


@pytest.mark.parametrize("name", HEALTHY)
def test_a_node_that_can_start_containers_is_silent(tmp_path: Path, name: str) -> None:
    assert found(tmp_path, HEALTHY[name]) == []


def test_the_wrapper_is_no_runtime(tmp_path: Path) -> None:
    wrapper = "/appl/local/lumisite/current/spank/bin/singularity"
    at = node(tmp_path, {"/usr/bin/singularity": None, wrapper: "#!/bin/sh\n"})
    (tmp_path / "usr/bin/singularity").symlink_to(wrapper)
    (finding,) = runtime(at)
    assert finding.message == f"leads to {wrapper}, the wrapper of lumisite; needed by singularity"


def test_a_task_prolog_that_all_nodes_lack_drains_none(tmp_path: Path) -> None:
    local = GOOD[SLURM_CONF].replace(PROLOG, "/opt/site/prolog")
    for number, (conf, severity) in enumerate(((GOOD[SLURM_CONF], Severity.FAULT), (local, Severity.NODE))):
        (fault,) = task_prolog(node(tmp_path / str(number), {PROLOG: None, SLURM_CONF: conf}, ()))
        assert (fault.code, fault.severity) == ("slurm-prolog", severity)


def test_a_node_is_checked_before_anything_is_deployed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = compute_node() | {"/proc/self/mountinfo": mount_table(*MOUNTED, read_only="/flash")}
    del files["/scratch/.keep"], files["/usr/bin/apptainer"]
    write_tree(tmp_path / "host", files)
    (tmp_path / "host/tmp").mkdir()
    (tmp_path / "host/tmp").chmod(0o1777)
    Path("site.yaml").write_text(site_text(("root: /appl/lumisite", f"root: {tmp_path}/none")))
    assert main(["check", "site.yaml", "--host", "--host-root", "host"]) == 1
    out, err = capsys.readouterr()
    assert [line.rpartition(" ")[2] for line in out.splitlines()[:3]] == [
        "[host-mount]",
        "[host-path]",
        "[host-runtime]",
    ]
    assert "no release is deployed, so the node is checked by the site description alone" in err
