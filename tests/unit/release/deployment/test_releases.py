"""Listing releases, and previewing a deploy."""

from __future__ import annotations

import json
from pathlib import Path

from lumisite.render.manifest import MANIFEST
from tests.support.scene import THIRD, Run, deploy
from tests.support.trees import NEW, OLD


def test_all_lists_them_newest_first_with_what_they_are(run: Run) -> None:
    deploy("old", "new", "third")
    run("rollback", "ROOT")
    code, out, _ = run("status", "ROOT", "--all")
    assert code == 0
    rows = [line.split() for line in out.splitlines()]
    assert " ".join(rows[0]) == "RELEASE DEPLOYED SITE PLATFORM CPE ROCM LUMISITE INPUTS STATE"
    assert [row[:2] if row[0] in "*<" else ["", row[0]] for row in rows[1:]] == [
        ["", THIRD],
        ["*", NEW],
        ["<", OLD],
    ]
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


def test_a_preview_shows_a_hand_edit_that_a_deploy_would_undo(run: Run) -> None:
    deploy("new")
    Path("ROOT/current/spank/bin/singularity").write_text("#!/bin/sh\necho mine\n")
    code, out, err = run("deploy", "new", "ROOT", "--details")
    assert code == 1
    assert "-echo mine\n+exit 0\n" in out
    assert "spank/bin/singularity: edited (" in err
