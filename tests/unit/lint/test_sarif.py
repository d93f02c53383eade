"""Findings of `lint` as SARIF 2.1.0."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from lumisite.cli import main


@pytest.mark.usefixtures("at_lumi")
def test_sarif_has_what_its_schema_requires(capsys: pytest.CaptureFixture[str]) -> None:
    Path("job.sh").write_text("#SBATCH -p small-g -N 1 --gpus-per-node=2\nexport MASTER_PORT=29500\nsrun x\n")
    assert main(["lint", "job.sh", "--sarif"]) == 1
    log = json.loads(capsys.readouterr().out)
    assert log["version"] == "2.1.0"
    (run,) = log["runs"]
    rules = {rule["id"]: rule for rule in run["tool"]["driver"]["rules"]}
    assert run["tool"]["driver"]["name"] == "lumisite"
    (result,) = run["results"]
    assert result["ruleId"] in rules
    assert result["level"] in ("none", "note", "warning", "error")
    assert result["message"]["text"]
    place = result["locations"][0]["physicalLocation"]
    assert (place["artifactLocation"]["uri"], place["region"]["startLine"]) == ("job.sh", 2)


@pytest.mark.usefixtures("at_lumi")
def test_sarif_without_findings_has_no_results(capsys: pytest.CaptureFixture[str]) -> None:
    Path("job.sh").write_text("#!/bin/bash\ntrue\n")
    assert main(["lint", "job.sh", "--sarif"]) == 0
    assert json.loads(capsys.readouterr().out)["runs"][0]["results"] == []
