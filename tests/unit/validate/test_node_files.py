"""Which files differ between nodes: the judge on checksums of blocks, and the script that makes them."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from lumisite.findings.writers import message
from lumisite.validate.probes.node.judge_files import BLOCK_BYTES, NOTHING, compare_files
from lumisite.validate.probes.outcome import Located
from lumisite.validate.probes.probe import scripts

RELEASE, IMAGE, RUNTIME = "/appl/ai/current", "/appl/images/torch.sif", "/usr/bin/singularity"
PROLOG, OTHER, APPTAINER = (f"{RELEASE}/spank/{name}" for name in ("task_prolog", "bin/singularity", "bin/apptainer"))
NODES = ("n1", "n2", "n3", "n4")
BAD = "n2"


def sum_at(number: int) -> str:
    return str(number + 1000)


def healthy() -> dict[str, Any]:
    """What one node records: three blocks of an image of five, and small files."""
    small = {"size": 3, "blocks": f"0:{sum_at(0)} "}
    blocks = " ".join(f"{number}:{sum_at(number)}" for number in (4, 0, 2))
    image = {"size": 5 * BLOCK_BYTES - 7, "blocks": blocks}
    return {"files": {PROLOG: small, OTHER: small, APPTAINER: small, RUNTIME: small, IMAGE: image}}


def nodes(names: tuple[str, ...] = NODES) -> dict[str, Any]:
    return {name: json.loads(json.dumps(healthy())) for name in names}


def found(records: Mapping[str, Any], known: tuple[Located, ...] = ()) -> list[tuple[str, str, str]]:
    located = list(compare_files(records, RELEASE, {IMAGE: "the image"}, known))
    assert all(message(entry.finding) for entry in located)
    return [(entry.node, entry.finding.code, entry.finding.subject) for entry in located]


def changed(records: dict[str, Any], path: str, **values: Any) -> dict[str, Any]:
    records[BAD]["files"][path].update(values)
    return records


def other(number: int, checksum: str = "123") -> str:
    text: str = healthy()["files"][IMAGE]["blocks"]
    return text.replace(f"{number}:{sum_at(number)}", f"{number}:{checksum}")


@pytest.mark.parametrize("names", [NODES, NODES[:2], NODES[:1]])
def test_nodes_with_the_same_files_are_not_named(names: tuple[str, ...]) -> None:
    assert found(nodes(names)) == []
    assert found({}) == []


def test_a_node_is_named_whose_image_differs_in_one_block() -> None:
    records = changed(nodes(), IMAGE, blocks=other(2))
    (entry,) = compare_files(records, RELEASE, {IMAGE: "the image"}, ())
    assert (entry.node, entry.finding.code, entry.finding.subject) == (BAD, "node-file", IMAGE)
    assert entry.finding.message == (
        f"other content than on the other nodes from about byte {2 * BLOCK_BYTES} on (the image)"
    )
    (entry,) = compare_files(changed(nodes(), IMAGE, blocks=other(4, NOTHING)), RELEASE, {}, ())
    assert f"cannot be read at byte {4 * BLOCK_BYTES}, on the other nodes it can" in entry.finding.message


def test_several_files_of_a_release_are_one_finding() -> None:
    records = changed(nodes(), APPTAINER, size=2)
    (entry,) = compare_files(changed(records, OTHER, size=2), RELEASE, {}, ())
    assert (entry.node, entry.finding.code, entry.finding.subject) == (BAD, "node-file", RELEASE)
    assert entry.finding.message.startswith("spank/bin/singularity, spank/bin/apptainer: has 2 bytes")


def test_a_file_that_only_one_node_lacks_is_missing_there() -> None:
    records = nodes()
    del records[BAD]["files"][APPTAINER]
    assert found(records) == [(BAD, "node-file", APPTAINER)]
    records = nodes()
    records[BAD]["files"]["/appl/ai/current/more"] = healthy()["files"][APPTAINER]
    assert found(records) == [], "what only one node has harms nobody"


def test_what_is_known_already_is_not_said_again() -> None:
    records = changed(nodes(), IMAGE, size=5)
    (entry,) = compare_files(records, RELEASE, {}, ())
    assert found(records, known=(entry,)) == []
    above = Located(replace(entry.finding, subject="/appl"), BAD)
    assert found(records, known=(above,)) == []
    assert found(records, known=(replace(above, node="n1"), Located(replace(entry.finding, subject=""), BAD)))


def test_two_nodes_that_differ_are_both_in_doubt() -> None:
    for change in ({"blocks": other(2)}, {"size": 9}):
        records = changed(nodes(NODES[:2]), IMAGE, **change)
        assert found(records) == [(name, "nodes-disagree", IMAGE) for name in NODES[:2]]
    records = nodes(NODES[:2])
    del records[BAD]["files"][APPTAINER]
    assert found(records) == []


# ---- the script


def run_script(folder: Path, shell: str, *words: str, job: str = "7", **changes: str) -> dict[str, Any]:
    text = "".join(scripts()[name].read_text() for name in ("node_common.sh", "node_files.sh"))
    for name, value in changes.items():
        assert f"{name}=" in text
        text = text.replace(f"{name}=", f"{name}={value} was_{name}=", 1)
    command = [shell, "-c", text, "node_files.sh", str(folder / "out"), *words]
    environment = {"SLURM_PROCID": "3", "SLURMD_NODENAME": "n9", "SLURM_JOB_ID": job, "IFS": "o"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    record: dict[str, Any] = json.loads((folder / "out/3.json").read_text())
    (folder / "out/3.json").unlink()
    return record


@pytest.mark.parametrize("shell", ["dash", "bash"])
def test_the_script_makes_a_checksum_of_each_block(tmp_path: Path, shell: str) -> None:
    release, image = tmp_path / 'a "b" o', tmp_path / "image"
    release.mkdir()
    (release / "small o").write_text("x")
    (release / "empty").touch()
    image.write_bytes(b"".join(bytes([number]) * BLOCK_BYTES for number in range(3)) + b"end")
    record = run_script(tmp_path, shell, str(release), "/gone", str(image))
    assert (record["host"], record["rank"], record["part"]) == ("n9", 3, "files")
    assert list(record["files"]) == [f"{release}/empty", f"{release}/small o", str(image)]
    for path, entry in record["files"].items():
        data = Path(path).read_bytes()
        assert entry["size"] == len(data)
        blocks = dict(word.split(":") for word in entry["blocks"].split())
        assert len(blocks) == -(-len(data) // BLOCK_BYTES)
        for number, checksum in blocks.items():
            block = data[int(number) * BLOCK_BYTES : (int(number) + 1) * BLOCK_BYTES]
            done = subprocess.run(["cksum"], input=block, capture_output=True, check=True)
            assert done.stdout.split()[0].decode() == checksum
    done = subprocess.run(["cksum"], input=b"", capture_output=True, check=True)
    assert done.stdout.split()[0].decode() == NOTHING


def test_jobs_one_after_the_other_look_at_all_of_a_file_and_always_at_its_end(tmp_path: Path) -> None:
    image = tmp_path / "image"
    image.write_bytes(bytes(97 * 4096))
    seen: set[str] = set()
    for job in range(40, 49):
        words = (str(tmp_path / "none"), str(image))
        record = run_script(tmp_path, "dash", *words, job=str(job), block="4096", most_blocks="13")
        blocks = [word.partition(":")[0] for word in record["files"][str(image)]["blocks"].split()]
        assert (blocks[0], len(set(blocks))) == ("96", 13)
        seen |= set(blocks)
        places = sorted(map(int, blocks))
        assert max(after - before for before, after in pairwise([0, *places])) <= 25, "spread over the file"
    assert seen == set(map(str, range(97)))
