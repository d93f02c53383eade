"""The image decides: what the wrapper sets by what is known of the image that runs, and what it never guesses."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest

from lumisite.cli import main
from lumisite.images.lock import LoadedLock, Lock, LockedImage, format_lock
from lumisite.render.render import render_tree
from lumisite.render.templates import load_templates
from lumisite.site.load import load_site
from lumisite.site.selection import resolve_selection
from tests.support.prologs import ROOT, lay_out, lumi_like, shell_command, write_script
from tests.support.wrappers import RUNTIME, Wrapper

#: The two settings that can hang or abort a wrong image on several nodes.
LEVEL, NET = "NCCL_NET_GDR_LEVEL", "NCCL_NET"
MONITOR = "FI_MR_CACHE_MONITOR"
SIF = "/appl/local/containers/sif-images"
OLD = f"{SIF}/lumi-pytorch-rocm-6.1.3-python-3.12-pytorch-v2.6.1.sif"
R70 = f"{SIF}/lumi-multitorch-full-u24r70f21m50t210-20260807_115122.sif"
R72 = f"{SIF}/lumi-multitorch-full-u24r72f21m50t211-20260929_104918.sif"


def given(wrapper: Wrapper, image: str, **changes: str | None) -> tuple[str | None, str | None]:
    environment = wrapper.call("exec", image, "x", **changes).environment
    return environment.get(LEVEL), environment.get(NET)


def said(wrapper: Wrapper, image: str, **changes: str) -> str:
    return wrapper.call("exec", image, "x", LUMISITE_VERBOSE="all", **changes).stderr


@pytest.mark.parametrize("image", [OLD, R70, "docker://a", "/x/a b\n$(reboot)-rocm-6.1.3.sif"])
def test_a_name_tells_nothing_of_what_could_hang_a_wrong_image(wrapper: Wrapper, image: str) -> None:
    assert given(wrapper, image) == (None, None)


def test_an_exception_holds_only_for_images_that_are_known_to_be_one(wrapper: Wrapper) -> None:
    """The prolog sets the monitor for all images; the wrapper takes it back for those that choose one by themselves."""
    set_before = {MONITOR: "userfaultfd", "LUMISITE_EXPORTS": f";{MONITOR}=userfaultfd;"}

    def monitor(image: str, **changes: str) -> str | None:
        return wrapper.call("exec", image, "x", **{**set_before, **changes}).environment.get(MONITOR)

    assert monitor(R72) is None
    assert monitor(f"/x/{Path(R72).name}") is None, "a guess may take away"
    assert [monitor(image) for image in (R70, OLD, "/x/mine.sif", "docker://a")] == ["userfaultfd"] * 4
    assert monitor(R72, FI_MR_CACHE_MONITOR="memhooks") == "memhooks", "the user's own value stays"


def test_a_value_of_the_users_stays_and_is_named_whatever_the_image_turns_out_to_be(wrapper: Wrapper) -> None:
    assert given(wrapper, R70, NCCL_NET_GDR_LEVEL="SYS", NCCL_NET="Socket") == ("SYS", "Socket")
    for value, quoted in (("memhooks", "=memhooks"), ("x\x1b[2J", ""), ("", "="), ("x" * 300, "")):
        words = f": {MONITOR}{quoted} not changed: it was set before lumisite ran\n"
        assert words in said(wrapper, R70, **{MONITOR: value})
    assert ": NCCL_NET=My Net not changed: it was set before lumisite ran\n" in said(wrapper, R70, NCCL_NET="My Net")


# ---- links


def make_old(*files: Path, seconds: int = -1000) -> None:
    """Make files that are older than the release, or newer."""
    for file in files:
        file.parent.mkdir(exist_ok=True)
        file.touch()
        os.utime(file, (time.time() + seconds,) * 2)


def test_a_link_is_what_it_leads_to(wrapper: Wrapper) -> None:
    for name, target, family in (
        ("lumi-rocm-rocm-6.1.3.sif", R70, "laif-rocm70"),
        ("mine.sif", OLD, "lumi-pytorch"),
        ("lumi-pytorch-rocm-6.1.3-pytorch-v2.9.sif", "/x/mine.sif", "lumi-pytorch"),
    ):
        make_old(wrapper.folder / "images" / Path(target).name)
        (wrapper.folder / name).symlink_to(f"images/{Path(target).name}")
        assert f"{name}: family {family}\n" in said(wrapper, str(wrapper.folder / name))


def test_a_link_among_the_folders_is_followed(wrapper: Wrapper) -> None:
    """A family whose pattern names a folder; the name that is typed leads there through a link, or by a detour."""
    folder = wrapper.folder / "lumi-multitorch-images"
    folder.mkdir()
    (folder / "it's $(reboot) a.sif").touch()
    (wrapper.folder / "latest").symlink_to(folder.name)
    (wrapper.folder / "again").symlink_to("latest")
    for typed in ("latest", "again/.", "latest/../latest"):
        assert ": family laif-multitorch" in said(wrapper, f"{wrapper.folder}/{typed}/it's $(reboot) a.sif"), typed
    passed_by = said(wrapper, f"{folder}/../a.sif")
    assert f"{wrapper.folder}/a.sif: family unknown" in passed_by


def test_a_link_that_leads_nowhere_or_round_stops_nothing(wrapper: Wrapper) -> None:
    (wrapper.folder / "broken").symlink_to("nowhere/at/all")
    (wrapper.folder / "round").symlink_to("round")
    links = [f"{wrapper.folder}/{name}" for name in ("broken", "round")]
    for typed in (
        *links,
        "nowhere/../a.sif",
        "latest/gone/a.sif",
        "docker://latest/a.sif",
        "a//a.sif",
        "//",
        "..",
        ".",
    ):
        call = wrapper.call("exec", typed, "x")
        assert (call.arguments[1], call.stderr) == (typed, "")


# ---- what somebody has read in the image


def with_lock(folder: Path, shell: str, images: dict[str, LockedImage], *changes: tuple[str, str]) -> Wrapper:
    """Give the wrapper of a site with a lock of images; their names without a folder are files of the test's."""
    paths = {path if path.startswith("/") else f"{ROOT}/{path}.sif": image for path, image in images.items()}
    loaded = lumi_like(*changes, ("executable: /usr/bin/singularity", f"executable: {ROOT}/runtime/singularity"))
    known = LoadedLock(Lock("lumi", (), paths), "images.lock.json", json.dumps(sorted(images)).encode())
    files = render_tree(loaded, resolve_selection(loaded.site, rocm=["6.2"]), load_templates(), lock=known)
    lay_out(folder, {path: file.text for path, file in files.items()})
    write_script(folder / "runtime/singularity", RUNTIME)
    return Wrapper(tuple(shell_command(shell, folder)), folder)


PLUGIN = {"rocm": "6.1.3", "ofi_plugin": "1.4.0"}
OWN = "/opt/libfabric/lib/libfabric.so.1"


def test_what_the_lock_knows_counts_more_than_the_name(shell: str, tmp_path: Path) -> None:
    images = {
        # by a lock of an earlier lumisite, without where its libfabric is
        "lumi-rocm-rocm-7.0.2": (LockedImage(family="lumi-rocm", versions=PLUGIN), ("PHB", None)),
        "lumi-pytorch-rocm-a[1] b-pytorch-v2.7": (
            LockedImage(family="lumi-pytorch", versions={**PLUGIN, "rocm": "7.0.2"}, libfabric=OWN),
            (None, "AWS Libfabric"),
        ),
        "lumi-pytorch-rocm-x-pytorch-v2.7": (LockedImage(family="lumi-pytorch", versions={"rocm": "6.1.3"}), ("PHB", None)),
        "mine": (LockedImage(family="cotainr", versions=PLUGIN), ("PHB", None)),
        "stranger": (LockedImage(family="laif-multitorch", versions=PLUGIN), (None, None)),
    }  # fmt: skip
    make_old(*(tmp_path / f"{name}.sif" for name in images))
    wrapper = with_lock(tmp_path, shell, {name: image for name, (image, _) in images.items()})
    for name, (_, expected) in images.items():
        assert given(wrapper, f"{tmp_path}/{name}.sif") == expected, name
    alias = tmp_path / "alias.sif"
    alias.symlink_to("mine.sif")
    assert given(wrapper, str(alias)) == ("PHB", None)
    make_old(tmp_path / "mine.sif", seconds=1000)
    assert given(wrapper, str(alias)) == (None, None), "written anew since the release"


#: A setting for releases from 7.0 on, and one for those before.
BY_RELEASE = """
settings:
  - {name: SINCE_7, value: 'yes', when: {stacks: {rocm: '>=7.0'}}, why: test, source: UG}
  - {name: BEFORE_7, value: 'yes', when: {stacks: {rocm: '<7.0'}}, why: test, source: UG}
"""


def test_conditions_about_the_release_hold_where_it_was_read(shell: str, tmp_path: Path) -> None:
    read = {"ten": "10.0.0", "seven": "7.14.0", "six": "6.4.4"}
    images = {name: LockedImage(versions={"rocm": release}) for name, release in read.items()}
    wrapper = with_lock(tmp_path, shell, images, ("\nsettings:\n", BY_RELEASE))
    for name, expected in (
        ("ten", ("yes", None)),
        ("seven", ("yes", None)),
        ("six", (None, "yes")),
        ("lumi-multitorch-full-u24r72f23", (None, None)),
    ):
        environment = wrapper.call("exec", f"{tmp_path}/{name}.sif", "x").environment
        assert (environment.get("SINCE_7"), environment.get("BEFORE_7")) == expected, name
    assert ", ROCm 10.0\n" in said(wrapper, f"{tmp_path}/ten.sif")


def test_an_image_whose_libfabric_is_gone_or_too_old_is_named_once_on_a_node(shell: str, tmp_path: Path) -> None:
    """The platform of the description has another libfabric; the node itself has the last word."""
    folder = f"{tmp_path}/opt/cray/libfabric/9.9/lib64"
    gone, fine, old = (f"{tmp_path}/{name}.sif" for name in ("gone", "fine", "old"))
    too_old = {"needs": "FABRIC_1.7", "has": "FABRIC_1.6"}
    wrapper = with_lock(
        tmp_path,
        shell,
        {
            "gone": LockedImage(versions=PLUGIN, libfabric_folders=("/opt/x", folder)),
            "fine": LockedImage(versions=PLUGIN, libfabric=OWN),
            "old": LockedImage(versions=PLUGIN, libfabric=OWN, libfabric_versions=too_old),
        },
    )

    def warned(image: str = gone, **changes: str | None) -> str:
        return wrapper.call("exec", image, "x", **{"SLURM_LOCALID": "0", "SLURMD_NODENAME": "n7", **changes}).stderr

    assert given(wrapper, gone, SLURM_LOCALID="1") == (None, None)
    without = "starts without the fast network: its plugin"
    assert warned() == f"lumisite: {gone} {without} looks for {folder}/libfabric.so.1, which is not on n7\n"
    reason = f"needs FABRIC_1.7 of libfabric, and {OWN} has up to FABRIC_1.6"
    assert warned(old) == f"lumisite: {old} {without} {reason}\n"
    silent = [warned(fine), warned(SLURM_LOCALID="3"), warned("/x/other.sif"), warned(LUMISITE_DONE=None)]
    for nodes, gpus in (("one", "gpu"), ("several", "cpu")):
        silent.append(warned(LUMISITE_STEP=f"25.03-rocm6.2/{nodes}/{gpus}/p/lumi-g"))
    Path(folder).mkdir(parents=True)
    Path(folder, "libfabric.so.1").touch()
    assert {*silent, warned()} == {""}


def test_what_an_image_sets_itself_is_left_to_it(shell: str, tmp_path: Path) -> None:
    names = ("NCCL_CROSS_NIC", MONITOR, LEVEL)
    images = {
        "own": LockedImage(versions={"rocm": "6.1.3"}, sets={"NCCL_CROSS_NIC": "0", LEVEL: "LOC"}),
        "new": LockedImage(versions={**PLUGIN, "libfabric": "2.10.0"}, libfabric="/usr/lib64/libfabric.so.1"),
        "last": LockedImage(versions={**PLUGIN, "libfabric": "2.4.9"}, libfabric="/usr/lib64/libfabric.so.1"),
        "moved": LockedImage(versions={"rocm": "6.1.3"}, sets={"NCCL_CROSS_NIC": "0"}),
    }
    wrapper = with_lock(tmp_path, shell, images)
    ours = {"NCCL_CROSS_NIC": "1", MONITOR: "userfaultfd"}
    exports = {**ours, "LUMISITE_EXPORTS": f";NCCL_CROSS_NIC=1;{MONITOR}=userfaultfd;"}

    def values(name: str, **changes: str) -> list[str | None]:
        found = wrapper.call("exec", f"{tmp_path}/{name}.sif", "x", **{**exports, **changes}).environment
        return [found.get(variable) for variable in names]

    assert values("own") == [None, "userfaultfd", None]
    assert values("new") == ["1", None, None], "no monitor is named for a libfabric of 2.5 or newer"
    assert values("last") == ["1", "userfaultfd", None]
    assert values("own", NCCL_CROSS_NIC="2", NCCL_NET_GDR_LEVEL="SYS") == ["2", "userfaultfd", "SYS"], "the user's"
    make_old(tmp_path / "moved.sif", seconds=1000)
    assert values("moved")[0] == "1", "written anew since it was read"


# ---- render takes the lock


def test_render_takes_the_lock_of_the_site(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    image = "/x/lumi-pytorch-rocm-a-pytorch-v2.7.sif"
    bare, opener = (LockedImage(versions={"rocm": "6.1.3", **more}) for more in ({}, {"rccl": "2.18.6"}))
    images = {
        "/x/alias.sif": LockedImage(image, family="lumi-pytorch", versions=PLUGIN, libfabric=OWN),
        "/x/bare.sif": bare,
        "/x/opener.sif": opener,
    }
    Path("images.lock").write_text(format_lock(Lock("lumi", (), images)))
    site = load_site("lumi").data.decode()
    Path("lumi.yaml").write_text(site.replace("\nimages:\n", "\nimages:\n  lock: images.lock\n"))
    assert main(["render", "--site", "./lumi.yaml", "--out", "out"]) == 0
    script = Path("out/spank/bin/singularity").read_text()
    assert f"{image}) ls_family=lumi-pytorch ls_version=6001003 ls_plugin=yes ;;" in script
    # That there is no plugin is said only where something would open one.
    assert "/x/bare.sif) ls_version=6001003 ;;" in script
    assert "/x/opener.sif) ls_version=6001003 ls_plugin=no ;;" in script
    assert "images.lock" in json.loads(Path("out/MANIFEST.json").read_text())["inputs"]
    for text, code, message in (
        (format_lock(Lock("twin", (), {})), 2, "is of site twin, expected lumi"),
        (None, 3, "images.lock: no such file (`lumisite images --lock images.lock` writes it)"),
    ):
        Path("images.lock").write_text(text) if text else Path("images.lock").unlink()
        assert main(["render", "--site", "./lumi.yaml", "--out", "no"]) == code
        assert message in capsys.readouterr().err
        assert not Path("no").exists()
