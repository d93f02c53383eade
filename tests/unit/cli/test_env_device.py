"""`env --runtime`: the CDI device that an image gets, as it is rendered, and the options that use it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from lumisite.cli import main
from tests.support.sites import site_text

CDI = ("\nfabric:", "  podman: {emit: cdi, variant: 4.3, source: here}\n\nfabric:")
PLAN = Path(__file__).parents[2] / "golden/plans/small.yaml"


def test_env_explains_a_device_as_it_is_rendered(capsys: pytest.CaptureFixture[str]) -> None:
    Path("site.yaml").write_text(site_text(CDI))
    assert main(["render", "--site", "./site.yaml"]) == 0
    capsys.readouterr()
    rendered = json.loads(Path("site-out/cdi/twin-twin-torch.json").read_text())["devices"]
    edits = {device["name"]: device["containerEdits"] for device in rendered}["twin-several"]
    words = ["env", "/appl/images/torch.sif", "--site", "./site.yaml", "--runtime", "podman", "--nodes", "2"]
    assert main([*words, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    name = "twin-several"
    assert told["device"] == f"twin/twin-torch={name}"
    assert told["options"] == [f"--device=twin/twin-torch={name}", "--env=MASTER_ADDR", "--env=MASTER_PORT"]
    set_here = {key: one["value"] for key, one in told["variables"].items() if one["by"] == "device"}
    assert set_here == dict(text.split("=", 1) for text in edits["env"])
    assert {one["target"] for one in told["binds"]} == {one["containerPath"] for one in edits["mounts"]}
    assert told["variables"]["MASTER_ADDR"]["by"] == "prolog"
    assert main(words) == 0
    text = capsys.readouterr().out
    assert "  NCCL_NET_GDR_LEVEL=PHB\n      settings[3]: as on LUMI\n" in text
    assert "Not in the device\n  CPU masks of tasks\n" in text
    assert f"Options: --device=twin/twin-torch={name} --env=MASTER_ADDR --env=MASTER_PORT\n" in text


def test_env_finds_the_device_of_a_plan(capsys: pytest.CaptureFixture[str]) -> None:
    Path("site.yaml").write_text(site_text(CDI))
    words = ["env", "--site", "./site.yaml", "--runtime", "podman", "--plan", str(PLAN), "--json"]
    for image, kind in (("/appl/images/small-2.sif", "plan-small"), ("/appl/images/other.sif", "twin-torch")):
        assert main([*words, image]) == 0
        assert json.loads(capsys.readouterr().out)["device"] == f"twin/{kind}=twin"


def test_env_of_a_site_with_devices_alone_needs_no_option(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["env", "--site", "perlmutter", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["device"] == "perlmutter/any=a100"
    assert "--device=nvidia.com/gpu=all" in told["options"]


def test_env_of_a_runtime_that_the_site_lacks_names_those_that_it_has(capsys: pytest.CaptureFixture[str]) -> None:
    Path("site.yaml").write_text(site_text(CDI))
    assert main(["env", "--site", "./site.yaml", "--runtime", "docker"]) == 2
    told = capsys.readouterr().err
    assert "--runtime" in told
    assert "podman" in told
