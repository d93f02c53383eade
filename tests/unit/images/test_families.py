"""One family for one image: what `binds`, `images`, `changes` and `env` take a name for that leads to another family."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from lumisite.cli import main
from lumisite.facts.change import Change
from lumisite.facts.facts import Facts
from lumisite.facts.touches import Context, touches
from lumisite.site.load import load_site
from tests.support.closures import stock
from tests.support.dict_trees import Files, Link, write_tree

pytestmark = pytest.mark.usefixtures("at_lumi")

Output = pytest.CaptureFixture[str]
LAIF, CONTAINERS = "/appl/local/laifs/containers", "/appl/local/containers"
PYTORCH = f"{CONTAINERS}/lumi-pytorch-rocm-6.2.4-python-3.12-pytorch-v2.7.1.sif"


def image(path: str) -> Files:
    return {f"{path}{name}": content for name, content in stock("suse155", "/lib64").items()} | {
        f"{path}/.singularity.d/labels.json": b"{}"
    }


TREES: dict[str, tuple[Files, str, str]] = {
    "a link to a file": ({**image(f"{LAIF}/new.sif"), PYTORCH: Link(f"{LAIF}/new.sif")}, PYTORCH, "laif-multitorch"),
    "a link in a folder of links": (
        {**image(f"{LAIF}/new.sif"), CONTAINERS: Link("laifs/containers")},
        f"{CONTAINERS}/new.sif",
        "laif-multitorch",
    ),
    "a link to what its own name does not tell": (
        {**image("/data/one.sif"), PYTORCH: Link("/data/one.sif")},
        PYTORCH,
        "lumi-pytorch",
    ),
}


@pytest.mark.parametrize("case", TREES)
def test_a_name_is_what_it_leads_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Output, case: str) -> None:
    files, name, family = TREES[case]
    write_tree(tmp_path / "host", {**files, "/usr/lib64/.keep": b""})
    monkeypatch.chdir(tmp_path)
    main(["images", "--host-root", "host", "--json", name])
    (entry,) = json.loads(capsys.readouterr().out)
    assert entry["family"] == family
    plan = tmp_path / "plan.yaml"
    main(["binds", f"host{name}", "--host-root", "host", "--write", str(plan)])
    assert f"lumisite: image family {family} (by its path" in capsys.readouterr().err
    written = yaml.safe_load(plan.read_text())
    assert written["family"] == family
    assert written["paths"][0] == name, "the paths are those of the host, wherever its copy stands"
    assert str(tmp_path) not in str(written["paths"])


def test_what_jobs_call_an_image_does_not_make_it_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Output
) -> None:
    monkeypatch.chdir(write_tree(tmp_path, image("/x/lumi-multitorch-1.sif")))
    for path, family in ((PYTORCH, "laif-multitorch"), ("*/nobody-*.sif", "laif-multitorch")):
        main(["binds", "x/lumi-multitorch-1.sif", "--path", path])
        assert f"image family {family} (" in capsys.readouterr().err
    Path("x/lumi-multitorch-1.sif").rename("x/mine")
    main(["binds", "x/mine", "--path", PYTORCH])
    assert "image family lumi-pytorch (by its path" in capsys.readouterr().err, "a file that says nothing by itself"


def test_a_change_touches_the_families_that_a_name_led_and_leads_to() -> None:
    """Its own name, which is that of a third family, counts for neither."""
    site = load_site("lumi").site
    before, after = f"{LAIF}/old.sif", "/data/lumi-jax-rocm-6.2.4.sif"
    change = Change("image", PYTORCH, before, after, names=(before, after))
    node = Facts(site="lumi")
    found = touches(change, Context(site, node, node, site.platform, None))
    assert {one.name for one in found if one.what == "family"} == {"laif-multitorch", "lumi-jax"}
