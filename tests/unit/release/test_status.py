"""`status`: what is deployed, whether it fits, and the next command; with `--all`, every release of a root."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from lumisite.cli import main
from lumisite.render.manifest import MANIFEST
from tests.support.rendered_trees import NEW, OLD, THIRD, deploy
from tests.support.sites import site_text
from tests.support.twin_hosts import host
from tests.unit.release.conftest import Node, Run

Output = pytest.CaptureFixture[str]
WORDS = ["status", "root", "--host-root", "host"]


def status(capsys: Output, *options: str) -> tuple[int, dict[str, Any]]:
    capsys.readouterr()
    code = main([*WORDS, "--json", *options])
    return code, json.loads(capsys.readouterr().out)


def test_a_release_that_fits_needs_nothing(node: Node, capsys: Output) -> None:
    node(host())
    code, found = status(capsys)
    assert (code, found["site"], found["state"], found["before"]) == (0, "twin", "whole", None)
    assert (found["fits"], found["faults"], found["waiting"], found["next"]) == (True, [], [], "nothing")


def test_what_does_not_fit_comes_with_the_check_that_says_more(node: Node, capsys: Output) -> None:
    node({path: content for path, content in host().items() if path != "/usr/bin/singularity"})
    code, found = status(capsys)
    assert (code, found["fits"]) == (1, False)
    assert found["faults"][0].startswith("/usr/bin/singularity: ")
    assert found["next"] == f"lumisite check --host --root {Path('root').resolve()}"
    main(WORDS)
    assert "            /usr/bin/singularity: " in capsys.readouterr().out


def test_a_root_knows_its_site_until_it_says_another_name(
    node: Node, capsys: Output, monkeypatch: pytest.MonkeyPatch
) -> None:
    node(host())
    monkeypatch.setenv("LUMISITE_SITE", "lumi")  # another one
    assert status(capsys)[1]["site"] == "twin"
    assert main(["check", *WORDS[2:], "--host", "--root", "root"]) == 0
    code, found = status(capsys, "--site", "lumi")
    assert (code, found["fits"], len(found["faults"])) == (1, False, 1)
    manifest = Path("root/current/MANIFEST.json")
    manifest.write_text(manifest.read_text().replace('"site": "twin"', '"site": "elsewhere"'))
    Path("root/current/site/site.yaml").unlink()
    code, found = status(capsys)
    assert (code, found["fits"]) == (4, None)
    assert found["next"].endswith("--site FILE")
    assert main(["check", *WORDS[2:], "--host", "--root", "root"]) == 2


def test_an_edited_release_is_to_be_deployed_again(node: Node, capsys: Output) -> None:
    node(host())
    Path("root/current/spank/task_prolog").write_text("mine")
    code, found = status(capsys)
    assert (code, found["state"]) == (1, "edited")
    assert found["next"] == f"lumisite deploy OUT {Path('root').resolve()} --apply"


def test_an_edited_way_back_is_found_before_it_is_needed(node: Node, capsys: Output) -> None:
    top = node(host())
    first = Path("root/current").resolve()
    assert main(["render", "--site", "twin", "--platform", "2024-08", "--out", "out"]) == 0
    assert main(["deploy", "out", "root", "--apply"]) == 0
    shutil.copytree(top / "opt/cray/pe/mpich/8.1.32", top / "opt/cray/pe/mpich/8.1.29")
    (top / "opt/cray/libfabric/1.22.0").rename(top / "opt/cray/libfabric/1.15.2.0")
    assert status(capsys)[0] == 0
    (first / "spank/bin/singularity").chmod(0o644)
    (first / "modules/singularity-CPEbits/25.03.lua").write_text("-- gone")
    code, found = status(capsys)
    assert (code, found["before"], len(found["before_faults"])) == (1, first.name, 2)
    assert "modules/singularity-CPEbits/25.03.lua: edited" in found["before_faults"][0]
    assert found["next"].startswith(f"undo the edits in {first}")
    main(WORDS)
    assert f"previous    {first.name}, not as it was deployed: modules/" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("old", "new", "waiting"),
    [
        (r"\Z", "# later\n", "twin.yaml: "),
        (r"(?m)^platform: .*", "platform: 2024-08", "twin.yaml: platform is 2024-08 now, and release "),
    ],
)
def test_what_the_site_has_and_the_release_lacks_is_waiting(
    node: Node, capsys: Output, old: str, new: str, waiting: str
) -> None:
    node(host())
    Path("twin.yaml").write_text(re.sub(old, new, site_text()))
    code, found = status(capsys, "--site", "twin.yaml")
    assert (code, found["fits"]) == (0, True)
    assert any(line.startswith(waiting) for line in found["waiting"])
    assert found["next"].startswith("lumisite render --site twin.yaml --out site-out, then lumisite deploy site-out ")


def test_an_empty_root_says_how_to_begin(capsys: Output, tmp_path: Path) -> None:
    (tmp_path / "root").mkdir()
    assert main(["status", str(tmp_path / "root")]) == 1
    out = capsys.readouterr().out
    assert out.endswith(f"next: lumisite render --site NAME|FILE, then lumisite deploy OUT {tmp_path}/root --apply\n")
    assert main(["status", str(tmp_path / "none")]) == 2
    assert "does not exist" in capsys.readouterr().err


# ---- every release


def test_all_lists_them_newest_first_with_what_they_are(run: Run) -> None:
    deploy("old", "new", "third")
    run("rollback", "ROOT")
    code, out, _ = run("status", "ROOT", "--all")
    assert code == 0
    rows = [line.split() for line in out.splitlines()]
    assert " ".join(rows[0]) == "RELEASE DEPLOYED SITE PLATFORM CPE ROCM LUMISITE INPUTS STATE"
    assert [row[:2] if row[0] in "*<" else ["", row[0]] for row in rows[1:]] == [["", THIRD], ["*", NEW], ["<", OLD]]
    assert rows[2][3:] == ["lumi", "2026-01", "25.03", "6.2.4", "0.1.0", "df5a21c868ec", "whole"]


def test_all_as_json_says_what_is_edited_broken_and_missing(run: Run) -> None:
    deploy("old", "new", "third")
    Path("ROOT/releases", OLD, "mine").write_text("")
    Path("ROOT/releases", NEW, MANIFEST).unlink()
    Path("ROOT/releases", THIRD).rename("gone")
    Path("ROOT/releases", ".hidden").mkdir()
    code, out, _ = run("status", "ROOT", "--all", "--json")
    assert code == 1
    found = {entry["release"]: entry for entry in json.loads(out)}
    assert {name: (entry["role"], entry["state"]) for name, entry in found.items()} == {
        THIRD: ("current", "missing"),
        NEW: ("before", "broken"),
        OLD: ("", "edited"),
    }
    assert found[OLD]["faults"][0].startswith("mine: not written by lumisite (")
    assert found[NEW]["faults"][0].startswith("MANIFEST.json: ")
