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
from lumisite.site.load import load_site, parse_plan
from lumisite.site.plans import LoadedPlan
from lumisite.site.selection import resolve_selection
from tests.support.prologs import ROOT, SHELLS, lay_out, lumi_like, shell_command, write_script
from tests.support.wrappers import RUNTIME, Wrapper, make

#: Names of images, and what of the two settings that can hang or abort a wrong one each gets on several nodes.
LEVEL, NET = "NCCL_NET_GDR_LEVEL", "NCCL_NET"
SIF = "/appl/local/containers/sif-images"
OLD = f"{SIF}/lumi-pytorch-rocm-6.1.3-python-3.12-pytorch-v2.6.1.sif"
R70 = f"{SIF}/lumi-multitorch-full-u24r70f21m50t210-20260807_115122.sif"

R72 = f"{SIF}/lumi-multitorch-full-u24r72f21m50t211-20260929_104918.sif"


@pytest.fixture(params=SHELLS)
def wrapper(request: pytest.FixtureRequest, tmp_path: Path) -> Wrapper:
    return make(tmp_path, request.param)


def given(wrapper: Wrapper, image: str, **changes: str | None) -> tuple[str | None, str | None]:
    environment = wrapper.call("exec", image, "x", **changes).environment
    return environment.get(LEVEL), environment.get(NET)


@pytest.mark.parametrize(
    "image",
    [OLD, R70, f"{SIF}/lumi-multitorch-rocm-u24r70f21m50t210.sif", "/x/env/container.sif", "docker://a",
     "/x/a b\n$(reboot)-rocm-6.1.3.sif"],
)  # fmt: skip
def test_a_name_tells_nothing_of_what_could_hang_a_wrong_image(wrapper: Wrapper, image: str) -> None:
    assert given(wrapper, image) == (None, None)


def test_an_exception_holds_only_for_images_that_are_known_to_be_one(wrapper: Wrapper) -> None:
    """The prolog sets the monitor for all images; the wrapper takes it back for those that choose one by themselves."""
    set_before = {"FI_MR_CACHE_MONITOR": "userfaultfd", "LUMISITE_EXPORTS": ";FI_MR_CACHE_MONITOR=userfaultfd;"}

    def monitor(image: str, **changes: str) -> str | None:
        return wrapper.call("exec", image, "x", **{**set_before, **changes}).environment.get("FI_MR_CACHE_MONITOR")

    assert monitor(R72) is None
    assert monitor(f"/x/{Path(R72).name}") is None, "a guess may take away"
    assert [monitor(image) for image in (R70, OLD, "/x/mine.sif", "docker://a")] == ["userfaultfd"] * 4
    assert monitor(R72, FI_MR_CACHE_MONITOR="memhooks") == "memhooks", "the user's own value stays"


def test_what_the_image_is_taken_for_is_said(wrapper: Wrapper) -> None:
    known = wrapper.call("exec", R70, "x", LUMISITE_VERBOSE="all").stderr
    assert f"{R70}: family laif-rocm70\n" in known


def test_a_value_of_the_users_stays_and_is_named(wrapper: Wrapper) -> None:
    assert given(wrapper, R70, NCCL_NET_GDR_LEVEL="SYS", NCCL_NET="Socket") == ("SYS", "Socket")
    for value, quoted in (("memhooks", "=memhooks"), ("x\x1b[2J", ""), ("", "="), ("x" * 300, "")):
        said = wrapper.call("exec", R70, "x", LUMISITE_VERBOSE="all", FI_MR_CACHE_MONITOR=value).stderr
        assert f": FI_MR_CACHE_MONITOR{quoted} not changed: it was set before lumisite ran\n" in said
    said = wrapper.call("exec", R70, "x", LUMISITE_VERBOSE="all", NCCL_NET="My Net").stderr
    assert ": NCCL_NET=My Net not changed: it was set before lumisite ran\n" in said, (
        "whatever the image turns out to be"
    )


# ---- links


def link(wrapper: Wrapper, name: str, target: str) -> str:
    """Make a link to a file of some name, which stands there."""
    file = wrapper.folder / "images" / Path(target).name
    file.parent.mkdir(exist_ok=True)
    file.touch()
    os.utime(file, (time.time() - 1000,) * 2)
    (wrapper.folder / name).symlink_to(os.path.relpath(file, wrapper.folder))
    return str(wrapper.folder / name)


def test_a_link_is_what_it_leads_to(wrapper: Wrapper) -> None:
    for name, target, family in (
        ("lumi-rocm-rocm-6.1.3.sif", R70, "laif-rocm70"),
        ("mine.sif", OLD, "lumi-pytorch"),
        ("lumi-pytorch-rocm-6.1.3-pytorch-v2.9.sif", "/x/mine.sif", "lumi-pytorch"),
    ):
        said = wrapper.call("exec", link(wrapper, name, target), "x", LUMISITE_VERBOSE="all").stderr
        assert f"{name}: family {family}\n" in said


def test_a_link_that_leads_nowhere_or_round_stops_nothing(wrapper: Wrapper) -> None:
    (wrapper.folder / "lumi-rocm-rocm-6.1.3.sif").symlink_to("nowhere/at/all")
    (wrapper.folder / "lumi-rocm-rocm-6.0.3.sif").symlink_to("lumi-rocm-rocm-6.0.3.sif")
    for name in ("lumi-rocm-rocm-6.1.3.sif", "lumi-rocm-rocm-6.0.3.sif"):
        call = wrapper.call("exec", str(wrapper.folder / name), "x")
        assert call.arguments[0] == "exec"
        assert call.stderr == ""


def test_a_link_among_the_folders_is_followed(wrapper: Wrapper) -> None:
    """A family whose pattern names a folder; the name that is typed leads there through a link, or by a detour."""
    folder = wrapper.folder / "lumi-multitorch-images"
    folder.mkdir()
    (folder / "it's $(reboot) a.sif").touch()
    (wrapper.folder / "latest").symlink_to(folder.name)
    (wrapper.folder / "again").symlink_to("latest")
    for typed in (
        "latest/it's $(reboot) a.sif",
        "again/./it's $(reboot) a.sif",
        "latest/../latest/it's $(reboot) a.sif",
    ):
        said = wrapper.call("exec", f"{wrapper.folder}/{typed}", "x", LUMISITE_VERBOSE="all").stderr
        assert ": family laif-multitorch" in said, typed
    said = wrapper.call("exec", f"{folder}/../a.sif", "x", LUMISITE_VERBOSE="all").stderr
    assert f"{wrapper.folder}/a.sif: family unknown" in said, "a folder that it only passes by"
    for typed in ("nowhere/../a.sif", "latest/gone/a.sif", "docker://latest/a.sif", "latest//a.sif", "//", "..", "."):
        assert wrapper.call("exec", typed, "x").arguments[1] == typed


# ---- what somebody has read in the image


def with_lock(folder: Path, shell: str, images: dict[str, LockedImage]) -> Wrapper:
    loaded = lumi_like(("executable: /usr/bin/singularity", f"executable: {ROOT}/runtime/singularity"))
    lock = Lock("lumi", (), {path.replace(str(folder), ROOT): one for path, one in images.items()})
    known = LoadedLock(lock, "images.lock.json", json.dumps(sorted(images)).encode())
    files = render_tree(loaded, resolve_selection(loaded.site, rocm=["6.2"]), load_templates(), lock=known)
    lay_out(folder, {path: file.text for path, file in files.items()})
    write_script(folder / "runtime/singularity", RUNTIME)
    return Wrapper(tuple(shell_command(shell, folder)), folder)


@pytest.mark.parametrize("shell", SHELLS)
def test_what_the_lock_knows_counts_more_than_the_name(shell: str, tmp_path: Path) -> None:
    old, new, bare, cotainr, stranger = (
        str(tmp_path / f"{name}.sif")
        for name in (
            "lumi-rocm-rocm-7.0.2",
            "lumi-pytorch-rocm-a[1] b-pytorch-v2.7",
            "lumi-pytorch-rocm-x-pytorch-v2.7",
            "mine",
            "stranger",
        )
    )
    for path in (old, new, bare, cotainr, stranger):
        Path(path).touch()
        os.utime(path, (time.time() - 1000,) * 2)
    versions = {"rocm": "6.1.3", "ofi_plugin": "1.4.0"}
    wrapper = with_lock(
        tmp_path,
        shell,
        {
            old: LockedImage(old.replace(str(tmp_path), ROOT), family="lumi-rocm", versions=versions),
            new: LockedImage(
                family="lumi-pytorch",
                versions={"rocm": "7.0.2", "ofi_plugin": "1.4.0"},
                libfabric="/opt/libfabric/lib/libfabric.so.1",
            ),
            bare: LockedImage(family="lumi-pytorch", versions={"rocm": "6.1.3"}),
            stranger: LockedImage(family="laif-multitorch", versions=versions),
            cotainr: LockedImage(family="cotainr", versions=versions),
        },
    )
    assert given(wrapper, old) == ("PHB", None)  # a lock of an earlier lumisite, without where its libfabric is
    assert given(wrapper, new) == (None, "AWS Libfabric")
    assert given(wrapper, bare) == ("PHB", None)  # it was read, and has no plugin
    assert given(wrapper, cotainr) == ("PHB", None)
    assert given(wrapper, stranger) == (None, None)
    assert f"{tmp_path}/opt/cray" in wrapper.call("exec", stranger, "x").binds
    alias = tmp_path / "alias.sif"
    alias.symlink_to(bare)
    assert given(wrapper, str(alias)) == ("PHB", None)
    os.utime(old, (time.time() + 1000,) * 2)  # written anew since the release
    assert given(wrapper, old) == (None, None)


PLUGIN = {"rocm": "6.1.3", "ofi_plugin": "1.4.0"}


@pytest.mark.parametrize("shell", SHELLS)
def test_an_image_whose_libfabric_is_gone_or_too_old_is_named_once_on_a_node(shell: str, tmp_path: Path) -> None:
    """The platform of the description has another libfabric; the node itself has the last word."""
    folder = f"{tmp_path}/opt/cray/libfabric/9.9/lib64"
    gone, fine, old = (f"{tmp_path}/{name}.sif" for name in ("gone", "fine", "old"))
    own = "/opt/libfabric/lib/libfabric.so.1"
    wrapper = with_lock(
        tmp_path,
        shell,
        {
            gone: LockedImage(versions=PLUGIN, libfabric_folders=("/opt/x", folder)),
            fine: LockedImage(versions=PLUGIN, libfabric=own),
            old: LockedImage(
                versions=PLUGIN, libfabric=own, libfabric_versions={"needs": "FABRIC_1.7", "has": "FABRIC_1.6"}
            ),
        },
    )

    def said(image: str = gone, **changes: str) -> str:
        return wrapper.call("exec", image, "x", **{"SLURM_LOCALID": "0", "SLURMD_NODENAME": "n7", **changes}).stderr

    assert given(wrapper, gone, SLURM_LOCALID="1") == (None, None)
    assert said() == (
        f"lumisite: {gone} starts without the fast network: its plugin looks for {folder}/libfabric.so.1, "
        "which is not on n7\n"
    )
    assert said(old) == (
        f"lumisite: {old} starts without the fast network: its plugin needs FABRIC_1.7 of libfabric, "
        f"and {own} has up to FABRIC_1.6\n"
    )
    step = "25.03-rocm6.2/{}/{}/p/lumi-g"
    silent = [said(fine), said(SLURM_LOCALID="3"), said("/x/other.sif")]
    silent += [said(LUMISITE_STEP=step.format(*one)) for one in (("one", "gpu"), ("several", "cpu"))]
    silent += [wrapper.call("exec", gone, "x", SLURM_LOCALID="0", LUMISITE_DONE=None).stderr]
    Path(folder).mkdir(parents=True)
    Path(folder, "libfabric.so.1").touch()
    assert [*silent, said()] == [""] * 7


@pytest.mark.parametrize("shell", SHELLS)
def test_what_an_image_sets_itself_is_left_to_it(shell: str, tmp_path: Path) -> None:
    names = ("NCCL_CROSS_NIC", "FI_MR_CACHE_MONITOR", "NCCL_NET_GDR_LEVEL")
    images = {
        "own": LockedImage(versions={"rocm": "6.1.3"}, sets={"NCCL_CROSS_NIC": "0", "NCCL_NET_GDR_LEVEL": "LOC"}),
        "new": LockedImage(versions={**PLUGIN, "libfabric": "2.10.0"}, libfabric="/usr/lib64/libfabric.so.1"),
        "last": LockedImage(versions={**PLUGIN, "libfabric": "2.4.9"}, libfabric="/usr/lib64/libfabric.so.1"),
        "moved": LockedImage(versions={"rocm": "6.1.3"}, sets={"NCCL_CROSS_NIC": "0"}),
    }
    wrapper = with_lock(tmp_path, shell, {f"{tmp_path}/{name}.sif": image for name, image in images.items()})
    ours = {"NCCL_CROSS_NIC": "1", "FI_MR_CACHE_MONITOR": "userfaultfd"}
    exports = {**ours, "LUMISITE_EXPORTS": ";NCCL_CROSS_NIC=1;FI_MR_CACHE_MONITOR=userfaultfd;"}

    def values(name: str, **changes: str) -> list[str | None]:
        found = wrapper.call("exec", f"{tmp_path}/{name}.sif", "x", **{**exports, **changes}).environment
        return [found.get(variable) for variable in names]

    assert values("own") == [None, "userfaultfd", None]
    assert values("new") == ["1", None, None], "no monitor is named for a libfabric of 2.5 or newer"
    assert values("last") == ["1", "userfaultfd", None]
    assert values("own", NCCL_CROSS_NIC="2", NCCL_NET_GDR_LEVEL="SYS") == ["2", "userfaultfd", "SYS"], "the user's"
    (tmp_path / "moved.sif").touch()
    os.utime(tmp_path / "moved.sif", (time.time() + 1000,) * 2)
    assert values("moved")[0] == "1", "written anew since it was read"


def test_a_lock_says_that_there_is_no_plugin_only_where_something_would_open_one(tmp_path: Path) -> None:
    bare, opener = (LockedImage(versions={"rocm": "6.1.3", **more}) for more in ({}, {"rccl": "2.18.6"}))
    wrapper = with_lock(tmp_path, "sh", {f"{tmp_path}/bare.sif": bare, f"{tmp_path}/opener.sif": opener})
    lines = (wrapper.folder / "spank/bin/singularity").read_text().splitlines()
    words = {name: line for name in ("bare", "opener") for line in lines if f"/{name}.sif" in line}
    assert "ls_plugin=no" in words["opener"]
    assert "ls_plugin" not in words["bare"]


def with_plan(folder: Path, shell: str, paths: list[str], more: str = "") -> Wrapper:
    plan = folder / "plan.yaml"
    plan.write_text(
        f"plan: '2'\nsite: lumi\nplatform: 2026-01\nstacks: {{cpe: 25.03, rocm: 6.2.4}}\nfamily: lumi-rocm\npaths: {paths}\n"
        f"holds: {{stacks: {{rocm: 6.1.3}}, plugin: no}}\n{more}"
    )
    loaded = lumi_like(("executable: /usr/bin/singularity", f"executable: {ROOT}/runtime/singularity"))
    selection = resolve_selection(loaded.site, rocm=["6.2"])
    files = render_tree(
        loaded,
        selection,
        load_templates(),
        plans=[LoadedPlan(parse_plan(plan.read_bytes(), plan, loaded.site), plan.name, plan.read_bytes())],
    )
    lay_out(folder, {path: file.text for path, file in files.items()})
    write_script(folder / "runtime/singularity", RUNTIME)
    return Wrapper(tuple(shell_command(shell, folder)), folder)


@pytest.mark.parametrize("shell", SHELLS)
def test_what_a_plan_knows_counts_more_than_the_name(shell: str, tmp_path: Path) -> None:
    image = tmp_path / "lumi-rocm-rocm-7.0.2.sif"
    wrapper = with_plan(tmp_path, shell, [str(image)])
    assert given(wrapper, str(image)) == ("PHB", None)
    image.touch()
    os.utime(image, (time.time() + 1000,) * 2)  # written anew since the release
    assert given(wrapper, str(image)) == (None, None)


@pytest.mark.parametrize("shell", SHELLS)
def test_a_plan_whose_pattern_only_fits_the_name_is_a_guess(shell: str, tmp_path: Path) -> None:
    image = tmp_path / "lumi-rocm-rocm-6.1.3.sif"
    wrapper = with_plan(tmp_path, shell, [str(image), "*/images/lumi-*"])
    assert given(wrapper, str(image)) == ("PHB", None)
    assert given(wrapper, f"/x/images/{image.name}") == (None, None)


@pytest.mark.parametrize("shell", SHELLS)
def test_a_plan_of_a_link_says_nothing_once_the_link_leads_elsewhere(shell: str, tmp_path: Path) -> None:
    planned, other = tmp_path / "planned.sif", tmp_path / Path(R70).name
    alias = tmp_path / "latest.sif"
    for path in (planned, other):
        path.touch()
        os.utime(path, (time.time() - 1000,) * 2)
    digest = "0" * 64
    more = f"image: {{bytes: 1, digest: 'header:{digest}', file: {planned}, names: [{alias}]}}\n"
    wrapper = with_plan(tmp_path, shell, [str(alias)], more)
    alias.symlink_to(planned)
    assert given(wrapper, str(alias)) == ("PHB", None)
    alias.unlink()
    alias.symlink_to(other)
    assert given(wrapper, str(alias))[0] is None


@pytest.mark.parametrize("shell", SHELLS)
def test_a_plan_holds_for_its_file_by_whatever_name(shell: str, tmp_path: Path) -> None:
    """It was written for one link; another link to the file, a folder that leads there, and the file itself have it."""
    folder, alias = tmp_path / "files", tmp_path / "latest.sif"
    folder.mkdir()
    planned = folder / "an odd [name].sif"
    for path in (planned, folder / "other.sif"):
        path.touch()
        os.utime(path, (time.time() - 1000,) * 2)
    more = f"image: {{bytes: 1, digest: 'header:{'0' * 64}', file: '{planned}', names: ['{alias}']}}\n"
    wrapper = with_plan(tmp_path, shell, [str(alias)], more)
    alias.symlink_to(planned)
    (tmp_path / "second.sif").symlink_to(alias)
    (tmp_path / "images").symlink_to("files")
    for name in (planned, alias, tmp_path / "second.sif", tmp_path / "images" / planned.name):
        assert given(wrapper, str(name)) == ("PHB", None), name
    assert given(wrapper, str(folder / "other.sif")) == (None, None)


# ---- render takes a lock


def test_render_takes_the_lock_of_the_site(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    locked = LockedImage(
        "/x/lumi-pytorch-rocm-a-pytorch-v2.7.sif",
        family="lumi-pytorch",
        versions={"rocm": "6.1.3", "ofi_plugin": "1.4.0"},
        libfabric="/opt/libfabric/lib/libfabric.so.1",
    )
    Path("images.lock").write_text(format_lock(Lock("lumi", (), {"/x/alias.sif": locked})))
    site = load_site("lumi").data.decode()
    Path("lumi.yaml").write_text(site.replace("\nimages:\n", "\nimages:\n  lock: images.lock\n"))
    case = "/x/lumi-pytorch-rocm-a-pytorch-v2.7.sif) ls_family=lumi-pytorch ls_version=6001003 ls_plugin=yes ;;"
    assert main(["render", "--site", "./lumi.yaml", "--out", "out"]) == 0
    assert case in Path("out/spank/bin/singularity").read_text()
    assert "images.lock" in json.loads(Path("out/MANIFEST.json").read_text())["inputs"]
    Path("images.lock").write_text(format_lock(Lock("twin", (), {})))
    assert main(["render", "--site", "./lumi.yaml", "--out", "no"]) == 2
    assert "is of site twin, expected lumi" in capsys.readouterr().err
    Path("images.lock").unlink()
    assert main(["render", "--site", "./lumi.yaml", "--out", "no"]) == 3
    assert "images.lock: no such file (`lumisite images --lock images.lock` writes it)" in capsys.readouterr().err
    assert not Path("no").exists()
