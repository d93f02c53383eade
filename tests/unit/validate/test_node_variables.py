"""Variables with which programs fail: no node is blamed for them, and the script of nodes runs without them."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from lumisite.validate.probes.probe import Expected, scripts
from tests.unit.validate.test_node_judge import FOUR, TWO, found, healthy, lines

PRELOAD = {"name": "LD_AUDIT", "value": "/x.so", "program": "bash", "words": "object '/x.so' cannot be loaded"}


@pytest.mark.parametrize(
    ("more", "values"),
    [
        ({"way": "", "login": "/users/me"}, {"login": "/users/me"}),
        ({"way": "task", "login": ""}, {"on_the_way": "TaskProlog"}),
        ({"way": "", "login": ""}, {}),
    ],
)
def test_a_variable_of_the_job_blames_no_node(more: dict[str, str], values: dict[str, str]) -> None:
    records = [healthy(name) | {"broken": [PRELOAD | more]} for name in FOUR.nodes]
    broken, fine = lines(records, FOUR)
    known = {"value": "/x.so", "program": "bash", "words": PRELOAD["words"]}
    assert (broken.code, broken.verdict) == ("variable-breaks-programs", "fail")
    assert {"subject": "LD_AUDIT", "ranks": "", **known, **values} == {"ranks": "", **broken.values}
    assert (fine.verdict, fine.nodes) == ("pass", FOUR.nodes)


@pytest.mark.parametrize("job", [FOUR, TWO], ids=["four", "two"])
def test_what_breaks_programs_on_one_node_is_that_nodes(job: Expected) -> None:
    entry = PRELOAD | {"way": "", "login": "/"}
    assert found(("broken",), [entry], job).code == "variable-breaks-programs"
    gate = found(("broken",), [{"name": "/etc/ld.so.preload", "words": "cannot"}], job)
    assert (gate.code, gate.values["words"]) == ("preload-file-breaks-programs", "cannot")


@pytest.mark.parametrize("shell", ["dash", "bash"])
@pytest.mark.parametrize("aside", ["", "LUMISITE_ASIDE_"])
def test_the_script_runs_without_what_breaks_programs_and_names_it(tmp_path: Path, shell: str, aside: str) -> None:
    text_file, start, good = tmp_path / "no-library.so", tmp_path / "start", tmp_path / "lib"
    text_file.write_text("no library")
    start.write_text("nonsense-of-the-site\n")
    good.mkdir()
    risky = {"LD_PRELOAD": text_file, "BASH_ENV": start, "PYTHONHOME": "/none", "PERL5LIB": good, "PYTHONPATH": good}
    environment = {f"{aside}{name}": str(value) for name, value in risky.items()}
    environment |= {"HOME": "/none", "SLURM_PROCID": "0", "LD_LIBRARY_PATH": str(good)}
    command = [shell, "-c", scripts()["node.sh"].read_text(), "node.sh", str(tmp_path / "out"), str(tmp_path), "--"]
    subprocess.run(command, env=environment, capture_output=True, timeout=60, check=True)
    record = json.loads((tmp_path / "out/0.json").read_text())
    assert record["private"] == ""
    broken = {entry["name"]: entry for entry in record["broken"]}
    assert broken.keys() - {"PYTHONHOME"} == {"LD_PRELOAD", "BASH_ENV"}
    assert str(text_file) in broken["LD_PRELOAD"]["words"]
    assert "nonsense-of-the-site" in broken["BASH_ENV"]["words"]
    assert {entry["way"] for entry in record["broken"]} == {"" if aside else "task"}
