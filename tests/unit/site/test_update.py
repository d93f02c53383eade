"""A description of format 1, written anew as format 2: all that it says, its comments, and nothing half-written."""

from __future__ import annotations

from pathlib import Path

import pytest

from lumisite.cli import main
from lumisite.site.document import parse_yaml
from lumisite.site.format_1 import upgraded
from lumisite.site.update import updated
from tests.unit.site.test_format_1 import OLD, TEXT

#: A site of format 1 in another layout: braces, comments at the end of lines, keys of earlier days, no GPUs.
BRACES = """\
lumisite: 1  # of 2025
name: other
title: Other
root: /opt/lumisite
support: {name: a, contact: b}
runtime: {executable: /usr/bin/apptainer, name: apptainer, variant: x, prefix: APPTAINER, source: x}  # here
network:
  interfaces: [ib0]
  provider: IB  # no libfabric
  source: x
file_systems: [{path: '/users/${USER}', kind: shared, where: files, why: w, source: x}]
platform: a
platforms:
  a: {since: 2026-01-01, os: Rocky 9, driver: "a, b", driver_rocm: '>=6', rocm: 6.2, cpe: 25.03, cpe_supported: [25.03], libraries: {}, source: x}
# the releases
cpe: {25.03: {libraries: {}, rocm: 6.2, source: x}}
node_kinds:
  zen2:
    title: two EPYC
    memory_mib: 250000
    l3: [{cores: 0-127, numa: 0}]
    source: x
# what images have
rocm:
    6.2: {found: image, source: x}  # one
    # and that is all
partitions:
  cpu: {node_kind: zen2, whole_nodes: yes, time_limit: 1-00:00:00, source: x}
families:
  any: {title: any, paths: ['*'], default_for: '>=5', rocm_after: '*r', modules: [files], plugin: none, why: w, source: x}
settings:
  - name: A
    value: $HOME/x
    where: ai
    why: w
    source: x
modules:
  files: {template: singularity-userfilesystems, version: platform, summary: s}
  ai:
    template: singularity-AI-bindings
    version: cpe-rocm  # both
    summary: s
"""


@pytest.mark.parametrize(
    "text", [TEXT, BRACES, BRACES.replace("\n", "\r\n"), f"\ufeff{BRACES}", f"\ufeff\ufeff{BRACES}"]
)
def test_the_new_text_says_the_same_with_every_comment(text: str) -> None:
    new = updated(text.encode(), "site.yaml")
    assert parse_yaml(new.encode(), "").value == upgraded(parse_yaml(text.encode(), "")).value
    comments = [line[line.index("#") :].strip() for line in text.splitlines() if " # " in line or line.startswith("#")]
    assert [one for one in comments if one not in new] == []
    assert ("# title: two EPYC" in new) == (text is not TEXT)
    assert updated(new.encode(), "site.yaml") == new


def test_a_comment_moves_with_what_it_is_about() -> None:
    lines = updated(TEXT.encode(), "site.yaml").splitlines()
    at = next(number for number, line in enumerate(lines) if "job scripts name lumi-multitorch-u24r72" in line)
    assert [line.strip() for line in lines[at + 1 : at + 3]] == ["runs: '>=6.1,<7.1'", 'in_use: ["7.2"]']
    other = updated(BRACES.encode(), "site.yaml").splitlines()
    assert other[other.index("    # what images have") + 1] == "    releases:"


def test_a_layout_that_nothing_can_be_moved_in_loses_its_comments_and_no_value() -> None:
    text = "{lumisite: 1, name: a,\n cpe: {1: {source: x}}, rocm: {2: {found: image, source: x}}}"
    new = updated(text.encode(), "site.yaml")
    assert parse_yaml(new.encode(), "").value == upgraded(parse_yaml(text.encode(), "")).value


@pytest.fixture
def site(tmp_path: Path) -> Path:
    path = tmp_path / "site.yaml"
    path.write_bytes(OLD.read_bytes())
    return path


def test_check_update_writes_the_file_and_shows_what_changes(site: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "--update", str(site)]) == 0
    shown = capsys.readouterr()
    assert {"-lumisite: 1", "+lumisite: 2", "+fabric:", "-network:"} <= set(shown.out.splitlines())
    assert shown.err == f"lumisite: {site}: is written\n"
    assert site.read_text() == updated(OLD.read_bytes(), "x")
    assert main(["check", "--update", str(site)]) == 0
    assert capsys.readouterr().out == f"{site}: is of today's format already\n"
    assert main(["check", str(site)]) == 0


def test_with_out_the_file_stays(site: Path, tmp_path: Path) -> None:
    assert main(["check", "--update", "--out", str(tmp_path / "new.yaml"), str(site)]) == 0
    assert site.read_bytes() == OLD.read_bytes()
    assert (tmp_path / "new.yaml").read_text().splitlines()[4] == "lumisite: 2"


def test_a_file_with_faults_stays_as_it_is(site: Path, capsys: pytest.CaptureFixture[str]) -> None:
    site.write_text(TEXT.replace("provider: cxi", "provider: [cxi]"))
    before = site.read_bytes()
    assert main(["check", "--update", str(site)]) == 2
    assert "network.provider: is a list" in capsys.readouterr().err
    assert site.read_bytes() == before
