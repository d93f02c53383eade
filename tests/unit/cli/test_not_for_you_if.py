"""What the page "Not for you if" says of sites that lumisite is not for, where no other test shows it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from lumisite.cli import main

REPOSITORY = Path(__file__).parents[3]
Output = pytest.CaptureFixture[str]


@pytest.fixture
def university(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    return (REPOSITORY / "lumisite/sites/university.yaml").read_text()


def rendered(text: str, old: str, new: str) -> Path:
    assert old in text
    Path("site.yaml").write_text(text.replace(old, new))
    assert main(["check", "site.yaml"]) == 0
    assert main(["render", "--site", "site.yaml", "--out", "out"]) == 0
    return Path("out")


def test_two_runtimes_share_the_binds_of_the_first(university: str) -> None:
    first = "runtimes:\n  singularity: {executable: /usr/bin/singularity, variant: x, prefix: SINGULARITY, source: INVENTED}\n"
    out = rendered(university, "runtimes:\n", first)
    modules = "".join(path.read_text() for path in out.glob("modules/*/*.lua"))
    assert "SINGULARITY_BINDPATH" in modules
    assert "APPTAINER_BINDPATH" not in modules
    prefixes = {"task_prolog": ["SINGULARITY"], "bin/singularity": ["APPTAINER", "SINGULARITY"]}
    for name, expected in prefixes.items():
        text = (out / "spank" / name).read_text()
        assert re.findall(r"^\s*(?:\S+ )?(?:ls_)?site_prefix=(\w+)", text, re.MULTILINE) == expected


def test_a_runtime_of_another_name_is_accepted_and_gets_no_wrapper(university: str) -> None:
    out = rendered(university, "runtimes:\n  apptainer:", "runtimes:\n  ch-run:")
    assert sorted(path.name for path in (out / "spank/bin").iterdir()) == ["apptainer", "singularity"]


def test_an_image_in_a_registry_is_not_read(capsys: Output) -> None:
    assert main(["binds", "docker://ubuntu", "--site", "lumi"]) == 3
    assert "docker:/ubuntu: cannot read" in capsys.readouterr().err


def test_a_run_needs_a_folder_that_all_nodes_see(tmp_path: Path, capsys: Output) -> None:
    assert main(["validate", "--site", "lumi", "--image", "x.sif", "--out", str(tmp_path / "run")]) == 2
    assert "is not on a file system that all nodes see" in capsys.readouterr().err
