"""Names that a new release lacks: what `deploy` adds for them, and that it counts as part of the release."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from lumisite.release.tree import load_manifest, load_tree
from lumisite.render.manifest import MANIFEST, ModuleSummary
from tests.support.scene import THIRD, Run, current, deploy
from tests.support.trees import NEW, OLD, manifest, tree, with_manifest, written

CPE = "singularity-CPEbits"
STUB = f"modules/{CPE}/.24.03.lua"


@pytest.fixture(autouse=True)
def early(tmp_path: Path) -> None:
    """A release that has another version than all others."""
    written(tmp_path / "early", tree("2024-08-bbbbbbbbbbbb", cpe="24.03"))


def test_a_version_that_is_gone_leads_to_the_one_that_is_there(run: Run) -> None:
    deploy("early")
    code, out, _ = run("deploy", "new", "ROOT", "--apply")
    assert code == 0
    assert f"{CPE}: 24.03 -> 25.03\n" in out
    stub = Path("ROOT/current", STUB).read_text()
    assert f"{CPE}/24.03 is gone: it was for platform 2024-08, and this is platform 2026-01 with cpe 25.03" in stub
    assert f'load("{CPE}/25.03")' in stub
    rc = Path(f"ROOT/current/modules/{CPE}/.modulerc.lua").read_text()
    assert rc == f'module_version("25.03", "default")\nmodule_version("{CPE}/.24.03", "24.03")\n'
    assert not load_tree(Path("ROOT/current")).faults, "the manifest has them"
    assert not Path("new", STUB).exists()


def test_what_was_added_is_no_difference_and_the_release_is_the_same_one(run: Run) -> None:
    deploy("early", "new")
    for out in ("new", f"ROOT/releases/{NEW}"):
        assert run("deploy", out, "ROOT") == (0, f"no difference to {NEW}\n", "")
        assert run("deploy", out, "ROOT", "--apply")[0] == 0
    assert run("status", "ROOT", "--all")[0] == 0
    assert run("rollback", "ROOT")[0] == 0
    assert run("deploy", "new", "ROOT")[0] == 1
    deploy("new")
    assert current() == NEW
    assert load_manifest(Path("ROOT/current"))[0].names[f"{CPE}/24.03"] == f"{CPE}/25.03"


def test_a_release_stays_as_it_was_deployed_when_later_ones_have_offered_more(run: Run) -> None:
    deploy("new", "early")
    assert run("rollback", "ROOT")[0] == 0
    assert run("deploy", "new", "ROOT", "--apply")[:2] == (
        0,
        f"no difference to {NEW}\nnothing to do: {NEW} is deployed\n",
    )
    assert not Path("ROOT/current", STUB).exists()
    deploy("third")
    assert Path("ROOT/current", STUB).exists()


def test_an_id_with_other_content_is_still_refused(run: Run, tmp_path: Path) -> None:
    deploy("early", "new", "third")
    written(tmp_path / "other", tree(NEW, libfabric="9.9"))
    for name in ("history", "none"):
        assert run("deploy", "other", "ROOT", "--apply")[0] == 1
        Path("ROOT", name).unlink(missing_ok=True)
    assert current() == THIRD


def test_an_edit_of_what_was_added_is_seen_and_both_ways_out_lose_nothing(run: Run) -> None:
    deploy("early", "new")
    stub = Path("ROOT/current", STUB)
    text = stub.read_text()
    stub.write_text("-- mine\n")
    code, _, err = run("deploy", "new", "ROOT", "--apply")
    assert code == 1
    assert f"{STUB}: edited (" in err
    assert run("status", "ROOT", "--all")[0] == 1
    assert run("rollback", "ROOT")[0] == 0
    assert run("deploy", "new", "ROOT", "--apply", "--set-edits-aside")[0] == 0
    assert (current(), stub.read_text()) == (NEW, text)
    assert [path.read_text() for path in Path("ROOT/set-aside").rglob(stub.name)] == ["-- mine\n"]


def test_names_are_the_nearest_then_the_default_and_modules_that_are_gone_lead_nowhere(tmp_path: Path) -> None:
    def release(name: str, modules: list[str], default: str) -> None:
        files = {path: file for path, file in tree(name).items() if not path.startswith("modules/")}
        files |= {f"modules/{one}.lua": tree()["spank/task_prolog"] for one in modules}
        described = replace(manifest(name), modules=dict.fromkeys(modules, ModuleSummary()), names={"ai": default})
        written(tmp_path / name, with_manifest(files, described))

    release(OLD, ["ai/24-r6", "ai/24-r5", "gone/1", "gone/2"], "ai/24-r6")
    release(NEW, ["ai/25-r6", "ai/25-r7"], "ai/25-r7")
    deploy(OLD, NEW)
    names = load_manifest(Path("ROOT/current"))[0].names
    assert names == {"ai": "ai/25-r7", "ai/24-r6": "ai/25-r6", "ai/24-r5": "ai/25-r7", "gone/1": "", "gone/2": ""}
    assert "LmodError" in Path("ROOT/current/modules/gone/.1.lua").read_text()
    rc = Path("ROOT/current/modules/gone/.modulerc.lua").read_text()
    assert rc.endswith('module_version("gone/.2", "2")\nmodule_version("gone/.2", "default")\n')


def test_names_that_could_not_be_files_are_left_out(run: Run) -> None:
    deploy("early")
    path = next(Path("ROOT/releases").glob(f"*/{MANIFEST}"))
    described = json.loads(path.read_text())
    described["modules"] |= dict.fromkeys(("../../x/1", "a//1", "x/.1", "x/\n1"), described["modules"][f"{CPE}/24.03"])
    path.write_text(json.dumps(described))
    assert run("deploy", "new", "ROOT", "--apply", "--set-edits-aside")[0] == 0
    assert load_manifest(Path("ROOT/current"))[0].names == {f"{CPE}/24.03": f"{CPE}/25.03"}
