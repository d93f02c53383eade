"""The rendered tree: determinism, the manifest, the release id, `module help`; paths and texts are `tests/golden`'s."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import lumisite
from lumisite.cli import main
from lumisite.images.lock import Lock, LockedImage, format_lock
from lumisite.render.manifest import MANIFEST, RenderedFile, parse_manifest, sha256_of
from lumisite.render.modules import Rendering, plan_modules
from lumisite.render.render import render_tree
from lumisite.render.templates import load_templates
from lumisite.site.load import LoadedSite, embedded_sites, load_site
from lumisite.site.selection import resolve_selection
from tests.support.sites import load_text, lumi_with_lock, site_text


def render(loaded: LoadedSite, **options: object) -> dict[str, RenderedFile]:
    return render_tree(loaded, resolve_selection(loaded.site, **options), load_templates())  # type: ignore[arg-type]


def lumi(**options: object) -> dict[str, RenderedFile]:
    return render(load_site("lumi"), **options)


def test_the_same_input_gives_the_same_bytes_and_the_manifest_lists_every_file_with_its_hash() -> None:
    files = lumi(rocm=["6.2"])
    assert files == lumi(rocm=["6.2"])
    manifest = parse_manifest(files[MANIFEST].text.encode(), MANIFEST)
    assert set(manifest.files) == set(files) - {MANIFEST}
    for path, entry in manifest.files.items():
        assert entry.sha256 == sha256_of(files[path].text.encode())
        assert (entry.mode == "0755") == files[path].executable
    assert (manifest.site, manifest.platform, dict(manifest.stacks)) == (
        "lumi",
        "2026-01",
        {"cpe": ("25.03",), "rocm": ("6.2.4",)},
    )
    assert manifest.modules["singularity-CPEbits/25.03"].binds == ("/opt/cray", "/usr/lib64/libcxi.so.1")
    assert "/opt/cray/libfabric/1.22.0" in manifest.modules["singularity-CPEbits/25.03"].provides


def test_the_release_id_follows_every_input_and_stands_in_the_files() -> None:
    def release(files: dict[str, RenderedFile]) -> str:
        found = json.loads(files[MANIFEST].text)["release"]
        assert found in files["spank/task_prolog"].text
        return str(found)

    plain = release(lumi(rocm=["6.2"]))
    assert plain.startswith("2026-01-")
    assert len(plain) == len("2026-01-") + 12
    ids = [
        plain,
        release(lumi(rocm=["6.3"])),
        release(lumi(rocm=["6.2"], platform="2024-08")),
        release(render(load_text(site_text()), rocm=["6.2"])),
        release(render(load_text(site_text(("as on LUMI", "as in LUMI"))), rocm=["6.2"])),
    ]
    assert len(set(ids)) == len(ids)


def test_each_file_names_the_description_and_no_module_probes_the_host_or_binds_what_only_jobs_have() -> None:
    files = lumi(rocm=["all"], cpe=["all"])
    probes = ("isFile", "isDir", "io.open", "capture", "lfs", "execute", "subprocess", "posix", "/var/spool/slurmd")
    for path, file in files.items():
        if path.startswith("spank/") and not file.is_link:
            assert file.text.count("---- the site's data, from lumi.yaml: ") == 1, path
        elif path.startswith("modules/"):
            assert "_src/" in file.text.splitlines()[0], path
            assert "lumi.yaml" in file.text.splitlines()[0], path
            assert [call for call in probes if call in file.text] == [], path


def test_a_deprecated_module_says_so_and_names_its_successor() -> None:
    deprecated = "    version: [cpe]\n    deprecated: {successor: other/1, reason: It is old.}\n"
    loaded = load_text(site_text(("    version: [cpe]\n", deprecated)))
    text = render(loaded, rocm=["6.2"])["modules/singularity-CPEbits/25.03.lua"].text
    assert "singularity-CPEbits is deprecated: It is old. Use other/1 instead." in text


def test_nothing_outside_the_site_description_knows_lumi() -> None:
    for path, file in render(load_site("twin"), rocm=["6.2"]).items():
        assert [word for word in ("lumi-supercomputer", "/pfs") if word in file.text] == [], path
    for module in Path(lumisite.__file__).parent.rglob("*.py"):
        text = module.read_text()
        for word in ("/pfs", "lumi-g", "standard-g", "25.09", "multitorch", "/appl/", "hsn0,"):
            assert word not in text or module.name == "model.py", f"{module.name} knows {word}"


def test_render_takes_the_lock_of_the_site(capsys: pytest.CaptureFixture[str]) -> None:
    image = "/x/lumi-pytorch-rocm-a-pytorch-v2.7.sif"
    plugin = {"rocm": "6.1.3", "ofi_plugin": "1.4.0"}
    images = {
        "/x/alias.sif": LockedImage(image, family="lumi-pytorch", versions=plugin, libfabric="/opt/lib/libfabric.so.1"),
        "/x/bare.sif": LockedImage(versions={"rocm": "6.1.3"}),
        "/x/opener.sif": LockedImage(versions={"rocm": "6.1.3", "rccl": "2.18.6"}),
    }
    Path("lock").write_text(format_lock(Lock("lumi", (), images)))
    site = f"./{lumi_with_lock()}"
    assert main(["render", "--site", site, "--out", "out"]) == 0
    script = Path("out/spank/bin/singularity").read_text()
    assert f"{image}) ls_family=lumi-pytorch ls_version=6001003 ls_plugin=yes ;;" in script
    # That there is no plugin is said only where something would open one.
    assert "/x/bare.sif) ls_version=6001003 ;;" in script
    assert "/x/opener.sif) ls_version=6001003 ls_plugin=no ;;" in script
    assert "lock" in json.loads(Path("out/MANIFEST.json").read_text())["inputs"]
    for text, code, message in (
        (format_lock(Lock("twin", (), {})), 2, "is of site twin, expected lumi"),
        (None, 3, "lock: no such file (`lumisite images --lock lock` writes it)"),
    ):
        Path("lock").write_text(text) if text else Path("lock").unlink()
        assert main(["render", "--site", site, "--out", "no"]) == code
        assert message in capsys.readouterr().err
        assert not Path("no").exists()


# ---- module help


@pytest.mark.parametrize("site", sorted(embedded_sites()))
def test_every_help_fits_on_one_screen(site: str) -> None:
    """Lmod prints four lines around a text; what one says is in the golden trees."""
    loaded = load_site(site)
    requests = {str(stack): ["all"] for stack in loaded.site.stacks}
    selection = resolve_selection(loaded.site, platform=None, **requests)
    for plan in plan_modules(Rendering(loaded, selection, "R", load_templates())):
        assert plan.help.count("\n") <= 56, plan.full_name
        assert [line for line in plan.help.splitlines() if len(line) > 80] == [], plan.full_name
        assert ("srun" in plan.help) == plan.helper, "a module without the helper says no word of it"
