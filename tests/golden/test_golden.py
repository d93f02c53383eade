"""Whole rendered trees, kept as files: a change of a template or a site shows here, and its diff is read like code.

`pytest tests/golden --update-golden` writes them anew.
"""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest

from lumisite.cli import main
from lumisite.render.manifest import MANIFEST

HERE = Path(__file__).parent
TREES = {
    "lumi/2026-01": ["--rocm", "all", "--cpe", "all"],
    "lumi/2026-01-leftover": ["--platform", "2026-01", "--rocm", "6.2", "--cpe", "24.03"],
    "lumi/2024-08": ["--platform", "2024-08", "--rocm", "all", "--cpe", "all"],
    "twin/2026-01": ["--site", "twin", "--rocm", "6.2"],
    "twin/2026-01-plan": ["--site", "twin", "--rocm", "6.2", "--plan", str(HERE / "plans/small.yaml")],
    "twin/2024-08": ["--site", "twin", "--platform", "2024-08", "--rocm", "6.0"],
}


def tree(top: Path) -> dict[str, tuple[str, bool]]:
    """Read a tree: path to (text, executable); the manifest's hashes of inputs change with every input, so not it."""
    return {
        str(path.relative_to(top)): (path.read_text(), bool(path.stat().st_mode & stat.S_IXUSR))
        for path in sorted(top.rglob("*"))
        if path.is_file() and path.name != MANIFEST
    }


def without_release(found: dict[str, tuple[str, bool]], top: Path) -> dict[str, tuple[str, bool]]:
    """Blank the release id, which follows from everything else."""
    release = json.loads((top / MANIFEST).read_text())["release"]
    return {path: (text.replace(release, "RELEASE"), executable) for path, (text, executable) in found.items()}


@pytest.mark.parametrize("name", TREES)
def test_the_rendered_tree_is_the_golden_one(name: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    out = tmp_path / "out"
    assert main(["render", *TREES[name], "--out", str(out)]) == 0
    rendered = without_release(tree(out), out)
    golden = HERE / name
    if request.config.getoption("--update-golden"):
        write(golden, rendered)
    assert rendered == tree(golden)


def write(golden: Path, rendered: dict[str, tuple[str, bool]]) -> None:
    for path in sorted(golden.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    for relative, (text, executable) in rendered.items():
        path = golden / relative
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(0o755 if executable else 0o644)


def test_every_platform_of_both_sites_has_a_golden_tree() -> None:
    from lumisite.site.load import embedded_sites, load_site

    wanted = {f"{site}/{platform}" for site in embedded_sites() for platform in load_site(site).site.platforms}
    assert wanted <= set(TREES)
