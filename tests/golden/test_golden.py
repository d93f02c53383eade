"""Rendered trees, kept as files: a change of a template or a site shows here, and its diff is read like code.

A folder has what differs from the tree that it is `like`, and the names of all files. For what stands in `spank_helpers/` as it
is rendered, it has the scripts' names. `pytest tests/golden --update-golden` writes them anew.
"""

from __future__ import annotations

import json
import re
import shutil
import stat
from pathlib import Path

import pytest

from lumisite.cli import main
from lumisite.render.manifest import MANIFEST
from lumisite.render.render import PROLOG_SCRIPTS, WRAPPER_SCRIPTS
from tests.support.sites import site_text

HERE = Path(__file__).parent
SCRIPTS = HERE.parents[1] / "spank_helpers"
NAMES = "FILES"
FUNCTION = re.compile(r"^(\w+)\(\) \{", re.MULTILINE)
#: By folder: the arguments of `render`, and the tree that it is compared with.
TREES: dict[str, tuple[list[str], str | None]] = {
    "lumi/2026-01": (["--rocm", "6.2", "--rocm", "7.0"], None),
    "lumi/2026-01-leftover": (["--platform", "2026-01", "--rocm", "6.2", "--cpe", "24.03"], "lumi/2026-01"),
    "lumi/2024-08": (["--platform", "2024-08", "--rocm", "all", "--cpe", "23.09"], "lumi/2026-01"),
    "twin/2026-01": (["--site", "twin", "--rocm", "6.2"], None),
    "twin/2026-01-plan": (
        ["--site", "planned.yaml", "--rocm", "6.2"],
        "twin/2026-01",
    ),
    "twin/2024-08": (["--site", "twin", "--platform", "2024-08", "--rocm", "6.0"], "twin/2026-01"),
    "firth": (["--site", str(HERE / "sites/firth.yaml")], None),
}


def rendered(name: str, out: Path) -> dict[str, str]:
    """Render a tree: path to text, with the release id blanked, which follows from everything else.

    The manifest's hashes of inputs change with every input, so not it; nor the description, which is an input itself.
    """
    text = site_text(("\nmodules:\n", "\nplans: [small.yaml]\nmodules:\n"))
    Path("planned.yaml").write_text(text)
    Path("small.yaml").write_bytes((HERE / "plans/small.yaml").read_bytes())
    assert main(["render", *TREES[name][0], "--out", str(out)]) == 0
    release = json.loads((out / MANIFEST).read_text())["release"]
    paths = [path for path in sorted(out.rglob("*")) if path.is_file() and path.name != MANIFEST]
    links = {str(path.relative_to(out)): str(path.readlink()) for path in paths if path.is_symlink()}
    paths = [path for path in paths if not path.is_symlink()]
    found = {str(path.relative_to(out)): path.read_text().replace(release, "RELEASE") for path in paths}
    found = {path: without_script(text) for path, text in found.items()}
    executable = {str(path.relative_to(out)) for path in paths if path.stat().st_mode & stat.S_IXUSR}
    names = "".join(f"{path}{'*' if path in executable else ''}\n" for path in found)
    names += "".join(f"{path} -> {target}\n" for path, target in links.items())
    return {**{path: text for path, text in found.items() if not path.startswith("site/")}, NAMES: names}


def without_script(text: str) -> str:
    """Blank what a rendered script has of `spank_helpers`, which is all of its functions."""
    body, mark, data = text.partition("---- the site's data, from ")
    for names in (PROLOG_SCRIPTS, WRAPPER_SCRIPTS, ("cli_filter.lua",)):
        if mark and (SCRIPTS / names[0]).read_text().splitlines()[1] in body:
            for name in names:
                assert set(FUNCTION.findall((SCRIPTS / name).read_text())) <= set(FUNCTION.findall(body))
            return f"... {' '.join(names)}\n{mark}{data}"
    return text


def stored(name: str, top: Path) -> dict[str, str]:
    """Give what the folder of a tree has: of files that differ by numbers and the runtime's name alone, the first."""
    files = rendered(name, top / "out")
    like = TREES[name][1]
    base = rendered(like, top / "like") if like else {}
    seen: set[str] = set()
    kept: dict[str, str] = {}
    for path, text in files.items():
        if path == NAMES or (base.get(path) != text and alike(text) not in seen):
            kept[path] = text
        seen.add(alike(text))
    return kept


def alike(text: str) -> str:
    return re.sub(r"[0-9][0-9.]*|singularity|apptainer", "#", text, flags=re.IGNORECASE)


@pytest.mark.parametrize("name", TREES)
def test_the_rendered_tree_is_the_golden_one(name: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    found = stored(name, tmp_path)
    golden = HERE / name
    if request.config.getoption("--update-golden"):
        shutil.rmtree(golden, ignore_errors=True)
        for relative, text in found.items():
            path = golden / relative
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
    assert found == {
        str(path.relative_to(golden)): path.read_text() for path in sorted(golden.rglob("*")) if path.is_file()
    }


def test_every_platform_of_a_site_that_was_tried_has_a_golden_tree() -> None:
    from lumisite.site.load import embedded_sites, load_site

    tried = [site for site in map(load_site, embedded_sites()) if site.site.tried != "no"]
    wanted = {f"{one.site.name}/{platform}" for one in tried for platform in one.site.platforms}
    assert wanted <= set(TREES)
