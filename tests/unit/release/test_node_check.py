from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lumisite.cli import main
from tests.support.dict_trees import Files, Link, write_tree
from tests.support.elves import elf
from tests.support.sites import site_text

Output = pytest.CaptureFixture[str]
FABRIC = "/opt/cray/libfabric/1.22.0/lib64/libfabric.so.1"
LIBCXI = "/usr/lib64/libcxi.so.1"


def host() -> dict[str, bytes | Link]:
    """What the twin's release of 2026-01 hands to containers."""
    files: dict[str, bytes | Link] = {
        f"/{name}/.keep": b"" for name in ("scratch", "project", "projappl", "flash", "appl")
    }
    return files | {
        "/usr/bin/apptainer": b"#!/bin/sh\n",
        "/usr/bin/singularity": Link("apptainer"),
        "/opt/cray/pe/mpich/8.1.32/lib/libmpi.so.12": elf("libmpi.so.12"),
        FABRIC: Link("libfabric.so.1.29.0"),
        f"{FABRIC}.29.0": elf("libfabric.so.1", ["libcxi.so.1", "libjson-c.so.5", "libc.so.6"]),
        LIBCXI: Link("libcxi.so.1.6.0"),
        f"{LIBCXI}.6.0": elf("libcxi.so.1"),
        "/usr/lib64/libjson-c.so.5": elf("libjson-c.so.5"),
    }


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[Files], Path]:
    """Deploy the twin's release to `root`, and write a node to `host`."""
    monkeypatch.chdir(tmp_path)
    assert main(["render", "--site", "twin", "--out", "out"]) == 0
    assert main(["deploy", "out", "root", "--apply"]) == 0

    def write(files: Files) -> Path:
        top = write_tree(tmp_path / "host", files)
        (top / "usr/bin/apptainer").chmod(0o755) if (top / "usr/bin/apptainer").is_file() else None
        return top

    return write


def faults(capsys: Output, site: str = "twin") -> list[dict[str, Any]]:
    capsys.readouterr()
    code = main(["check", site, "--host", "--root", "root", "--host-root", "host", "--json"])
    found = json.loads(capsys.readouterr().out)
    assert isinstance(found, list)
    assert code == (1 if found else 0)
    return found


def test_a_node_that_has_all_is_silent(node: Callable[[Files], Path], capsys: Output) -> None:
    node(host())
    assert faults(capsys) == []
    assert main(["check", "twin", "--host", "--root", "root", "--host-root", "host"]) == 0
    output = capsys.readouterr()
    assert output.out == ""
    assert output.err.endswith(" matches host: 25 checks passed\n")


def test_a_damaged_policy_is_a_fault(node: Callable[[Files], Path], capsys: Output) -> None:
    node(host())
    Path("root/policy").write_text("act default\n")
    assert [(fault["code"], "is not a policy line, which means off" in fault["found"]) for fault in faults(capsys)] == [
        ("policy-damaged", True)
    ]


CPEBITS = "singularity-CPEbits/25.03"


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"/usr/bin/singularity": None}, ("/usr/bin/singularity", "host-runtime", "singularity")),
        (
            {
                "/usr/bin/singularity": Link("/appl/lumisite/current/spank/bin/singularity"),
                "/appl/lumisite/current/spank/bin/singularity": b"",
            },
            ("/usr/bin/singularity", "host-runtime", "singularity"),
        ),
        ({"/flash/.keep": None}, ("/flash", "host-path", "singularity-userfilesystems/2026-01")),
        ({f"{LIBCXI}.6.0": None}, (LIBCXI, "host-path", CPEBITS)),
        ({f"{LIBCXI}.6.0": elf("libcxi.so.2")}, (LIBCXI, "host-library", CPEBITS)),
        (
            {"/usr/lib64/libjson-c.so.5": None, "/usr/lib64/libjson-c.so.3": elf("libjson-c.so.3")},
            ("libjson-c.so.5", "host-library", FABRIC),
        ),
        ({f"{LIBCXI}.6.0": b"no library"}, (LIBCXI, "library-damaged", CPEBITS)),
        (
            {"/opt/cray/pe/mpich/8.1.32/lib/libmpi.so.12": None, "/opt/cray/pe/mpich/8.1.29/lib/libmpi.so.12": b""},
            ("/opt/cray/pe/mpich/8.1.32", "host-path", "CPE 25.03 (cray-mpich)"),
        ),
        (
            {"/opt/cray/pe/mpich/8.1.32/lib/libmpi.so.12": None, "/opt/cray/pe/mpich/8.1.32": b""},
            ("/opt/cray/pe/mpich/8.1.32", "host-path", "CPE 25.03 (cray-mpich)"),
        ),
    ],
)
def test_each_fault_is_named(
    node: Callable[[Files], Path],
    capsys: Output,
    change: dict[str, bytes | Link | None],
    expected: tuple[str, str, str],
) -> None:
    files = host() | change
    node({path: content for path, content in files.items() if content is not None})
    (fault,) = faults(capsys)
    assert (fault["path"], fault["code"], fault["expected"]) == expected
    assert fault["remedy"]


@pytest.mark.parametrize(
    ("path", "mode", "at", "remedy"),
    [
        (
            "opt/cray/libfabric",
            0o750,
            "/opt/cray/libfabric",
            "chmod o+x /opt/cray/libfabric",
        ),
        (
            "opt/cray/libfabric/1.22.0",
            0o751,
            "/opt/cray/libfabric/1.22.0",
            "chmod o+rx /opt/cray/libfabric/1.22.0",
        ),
        (
            "usr/lib64/libcxi.so.1.6.0",
            0o600,
            "/usr/lib64/libcxi.so.1.6.0",
            "chmod o+r /usr/lib64/libcxi.so.1.6.0",
        ),
        ("usr/bin/apptainer", 0o744, "/usr/bin/apptainer", "chmod o+rx /usr/bin/apptainer"),
        ("scratch", 0o770, "/scratch", "chmod o+x /scratch"),
    ],
)
def test_what_users_may_not_read_is_named(
    node: Callable[[Files], Path], capsys: Output, path: str, mode: int, at: str, remedy: str
) -> None:
    top = node(host())
    (top / path).chmod(mode)
    found = [(one["code"], one["found"].partition(";")[0], one["remedy"]) for one in faults(capsys)]
    assert ("users-shut-out", f"{at} has mode {mode:04o}, which shuts users out", remedy) in found
    (top / path).chmod(0o711 if path == "scratch" else 0o755)
    assert faults(capsys) == []


def test_hand_edits_of_the_release_are_faults(node: Callable[[Files], Path], capsys: Output) -> None:
    node(host())
    prolog = Path("root/current/spank/task_prolog").resolve()
    prolog.chmod(0o644)
    (fault,) = faults(capsys)
    assert (fault["path"], fault["code"]) == (str(prolog), "release-mode")
    Path("root/current/MANIFEST.json").write_text("{}")
    assert faults(capsys)[0]["path"].endswith("/MANIFEST.json")


def test_a_root_that_others_can_change_is_a_fault(node: Callable[[Files], Path], capsys: Output) -> None:
    node(host())
    Path("root/releases").chmod(0o775)
    assert [(one["code"], one["remedy"].partition(" /")[0]) for one in faults(capsys)] == [("root-open", "chmod g-w")]


def test_a_release_of_another_site_or_platform_is_refused(node: Callable[[Files], Path], capsys: Output) -> None:
    node(host())
    words = ["--host", "--root", "root", "--host-root", "host"]
    assert main(["check", "lumi", *words]) == 2
    assert "release of site twin, not of lumi" in capsys.readouterr().err
    Path("site.yaml").write_text(
        site_text().replace("2026-01:", "2026-02:").replace("platform: 2026-01", "platform: 2026-02")
    )
    assert main(["check", "site.yaml", *words]) == 2
    assert "for platform 2026-01, which the site description does not have" in capsys.readouterr().err


def test_a_site_that_was_edited_since_is_said(node: Callable[[Files], Path], capsys: Output) -> None:
    node(host())
    Path("twin.yaml").write_text(site_text(("title: the twin", "title: the other")))
    assert main(["check", "./twin.yaml", "--host", "--root", "root", "--host-root", "host"]) == 0
    assert "[not-deployed]" in capsys.readouterr().err


CRAY = [path for path in host() if path.startswith("/opt/cray/")]


@pytest.mark.parametrize(
    ("link", "subject", "code"),
    [
        ({"/opt/cray": Link("/opt/hpe/cray")}, "/opt/cray", "host-path"),
        ({"/opt/cray/pe": Link("../hpe/pe"), FABRIC: Link("libfabric.so.1.29.0")}, "/opt/cray/pe", "host-path"),
        ({}, "/opt/cray", "host-path"),
    ],
)
def test_a_broken_link_is_named_and_not_what_would_be_below_it(
    node: Callable[[Files], Path], capsys: pytest.CaptureFixture[str], link: dict[str, Link], subject: str, code: str
) -> None:
    kept = {path: content for path, content in host().items() if path not in CRAY}
    if FABRIC in link:
        kept |= {path: content for path, content in host().items() if "/opt/cray/libfabric" in path}
    node({**kept, **link})
    capsys.readouterr()
    main(["check", "twin", "--host", "--root", "root", "--host-root", "host", "--json"])
    faults = [(fault["code"], fault["path"]) for fault in json.loads(capsys.readouterr().out)]
    assert faults == [(code, subject)]
