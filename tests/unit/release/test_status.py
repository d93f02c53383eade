"""`status`: what is deployed, whether it fits, and the next command."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lumisite.cli import main
from tests.support.twin_hosts import host

Output = pytest.CaptureFixture[str]


def status(capsys: Output, *options: str) -> tuple[int, dict[str, Any]]:
    capsys.readouterr()
    code = main(["status", "root", "--host-root", "host", "--json", *options])
    return code, json.loads(capsys.readouterr().out)


def test_a_release_that_fits_needs_nothing(node: Callable[..., Path], capsys: Output) -> None:
    node(host())
    code, found = status(capsys)
    assert (code, found["site"], found["state"], found["before"]) == (0, "twin", "whole", None)
    assert (found["fits"], found["faults"], found["waiting"], found["next"]) == (True, [], [], "nothing")
    assert main(["status", "root", "--host-root", "host"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split(maxsplit=1) == ["root", f"{Path('root').resolve()} of site twin"]
    assert [line.split()[0] for line in lines] == [
        *("root", "release", "for", "deployed", "previous", "policy", "host", "pending", "next")
    ]


def test_what_does_not_fit_is_told_with_the_check_that_says_more(node: Callable[..., Path], capsys: Output) -> None:
    node({path: one for path, one in host().items() if path != "/usr/bin/singularity"})
    code, found = status(capsys)
    root = Path("root").resolve()
    assert (code, found["fits"]) == (1, False)
    assert found["faults"][0].startswith("/usr/bin/singularity: ")
    assert found["next"] == f"lumisite check --host --root {root}"
    assert main(["status", "root", "--host-root", "host"]) == 1
    assert "            /usr/bin/singularity: " in capsys.readouterr().out


def test_a_root_knows_its_site(node: Callable[..., Path], capsys: Output, monkeypatch: pytest.MonkeyPatch) -> None:
    node(host())
    monkeypatch.setenv("LUMISITE_SITE", "lumi")  # another one
    assert status(capsys)[1]["site"] == "twin"
    assert main(["check", "--host", "--root", "root", "--host-root", "host", "--json"]) == 0
    manifest = Path("root/current/MANIFEST.json").resolve()
    manifest.chmod(0o644)
    manifest.write_text(manifest.read_text().replace('"site": "twin"', '"site": "other"'))
    capsys.readouterr()
    Path("root/current/site/site.yaml").unlink()
    assert main(["check", "--host", "--root", "root", "--host-root", "host"]) == 2
    assert "has a release of a site that is not known here" in capsys.readouterr().err


def test_an_edited_release_sends_back(node: Callable[..., Path], capsys: Output) -> None:
    node(host())
    Path("root/current/spank/task_prolog").write_text("mine")
    code, found = status(capsys)
    assert (code, found["state"]) == (1, "edited")
    assert found["next"] == f"lumisite deploy OUT {Path('root').resolve()} --apply"


def test_an_edited_way_back_is_found_before_it_is_needed(node: Callable[..., Path], capsys: Output) -> None:
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
    main(["status", "root", "--host-root", "host"])
    assert f"previous    {first.name}, not as it was deployed: modules/" in capsys.readouterr().out
    assert main(["rollback", "root"]) == 1
    err = capsys.readouterr().err
    assert "[release-damaged]" in err
    assert "[release-edited]" in err


def test_what_the_site_has_and_the_release_lacks_is_waiting(node: Callable[..., Path], capsys: Output) -> None:
    node(host())
    text = Path(__file__).parents[3].joinpath("lumisite/sites/twin.yaml").read_text()
    Path("twin.yaml").write_text(text + "# later\n")
    code, found = status(capsys, "--site", "twin.yaml")
    assert (code, found["fits"]) == (0, True)
    assert found["waiting"][0].startswith("twin.yaml: ")
    assert found["next"].startswith("lumisite render --site twin.yaml --out site-out, then lumisite deploy site-out ")


def test_another_site_and_no_site_are_told(node: Callable[..., Path], capsys: Output) -> None:
    node(host())
    code, found = status(capsys, "--site", "lumi")
    assert (code, found["fits"]) == (1, False)
    assert len(found["faults"]) == 1
    manifest = Path("root/current/MANIFEST.json")
    manifest.write_text(manifest.read_text().replace('"site": "twin"', '"site": "elsewhere"'))
    Path("root/current/site/site.yaml").unlink()
    code, found = status(capsys)
    assert (code, found["fits"]) == (4, None)
    assert found["next"].endswith("--site FILE")


def test_an_empty_root_says_how_to_begin(capsys: Output, tmp_path: Path) -> None:
    (tmp_path / "root").mkdir()
    assert main(["status", str(tmp_path / "root")]) == 1
    out = capsys.readouterr().out
    assert out.endswith(f"next: lumisite render --site NAME|FILE, then lumisite deploy OUT {tmp_path}/root --apply\n")
    assert main(["status", str(tmp_path / "none")]) == 2
    assert "does not exist" in capsys.readouterr().err


def test_a_release_for_another_platform_than_the_site_has_now_is_waiting(
    node: Callable[..., Path], capsys: Output
) -> None:
    node(host())
    text = Path(__file__).parents[3].joinpath("lumisite/sites/twin.yaml").read_text()
    Path("twin.yaml").write_text(re.sub(r"(?m)^platform: .*", "platform: 2024-08", text))
    found = status(capsys, "--site", "twin.yaml")[1]
    release = Path("root/current").resolve().name
    assert f"twin.yaml: platform is 2024-08 now, and release {release} is for 2026-01" in found["waiting"]
