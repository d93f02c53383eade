"""A plan as a file: written, reviewed, checked against the site, and part of what a render is made from."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import yaml

from lumisite.cli import main
from tests.support.closures import stock
from tests.support.dict_trees import Link, write_tree
from tests.support.images import PARTITION, PRIMARY, SQUASHFS, needs_mksquashfs, sif, squash
from tests.support.sites import printed_codes, site_text

Output = pytest.CaptureFixture[str]
FABRIC = "/opt/cray/libfabric/1.22.0"


@pytest.fixture
def trees(tmp_path: Path) -> Path:
    """A node after January 2026, three images, and the twin's site as a file."""
    files = stock("after", "/usr/lib64")
    files[f"{FABRIC}/lib64/libfabric.so.1"] = files.pop("/usr/lib64/libfabric.so.1")
    files["/lib64"] = Link("usr/lib64")
    write_tree(tmp_path / "host", files)
    debian = "/usr/lib/x86_64-linux-gnu"
    for name, folder in (("debian11", debian), ("suse155", "/lib64"), ("ubuntu24", debian)):
        write_tree(tmp_path / name, stock(name, folder))
    own = {f"/usr/lib64/{Path(path).name}": content for path, content in stock("ubuntu24", "/").items()}
    write_tree(tmp_path / "own", own)
    (tmp_path / "site.yaml").write_text(site_text())
    return tmp_path


def write(image: str, *options: str, code: int = 0) -> None:
    arguments = ["binds", image, "--site", "site.yaml", "--host-root", "host", "--family", "twin-torch"]
    assert main([*arguments, "--write", "plan.yaml", *options]) == code


def test_a_plan_says_all_that_the_table_says(trees: Path) -> None:
    write("suse155", "--path", "/appl/images/suse.sif")
    plan = yaml.safe_load((trees / "plan.yaml").read_text())
    assert {name: plan[name] for name in ("plan", "site", "platform", "stacks", "family", "paths")} == {
        "plan": "2",
        "site": "twin",
        "platform": "2026-01",
        "stacks": {"cpe": "25.03", "rocm": "6.2.4"},
        "family": "twin-torch",
        "paths": ["/appl/images/suse.sif"],
    }
    assert "holds" not in plan, "nothing in it would open a plugin, so where one would be is not known"
    assert "image" not in plan, "a folder has no digest that is worth something"
    lines = {line.pop("library"): line for line in plan["lines"]}
    assert lines["libfabric.so.1"] == {
        "decision": "bind",
        "source": f"{FABRIC}/lib64/libfabric.so.1",
        "target": "/lib64/libfabric.so.1",
        "reason": "the image has none; put into /lib64, where the loader looks; singularity-CPEbits binds /opt/cray, but this "
        "image's loader does not look there",
        "chain": "libfabric.so.1 <- root",
    }
    assert lines["libcxi.so.1"]["by"] == "singularity-CPEbits"
    assert lines["libc.so.6"]["decision"] == "skip"


def test_a_library_that_a_module_binds_under_another_path_is_found_there(trees: Path) -> None:
    cray, family = "  - path: /opt/cray\n", "    plugin: from-host\n"
    changes = (cray, f"{cray}    target: /host/opt/cray\n"), (family, f"{family}    library_path: [libfabric]\n")
    (trees / "site.yaml").write_text(site_text(*changes))
    write("suse155", "--path", "/appl/images/suse.sif")
    plan = yaml.safe_load((trees / "plan.yaml").read_text())
    assert plan["library_path"] == [f"/host{FABRIC}/lib64"]
    (fabric,) = (line for line in plan["lines"] if line["library"] == "libfabric.so.1")
    assert (fabric["by"], fabric["target"]) == ("singularity-CPEbits", f"/host{FABRIC}/lib64/libfabric.so.1")
    # The node is checked for what the host has.
    (trees / "site.yaml").write_text(site_text(*changes, ("modules:\n", "plans: [plan.yaml]\nmodules:\n")))
    assert main(["render", "--site", "site.yaml", "--out", "out"]) == 0
    manifest = json.loads((trees / "out/MANIFEST.json").read_text())
    assert manifest["plans"]["plan.yaml"]["folders"] == [f"{FABRIC}/lib64"]
    assert f"ls_libraries=/host{FABRIC}/lib64" in (trees / "out/spank/bin/singularity").read_text()


def test_a_second_run_writes_the_same_bytes_and_a_table_all_the_same(trees: Path, capsys: Output) -> None:
    write("suse155")
    first, said = (trees / "plan.yaml").read_bytes(), capsys.readouterr()
    write("suse155")
    assert (trees / "plan.yaml").read_bytes() == first
    assert "libfabric.so.1 <- root" in said.out
    assert "plan.yaml is written; review it" in said.err
    assert list(trees.glob(".plan*")) == []


def test_what_an_admin_has_edited_stays(trees: Path, capsys: Output) -> None:
    write("debian11", code=1)
    text = (trees / "plan.yaml").read_text()
    text = re.sub(r"paths:\n(- .*\n)+", "paths:\n- /appl/images/old-*.sif\n", text)
    text = re.sub(
        r"(library: libcxi.so.1\n(?:  .*\n)*?  chain: .*\n)",
        r"\1  accepted: single nodes only, until June" + "\n",
        text,
    )
    (trees / "plan.yaml").write_text(text)
    write("debian11", code=1)
    plan = yaml.safe_load((trees / "plan.yaml").read_text())
    assert plan["paths"] == ["/appl/images/old-*.sif"]
    assert plan["lines"][0]["accepted"] == "single nodes only, until June"
    capsys.readouterr()
    write("debian11", "--path", "/x.sif", code=1)
    assert yaml.safe_load((trees / "plan.yaml").read_text())["paths"] == ["/x.sif"]
    assert "render refuses it until 1 refused or missing library has `accepted:`" in capsys.readouterr().err


def test_an_acceptance_ends_with_its_reason(trees: Path) -> None:
    """What was accepted for one GLIBC is not for another."""
    write("debian11", code=1)
    text = (trees / "plan.yaml").read_text().replace("up to GLIBC_2.30", "up to GLIBC_2.28")
    text = text.replace("- library: libcxi.so.1\n", "- library: libcxi.so.1\n  accepted: yes\n")
    (trees / "plan.yaml").write_text(text)
    write("debian11", code=1)
    assert "accepted" not in yaml.safe_load((trees / "plan.yaml").read_text())["lines"][0]


def test_a_file_that_is_no_plan_is_not_overwritten(trees: Path, capsys: Output) -> None:
    (trees / "plan.yaml").write_text("lumisite: 1\nname: mine\n")
    write("suse155", code=2)
    assert (trees / "plan.yaml").read_text() == "lumisite: 1\nname: mine\n"
    assert "plan.yaml:1:1: lumisite: key-unknown" in printed_codes(capsys.readouterr().err)


def test_a_source_that_no_bind_can_hold_is_not_written(trees: Path, capsys: Output) -> None:
    odd = trees / "host/opt/cray/libfabric/1.22.0/lib64"
    odd.rename(trees / "host/opt/cray/libfabric/odd,name")
    (trees / "host/opt/cray/libfabric/1.22.0/lib64").symlink_to("../odd,name")
    write("suse155", code=2)
    assert "value-wrong" in capsys.readouterr().err
    assert not (trees / "plan.yaml").exists()


@needs_mksquashfs
def test_a_plan_knows_its_image_by_its_head(trees: Path) -> None:
    content = squash(trees / "suse155", trees / "image.sqfs").read_bytes()
    (trees / "image.sif").write_bytes(sif((PARTITION, content, SQUASHFS, PRIMARY)))
    (trees / "alias [1].sif").symlink_to("image.sif")
    write("alias [1].sif")
    plan = yaml.safe_load((trees / "plan.yaml").read_text())
    assert plan["image"]["bytes"] == (trees / "image.sif").stat().st_size
    assert re.fullmatch("header:[0-9a-f]{64}", plan["image"]["digest"])
    assert plan["paths"] == [f"{trees}/alias [[]1].sif", f"{trees}/image.sif"]
    assert plan["image"]["file"] == f"{trees}/image.sif"
    assert plan["image"]["names"] == [f"{trees}/alias [[]1].sif"], "the file itself is no link to it"


# ---- checked against the site

GOOD = """\
plan: 2
site: twin
platform: 2026-01
stacks:
  {cpe: 25.03, rocm: 6.2.4}
family: twin-torch
paths: [/appl/images/small.sif]
lines:
  - {library: libcxi.so.1, decision: bind, source: /usr/lib64/libcxi.so.1, target: /lib64/libcxi.so.1, reason: has none, chain: root}
  - {library: libz.so.1, decision: skip, without: /usr/lib64/libcxi.so.1, reason: has it, chain: root}
  - {library: libb.so.1, decision: bind, source: /usr/lib64/libb.so.1, target: /usr/lib64/libb.so.1, by: singularity-CPEbits, reason: r, chain: root}
"""
BAD = {
    "another site": ("site: twin", "site: lumi", "2:7: site: keys-contradict"),
    "no platform": ("2026-01", "2027-01", "3:11: platform: name-unknown"),
    "no CPE": ("25.03", "26.03", "5:9: stacks.cpe: name-unknown"),
    "no family": ("twin-torch", "twin-torhc", "6:9: family: name-unknown"),
    "no path": ("[/appl/images/small.sif]", "[]", "7:8: paths: value-wrong"),
    "a relative path": ("/appl/images", "images", "7:9: paths[0]: value-wrong"),
    "every path": ("/appl/images/small.sif", "'*/*'", "7:9: paths[0]: value-wrong"),
    "a name that is no path": (
        "lines:\n",
        f"image: {{bytes: 5, digest: 'header:{'0' * 64}', file: /a.sif, names: [/b.sif]}}\nlines:\n",
        "image.names[0]: keys-contradict",
    ),
    "twice": ("small.sif]", "small.sif, /appl/images/small.sif]", "paths[1]: keys-contradict"),
    "no decision": ("decision: bind", "decision: bnid", "9:38: lines[0].decision: value-wrong"),
    "no source": ("source: /usr/lib64/libcxi.so.1, ", "", "9:5: lines[0].source: key-missing"),
    "a comma": ("/lib64/libcxi.so.1, reason", "'/a,b', reason", "value-wrong"),
    "no module": ("reason: has none", "by: CPEbits, reason: x", "lines[0].by: name-unknown"),
    "nothing to take": ("without: /usr/lib64/libcxi", "without: /usr/lib64/libcix", "name-unknown"),
    "one target": (
        "decision: skip, without",
        "decision: bind, source: /a, target: /lib64/libcxi.so.1, soname",
        "lines[1].target: keys-contradict",
    ),
    "a refusal": ("decision: skip", "decision: refuse", "lines[1].decision: library-unmet"),
    "a miss": ("decision: skip", "decision: missing", "lines[1].decision: library-unmet"),
    "an odd key": ("plan: 2", "plan: 2\nplam: 1", "2:1: plam: key-unknown"),
    "another form": ("plan: 2", "plan: 3", "1:7: plan: value-wrong"),
    "no YAML": ("plan: 2", "plan: [", "file-unreadable"),
}


def render(*plans: str) -> int:
    """Render the twin with these plans."""
    Path("site.yaml").write_text(site_text(("modules:\n", f"plans: [{', '.join(plans)}]\nmodules:\n")))
    return main(["render", "--site", "site.yaml", "--rocm", "6.2", "--out", "out"])


@pytest.mark.parametrize("case", BAD)
def test_a_bad_plan_is_named_by_line_column_and_key(trees: Path, capsys: Output, case: str) -> None:
    old, new, message = BAD[case]
    assert old in GOOD
    (trees / "plan.yaml").write_text(GOOD.replace(old, new, 1))
    assert render("plan.yaml") == 2
    assert message in printed_codes(capsys.readouterr().err)
    assert not (trees / "out").exists()


def test_check_finds_the_faults_of_the_plans_that_a_site_names(trees: Path, capsys: Output) -> None:
    (trees / "plans").mkdir()
    (trees / "site.yaml").write_text(site_text(("modules:\n", "plans: [plans/a.yaml, plans/b.yaml]\nmodules:\n")))
    (trees / "plans/a.yaml").write_text(GOOD.replace("25.03", "26.03"))
    assert main(["check", "site.yaml"]) == 2
    faults = printed_codes(capsys.readouterr().out)
    assert faults == "plans/a.yaml:5:9: stacks.cpe: name-unknown\nplans/b.yaml: file-unreadable"
    (trees / "plans/a.yaml").write_text(GOOD)
    (trees / "plans/b.yaml").write_text(GOOD)
    assert main(["check", "site.yaml"]) == 2
    assert printed_codes(capsys.readouterr().out) == "plans/b.yaml:7:9: paths[0]: keys-contradict"
    (trees / "plans/b.yaml").write_text(GOOD.replace("small", "other"))
    assert main(["check", "site.yaml"]) == 0
    assert capsys.readouterr().out.endswith(": no faults\n")


def test_plans_stand_below_their_site(trees: Path, capsys: Output) -> None:
    plans = "[/plans/a.yaml, ../a.yaml, plans//a.yaml, '']"
    (trees / "site.yaml").write_text(site_text(("modules:\n", f"plans: {plans}\nmodules:\n")))
    assert main(["check", "site.yaml"]) == 2
    faults = printed_codes(capsys.readouterr().out)
    assert [f"plans[{number}]: value-wrong" in faults for number in range(4)] == [True] * 4


def test_the_manifest_records_each_plan(trees: Path) -> None:
    (trees / "plans").mkdir()
    (trees / "plans/a.yaml").write_text(GOOD)
    (trees / "more.yaml").write_text(GOOD.replace("small", "other"))
    assert render("plans/a.yaml", "more.yaml") == 0
    first = json.loads((trees / "out/MANIFEST.json").read_text())
    assert {"plans/a.yaml", "more.yaml", "twin.yaml"} <= set(first["inputs"])
    (trees / "more.yaml").write_text((trees / "more.yaml").read_text() + "# reviewed\n")
    assert render("plans/a.yaml", "more.yaml") == 0
    second = json.loads((trees / "out/MANIFEST.json").read_text())
    assert second["inputs"]["more.yaml"] != first["inputs"]["more.yaml"]
    assert second["inputs"]["plans/a.yaml"] == first["inputs"]["plans/a.yaml"]


def test_a_plan_for_another_platform_is_left_out_and_said_so(trees: Path, capsys: Output) -> None:
    (trees / "plan.yaml").write_text(GOOD.replace("2026-01", "2024-08"))
    assert render("plan.yaml") == 0
    assert "plan.yaml: is for platform 2024-08, so it is left out" in capsys.readouterr().err
    assert "plan.yaml" not in (trees / "out/spank/bin/singularity").read_text()
    assert json.loads((trees / "out/MANIFEST.json").read_text())["plans"] == {}
    (trees / "plan.yaml").write_text(GOOD)
    assert render("plan.yaml") == 0
    wrapper = (trees / "out/spank/bin/singularity").read_text()
    assert "ls_plan=plan.yaml" in wrapper
    binds = [line.strip() for line in wrapper.splitlines() if line.strip().startswith("ls_plan_bind /")]
    assert "libb.so.1" not in wrapper, "a module binds it"
    assert binds == ["ls_plan_bind /usr/lib64/libcxi.so.1:/lib64/libcxi.so.1 /usr/lib64/libcxi.so.1 /lib64/libcxi.so.1"]
