"""What a maintenance breaks, planted into the two host trees of the twin: each break is named with its reason."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from lumisite.cli import main
from tests.twin.fixtures import require_twin
from tests.twin.host_tree import PLATFORMS, host_tree
from tests.twin.image import image

pytestmark = [pytest.mark.root, pytest.mark.slurm, pytest.mark.apptainer]
Output = pytest.CaptureFixture[str]


@dataclass(frozen=True)
class Answer:
    """What `binds` says: exit code, decision and reason for each library, and stderr."""

    code: int
    decisions: dict[str, str]
    reasons: dict[str, str]
    said: str


def ask(capsys: Output, root: Path, platform: str, name: str = "small") -> Answer:
    where = ["--site", "twin", "--platform", platform, "--host-root", str(root)]
    code = main(["binds", str(image(name)), *where, "--path", f"/appl/images/{name}.sif", "--json"])
    output = capsys.readouterr()
    lines = {line["chain"].partition(" ")[0]: line for line in json.loads(output.out)}
    return Answer(
        code,
        {library: line["decision"] for library, line in lines.items()},
        {library: line["reason"] for library, line in lines.items()},
        output.err,
    )


@pytest.fixture(params=PLATFORMS)
def platform(request: pytest.FixtureRequest) -> str:
    require_twin()
    return str(request.param)


@pytest.fixture
def root(platform: str, tmp_path: Path) -> Path:
    """A copy of a host that a test may break."""
    return Path(shutil.copytree(host_tree(platform), tmp_path / "root", symlinks=True))


def test_an_unchanged_pair_has_nothing_to_tell(platform: str, root: Path, capsys: Output) -> None:
    before, after = ask(capsys, host_tree(platform), platform), ask(capsys, root, platform)
    assert before == after
    assert before.code == 0
    assert set(before.decisions.values()) <= {"bind", "skip"}
    assert before.said == "lumisite: image family twin-torch (by its path, /appl/images/*) [image-family]\n"


def rename_libfabric(root: Path, fabric: str, json: str) -> None:
    (root / f"opt/cray/libfabric/{fabric}").rename(root / "opt/cray/libfabric/1.30.0")


def change_soname(root: Path, fabric: str, json: str) -> None:
    (root / "usr/lib64/libcxi.so.1").rename(root / "usr/lib64/libcxi.so.2")


def change_json(root: Path, fabric: str, json: str) -> None:
    for path in (root / "usr/lib64").glob("libjson-c.so.*"):
        path.unlink()
    other = host_tree("2026-01" if json == "3" else "2024-08") / "usr/lib64"
    for path in other.glob("libjson-c.so.*"):
        shutil.copy(path, root / "usr/lib64", follow_symlinks=False)


def let_dangle(root: Path, fabric: str, json: str) -> None:
    (root / "usr/lib64/libcxi.so.1").resolve().unlink()


def take_away(root: Path, fabric: str, json: str) -> None:
    for path in (root / "usr/lib64").glob("libnl-3.so.*"):
        path.unlink()


def cut(root: Path, fabric: str, json: str) -> None:
    real = (root / "usr/lib64/libcxi.so.1").resolve()
    real.write_bytes(real.read_bytes()[:500])


BREAKS: dict[str, tuple[Callable[[Path, str, str], None], dict[str, str], dict[str, str]]] = {
    "libfabric renamed": (rename_libfabric, {"libfabric.so.1": "missing"}, {"libfabric.so.1": "the host has none"}),
    "SONAME changed": (
        change_soname,
        {"libcxi.so.1": "missing", "libfabric.so.1": "refuse"},
        {
            "libcxi.so.1": "the host has none; it has libcxi.so.2",
            "libfabric.so.1": "needs libcxi.so.1, whose decision is missing",
        },
    ),
    "another json-c": (
        change_json,
        {"libjson-c.so.JSON": "missing", "libfabric.so.1": "refuse", "libcxi.so.1": "bind"},
        {
            "libjson-c.so.JSON": "the host has none; it has libjson-c.so.OTHER",
            "libfabric.so.1": "needs libjson-c.so.JSON, whose decision is missing",
        },
    ),
    "a dangling link": (
        let_dangle,
        {"libcxi.so.1": "missing"},
        {
            "libcxi.so.1": "the host has none; /usr/lib64/libcxi.so.1 leads to /usr/lib64/libcxi.so.CXI, which is not there"
        },
    ),
    "a library gone": (
        take_away,
        {"libcxi.so.1": "refuse", "libnl-3.so.200": "missing", "libfabric.so.1": "refuse"},
        {
            "libcxi.so.1": "needs libnl-3.so.200, whose decision is missing",
            "libfabric.so.1": "needs libcxi.so.1, whose decision is refuse",
        },
    ),
    "a library cut": (
        cut,
        {"libcxi.so.1": "refuse"},
        {"libcxi.so.1": "/usr/lib64/libcxi.so.1 cannot be loaded: "},
    ),
}


@pytest.mark.parametrize("name", BREAKS)
def test_a_break_is_named_with_its_reason(platform: str, root: Path, name: str, capsys: Output) -> None:
    plant, decisions, reasons = BREAKS[name]
    version = PLATFORMS[platform]
    other = "5" if version.json == "3" else "3"
    plant(root, version.libfabric, version.json)
    answer = ask(capsys, root, platform)
    assert answer.code == 1

    def filled(text: str) -> str:
        return text.replace("JSON", version.json).replace("OTHER", other).replace("CXI", version.libcxi)

    for library, decision in decisions.items():
        assert answer.decisions[filled(library)] == decision
    for library, reason in reasons.items():
        assert filled(reason) in answer.reasons[filled(library)]
    if name == "libfabric renamed":
        there = f"/opt/cray/libfabric/{version.libfabric}: libfabric by the site description, which the host lacks (it has default, 1.30.0 there)"
        assert there in answer.said


def test_the_update_itself_is_told_where_the_site_has_not_followed(capsys: Output) -> None:
    """The site still says 2024-08, the node is the one of 2026-01."""
    require_twin()
    answer = ask(capsys, host_tree("2026-01"), "2024-08")
    assert (answer.code, answer.decisions["libfabric.so.1"]) == (1, "missing")
    assert (
        "/opt/cray/libfabric/1.15.2.0: libfabric by the site description, which the host lacks (it has default, 1.22.0 there)"
        in answer.said
    )
    assert (
        "/opt/cray/pe/mpich/8.1.29: cray-mpich by the site description, which the host lacks (it has 8.1.32 there)"
        in answer.said
    )


def test_an_image_whose_glibc_is_too_old_is_told_after_the_update_only(capsys: Output) -> None:
    require_twin()
    before = ask(capsys, host_tree("2024-08"), "2024-08", "older-libc")
    assert (before.code, set(before.decisions.values())) == (0, {"bind"})
    after = ask(capsys, host_tree("2026-01"), "2026-01", "older-libc")
    assert (after.code, set(after.decisions.values())) == (1, {"refuse"})
    assert after.reasons["libcxi.so.1"] == "needs GLIBC_2.38 of libc.so.6, where the image has up to GLIBC_2.36"
