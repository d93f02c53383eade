from __future__ import annotations

import json
from pathlib import Path

import pytest

from lumisite.cli import main, masks
from lumisite.machine.host import DiskTree
from lumisite.site.load import load_site
from tests.support.dict_trees import write_tree
from tests.support.lumi_g import PUBLISHED, PUBLISHED_BOTH_THREADS, lumi_g_files

pytestmark = pytest.mark.usefixtures("at_lumi")

NODES = Path(__file__).parents[2] / "data" / "nodes"
Output = pytest.CaptureFixture[str]


def answers(capsys: Output, *arguments: str) -> list[dict[str, object]]:
    assert main(["masks", "--json", *arguments]) == 0
    found = json.loads(capsys.readouterr().out)
    assert isinstance(found, list)
    assert all(list(entry) == ["task", "gpu", "cpus", "mask"] for entry in found)
    return found


def test_a_whole_node_of_the_sites_only_gpu_kind_is_the_default(capsys: Output) -> None:
    assert answers(capsys) == answers(capsys, "--site", "lumi", "--node", "lumi-g", "--tasks", "8", "--threads", "1")
    assert [entry["mask"] for entry in answers(capsys)] == PUBLISHED
    assert [entry["gpu"] for entry in answers(capsys)] == list(range(8))
    assert answers(capsys)[0] == {"task": 0, "gpu": 0, "cpus": "49-55", "mask": "0xfe000000000000"}
    assert [entry["mask"] for entry in answers(capsys, "--threads", "2")] == PUBLISHED_BOTH_THREADS


def test_a_site_with_two_kinds_of_gpu_nodes_must_be_told_which(tmp_path: Path, capsys: Output) -> None:
    text = load_site("lumi").data.decode()
    kind = text.partition("\n  lumi-g:\n")[2].partition("\n  lumi-c:")[0]
    (tmp_path / "two.yaml").write_text(text.replace("\npartitions:", f"\n  lumi-h:\n{kind}\npartitions:", 1))
    assert main(["masks", "--site", "two.yaml"]) == 2
    assert "has not one node kind with GPUs, so name one (have lumi-g, lumi-h)" in capsys.readouterr().err
    assert [entry["mask"] for entry in answers(capsys, "--site", "two.yaml", "--node", "lumi-h")] == PUBLISHED


def test_tasks_default_to_one_for_each_granted_gpu(capsys: Output) -> None:
    assert [entry["gpu"] for entry in answers(capsys, "--gpus", "6,2-3")] == [6, 2, 3]
    assert [entry["gpu"] for entry in answers(capsys, "--tasks", "4")] == [[0, 1], [2, 3], [4, 5], [6, 7]]


@pytest.mark.parametrize(
    "name", ["lumi-g.xml", "lumi-g-numa.xml", "lumi-g-unplaced.xml", "lumi-g-low-noise.xml", "old"]
)
def test_a_file_of_a_lumi_g_node_gives_lumi_gs_masks(name: str, capsys: Output) -> None:
    """The old one is from before the bus ids changed."""
    text = (NODES / name.replace("old", "lumi-g-numa.xml")).read_text()
    text = text.replace("0000:ce:", "0000:cc:").replace("0000:de:", "0000:dc:") if name == "old" else text
    Path("node.xml").write_text(text)
    assert main(["masks", "--topology", "node.xml", "--json"]) == 0
    output = capsys.readouterr()
    assert [entry["mask"] for entry in json.loads(output.out)] == PUBLISHED
    assert "recognised by its cores and bus ids" in output.err


def test_a_file_has_no_reserved_cores_of_a_site_that_nobody_named(
    capsys: Output, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = str(NODES / "lumi-g.xml")
    monkeypatch.delenv("LUMISITE_SITE")
    assert answers(capsys, "--topology", file, "--tasks", "8")[0]["cpus"] == "48-55"
    assert main(["masks", "--topology", file]) == 0
    assert "no site is named, so no core is left out as reserved" in capsys.readouterr().err
    assert answers(capsys, "--topology", file, "--site", "lumi")[0]["cpus"] == "49-55"


def test_a_file_of_another_node_is_taken_as_it_is_and_that_is_said(capsys: Output) -> None:
    assert main(["masks", "--json", "--topology", str(NODES / "two-sockets-nvidia.xml")]) == 0
    output = capsys.readouterr()
    assert [entry["cpus"] for entry in json.loads(output.out)] == ["0-3", "4-7", "8-11", "12-15"]
    assert "is no node kind of site lumi: which cores its site reserves is not known" in output.err


def test_the_live_node_is_limited_to_what_the_process_may_use(
    tmp_path: Path, capsys: Output, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_tree(tmp_path, {**lumi_g_files(), "/proc/self/status": b"Cpus_allowed_list:\t1-7,9-15,65-71\n"})
    monkeypatch.setattr(masks, "DiskTree", lambda _root: DiskTree(str(tmp_path)))
    assert [entry["cpus"] for entry in answers(capsys, "--node", "live", "--gpus", "4,5")] == ["1-7", "9-15"]
    assert [entry["cpus"] for entry in answers(capsys, "--node", "live", "--gpus", "4", "--cpus", "0-3")] == ["1-3"]
    assert main(["masks", "--node", "live", "--gpus", "0"]) == 1


def test_a_task_without_a_mask_is_null_in_json_and_told_on_stderr(capsys: Output) -> None:
    assert main(["masks", "--site", "lumi", "--json", "--cpus", "49-55", "--gpus", "0,4"]) == 1
    output = capsys.readouterr()
    assert json.loads(output.out)[1] == {"task": 1, "gpu": 4, "cpus": None, "mask": None}
    assert output.err.startswith(
        "lumisite: task 1 gets no mask: GPU 4: no core of L3 0 is among the granted CPUs 49-55"
    )


def test_the_table_ends_with_an_option_for_srun(capsys: Output) -> None:
    assert main(["masks"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].split()[:4] == ["0", "0", "49-55", "0xfe000000000000"]
    assert lines[-1] == f"--cpu-bind=mask_cpu:{','.join(PUBLISHED)}"


def test_the_option_is_left_out_where_it_would_not_fit_every_node(capsys: Output) -> None:
    assert main(["masks", "--cpus", "49-55", "--gpus", "0"]) == 0
    output = capsys.readouterr()
    assert "mask_cpu" not in output.out
    assert "srun gives every node the same masks" in output.err


@pytest.mark.parametrize("granted", ["0-127", ",".join(f"{first + 1}-{first + 7}" for first in range(0, 128, 8))])
def test_a_grant_of_every_core_that_tasks_may_use_is_a_whole_node(granted: str, capsys: Output) -> None:
    assert main(["masks", "--cpus", granted]) == 0
    assert capsys.readouterr().out.endswith(f"--cpu-bind=mask_cpu:{','.join(PUBLISHED)}\n")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--node", "lumi-x"], "--node: lumi has no node kind lumi-x (did you mean lumi-g?)"),
        (["--cpus", "x"], "--cpus: 'x' is not a list of numbers"),
        (["--gpus", "0,0"], "--gpus: 0 is listed twice"),
        (["--tasks", "3"], "3 tasks cannot share 8 GPUs evenly"),
        (["--topology", "/dev/zero"], "/dev/zero: cannot be read: it is not a file but a device"),
    ],
)
def test_a_wrong_call_is_refused_with_the_right_one(arguments: list[str], says: str, capsys: Output) -> None:
    assert main(["masks", *arguments]) == 2
    output = capsys.readouterr()
    assert says in output.err
    assert output.out == ""
