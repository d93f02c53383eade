"""`check --host`: what the release's modules and plans bind is there, can be read, and is what it was."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path

import pytest

from lumisite.cli import main
from lumisite.images.digest import digest_of
from lumisite.machine.host import open_file
from tests.support.dict_trees import Link, write_tree
from tests.support.elves import elf
from tests.support.images import sif
from tests.support.sites import site_text
from tests.support.twin_hosts import FABRIC, LIBCXI, MPI, compute_node, host, mount_table
from tests.unit.release.conftest import Check, Node

Changes = Mapping[str, bytes | Link | None]
HOST = ["--host", "--root", "root", "--host-root", "host"]
CPEBITS = "singularity-CPEbits/25.03"


def test_a_node_that_has_all_is_silent(node: Node, capsys: pytest.CaptureFixture[str]) -> None:
    node(host())
    capsys.readouterr()
    assert main(["check", "twin", *HOST]) == 0
    output = capsys.readouterr()
    assert output.out == ""
    assert output.err.endswith(" matches host: 22 checks passed\n")


CRAY = dict.fromkeys(path for path in compute_node() if path.startswith("/opt/cray/"))
NEW_FABRIC = "/opt/cray/libfabric/2.0.1/lib64/libfabric.so.1"
#: What is changed on a compute node, and of the one finding its path, code, what needs it, and the exit code: 5 where
#: only this node can have it, 1 where the whole system may, as after an update.
FAULTS: Mapping[str, tuple[Changes, str, str, str, int]] = {
    "library gone": ({LIBCXI: None, f"{LIBCXI}.6.0": None}, LIBCXI, "host-path", CPEBITS, 5),
    "broken link": ({f"{LIBCXI}.6.0": None}, LIBCXI, "host-path", CPEBITS, 5),
    "empty library": ({f"{LIBCXI}.6.0": b""}, LIBCXI, "library-damaged", CPEBITS, 5),
    "another SONAME": ({f"{LIBCXI}.6.0": elf("libcxi.so.2")}, LIBCXI, "host-library", CPEBITS, 1),
    "broken link by an update of one library": (
        {f"{LIBCXI}.6.0": None, f"{LIBCXI}.7.0": elf("libcxi.so.1")},
        *(LIBCXI, "host-path", CPEBITS, 1),
    ),
    "another release of libfabric": (
        {FABRIC: None, f"{FABRIC}.29.0": None, NEW_FABRIC: elf("libfabric.so.1")},
        *("/opt/cray/libfabric/1.22.0", "host-path", "platform 2026-01 (libfabric)", 1),
    ),
    "no directory": (
        {MPI: None, "/opt/cray/pe/mpich/8.1.32": b""},
        *("/opt/cray/pe/mpich/8.1.32", "host-path", "CPE 25.03 (cray-mpich)", 1),
    ),
    # What would be below a path that is missing follows from that.
    "all of it gone": (CRAY, "/opt/cray", "host-path", CPEBITS, 5),
    "all of it behind a broken link": (
        {**CRAY, "/opt/cray": Link("/opt/hpe/cray")},
        *("/opt/cray", "host-path", CPEBITS, 5),
    ),
}


@pytest.mark.parametrize("case", FAULTS)
def test_each_fault_is_one_finding(node: Node, check: Check, case: str) -> None:
    changes, *expected, expected_code = FAULTS[case]
    files = {**compute_node(), **changes}
    node({path: content for path, content in files.items() if content is not None})
    code, (fault,) = check()
    assert [fault["path"], fault["code"], fault["expected"]] == expected
    assert ("broken link to " in fault["found"]) == ("broken link" in case)
    assert (code, "drain" in fault) == (expected_code, expected_code == 5)


@pytest.mark.parametrize(
    ("path", "mode", "remedy"),
    [
        ("opt/cray/libfabric", 0o750, "chmod o+x /opt/cray/libfabric"),
        ("opt/cray/libfabric/1.22.0", 0o751, "chmod o+rx /opt/cray/libfabric/1.22.0"),
        ("usr/lib64/libcxi.so.1.6.0", 0o600, "chmod o+r /usr/lib64/libcxi.so.1.6.0"),
        ("usr/bin/apptainer", 0o744, "chmod o+rx /usr/bin/apptainer"),
    ],
)
def test_what_users_may_not_read_is_named(node: Node, check: Check, path: str, mode: int, remedy: str) -> None:
    (node(host()) / path).chmod(mode)
    _, (fault,) = check()
    assert (fault["code"], fault["remedy"]) == ("users-shut-out", remedy)
    assert fault["found"].startswith(f"/{path} has mode {mode:04o}, which shuts users out; needed by ")


def test_damage_of_the_release_its_root_and_its_policy_is_named(node: Node, check: Check) -> None:
    node(host())
    prolog = Path("root/current/spank/task_prolog").resolve()
    prolog.chmod(0o644)
    Path("root/releases").chmod(0o775)
    Path("root/policy").write_text("act default\n")
    code, found = check()
    assert [(fault["code"], fault["path"]) for fault in found] == [
        ("root-open", f"{Path('root').resolve()}/releases"),
        ("policy-damaged", ""),
        ("release-mode", str(prolog)),
    ]
    assert code == 1
    Path("root/current/MANIFEST.json").write_text("{}")
    assert check()[1][-1]["path"] == f"{Path('root/current').resolve()}/MANIFEST.json"


def test_a_release_of_another_site_or_platform_is_refused(node: Node, capsys: pytest.CaptureFixture[str]) -> None:
    node(host())
    assert main(["check", "lumi", *HOST]) == 2
    assert "release of site twin, not of lumi" in capsys.readouterr().err
    Path("site.yaml").write_text(site_text(("2026-01:", "2026-02:"), ("platform: 2026-01", "platform: 2026-02")))
    assert main(["check", "site.yaml", *HOST]) == 2
    assert "for platform 2026-01, which the site description does not have" in capsys.readouterr().err


# ---- plans

RCCL = "/appl/plugin/lib/librccl-net.so"
IMAGE = "/appl/images/torch.sif"
PLAN = f"""\
plan: 2
site: twin
platform: 2026-01
stacks: {{cpe: 25.03, rocm: 6.2.4}}
family: twin-torch
paths: [IMAGE, '*/copies/*.sif']
image: {{bytes: 5, digest: 'DIGEST'}}
library_path: [/appl/plugin/lib]
lines:
  - {{library: libcxi.so.1, decision: bind, source: {LIBCXI}, target: /lib64/libcxi.so.1, reason: r, chain: c}}
  - {{library: librccl-net.so, decision: bind, soname: librccl-net.so.0, source: {RCCL}, target: /lib/librccl-net.so,
     reason: r, chain: c}}
  - {{library: libmpi.so.12, decision: bind, source: {MPI}, target: {MPI}, by: singularity-CPEbits, reason: r, chain: c}}
  - {{library: libz.so.1, decision: skip, target: /lib64/libz.so.1, reason: r, chain: c}}
"""
BOTH = "plans/a.yaml, plans/b.yaml"


def deploy_plans(folder: Path, image: str = IMAGE) -> Path:
    """Render with two plans and deploy, for the host in `host`, which is returned."""
    top = write_tree(folder / "host", host() | {RCCL: elf("librccl-net.so.0"), IMAGE: sif()})
    (top / "usr/bin/apptainer").chmod(0o755)
    (folder / "site.yaml").write_text(site_text(("modules:\n", "plans: [plans/a.yaml, plans/b.yaml]\nmodules:\n")))
    (folder / "plans").mkdir()
    text = PLAN.replace("DIGEST", digest_of(open_file(f"{top}{IMAGE}")))
    (folder / "plans/a.yaml").write_text(text.replace("IMAGE", image))
    (folder / "plans/b.yaml").write_text(text.replace("IMAGE", "/appl/images/gone.sif").replace("/copies/", "/more/"))
    assert main(["render", "--site", "site.yaml", "--out", "out"]) == 0
    assert main(["deploy", "out", "root", "--apply"]) == 0
    return top


@pytest.fixture
def planned(tmp_path: Path) -> Path:
    return deploy_plans(tmp_path)


def test_of_a_good_node_only_the_image_that_is_gone_is_noted(planned: Path, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    assert main(["check", "site.yaml", *HOST]) == 0
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 2)
    assert err.startswith("lumisite: /appl/images/gone.sif: missing; plans/b.yaml is its plan")
    assert err.endswith("25 checks passed\n"), "two files and a folder more than without plans"


@pytest.mark.parametrize(
    ("path", "content", "code"),
    [
        (RCCL, None, "host-path"),
        (RCCL, elf("librccl-net.so.1"), "host-library"),
        (RCCL, elf(None), ""),  # which loads
        (RCCL, b"text", "library-damaged"),
        (f"{RCCL}/x", b"", "host-path"),
        (MPI, elf("libmpi.so.40"), "host-library"),
    ],
    ids=["gone", "another SONAME", "no SONAME", "no library", "a folder", "what a module binds"],
)
def test_what_is_wrong_with_a_planned_file_is_named(
    planned: Path, check: Check, path: str, content: bytes | None, code: str
) -> None:
    source = path.removesuffix("/x")
    (planned / source[1:]).unlink()
    if content is not None:
        write_tree(planned, {path: content})
    found = [(fault["path"], fault["code"], fault["expected"]) for fault in check("site.yaml")[1]]
    assert found == ([(source, code, BOTH)] if code else [])


def test_a_folder_of_a_plan_that_is_gone_is_named_unless_its_mount_is_missing(planned: Path, check: Check) -> None:
    shutil.rmtree(planned / "appl/plugin")
    found = [(fault["path"], fault["code"], fault["expected"]) for fault in check("site.yaml")[1]]
    assert found == [("/appl/plugin/lib", "host-path", BOTH)]
    write_tree(planned, {"/proc/self/mountinfo": mount_table("/scratch", "/project", "/projappl", "/flash")})
    assert [(fault["path"], fault["code"]) for fault in check("site.yaml")[1]] == [("/appl", "host-mount")]


@pytest.mark.parametrize("kind", ["another image", "a pipe"])
def test_another_image_behind_the_path_is_a_fault(planned: Path, check: Check, kind: str) -> None:
    image = planned / IMAGE[1:]
    image.unlink()
    if kind == "a pipe":  # which is not waited for
        os.mkfifo(image)
    else:
        image.write_bytes(sif((1, b"another", 0, 0)))
    assert [(fault["path"], fault["code"]) for fault in check("site.yaml")[1]] == [(IMAGE, "plan-image-changed")]


def test_render_notes_that_an_image_is_not_the_planned_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    image = tmp_path / "mine.sif"
    image.write_bytes(sif())
    deploy_plans(tmp_path, str(image))
    assert "mine.sif" not in capsys.readouterr().err
    image.write_bytes(sif((1, b"another", 0, 0)))
    assert main(["render", "--site", "site.yaml", "--out", "out"]) == 0
    assert f"lumisite: {image}: not the file that the plan was made for" in capsys.readouterr().err
