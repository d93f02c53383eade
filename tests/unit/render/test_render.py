"""The rendered tree: determinism, the manifest, the release id; paths and texts are `tests/golden`'s."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from lumisite.render.manifest import MANIFEST, RenderedFile, parse_manifest, sha256_of
from lumisite.render.render import render_tree
from lumisite.render.templates import load_templates
from lumisite.site.load import LoadedSite, load_site
from lumisite.site.selection import resolve_selection
from tests.support.sites import load_text, site_text

TEMPLATES = load_templates()


def render(loaded: LoadedSite, **options: object) -> dict[str, RenderedFile]:
    return render_tree(loaded, resolve_selection(loaded.site, **options), TEMPLATES)  # type: ignore[arg-type]


def lumi(**options: object) -> dict[str, RenderedFile]:
    return render(load_site("lumi"), **options)


def test_the_same_input_gives_the_same_bytes() -> None:
    assert lumi(rocm=["all"], cpe=["all"]) == lumi(rocm=["all"], cpe=["all"])


def test_the_manifest_lists_every_file_with_its_hash() -> None:
    files = lumi(rocm=["6.2"])
    manifest = parse_manifest(files[MANIFEST].text.encode(), MANIFEST)
    assert set(manifest.files) == set(files) - {MANIFEST}
    for path, entry in manifest.files.items():
        assert entry.sha256 == sha256_of(files[path].text.encode())
        assert (entry.mode == "0755") == files[path].executable
    assert (manifest.site, manifest.platform, *manifest.stacks.values()) == (
        "lumi",
        "2026-01",
        ("25.03",),
        ("6.2.4",),
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


def test_each_file_names_the_site_file_in_its_first_line_or_above_its_data() -> None:
    for path, file in lumi(rocm=["6.2"]).items():
        if path.startswith("spank/") and not file.is_link:
            assert file.text.count("---- the site's data, from lumi.yaml: ") == 1, path
        elif path.startswith("modules/"):
            assert "_src/" in file.text.splitlines()[0], path
            assert "lumi.yaml" in file.text.splitlines()[0], path


def test_nothing_in_a_module_probes_the_host() -> None:
    for path, file in lumi(rocm=["all"]).items():
        if path.startswith("modules/"):
            for call in (
                "isFile",
                "isDir",
                "io.open",
                "capture",
                "lfs",
                "execute",
                "subprocess",
                "posix",
                "os.execute",
            ):
                assert call not in file.text, f"{path} calls {call}"


def test_no_module_binds_what_exists_only_inside_jobs() -> None:
    manifest = parse_manifest(lumi(rocm=["all"], cpe=["all"])[MANIFEST].text.encode(), MANIFEST)
    for module in manifest.modules.values():
        assert "/var/spool/slurmd" not in module.binds


def test_a_deprecated_module_says_so_and_names_its_successor() -> None:
    loaded = load_text(
        site_text(
            ("    version: [cpe]\n", "    version: [cpe]\n    deprecated: {successor: other/1, reason: It is old.}\n")
        )
    )
    text = render(loaded, rocm=["6.2"])["modules/singularity-CPEbits/25.03.lua"].text
    assert "singularity-CPEbits is deprecated: It is old. Use other/1 instead." in text


@pytest.mark.parametrize("site", ["lumi", "twin"])
def test_nothing_outside_the_site_description_knows_lumi(site: str) -> None:
    import lumisite

    if site == "twin":
        for path, file in render(load_site("twin"), rocm=["6.2"]).items():
            assert "lumi-supercomputer" not in file.text, path
            assert "/pfs" not in file.text, path
    package = Path(lumisite.__file__).parent
    for module in package.rglob("*.py"):
        text = module.read_text()
        for word in ("/pfs", "lumi-g", "standard-g", "25.09", "multitorch", "/appl/", "hsn0,"):
            assert word not in text or module.name == "model.py", f"{module.name} knows {word}"
